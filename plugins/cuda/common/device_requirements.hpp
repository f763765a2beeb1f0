// Requirements of the CUDA trainer on driver, device and free memory. The front end checks them
// (plugins/cuda/front/device_checks.cpp); the engine relies on them without checking again.
#pragma once
#include <cstdint>

namespace trainhost::cuda {

/// Minimum compute capability: 8.0 (Ampere), the first with bf16 and TF32 tensor cores and cp.async.
inline constexpr int kLeastMajor = 8, kLeastMinor = 0;

/// Minimum free device memory. Below this, the CUDA context and cuBLAS alone would fill the device.
inline constexpr std::uint64_t kLeastFreeBytes = 512ull << 20;

/// Device memory that the CUDA runtime uses in addition to the arena: context, kernel code, cuBLAS's handle.
/// An assumption, not part of the plan; it is subtracted from the free memory before a run gets its budget.
inline constexpr std::uint64_t kRuntimeBytes = 512ull << 20;

/// Major versions of CUDA that engines are built for; the newest one that can be used is preferred.
inline constexpr int kOldestMajor = 12, kNewestMajor = 13;

/// Minimum driver version for an engine built with this toolkit, encoded as in cuDriverGetVersion(): 1000 *
/// major + 10 * minor. A driver runs programs of every toolkit with the same major version (CUDA minor
/// version compatibility).
inline constexpr int least_driver_version(int toolkit_major) { return 1000 * toolkit_major; }

/// The oldest driver branch that supports this major version; named in the message to the user.
inline constexpr const char* least_driver_branch(int toolkit_major) {
  return toolkit_major >= 13 ? "R580" : "R525";
}

}  // namespace trainhost::cuda
