// Exact probability of each character of a text under a grammar: the forward algorithm over derivations.
// Every derivation of the text so far is kept with its probability, so shared prefixes ("she s|ees", "she
// s|pots") and ambiguity are handled exactly. The grammar itself: grammar.hpp.
#pragma once
#include <array>
#include <deque>
#include <vector>

#include "core/data/grammar.hpp"

namespace trainhost::data {

class GrammarScore {
 public:
  explicit GrammarScore(const Grammar& grammar) : grammar_(grammar) { restart(); }

  /// Returns to the start of a story.
  void restart();
  /// Log-probability in nats of the next character `c`, given all characters since restart(); then appends
  /// it. -infinity if the grammar cannot generate it, and for every character after that.
  double advance(char c);
  /// Probability of each next character (by unsigned value) given all characters since restart(); sums to 1.
  std::array<double, 256> next() const;
  /// Number of derivations that match the text so far.
  std::size_t live() const { return live_.size(); }

 private:
  struct Frame {
    const Symbol *at, *end;
    const Frame* below;
  };  // remaining symbols, innermost first; shared and immutable
  struct Item {
    double weight;           // P(derivation | text so far)
    const char *text, *end;  // rest of the current piece; never empty between calls
    const Frame* stack;
    Slots slots;
  };
  void expand(Item item);
  void expand_rule(const Rule& rule, const Item& item);
  void expand_bind(const Symbol& s, const Item& item);
  const Frame* push(const Symbol* at, const Symbol* end, const Frame* below);

  const Grammar& grammar_;
  std::vector<Item> live_, survivors_;
  std::deque<Frame> frames_;  // grows until restart() by a few frames per character
};

}  // namespace trainhost::data
