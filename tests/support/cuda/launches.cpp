// Kernel launches and attributes of kernels, with the limits that CUDA checks: threads and blocks of a
// launch, shared memory of a block with and without cudaFuncSetAttribute(), and registers of a block. The
// errors are those of the runtime.
#include <array>

#include "emulation_state.hpp"
#include "symbols.hpp"
#include "thread_block.hpp"

namespace emu {
namespace {

constexpr std::uint64_t kBlockRegisters = 65536, kWarpThreads = 32;
constexpr std::uint64_t kRegisterUnit = 256;  // a warp's registers are allocated in multiples of this

/// Compute capability and its opt-in limit of shared memory per block, in KiB. The order is that of
/// KernelResources::registers.
struct Architecture {
  int major, minor;
  std::size_t shared_kib;
};
constexpr std::array<Architecture, 6> kArchitectures = {
    {{8, 0, 163}, {8, 6, 99}, {8, 9, 99}, {9, 0, 227}, {10, 0, 227}, {12, 0, 99}}};

std::size_t architecture_of(const Machine& m) {
  for (std::size_t i = 0; i < kArchitectures.size(); ++i)
    if (kArchitectures[i].major == m.major && kArchitectures[i].minor == m.minor) return i;
  throw std::logic_error("the emulation has no limits of compute capability " + std::to_string(m.major) +
                         "." + std::to_string(m.minor));
}

std::map<std::string, KernelResources, std::less<>>& listed() {
  static auto& all = *new std::map<std::string, KernelResources, std::less<>>;
  return all;
}

struct Limits {
  std::size_t shared_bytes;  // static
  unsigned max_threads;      // 0: not known
  unsigned registers;        // 0: not known
  bool has_code = true;      // for the device
};
Limits limits_of(const void* kernel) {
  const auto it = listed().find(kernel_signature(kernel));
  if (it == listed().end()) return {declared_shared_bytes(kernel), 0, 0};
  const KernelResources& r = it->second;
  const unsigned registers = r.registers[architecture_of(state().machine)];
  return {r.shared_bytes, r.max_threads, registers, registers != 0};
}

/// Bytes of dynamic shared memory that a launch of the kernel may have now.
std::size_t dynamic_limit(const void* kernel, const Limits& l) {
  const auto asked = state().shared_limit.find(kernel);
  return asked == state().shared_limit.end() ? kDefaultSharedBytes - l.shared_bytes : asked->second;
}

cudaError_t load_kernel(const void* kernel) {
  return load_code(reinterpret_cast<std::uintptr_t>(kernel), state().machine.kernel_bytes);
}

bool registers_suffice(const Limits& l, std::uint64_t threads) {
  const std::uint64_t warps = (threads + kWarpThreads - 1) / kWarpThreads,
                      of_warp =
                          (l.registers * kWarpThreads + kRegisterUnit - 1) / kRegisterUnit * kRegisterUnit;
  return warps * of_warp <= kBlockRegisters;
}

}  // namespace

std::size_t shared_optin_bytes(const Machine& m) {
  return kArchitectures[architecture_of(m)].shared_kib * 1024;
}

void set_kernel_resources(std::span<const KernelResources> all) {
  for (const KernelResources& r : all) listed().insert_or_assign(r.kernel, r);
}

cudaError_t launch_kernel(const cudaLaunchConfig_t& c, const void* kernel, std::function<void()> body) {
  return call("cudaLaunchKernelEx", [&](Lock& lock) {
    CUstream_st* s = stream_of(c.stream);
    if (!s) return cudaErrorInvalidResourceHandle;
    if (c.numAttrs != 0) return cudaErrorNotSupported;
    const std::uint64_t threads = std::uint64_t{c.blockDim.x} * c.blockDim.y * c.blockDim.z;
    const bool grid = c.gridDim.x > 0 && c.gridDim.x < 1u << 31 && c.gridDim.y > 0 && c.gridDim.y < 65536 &&
                      c.gridDim.z > 0 && c.gridDim.z < 65536;
    if (!grid || threads == 0 || threads > 1024 || c.blockDim.z > 64) return cudaErrorInvalidConfiguration;
    const Limits l = limits_of(kernel);
    if (!l.has_code) return cudaErrorNoKernelImageForDevice;
    if (const cudaError_t e = load_kernel(kernel); e != cudaSuccess) return e;
    if (c.dynamicSmemBytes > dynamic_limit(kernel, l) ||
        c.dynamicSmemBytes + l.shared_bytes > shared_optin_bytes(state().machine))
      return cudaErrorInvalidValue;
    if ((l.max_threads != 0 && threads > l.max_threads) || !registers_suffice(l, threads))
      return cudaErrorLaunchOutOfResources;

    Kernel k{kernel_name(kernel), c.gridDim, c.blockDim, c.dynamicSmemBytes, l.shared_bytes, std::move(body)};
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

using namespace emu;

extern "C" {

cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute attr, int value) {
  return call("cudaFuncSetAttribute", [&](Lock&) {
    if (!kernel) return cudaErrorInvalidDeviceFunction;
    if (attr != cudaFuncAttributeMaxDynamicSharedMemorySize) return cudaSuccess;
    const std::size_t most = shared_optin_bytes(state().machine) - limits_of(kernel).shared_bytes;
    if (value < 0 || static_cast<std::size_t>(value) > most) return cudaErrorInvalidValue;
    state().shared_limit[kernel] = static_cast<std::size_t>(value);
    return cudaSuccess;
  });
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* to, const void* kernel) {
  return call("cudaFuncGetAttributes", [&](Lock&) {
    if (!to) return cudaErrorInvalidValue;
    if (!kernel) return cudaErrorInvalidDeviceFunction;
    const Limits l = limits_of(kernel);
    if (!l.has_code) return cudaErrorNoKernelImageForDevice;
    if (const cudaError_t e = load_kernel(kernel); e != cudaSuccess) return e;
    *to = {};
    to->sharedSizeBytes = l.shared_bytes;
    to->maxThreadsPerBlock = l.max_threads == 0 ? 1024 : static_cast<int>(l.max_threads);
    to->numRegs = static_cast<int>(l.registers);
    to->maxDynamicSharedSizeBytes = static_cast<int>(dynamic_limit(kernel, l));
    return cudaSuccess;
  });
}
}
