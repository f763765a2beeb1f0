// Properties of the emulated device. Kernel launches and their limits: launches.cpp.
#include <cstring>

#include "emulation_state.hpp"

using namespace emu;

namespace {
thread_local int t_device = 0;
}  // namespace

int emu::current_device() { return t_device; }

extern "C" {

cudaError_t cudaGetDeviceCount(int* count) {
  return call("cudaGetDeviceCount", [&](Lock&) { return *count = state().machine.devices, cudaSuccess; });
}
cudaError_t cudaSetDevice(int device) {
  return call("cudaSetDevice", [&](Lock&) {
    if (device < 0 || device >= state().machine.devices) return cudaErrorInvalidDevice;
    t_device = device;
    return cudaSuccess;
  });
}
cudaError_t cudaSetDeviceFlags(unsigned flags) {
  return call("cudaSetDeviceFlags", [&](Lock&) {
    if (flags != cudaDeviceScheduleAuto && flags != cudaDeviceScheduleSpin &&
        flags != cudaDeviceScheduleYield && flags != cudaDeviceScheduleBlockingSync)
      return cudaErrorInvalidValue;
    state().device_flags = flags;
    return cudaSuccess;
  });
}
cudaError_t cudaGetDeviceFlags(unsigned* flags) {
  return call("cudaGetDeviceFlags", [&](Lock&) { return *flags = state().device_flags, cudaSuccess; });
}
cudaError_t cudaGetDevice(int* device) {
  return call("cudaGetDevice", [&](Lock&) { return *device = t_device, cudaSuccess; });
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
    p.uuid.bytes[0] = static_cast<char>(device + 1);
    p.totalGlobalMem = m.memory_bytes, p.sharedMemPerBlock = kDefaultSharedBytes, p.regsPerBlock = 65536,
    p.warpSize = 32;
    p.maxThreadsPerBlock = 1024, p.maxThreadsDim[0] = p.maxThreadsDim[1] = 1024, p.maxThreadsDim[2] = 64;
    p.maxGridSize[0] = 0x7fffffff, p.maxGridSize[1] = p.maxGridSize[2] = 65535;
    p.major = m.major, p.minor = m.minor, p.multiProcessorCount = m.multiprocessors;
    p.canMapHostMemory = p.concurrentKernels = p.unifiedAddressing = 1, p.asyncEngineCount = 3;
    p.pciBusID = device + 1, p.memoryBusWidth = 5120, p.l2CacheSize = 50 << 20,
    p.maxThreadsPerMultiProcessor = 2048;
    p.sharedMemPerBlockOptin = shared_optin_bytes(m);
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
        *value = static_cast<int>(kDefaultSharedBytes);
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
        *value = static_cast<int>(shared_optin_bytes(m)) + 1024;
        break;
      case cudaDevAttrMaxSharedMemoryPerBlockOptin:
        *value = static_cast<int>(shared_optin_bytes(m));
        break;
      default:
        return cudaErrorInvalidValue;
    }
    return cudaSuccess;
  });
}
}
