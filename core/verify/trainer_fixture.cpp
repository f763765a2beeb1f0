// See trainer_fixture.hpp. A rejection before the session exists skips the check; a failure afterwards
// falsifies the contract (judge_modes.cpp).
#include "core/verify/trainer_fixture.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>

#include "core/base/text.hpp"
#include "core/planning/budget.hpp"
#include "core/planning/host_buffers.hpp"
#include "core/process/host_info.hpp"
#include "core/training/model_state.hpp"

namespace trainhost::verify {
namespace {

/// Throws CheckSkipped if the plan exceeds the free host memory or the budget of the run. Free device memory
/// is checked by the trainer's create().
/// Checked before create(): a check that runs out of memory in the middle would be reported as a failure of
/// the trainer, and the OOM killer ends the whole process.
void require_free_memory(const runfile::RunConfig& c, const MemoryReport& plan, const std::string& trainer,
                         unsigned copies) {
  const std::uint64_t parameters = count_parameters(c.model).total;
  // Snapshots are f32 copies in host memory.
  const std::uint64_t host =
      plan.tier_bytes(Tier::kHost) + plan.tier_bytes(Tier::kPinned) + copies * sizeof(float) * parameters;
  if (const std::optional<std::uint64_t> free = free_host_bytes(); free && host > *free)
    throw CheckSkipped(
        fmt::format("not enough memory: {} and {} copies of the weights need {} of host memory, {} is free",
                    trainer, copies, format_bytes(host), format_bytes(*free)));
  // Without a budget or a device in the run file only create() can tell.
  if (!c.budget && c.device.empty()) return;
  TrainerTraits on_device;
  on_device.tier = Tier::kDevice;
  const planning::Budget budget = planning::find_budgets(c, on_device, nullptr, false).compute;
  if (const std::uint64_t device = plan.tier_bytes(Tier::kDevice); device > budget.bytes)
    throw CheckSkipped(fmt::format("not enough memory: the plan of {} needs {} on the device, {} allows {}",
                                   trainer, format_bytes(device), budget.source, format_bytes(budget.bytes)));
}

/// Initial weights: `from`, else model.weights of the run, else random.
/// load_snapshot() and load_tensors() give values; init() fills what was not loaded, and must be called in
/// each case.
void initialise_weights(plugin::Session& s, const runfile::RunConfig& c, const Snapshot* from) {
  if (from) {
    load_snapshot(s, *from);
  } else if (c.weights) {
    std::vector<float> scratch(planning::plan_host_buffers(c.model, c.run, 0).staging_bytes / sizeof(float));
    training::load_tensors(s, plugin::Scope::kWeights, c.model, *c.weights, scratch);
  }
  s.init(c.run.seed);
}

}  // namespace

bool is_rejection(const plugin::PluginError& e) {
  // Status names of the SDK that describe the machine or the run, not a bug.
  static constexpr std::string_view kStatus[] = {"unsupported", "unavailable", "device_oom", "host_oom",
                                                 "rejected"};
  return std::find(std::begin(kStatus), std::end(kStatus), e.status()) != std::end(kStatus);
}

TrainerFixture::TrainerFixture(Context& context, const runfile::RunConfig& c, const Options& o)
    : c_(c), batches_(o.batches ? o.batches : context.text_batches()) {
  try {
    // c_ gets the run as the trainer will execute it, with defaults filled in.
    c_.run = context.trainers.resolve_run(
        o.mode, c);  // switches the mode, which destroys trainers of the previous one
    plugin::Trainer& trainer =
        o.reference ? context.trainers.reference_trainer() : context.trainers.trainer(o.mode);
    require_free_memory(c_, trainer.plan(c_.model, c_.run), trainer.id(), o.copies);
    // Everything after this line is the trainer's responsibility: an error falsifies the contract.
    session_ = trainer.create(c_.model, c_.run);
  } catch (const plugin::PluginError& e) {
    if (!is_rejection(e) && e.code() != Exit::kUsage) throw;  // kUsage: it rejects a mode or a value
    throw CheckSkipped(fmt::format("{}: {}", o.reference ? "cpu" : context.trainers.backend(), e.full()));
  }
  initialise_weights(*session_, c_, o.from);
  ids_.resize(planning::ids_per_token(c_.run) * c_.run.tokens_per_step());
}

// sequences: of this call; an evaluation uses the first micro-batch of the step's batch, so that it sees data
// of the same step.
plugin::StepInput TrainerFixture::input(std::uint64_t t, double lr, std::uint32_t sequences) {
  const std::uint64_t all = c_.run.tokens_per_step(), used = std::uint64_t{sequences} * c_.run.seq_len;
  const std::span<std::int32_t> ids(ids_);
  assert(used <= all && ids.size() == planning::ids_per_token(c_.run) * all);
  // The whole batch is always made: batches_ gives the same ids for a step, however much of them is used.
  batches_(t, ids.first(all), ids.subspan(all, all));
  plugin::StepInput in;
  // With several documents per sequence, the ids are cut into documents of a third of it.
  const std::span<std::int32_t> starts = ids.subspan(2 * all);
  for (std::size_t i = 0; i < starts.size(); ++i) {
    const auto at = static_cast<std::uint32_t>(i % c_.run.seq_len), length = (c_.run.seq_len + 2) / 3;
    starts[i] = static_cast<std::int32_t>(at / length * length);
  }
  if (!starts.empty()) in.starts = starts.first(used);
  in.tokens = ids.first(used);
  in.targets = ids.subspan(all, used);
  in.batch = sequences;
  in.seq = c_.run.seq_len;
  in.lr = lr;
  in.step_index = t;
  return in;
}

plugin::StepResult TrainerFixture::step(std::uint64_t t, double lr) {
  return session_->step(input(t, lr, c_.run.accumulate * c_.run.micro_batch));
}

plugin::StepResult TrainerFixture::evaluate(std::uint64_t t) {
  return session_->evaluate(input(t, 0, c_.run.micro_batch));
}

// A linear congruential generator seeded by the step: no state between calls, so steps can be repeated.
BatchSource arbitrary_ids(std::uint64_t vocab) {
  return [vocab](std::uint64_t t, std::span<std::int32_t> tokens, std::span<std::int32_t> targets) {
    std::uint64_t x = 0x9e3779b97f4a7c15u * (t + 1);
    auto fill = [&](std::span<std::int32_t> out) {
      for (std::int32_t& id : out) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        id = static_cast<std::int32_t>((x >> 33) % vocab);
      }
    };
    fill(tokens);
    fill(targets);
  };
}

// Master weights are dropped: f32 weights are their own.
runfile::RunConfig in_fp32(runfile::RunConfig c) {
  c.precision = "fp32";
  c.run.weight = c.run.grad = c.run.moment = c.run.compute = DType::kF32;
  c.run.master = DType::kNone;
  return c;
}

std::uint64_t limited_steps(const runfile::RunConfig& c, std::uint64_t most) {
  return std::min(most, std::max<std::uint64_t>(1, c.steps));
}

std::string fp32_note(const runfile::RunConfig& c) {
  return c.precision == "fp32" ? "" : fmt::format("; in fp32 instead of the run's {}", c.precision);
}

}  // namespace trainhost::verify
