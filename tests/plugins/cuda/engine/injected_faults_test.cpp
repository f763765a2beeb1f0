// Faults injected into the executor are detected by the other tests' criteria: an omitted wait changes the
// bits of the result under some schedule, and an additional copy changes the count of copies, which else
// equals the program's.
#include <boost/test/data/monomorphic.hpp>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>

#include "core/step/operands.hpp"
#include "tests/plugins/cuda/engine/engine_fixture.hpp"
#include "tests/plugins/cuda/engine/fault_injection.hpp"

namespace trainhost {
namespace {

using namespace test;

struct Kind {
  const char* mode;
  bool tied;
};
std::ostream& operator<<(std::ostream& o, const Kind& k) { return o << k.mode << (k.tied ? ", tied" : ""); }
const Kind kKinds[] = {{"hybrid", false}, {"hybrid", true}, {"streamed", false}, {"streamed", true}};

ModelSpec tiny(const Kind& k) {
  ModelSpec m = small_model("llama", 16, 8, 3, 2, 1, 4, 8);
  m.tied = k.tied;
  return m;
}
RunSpec tiny_run() {
  RunSpec r;
  r.seq_len = 4, r.micro_batch = 1, r.accumulate = 3;
  return r;
}

/// The state after two updates; empty if a step failed.
TrainState outcome(const Kind& k, const emu::Schedule& schedule) {
  emu::reset();
  emu::set_schedule(schedule);
  faults.waits = faults.copies = 0;
  CudaHost host(k.mode);
  const ModelSpec m = tiny(k);
  const RunSpec r = tiny_run();
  const std::size_t n = r.tokens_per_step();
  const auto ids = random_tokens(n, m.vocab, 1), targets = random_targets(n, m.vocab, 2);
  PluginSession s(cuda_engine(), host, m, r);
  s.load_all(as_floats(random_weights(m, 3)));
  s.init(0);
  try {
    for (std::uint64_t t = 0; t < 2; ++t) s.step(ids, targets, 0.01, t);
    return state_of(s);
  } catch (const StatusFailure&) {
    return {};
  }
}

/// Clears all faults before and after a test case.
struct NoFaultsAround {
  NoFaultsAround() { faults = {}; }
  ~NoFaultsAround() { faults = {}; }
};

/// Lazy schedules: work that nothing waits for runs late.
std::vector<emu::Schedule> lazy_schedules(std::uint64_t n) {
  std::vector<emu::Schedule> all;
  for (std::uint64_t seed = 1; seed <= n; ++seed)
    all.push_back({emu::Order::kAscending, emu::Order::kAscending, true, seed});
  return all;
}

BOOST_AUTO_TEST_SUITE(cuda_injected_faults)

BOOST_DATA_TEST_CASE(results_differ_without_any_wait, boost::unit_test::data::make(kKinds), k) {
  NoFaultsAround clear;
  const TrainState right = outcome(k, {});
  BOOST_TEST_REQUIRE(!right.empty());
  faults.skip_every_wait = true;
  int found = 0;
  for (const emu::Schedule& schedule : lazy_schedules(4)) found += !same_bits(outcome(k, schedule), right);
  BOOST_TEST(found > 0);
}

BOOST_DATA_TEST_CASE(most_single_missing_waits_change_results, boost::unit_test::data::make(kKinds), k) {
  NoFaultsAround clear;
  const TrainState right = outcome(k, {});
  const std::uint64_t waits = faults.waits;
  std::uint64_t detected = 0, tried = 0;
  std::string missed;
  for (std::uint64_t i = 1; i <= waits / 2; i += 7) {  // of the first update
    faults.skip_wait = i;
    ++tried;
    bool seen = false;
    for (const emu::Schedule& schedule : lazy_schedules(5))
      if ((seen = !same_bits(outcome(k, schedule), right))) break;
    detected += seen;
    if (!seen) missed += " " + std::to_string(i);
  }
  BOOST_TEST_MESSAGE(k << ": " << detected << " of " << tried << " omitted waits are detected; not"
                       << missed);
  BOOST_TEST(detected * 2 >= tried);
}

/// Copies of one update as the emulation counts them.
struct Copies {
  std::uint64_t up = 0, down = 0, up_bytes = 0, down_bytes = 0;
  bool operator==(const Copies&) const = default;
};
std::ostream& operator<<(std::ostream& o, const Copies& c) {
  return o << c.up << " up (" << c.up_bytes << " bytes), " << c.down << " down (" << c.down_bytes
           << " bytes)";
}

Copies measured(const char* mode, const ModelSpec& m, const RunSpec& r, th_counters* reported = nullptr) {
  emu::reset();
  CudaHost host(mode);
  PluginSession s(cuda_engine(), host, m, r);
  s.init(1);
  const std::size_t n = r.tokens_per_step();
  const auto ids = random_tokens(n, m.vocab, 1), targets = random_targets(n, m.vocab, 2);
  s.step(ids, targets, 0.01, 0);  // the first step also refreshes the host's copies
  emu::clear_statistics();
  faults.copies = 0;
  s.step(ids, targets, 0.01, 1);
  const emu::Statistics done = emu::statistics();
  if (reported) *reported = counters(s);
  BOOST_TEST(done.d2d.count + done.h2h.count + done.pageable_h2d.count + done.pageable_d2h.count == 0u);
  return {done.h2d.count, done.d2h.count, done.h2d.bytes, done.d2h.bytes};
}

/// The copies of the program and of the step's inputs: ids, targets and order per micro-batch; scalars in
/// both directions; from the host its sum of squares, and its loss if it computes it.
Copies planned(const char* mode, const ModelSpec& m, const RunSpec& r) {
  const step::Program p = step::build_program(m, r, cuda::choose(m, r, mode, 2).traits);
  Copies c;
  const auto add = [&](bool up, std::uint64_t times, std::uint64_t bytes) {
    (up ? c.up : c.down) += times, (up ? c.up_bytes : c.down_bytes) += times * bytes;
  };
  bool host_loss = false;
  for (step::SectionKind kind : {step::SectionKind::kMicro, step::SectionKind::kUpdate}) {
    const step::Section s = p.section(kind);
    for (std::uint32_t i = s.begin; i < s.end; ++i) {
      const step::Op& op = p.ops[i];
      host_loss |= op.kind == step::OpKind::kCrossEntropy;
      if (op.kind == step::OpKind::kCopy)
        add(p[op[step::operand::copy::kTo]].tier == Tier::kDevice,
            kind == step::SectionKind::kMicro ? r.accumulate : 1,
            p[op[step::operand::copy::kFrom]].instance_bytes());
    }
  }
  add(true, 3 * r.accumulate, 4 * r.tokens_per_micro_batch());
  add(true, 1, step::kScalarCount * 8), add(false, 1, step::kScalarCount * 8);
  const bool host_scalars = std::string(mode) != "resident";
  if (p.find("scalars", -1, 1) != step::kNoBuffer || host_scalars) add(true, 1 + host_loss, 8);
  return c;
}

BOOST_AUTO_TEST_CASE(the_copies_of_an_update_are_those_of_the_program) {
  NoFaultsAround clear;
  for (const char* mode : kModes)
    for (bool tied : {false, true})
      for (const char* precision : {"fp32", "bf16"})
        for (Recompute recompute : {Recompute::kNone, Recompute::kFull}) {
          RunSpec r = in_precision(tiny_run(), precision);
          r.recompute = recompute;
          const ModelSpec m = tiny({mode, tied});
          const Copies expected = planned(mode, m, r);
          BOOST_TEST(measured(mode, m, r) == expected,
                     mode << ", tied " << tied << ", " << precision << ": " << expected);
        }
}

BOOST_AUTO_TEST_CASE(an_additional_copy_changes_the_count) {
  NoFaultsAround clear;
  for (const char* mode : {"hybrid", "streamed"}) {
    faults = {};
    const ModelSpec m = tiny({mode, false});
    const Copies right = measured(mode, m, tiny_run());
    for (std::uint64_t which : {1u, 3u, 5u}) {
      faults = {};
      faults.double_copy = which;
      const Copies wrong = measured(mode, m, tiny_run());
      BOOST_TEST(wrong.up + wrong.down == right.up + right.down + 1,
                 mode << ": copy " << which << " is repeated");
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace trainhost
