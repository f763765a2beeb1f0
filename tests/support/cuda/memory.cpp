// Device memory and pinned host memory: ordinary memory that is counted, limited, and filled with NaN bytes
// when it is allocated. Copies are checked when they are queued, and again when they run.
#include <malloc.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "emulation_state.hpp"

using namespace emu;

namespace emu {
namespace {

constexpr std::size_t kAlignment = 512;

bool inside(const std::map<std::uintptr_t, Block>& blocks, const void* p, std::uint64_t bytes) {
  const auto at = reinterpret_cast<std::uintptr_t>(p);
  auto it = blocks.upper_bound(at);
  if (it == blocks.begin()) return false;
  --it;
  return at - it->first <= it->second.bytes && bytes <= it->second.bytes - (at - it->first);
}
/// True if p is inside any allocation.
bool is_in_any(const std::map<std::uintptr_t, Block>& blocks, const void* p) {
  const auto at = reinterpret_cast<std::uintptr_t>(p);
  auto it = blocks.upper_bound(at);
  return it != blocks.begin() && at - (--it)->first < it->second.bytes;
}

void* allocate(std::uint64_t bytes) {
  // Tests allocate and free tens of megabytes thousands of times. These options keep the pages in the heap
  // instead of returning them to the operating system.
  static const bool pages_kept = mallopt(M_MMAP_MAX, 0) && mallopt(M_TRIM_THRESHOLD, 1 << 30);
  static_cast<void>(pages_kept);
  void* p = std::aligned_alloc(kAlignment, (bytes + kAlignment - 1) / kAlignment * kAlignment);
  if (!p) return p;
  // Small models are in the first and last megabytes. Between them is the workspace of cuBLAS: a sample of each
  // page, because filling it takes longer than the steps of a test.
  constexpr std::size_t kWhole = 4 << 20, kPage = 4096, kSample = 64;
  // NaN; tiny positive numbers, finite in every format, where kernels do not write their results.
  const int initial = state().machine.only_kernel.empty() ? 0xff : 0x01;
  std::memset(p, initial, std::min<std::size_t>(bytes, kWhole));
  for (std::size_t at = kWhole; at + kSample <= bytes; at += kPage)
    std::memset(static_cast<std::byte*>(p) + at, initial, kSample);
  const std::size_t end = std::min<std::size_t>(bytes, 1 << 20);
  std::memset(static_cast<std::byte*>(p) + bytes - end, initial, end);
  return p;
}

std::uint64_t free_bytes() {
  const Machine& m = state().machine;
  const std::uint64_t used = state().device_allocated + m.used_by_others_bytes;
  return m.memory_bytes > used ? m.memory_bytes - used : 0;
}

// Checked when a copy or set runs: its memory may have been freed since it was queued.
void require_allocated(bool allocated, const char* what) {
  if (!allocated) throw std::runtime_error(std::string(what) + " of device memory that has been freed");
}

}  // namespace

bool on_device(const void* p, std::uint64_t bytes) { return inside(state().device, p, bytes); }
bool is_pinned(const void* p, std::uint64_t bytes) { return inside(state().pinned, p, bytes); }

bool take_device_memory(std::uint64_t bytes) {
  const std::uint64_t unit = state().machine.allocation_unit_bytes,
                      allocated = (bytes + unit - 1) / unit * unit;
  if (allocated > free_bytes()) return false;
  state().device_allocated += allocated;
  return true;
}
cudaError_t load_code(std::uint64_t key, std::uint64_t bytes) {
  if (bytes == 0 || state().loaded.contains(key)) return cudaSuccess;
  if (invalidates_capture()) return cudaErrorStreamCaptureUnsupported;
  if (!take_device_memory(bytes)) return cudaErrorMemoryAllocation;
  state().loaded.insert(key);
  return cudaSuccess;
}

void free_all_memory() {
  State& s = state();
  s.loaded.clear();
  for (auto* blocks : {&s.device, &s.pinned}) {
    for (auto& [at, block] : *blocks) std::free(reinterpret_cast<void*>(at));
    blocks->clear();
  }
  s.device_allocated = s.device_bytes = s.pinned_bytes = s.device_peak = s.pinned_peak = 0;
}

}  // namespace emu

extern "C" {

cudaError_t cudaMalloc(void** to, size_t size) {
  return call("cudaMalloc", [&](Lock&) {
    State& s = state();
    if (!to) return cudaErrorInvalidValue;
    *to = nullptr;
    if (invalidates_capture()) return cudaErrorStreamCaptureUnsupported;
    if (size == 0) return cudaSuccess;
    const std::uint64_t unit = s.machine.allocation_unit_bytes;
    if (size > free_bytes()) return cudaErrorMemoryAllocation;
    const std::uint64_t allocated = (size + unit - 1) / unit * unit;
    if (allocated > free_bytes() || !(*to = allocate(size))) return cudaErrorMemoryAllocation;
    s.device.emplace(reinterpret_cast<std::uintptr_t>(*to), Block{size, allocated});
    s.device_allocated += allocated, s.device_bytes += size;
    s.device_peak = std::max(s.device_peak, s.device_bytes);
    return cudaSuccess;
  });
}

// Waits for all queued work, as the CUDA driver does.
cudaError_t cudaFree(void* p) {
  return call(
      "cudaFree",
      [&](Lock& lock) {
        if (!p) return cudaSuccess;
        State& s = state();
        if (invalidates_capture()) return cudaErrorStreamCaptureUnsupported;
        const auto it = s.device.find(reinterpret_cast<std::uintptr_t>(p));
        if (it == s.device.end()) return cudaErrorInvalidValue;
        const cudaError_t e = drive(lock, nullptr, all_idle);
        s.device_allocated -= it->second.allocated_bytes, s.device_bytes -= it->second.bytes;
        s.device.erase(it);
        std::free(p);
        return e;
      },
      IfFailing::kFreeAnyway);
}

cudaError_t cudaHostAlloc(void** to, size_t size, unsigned flags) {
  return call("cudaHostAlloc", [&](Lock&) {
    State& s = state();
    if (!to || flags > (cudaHostAllocPortable | cudaHostAllocMapped | cudaHostAllocWriteCombined))
      return cudaErrorInvalidValue;
    *to = nullptr;
    if (invalidates_capture()) return cudaErrorStreamCaptureUnsupported;
    if (size == 0) return cudaSuccess;
    if (size > s.machine.pinned_bytes - std::min(s.machine.pinned_bytes, s.pinned_bytes) ||
        !(*to = allocate(size)))
      return cudaErrorMemoryAllocation;
    s.pinned.emplace(reinterpret_cast<std::uintptr_t>(*to), Block{size, size});
    s.pinned_bytes += size;
    s.pinned_peak = std::max(s.pinned_peak, s.pinned_bytes);
    return cudaSuccess;
  });
}

cudaError_t cudaFreeHost(void* p) {
  return call(
      "cudaFreeHost",
      [&](Lock& lock) {
        if (!p) return cudaSuccess;
        State& s = state();
        const auto it = s.pinned.find(reinterpret_cast<std::uintptr_t>(p));
        if (it == s.pinned.end()) return cudaErrorInvalidValue;
        const cudaError_t e = drive(lock, nullptr, all_idle);
        s.pinned_bytes -= it->second.bytes;
        s.pinned.erase(it);
        std::free(p);
        return e;
      },
      IfFailing::kFreeAnyway);
}

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  return call("cudaMemGetInfo", [&](Lock&) {
    if (!free || !total) return cudaErrorInvalidValue;
    *free = free_bytes(), *total = state().machine.memory_bytes;
    return cudaSuccess;
  });
}

cudaError_t cudaMemcpyAsync(void* dst, const void* src, size_t count, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  return call("cudaMemcpyAsync", [&](Lock& lock) {
    CUstream_st* s = stream_of(stream);
    if (!s) return cudaErrorInvalidResourceHandle;
    if (kind < cudaMemcpyHostToHost || kind > cudaMemcpyDefault) return cudaErrorInvalidMemcpyDirection;
    if (count == 0) return cudaSuccess;
    if (!dst || !src) return cudaErrorInvalidValue;
    const bool from_device = is_in_any(state().device, src), to_device = is_in_any(state().device, dst);
    if (kind == cudaMemcpyDefault) kind = static_cast<cudaMemcpyKind>(2 * from_device + to_device);
    if (from_device != (kind >= cudaMemcpyDeviceToHost) || to_device != (kind % 2 == 1))
      return cudaErrorInvalidValue;
    if ((from_device && !on_device(src, count)) || (to_device && !on_device(dst, count)))
      return cudaErrorInvalidValue;
    static const char* names[] = {"h2h", "h2d", "d2h", "d2d"};
    const Costs& c = state().costs;
    Item i{.work = Work::kCopy, .name = names[kind], .bytes = count};
    i.cost_us = static_cast<double>(count) /
                (kind == cudaMemcpyDeviceToDevice ? c.device_bytes_per_us : c.copy_bytes_per_us);
    i.pageable = (!from_device && !is_pinned(src, count)) || (!to_device && !is_pinned(dst, count));
    i.run = [=] {
      require_allocated(!from_device || on_device(src, count), "a copy");
      require_allocated(!to_device || on_device(dst, count), "a copy");
      std::memmove(dst, src, count);
    };
    return enqueue(lock, *s, std::move(i));
  });
}

cudaError_t cudaMemsetAsync(void* p, int value, size_t count, cudaStream_t stream) {
  return call("cudaMemsetAsync", [&](Lock& lock) {
    CUstream_st* s = stream_of(stream);
    if (!s) return cudaErrorInvalidResourceHandle;
    if (count == 0) return cudaSuccess;
    if (!on_device(p, count)) return cudaErrorInvalidValue;
    Item i{.work = Work::kSet, .name = "cudaMemsetAsync", .bytes = count};
    i.cost_us = static_cast<double>(count) / state().costs.device_bytes_per_us;
    i.run = [=] {
      require_allocated(on_device(p, count), "a set");
      std::memset(p, value, count);
    };
    return enqueue(lock, *s, std::move(i));
  });
}
}
