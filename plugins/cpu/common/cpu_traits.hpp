// What both halves of the CPU trainer must agree on without loading OpenBLAS: the traits of a run, and which
// of OpenBLAS's kernels suit this machine. Pure apart from reading the CPU's own feature flags.
#pragma once
#include <string>

#include "core/model/model_spec.hpp"
#include "core/model/run_spec.hpp"

namespace trainhost::cpu {

inline constexpr const char* kId = "cpu";
inline constexpr const char* kVersion = "0.1.0";

/// Choices of this trainer for a run: arena alignment, head chunk, attention tiles, slots. threads 0 = every
/// core.
TrainerTraits traits_of(const ModelSpec& model, const RunSpec& run, std::uint32_t threads);

/// Throws abi::StatusError (unsupported) when the run asks for what this trainer does not do: another
/// number type than f32, LoRA, sharding over ranks.
void require_supported(const RunSpec& run);

/// "SkylakeX" or "Haswell": OpenBLAS's name of the widest kernels that this CPU runs; "" when neither fits.
/// OpenBLAS 0.3.21 does not know newer CPUs and takes the oldest kernels for them.
std::string best_core_type();

}  // namespace trainhost::cpu
