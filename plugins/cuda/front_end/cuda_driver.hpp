// Lists the CUDA devices that are visible to the process, in the order of CUDA_VISIBLE_DEVICES, with the
// driver's library opened by dlopen and without creating a CUDA context. Errors explain why no device can be
// used. Requirements on devices: device_checks.hpp. Free memory: nvml.hpp.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace trainhost::cuda {

struct Device {
  int index = 0;             // CUDA device index: counts the visible devices
  std::string name;          // "NVIDIA H200"
  int major = 0, minor = 0;  // compute capability
  int multiprocessors = 0;
  bool prohibited = false;  // its compute mode permits no CUDA context
  std::uint64_t total_bytes = 0;
  std::array<unsigned char, 16> uuid{};  // of the MIG slice if the device is one
  bool has_uuid = false;
  std::string pci;  // "0000:19:00.0"; "" if the driver does not report it
};

struct Driver {
  int version = 0;  // as in cuDriverGetVersion(): 12080 for CUDA 12.8
  std::vector<Device> devices;
};

/// The driver with its visible devices, at least one. Throws abi::StatusError (TH_E_UNAVAILABLE) if there is
/// no driver, if it fails to start or is older than CUDA 12, or if no device is visible. Creates no context.
/// Thread-safe.
Driver query_driver();

/// "12.8" for 12080.
std::string cuda_version_text(int version);

}  // namespace trainhost::cuda
