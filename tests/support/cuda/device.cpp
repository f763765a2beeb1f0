// Properties of the emulated device, and kernel launches, with the limits that CUDA checks.
#include <cstring>

#include "emulation_state.hpp"
#include "symbols.hpp"
#include "thread_block.hpp"

using namespace emu;

namespace {
constexpr std::size_t kSharedBytes =
    48 * 1024;  // dynamic shared memory per block without cudaFuncSetAttribute
thread_local int current_device = 0;
}  // namespace

namespace emu {

cudaError_t launch_kernel(const cudaLaunchConfig_t& c, const void* kernel, std::function<void()> body) {
  return call("cudaLaunchKernelEx", [&](Lock& lock) {
    CUstream_st* s = stream_of(c.stream);
    if (!s) return cudaErrorInvalidResourceHandle;
    if (c.numAttrs != 0) return cudaErrorNotSupported;
    const std::uint64_t threads = std::uint64_t{c.blockDim.x} * c.blockDim.y * c.blockDim.z;
    const bool grid = c.gridDim.x > 0 && c.gridDim.x < 1u << 31 && c.gridDim.y > 0 && c.gridDim.y < 65536 &&
                      c.gridDim.z > 0 && c.gridDim.z < 65536;
    if (!grid || threads == 0 || threads > 1024 || c.blockDim.z > 64) return cudaErrorInvalidConfiguration;
    const auto asked = state().shared_limit.find(kernel);
    if (c.dynamicSmemBytes > (asked == state().shared_limit.end() ? kSharedBytes : asked->second))
      return cudaErrorInvalidValue;

    Kernel k{kernel_name(kernel), c.gridDim, c.blockDim, c.dynamicSmemBytes, std::move(body)};
    Item i{.work = Work::kKernel, .name = k.name};
    i.cost_us = state().costs.kernel_us + state().costs.kernel_us_per_thread * static_cast<double>(threads) *
                                              c.gridDim.x * c.gridDim.y * c.gridDim.z;
    i.run = [k = std::move(k)] {
      Schedule now = state().schedule;
      now.seed = state().random.next();
      run_kernel(k, now);
    };
    return enqueue(lock, *s, std::move(i));
  });
}

}  // namespace emu

extern "C" {

cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute attr, int value) {
  return call("cudaFuncSetAttribute", [&](Lock&) {
    if (!kernel) return cudaErrorInvalidDeviceFunction;
    if (attr != cudaFuncAttributeMaxDynamicSharedMemorySize) return cudaSuccess;
    if (value < 0 || value > state().machine.shared_bytes_optin) return cudaErrorInvalidValue;
    state().shared_limit[kernel] = static_cast<std::size_t>(value);
    return cudaSuccess;
  });
}

cudaError_t cudaGetDeviceCount(int* count) {
  return call("cudaGetDeviceCount", [&](Lock&) { return *count = state().machine.devices, cudaSuccess; });
}
cudaError_t cudaSetDevice(int device) {
  return call("cudaSetDevice", [&](Lock&) {
    if (device < 0 || device >= state().machine.devices) return cudaErrorInvalidDevice;
    current_device = device;
    return cudaSuccess;
  });
}
cudaError_t cudaGetDevice(int* device) {
  return call("cudaGetDevice", [&](Lock&) { return *device = current_device, cudaSuccess; });
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  return call("cudaRuntimeGetVersion",
              [&](Lock&) { return *version = state().machine.runtime_version, cudaSuccess; });
}
cudaError_t cudaDriverGetVersion(int* version) {
  return call("cudaDriverGetVersion",
              [&](Lock&) { return *version = state().machine.driver_version, cudaSuccess; });
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* to, int device) {
  return call("cudaGetDeviceProperties", [&](Lock&) {
    const Machine& m = state().machine;
    if (!to || device < 0 || device >= m.devices) return cudaErrorInvalidDevice;
    cudaDeviceProp p{};
    std::strncpy(p.name, m.name.c_str(), sizeof p.name - 1);
    p.totalGlobalMem = m.memory_bytes, p.sharedMemPerBlock = kSharedBytes, p.regsPerBlock = 65536,
    p.warpSize = 32;
    p.maxThreadsPerBlock = 1024, p.maxThreadsDim[0] = p.maxThreadsDim[1] = 1024, p.maxThreadsDim[2] = 64;
    p.maxGridSize[0] = 0x7fffffff, p.maxGridSize[1] = p.maxGridSize[2] = 65535;
    p.major = m.major, p.minor = m.minor, p.multiProcessorCount = m.multiprocessors;
    p.canMapHostMemory = p.concurrentKernels = p.unifiedAddressing = 1, p.asyncEngineCount = 3;
    p.pciBusID = device + 1, p.memoryBusWidth = 5120, p.l2CacheSize = 50 << 20,
    p.maxThreadsPerMultiProcessor = 2048;
    p.sharedMemPerBlockOptin = static_cast<std::size_t>(m.shared_bytes_optin);
    p.sharedMemPerMultiprocessor = p.sharedMemPerBlockOptin + 1024;
    *to = p;
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attr, int device) {
  return call("cudaDeviceGetAttribute", [&](Lock&) {
    const Machine& m = state().machine;
    if (!value) return cudaErrorInvalidValue;
    if (device < 0 || device >= m.devices) return cudaErrorInvalidDevice;
    switch (attr) {
      case cudaDevAttrMaxThreadsPerBlock:
        *value = 1024;
        break;
      case cudaDevAttrMaxSharedMemoryPerBlock:
        *value = kSharedBytes;
        break;
      case cudaDevAttrWarpSize:
        *value = 32;
        break;
      case cudaDevAttrClockRate:
        *value = 1'500'000;
        break;
      case cudaDevAttrMultiProcessorCount:
        *value = m.multiprocessors;
        break;
      case cudaDevAttrIntegrated:
        *value = 0;
        break;
      case cudaDevAttrPciBusId:
        *value = device + 1;
        break;
      case cudaDevAttrPciDeviceId:
        *value = 0;
        break;
      case cudaDevAttrMemoryClockRate:
        *value = 2'600'000;
        break;
      case cudaDevAttrGlobalMemoryBusWidth:
        *value = 5120;
        break;
      case cudaDevAttrL2CacheSize:
        *value = 50 << 20;
        break;
      case cudaDevAttrAsyncEngineCount:
        *value = 3;
        break;
      case cudaDevAttrPciDomainId:
        *value = 0;
        break;
      case cudaDevAttrComputeCapabilityMajor:
        *value = m.major;
        break;
      case cudaDevAttrComputeCapabilityMinor:
        *value = m.minor;
        break;
      case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
        *value = m.shared_bytes_optin + 1024;
        break;
      case cudaDevAttrMaxSharedMemoryPerBlockOptin:
        *value = m.shared_bytes_optin;
        break;
      default:
        return cudaErrorInvalidValue;
    }
    return cudaSuccess;
  });
}
}
