// Checks at compile time that the enums of core/base/types.hpp and core/model have the same numbers as the C
// ABI, so that a cast converts them. A mismatch is a build error.
#pragma once
#include <cstdint>

#include "core/base/types.hpp"
#include "core/model/model_spec.hpp"
#include "core/model/parallelism.hpp"
#include "trainhost/host.h"
#include "trainhost/memory.h"
#include "trainhost/model.h"

namespace trainhost::abi {

template <class E>
constexpr bool same(E ours, std::uint32_t theirs) {
  return static_cast<std::uint32_t>(ours) == theirs;
}

static_assert(same(DType::kF32, TH_DT_F32) && same(DType::kF16, TH_DT_F16) &&
              same(DType::kBF16, TH_DT_BF16) && same(DType::kI32, TH_DT_I32) && same(DType::kU8, TH_DT_U8) &&
              same(DType::kTF32, TH_DT_TF32) && same(DType::kF64, TH_DT_F64) && same(DType::kF8, TH_DT_F8) &&
              same(DType::kI8, TH_DT_I8) && same(DType::kNF4, TH_DT_NF4) && same(DType::kI4, TH_DT_I4));
static_assert(same(Tier::kDevice, TH_TIER_DEVICE) && same(Tier::kPinned, TH_TIER_PINNED) &&
              same(Tier::kHost, TH_TIER_HOST) && same(Tier::kDisk, TH_TIER_DISK));
static_assert(same(Claim::kExact, TH_EXACT) && same(Claim::kUpperBound, TH_UPPER_BOUND) &&
              same(Claim::kApproximation, TH_APPROXIMATION));
static_assert(same(Component::kWeights, TH_MEM_WEIGHTS) &&
              same(Component::kMasterWeights, TH_MEM_MASTER_WEIGHTS) &&
              same(Component::kGradients, TH_MEM_GRADIENTS) &&
              same(Component::kOptimizerState, TH_MEM_OPTIMIZER_STATE) &&
              same(Component::kActivations, TH_MEM_ACTIVATIONS) && same(Component::kLogits, TH_MEM_LOGITS) &&
              same(Component::kWorkspace, TH_MEM_WORKSPACE) &&
              same(Component::kCommunication, TH_MEM_COMMUNICATION) &&
              same(Component::kKvCache, TH_MEM_KV_CACHE) && same(Component::kAdapters, TH_MEM_ADAPTERS) &&
              same(Component::kFragmentation, TH_MEM_FRAGMENTATION) &&
              same(Component::kRuntime, TH_MEM_RUNTIME));
static_assert(same(kLoad, TH_PH_LOAD) && same(kForward, TH_PH_FORWARD) && same(kBackward, TH_PH_BACKWARD) &&
              same(kUpdate, TH_PH_UPDATE) && same(kEval, TH_PH_EVAL) && same(kSave, TH_PH_SAVE) &&
              same(kGenerate, TH_PH_GENERATE));
static_assert(same(Optimizer::kAdamW, TH_OPT_ADAMW) && same(Optimizer::kSgd, TH_OPT_SGD) &&
              same(Optimizer::kSgdMomentum, TH_OPT_SGD_MOMENTUM) &&
              same(Optimizer::kAdafactor, TH_OPT_ADAFACTOR) && same(Optimizer::kLion, TH_OPT_LION) &&
              same(Optimizer::kMuon, TH_OPT_MUON) && same(Optimizer::kAdamW8bit, TH_OPT_ADAMW_8BIT));
static_assert(same(AttentionMemory::kFlash, TH_ATTENTION_FLASH) &&
              same(AttentionMemory::kMaterialised, TH_ATTENTION_MATERIALISED) &&
              same(CrossEntropy::kFused, TH_CE_FUSED) && same(CrossEntropy::kPlain, TH_CE_PLAIN) &&
              same(CrossEntropy::kInPlace, TH_CE_IN_PLACE));
static_assert(same(Recompute::kNone, TH_RC_NONE) && same(Recompute::kSelective, TH_RC_SELECTIVE) &&
              same(Recompute::kFull, TH_RC_FULL) && same(Recompute::kAuto, TH_RC_AUTO) &&
              same(Recompute::kLayers, TH_RC_LAYERS));
static_assert(same(RunMode::kFull, TH_MODE_FULL) && same(RunMode::kLora, TH_MODE_LORA) &&
              same(RunMode::kQlora, TH_MODE_QLORA) && same(RunMode::kInference, TH_MODE_INFERENCE));
static_assert(same(RopeKind::kDefault, TH_ROPE_DEFAULT) && same(RopeKind::kLinear, TH_ROPE_LINEAR) &&
              same(RopeKind::kLlama3, TH_ROPE_LLAMA3));

/// Largest valid numbers: a number from a plugin is compared with these before it is cast to an enum.
inline constexpr std::uint32_t kLastTier = TH_TIER_DISK, kLastClaim = TH_APPROXIMATION,
                               kLastComponent = TH_MEM_RUNTIME, kAllPhases = 2 * TH_PH_GENERATE - 1;

}  // namespace trainhost::abi
