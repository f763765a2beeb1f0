// See layout.hpp. One row a key: what a trainer on one rank does is the default of each.
#include "core/model/layout.hpp"

#include "core/model/run_spec.hpp"

namespace trainhost {

Beyond beyond_one_rank(const RunSpec& r) {
  const Layout& l = r.layout;
  const auto n = [](std::uint64_t v) { return std::to_string(v); };
  const auto quoted = [](std::string_view v) { return '"' + std::string(v) + '"'; };
  const auto trains = [](Optimizer o) {
    return o == Optimizer::kAdamW || o == Optimizer::kSgd || o == Optimizer::kSgdMomentum;
  };
  const auto where = [&](Tier t) { return quoted(t == Tier::kDisk ? "nvme" : "cpu"); };
  const struct {
    bool differs;
    const char* key;
    std::string value;
  } rows[] = {
      {r.data_parallel > 1, "parallel.data", n(r.data_parallel)},
      {r.tensor_parallel > 1, "parallel.tensor", n(r.tensor_parallel)},
      {r.pipeline_parallel > 1, "parallel.pipeline", n(r.pipeline_parallel)},
      {r.zero_stage > 0, "parallel.zero", n(r.zero_stage)},
      {l.sequence_parallel, "parallel.sequence", "true"},
      {l.context_parallel > 1, "parallel.context", n(l.context_parallel)},
      {l.expert_parallel > 1, "parallel.expert", n(l.expert_parallel)},
      {l.interleave > 1, "parallel.interleave", n(l.interleave)},
      {l.vocab_multiple > 1, "parallel.vocab_multiple", n(l.vocab_multiple)},
      {l.recompute_every > 1, "train.recompute_every", n(l.recompute_every)},
      {!trains(r.optimizer), "optimizer.name", quoted(name(r.optimizer))},
      {r.weight == DType::kF16, "train.precision", quoted("fp16")},
      {r.weight == DType::kF8, "train.precision", quoted("fp8")},
      {r.mode != RunMode::kInference && r.grad != DType::kF32, "plan.gradients", quoted(name(r.grad))},
      {r.weight == DType::kBF16 && r.master != DType::kF32, "plan.master", quoted(name(r.master))},
      {r.mode != RunMode::kInference && r.moment != DType::kF32, "plan.moments", quoted(name(r.moment))},
      {l.attention != AttentionMemory::kFlash, "plan.attention", quoted("materialised")},
      {l.cross_entropy != CrossEntropy::kFused, "plan.cross_entropy", quoted(l.cross_entropy == CrossEntropy::kPlain ? "plain" : "in-place")},
      {l.weights_in != Tier::kDevice, "plan.offload_weights", where(l.weights_in)},
      {l.optimizer_in != Tier::kDevice, "plan.offload_optimizer", where(l.optimizer_in)},
      {l.activations_in != Tier::kDevice, "plan.offload_activations", where(l.activations_in)},
      {r.lora_rank > 0 || r.mode == RunMode::kLora || r.mode == RunMode::kQlora, "lora.rank", n(r.lora_rank)},
      {l.kv_cache != DType::kNone, "plan.kv_cache", quoted(name(l.kv_cache))},
      {l.kv_page > 1, "plan.kv_page", n(l.kv_page)},
  };
  for (const auto& row : rows)
    if (row.differs) return {row.key, row.value};
  return {};
}

}  // namespace trainhost
