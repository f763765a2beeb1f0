// Traits of a run on the CUDA trainer: memory mode, recomputed layers, chunk sizes, workspace. The front end
// computes them for the plan and the engine computes them again for the run, so they are a pure function of
// the model, the run (including its memory budgets), the options `mode` and `attention`, the number of CPU
// threads, and the number of multiprocessors of the device.
#pragma once
#include <string>

#include "core/executor/calls.hpp"
#include "core/model/model_spec.hpp"
#include "core/model/run_spec.hpp"
#include "plugins/cuda/common/attention_choice.hpp"
#include "trainhost/host.h"

namespace trainhost::cuda {

inline constexpr const char* kId = "cuda";
inline constexpr const char* kVersion = "0.1.0";
/// Multiprocessors of the device for which a run is planned where neither the run file nor the machine has
/// one: those of an H100 or H200.
inline constexpr std::uint32_t kDefaultMultiprocessors = 132;

/// The traits; `why` explains the decision to the user if mode "auto" did not choose plain `resident`.
using executor::Choice;
using executor::Placed;
using executor::placed_program;

/// mode_option: auto | resident | hybrid | streamed; throws abi::StatusError (TH_E_ARG) for any other value.
/// threads: CPU threads for operations on the host (hybrid and streamed). multiprocessors: of the device.
/// attention: of choose_attention().
Choice choose(const ModelSpec& model, const RunSpec& run, const std::string& mode_option,
              std::uint32_t threads, std::uint32_t multiprocessors = kDefaultMultiprocessors,
              Attention attention = Attention::kOwn);

/// The model that a rank computes: of a TP rank its part.
ModelSpec model_of_rank(const ModelSpec& whole, const RunSpec& run);

/// The option plugin.cuda.multiprocessors of the host; 0 if it is not set. Throws abi::StatusError (TH_E_ARG)
/// for anything but a number from 1 to 4096.
std::uint32_t multiprocessors_option(const th_host* host);

/// Workspace of cuBLASLt; the planned buffer is larger if cuDNN, which shares it, needs more.
inline constexpr std::uint64_t kBlasWorkspaceBytes = 32ull << 20;

/// Throws abi::StatusError (TH_E_UNSUPPORTED) if the run needs something that this trainer does not
/// implement: number types other than f32, TF32 and bf16, other parallelism than DP and TP.
void require_supported(const RunSpec& run);

}  // namespace trainhost::cuda
