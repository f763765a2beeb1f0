// The memory breakdown sums to the arena, its formulas evaluate to its bytes, and its components have the
// documented sizes.
#include <boost/test/unit_test.hpp>
#include <cctype>

#include "core/step/scratch_sizes.hpp"
#include "tests/core/placement/cases.hpp"

using namespace trainhost;
using namespace trainhost::placement;
using namespace trainhost::placement::test;

namespace {

/// Evaluates "L*B*S*(A+2K)*D*4": products of numbers, symbols, "2K" and sums in parentheses.
class Formula {
 public:
  Formula(const Program& p, const std::string& text) : p_(p), s_(text.c_str()) {}
  std::uint64_t value() {
    const std::uint64_t v = sum();
    BOOST_CHECK_MESSAGE(*s_ == 0, "a formula goes on: " << s_);
    return v;
  }

 private:
  std::uint64_t sum() {
    std::uint64_t v = product();
    while (*s_ == '+') ++s_, v += product();
    return v;
  }
  std::uint64_t product() {
    std::uint64_t v = factor();
    while (*s_ == '*') ++s_, v *= factor();
    return v;
  }
  std::uint64_t factor() {
    if (*s_ == '(') {
      ++s_;
      const std::uint64_t v = sum();
      BOOST_REQUIRE_EQUAL(*s_++, ')');
      return v;
    }
    std::uint64_t number = 1;
    if (std::isdigit(static_cast<unsigned char>(*s_)))
      for (number = 0; std::isdigit(static_cast<unsigned char>(*s_)); ++s_)
        number = 10 * number + static_cast<std::uint64_t>(*s_ - '0');
    return std::isupper(static_cast<unsigned char>(*s_)) ? number * symbol(*s_++) : number;
  }
  std::uint64_t symbol(char c) const {
    const ModelSpec& m = p_.model;
    const TrainerTraits& q = p_.traits;
    switch (c) {
      case 'V':
        return m.vocab;
      case 'H':
        return m.hidden;
      case 'L':
        return m.layers;
      case 'A':
        return m.heads;
      case 'K':
        return m.kv_heads;
      case 'D':
        return m.head_dim;
      case 'I':
        return m.intermediate;
      case 'S':
        return p_.run.seq_len;
      case 'B':
        return p_.run.micro_batch;
      case 'C':
        return head_chunk(q, p_.run.tokens_per_micro_batch());
      case 'T':
        return q.threads;
      case 'W':
        return q.slots;
      case 'Q':
        return q.attention_tile_q;
      case 'R':
        return q.attention_tile_k;
      case 'N':
        return q.workspace_bytes;
    }
    BOOST_FAIL("an unknown symbol " << c);
    return 0;
  }
  const Program& p_;
  const char* s_;
};

const MemoryEntry* leaf(const MemoryReport& r, const std::string& name) {
  for (const MemoryEntry& n : r.entries)
    if (n.name == name) return &n;
  return nullptr;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(accounting)

BOOST_AUTO_TEST_CASE(entries_sum_to_the_arena_exactly) {
  for (std::uint64_t seed = 0; seed < 150; ++seed) {
    const Program p = random_case(seed).build();
    const MemoryPlan plan = place(p);
    const MemoryReport r = memory_breakdown(p, plan);
    std::uint64_t sum = 0;
    for (std::size_t i = 0; i < r.entries.size(); ++i) {
      const MemoryEntry& n = r.entries[i];
      sum += n.bytes_at_peak;
      BOOST_CHECK_EQUAL(n.id, i + 1);
      BOOST_CHECK(n.has_at_peak && n.bytes_at_peak <= n.bytes && n.phases != 0 && n.tier == p.traits.tier);
      BOOST_CHECK(n.claim == Claim::kExact && n.lo == n.bytes && n.hi == n.bytes);
    }
    BOOST_CHECK_EQUAL(sum, plan.arena_bytes);
    BOOST_CHECK_EQUAL(r.total_bytes(), plan.arena_bytes);
    BOOST_CHECK_EQUAL(r.component_bytes(Component::kFragmentation), plan.fragmentation());
    BOOST_CHECK_EQUAL(r.digest, plan.digest);
    BOOST_REQUIRE_EQUAL(r.tiers.size(), 1u);
    BOOST_CHECK(r.tiers[0].peak_at == p.ops[plan.peak_op].phase);
  }
}

BOOST_AUTO_TEST_CASE(formulas_evaluate_to_the_bytes_of_their_entry) {
  for (std::uint64_t seed = 0; seed < 150; ++seed) {
    const Program p = random_case(seed).build();
    for (const MemoryEntry& n : memory_breakdown(p, place(p)).entries) {
      if (n.component == Component::kFragmentation) continue;
      const std::size_t equals = n.formula.find(" = ");  // symbols, and then the numbers of this run
      const std::string symbols = n.formula.substr(0, equals);
      const std::string numbers = equals == std::string::npos ? symbols : n.formula.substr(equals + 3);
      for (const std::string& side : {symbols, numbers})
        BOOST_CHECK_MESSAGE(Formula(p, side).value() == n.bytes,
                            n.name << ": " << side << " is not " << n.bytes);
      BOOST_CHECK_MESSAGE(numbers.find_first_of("ABCDEFGHIJKLMNOPQRSTUVWXYZ") == std::string::npos,
                          n.name << ": a symbol without its number in " << n.formula);
    }
  }
}

BOOST_AUTO_TEST_CASE(layers_share_one_entry) {
  Case c = small_case();
  c.run.accumulate = 2;
  const Program p = c.build();
  const MemoryReport r = memory_breakdown(p, place(p));
  const MemoryEntry* qkv = leaf(r, "layers[].qkv");
  BOOST_REQUIRE(qkv);
  BOOST_CHECK_EQUAL(qkv->formula, "L*B*S*(A+2K)*D*4 = 2*2*6*(4+2*2)*2*4");
  BOOST_CHECK_EQUAL(qkv->phases, static_cast<std::uint32_t>(kForward | kBackward));
  BOOST_REQUIRE(leaf(r, "layers[].w.gate_up"));
  BOOST_CHECK_EQUAL(leaf(r, "layers[].w.gate_up")->formula, "L*2I*H*4 = 2*2*12*8*4");
  BOOST_REQUIRE(leaf(r, "eval.logits"));
  BOOST_CHECK_EQUAL(leaf(r, "eval.logits")->phases, static_cast<std::uint32_t>(kEval));
  BOOST_CHECK(leaf(r, "grad.embed")->phases == (kForward | kBackward | kUpdate));
}

BOOST_AUTO_TEST_CASE(weights_gradients_and_moments_are_four_bytes_per_parameter_each) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    Case c = random_case(seed);
    c.run.mode = RunMode::kFull, c.run.optimizer = Optimizer::kAdamW, c.run.micro_batch = 5;
    const Program p = c.build();
    const MemoryReport r = memory_breakdown(p, place(p));
    const std::uint64_t params = count_parameters(c.model).total;
    std::uint64_t gradients = 0;
    for (const MemoryEntry& n : r.entries) gradients += n.component == Component::kGradients ? n.bytes : 0;
    BOOST_CHECK_EQUAL(r.component_bytes(Component::kWeights), 4 * params);
    BOOST_CHECK_EQUAL(r.component_bytes(Component::kOptimizerState), 8 * params);
    BOOST_CHECK_EQUAL(gradients, 4 * params);
  }
}

BOOST_AUTO_TEST_SUITE_END()
