// See parallelism.hpp. One row a key: what a trainer on one rank does is the default of each.
#include "core/model/parallelism.hpp"

#include "core/model/model_spec.hpp"
#include "core/model/run_spec.hpp"
#include "core/model/type_names.hpp"

namespace trainhost {
namespace {

bool trained(Optimizer o) {
  return o == Optimizer::kAdamW || o == Optimizer::kSgd || o == Optimizer::kSgdMomentum;
}

/// Types that products are computed in. TF32 is the devices' alone: a trainer without it refuses by itself.
bool trained(DType compute) {
  return compute == DType::kF32 || compute == DType::kTF32 || compute == DType::kBF16;
}

bool goes_with(DType weight, DType compute) {
  return weight == (compute == DType::kBF16 ? DType::kBF16 : DType::kF32);
}

DType master_beside(DType weight) { return weight == DType::kBF16 ? DType::kF32 : DType::kNone; }

}  // namespace

Beyond beyond_one_rank(const RunSpec& r) {
  const Layout& l = r.layout;
  const auto n = [](std::uint64_t v) { return std::to_string(v); };
  const auto quoted = [](std::string_view v) { return '"' + std::string(v) + '"'; };
  const auto type = [&](DType t) { return quoted(type_word(t)); };
  const auto place = [&](Tier t) { return quoted(offload_word(t)); };
  const bool adapts = r.lora_rank > 0 || r.mode == RunMode::kLora || r.mode == RunMode::kQlora;
  const struct {
    bool differs;
    const char* key;
    std::string value;
  } rows[] = {
      {r.data_parallel != 1, "parallel.data", n(r.data_parallel)},
      {r.tensor_parallel != 1, "parallel.tensor", n(r.tensor_parallel)},
      {r.pipeline_parallel != 1, "parallel.pipeline", n(r.pipeline_parallel)},
      {r.zero_stage != 0, "parallel.zero", n(r.zero_stage)},
      {l.sequence_parallel, "parallel.sequence", "true"},
      {l.context_parallel != 1, "parallel.context", n(l.context_parallel)},
      {l.expert_parallel != 1, "parallel.expert", n(l.expert_parallel)},
      {l.interleave != 1, "parallel.interleave", n(l.interleave)},
      {l.vocab_multiple != 1, "parallel.vocab_multiple", n(l.vocab_multiple)},
      {l.recompute_every != 1, "train.recompute_every", n(l.recompute_every)},
      {!trained(r.optimizer), "optimizer.name", quoted(name(r.optimizer))},
      {!trained(r.compute), "train.precision", type(r.compute)},
      {!goes_with(r.weight, r.compute), "plan.weights", type(r.weight)},
      {r.grad != DType::kF32, "plan.gradients", type(r.grad)},
      {r.master != master_beside(r.weight), "plan.master", type(r.master)},
      {r.moment != DType::kF32, "plan.moments", type(r.moment)},
      {l.attention != AttentionMemory::kFlash, "plan.attention", quoted("materialised")},
      {l.cross_entropy != CrossEntropy::kFused, "plan.cross_entropy",
       quoted(l.cross_entropy == CrossEntropy::kPlain ? "plain" : "in-place")},
      {l.weights_in != Tier::kDevice, "plan.offload_weights", place(l.weights_in)},
      {l.optimizer_in != Tier::kDevice, "plan.offload_optimizer", place(l.optimizer_in)},
      {l.activations_in != Tier::kDevice, "plan.offload_activations", place(l.activations_in)},
      {adapts, "lora.rank", n(r.lora_rank)},
      {r.lora_targets != 0, "lora.targets", n(r.lora_targets)},
      {r.lora_alpha != 0, "lora.alpha", std::to_string(r.lora_alpha)},
      {l.frozen != DType::kNone, "lora.base", type(l.frozen)},
      {l.double_quantized, "lora.double_quant", "true"},
      {l.dora, "lora.dora", "true"},
      {l.kv_cache != DType::kNone, "plan.kv_cache", type(l.kv_cache)},
      {l.kv_page != 1, "plan.kv_page", n(l.kv_page)},
  };
  for (const auto& row : rows)
    if (row.differs) return {row.key, row.value};
  return {};
}

bool trains_by_program(const ModelSpec& m, const RunSpec& r) {
  return trainable_family(m.family) && r.mode == RunMode::kFull && !beyond_one_rank(r);
}

}  // namespace trainhost
