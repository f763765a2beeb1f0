// See make_plan.hpp.
#include "core/planning/make_plan.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/text.hpp"
#include "core/data/dataset.hpp"
#include "core/model/architecture.hpp"
#include "core/parallel/rank_memory.hpp"
#include "core/placement/least_arena.hpp"
#include "core/planning/change_candidates.hpp"
#include "core/planning/dataset_options.hpp"
#include "core/planning/host_buffers.hpp"
#include "core/planning/size_overflow.hpp"
#include "core/step/choose_recompute.hpp"

namespace trainhost::planning {
namespace {

/// Every match said no: to the family, or to a run of a family that we know.
Error refusal(const runfile::RunConfig& c, const std::vector<std::string>& estimators) {
  if (!model::known_family(c.model.family)) return model::unknown_family(c.model.family);
  return usage_error(
      fmt::format("no estimator here plans such a run of the model family '{}'", c.model.family),
      fmt::format("estimators here: {}; see trainhost plugins list", fmt::join(estimators, ", ")));
}

/// Of a layer: the kind that most layers are (a few first ones may be dense where the others have experts).
std::uint64_t usual_layer_elements(const model::Architecture& a) {
  const auto most = std::ranges::max_element(a.layers, {}, &model::LayerRun::count);
  return most == a.layers.end() ? 0 : model::layer_elements(most->layer, a.hidden);
}

/// What the model is, where its family is known: parameters, how many of them the run trains, and the fields
/// of its config that nobody understood.
void add_model(const ModelSpec& m, const RunSpec& r, report::PlanView& v) {
  v.model = m;
  v.parameters_known = model::known_family(m.family);
  if (!v.parameters_known) return;
  const model::Architecture a = model::from_model(m);
  const model::Counts n = model::count(a);
  v.parameters = {.total = n.total,
                  .embedding = n.embedding,
                  .per_layer = usual_layer_elements(a),
                  .final_norm = n.final_norm,
                  .head = n.head};
  v.active_parameters = n.active == n.total ? 0 : n.active;
  if (r.mode == RunMode::kInference) v.trained_parameters = 0;
  if (r.mode == RunMode::kLora || r.mode == RunMode::kQlora)
    v.trained_parameters = parallel::trained_parameters(a, r);
  v.notes.insert(v.notes.end(), a.notes.begin(), a.notes.end());
}

constexpr int kMadeForIt = 1000;  // the most that a match can say

/// Ids of the estimators to ask, in order. "auto": the one that fits the model best.
std::vector<std::string> estimator_ids(const PlanRequest& request, const runfile::RunConfig& c,
                                       plugin::Registry& registry) {
  const std::vector<std::string>& wanted = request.estimators.empty() ? c.estimators : request.estimators;
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
    for (const std::string& e : all) {
      if (int m = match(e); m > top) top = m, id = e;
      if (top == kMadeForIt) break;  // the others need not even be loaded
    }
    return id;
  };
  for (const std::string& w : wanted) {
    if (w == "auto") {
      std::string id = best();
      if (id.empty()) throw refusal(c, all);
      out.push_back(id);
    } else if (w == "all") {
      std::string first = best();
      if (!first.empty()) out.push_back(first);
      for (const std::string& e : all)
        if (e != first && match(e) > 0) out.push_back(e);
      if (out.empty()) throw refusal(c, all);
    } else {
      out.push_back(w);
    }
  }
  return out;
}

/// A name that somebody typed, at `place`: one whose file is refused is a wrong word, and the refusal says
/// why.
plugin::Estimator& estimator_named(plugin::Registry& registry, const std::string& id, const Where& place) {
  try {
    return registry.estimator(id);
  } catch (const plugin::PluginError& e) {
    if (e.status() != "rejected") throw;
    throw usage_error(fmt::format("the estimator '{}': {}", escaped(id, 80), e.what()),
                      e.hint().empty()
                          ? fmt::format("estimators here: {}", fmt::join(registry.ids("estimator"), ", "))
                          : e.hint(),
                      place);
  } catch (const Error& e) {
    throw Error(e.code(), e.what(), e.hint(), place);
  }
}

/// "layers 0-3 full, layers 4-11 selective"; one word where all layers are alike.
std::string by_layer(const RecomputeLayers& n, std::uint32_t layers, const std::string& all = "") {
  if (n.total() == 0) return "none";
  std::vector<std::string> parts;
  std::uint32_t first = 0;
  for (auto [count, kind] : {std::pair{n.full, "full"}, {n.mlp, "mlp"}, {n.selective, "selective"}}) {
    if (count == layers) return all + kind;
    if (count == 1) parts.push_back(fmt::format("layer {} {}", first, kind));
    if (count > 1) parts.push_back(fmt::format("layers {}-{} {}", first, first + count - 1, kind));
    first += count;
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

/// `profiled_by`: the trainer whose records of a step are held too; null: none.
HostBuffers host_buffers(const runfile::RunConfig& c, plugin::Trainer* profiled_by) {
  HostBuffers b = plan_host_buffers(c.model, c.run, planned_data_bytes(c));
  if (profiled_by) b.profile_bytes = profiled_by->profile_bytes(c.model, c.run).value_or(0);
  return b;
}

report::Estimate judged_plan(const runfile::RunConfig& c, plugin::Trainer& trainer, bool profiled,
                             const Budgets& budgets) {
  MemoryReport r = trainer.plan(c.model, c.run);
  add_host_buffers(r, host_buffers(c, profiled ? &trainer : nullptr));
  return judge(std::move(r), budgets);
}

/// The trainer that the run is planned for; null where there is none, or none is asked for such a model or
/// run.
plugin::Trainer* trainer_of(const runfile::RunConfig& c, plugin::Registry& registry,
                            const PlanRequest& request) {
  return !request.trainer.empty() && trains_by_program(c.model, c.run) ? &registry.trainer(request.trainer)
                                                                       : nullptr;
}

/// Why a backend that was asked for by name is not who plans; "" where it is, or where none was named.
std::string not_carried_out(const runfile::RunConfig& c) {
  if (c.backend == "auto" || c.run.mode == RunMode::kInference || trains_by_program(c.model, c.run))
    return "";
  const PlannedOnly beyond = planned_only_setting(c.run);
  const std::string what = trainable_family(c.model.family)
                               ? fmt::format("carry out {} = {}", beyond.key, beyond.value)
                               : fmt::format("train the family {}", c.model.family);
  return fmt::format(
      "the {} backend does not {}: planned as it would be on a device, not as that trainer would hold it",
      escaped(c.backend, 80), what);
}

/// Where there is no trainer: every buffer on the device.
TrainerTraits traits_for(const runfile::RunConfig& c, plugin::Trainer* trainer) {
  if (trainer) return trainer->traits(c.model, c.run);
  TrainerTraits device;
  device.tier = Tier::kDevice;
  return device;
}

/// With which the run fits. Most splits are refused by the bound that no placement goes below; a trainer that
/// plans less than that has a program of its own, and is asked each time.
RecomputeLayers least_recompute(const Resolved& r, plugin::Trainer& trainer, bool profiled) {
  runfile::RunConfig c = r.config;
  const auto planned = [&](const RecomputeLayers& n) {
    return c.run.recompute_layers = n, judged_plan(c, trainer, profiled, r.budgets);
  };
  const auto bound = [&](const RecomputeLayers& n) {
    return c.run.recompute_layers = n, placement::least_arena(c.model, c.run, trainer.traits(c.model, c.run));
  };
  const std::uint64_t budget = r.budgets.compute.bytes;
  if (r.budgets.compute.known && trainable_family(c.model.family)) {
    bool below = false;
    const auto bytes = [&](const RecomputeLayers& n) {
      const report::Estimate e = planned(n);
      below = below || e.compute_bytes < bound(n);
      return e.fits ? e.compute_bytes
                    : std::max(e.compute_bytes, budget + 1);  // the host's memory may be short
    };
    const RecomputeLayers n = step::choose_recompute(c.model.layers, budget, bound, bytes);
    if (bound(n) > budget) bytes(n);  // not asked yet
    if (!below) return n;
  }
  return step::choose_recompute(c.model.layers, [&](const RecomputeLayers& n) { return planned(n).fits; });
}

}  // namespace

std::string estimator_trace(const runfile::RunConfig& c, plugin::Registry& registry) {
  std::string out;
  for (const std::string& id : registry.ids("estimator")) {
    try {
      const int fit = registry.estimator(id).match(c.model, c.run);
      out += fit > 0 ? fmt::format("estimator {}: fits by {}\n", id, fit)
                     : fmt::format("estimator {}: does not apply\n", id);
    } catch (const plugin::PluginError&) {  // told below
    }
  }
  for (const plugin::Candidate& k : registry.candidates())
    if (k.status == plugin::Status::kRejected && k.manifest.kind != "trainer")
      out += fmt::format("{}: refused, {}/{}: {}\n", escaped(k.file.string(), 4096), k.stage, k.code,
                         escaped(k.reason, 1000));
  return out;
}

std::vector<std::string> estimators_asked(const runfile::RunConfig& c, plugin::Registry& registry,
                                          const PlanRequest& request) {
  return estimator_ids(request, c, registry);
}

TrainerTraits planned_traits(const Resolved& r, plugin::Registry& registry, const PlanRequest& request) {
  return traits_for(r.config, trainer_of(r.config, registry, request));
}

report::Estimate estimate(const Resolved& r, plugin::Registry& registry, const PlanRequest& request,
                          const std::string& id, const TrainerTraits& traits) {
  const runfile::RunConfig& c = r.config;
  const Where written = request.estimators.empty() ? place_of(c, "memory.estimator") : Where{};
  MemoryReport estimated = naming_numbers(
      c, [&] { return estimator_named(registry, id, written).estimate(c.model, c.run, &traits); });
  estimated.source = id;
  if (estimated.claim == Claim::kExact)
    add_host_buffers(estimated,
                     host_buffers(c, request.profiled ? &registry.trainer(request.trainer) : nullptr));
  return judge(std::move(estimated), r.budgets);
}

std::uint64_t planned_data_bytes(const runfile::RunConfig& c) {
  return data::planned_held_bytes(open_options(c));
}

/// What is trained, where it is not everything: ", QLoRA of rank 8 (DoRA)".
static std::string adapters(const RunSpec& r) {
  if (r.mode != RunMode::kLora && r.mode != RunMode::kQlora) return {};
  return fmt::format(", {}{} of rank {}", r.mode == RunMode::kQlora ? "Q" : "",
                     r.memory.dora ? "DoRA" : "LoRA", r.lora_rank);
}

std::string recompute_words(const runfile::RunConfig& c, const TrainerTraits& traits) {
  if (c.run.mode == RunMode::kInference) return "";
  if (c.run.recompute == Recompute::kNone && traits.recompute_layers.total())
    return "recompute by mode " + traits.mode + ": " +
           by_layer(traits.recompute_layers, c.model.layers, "every layer ");
  return fmt::format(
      "recompute {}{}",
      c.run.recompute == Recompute::kLayers ? "auto: " + by_layer(c.run.recompute_layers, c.model.layers)
                                            : std::string(name(c.run.recompute)),
      c.run.memory.recompute_every > 1 ? fmt::format(", {} layers together", c.run.memory.recompute_every)
                                       : "");
}

std::string describe_run(const runfile::RunConfig& c, const std::string& recompute) {
  if (c.run.mode == RunMode::kInference)
    return fmt::format("{}, inference of {} sequence{} of {} tokens", c.precision, c.run.micro_batch,
                       c.run.micro_batch == 1 ? "" : "s", c.run.seq_len);
  return fmt::format("{}, {} sequence{} of {} tokens{}{}, {}{}{}", c.precision, c.run.micro_batch,
                     c.run.micro_batch == 1 ? "" : "s", c.run.seq_len,
                     c.run.accumulate > 1 ? fmt::format(" x {} accumulated", c.run.accumulate) : "",
                     adapters(c.run), name(c.run.optimizer), recompute.empty() ? "" : ", ", recompute);
}

std::string describe_run(const runfile::RunConfig& c) { return describe_run(c, recompute_words(c, {})); }

static Resolved resolved(const runfile::RunConfig& asked, plugin::Registry& registry,
                         const PlanRequest& request) {
  Resolved r{asked, {}};
  runfile::RunConfig& c = r.config;
  const bool choose = c.run.recompute == Recompute::kAuto;
  if (choose) {
    c.run.recompute =
        Recompute::kLayers;  // of no layer, to begin with: no plugin sees a run that is left open
    c.run.recompute_layers = {};
  }
  plugin::Trainer* trainer = trainer_of(c, registry, request);
  r.budgets = find_budgets(c, traits_for(c, trainer), trainer, request.elsewhere);
  if (r.budgets.compute.known) c.run.device_budget = r.budgets.compute.bytes;
  if (r.budgets.host.known) c.run.host_budget = r.budgets.host.bytes;
  if (!choose) return r;
  if (trainer) {
    c.run.recompute_layers = least_recompute(r, *trainer, request.profiled);
    return r;
  }
  const std::string id = estimator_ids(request, c, registry).front();
  const TrainerTraits device = traits_for(c, nullptr);
  c.run.recompute_layers = step::choose_recompute(c.model.layers, [&](const RecomputeLayers& layers) {
    c.run.recompute_layers = layers;
    return judge(registry.estimator(id).estimate(c.model, c.run, &device), r.budgets).fits;
  });
  return r;
}

Resolved resolve(const runfile::RunConfig& asked, plugin::Registry& registry, const PlanRequest& request) {
  return naming_numbers(asked, [&] { return resolved(asked, registry, request); });
}

report::Estimate trainer_plan(const Resolved& r, plugin::Trainer& trainer, bool profiled) {
  return judged_plan(r.config, trainer, profiled, r.budgets);
}

static report::PlanView planned(const Resolved& r, plugin::Registry& registry, const PlanRequest& request) {
  const runfile::RunConfig& c = r.config;
  report::PlanView v;
  if (c.run.recompute == Recompute::kLayers) {
    v.recompute_layers = c.run.recompute_layers;
    v.recompute_words = by_layer(c.run.recompute_layers, c.model.layers);
  }
  add_model(c.model, c.run, v);
  v.backend = request.trainer;
  v.ranks = devices_of(c.run);
  v.budget_known = r.budgets.compute.known;
  v.budget_bytes = r.budgets.compute.bytes;
  v.budget_source = r.budgets.compute.source;
  v.host_budget_bytes = r.budgets.host.bytes;
  v.host_budget_source = r.budgets.host.source;

  plugin::Trainer* trainer = trainer_of(c, registry, request);
  const TrainerTraits traits = traits_for(c, trainer);
  if (!trainer && trains_by_program(c.model, c.run))
    v.notes.push_back(
        "no trainer for this device is installed here: planned for the same step program with every buffer "
        "on the device");
  if (std::string why = not_carried_out(c); !why.empty()) v.notes.push_back(std::move(why));
  if (trainer && !c.device.empty() && traits.tier == Tier::kHost && !c.given.count("train.threads"))
    v.notes.push_back(
        fmt::format("scratch is planned for {} threads, as many as this machine has cores; train.threads "
                    "says another number",
                    traits.threads));
  v.mode = traits.mode;
  v.run_line = describe_run(c, recompute_words(c, traits));
  if (!v.mode.empty())  // a trainer of several modes says why it is this one
    for (std::string& why : trainer->plan(c.model, c.run).notes) v.notes.push_back(std::move(why));
  v.compute_tier = r.budgets.tier;
  for (const std::string& id : estimator_ids(request, c, registry))
    v.estimates.push_back(estimate(r, registry, request, id, traits));
  return v;
}

/// An estimator that reads the config names what it does not understand too: said once, of the plan as a
/// whole.
report::PlanView make_plan(const Resolved& r, plugin::Registry& registry, const PlanRequest& request) {
  report::PlanView v = naming_numbers(r.config, [&] { return planned(r, registry, request); });
  for (report::Estimate& e : v.estimates)
    std::erase_if(e.report.notes,
                  [&](const std::string& note) { return std::ranges::find(v.notes, note) != v.notes.end(); });
  return v;
}

}  // namespace trainhost::planning
