// What the NVIDIA driver says about this machine, asked through dlopen, without a context: the devices that
// CUDA_VISIBLE_DEVICES leaves, in its order. The reasons why there is nothing to ask are sentences for the
// user.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace trainhost::cuda {

struct Device {
  int index = 0;             // as the runtime counts them
  std::string name;          // "NVIDIA H200"
  int major = 0, minor = 0;  // compute capability
  std::uint64_t total_bytes = 0;
  std::array<unsigned char, 16> uuid{};  // of a slice where the device is one
  bool has_uuid = false;
  std::string pci;  // "0000:19:00.0"; "" when the driver does not say
};

/// The driver's version and the devices that are visible, at least one. Throws abi::StatusError
/// (unavailable): no driver, a driver that does not start or is older than `least_version`, no device. Makes
/// no context. Thread-safe.
std::vector<Device> visible_devices(int least_version, const char* least_branch);

}  // namespace trainhost::cuda
