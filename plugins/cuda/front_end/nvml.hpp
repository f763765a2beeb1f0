// State and free memory of a device from the driver's management library (NVML), which needs no CUDA context.
// Optional: if the library is missing or does not know a device, the functions return nullopt or "", and the
// caller assumes that all memory of the device is free.
#pragma once
#include <cstdint>
#include <optional>

#include "plugins/cuda/front_end/cuda_driver.hpp"

namespace trainhost::cuda {

/// Number of devices of the machine, including those that CUDA_VISIBLE_DEVICES hides; nullopt if NVML is not
/// available. Thread-safe.
std::optional<unsigned> nvml_device_count();

/// "GPU-5a0c…", as nvidia-smi -L prints it; "MIG-…" for a MIG slice. Empty if the driver does not report the
/// UUID. Without NVML the name of the device tells which of both it is. Thread-safe.
std::string uuid_of(const Device& device);

/// Why NVML says that the device cannot be used: "has fallen off the bus or cannot be accessed", "must be
/// reset before it can be used"; "" if it does not say so. Thread-safe.
std::string nvml_fault(const Device& device);

/// Bytes that are free on the device now, at most its total memory; nullopt if NVML does not know it.
/// Thread-safe.
std::optional<std::uint64_t> nvml_free_bytes(const Device& device);

}  // namespace trainhost::cuda
