// Choices of a bind symbol, and the sampler that expands a grammar with random numbers. Parsing:
// grammar_reader.cpp; probabilities: grammar_score.cpp, which uses the same choices().
#include "core/data/grammar.hpp"

#include <algorithm>
#include <cassert>
#include <stdexcept>

namespace trainhost::data {

std::uint32_t Grammar::choices(const Symbol& s, const Slots& slots, std::array<std::uint8_t, kSlots>& taken,
                               std::uint32_t& taken_count) const {
  // `taken` becomes sorted and without duplicates: the binding skips its entries in this order.
  taken_count = 0;
  for (std::uint8_t slot : s.apart) {
    if (slots[slot] == 0) continue;
    const auto entry = static_cast<std::uint8_t>(slots[slot] - 1);
    auto* const end = taken.data() + taken_count;
    auto* const position = std::lower_bound(taken.data(), end, entry);
    if (position != end && *position == entry) continue;
    std::copy_backward(position, end, end + 1);
    *position = entry;
    ++taken_count;
  }
  assert(taken_count < classes_[s.target].plain.size());  // checked by GrammarReader::resolve_slot()
  return static_cast<std::uint32_t>(classes_[s.target].plain.size()) - taken_count;
}

GrammarSampler::GrammarSampler(const Grammar& grammar, std::uint64_t key) : grammar_(grammar), random_(key) {}

const std::vector<Symbol>& GrammarSampler::choose(const Rule& rule) {
  // No random number is drawn where there is no choice.
  std::uint32_t r = rule.alternatives.size() == 1 ? 0 : random_.below(rule.total);
  for (const Alternative& a : rule.alternatives) {
    if (r < a.weight) return a.symbols;
    r -= a.weight;
  }
  throw std::logic_error("grammar: weights of rule " + rule.name + " do not sum to its total");
}

std::uint8_t GrammarSampler::choose(const Symbol& bind) {
  std::array<std::uint8_t, kSlots> taken;
  std::uint32_t taken_count = 0;
  std::uint32_t entry = random_.below(grammar_.choices(bind, slots_, taken, taken_count));
  // The entry-th of those that are not taken: each smaller taken one moves it by 1.
  for (std::uint32_t i = 0; i < taken_count && taken[i] <= entry; ++i) ++entry;
  return static_cast<std::uint8_t>(entry);
}

std::string_view GrammarSampler::next() {
  for (;;) {
    // Slots are empty at the start of every story, so stories are independent.
    if (depth_ == 0) {  // a new story starts
      slots_ = {};
      const std::vector<Symbol>& s = choose(grammar_.rules().front());
      stack_[depth_++] = {s.data(), s.data() + s.size()};
    }
    Frame& top = stack_[depth_ - 1];
    if (top.at == top.end) {
      --depth_;
      continue;
    }
    const Symbol& s = *top.at++;
    switch (s.kind) {
      case Symbol::kText:
        return s.text;
      case Symbol::kRule: {
        if (top.at == top.end) --depth_;  // tail call: a rule that ends in a rule does not grow the stack
        const std::vector<Symbol>& inner = choose(grammar_.rules()[s.target]);
        if (depth_ == stack_.size()) throw std::logic_error("grammar: rules nest too deeply");
        stack_[depth_++] = {inner.data(), inner.data() + inner.size()};
        break;
      }
      case Symbol::kBind:
        // 0 is "not chosen", hence + 1.
        slots_[s.slot] = static_cast<std::uint8_t>(choose(s) + 1);
        [[fallthrough]];
      case Symbol::kUse:
        if (slots_[s.slot] == 0) throw std::logic_error("grammar: a slot is used before it is chosen");
        return grammar_.classes()[s.target].word(slots_[s.slot] - 1u, s);
    }
  }
}

}  // namespace trainhost::data
