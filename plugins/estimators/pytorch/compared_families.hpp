// Families of models whose step was compared with PyTorch, per kind of run. Which operators a family has is
// in core/frameworks; docs/pytorch-memory.md, "Accuracy", lists the comparisons.
#pragma once
#include <cstdint>
#include <string_view>

namespace trainhost::pytorch {

/// A kind of run that was compared for some families only.
enum class Comparison : std::uint16_t {
  kLiger = 1 << 0,           // kernels of Liger
  kAdapterKernels = 1 << 1,  // kernels of axolotl for adapters
  kSharded = 1 << 2,         // FSDP, also without accelerate
  kByAccelerate = 1 << 3,    // FSDP as accelerate prepares it; weights that are not quantized, no Liger
  kDeepSpeed = 1 << 4,       // also quantized weights and offload
  kDeepSpeedBf16 = 1 << 5,   // DeepSpeed; weights that are not quantized, no offload
  kUnsloth = 1 << 6,
  kTransformers445 = 1 << 7,     // transformers before 4.46
  kTransformers446 = 1 << 8,     // 4.46 to 4.53
  kTransformers454 = 1 << 9,     // 4.54 to 4.57
  kPackedByAccelerate = 1 << 10  // FSDP as accelerate prepares it, over 4-bit weights; beside kByAccelerate
};

/// Whether runs of that kind were compared for the family, named as in config.json ("qwen3_moe").
bool was_compared(std::string_view family, Comparison kind);

}  // namespace trainhost::pytorch
