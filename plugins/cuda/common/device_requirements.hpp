// Requirements of the CUDA trainer on driver, device and free memory. The front end checks them
// (plugins/cuda/front_end/device_checks.cpp); the engine relies on them without checking again.
#pragma once
#include <cstdint>

namespace trainhost::cuda {

/// Minimum compute capability: 8.0 (Ampere), the first with bf16 and TF32 tensor cores and cp.async.
inline constexpr int kLeastMajor = 8, kLeastMinor = 0;

/// Minimum free device memory. Below this, the CUDA context and cuBLAS alone would fill the device.
inline constexpr std::uint64_t kLeastFreeBytes = 512ull << 20;

/// Device memory that the CUDA runtime uses in addition to the arena: context, kernel code, cuBLAS's handle
/// and kernels. An assumption, not part of the plan; it is subtracted from the free memory before a run gets
/// its budget. `train` compares the plan with the memory that is free after all of it was loaded. It differs
/// by device generation and driver branch. Measured rows: of tools/gpu/accept, step `runtime`, rounded up to
/// 32 MiB (530.6 MiB on an H100 and on an H200); the others are assumed.
struct RuntimeMemory {
  int major, minor;  // compute capability
  const char* generation;
  const char* driver;  // branch
  std::uint64_t bytes;
  bool measured;
};
inline constexpr RuntimeMemory kRuntimeMemory[] = {
    {8, 0, "Ampere", "R580", 512ull << 20, false},     {8, 6, "Ampere", "R580", 512ull << 20, false},
    {8, 9, "Ada", "R580", 512ull << 20, false},        {9, 0, "Hopper", "R580", 544ull << 20, true},
    {10, 0, "Blackwell", "R580", 512ull << 20, false}, {12, 0, "Blackwell", "R580", 512ull << 20, false},
};
/// The largest row: a plan does not depend on the device of this machine, and is valid for every generation.
inline constexpr std::uint64_t runtime_bytes() {
  std::uint64_t most = 0;
  for (const RuntimeMemory& r : kRuntimeMemory) most = r.bytes > most ? r.bytes : most;
  return most;
}

/// Device memory that NCCL allocates for the connections of a rank by one communicator, likewise in addition
/// to the arena. Assumed: it depends on the topology.
inline constexpr std::uint64_t kNcclBytes = 512ull << 20;

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
