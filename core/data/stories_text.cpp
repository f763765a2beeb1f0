// The grammar of the built-in stories: short tales of about five sentences. Whatever a story fixes early (who, where,
// which thing of which colour) comes back later. Notation: grammar.hpp. Changing a word here changes every built-in run.
#include "core/data/stories.hpp"

namespace trainhost::data {

std::string_view stories_grammar_text() {
  return R"grammar(
@person: name, he, him, his
  Mia | she | her | her
  Ben | he | him | his
  Anna | she | her | her
  Tom | he | him | his
  Lily | she | her | her
  Max | he | him | his
  Ida | she | her | her
  Finn | he | him | his
  Nora | she | her | her
  Otto | he | him | his
  Ella | she | her | her
  Hugo | he | him | his
  Rosa | she | her | her
  Emil | he | him | his
  Clara | she | her | her
  Karl | he | him | his
  Greta | she | her | her
  Paul | he | him | his
  Vera | she | her | her
  Jack | he | him | his
  Ruth | she | her | her
  Leo | he | him | his
  Zoe | she | her | her
  Sam | he | him | his
  Jane | she | her | her
  Noah | he | him | his
  Kate | she | her | her
  Adam | he | him | his
  Wilma | she | her | her
  David | he | him | his
  Olga | she | her | her
  Peter | he | him | his

@home: in, name
  in | mill
  in | house
  in | tower
  on | farm
  in | hut
  on | boat
  in | castle
  in | tent
  in | cottage
  in | cave
  on | island
  in | village
  in | inn
  in | school

@age: name
  small
  old
  quiet
  dark
  warm
  pretty
  stone
  wooden
  lonely
  tidy
  grand
  crooked

@mark: name
  river
  bridge
  church
  well
  market
  forest
  lake
  field
  hill
  harbor
  road
  gate
  meadow
  sea
  garden
  pond
  palace
  station

@where: name
  near
  behind
  beside
  before
  beyond
  by

@path: name
  to
  past
  around
  toward
  across

@job: name, does, do
  baker | bakes bread | bake bread
  farmer | feeds cows | feed cows
  sailor | mends nets | mend nets
  painter | paints walls | paint walls
  teacher | reads books | read books
  tailor | sews coats | sew coats
  singer | sings songs | sing songs
  gardener | waters roses | water roses
  shepherd | counts sheep | count sheep
  cook | stirs soup | stir soup
  smith | bends iron | bend iron
  weaver | spins wool | spin wool
  doctor | heals people | heal people
  miner | digs for gold | dig for gold
  hunter | follows tracks | follow tracks
  dancer | jumps high | jump high

@thing: name, use
  kite | flies it
  lamp | lights it
  drum | beats it
  key | hides it
  book | reads it
  ball | kicks it
  bell | rings it
  hat | wears it
  map | follows it
  flute | plays it
  shell | cleans it
  letter | opens it
  clock | repairs it
  chair | sits on it
  blanket | folds it
  mirror | breaks it
  ring | loses it
  wagon | pulls it
  candle | burns it
  bottle | fills it
  coin | spends it
  puppet | moves it

@color: name
  red
  blue
  green
  yellow
  white
  black
  golden
  silver
  brown
  pink
  gray
  purple

@pet: name, sound
  dog | barks
  cat | purrs
  goat | bleats
  duck | quacks
  horse | neighs
  hen | clucks
  mouse | squeaks
  frog | croaks
  parrot | chatters
  pig | grunts
  donkey | brays
  bee | hums

@petname: name
  Pip
  Coco
  Biscuit
  Shadow
  Pepper
  Luna
  Daisy
  Ziggy
  Button
  Rusty
  Muffin
  Tiger

@beast: name
  fox
  hare
  bear
  wolf
  crow
  badger
  turtle
  squirrel
  lion
  hedgehog
  snake
  raven
  toad
  giant

@nature: name
  clever
  quick
  strong
  wild
  wise
  shy
  slow
  busy
  lazy
  greedy
  gentle
  vain

@food: name
  bread
  soup
  cake
  honey
  cheese
  pie
  porridge
  rice
  jam
  toast
  butter
  milk
  fish
  corn

@fruit: name
  apples
  pears
  plums
  cherries
  lemons
  nuts
  eggs
  carrots
  onions
  beans
  berries
  grapes

@number: name
  two
  three
  four
  five
  six
  seven
  eight
  nine
  ten
  twelve

@mood: name, does, do
  happy | dances | dance
  sad | cries | cry
  tired | sleeps | sleep
  proud | smiles | smile
  scared | hides | hide
  mad | shouts | shout
  cold | shivers | shiver
  hungry | eats | eat
  merry | laughs | laugh
  bored | yawns | yawn
  sick | coughs | cough
  late | runs | run

@weather: name, does
  sunny | the sun shines
  rainy | the rain falls
  windy | the wind blows
  snowy | the snow melts
  stormy | thunder rolls
  foggy | the fog lifts
  cloudy | the sky clears
  calm | the wind rests

@time: name
  morning
  evening
  summer
  winter
  day
  night
  spring
  autumn
  Monday
  Sunday

@way: does, do
  walks | walk
  runs | run
  hurries | hurry
  rides | ride
  wanders | wander
  climbs | climb
  sails | sail
  marches | march
  rolls | roll
  skips | skip

@manner: name
  slowly
  quickly
  gladly
  quietly
  bravely
  proudly
  calmly
  boldly
  loudly
  softly
  gently
  wildly
  lightly
  sadly
  warmly
  firmly

@kin: name
  mother
  father
  sister
  brother
  uncle
  aunt
  cousin
  friend

story:
  4 <find-tale>\n\n
  3 <pet-tale>\n\n
  3 <work-tale>\n\n
  3 <pair-tale>\n\n
  3 <beast-tale>\n\n
  3 <trip-tale>\n\n
  2 <shop-tale>\n\n

place:
  1 [x=where] the [u=age] [y=mark]
way-there:
  1 [z=path] the [u=age] [y=mark]

find-tale:
  1 <lives> One [t=time] [a] <sees> a [c=color] [o=thing] <place>. <thing-turn> <thing-end>
lives:
  2 [a=person] lives [h=home.in] the [g=age] [h.name].
  1 [a=person] has a room [h=home.in] the [g=age] [h.name].
sees:
  3 finds
  2 sees
  1 spots
  1 [d=manner] takes
thing-turn:
  3 [^a.he] takes it home and [d=manner] [o.use].
  2 [^a.he] shows the [c] [o] to [a.his] [f=kin].
  2 <praise>
  2 It belongs to [b=person-a], a <kind> [j=job].
  1 [a] gives the [o] to [b=person-a] for [n=number] [r=fruit].
praise:
  2 "What a <fine> [o]!" says [a].
  1 "This [o] is <fine>," says [a.his] [f=kin].
fine:
  2 lovely
  2 strange
  1 tiny
  1 heavy
  1 useful
kind:
  1 kind
  1 rich
  1 poor
  1 young
  1 famous
thing-end:
  3 Now the [c] [o] <rests> [h.in] the [g] [h.name].
  2 [a] keeps the [c] [o] <forever>.
  2 <feels>
  1 <homeward>
rests:
  2 stays
  1 hangs
  1 stands
forever:
  2 forever
  1 for [n=number] years
  1 until [t2=time]
feels:
  3 [a] is [m=mood] and [m.does] [d=manner].
  1 [a] feels [m=mood].
homeward:
  2 At night [a] <returns> to the [g] [h.name].
  1 Then [a] <returns> to the [g] [h.name].
returns:
  2 goes back
  1 returns
  1 [v=way.does] home

pet-tale:
  1 [a=person] has a <small> [p=pet] named [q=petname]. <pet-day> <pet-end>
small:
  2 little
  1 big
  1 young
  1 fat
  2 [c=color]
pet-day:
  2 It is a [w=weather] [t=time] and [w.does]. <pet-does>
  2 Every [t=time] [q] [p.sound] [d=manner] and [a] [m=mood.does]. <pet-does>
  1 <pet-does>
pet-does:
  2 [q] [v=way.does] <way-there>.
  2 [q] [d=manner] <steals> [a.his] [e=food].
  1 "Come here, [q]!" calls [a].
  1 [a] looks for [q] <place>.
steals:
  2 steals
  1 smells
  1 wants
pet-end:
  2 At last [q] sleeps <place>.
  2 [a] gives [q] some [e2=food].
  1 "[q] is [m=mood]," says [a].
  1 [a] loves [q] and [q] loves [e2=food].
  1 So [q] [p.sound] and [a] [m=mood.does].

work-tale:
  1 [a=person] is a <kind> [j=job] [h=home.in] the [g=age] [h.name]. <work-day> <work-end>
work-day:
  3 Every [t=time] [a] [d=manner] <works>.
  1 All day long [a] [d=manner] <works>.
works:
  3 [j.does]
  1 [j.does] with [a.his] [f=kin]
work-end:
  2 Then [a] <wishes> to [v=way.do] <way-there>.
  2 "I am a <good> [j]," says [a].
  1 [b=person-a] wants to [j.do] too.
  2 <homeward>
  1 <feels>
wishes:
  2 wants
  1 hopes
  1 has
good:
  1 good
  1 [m=mood]
  1 [i=nature]

pair-tale:
  1 [a=person] and [b=person-a] are <close>. <pair-move> <pair-turn> <pair-end>
close:
  3 friends
  1 twins
  1 neighbors
  1 [j=job]s
pair-move:
  2 They [v=way.do] [d=manner] <way-there>.
  2 One [t=time] they [v=way.do] <way-there>.
pair-turn:
  2 There they find a [c=color] [o=thing].
  2 There they meet a [i=nature] [k=beast].
  2 [a] carries [n=number] [r=fruit], [b] carries the [e=food].
pair-end:
  2 "I am [m=mood]," says [b], and [a] [l=mood.does].
  1 [b] is [m=mood] and [m.does] [d2=manner].
  2 Then [a] and [b] [v2=way.do] home.
  1 [a] and [b] [m=mood.do] [d2=manner] all night.

beast-tale:
  1 A [i=nature] [k=beast] meets [a=person] <place>. <beast-talk> <beast-end>
beast-talk:
  2 "Give me your [e=food]," says the [k].
  1 "I am [m=mood]," says the [k].
  1 "Why are you so [m=mood]?" asks [a].
beast-end:
  2 [a] [l=mood.does] and the [k] [v=way.does] <way-there>.
  1 So [a] and the [k] become <partners>.
  1 But the [k] only [l=mood.does] [d=manner].
  1 [a] gives the [k] some [e2=food].
partners:
  2 friends
  1 partners
  1 enemies

trip-tale:
  1 It is a [w=weather] [t=time]. [a=person] [v=way.does] [d=manner] <way-there> with [a.his] [f=kin]. <trip-turn> <trip-end>
trip-turn:
  2 Soon [w.does] and [a] [m=mood.does].
  2 They meet [b=person-a], a [i=nature] [j=job].
  1 [a] loses the way [x=where] the [y2=mark-y].
trip-end:
  2 The [f] tells [a] a <fine> <tale>.
  1 "Do you like the [y]?" asks the [f].
  2 They share [n=number] [r=fruit] and [v2=way.do] home.
tale:
  2 story
  1 secret
  1 joke

shop-tale:
  1 [a=person] buys [n=number] [r=fruit] and some [e=food] <shop>. <shop-turn> <shop-end>
shop:
  2 <place>
  1 from [b=person-a], a [i=nature] [j=job]
shop-turn:
  2 The [n] [r] are <taste>.
  1 One of the [n] [r] is <taste>.
  1 "How <taste> the [r] are!" says [a].
taste:
  2 sweet
  1 sour
  1 fresh
  1 cheap
shop-end:
  2 [^a.he] [d=manner] eats the [e] with [a.his] [f=kin].
  1 [a] puts the [e] and the [n] [r] into a <box>.
  1 Now [a.he] has no money.
box:
  1 basket
  1 box
  1 bag
  1 [c=color] bowl
)grammar";
}

}  // namespace trainhost::data
