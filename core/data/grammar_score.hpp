// Exact probabilities of a text under a grammar, character by character: the forward algorithm over
// derivations. Every way in which the text so far can have come about is kept with its weight, so shared
// prefixes ("she s|ees", "she s|pots") and even ambiguity cost nothing in exactness. See grammar.hpp for the
// grammar itself.
#pragma once
#include <array>
#include <deque>
#include <vector>

#include "core/data/grammar.hpp"

namespace trainhost::data {

class GrammarScore {
 public:
  explicit GrammarScore(const Grammar& grammar) : grammar_(grammar) { restart(); }

  /// Back to a story start.
  void restart();
  /// Log-probability, in nats, of `c` coming next given all characters since restart(); then takes it as
  /// read. -infinity when the grammar cannot say it, and for every character after that.
  double advance(char c);
  /// Probability of each next character (by unsigned value) given all characters since restart(); sums to 1.
  std::array<double, 256> next() const;
  /// Number of derivations still possible.
  std::size_t live() const { return live_.size(); }

 private:
  struct Frame {
    const Symbol *at, *end;
    const Frame* below;
  };  // what is left to say, innermost first; shared, never changed
  struct Item {
    double weight;           // P(derivation | text so far)
    const char *text, *end;  // the piece being said; never empty between calls
    const Frame* stack;
    Slots slots;
  };
  void expand(Item item);
  void expand_rule(const Rule& rule, const Item& item);
  void expand_bind(const Symbol& s, const Item& item);
  const Frame* push(const Symbol* at, const Symbol* end, const Frame* below);

  const Grammar& grammar_;
  std::vector<Item> live_, survivors_;
  std::deque<Frame> frames_;  // grows until restart(): a few frames a character
};

}  // namespace trainhost::data
