// See resolve_run.hpp.
#include "core/planning/resolve_run.hpp"

#include <algorithm>

#include "core/data/documents.hpp"
#include "core/placement/least_arena.hpp"
#include "core/planning/choose_estimators.hpp"
#include "core/planning/error_context.hpp"
#include "core/planning/estimate_run.hpp"
#include "core/step/choose_recompute.hpp"

namespace trainhost::planning {
namespace {

/// The least recomputation with which the trainer's plan fits. A plan costs a full placement, so most
/// candidates are rejected by `least_arena`, a lower bound for every placement of the step program. A trainer
/// whose plan is below that bound has another program; then every candidate is planned.
RecomputeLayers least_recompute(const ResolvedRun& r, plugin::Trainer& trainer, bool profiled) {
  ResolvedRun candidate = r;
  runfile::RunConfig& c = candidate.config;
  const auto planned = [&](const RecomputeLayers& n) {
    c.run.recompute_layers = n;
    return estimate_by_trainer(candidate, trainer, profiled);
  };
  const auto bound = [&](const RecomputeLayers& n) {
    c.run.recompute_layers = n;
    return placement::least_arena(c.model, c.run, trainer.traits(c.model, c.run));
  };
  const std::uint64_t budget = r.budgets.compute.bytes;
  if (r.budgets.compute.known && trainable_family(c.model.family)) {
    bool below_bound = false;
    const auto bytes = [&](const RecomputeLayers& n) {
      const Estimate e = planned(n);
      below_bound = below_bound || e.compute_bytes < bound(n);
      // A plan that fits the device can still exceed host memory: count it as over the budget.
      return e.fits ? e.compute_bytes : std::max(e.compute_bytes, budget + 1);
    };
    const RecomputeLayers n = step::choose_recompute(c.model.layers, budget, bound, bytes);
    if (bound(n) > budget) bytes(n);  // rejected by the bound alone: plan it once, to test the bound
    if (!below_bound) return n;
  }
  return step::choose_recompute(c.model.layers, [&](const RecomputeLayers& n) { return planned(n).fits; });
}

/// Without a trainer: the least recomputation with which the first estimator's report fits.
RecomputeLayers least_recompute(const ResolvedRun& r, plugin::Registry& registry,
                                const PlanRequest& request) {
  runfile::RunConfig c = r.config;
  const std::string id = choose_estimators(c, registry, request).ids.front();
  const TrainerTraits device = traits_for(c, nullptr);
  return step::choose_recompute(c.model.layers, [&](const RecomputeLayers& layers) {
    c.run.recompute_layers = layers;
    return judge(registry.estimator(id).estimate(c.model, c.run, &device), r.budgets).fits;
  });
}

/// Frameworks recompute every layer or none.
Recompute least_recompute_of_framework(const ResolvedRun& r, plugin::Registry& registry,
                                       const PlanRequest& request) {
  runfile::RunConfig c = r.config;
  c.run.recompute = Recompute::kNone;
  const std::string id = choose_estimators(c, registry, request).ids.front();
  const TrainerTraits device = traits_for(c, nullptr);
  return judge(registry.estimator(id).estimate(c.model, c.run, &device), r.budgets).fits ? Recompute::kNone
                                                                                         : Recompute::kFull;
}

/// Packed records need attention that keeps them apart. Where data.packing is not given, a trainer without it
/// gets one record per sequence. A trainer that rejects the run in any case is asked again later, for the
/// message.
bool packs_records(const runfile::RunConfig& c, plugin::Trainer* trainer) {
  const bool records = std::any_of(c.data.train.begin(), c.data.train.end(), data::is_record_file);
  if (!records || c.run.mode == RunMode::kInference || !c.framework.empty()) return false;
  if (c.data.packing || !trainer) return c.data.packing.value_or(false);
  RunSpec packed = c.run;
  packed.document_mask = true;
  try {
    trainer->plan(c.model, packed);
    return true;
  } catch (const plugin::PluginError&) {
    return false;
  }
}

/// Whether the trainer plans a run does not depend on the number of equal layers, but the time of its plan
/// does.
ModelSpec with_few_layers(ModelSpec m, const RunSpec& r) {
  constexpr std::uint32_t kLayers = 2;
  if (r.lora_rules.empty() && r.trainable.empty()) m.layers = std::min(m.layers, kLayers);
  return m;
}

/// Each rank has a step program of its own. If --rank names none, the plan is that of the first rank, whose
/// parts of weights, gradients and optimizer state are never smaller than those of another. If the trainer
/// does not train the run in several processes, no rank is set and the closed form plans it.
void choose_rank(runfile::RunConfig& c, plugin::Registry& registry, const PlanRequest& request) {
  Parallelism& ranks = c.run.parallel;
  if (ranks.data * ranks.tensor == 1 || ranks.data_rank > 0 || request.trainer.empty()) return;
  // Of the estimators only the one that places the step program has a plan for each rank.
  const std::string& wanted = (request.estimators.empty() ? c.estimators : request.estimators).front();
  if (wanted != "auto" && wanted != "all" && wanted != kProgramEstimator) return;
  runfile::RunConfig ranked = c;
  ranked.run.parallel.data_rank = ranked.run.parallel.tensor_rank = 1;
  // The trainer is asked without recomputation and tries no other choice.
  ranked.run.recompute = Recompute::kNone;
  try {
    plugin::Trainer* const trainer = trainer_for(ranked, registry, request);
    if (!trainer) return;
    const ModelSpec few = with_few_layers(ranked.model, ranked.run);
    // The size of a profile is that of the program: it is refused where a plan is, without a placement.
    if (!trainer->profile_bytes(few, ranked.run)) trainer->plan(few, ranked.run);
    ranks.data_rank = ranks.tensor_rank = 1;
  } catch (const Error&) {
  }
}

/// Order matters: budgets depend on the tier of the trainer, and the recomputation depends on the budgets.
ResolvedRun resolve_checked(const runfile::RunConfig& asked, plugin::Registry& registry,
                            const PlanRequest& request) {
  ResolvedRun r{asked, {}};
  runfile::RunConfig& c = r.config;
  choose_rank(c, registry, request);
  const bool automatic = c.run.recompute == Recompute::kAuto, choose = automatic && c.framework.empty();
  if (choose) {  // start with no recomputed layers: plugins never see an open choice
    c.run.recompute = Recompute::kLayers;
    c.run.recompute_layers = {};
  }
  plugin::Trainer* trainer = trainer_for(c, registry, request);
  c.run.document_mask = packs_records(c, trainer);
  r.budgets = find_budgets(c, traits_for(c, trainer), trainer, request.elsewhere);
  if (r.budgets.compute.known) c.run.device_budget = r.budgets.compute.bytes;
  if (r.budgets.host.known) c.run.host_budget = r.budgets.host.bytes;
  if (choose)
    c.run.recompute_layers =
        trainer ? least_recompute(r, *trainer, request.profiled) : least_recompute(r, registry, request);
  else if (automatic)
    c.run.recompute = least_recompute_of_framework(r, registry, request);
  return r;
}

}  // namespace

ResolvedRun resolve_run(const runfile::RunConfig& c, plugin::Registry& registry, const PlanRequest& request) {
  return with_error_context(c, [&] { return resolve_checked(c, registry, request); });
}

namespace {

data::RecordOptions record_options(const runfile::RunConfig& c) {
  data::RecordOptions r;
  r.chat_template = c.data.chat_template;
  r.packing = c.run.document_mask;
  r.special_tokens = c.data.special_tokens;
  if (c.data.loss_on_all) r.loss_on = records::LossOn::kAll;
  if (c.data.skip_broken) r.on_error = records::OnError::kSkip;
  const auto set_key = [&](const char* name, std::string& key) {
    if (const auto it = c.data.keys.find(name); it != c.data.keys.end()) key = it->second;
  };
  set_key("text", r.keys.text), set_key("prompt", r.keys.prompt), set_key("completion", r.keys.completion);
  set_key("instruction", r.keys.instruction), set_key("input", r.keys.input),
      set_key("output", r.keys.output);
  set_key("messages", r.keys.messages), set_key("role", r.keys.role), set_key("content", r.keys.content);
  if (!c.model_folder.empty()) r.model_folders.push_back(c.model_folder);
  if (const auto folder = std::filesystem::path(c.data.tokenizer).parent_path();
      c.data.tokenizer != "bytes" && folder != c.model_folder)
    r.model_folders.push_back(folder);
  return r;
}

}  // namespace

data::OpenOptions open_options(const runfile::RunConfig& c) {
  data::OpenOptions o;
  o.train = c.data.train;
  o.valid = c.data.valid;
  o.weights = c.data.weights;
  o.source_files = c.data.entry_files;
  o.valid_fraction = c.data.valid_fraction;
  o.tokenizer = c.data.tokenizer;
  o.dtype = c.data.dtype;
  o.vocab = c.model.vocab;
  o.seed = c.run.seed;
  o.seq_len = c.run.seq_len;
  o.cache_dir = c.output.cache;
  o.records = record_options(c);
  o.any_text = c.data.tokenizer == "bytes" && c.given.count("data.tokenizer") > 0;
  return o;
}

void adopt_vocabulary(runfile::RunConfig& c) {
  if (c.model_is_builtin && c.data.tokenizer != "bytes")
    c.model.vocab = data::make_tokenizer(c.data.tokenizer)->vocab();
}

}  // namespace trainhost::planning
