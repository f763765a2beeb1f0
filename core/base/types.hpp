// Enums of the project: number types, memory tiers, components, claims, phases, optimizers. name() is the
// name in JSON; the numbers are those of the C interface (checked by core/abi).
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace trainhost {

/// kF8 and later are storage types for planning; no kernel computes with them.
enum class DType : std::uint32_t {
  kNone = 0,
  kF32 = 1,
  kF16 = 2,
  kBF16 = 3,
  kI32 = 4,
  kU8 = 5,
  kTF32 = 6,
  kF64 = 7,
  kF8 = 8,
  kI8 = 9,
  kNF4 = 10,
  kI4 = 11,
};
enum class Tier : std::uint32_t { kDevice = 1, kPinned = 2, kHost = 3, kDisk = 4 };
enum class Claim : std::uint32_t { kExact = 1, kUpperBound = 2, kApproximation = 3 };

/// Purpose of memory. The JSON names are lower_snake: "weights", "optimizer_state", ...
enum class Component : std::uint32_t {
  kWeights = 1,
  kMasterWeights,
  kGradients,
  kOptimizerState,
  kActivations,
  kLogits,
  kWorkspace,
  kCommunication,
  kKvCache,
  kAdapters,
  kFragmentation,
  kRuntime,
};

/// Phases of a step during which a buffer is live: a mask in reports, a single value for an operation.
enum Phase : std::uint32_t {
  kLoad = 1,
  kForward = 2,
  kBackward = 4,
  kUpdate = 8,
  kEval = 16,
  kSave = 32,
  kGenerate = 64,
};

enum class Optimizer : std::uint32_t {
  kAdamW = 1,
  kSgd = 2,
  kSgdMomentum = 3,
  kAdafactor = 4,
  kLion = 5,
  kMuon = 6,
  kAdamW8bit = 7,
};
/// The host resolves kAuto into kLayers: one policy per layer, see RunSpec::recompute_layers.
enum class Recompute : std::uint32_t { kNone = 1, kSelective = 2, kFull = 3, kAuto = 4, kLayers = 5 };
enum class RunMode : std::uint32_t { kFull = 1, kLora = 2, kQlora = 3, kInference = 4 };

std::uint32_t size_of(DType t);  // bytes per element; 0 for kNone and types narrower than a byte
std::uint32_t bits_of(DType t);  // bits per element, without block scales
std::string_view name(DType t);
std::string_view name(Tier t);
std::string_view name(Claim c);
std::string_view name(Component c);
std::string_view name(Phase p);
std::string_view name(Optimizer o);
std::string_view name(Recompute r);
/// "optimizer state", "key/value cache", "upper bound": name() for text that people read.
std::string display_name(Component c);
std::string display_name(Claim c);
std::optional<Optimizer> optimizer_from(std::string_view name);
std::optional<Recompute> recompute_from(std::string_view name);

/// Names in the run file where they differ from name(): number types "fp32", "bf16", "int8"; a type that no
/// key accepts has its name().
std::string_view run_file_name(DType t);
std::optional<DType> type_of_run_file_name(std::string_view word);

/// Offload targets in the run file: "none" (device), "cpu" (host memory, pinned or not), "nvme" (disk).
std::string_view offload_name(Tier t);
std::optional<Tier> tier_of_offload_name(std::string_view word);

}  // namespace trainhost
