// DeepSpeed: a module of transformers with its engine, ZeRO stage 1 to 3. Converts its configuration keys and
// refuses what was not compared with DeepSpeed; what a stage allocates is in core/frameworks.
// docs/pytorch-memory.md lists both.
#include <algorithm>
#include <array>

#include "core/base/error.hpp"
#include "core/base/text.hpp"
#include "plugins/estimators/pytorch/compared_families.hpp"
#include "plugins/estimators/pytorch/settings.hpp"

namespace trainhost::pytorch {
namespace {

using frameworks::Element;

/// Families whose step was compared with DeepSpeed (docs/pytorch-memory.md, "Accuracy").
void require_compared_family(const model::Architecture& a, const RunSpec& r,
                             const frameworks::StepSettings& s) {
  if (was_compared(a.family, Comparison::kDeepSpeed)) return;
  constexpr const char* kReason = "its step was not compared with DeepSpeed";
  if (!was_compared(a.family, Comparison::kDeepSpeedBf16))
    reject("DeepSpeed with the family '" + a.family + "'", kReason);
  if (s.nf4 || s.int8)
    reject("quantized weights of the family '" + a.family + "' under DeepSpeed", kReason,
           "set lora.base to \"bf16\"");
  if (r.memory.optimizer_in != Tier::kDevice || r.memory.weights_in != Tier::kDevice)
    reject("offload of the family '" + a.family + "' under DeepSpeed", kReason,
           "leave plan.offload_optimizer and plan.offload_weights out");
}

void require_types(const RunSpec& r, bool half) {
  if (!half && r.compute != DType::kF32 && r.compute != DType::kTF32)
    reject("train.precision = \"" + std::string(run_file_name(r.compute)) + "\"",
           "kernels of narrower types are not replayed");
  if (r.moment != DType::kF32)
    reject("plan.moments = \"" + std::string(run_file_name(r.moment)) + "\"",
           "bf16_optimizer_states of DeepSpeed is not replayed", "set it to \"fp32\"");
  if (!half) return;
  if (r.weight == DType::kF32)
    reject("plan.weights = \"fp32\" under DeepSpeed",
           "its torch_autocast is not replayed; bf16 and fp16 cast the model",
           "set plan.weights to the type of train.precision");
  if (r.master != DType::kF32 && r.master != DType::kNone)
    reject("plan.master = \"" + std::string(run_file_name(r.master)) + "\"",
           "bf16_master_weights_and_grads of DeepSpeed is not replayed", "set it to \"fp32\"");
}

void require_stage_3(const model::Architecture& a, const RunSpec& r) {
  if (a.has_experts() && (r.memory.optimizer_in != Tier::kDevice || r.memory.weights_in != Tier::kDevice))
    reject("offload of experts in ZeRO 3 of DeepSpeed", "it was not compared with DeepSpeed",
           "leave plan.offload_optimizer and plan.offload_weights out");
  if (r.compute == DType::kF16)
    reject("train.precision = \"fp16\" with ZeRO 3 of DeepSpeed", "its check for overflow was not compared",
           "set train.precision to \"bf16\"");
}

/// offload_optimizer and offload_param.
void set_offload(const RunSpec& r, const Options& o, frameworks::ZeroPolicy& z,
                 std::vector<std::string>& notes) {
  const Tier optimizer = r.memory.optimizer_in, weights = r.memory.weights_in;
  z.offload_optimizer = optimizer != Tier::kDevice;
  if (o.offload_gradients != z.offload_optimizer)
    reject("plan.offload_gradients = \"" + std::string(o.offload_gradients ? "cpu" : "none") + "\"",
           "DeepSpeed keeps gradients where its optimizer is", "leave it out");
  if (z.stage == 3)
    for (const auto& [tier, key] : {std::pair{optimizer, "optimizer"}, {weights, "weights"}})
      if (tier == Tier::kDisk)
        reject("plan.offload_" + std::string(key) + " = \"nvme\" with ZeRO 3 of DeepSpeed",
               "its swap buffers in host memory are not replayed",
               "set it to \"cpu\", which has the same weights on the device");
  if (z.stage < 3 && optimizer == Tier::kDisk)
    notes.push_back("ZeRO 1 and 2 keep an offloaded optimizer in host memory, also with the device nvme.");
  z.offload_parameters = z.stage == 3 && weights != Tier::kDevice;
  if (z.stage < 3 && weights != Tier::kDevice)
    notes.push_back("offload_param has no effect below ZeRO 3: the weights are on the device.");
  if (z.offload_optimizer)
    notes.push_back(
        "DeepSpeedCPUAdam updates f32 weights in host memory with f32 gradients, all of one rank's part. "
        "Bytes "
        "of the host are those of one rank.");
  if (z.offload_optimizer || z.offload_parameters)
    notes.push_back(
        "Pinned buffers are counted as PyTorch allocates them, each rounded up to a power of two "
        "(PYTORCH_CUDA_ALLOC_CONF=pinned_max_round_threshold_mb limits it).");
}

std::string stage_3_note(const frameworks::ZeroPolicy& z) {
  return "stage3_prefetch_bucket_size " + format_count(z.prefetch) + ", stage3_param_persistence_threshold " +
         format_count(z.persistence) + ", stage3_max_live_parameters " + format_count(z.max_live) +
         ", stage3_max_reuse_distance " + format_count(z.reuse_distance) + " elements";
}

}  // namespace

void set_deepspeed(const model::Architecture& a, const RunSpec& r, const Options& o,
                   frameworks::StepSettings& s, std::vector<std::string>& notes) {
  require_compared_family(a, r, s);
  if (r.parallel.zero < 1 || r.parallel.zero > 3)
    reject("parallel.zero = " + std::to_string(r.parallel.zero) + " with DeepSpeed",
           "its stages 1 to 3 are replayed", "set parallel.zero to 1, 2 or 3");
  if (r.parallel.zero == 3) require_stage_3(a, r);
  const bool half = r.compute == DType::kBF16 || r.compute == DType::kF16;
  require_types(r, half);
  s.weights = !half ? Element::kF32 : r.compute == DType::kF16 ? Element::kF16 : Element::kBF16;
  s.autocast = false;
  s.ddp.on = false;
  frameworks::ZeroPolicy& z = s.zero;
  z.stage = r.parallel.zero;
  z.ranks = r.parallel.data;
  z.overlap = o.overlap_reduce;
  z.bucket = o.reduce_bucket.value_or(a.hidden * a.hidden);
  z.prefetch = o.prefetch.value_or(a.hidden * a.hidden * 9 / 10);
  z.persistence = o.persistence.value_or(10 * std::uint64_t{a.hidden});
  z.max_live = o.max_live;
  z.reuse_distance = o.reuse_distance;
  set_offload(r, o, z, notes);
  if (z.stage == 3 && a.has_experts() && a.family != "gpt_oss" && !s.checkpoint)
    notes.push_back(
        "Grouped products of experts keep transposed views of the gathered weights, so that without "
        "recomputation "
        "the experts of all layers stay gathered until the backward pass (train.recompute = \"full\").");
  if (z.stage == 3) {
    notes.push_back(
        "ZeRO 3 on " +
        (z.ranks == 1 ? std::string("one rank, which gathers nothing") : std::to_string(z.ranks) + " ranks") +
        "; reduce_bucket_size " + format_count(z.bucket) + ", " + stage_3_note(z) +
        ". Memory that other streams still use after its last use is not counted.");
    return;
  }
  notes.push_back("ZeRO " + std::to_string(z.stage) + " on " + std::to_string(z.ranks) +
                  (z.ranks == 1 ? " rank" : " ranks") +
                  ", for the rank with most gradients; reduce_bucket_size " + format_count(z.bucket) +
                  " elements" + (z.overlap ? ", twice (overlap_comm)" : "") +
                  "; gradients and their reduction have the type of the weights, the optimizer updates f32 "
                  "weights.");
}

}  // namespace trainhost::pytorch
