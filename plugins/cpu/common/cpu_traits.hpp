// Shared by front end and engine of the CPU trainer, without OpenBLAS: the traits of a run, and the OpenBLAS
// kernels that suit this CPU. Pure except for reading the CPU's feature flags.
#pragma once
#include <string>

#include "core/model/model_spec.hpp"
#include "core/model/run_spec.hpp"

namespace trainhost::cpu {

inline constexpr const char* kId = "cpu";
inline constexpr const char* kVersion = "0.1.0";

/// True if weights and activations of the run are stored in bf16: a bf16 run that trains. Inference in bf16
/// stores f32 and rounds the operands of products.
bool stores_bf16(const RunSpec& run);

/// Traits for a run: arena alignment, head chunk, attention tiles, slots, workspace. threads = 0:
/// default_threads() of core/process/cpu_quota.hpp.
TrainerTraits traits_of(const ModelSpec& model, const RunSpec& run, std::uint32_t threads);

/// Throws abi::StatusError (TH_E_UNSUPPORTED) for number types other than f32 and bf16, and several
/// ranks.
void require_supported(const RunSpec& run);

/// OpenBLAS's name of the widest kernels that this CPU supports: "SkylakeX", "Haswell", or "" for neither.
/// OpenBLAS 0.3.21 does not recognise newer CPUs and uses its oldest kernels there.
std::string best_core_type();

}  // namespace trainhost::cpu
