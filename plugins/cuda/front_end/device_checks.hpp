// Selects the device of a run and checks whether the trainer can use it: the properties that the driver
// reports are compared with common/device_requirements.hpp and with the architectures that the engine was
// compiled for.
#pragma once
#include <cstddef>
#include <string_view>

#include "plugins/cuda/front_end/cuda_driver.hpp"

namespace trainhost::cuda {

struct SelectedDevice : Device {
  std::size_t count = 0;   // of visible devices
  int driver_version = 0;  // as in cuDriverGetVersion()
};

/// The visible device with that index. Throws abi::StatusError: TH_E_UNAVAILABLE with the driver's reason,
/// TH_E_ARG if there is no device with that index.
SelectedDevice device_of(int index);

/// Throws abi::StatusError (TH_E_UNAVAILABLE) if the compute capability is too low, if NVML says that the
/// device is lost or must be reset, if its compute mode prohibits its use, or if too little memory is free.
void require_usable(const SelectedDevice& device);

/// Throws abi::StatusError (TH_E_UNAVAILABLE) if an engine of these architectures has no code for the device.
/// `engine`: its file name, for the message.
void require_code_for(const Device& device, std::string_view architectures, const char* engine);

/// Bytes that are free now; the total memory of the device if NVML does not report it.
std::uint64_t free_bytes_of(const Device& device);

/// True if an engine of these architectures has code for a compute capability. "90-real" is machine code: it
/// runs on devices with the same major and at least the same minor version. "90-virtual" is PTX: the driver
/// compiles it for any later device. "90" is both. "90a" runs on 9.0 only.
bool has_code_for(std::string_view architectures, int major, int minor);

}  // namespace trainhost::cuda
