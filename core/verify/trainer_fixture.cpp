// See trainer_fixture.hpp. Room is looked for in the plan before anything is created; what a trainer refuses
// at that point keeps the check from being judged, what goes wrong later is a breach.
#include "core/verify/trainer_fixture.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/text.hpp"
#include "core/planning/budget.hpp"
#include "core/planning/host_buffers.hpp"
#include "core/process/host_info.hpp"
#include "core/training/model_state.hpp"

namespace trainhost::verify {
namespace {

/// Refuses what its plan says cannot be held. The device's free memory is the trainer's to judge: its
/// create() fails then.
void require_room(const runfile::RunConfig& c, const MemoryReport& plan, const std::string& trainer,
                  unsigned copies) {
  const std::uint64_t parameters = count_parameters(c.model).total;
  const std::uint64_t host =
      plan.tier_bytes(Tier::kHost) + plan.tier_bytes(Tier::kPinned) + copies * sizeof(float) * parameters;
  if (const std::uint64_t free = free_host_bytes(); free && host > free)
    throw NotJudged(fmt::format("no room: {} and {} copies of the weights take {} of host memory, {} is free",
                                trainer, copies, format_bytes(host), format_bytes(free)));
  if (!c.budget && c.device.empty()) return;
  TrainerTraits on_device;
  on_device.tier = Tier::kDevice;
  const planning::Budget budget = planning::find_budgets(c, on_device, nullptr, false).compute;
  if (const std::uint64_t device = plan.tier_bytes(Tier::kDevice); device > budget.bytes)
    throw NotJudged(fmt::format("no room: the plan of {} takes {} on the device, {} allows {}", trainer,
                                format_bytes(device), budget.source, format_bytes(budget.bytes)));
}

/// Where training begins: given weights, the run's own, or random ones.
void fill(plugin::Session& s, const runfile::RunConfig& c, const Snapshot* from) {
  if (from) {
    load(s, *from);
  } else if (c.weights) {
    std::vector<float> scratch(planning::plan_host_buffers(c.model, c.run, 0).staging_bytes / sizeof(float));
    training::load_tensors(s, plugin::Scope::kWeights, c.model, *c.weights, scratch);
  }
  s.init(c.run.seed);
}

}  // namespace

bool is_refusal(const plugin::PluginError& e) {
  static constexpr std::string_view kStatus[] = {"unsupported", "unavailable", "device_oom", "host_oom",
                                                 "rejected"};
  return std::find(std::begin(kStatus), std::end(kStatus), e.status()) != std::end(kStatus);
}

Rig::Rig(Context& context, const runfile::RunConfig& c, const Options& o)
    : c_(c), feed_(o.feed ? o.feed : context.text()) {
  try {
    c_.run = context.subjects.resolved(o.mode, c);  // enters the mode; trainers of another one are gone now
    plugin::Trainer& trainer = o.reference ? context.subjects.reference() : context.subjects.judged(o.mode);
    require_room(c_, trainer.plan(c_.model, c_.run), trainer.id(), o.copies);
    session_ = trainer.create(c_.model, c_.run);
  } catch (const plugin::PluginError& e) {
    if (!is_refusal(e) && e.code() != Exit::kUsage)
      throw;  // a mode or a number that it does not take is no breach either
    throw NotJudged(fmt::format("{}: {}", o.reference ? "cpu" : context.subjects.backend(), e.full()));
  }
  fill(*session_, c_, o.from);
  ids_.resize(2 * c_.run.tokens_per_step());
}

plugin::StepInput Rig::input(std::uint64_t t, double lr, std::uint32_t sequences) {
  const std::uint64_t all = c_.run.tokens_per_step(), used = std::uint64_t{sequences} * c_.run.seq_len;
  const std::span<std::int32_t> ids(ids_);
  feed_(t, ids.first(all), ids.subspan(all));
  plugin::StepInput in;
  in.tokens = ids.first(used);
  in.targets = ids.subspan(all, used);
  in.batch = sequences;
  in.seq = c_.run.seq_len;
  in.lr = lr;
  in.step_index = t;
  return in;
}

plugin::StepResult Rig::step(std::uint64_t t, double lr) {
  return session_->step(input(t, lr, c_.run.accumulate * c_.run.micro_batch));
}

plugin::StepResult Rig::evaluate(std::uint64_t t) {
  return session_->evaluate(input(t, 0, c_.run.micro_batch));
}

Feed arbitrary_ids(std::uint64_t vocab) {
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

runfile::RunConfig in_fp32(runfile::RunConfig c) {
  c.precision = "fp32";
  c.run.weight = c.run.grad = c.run.moment = c.run.compute = DType::kF32;
  c.run.master = DType::kNone;
  return c;
}

std::uint64_t steps_of(const runfile::RunConfig& c, std::uint64_t most) {
  return std::min(most, std::max<std::uint64_t>(1, c.steps));
}

std::string fp32_note(const runfile::RunConfig& c) {
  return c.precision == "fp32" ? "" : fmt::format("; in fp32, whatever the run says ({})", c.precision);
}

}  // namespace trainhost::verify
