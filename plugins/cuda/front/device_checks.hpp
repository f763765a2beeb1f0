// Selects the device of a run and checks whether the trainer can use it: the properties that the driver
// reports are compared with common/device_requirements.hpp and with the architectures that the engine was
// compiled for.
#pragma once
#include <string_view>

#include "plugins/cuda/front/cuda_driver.hpp"

namespace trainhost::cuda {

/// How the engine was built.
struct EngineBuild {
  std::string_view architectures;  // "80-real,90-real,100-virtual": TRAINHOST_CUDA_ARCHITECTURES with commas
  int toolkit_major;               // of the CUDA toolkit
};

/// The visible device with that index; `count` receives the number of visible devices. Throws
/// abi::StatusError: TH_E_UNAVAILABLE with the driver's reason, TH_E_ARG if there is no device with that
/// index.
Device device_of(int index, const EngineBuild& build, std::size_t* count = nullptr);

/// Throws abi::StatusError (TH_E_UNAVAILABLE) if the compute capability is too low, if the engine has no code
/// for it, or if too little memory is free.
void require_usable(const Device& device, const EngineBuild& build);

/// Bytes that are free now; the total memory of the device if NVML does not report it.
std::uint64_t free_bytes_of(const Device& device);

/// True if an engine of these architectures has code for a compute capability. "90-real" is machine code: it
/// runs on devices with the same major and at least the same minor version. "90-virtual" is PTX: the driver
/// compiles it for any later device. "90" is both. "90a" runs on 9.0 only.
bool has_code_for(std::string_view architectures, int major, int minor);

}  // namespace trainhost::cuda
