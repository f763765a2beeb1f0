// See plan.hpp.
#include "core/run/plan.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/text.hpp"
#include "core/data/dataset.hpp"
#include "core/plan/choose_recompute.hpp"
#include "core/run/batches.hpp"
#include "core/run/budget.hpp"
#include "core/run/host_buffers.hpp"

namespace trainhost::run {
namespace {

/// Ids of the estimators to ask, in order. "auto": the one that fits the model best.
std::vector<std::string> resolve(const std::vector<std::string>& wanted, const config::RunConfig& c,
                                 plugin::Registry& registry) {
  std::vector<std::string> all = registry.ids("estimator"), out;
  // One estimator that is refused when it is loaded does not keep the others from answering.
  auto match = [&](const std::string& id) {
    try {
      return registry.estimator(id).match(c.model, c.run);
    } catch (const plugin::PluginError&) {
      return 0;
    }
  };
  auto best = [&]() -> std::string {
    int top = 0;
    std::string id;
    for (const std::string& e : all)
      if (int m = match(e); m > top) top = m, id = e;
    return id;
  };
  for (const std::string& w : wanted) {
    if (w == "auto") {
      std::string id = best();
      if (id.empty())
        throw usage_error(fmt::format("no estimator knows the model family '{}'", escaped(c.model.family)),
                          fmt::format("estimators here: {}; see trainhost plugins list", fmt::join(all, ", ")));
      out.push_back(id);
    } else if (w == "all") {
      std::string first = best();
      if (!first.empty()) out.push_back(first);
      for (const std::string& e : all)
        if (e != first && match(e) > 0) out.push_back(e);
      if (out.empty()) throw usage_error(fmt::format("no estimator knows the model family '{}'", escaped(c.model.family)));
    } else {
      out.push_back(w);
    }
  }
  return out;
}

std::uint64_t compute_bytes(const MemoryReport& r, Tier compute) {
  // On the CPU everything the run holds lives in the compute tier; on a device, only its own part does.
  return compute == Tier::kHost ? r.total_bytes() : r.tier_bytes(compute);
}

/// "layers 0-3 full, layers 4-11 selective"; one word where all layers are alike.
std::string by_layer(const RecomputeLayers& n, std::uint32_t layers) {
  if (n.total() == 0) return "none";
  std::vector<std::string> parts;
  std::uint32_t first = 0;
  for (auto [count, kind] : {std::pair{n.full, "full"}, {n.mlp, "mlp"}, {n.selective, "selective"}}) {
    if (count == layers) return kind;
    if (count == 1) parts.push_back(fmt::format("layer {} {}", first, kind));
    if (count > 1) parts.push_back(fmt::format("layers {}-{} {}", first, first + count - 1, kind));
    first += count;
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

report::Estimate judge(MemoryReport r, Tier compute, std::uint64_t budget) {
  report::Estimate e;
  e.report = std::move(r);
  e.total_bytes = e.report.total_bytes();
  e.compute_bytes = compute_bytes(e.report, compute);
  e.fits = e.compute_bytes <= budget;
  return e;
}

/// `profiled_by`: the trainer whose records of a step are held too; null: none.
HostBuffers host_buffers(const config::RunConfig& c, plugin::Trainer* profiled_by) {
  HostBuffers b = plan_host_buffers(c.model, c.run, planned_data_bytes(c));
  if (profiled_by) b.profile_bytes = profiled_by->profile_bytes(c.model, c.run).value_or(0);
  return b;
}

report::Estimate judged_plan(const config::RunConfig& c, plugin::Trainer& trainer, bool profiled, std::uint64_t budget) {
  MemoryReport r = trainer.plan(c.model, c.run);
  add_host_buffers(r, host_buffers(c, profiled ? &trainer : nullptr));
  return judge(std::move(r), trainer.profile(c.model, c.run).tier, budget);
}

}  // namespace

std::uint64_t planned_data_bytes(const config::RunConfig& c) { return data::planned_held_bytes(open_options(c)); }

std::string describe_run(const config::RunConfig& c) {
  return fmt::format("{}, {} sequence{} of {} tokens{}, {}, recompute {}", c.precision, c.run.micro_batch, c.run.micro_batch == 1 ? "" : "s",
                     c.run.seq_len,
                     c.run.accumulate > 1 ? fmt::format(" x {} accumulated", c.run.accumulate) : "", name(c.run.optimizer),
                     c.run.recompute == Recompute::kLayers ? "auto: " + by_layer(c.run.recompute_layers, c.model.layers)
                                                           : std::string(name(c.run.recompute)));
}

RunSpec resolve_recompute(const config::RunConfig& c, plugin::Registry& registry, const PlanRequest& request) {
  if (c.run.recompute != Recompute::kAuto) return c.run;
  const std::uint64_t budget = compute_budget(c).bytes;  // once: free memory changes from one look to the next
  const bool by_trainer = !request.trainer.empty() && trainable_family(c.model.family);
  const std::vector<std::string> ids =
      by_trainer ? std::vector<std::string>{} : resolve(request.estimators.empty() ? c.estimators : request.estimators, c, registry);
  config::RunConfig tried = c;
  tried.run.recompute = Recompute::kLayers;
  Profile device;
  device.tier = Tier::kDevice;
  tried.run.recompute_layers = plan::choose_recompute(c.model.layers, [&](const RecomputeLayers& layers) {
    tried.run.recompute_layers = layers;
    if (by_trainer) return judged_plan(tried, registry.trainer(request.trainer), request.profiled, budget).fits;
    return judge(registry.estimator(ids.front()).estimate(tried.model, tried.run, &device), device.tier, budget).fits;
  });
  return tried.run;
}

report::Estimate trainer_plan(const config::RunConfig& c, plugin::Trainer& trainer, bool profiled) {
  return judged_plan(c, trainer, profiled, compute_budget(c).bytes);
}

report::PlanView make_plan(const config::RunConfig& asked, plugin::Registry& registry, const PlanRequest& request) {
  config::RunConfig c = asked;
  c.run = resolve_recompute(asked, registry, request);
  report::PlanView v;
  if (c.run.recompute == Recompute::kLayers) {
    v.recompute_layers = c.run.recompute_layers;
    v.recompute_words = by_layer(c.run.recompute_layers, c.model.layers);
  }
  v.model = c.model;
  v.parameters_known = trainable_family(c.model.family);
  if (v.parameters_known) v.parameters = count_parameters(c.model);
  v.backend = request.trainer;
  v.run_line = describe_run(c);
  Budget budget = compute_budget(c);
  v.budget_bytes = budget.bytes;
  v.budget_source = budget.source;

  std::vector<std::string> ids = resolve(request.estimators.empty() ? c.estimators : request.estimators, c, registry);
  Profile profile;
  profile.tier = Tier::kDevice;
  bool trainable = v.parameters_known;
  if (!request.trainer.empty() && trainable) {
    profile = registry.trainer(request.trainer).profile(c.model, c.run);
  } else if (trainable) {
    v.notes.push_back(
        "no trainer for this device is installed here: planned for the same step program with every buffer on the device");
  }
  v.compute_tier = profile.tier;
  for (const std::string& id : ids) {
    MemoryReport r = registry.estimator(id).estimate(c.model, c.run, &profile);
    r.source = id;
    if (r.claim == Claim::kExact) add_host_buffers(r, host_buffers(c, request.profiled ? &registry.trainer(request.trainer) : nullptr));
    v.estimates.push_back(judge(std::move(r), profile.tier, budget.bytes));
  }
  return v;
}

}  // namespace trainhost::run
