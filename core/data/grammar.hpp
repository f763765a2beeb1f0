// A small stochastic grammar with memory: rules that expand into text, and slots that remember what was
// chosen, so that a name or a colour comes back later. Compiled from a readable source text; sampled here,
// scored by grammar_score.hpp. Knows nothing of files, seeds or windows (stories.hpp does), and no rule is
// built in (stories_text.cpp has them).
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace trainhost::data {

/// What a rule says from left to right.
struct Symbol {
  enum Kind : std::uint8_t { kText, kRule, kBind, kUse };
  Kind kind = kText;
  bool capital = false;             // print with a capital first letter
  std::uint8_t slot = 0;            // kBind, kUse
  std::uint8_t field = 0;           // kBind, kUse: which column is printed
  std::uint32_t target = 0;         // kRule: rule; kBind: word class; kUse: word class of the slot
  std::vector<std::uint8_t> apart;  // kBind: the choice differs from what these slots hold
  std::string text;                 // kText
};

struct Alternative {
  std::uint32_t weight = 1;  // probability = weight / Rule::total
  std::vector<Symbol> symbols;
};

struct Rule {
  std::string name;
  std::uint32_t total = 0;
  std::vector<Alternative> alternatives;
};

/// A table of words: one entry a line, one field a column ("Mia | she | her | her"). Entries are equally
/// likely.
struct WordClass {
  std::string name;
  std::vector<std::string> fields;
  std::vector<std::vector<std::string>> plain, capital;  // [entry][field]
  const std::string& word(std::size_t entry, const Symbol& s) const {
    return (s.capital ? capital : plain)[entry][s.field];
  }
};

/// What each slot holds: entry + 1, or 0 while nothing was chosen.
inline constexpr std::size_t kSlots = 32;
using Slots = std::array<std::uint8_t, kSlots>;

/// Source form, line by line; '#' starts a comment line, a backslash-n in a text is a newline.
///   @person: name, he, him, his        a word class and its fields
///     Mia | she | her | her            an entry (indented)
///   story:                             a rule; the first one is where a text starts
///     3 [a=person] lives. <more>       an alternative (indented): weight, then text to the end of the line
/// In a text: <rule> expands a rule, [a=person] chooses an entry for slot a and prints its first field,
/// [a=person.his] prints another field, [b=person-a] chooses one that differs from slot a's, [a] and [a.his]
/// print what slot a holds, and ^ after the bracket capitalises. A slot keeps one word class throughout the
/// grammar. Every rule must say something whichever way it goes, so that a text can always be told further.
/// The text is endless: when a story has ended the next one begins, with all slots empty.
class Grammar {
 public:
  explicit Grammar(
      std::string_view source);  // throws std::logic_error naming the line: a grammar is part of the program

  const std::vector<Rule>& rules() const { return rules_; }
  const std::vector<WordClass>& classes() const { return classes_; }

  /// Entries of class `s.target` that the bind `s` may choose, given the slots; `taken` receives those that
  /// it may not, ascending and without repeats. At least one choice is left.
  std::uint32_t choices(const Symbol& s, const Slots& slots, std::array<std::uint8_t, kSlots>& taken,
                        std::uint32_t& taken_count) const;

 private:
  friend class GrammarReader;
  std::vector<Rule> rules_;
  std::vector<WordClass> classes_;
};

/// 64 random bits from a counter: the same on every machine, and any number of independent streams by key.
class KeyedRandom {
 public:
  explicit KeyedRandom(std::uint64_t key) : state_(key) {}
  std::uint64_t next() { return mix(state_ += 0x9e3779b97f4a7c15ULL); }
  /// Uniform below n (n < 2^32), by multiplication: off by less than n / 2^64.
  std::uint32_t below(std::uint32_t n) {
    return static_cast<std::uint32_t>((static_cast<unsigned __int128>(next()) * n) >> 64);
  }
  static std::uint64_t mix(std::uint64_t z) {  // the finaliser of SplitMix64
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31);
  }

 private:
  std::uint64_t state_;
};

/// Tells stories piece by piece, from a story start. Holds a stack of a few dozen entries; never allocates
/// after that.
class GrammarSampler {
 public:
  GrammarSampler(const Grammar& grammar, std::uint64_t key);
  /// The next piece of text, never empty; valid as long as the grammar.
  std::string_view next();

 private:
  struct Place {
    const Symbol *at, *end;
  };
  const std::vector<Symbol>& choose(const Rule& rule);
  std::uint8_t choose(const Symbol& bind);

  const Grammar& grammar_;
  KeyedRandom random_;
  Slots slots_{};
  std::array<Place, 32> stack_{};
  std::size_t depth_ = 0;
};

}  // namespace trainhost::data
