// See device.hpp.
#include "plugins/nccl/device.hpp"

#include <algorithm>

#include "core/abi/error_guard.hpp"
#include "plugins/cuda/front_end/vendor_library.hpp"

namespace trainhost::nccl {
namespace {

using Result = int;                   // CUresult
constexpr Result kNotReady = 600;     // CUDA_ERROR_NOT_READY
constexpr unsigned kNonBlocking = 1;  // CU_STREAM_NON_BLOCKING: does not wait for the default stream
constexpr std::size_t kUuid = sizeof(cuda::Device::uuid);

cuda::VendorLibrary g_driver("libcuda.so.1", "TRAINHOST_CUDA_DRIVER");

std::string text_of(Result code) {
  const char* text = nullptr;
  if (auto f = g_driver.find<Result (*)(Result, const char**)>("cuGetErrorString")) f(code, &text);
  return text ? text : "error " + std::to_string(code);
}

void check(Result code, const char* call) {
  if (code != 0)
    throw abi::StatusError(TH_E_UNAVAILABLE,
                           std::string(call) + " of the NVIDIA driver failed: " + text_of(code))
        .of("cuda", code);
}

/// Calls a function of the driver, whose arguments have exactly these types.
template <class... A>
Result call(const char* name, A... arguments) {
  if (auto f = g_driver.find<Result (*)(A...)>(name)) return f(arguments...);
  throw abi::StatusError(TH_E_UNAVAILABLE, g_driver.name() + " does not export " + name,
                         "update the NVIDIA driver");
}

}  // namespace

Device::Device(std::uint32_t local_rank) {
  const cuda::Driver driver = cuda::query_driver();  // why there is none, in full
  device_ = driver.devices[local_rank % driver.devices.size()];
  std::string why;
  if (!g_driver.open(why)) throw abi::StatusError(TH_E_UNAVAILABLE, "no NVIDIA driver found: " + why);
  check(call("cuDeviceGet", &handle_, device_.index), "cuDeviceGet");
  check(call("cuDevicePrimaryCtxRetain", &context_, handle_), "cuDevicePrimaryCtxRetain");
  const Current current(*this);
  check(call("cuStreamCreate", &stream_, kNonBlocking), "cuStreamCreate");
}

Device::~Device() {
  try {
    {
      const Current current(*this);
      if (memory_) call("cuMemFree_v2", memory_);
      if (host_) call("cuMemFreeHost", host_);
      if (stream_) call("cuStreamDestroy_v2", stream_);
    }
    call("cuDevicePrimaryCtxRelease_v2", handle_);
  } catch (const std::exception&) {  // the device is lost
  }
}

std::string Device::uuid() const {
  if (!device_.has_uuid) return "";
  constexpr char kDigits[] = "0123456789abcdef";
  std::string out;
  for (std::size_t i = 0; i < kUuid; ++i)
    out += {kDigits[device_.uuid[i] >> 4], kDigits[device_.uuid[i] & 15]};
  return out;
}

void Device::allocate(std::size_t bytes) {
  const Current current(*this);
  check(call("cuMemAlloc_v2", &memory_, bytes), "cuMemAlloc");
  check(call("cuMemAllocHost_v2", &host_, bytes), "cuMemAllocHost");
}

void Device::copy_to_device(std::size_t offset, std::size_t bytes) {
  check(call("cuMemcpyHtoDAsync_v2", memory_ + offset, static_cast<const void*>(host_memory() + offset),
             bytes, stream_),
        "cuMemcpyHtoDAsync");
}

void Device::copy_to_host(std::size_t offset, std::size_t bytes) {
  check(call("cuMemcpyDtoHAsync_v2", static_cast<void*>(host_memory() + offset), memory_ + offset, bytes,
             stream_),
        "cuMemcpyDtoHAsync");
}

bool Device::is_idle() {
  const Result r = call("cuStreamQuery", stream_);
  if (r != kNotReady) check(r, "cuStreamQuery");
  return r != kNotReady;
}

Device::Current::Current(const Device& d) {
  check(call("cuCtxPushCurrent_v2", d.context_), "cuCtxPushCurrent");
}
Device::Current::~Current() {
  void* old = nullptr;
  g_driver.find<Result (*)(void**)>("cuCtxPopCurrent_v2")(&old);
}

}  // namespace trainhost::nccl
