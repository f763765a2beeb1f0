// Every copy between memory tiers and every operation of the host matters to REF-001: a CUDA trainer in which
// an operand of one of them is replaced by zeros or by ones, or which leaves the operation out, differs from
// the reference in double. The operations are read from the step programs of the modes hybrid and streamed.
// Operands of the kinds of operation that all modes share: tests/core/numerics/mutation_test.cpp.
#include <boost/test/data/monomorphic.hpp>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>

#include <fmt/format.h>

#include <set>

#include "core/numerics/compare_trainer.hpp"
#include "core/step/operands.hpp"
#include "tests/plugins/cuda/engine/engine_fixture.hpp"
#include "tests/plugins/cuda/engine/operand_mutation.hpp"

namespace trainhost {
namespace {

using namespace test;
using step::OpKind;

constexpr const char* kModesWithHost[] = {"hybrid", "streamed"};

/// The trainer of one mode, on the emulation, as the comparisons of core/numerics call it.
class EmulatedRun final : public numerics::ComparedRun {
 public:
  EmulatedRun(const std::string& mode, const ModelSpec& m, const RunSpec& r)
      : host_(mode), session_(cuda_engine(), host_, m, r) {}
  void load(const numerics::Tensors& weights) override {
    session_.load_all(as_floats(weights));
    if (!std::exchange(initialized_, true)) session_.init(0);  // keeps the weights that were loaded
  }
  numerics::Tensors save() override {
    numerics::Tensors all;
    for (const auto& [name, values] : session_.save()) all[name].assign(values.begin(), values.end());
    return all;
  }
  numerics::StepResult step(const numerics::Batch& b, double lr, std::uint64_t index) override {
    const th_step_out out = session_.step(b.tokens, b.targets, lr, index);
    return {out.loss, out.grad_norm};
  }
  double evaluate(const numerics::Batch& b) override { return session_.evaluate(b.tokens, b.targets).loss; }
  bool can_generate() const override { return true; }
  std::vector<float> next_logits(std::int32_t token, std::uint32_t position) override {
    return session_.next(token, position);
  }

 private:
  CudaHost host_;
  PluginSession session_;
  bool initialized_ = false;
};

class EmulatedTrainer final : public numerics::ComparedTrainer {
 public:
  explicit EmulatedTrainer(std::string mode) : mode_(std::move(mode)) {}
  std::unique_ptr<numerics::ComparedRun> create(const ModelSpec& m, const RunSpec& run) override {
    return std::make_unique<EmulatedRun>(mode_, m, run);
  }
  const std::string& refusal() const override { return none_; }

 private:
  const std::string mode_, none_;
};

/// The comparisons of REF-001, in its order, until one finds a difference. A step that fails is a difference.
numerics::Difference compared(const std::string& mode) {
  emu::reset();
  EmulatedTrainer trainer(mode);
  numerics::Difference largest;
  for (const numerics::SampleRun& s : numerics::sample_runs())
    for (const auto compare : {numerics::compare_losses, numerics::compare_gradients,
                               numerics::compare_updates, numerics::compare_generation}) {
      if (compare == numerics::compare_updates && &s != &numerics::sample_runs().front()) continue;
      try {
        const numerics::Comparison c = compare(trainer, s, 1);
        if (c.largest.error > largest.error) largest = c.largest;
      } catch (const StatusFailure& e) {
        largest = {INFINITY, e.what()};
      }
      if (largest.too_large()) return largest;
    }
  return largest;
}

/// Programs of all samples in a mode; of the first sample with each optimizer, as REF-001 uses them.
std::vector<step::Program> programs(const std::string& mode) {
  std::vector<step::Program> all;
  for (const numerics::SampleRun& s : numerics::sample_runs())
    for (const Optimizer o : {Optimizer::kSgd, Optimizer::kSgdMomentum, Optimizer::kAdamW}) {
      if (o != Optimizer::kSgd && &s != &numerics::sample_runs().front()) continue;
      RunSpec run = s.run;
      run.optimizer = o;
      all.push_back(step::build_program(s.model, run, cuda::choose(s.model, run, mode, 2).traits));
    }
  return all;
}

using Mutations = std::set<std::pair<OperandMutation, Replacement>>;

/// Mutations of all operations for which `wanted` is true, once for all samples.
template <class Wanted>
Mutations mutations(const std::string& mode, Wanted wanted) {
  Mutations out;
  for (const step::Program& p : programs(mode))
    for (const step::Op& op : p.ops) {
      if (op.kind == OpKind::kHold || !wanted(p, op)) continue;  // kHold does no work
      for (unsigned i = 0; i < op.ins; ++i) {
        if (op.in[i] == step::kNoBuffer || step::op_info(op.kind).scratch_mask >> i & 1) continue;
        const OperandMutation m = mutation_of(p, op, i);
        out.insert({m, Replacement::kZeros}), out.insert({m, Replacement::kOnes});
        if (i == 0) out.insert({m, Replacement::kLeftOut});
        if (op.kind == OpKind::kCopy) out.insert({m, Replacement::kLastRowLeftOut});
      }
    }
  return out;
}

std::string text_of(const OperandMutation& m, Replacement r) {
  constexpr const char* kSections[] = {"micro", "update", "eval", "generate"};
  constexpr const char* kReplacements[] = {"= 0", "= 1", "left out", "without its last row"};
  return fmt::format("{:8} {:13} layer {:2}, input {} {} (copy {}) {}",
                     kSections[static_cast<int>(m.section)], step::op_info(m.kind).name, m.layer, m.slot,
                     m.role, m.copy, kReplacements[static_cast<int>(r)]);
}

bool between_tiers(const step::Program& p, const step::Op& op) {
  return op.kind == OpKind::kCopy || step::runs_on_host(p, op);
}

/// Counts the mutations that are found, and reports the others. `every`: one of so many is tried.
void expect_all_found(const std::string& mode, const Mutations& all, std::size_t every = 1) {
  std::size_t found = 0, tried = 0, index = 0;
  for (const auto& [m, r] : all) {
    if (index++ % every != every / 2) continue;
    ++tried;
    selected = {&m, r};
    const numerics::Difference d = compared(mode);
    selected = {};
    BOOST_TEST(d.too_large(), mode << ": not found: " << text_of(m, r) << "; " << d.error);
    found += d.too_large();
  }
  BOOST_TEST(all.size() > 0u);
  BOOST_TEST_MESSAGE(mode << ": " << found << " of " << tried << " mutations found, of " << all.size());
}

BOOST_AUTO_TEST_SUITE(cuda_operand_mutations)

BOOST_DATA_TEST_CASE(the_correct_trainer_equals_the_reference, boost::unit_test::data::make(kModesWithHost),
                     mode) {
  const numerics::Difference d = compared(mode);
  BOOST_TEST(d.error < 0.3, d.error << ": " << d.where);
}

BOOST_DATA_TEST_CASE(a_sample_of_mutated_copies_and_host_operations_is_found,
                     boost::unit_test::data::make(kModesWithHost), mode) {
  expect_all_found(mode, mutations(mode, between_tiers), 80);
}

BOOST_AUTO_TEST_SUITE_END()

// Minutes: run by the slow suite.
BOOST_AUTO_TEST_SUITE(cuda_all_mutations, *boost::unit_test::disabled())

BOOST_DATA_TEST_CASE(every_mutated_copy_and_host_operation_is_found,
                     boost::unit_test::data::make(kModesWithHost), mode) {
  expect_all_found(mode, mutations(mode, between_tiers));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace trainhost
