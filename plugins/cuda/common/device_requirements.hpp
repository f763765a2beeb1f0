// What a machine must have for this trainer: decided here once, checked by the front, relied on by the
// engine.
#pragma once
#include <cstdint>

namespace trainhost::cuda {

/// bf16 tensor cores, asynchronous copies to shared memory: compute capability 8.0, which is Ampere.
inline constexpr int kLeastMajor = 8, kLeastMinor = 0;

/// Below this a context and the library's handles alone would fill the card; nothing could be trained beside
/// them.
inline constexpr std::uint64_t kLeastFreeBytes = 512ull << 20;

/// What the CUDA runtime itself takes of a device beside the arena: context, code of the kernels, cuBLAS's
/// handle. Stated, not planned: no run is given this part of the free memory.
inline constexpr std::uint64_t kRuntimeBytes = 512ull << 20;

/// A driver of a toolkit's major version runs every program of that major version (minor version
/// compatibility). In the form of cuDriverGetVersion(): 1000 * major + 10 * minor.
inline constexpr int least_driver_version(int toolkit_major) { return 1000 * toolkit_major; }

/// The first driver branch with that major version: what a user is told to install.
inline constexpr const char* least_driver_branch(int toolkit_major) {
  return toolkit_major >= 13 ? "R580" : toolkit_major == 12 ? "R525" : "R450";
}

}  // namespace trainhost::cuda
