// Every operand of every operation matters to `plugins check` and to `verify`: a trainer in which it is
// replaced by zeros or by ones fails both. The mutations are read from the step programs of the sample runs,
// so a new operation or operand is covered or fails the test. Prints the table of mutations and what detects
// them.
#include <boost/test/unit_test.hpp>
#include <cstdlib>
#include <iostream>
#include <set>

#include "core/executor/trainer.hpp"
#include "core/numerics/sample_runs.hpp"
#include "core/plugin_validator/watched_plugin.hpp"
#include "core/step/operands.hpp"
#include "core/step/operands_by_kind.hpp"
#include "core/verify/context.hpp"
#include "core/verify/contract_check.hpp"
#include "core/verify/real_trainers.hpp"

using namespace trainhost;
using step::OpKind;

namespace {

constexpr const char* kChecks[] = {"T-050", "T-064", "T-065", "T-066"};

struct Mutation {
  OpKind kind{};
  unsigned slot = 0;
  int value = 0;
  std::uint64_t first = 0, count = 0;  // count 0: all elements
  std::string what;                    // "linear input 2, 16 elements from 0, = 0"
};

/// An input slot of an operation.
struct Slot {
  OpKind kind{};
  unsigned slot = 0;
  auto operator<=>(const Slot&) const = default;
};

/// Programs of all sample runs with each optimizer.
std::vector<step::Program> programs() {
  std::vector<step::Program> all;
  for (const numerics::SampleRun& s : numerics::sample_runs())
    for (const Optimizer o : {Optimizer::kSgd, Optimizer::kSgdMomentum, Optimizer::kAdamW}) {
      RunSpec run = s.run;
      run.optimizer = o;
      all.push_back(step::build_program(s.model, run, executor::default_traits("plain", s.model, run)));
    }
  return all;
}

/// Every input slot that is used and is not scratch, whose contents are undefined anyway.
std::set<Slot> used_slots(const std::vector<step::Program>& all) {
  std::set<Slot> used;
  for (const step::Program& p : all)
    for (const step::Op& op : p.ops)
      for (unsigned i = 0; i < op.ins; ++i)
        if (op.in[i] != step::kNoBuffer && !(step::op_info(op.kind).scratch_mask >> i & 1))
          used.insert({op.kind, i});
  return used;
}

/// Replacements of a whole operand, and of each tensor of a parameter that consists of several (q, k, v).
std::vector<Mutation> mutations() {
  const std::vector<step::Program> all = programs();
  std::vector<Mutation> out;
  for (const Slot& s : used_slots(all))
    for (const int value : {0, 1}) {
      // The sum of an evaluation is 0 before its only operation: this replaces it by the same value.
      if (value == 0 && s.kind == OpKind::kHeadEval && s.slot == step::operand::head_eval::kScalars.slot)
        continue;
      out.push_back({s.kind, s.slot, value, 0, 0,
                     fmt::format("{} input {} = {}", step::op_info(s.kind).name, s.slot, value)});
    }
  // The first sample has every bias.
  const step::Program& p = all.front();
  std::set<std::string> seen;
  for (const step::Op& op : p.ops)
    for (unsigned i = 0; i < op.ins; ++i)
      for (const step::Param& param : p.params)
        if (param.weight == op.in[i] && param.slices.size() > 1)
          for (const step::Slice& slice : param.slices) {
            const TensorInfo& t = p.tensor_infos[slice.tensor];
            std::string name = fmt::format("{} input {}, {} = 0", step::op_info(op.kind).name, i,
                                           t.name.substr(t.name.find('.', t.name.find("layers.") + 7) + 1));
            if (!seen.insert(name).second) continue;
            out.push_back({op.kind, i, 0, slice.first_element, t.elements(), std::move(name)});
          }
  return out;
}

void select(const Mutation* m) {
  if (!m) return void(::unsetenv("TEST_MUTATION"));
  const std::string text =
      fmt::format("{} {} {} {} {}", static_cast<unsigned>(m->kind), m->slot, m->value, m->first, m->count);
  ::setenv("TEST_MUTATION", text.c_str(), 1);
}

/// The check of level 6 that fails, with its reason; "" if none does.
std::string failed_check(plugin_validator::WatchedPlugin& plugin) {
  for (const char* id : kChecks) try {
      plugin_validator::find(id)->run(plugin);
    } catch (const plugin_validator::CheckFailed& e) {
      return fmt::format("{}: {}", id, e.what());
    }
  return "";
}

struct MutatedPlugin {
  plugin_validator::WatchedPlugin watched{MUTATED_TRAINER, 1};
  runfile::RunConfig config = runfile::parse_run(verify::builtin_run_toml(), "", "/");
  verify::RealTrainers trainers{config, "mutated", [](const runfile::RunConfig&) {
                                  auto r = std::make_unique<plugin::Registry>(
                                      std::vector{std::filesystem::path(MUTATED_TRAINER).parent_path()},
                                      plugin::HostOptions{});
                                  r->scan();
                                  return r;
                                }};
  verify::Context context{config, trainers};
  verify::Result verified() { return verify::run_checks(context, verify::select("REF-001")).front(); }
};

}  // namespace

BOOST_AUTO_TEST_SUITE(mutated_operands)

BOOST_AUTO_TEST_CASE(the_samples_use_every_operation_and_operand) {
  const std::set<Slot> used = used_slots(programs());
  for (unsigned k = 0; k < static_cast<unsigned>(OpKind::kCount_); ++k) {
    const auto kind = static_cast<OpKind>(k);
    // Only in programs of several memory tiers, whose modes verify tests, and of adapters, which
    // tests/plugins/cpu/adapters_test.cpp compares with a reference in double.
    if (kind >= OpKind::kCopy) continue;
    for (unsigned i = 0; i < step::op_info(kind).inputs; ++i) {
      if (step::op_info(kind).scratch_mask >> i & 1) continue;
      // Master copies exist only where weights are stored in a lower precision than f32; sorted rows only on
      // a device.
      const bool master = (kind == OpKind::kAdamW || kind == OpKind::kSgd || kind == OpKind::kSgdMomentum) &&
                          i == step::operand::optimizer::master(kind).slot;
      const bool order = kind == OpKind::kEmbedBwd && i == step::operand::embed_bwd::kOrder.slot;
      // Only in runs with several documents per sequence, which tests/plugins/cpu/model_test.cpp compares
      // with separate documents.
      const bool starts = (kind == OpKind::kAttention && i == step::operand::attention::kStarts.slot) ||
                          (kind == OpKind::kAttentionBwd && i == step::operand::attention_bwd::kStarts.slot);
      // Only with tensor-parallel ranks, which tests/plugins/cpu/tensor_ranks_test.cpp compares with one
      // rank.
      const bool stats = (kind == OpKind::kHeadLoss && i == step::operand::head_loss::kStats.slot) ||
                         (kind == OpKind::kHeadEval && i == step::operand::head_eval::kStats.slot);
      // Only with an adapter of the LM head, which adapters_test.cpp compares with the merged head.
      using namespace step::operand;
      const bool adapter =
          (kind == OpKind::kHeadLoss && i >= head_loss::kU.slot && i <= head_loss::kDropped.slot) ||
          (kind == OpKind::kHeadEval && i >= head_eval::kU.slot && i <= head_eval::kScale.slot) ||
          (kind == OpKind::kHeadLogits && i >= head_logits::kU.slot && i <= head_logits::kDropped.slot);
      BOOST_TEST((master || order || starts || stats || adapter || used.count({kind, i}) == 1),
                 "no sample uses input " << i << " of " << step::op_info(kind).name);
    }
  }
}

BOOST_AUTO_TEST_CASE(the_correct_trainer_passes) {
  select(nullptr);
  MutatedPlugin p;
  BOOST_TEST(failed_check(p.watched) == "");
  const verify::Result r = p.verified();
  BOOST_TEST((r.status == verify::Status::kHeld), r.detail);
  // Far below 1, because other trainers add in other orders.
  BOOST_TEST(*r.measured < 0.3, r.detail);
  std::cout << "correct: " << r.detail << " (" << *r.measured << ")\n";
}

BOOST_AUTO_TEST_CASE(every_replaced_operand_is_detected_by_plugins_check_and_verify) {
  MutatedPlugin p;
  std::size_t detected = 0;
  const std::vector<Mutation> all = mutations();
  for (const Mutation& m : all) {
    select(&m);
    const std::string check = failed_check(p.watched);
    const verify::Result r = p.verified();
    const bool falsified = r.status == verify::Status::kFalsified;
    BOOST_TEST(check != "", "plugins check accepts " << m.what);
    BOOST_TEST(falsified, "verify accepts " << m.what << ": " << r.detail);
    detected += check != "" && falsified;
    std::cout << fmt::format("{:48} {:6} REF-001 {:.3g} times the tolerance\n", m.what, check.substr(0, 5),
                             r.measured.value_or(0));
  }
  select(nullptr);
  std::cout << detected << " of " << all.size() << " mutations detected by both\n";
}

BOOST_AUTO_TEST_SUITE_END()
