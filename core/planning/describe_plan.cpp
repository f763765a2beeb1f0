// See describe_plan.hpp. Describes the run without an estimate: what is planned, for which backend, against
// which budget.
#include "core/planning/describe_plan.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/text.hpp"
#include "core/model/adapters.hpp"
#include "core/model/architecture.hpp"
#include "core/parallel/rank_memory.hpp"
#include "core/planning/choose_backend.hpp"
#include "core/planning/estimate_run.hpp"
#include "core/planning/propose_changes.hpp"

namespace trainhost::planning {
namespace {

/// Parameters of one layer of the most frequent kind. Some MoE models begin with a few dense layers.
std::uint64_t usual_layer_elements(const model::Architecture& a) {
  const auto most = std::ranges::max_element(a.layers, {}, &model::LayerRun::count);
  return most == a.layers.end() ? 0 : model::layer_elements(most->layer, a.hidden);
}

/// Parameter counts, where the family is known, and notes about fields of config.json that were not
/// understood.
void describe_model(const ModelSpec& m, const RunSpec& r, PlanResult& v) {
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
  // The user sees 0 trained parameters for inference, not an empty field.
  if (r.mode == RunMode::kInference) v.trained_parameters = 0;
  if (r.mode == RunMode::kLora || r.mode == RunMode::kQlora)
    v.trained_parameters = parallel::trained_parameters(a, r);
  // Those of single tensors: the closed form counts kinds of matrices.
  if (trains_by_program(m, r) && (!r.trainable.empty() || !r.lora_rules.empty()))
    v.trained_parameters = count_trained_parameters(m, r);
  v.notes.insert(v.notes.end(), a.notes.begin(), a.notes.end());
}

/// "layers 0-3 full, layers 4-11 selective"; `prefix` + "full" where all layers have the same policy.
std::string describe_layers(const RecomputeLayers& n, std::uint32_t layers, const std::string& prefix = "") {
  // 0 layers: the policy "auto" found that nothing has to be recomputed.
  if (n.total() == 0) return "none";
  std::vector<std::string> parts;
  std::uint32_t first = 0;
  // The ladder recomputes from the first layer on, so the three counts are consecutive ranges of layers.
  for (auto [count, kind] : {std::pair{n.full, "full"}, {n.mlp, "mlp"}, {n.selective, "selective"}}) {
    if (count == layers) return prefix + kind;
    if (count == 1) parts.push_back(fmt::format("layer {} {}", first, kind));
    if (count > 1) parts.push_back(fmt::format("layers {}-{} {}", first, first + count - 1, kind));
    first += count;
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

/// Why the plan is not that of the backend that the user named; "" where it is, or where none was named.
std::string backend_not_planned(const runfile::RunConfig& c) {
  if (!c.framework.empty() || c.backend == "auto" || c.run.mode == RunMode::kInference ||
      trains_by_program(c.model, c.run))
    return "";
  const PlannedOnly beyond = planned_only_setting(c.run);
  const std::string what = trainable_family(c.model.family)
                               ? fmt::format("support {} = {}", beyond.key, beyond.value)
                               : fmt::format("train the model family {}", c.model.family);
  return fmt::format("the {} backend does not {}: the plan is for a device in general, not for that backend",
                     escaped(c.backend, 80), what);
}

/// "data.seq_len = 2048": the keys that were not given and are not at their defaults.
std::vector<std::string> assumed_values(const runfile::RunConfig& c) {
  std::vector<std::string> out;
  for (const runfile::RunConfig::Assumed& a : c.assumed)
    out.push_back(fmt::format("{} = {}", a.key, a.value));
  return out;
}

/// The keys that decide most of the memory and that a run file with a named model leaves at the defaults of
/// the built-in run; "" where it gives all of them. `plan --model` assumes others
/// (core/runfile/usual_run.hpp), which a run file cannot do: it is trained with its defaults too.
std::string defaults_of_builtin_run(const runfile::RunConfig& c) {
  if (!c.given.count("model.preset") && !c.given.count("model.config")) return "";
  std::vector<std::string> kept, usual;
  const auto add = [&](const char* key, const std::string& value, const std::string& usual_value) {
    const bool assumed =
        std::ranges::find(c.assumed, key, &runfile::RunConfig::Assumed::key) != c.assumed.end();
    if (c.given.count(key) || assumed || value == usual_value) return;
    kept.push_back(fmt::format("{} = {}", key, value));
    usual.push_back(fmt::format("--set {}={}", key, usual_value));
  };
  constexpr std::uint64_t kUsualTokens = 2048;
  const std::uint64_t most = c.model.max_positions;
  if (c.run.mode != RunMode::kInference) add("train.precision", c.precision, "bf16");
  add("data.seq_len", std::to_string(c.run.seq_len),
      std::to_string(most ? std::min(most, kUsualTokens) : kUsualTokens));
  add("train.micro_batch", std::to_string(c.run.micro_batch), "1");
  if (kept.empty()) return "";
  return fmt::format("not in the run file, so as in the built-in run: {}; usual for such a model: {}",
                     fmt::join(kept, ", "), fmt::join(usual, " "));
}

/// Why the plan of a family that is trained here is no exact one; "" where it is, or where the user named an
/// estimator.
std::string why_approximate(const runfile::RunConfig& c, const PlanRequest& request,
                            const MemoryReport& decides) {
  const std::vector<std::string>& wanted = request.estimators.empty() ? c.estimators : request.estimators;
  if (!c.framework.empty() || decides.claim == Claim::kExact || c.run.mode == RunMode::kInference ||
      wanted.front() != "auto" || !model::known_family(c.model.family))
    return "";
  if (!trainable_family(c.model.family))
    return fmt::format(
        "trainhost does not train the model family {}: the plan is that of a trainer like its "
        "own; --for plans a framework's",
        c.model.family);
  const PlannedOnly beyond = planned_only_setting(c.run);
  if (beyond.key.empty()) return "";
  return fmt::format(
      "the estimator '{}' plans this run, approximately: no trainer here supports {} = {}, "
      "so there is no exact plan",
      escaped(decides.source, 80), beyond.key, beyond.value);
}

void add_notes(const runfile::RunConfig& c, const TrainerTraits& traits, plugin::Trainer* trainer,
               PlanResult& v) {
  if (is_for_gpu_of_budget(c))
    v.notes.push_back(
        "a budget without a device: planned for a GPU with that much memory; --device names one, and "
        "--set train.backend=cpu plans for the CPU");
  if (std::string defaults = defaults_of_builtin_run(c); !defaults.empty())
    v.notes.push_back(std::move(defaults));
  // A plan without a trainer is still exact for the program, but no trainer here executes that program.
  if (!trainer && c.framework.empty() && trains_by_program(c.model, c.run))
    v.notes.push_back(fmt::format(
        "{}: the plan is for the same step program with every buffer on the device",
        trains_adapters(c.run) && c.run.memory.dora
            ? "the trainer for this device trains no adapters with magnitudes (DoRA)"
        : c.run.mode == RunMode::kQlora ? "the trainer for this device trains no adapters of weights in NF4"
        : trains_adapters(c.run)        ? "the trainer for this device trains no adapters"
                                        : "no trainer for this device is installed"));
  if (std::string why = backend_not_planned(c); !why.empty()) v.notes.push_back(std::move(why));
  // Scratch grows with the number of threads, and the machine that will run may have other cores.
  if (trainer && !c.device.empty() && traits.tier == Tier::kHost && !c.given.count("train.threads"))
    v.notes.push_back(
        fmt::format("scratch memory is planned for {} threads, one per core of this machine; set "
                    "train.threads for another number",
                    traits.threads));
  // The trainer's own plan is made for its notes only; estimates come from the estimators.
  if (!traits.mode.empty())  // a trainer with several modes reports why it selected this one
    for (std::string& why : trainer->plan(c.model, c.run).notes) v.notes.push_back(std::move(why));
}

}  // namespace

std::string describe_adapters(const ModelSpec& m, const RunSpec& r) {
  if (r.mode != RunMode::kLora && r.mode != RunMode::kQlora) return {};
  std::uint64_t least = r.lora_rank, most = r.lora_rank;
  if (!r.lora_rules.empty()) {
    std::vector<AdapterBlocks> adapters = different_adapter_blocks(m, r);
    for (const AdapterGroup g : {AdapterGroup::kEmbed, AdapterGroup::kHead})
      if (const AdapterBlocks b = adapter_blocks(m, r, g, -1); b.count) adapters.push_back(b);
    const auto [smallest, largest] =
        std::minmax_element(adapters.begin(), adapters.end(),
                            [](const AdapterBlocks& x, const AdapterBlocks& y) { return x.rank < y.rank; });
    least = smallest->rank, most = largest->rank;
  }
  return fmt::format(
      ", {}{} of {}", r.mode == RunMode::kQlora ? "Q" : "", r.memory.dora ? "DoRA" : "LoRA",
      least == most ? fmt::format("rank {}", least) : fmt::format("ranks {} to {}", least, most));
}

std::string describe_recompute(const runfile::RunConfig& c, const TrainerTraits& traits) {
  // Inference recomputes nothing, so the run line does not mention it.
  if (c.run.mode == RunMode::kInference) return "";
  if (c.run.recompute == Recompute::kNone && traits.recompute_layers.total())
    return "recompute " + describe_layers(traits.recompute_layers, c.model.layers, "every layer ") +
           " (chosen by mode " + traits.mode + ")";
  return fmt::format("recompute {}{}",
                     c.run.recompute == Recompute::kLayers
                         ? "auto: " + describe_layers(c.run.recompute_layers, c.model.layers)
                         : std::string(name(c.run.recompute)),
                     c.run.memory.recompute_every > 1
                         ? fmt::format(", in groups of {} layers", c.run.memory.recompute_every)
                         : "");
}

std::string describe_run(const runfile::RunConfig& c, const std::string& recompute) {
  const char* plural = c.run.micro_batch == 1 ? "" : "s";
  if (c.run.mode == RunMode::kInference)
    return fmt::format("{}, inference of {} sequence{} of {} tokens", c.precision, c.run.micro_batch, plural,
                       c.run.seq_len);
  return fmt::format(
      "{}, {} sequence{} of {} tokens{}{}, {}{}{}", c.precision, c.run.micro_batch, plural, c.run.seq_len,
      c.run.accumulate > 1 ? fmt::format(" x {} accumulated", c.run.accumulate) : "",
      describe_adapters(c.model, c.run), name(c.run.optimizer), recompute.empty() ? "" : ", ", recompute);
}

/// Everything of the result except estimates, changes, limits and timeline.
PlanResult describe_plan(const ResolvedRun& r, plugin::Registry& registry, const PlanRequest& request,
                         const TrainerTraits& planned, const MemoryReport& decides) {
  const runfile::RunConfig& c = r.config;
  const TrainerTraits traits = decides.claim == Claim::kExact ? planned : traits_for(c, nullptr);
  PlanResult v;
  if (c.run.recompute == Recompute::kLayers) {
    v.recompute_layers = c.run.recompute_layers;
    v.recompute_text = describe_layers(c.run.recompute_layers, c.model.layers);
  }
  describe_model(c.model, c.run, v);
  v.framework = c.framework;
  v.backend = request.trainer;
  v.mode = traits.mode;
  v.assumed = assumed_values(c);
  v.run_line = (c.framework.empty() ? "" : escaped(c.framework, 80) + ": ") +
               describe_run(c, describe_recompute(c, traits));
  v.estimator_rule = !request.estimators.empty() ? "--estimator"
                     : c.estimator_rule.empty()  ? "auto"
                                                 : c.estimator_rule;
  v.ranks = devices_of(c.run);
  const Parallelism& ranks = c.run.parallel;
  if (ranks.data * ranks.tensor > 1 && ranks.data_rank)
    v.rank = (ranks.data_rank - 1) * ranks.tensor + std::max(1u, ranks.tensor_rank);
  v.compute_tier = r.budgets.tier;
  v.budget_known = r.budgets.compute.known;
  v.budget_bytes = r.budgets.compute.bytes;
  v.budget_source = r.budgets.compute.source;
  v.host_budget_bytes = r.budgets.host.bytes;
  v.host_budget_source = r.budgets.host.known ? r.budgets.host.source : "";
  if (std::string why = why_approximate(c, request, decides); !why.empty()) v.notes.push_back(std::move(why));
  add_notes(c, traits, trainer_for(c, registry, request), v);
  return v;
}

}  // namespace trainhost::planning
