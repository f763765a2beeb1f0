// Rules between settings of a run (run_rules.hpp). Order: parallelism, settings of another kind of run,
// number types. Most readers report the first conflict only, so the order decides which one a user sees.
#include "core/model/run_rules.hpp"

#include <algorithm>
#include <numeric>

#include "core/base/types.hpp"
#include "core/model/architecture.hpp"
#include "core/model/trainable.hpp"

namespace trainhost {
namespace {

std::string n(std::uint64_t v) { return std::to_string(v); }
std::string quoted(std::string_view v) { return '"' + std::string(v) + '"'; }

// All types with an exponent that an engine or estimator can compute with; kNone and integers are not.
bool floating(DType t) {
  switch (t) {
    case DType::kF64:
    case DType::kF32:
    case DType::kTF32:
    case DType::kBF16:
    case DType::kF16:
    case DType::kF8:
      return true;
    default:
      return false;
  }
}
// Storage types of frozen weights: values of a block share a scale. Gradients of them do not exist.
bool narrow(DType t) { return t == DType::kI8 || t == DType::kI4 || t == DType::kNF4; }

/// A key with a number type that it cannot have. Inference has no gradients and no moments, so their types
/// are not checked.
void add_type_conflicts(const RunSpec& r, std::vector<Conflict>& out) {
  const bool infers = r.mode == RunMode::kInference;
  if (!infers && narrow(r.weight))
    out.push_back({"plan.weights", "plan.weights = " + quoted(run_file_name(r.weight)) + " cannot be trained",
                   "set lora.base to train adapters of frozen weights, or plan.mode = \"inference\""});
  const DType frozen = r.memory.frozen, cache = r.memory.kv_cache;
  // kNone means "not stored separately": no master copy, no frozen base, KV cache in the compute type.
  const struct {
    const char* key;
    DType type;
    bool fine;
  } rows[] = {{"plan.weights", r.weight, floating(r.weight) || narrow(r.weight)},
              {"train.precision", r.compute, floating(r.compute)},
              {"plan.gradients", r.grad, infers || floating(r.grad)},
              {"plan.master", r.master, r.master == DType::kNone || floating(r.master)},
              {"plan.moments", r.moment, infers || floating(r.moment)},
              {"lora.base", frozen, frozen == DType::kNone || floating(frozen) || narrow(frozen)},
              {"plan.kv_cache", cache, cache == DType::kNone || floating(cache) || narrow(cache)}};
  for (const auto& row : rows)
    if (!row.fine)
      out.push_back({row.key,
                     std::string(row.key) + " = " + quoted(run_file_name(row.type)) +
                         " is not a valid type for this key",
                     "use fp32, bf16, fp16 or fp8"});
}

/// A setting that has no effect in this kind of run (full training, adapters, inference).
void add_kind_conflicts(const RunSpec& r, bool tensor_decided, std::vector<Conflict>& out) {
  const MemoryPolicy& memory = r.memory;
  const bool adapts = r.mode == RunMode::kLora || r.mode == RunMode::kQlora,
             infers = r.mode == RunMode::kInference;
  // Without lora.base, QLoRA freezes its base in NF4.
  const bool nf4 =
      memory.frozen == DType::kNF4 || (memory.frozen == DType::kNone && r.mode == RunMode::kQlora);
  const char *adapters = " needs a run that trains adapters ([lora])",
             *inference = " needs plan.mode = \"inference\"",
             *none = " has no effect with plan.mode = \"inference\"";
  // Each row compares a setting with its default. So a user who writes the default of a setting that has no
  // effect gets no error.
  const struct {
    bool conflicts;
    const char *key, *why;
  } rows[] = {
      {!adapts && r.lora_rank != 0, "lora.rank", adapters},
      {!adapts && r.lora_targets != 0, "lora.targets", adapters},
      {!adapts && memory.adapts_head, "lora.targets", adapters},
      {!adapts && memory.adapts_embedding, "lora.targets", adapters},
      {!adapts && (memory.saves_head || memory.saves_embedding), "lora.modules_to_save", adapters},
      {!adapts && memory.lora_dropout != 0, "lora.dropout", adapters},
      {!adapts && r.lora_alpha != 0, "lora.alpha", adapters},
      {!adapts && memory.frozen != DType::kNone, "lora.base", adapters},
      {!adapts && memory.dora, "lora.dora", adapters},
      {memory.double_quantized && !(adapts && nf4), "lora.double_quant", " needs lora.base = \"nf4\""},
      {(adapts || infers) && !r.trainable.empty() && saved_modules(r).empty(),
       r.trainable.starts_with("-*\n+") ? "train.only" : "train.freeze",
       adapts ? " has no effect on adapters: they are trained, and the weights of the model are frozen"
              : none},
      {!infers && memory.kv_cache != DType::kNone, "plan.kv_cache", inference},
      {!infers && memory.kv_page > 1, "plan.kv_page", inference},
      {!infers && memory.prefill_chunk != 0, "plan.prefill_chunk", inference},
      {infers && memory.optimizer_in != Tier::kDevice, "plan.offload_optimizer", none},
      {infers && memory.gradients_in != Tier::kDevice, "plan.offload_gradients", none},
      {infers && memory.activations_in != Tier::kDevice, "plan.offload_activations", none},
      // With tensor_decided = false a search may still choose tensor > 1.
      {r.parallel.sequence && r.parallel.tensor == 1 && tensor_decided, "parallel.sequence",
       " needs parallel.tensor > 1"}};
  for (const auto& row : rows)
    if (row.conflicts) out.push_back({row.key, std::string(row.key) + row.why, ""});
}

}  // namespace

// The divisors come in pairs (i, whole / i) with i <= sqrt(whole). `below` starts at 1, a divisor of all
// numbers.
std::string nearest_divisors(std::uint64_t value, std::uint64_t whole) {
  std::uint64_t below = 1, above = 0;
  for (std::uint64_t i = 1; i <= whole / i; ++i) {
    if (whole % i) continue;
    for (const std::uint64_t d : {i, whole / i}) {
      if (d < value)
        below = std::max(below, d);
      else if (above == 0 || d < above)
        above = d;
    }
  }
  return "use " + n(below) + (above ? " or " + n(above) : "");
}

std::uint64_t experts_of(const model::Architecture& a) {
  std::uint64_t all = 0;
  for (const model::LayerRun& run : a.layers) all = std::gcd(all, run.layer.experts.count);
  return all;
}

std::uint64_t expert_groups(const Parallelism& p) {
  const std::uint64_t ranks = std::uint64_t{p.data} * p.context;
  return p.expert_tensor != 0 ? ranks * p.tensor / p.expert_tensor : ranks;
}

namespace {

/// What allows parallel.expert, which does not divide expert_groups(), beside another value of it; "" if the
/// number of experts does not.
std::string more_ranks_for_experts(const Parallelism& p, std::uint64_t experts) {
  if (experts % p.expert) return "";
  // data x `of_replica` / `of_group` groups; both numbers without expert_tensor, which counts no tensor ranks
  // then.
  const std::uint64_t of_replica = std::uint64_t{p.context} * (p.expert_tensor ? p.tensor : 1),
                      of_group = std::uint64_t{p.expert} * (p.expert_tensor ? p.expert_tensor : 1),
                      least = of_group / std::gcd(of_group, of_replica);
  std::string out = "or set parallel.data to a multiple of " + n(least);
  if (p.expert_tensor == 0 && p.tensor > 1 && expert_groups(p) * p.tensor % p.expert == 0)
    out +=
        "; or --set plan.expert_tensor=1 with --for=megatron or torchtitan, where experts then divide the " +
        n(p.tensor) + " tensor ranks too";
  return out;
}

}  // namespace

// `decided` is true if none of the keys is open. A rule applies only when all its keys have values; otherwise
// the search would lose settings that are valid with another value.
std::vector<Conflict> find_conflicts(const RunSpec& r, const std::set<std::string>& open,
                                     std::uint64_t experts) {
  std::vector<Conflict> out;
  const MemoryPolicy& memory = r.memory;
  const auto decided = [&](const auto*... keys) { return (!open.count(keys) && ...); };
  if (r.parallel.virtual_stages > 1 && r.parallel.pipeline == 1 &&
      decided("parallel.interleave", "parallel.pipeline"))
    out.push_back(
        {"parallel.interleave",
         "parallel.interleave = " + n(r.parallel.virtual_stages) + " needs parallel.pipeline > 1; it is 1",
         ""});
  // Expert parallelism divides the ranks that have the same weights: the data and context ranks. Experts with
  // tensor parallelism of their own are divided over the tensor ranks too.
  const std::uint64_t own = r.parallel.expert_tensor;
  const bool known = decided("parallel.data", "parallel.context") && (own == 0 || decided("parallel.tensor"));
  const std::uint64_t sharing =
      std::uint64_t{r.parallel.data} * r.parallel.context * (own != 0 ? r.parallel.tensor : 1);
  const std::uint64_t groups = expert_groups(r.parallel);
  if (known && own != 0 && sharing % own)
    out.push_back({"plan.expert_tensor",
                   "plan.expert_tensor = " + n(own) + " does not divide " + n(sharing) +
                       " data x context x tensor ranks; " + nearest_divisors(own, sharing),
                   ""});
  else if (known && groups % r.parallel.expert && decided("parallel.expert"))
    out.push_back({"parallel.expert",
                   "parallel.expert = " + n(r.parallel.expert) + " does not divide " + n(groups) +
                       (own != 0 ? " data x context x tensor ranks / plan.expert_tensor; "
                                 : " data x context ranks; ") +
                       nearest_divisors(r.parallel.expert, std::gcd(groups, experts)),
                   more_ranks_for_experts(r.parallel, experts)});
  // Every context rank has an equal part of each sequence (docs/memory-model.md).
  if (r.seq_len % r.parallel.context && decided("parallel.context"))
    out.push_back({"parallel.context",
                   "parallel.context = " + n(r.parallel.context) + " does not divide " + n(r.seq_len) +
                       " tokens of a sequence (data.seq_len); " +
                       nearest_divisors(r.parallel.context, r.seq_len),
                   ""});
  // Only full recomputation keeps one input per block of layers; the other policies work inside a layer.
  if (memory.recompute_every > 1 && r.recompute != Recompute::kFull &&
      decided("train.recompute", "train.recompute_every"))
    out.push_back({"train.recompute_every",
                   "train.recompute_every = " + n(memory.recompute_every) +
                       " needs train.recompute = \"full\"; it is " + quoted(name(r.recompute)),
                   ""});
  add_kind_conflicts(r, decided("parallel.sequence", "parallel.tensor"), out);
  add_type_conflicts(r, out);
  return out;
}

}  // namespace trainhost
