#include "plugins/estimators/pytorch/settings.hpp"

#include <algorithm>

#include "core/base/error.hpp"

namespace trainhost::pytorch {
namespace {

using frameworks::Element;

/// Workspace of cuBLAS for compute capability 9.0; earlier GPUs have 8.125 MiB.
constexpr std::uint64_t kWorkspace = 32u << 20;

[[noreturn]] void reject(const std::string& setting, const std::string& hint) {
  throw usage_error("the estimator 'pytorch' does not describe " + setting, hint);
}

Element element_of(DType t, const char* key) {
  switch (t) {
    case DType::kF32:
    case DType::kTF32:
      return Element::kF32;
    case DType::kBF16:
      return Element::kBF16;
    case DType::kF16:
      return Element::kF16;
    default:
      reject(std::string(key) + " = " + std::string(name(t)),
             "use fp32, bf16 or fp16, or another --estimator");
  }
}

bool is_half(DType t) { return t == DType::kBF16 || t == DType::kF16; }

/// Types of weights and of the computation: f32 weights under autocast, or everything in one type.
void set_types(const RunSpec& r, frameworks::StepSettings& s, std::vector<std::string>& notes) {
  const bool adapts = r.mode == RunMode::kLora;
  const DType base = adapts && r.memory.frozen != DType::kNone ? r.memory.frozen : r.weight;
  s.weights = element_of(base, adapts ? "lora.base" : "plan.weights");
  s.autocast_type = r.compute == DType::kF16 ? Element::kF16 : Element::kBF16;
  s.autocast = is_half(r.compute) && (adapts || s.weights == Element::kF32);
  if (!adapts && is_half(base) && r.master == DType::kF32) {
    s.weights = Element::kF32;
    s.autocast = true;
    notes.push_back("Weights in " + std::string(run_file_name(base)) +
                    " with master weights in fp32 are f32 weights under autocast in PyTorch; plan.master = "
                    "\"none\" plans "
                    "a run in " +
                    std::string(run_file_name(base)) + " alone.");
  }
}

void set_recompute(const RunSpec& r, frameworks::StepSettings& s, std::vector<std::string>& notes) {
  switch (r.recompute) {
    case Recompute::kFull:
      if (r.memory.recompute_every > 1)
        reject("train.recompute_every > 1", "transformers recomputes every layer by itself");
      s.checkpoint = true;
      return;
    case Recompute::kSelective:
    case Recompute::kLayers:
      reject("selective recomputation", "set train.recompute to \"none\" or \"full\"");
    case Recompute::kAuto:
      notes.push_back("With recompute = \"auto\" this estimate keeps all activations.");
      return;
    case Recompute::kNone:
      return;
  }
}

void set_optimizer(const RunSpec& r, const Options& o, frameworks::StepSettings& s) {
  if (r.optimizer != Optimizer::kAdamW && r.optimizer != Optimizer::kSgd &&
      r.optimizer != Optimizer::kSgdMomentum)
    reject("the optimizer " + std::string(name(r.optimizer)),
           "use adamw, sgd or sgd_momentum, or another --estimator");
  s.optimizer = r.optimizer;
  s.loop = o.loop;
  s.weight_decay = r.weight_decay != 0;
}

void reject_offload(const RunSpec& r) {
  if (r.memory.weights_in != Tier::kDevice)
    reject("plan.offload_weights", "remove the key, or use another --estimator");
  if (r.memory.optimizer_in != Tier::kDevice)
    reject("plan.offload_optimizer", "remove the key, or use another --estimator");
  if (r.memory.activations_in != Tier::kDevice)
    reject("plan.offload_activations", "remove the key, or use another --estimator");
}

}  // namespace

bool describes(const RunSpec& r) {
  const Parallelism& p = r.parallel;
  return (r.mode == RunMode::kFull || r.mode == RunMode::kLora) && p.tensor == 1 && p.pipeline == 1 &&
         p.context == 1 && p.expert == 1 && p.zero == 0;
}

frameworks::StepSettings step_settings(const RunSpec& r, const Options& o, std::vector<std::string>& notes) {
  if (r.mode == RunMode::kInference) reject("inference", "use another --estimator");
  if (r.mode == RunMode::kQlora)
    reject("quantized base weights", "set lora.base to \"bf16\", or use another --estimator");
  if (!describes(r))
    reject("sharded runs", "it describes one device, and data parallelism with DDP (parallel.data)");
  if (r.memory.dora) reject("lora.dora", "remove the key, or use another --estimator");
  if (r.memory.cross_entropy == CrossEntropy::kInPlace)
    reject("plan.cross_entropy = \"in_place\"", "transformers materialises the logits: set it to \"plain\"");
  reject_offload(r);
  frameworks::StepSettings s;
  s.batch = r.micro_batch;
  s.sequence = r.seq_len;
  s.accumulate = std::min(r.accumulate, 2u);  // every later micro-batch is like the second
  s.attention = r.memory.attention == AttentionMemory::kMaterialised ? frameworks::AttentionKernel::kEager
                                                                     : frameworks::AttentionKernel::kSdpa;
  s.lora_rank = r.mode == RunMode::kLora ? r.lora_rank : 0;
  s.lora_targets = r.lora_targets;
  s.ddp = r.parallel.data > 1;
  s.machine.cublas_workspace = kWorkspace;
  set_types(r, s, notes);
  set_recompute(r, s, notes);
  set_optimizer(r, o, s);
  return s;
}

}  // namespace trainhost::pytorch
