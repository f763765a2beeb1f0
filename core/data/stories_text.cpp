// The grammar of the built-in text: stories of about five sentences. Facts that a story states early (who,
// where, which object of which colour) recur later. Notation: grammar.hpp; lines that begin with # are
// comments of the grammar and are skipped by its reader. Changing a word, a weight or the order of entries
// changes the text and the entropy of every built-in run. Why the text has this form is in README.md, "What a
// model must learn".
#include "core/data/stories.hpp"

namespace trainhost::data {

std::string_view stories_grammar_text() {
  return R"grammar(
# People with their pronouns, so a sentence may use either. The name recurs: a model has to recall it.
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

# Places. The preposition belongs to the place: "on the farm", "in the mill".
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

# Adjectives of places; @nature and @mood describe people and animals.
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

# Landmarks, used after @where and @path. They are chosen anew at each use.
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

# Nouns with their action. A story names the noun again as "the X" and then its action: recalling the
# noun determines several characters, which a small model can learn.
@job: name, does
  baker | bakes bread
  farmer | feeds cows
  sailor | mends nets
  painter | paints walls
  teacher | reads books
  tailor | sews coats
  singer | sings songs
  gardener | waters roses
  shepherd | counts sheep
  cook | stirs soup
  smith | bends iron
  weaver | spins wool
  doctor | heals people
  miner | digs for gold
  hunter | sets traps
  dancer | jumps high

@thing: name, does
  kite | flies
  lamp | shines
  drum | booms
  key | jingles
  book | opens
  ball | bounces
  bell | rings
  hat | falls
  clock | ticks
  flute | whistles
  mirror | gleams
  ring | sparkles
  wagon | squeaks
  candle | flickers
  bottle | breaks
  coin | spins
  puppet | nods
  wheel | turns
  stove | smokes
  boot | slips

# A colour is chosen with its object and not repeated.
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

# Pets and wild animals are separate classes: a tale has at most one animal.
@pet: name, does
  dog | barks
  cat | purrs
  goat | bleats
  duck | quacks
  horse | neighs
  hen | clucks
  mouse | hides
  frog | croaks
  parrot | chatters
  pig | grunts
  donkey | brays
  bee | hums

@beast: name, does
  fox | grins
  hare | hops
  bear | growls
  wolf | howls
  crow | caws
  badger | digs
  turtle | crawls
  squirrel | climbs
  lion | roars
  hedgehog | sniffs
  snake | hisses
  giant | stamps

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

# Food and fruit: singular after "some", plural after a number.
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

# Mood with its verb in the singular and the plural: "he cries", "they cry".
@mood: name, does, do
  happy | dances | dance
  sad | cries | cry
  tired | sleeps | sleep
  proud | smiles | smile
  scared | trembles | tremble
  mad | shouts | shout
  cold | shivers | shiver
  hungry | eats | eat
  merry | laughs | laugh
  bored | yawns | yawn
  sick | coughs | cough
  late | hurries | hurry

# The weather as an adjective, and the event that follows from it.
@weather: name, does
  sunny | the sun shines
  rainy | the rain falls
  windy | the wind blows
  snowy | the snow melts
  stormy | thunder rolls
  foggy | the fog lifts
  cloudy | the sky clears
  calm | the wind rests

# Time and manner add entropy that needs no memory: every entry is equally likely.
@time: name
  morning
  evening
  summer
  winter
  day
  night
  spring
  autumn
  week
  year

@way: does, do
  walks | walk
  runs | run
  strolls | stroll
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

# After "his" or "her".
@kin: name
  mother
  father
  sister
  brother
  uncle
  aunt
  cousin
  friend

# Rules. The first one generates a story: one tale, then a blank line, after which the slots are empty.
# Weights are shares of the tales, not of the characters.
story:
  4 <find-tale>\n\n
  4 <pet-tale>\n\n
  4 <work-tale>\n\n
  3 <pair-tale>\n\n
  3 <beast-tale>\n\n
  3 <trip-tale>\n\n
  2 <shop-tale>\n\n

# Phrases that all tales share. They choose slots x, u, y, z, m, d anew at each use.
place:
  1 [x=where] the [u=age] [y=mark]
way-there:
  1 [z=path] the [u=age] [y=mark]
feels:
  1 is [m=mood] and [m.does] [d=manner]
  1 feels [m=mood]
  1 [m=mood.does] [d=manner]

# A person finds an object (slot o), which acts and ends up in the home (slot h) of the beginning.
find-tale:
  1 <lives> One [t=time] [a.he] <sees> a <kind-of> [o=thing] <place>. <thing-turn> <thing-end>
# Binds the hero (slot a) and the home (slot h), which later sentences repeat.
lives:
  2 [a=person] lives [h=home.in] the [g=age] [h.name].
  1 [a=person] has a room [h=home.in] the [g=age] [h.name].
sees:
  3 finds
  2 sees
  1 spots
  1 [d=manner] takes
kind-of:
  3 [c=color]
  1 <fine>
thing-turn:
  3 The [o] [o.does] and [a.he] [m=mood.does].
  2 [^a.he] shows the [o] to [a.his] [f=kin].
  2 "What a <fine> [o]!" says [a].
  2 The [o] belongs to [b=person-a], a [i=nature] [j=job].
  1 [^a.he] sells the [o] for [n=number] [r=fruit].
fine:
  2 lovely
  2 strange
  1 tiny
  1 heavy
  1 useful
thing-end:
  3 Now the [o] <rests> [h.in] the [h.name].
  2 [a] keeps the [o] <forever>.
  2 [^a.he] <feels>.
  2 <homeward>
rests:
  2 stays
  1 hangs
  1 stands
forever:
  2 forever
  1 for [n=number] years
  1 until [t2=time]
homeward:
  2 At night [a.he] <returns> to the [h.name].
  1 Then [a.he] <returns> to the [h.name].
returns:
  2 goes back
  1 returns
  1 [v=way.does] home

# A person and a pet (slot o2). The tale names the pet with its action.
pet-tale:
  1 [a=person] has a <small> [o2=pet]. <pet-day> <pet-does> <pet-end>
small:
  2 little
  1 big
  1 young
  1 fat
  3 [c=color]
pet-day:
  2 It is a [w=weather] [t=time] and [w.does].
  3 Every [t=time] the [o2] [o2.does] and [a.he] [m=mood.does].
  1 <pet-does>
pet-does:
  2 The [o2] [v=way.does] <way-there>.
  2 The [o2] [d=manner] <steals> some [e=food].
  1 "Come here, [o2]!" calls [a].
  1 [^a.he] looks for the [o2] <place>.
steals:
  2 steals
  1 smells
  1 wants
pet-end:
  2 At last the [o2] sleeps <place>.
  2 [^a.he] gives the [o2] some [e2=food].
  1 [a] loves the [o2] and the [o2] loves [e2=food].
  1 So the [o2] [o2.does] and [a.he] [m=mood.does].

# A person with a job (slot j); the job stands for the name in later sentences.
work-tale:
  1 [a=person] is a <kind> [j=job] [h=home.in] the [g=age] [h.name]. <work-day> <work-end>
kind:
  1 kind
  1 rich
  1 poor
  1 young
  1 famous
  2 [i=nature]
work-day:
  3 Every [t=time] the [j] [d=manner] [j.does].
  1 All day long the [j] [j.does].
  1 Every [t=time] the [j] [j.does] with [a.his] [f=kin].
work-end:
  2 Then [a.he] <wishes> to [v=way.do] <way-there>.
  2 "I am a <good> [j]," says [a].
  1 [b=person-a] meets the [j] <place>.
  2 <homeward>
  1 The [j] <feels>.
wishes:
  2 wants
  1 hopes
  1 has
good:
  1 good
  1 [m=mood]
  1 [i=nature]

# Two people: b is never the same entry as a, so "they" and both names stay unambiguous.
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
  2 There they find a <kind-of> [o=thing].
  2 There they meet a [i=nature] [k=beast].
  1 [a] carries [n=number] [r=fruit], [b] carries some [e=food].
pair-end:
  2 "I am [m=mood]," says [b], and they [l=mood.do].
  1 [b] <feels>.
  2 Then they [v2=way.do] home.
  1 They [m=mood.do] [d2=manner] all night.

# A wild animal (slot k) comes first, the person second.
beast-tale:
  1 A [i=nature] [k=beast] meets [a=person] <place>. <beast-talk> <beast-end>
beast-talk:
  2 "Give me your [e=food]," says the [k].
  1 "I am [m=mood]," says the [k].
  1 "Why are you so [m=mood]?" asks [a].
  2 The [k] [k.does] and [a.he] [m=mood.does].
beast-end:
  2 [^a.he] [l=mood.does] and the [k] [v=way.does] <way-there>.
  1 So [a] and the [k] become <partners>.
  1 But the [k] only [l=mood.does] [d=manner].
  1 [^a.he] gives the [k] some [e2=food].
partners:
  2 friends
  1 partners
  1 enemies

# The weather (slot w) of the first sentence returns as an event.
trip-tale:
  1 It is a [w=weather] [t=time]. [a=person] [v=way.does] [d=manner] <way-there> with [a.his] [f=kin]. <trip-turn> <trip-end>
trip-turn:
  2 Soon [w.does] and [a.he] [m=mood.does].
  2 They meet [b=person-a], a [i=nature] [j=job].
  1 [^a.he] loses the way <place>.
trip-end:
  2 [a] hears a <fine> <tale>.
  1 [^a.he] <feels>.
  2 They share [n=number] [r=fruit] and [v2=way.do] home.
tale:
  2 story
  1 secret
  1 joke

# Fruit (slot r) and its number are bought, then named again.
shop-tale:
  1 [a=person] buys [n=number] [r=fruit] and some [e=food] <shop>. <shop-turn> <shop-end>
shop:
  2 <place>
  1 from [b=person-a], a [i=nature] [j=job]
shop-turn:
  2 The [r] are <taste>.
  1 "How <taste> the [r] are!" says [a].
taste:
  2 sweet
  1 sour
  1 fresh
  1 cheap
shop-end:
  2 Then [a.he] eats [d=manner] with [a.his] [f=kin].
  1 [^a.he] puts the [r] into a <box>.
  1 Now [a.he] has no money.
box:
  1 basket
  1 box
  1 bag
  1 [c=color] bowl
)grammar";
}

}  // namespace trainhost::data
