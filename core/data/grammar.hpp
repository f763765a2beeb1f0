// A probabilistic grammar with memory: rules expand into text, and slots store choices, so that a name or a
// colour recurs later in a story. Parsed from a source text and sampled here; grammar_score.hpp computes
// probabilities, stories.hpp defines seeds and windows, stories_text.cpp contains the rules.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace trainhost::data {

/// One element of a rule's text.
struct Symbol {
  enum Kind : std::uint8_t { kText, kRule, kBind, kUse };
  Kind kind = kText;
  bool capital = false;             // print with a capital first letter
  std::uint8_t slot = 0;            // kBind, kUse
  std::uint8_t field = 0;           // kBind, kUse: the printed column
  std::uint32_t target = 0;         // kRule: rule; kBind: word class; kUse: word class of the slot
  std::vector<std::uint8_t> apart;  // kBind: slots whose entries are excluded
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

/// A table of words: one entry per line, one field per column ("Mia | she | her | her"). Entries are equally
/// likely.
struct WordClass {
  std::string name;
  std::vector<std::string> fields;
  std::vector<std::vector<std::string>> plain, capital;  // [entry][field]
  const std::string& word(std::size_t entry, const Symbol& s) const {
    return (s.capital ? capital : plain)[entry][s.field];
  }
};

/// Content of each slot: entry + 1, or 0 if empty.
inline constexpr std::size_t kSlots = 32;
using Slots = std::array<std::uint8_t, kSlots>;

/// Source form, line by line; '#' starts a comment line, a backslash-n in a text is a newline.
///   @person: name, he, him, his        a word class and its fields
///     Mia | she | her | her            an entry (indented)
///   story:                             a rule; the first one is where a text starts
///     3 [a=person] lives. <more>       an alternative (indented): weight, then text to the end of the line
/// In a text: <rule> expands a rule, [a=person] chooses an entry for slot a and prints its first field,
/// [a=person.his] prints another field, [b=person-a] chooses an entry other than slot a's, [a] and [a.his]
/// print the entry of slot a, and ^ after the bracket capitalises. A slot has one word class in the whole
/// grammar. Every alternative of a rule must produce text. The text is endless: after a story the next one
/// starts with empty slots.
class Grammar {
 public:
  /// Throws std::logic_error with the line: grammars are part of the program, so a mistake is a bug.
  explicit Grammar(std::string_view source);

  const std::vector<Rule>& rules() const { return rules_; }
  const std::vector<WordClass>& classes() const { return classes_; }

  /// Number of entries of class `s.target` that the bind `s` may choose, at least one. Stores the excluded
  /// entries in `taken`, ascending and without duplicates.
  std::uint32_t choices(const Symbol& s, const Slots& slots, std::array<std::uint8_t, kSlots>& taken,
                        std::uint32_t& taken_count) const;

 private:
  friend class GrammarReader;
  std::vector<Rule> rules_;
  std::vector<WordClass> classes_;
};

/// 64-bit random numbers from a counter: the same on every machine, with independent streams per key.
class KeyedRandom {
 public:
  explicit KeyedRandom(std::uint64_t key) : state_(key) {}
  std::uint64_t next() { return mix(state_ += 0x9e3779b97f4a7c15ULL); }
  /// Uniform in [0, n), n < 2^32, by multiplication; the bias is below n / 2^64.
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

/// Generates stories piece by piece, from the start of a story. Uses a stack of fixed size; never allocates.
class GrammarSampler {
 public:
  GrammarSampler(const Grammar& grammar, std::uint64_t key);
  /// The next piece of text, never empty; valid as long as the grammar.
  std::string_view next();

 private:
  struct Frame {
    const Symbol *at, *end;  // next symbol, end of the alternative
  };
  const std::vector<Symbol>& choose(const Rule& rule);
  std::uint8_t choose(const Symbol& bind);

  const Grammar& grammar_;
  KeyedRandom random_;
  Slots slots_{};
  std::array<Frame, 32> stack_{};
  std::size_t depth_ = 0;
};

}  // namespace trainhost::data
