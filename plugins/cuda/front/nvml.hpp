// Free memory of a device without a context, from the driver's management library (NVML). Everything here is
// optional: where the library is missing or does not know a device, the caller takes the device's whole
// memory for free.
#pragma once
#include <cstdint>
#include <optional>

#include "plugins/cuda/front/cuda_driver.hpp"

namespace trainhost::cuda {

/// Devices of the machine, whatever CUDA_VISIBLE_DEVICES says; nullopt when NVML cannot be asked.
/// Thread-safe.
std::optional<unsigned> nvml_device_count();

/// Free now on that device, never more than its whole memory; nullopt when NVML cannot say. Thread-safe.
std::optional<std::uint64_t> nvml_free_bytes(const Device& device);

}  // namespace trainhost::cuda
