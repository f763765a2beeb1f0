// Which device a run would take, and whether this trainer can use it: what the driver says held against
// common/device_requirements.hpp and against the architectures that the engine was built for.
#pragma once
#include <string_view>

#include "plugins/cuda/front/cuda_driver.hpp"

namespace trainhost::cuda {

/// Of this build: "80-real,90-real,100-virtual" (TRAINHOST_CUDA_ARCHITECTURES, with commas) and the toolkit's
/// major version.
struct EngineBuild {
  std::string_view architectures;
  int toolkit_major;
};

/// The visible device of that index. Throws abi::StatusError: unavailable with the driver's reason,
/// argument when there is no device of that index (it names those there are).
Device device_of(int index, const EngineBuild& build, std::size_t* count = nullptr);

/// Throws abi::StatusError (unavailable): compute capability too low, no code for it in the engine, memory
/// full.
void require_usable(const Device& device, const EngineBuild& build);

/// Free now; the whole memory where nobody can say.
std::uint64_t free_bytes_of(const Device& device);

/// Has an engine of these architectures code for that compute capability? "90" and "90-real": devices of the
/// same major version and at least that minor; "90" and "90-virtual": compiled by the driver for any later
/// one; "90a": that one alone.
bool has_code_for(std::string_view architectures, int major, int minor);

}  // namespace trainhost::cuda
