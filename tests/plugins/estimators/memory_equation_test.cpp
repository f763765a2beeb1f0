// The memory equation: terms compared with the program of the source, monotonicity, entries compared with
// terms, notes. The printed numbers of the source are in sources_test.cpp.
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <random>

#include "core/base/error.hpp"
#include "plugins/estimators/memory-equation/breakdown.hpp"
#include "plugins/estimators/memory-equation/equation.hpp"
#include "tests/plugins/estimators/report_notes.hpp"

using namespace trainhost;
namespace me = trainhost::memory_equation;
using trainhost::test::has_note;

namespace {

me::Inputs llama_7b() {
  me::Inputs in;
  in.psi = 7'000'000'000, in.layers = 32, in.hidden = 4096, in.heads = 32, in.seq = 2048;
  return in;
}

ModelSpec llama_2_7b() {
  ModelSpec m;
  m.vocab = 32000, m.hidden = 4096, m.layers = 32, m.heads = m.kv_heads = 32, m.head_dim = 128,
  m.intermediate = 11008;
  return m;
}

RunSpec bf16_run(std::uint32_t seq) {
  RunSpec r;
  r.seq_len = seq;
  r.weight = r.grad = r.compute = DType::kBF16;
  r.master = DType::kF32;
  return r;
}

me::Inputs random_inputs(std::mt19937& g) {
  auto upto = [&](std::uint32_t n) { return static_cast<std::uint32_t>(g() % n); };
  me::Inputs in;
  in.psi = 1 + upto(1u << 30), in.layers = 1 + upto(40), in.heads = 1 + upto(40),
  in.hidden = in.heads * (1 + upto(128));
  in.batch = 1 + upto(8), in.seq = 1 + upto(3000);
  in.parameter_bytes = in.activation_bytes = upto(2) ? 2 : 4;
  in.optimizer = static_cast<Optimizer>(1 + upto(7));
  in.flash = upto(2), in.checkpoint_every = upto(6), in.zero = upto(4), in.ranks = 1 + upto(9);
  return in;
}

/// The estimate of the source in floating point, no recompute, one rank: an independent implementation.
double by_the_sources_program(const me::Inputs& in) {
  const double b = in.parameter_bytes, psi = double(in.psi);
  const double optimizer = in.optimizer == Optimizer::kAdamW         ? psi * 12
                           : in.optimizer == Optimizer::kSgdMomentum ? psi * 8
                                                                     : psi * 4;
  const double state = 2 * psi * b + optimizer;
  const double linear = 11.0 * double(in.batch) * double(in.seq) * double(in.hidden) * b;
  const double scores = double(in.batch) * double(in.heads) * double(in.seq) * double(in.seq) * b;
  const double activations = double(in.layers) * (linear + scores);
  const double temporary = std::floor(activations * 0.1);
  return state + activations + temporary + std::floor((state + activations + temporary) * 0.1);
}

}  // namespace

BOOST_AUTO_TEST_SUITE(memory_equation_)

BOOST_AUTO_TEST_CASE(the_total_equals_that_of_the_program_in_the_source) {
  std::mt19937 g(2);
  for (int i = 0; i < 300; ++i) {
    me::Inputs in = random_inputs(g);
    in.flash = false, in.checkpoint_every = 0, in.ranks = 1, in.parameter_bytes = in.activation_bytes = 2;
    in.optimizer = static_cast<Optimizer>(1 + i % 3);
    BOOST_REQUIRE_SMALL(double(me::equation(in).total) - by_the_sources_program(in), 2.0);
  }
  BOOST_TEST(me::equation(llama_7b()).total == 140739572694u);
}

BOOST_AUTO_TEST_CASE(state_bytes_per_parameter_depend_on_optimizer_and_type) {
  BOOST_TEST(me::state_bytes(Optimizer::kAdamW, 2).total() == 16u);
  BOOST_TEST(me::state_bytes(Optimizer::kSgdMomentum, 2).total() == 12u);
  BOOST_TEST(me::state_bytes(Optimizer::kSgd, 2).total() == 8u);
  BOOST_TEST(me::state_bytes(Optimizer::kAdamW, 4).total() == 16u);
  BOOST_TEST(me::state_bytes(Optimizer::kSgdMomentum, 4).total() == 12u);
  BOOST_TEST(me::state_bytes(Optimizer::kSgd, 4).total() == 8u);
  BOOST_TEST(me::state_bytes(Optimizer::kAdamW, 4).master == 0u);
  BOOST_TEST(me::state_bytes(Optimizer::kAdamW8bit, 2).total() == 10u);
}

BOOST_AUTO_TEST_CASE(more_of_anything_never_needs_less_and_more_ranks_never_more_state) {
  std::mt19937 g(3);
  for (int i = 0; i < 300; ++i) {
    const me::Inputs in = random_inputs(g);
    const me::Parts p = me::equation(in);
    for (std::uint64_t me::Inputs::*dimension : {&me::Inputs::psi, &me::Inputs::layers, &me::Inputs::hidden,
                                                 &me::Inputs::heads, &me::Inputs::batch, &me::Inputs::seq}) {
      me::Inputs more = in;
      more.*dimension += 1 + g() % 7;
      BOOST_REQUIRE_GE(me::equation(more).total, p.total);
    }
    me::Inputs wider = in;
    wider.ranks += 1 + g() % 7;
    BOOST_REQUIRE_LE(me::equation(wider).state(), p.state());
    BOOST_REQUIRE_EQUAL(p.total,
                        p.state() + p.activations + p.temporary + p.communication() + p.fragmentation);
  }
}

BOOST_AUTO_TEST_CASE(the_largest_micro_batch_fits_and_the_next_does_not) {
  std::mt19937 g(4);
  for (int i = 0; i < 200; ++i) {
    me::Inputs in = random_inputs(g);
    const std::uint64_t budget = (std::uint64_t{g()} << 6) + g();
    const std::uint64_t most = me::largest_batch(in, budget);
    in.batch = most;
    if (most) BOOST_REQUIRE_LE(me::equation(in).total, budget);
    in.batch = most + 1;
    BOOST_REQUIRE_GT(me::equation(in).total, budget);
  }
}

BOOST_AUTO_TEST_CASE(communication_buffers_depend_on_the_zero_stage) {
  me::Inputs in = llama_7b();
  in.ranks = 8, in.chunk = 1000;
  BOOST_TEST(me::equation(in).communication() == 2000u);
  in.zero = 1;
  BOOST_TEST(me::equation(in).communication() == 7000u);
  in.zero = 3;
  BOOST_TEST(me::equation(in).communication() == 14000u);
  in.ranks = 1;
  BOOST_TEST(me::equation(in).communication() == 0u);
  in.ranks = 8, in.zero = 0, in.chunk = 0;
  BOOST_TEST(me::equation(in).communication() == (25u << 20) / 4);
}

BOOST_AUTO_TEST_CASE(the_peak_of_a_step_is_in_its_backward_pass) {
  std::mt19937 g(5);
  for (int i = 0; i < 100; ++i) {
    const me::Timeline t = me::timeline(me::equation(random_inputs(g)));
    for (std::uint64_t other : {t.before_forward, t.after_forward, t.after_backward, t.after_optimizer})
      BOOST_REQUIRE_GE(t.peak, other);
  }
}

BOOST_AUTO_TEST_CASE(fragmentation_has_the_severities_of_the_source) {
  BOOST_TEST(me::severity(0.049) == "normal");
  BOOST_TEST(me::severity(0.05) == "moderate");
  BOOST_TEST(me::severity(me::fragmentation_ratio(100, 85)) == "high");  // as in the source
  BOOST_TEST(me::severity(0.25) == "high");
  BOOST_TEST(me::severity(0.26) == "critical");
  BOOST_TEST(me::error_percent(90, 100) == 10.0);
}

BOOST_AUTO_TEST_CASE(entries_equal_the_terms_of_the_equation) {
  std::mt19937 g(6);
  for (int i = 0; i < 200; ++i) {
    ModelSpec m = llama_2_7b();
    m.layers = 1 + g() % 50;
    RunSpec r = bf16_run(1 + g() % 4000);
    r.micro_batch = 1 + g() % 4, r.parallel.data = 1 + g() % 16, r.parallel.zero = g() % 4;
    r.optimizer = static_cast<Optimizer>(1 + g() % 7);
    r.recompute = g() % 2 ? Recompute::kFull : Recompute::kNone, r.memory.recompute_every = 1 + g() % 5;
    r.memory.attention = g() % 2 ? AttentionMemory::kFlash : AttentionMemory::kMaterialised;
    const me::Parts p = me::equation(me::inputs_of(m, r, {}, 123456789));
    const MemoryReport report = me::breakdown(m, r, {}, 123456789);
    BOOST_REQUIRE_EQUAL(report.tier_bytes(Tier::kDevice), p.total);
    BOOST_REQUIRE_EQUAL(report.component_bytes(Component::kWeights), p.parameters);
    BOOST_REQUIRE_EQUAL(report.component_bytes(Component::kActivations), p.activations);
    BOOST_REQUIRE_EQUAL(report.component_bytes(Component::kCommunication), p.communication());
    BOOST_REQUIRE_EQUAL(report.component_bytes(Component::kOptimizerState), p.moments);
    for (const MemoryEntry& n : report.entries)
      BOOST_REQUIRE_MESSAGE(n.lo <= n.bytes && n.bytes <= n.hi && n.formula.find('=') != std::string::npos,
                            n.name);
  }
}

BOOST_AUTO_TEST_CASE(formulas_have_their_numbers_filled_in) {
  RunSpec r = bf16_run(2048);
  r.memory.attention = AttentionMemory::kMaterialised;
  const MemoryReport report = me::breakdown(llama_2_7b(), r, {.parameters = 7'000'000'000}, 6'738'415'616);
  BOOST_TEST(report.total_bytes() == 140739572694u);
  BOOST_TEST(report.entries[0].formula == "Psi*2 = 7000000000*2");
  bool scores = false;
  for (const MemoryEntry& n : report.entries) scores |= n.formula == "L*B*A*S*S*b_a = 32*1*32*2048*2048*2";
  BOOST_TEST(scores);
}

BOOST_AUTO_TEST_CASE(notes_have_derived_values_and_errors_of_the_source) {
  RunSpec r = bf16_run(2048);
  r.memory.attention = AttentionMemory::kMaterialised, r.device_budget = 80'000'000'000;
  const MemoryReport one = me::breakdown(llama_2_7b(), r, {.parameters = 7'000'000'000}, 6'738'415'616);
  BOOST_TEST(one.notes.front().starts_with("Rule of thumb: 16 bytes per parameter"));
  BOOST_TEST(has_note(one, "the model has 6,738,415,616 (+3.88 %), with a state of 107,814,649,856 bytes"));
  BOOST_TEST(has_note(one,
                      "from S = 1408 (11H/A, this equation); S = 4352 by the exercise of the source (34H/A) "
                      "and S = 870 by the paper"));
  BOOST_TEST(has_note(one, "12.5 % of the state"));
  BOOST_TEST(has_note(one, "AdamW 2, SGD with momentum 2, SGD 1; the same with ZeRO-3"));
  BOOST_TEST(has_note(one, "No micro-batch fits"));
  BOOST_TEST(has_note(one, "at width I = 11008: 8,086,618,112 bytes"));
  BOOST_TEST(has_note(one, "One layer keeps 452,984,832 bytes"));
  r.parallel.data = 8, r.parallel.zero = 2;
  BOOST_TEST(has_note(me::breakdown(llama_2_7b(), r, {}, 6'738'415'616),
                      "prints 48.25 GB; its formula, used here, gives 48.75"));
  r.parallel.zero = 3, r.optimizer = Optimizer::kSgdMomentum;
  const MemoryReport three = me::breakdown(llama_2_7b(), r, {}, 6'738'415'616);
  BOOST_TEST(has_note(three, "correct are 14, 11 and 7"));
  BOOST_TEST(has_note(three, "its code 8"));
  r.optimizer = Optimizer::kMuon, r.parallel.tensor = 2, r.grad = DType::kF32,
  r.recompute = Recompute::kSelective;
  const MemoryReport odd = me::breakdown(llama_2_7b(), r, {}, 6'738'415'616);
  BOOST_TEST(has_note(odd, "does not cover muon"));
  BOOST_TEST(has_note(odd, "tensor, pipeline, context and expert parallelism are ignored"));
  BOOST_TEST(has_note(odd,
                      "this run has f32 gradients: 26,953,662,464 bytes (25.1 GiB) instead of "
                      "13,476,831,232, both before ZeRO"));
  BOOST_TEST(has_note(odd, "not 'selective'"));
}

BOOST_AUTO_TEST_CASE(inference_and_overflow_fail) {
  RunSpec r = bf16_run(2048);
  r.mode = RunMode::kInference;
  BOOST_CHECK_THROW(me::breakdown(llama_2_7b(), r, {}, 1), Error);
  me::Inputs huge = llama_7b();
  huge.seq = huge.heads = std::uint64_t{1} << 31;
  BOOST_CHECK_THROW(me::equation(huge), Error);
  BOOST_TEST(me::largest_batch(huge, 1) == 0u);
}

BOOST_AUTO_TEST_SUITE_END()
