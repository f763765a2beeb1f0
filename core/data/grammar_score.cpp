// The forward algorithm of grammar_score.hpp. Invariant between calls: every item of live_ has at least one
// character left, and the weights sum to 1 (or live_ is empty, after a character that the grammar cannot
// generate).
#include "core/data/grammar_score.hpp"

#include <cassert>
#include <cmath>
#include <limits>
#include <stdexcept>

namespace trainhost::data {

/// frames_ is a deque: appending does not move existing frames, so pointers to them stay valid.
void GrammarScore::restart() {
  frames_.clear();
  live_.clear();
  expand({1.0, nullptr, nullptr, nullptr, Slots{}});
}

/// A frame without symbols is not pushed. Stacks share their lower frames, like a persistent list, since one
/// derivation splits into many.
const GrammarScore::Frame* GrammarScore::push(const Symbol* at, const Symbol* end, const Frame* below) {
  return at == end ? below : &frames_.emplace_back(Frame{at, end, below});
}

// Adds to live_ every continuation of `item`, whose piece of text has ended. The recursion ends at the first
// character of each continuation: every alternative produces text, which the grammar's rules require.
void GrammarScore::expand(Item item) {
  if (!item.stack) {  // end of the story: the next one starts
    item.slots = {};
    return expand_rule(grammar_.rules().front(), item);
  }
  const Symbol& s = *item.stack->at;
  item.stack = push(item.stack->at + 1, item.stack->end, item.stack->below);
  assert(item.text == item.end);
  const auto add_text = [&](const std::string& text) {
    item.text = text.data();
    item.end = text.data() + text.size();
    assert(item.text != item.end);
    live_.push_back(item);
  };
  switch (s.kind) {
    case Symbol::kText:
      return add_text(s.text);
    case Symbol::kRule:
      return expand_rule(grammar_.rules()[s.target], item);
    case Symbol::kBind:
      return expand_bind(s, item);
    case Symbol::kUse:
      if (item.slots[s.slot] == 0) throw std::logic_error("grammar: a slot is used before it is chosen");
      return add_text(grammar_.classes()[s.target].word(item.slots[s.slot] - 1u, s));
  }
}

/// P(alternative) = weight / total; weights of the items therefore stay a probability distribution.
void GrammarScore::expand_rule(const Rule& rule, const Item& item) {
  for (const Alternative& a : rule.alternatives) {
    Item next = item;
    next.weight = item.weight * a.weight / rule.total;
    next.stack = push(a.symbols.data(), a.symbols.data() + a.symbols.size(), item.stack);
    expand(next);
  }
}

/// The same choices as GrammarSampler::choose(): entries not taken, with equal probability.
void GrammarScore::expand_bind(const Symbol& s, const Item& item) {
  std::array<std::uint8_t, kSlots> taken;
  std::uint32_t taken_count = 0, skipped = 0;
  const std::uint32_t choices = grammar_.choices(s, item.slots, taken, taken_count);
  const WordClass& words = grammar_.classes()[s.target];
  for (std::uint32_t entry = 0; entry < words.plain.size(); ++entry) {
    if (skipped < taken_count && taken[skipped] == entry) {
      ++skipped;
      continue;
    }
    const std::string& word = words.word(entry, s);
    Item& next = live_.emplace_back(item);
    next.weight = item.weight / choices;
    next.slots[s.slot] = static_cast<std::uint8_t>(entry + 1);
    next.text = word.data();
    next.end = word.data() + word.size();
  }
  assert(skipped == taken_count);
}

/// P(c | text so far) is the weight of the items whose next character is c. The survivors are divided by it,
/// so that weights again sum to 1 and never underflow in a long text.
double GrammarScore::advance(char c) {
  survivors_.clear();
  double p = 0;
  for (const Item& item : live_) {
    if (*item.text != c) continue;
    p += item.weight;
    survivors_.push_back(item);
  }
  live_.clear();
  for (Item& item : survivors_) {
    item.weight /= p;
    if (++item.text != item.end)
      live_.push_back(item);
    else
      expand(item);
  }
  return survivors_.empty() ? -std::numeric_limits<double>::infinity() : std::log(p);
}

std::array<double, 256> GrammarScore::next() const {
  std::array<double, 256> p{};
  for (const Item& item : live_) p[static_cast<unsigned char>(*item.text)] += item.weight;
  return p;
}

}  // namespace trainhost::data
