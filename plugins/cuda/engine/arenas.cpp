// Allocation of the arenas, with messages that state the missing bytes. Decides neither sizes nor offsets:
// those are the plan's (core/placement). Must run after start_up.cpp has loaded all code. See arenas.hpp.
#include "plugins/cuda/engine/arenas.hpp"

#include <algorithm>
#include <cassert>
#include <iterator>
#include <string>

#include "core/abi/error_guard.hpp"
#include "core/base/text.hpp"
#include "plugins/cuda/engine/cuda_errors.hpp"

namespace trainhost::cuda {
namespace {

constexpr const char* kTag = "arena";
// At most 159 characters fit into th_error.
constexpr const char* kHint =
    "set memory.budget below what is free, or plugin.cuda.mode = \"streamed\", or reduce train.micro_batch; "
    "nvidia-smi lists the processes on the device";
static_assert(std::char_traits<char>::length(kHint) < sizeof(th_error::hint));

}  // namespace

Arenas::Arenas(const th_host* host, const step::Program& program, const placement::MemoryPlan& plan)
    : host_(host), program_(program), plan_(plan) {
  assert(plan.offset.size() == program.buffers.size());
  // A multiple of every alignment, so that offsets added to it have the alignment of the later addresses; not
  // null, because kernels treat a null operand as absent.
  constexpr std::uintptr_t kNotAllocated = 1 << 20;
  std::fill(std::begin(base_), std::end(base_), reinterpret_cast<std::byte*>(kNotAllocated));
}

void Arenas::allocate() {
  // Device memory first: locking the pages of the pinned arena takes long and would be in vain if the device
  // lacks memory. If one of them throws, the destructor frees the others.
  allocate_device(plan_.of(Tier::kDevice).arena_bytes);
  allocate_pinned(plan_.of(Tier::kPinned).arena_bytes);
  allocate_host(plan_.of(Tier::kHost).arena_bytes);
}

Arenas::~Arenas() { free_all(); }

std::uint64_t Arenas::require_free_device_memory(const char* otherwise) const {
  const std::uint64_t bytes = plan_.of(Tier::kDevice).arena_bytes;
  std::size_t free = 0, total = 0;
  // Free is what all processes on the device leave, after this process has loaded its own code.
  check(cudaMemGetInfo(&free, &total), "querying the free device memory");
  const std::uint64_t missing = bytes > free ? bytes - free : 0;
  // With `otherwise` the sum of free memory suffices, but the driver has no block of this size.
  if (missing == 0 && !otherwise) return free;
  throw abi::StatusError(TH_E_DEVICE_OOM,
                         "the plan needs " + format_bytes(bytes) + " of device memory, but " +
                             format_bytes(free) + " of " + format_bytes(total) +
                             " are free beside the CUDA runtime and its kernels: " +
                             (missing ? format_bytes(missing) + " short" : otherwise),
                         kHint, missing);
}

void Arenas::allocate_device(std::uint64_t bytes) {
  assert(!allocated(Tier::kDevice));  // one allocation per tier and run
  if (bytes == 0) return;
  // Compared before the allocation, because the error of cudaMalloc() does not say how much is missing.
  require_free_device_memory();
  void* p = nullptr;
  const cudaError_t status = cudaMalloc(&p, bytes);
  if (status == cudaErrorMemoryAllocation) {
    ignore(cudaGetLastError());  // resets the error that a later cudaGetLastError() would return
    require_free_device_memory("no block is large enough");
  }
  check(status, "allocating " + format_bytes(bytes) + " of device memory");
  base(Tier::kDevice) = static_cast<std::byte*>(p), allocated(Tier::kDevice) = true;
  // The host counts these bytes in its ledger, which it compares with the plan (docs/memory-model.md).
  if (host_->took) host_->took(host_, static_cast<std::int64_t>(bytes), TH_TIER_DEVICE, kTag);
}

void Arenas::allocate_pinned(std::uint64_t bytes) {
  if (bytes == 0) return;
  void* p = nullptr;
  const cudaError_t status = cudaHostAlloc(&p, bytes, cudaHostAllocDefault);
  if (status == cudaErrorMemoryAllocation) {
    ignore(cudaGetLastError());
    throw abi::StatusError(
        TH_E_HOST_OOM, "cannot allocate " + format_bytes(bytes) + " of page-locked host memory",
        "free host memory; the driver locks the pages itself, so ulimit -l does not limit them", bytes);
  }
  check(status, "allocating " + format_bytes(bytes) + " of page-locked memory");
  base(Tier::kPinned) = static_cast<std::byte*>(p), allocated(Tier::kPinned) = true;
  if (host_->took) host_->took(host_, static_cast<std::int64_t>(bytes), TH_TIER_PINNED, kTag);
}

void Arenas::allocate_host(std::uint64_t bytes) {
  if (bytes == 0) return;
  // Pageable memory of the host operations. The host zeroes it and counts it in its ledger.
  void* p = host_->alloc(host_, bytes, program_.traits.alignment, TH_TIER_HOST, kTag);
  if (!p)
    throw abi::StatusError(
        TH_E_HOST_OOM, "cannot allocate " + format_bytes(bytes) + " of host memory for the run", "", bytes);
  base(Tier::kHost) = static_cast<std::byte*>(p), allocated(Tier::kHost) = true;
}

void Arenas::free_all() {
  // Reports freed bytes. Memory of host_->alloc() is not reported: the host counts it itself.
  const auto report_freed = [&](Tier t, std::uint32_t tier) {
    if (host_->took) host_->took(host_, -static_cast<std::int64_t>(plan_.of(t).arena_bytes), tier, kTag);
  };
  if (allocated(Tier::kDevice))
    ignore(cudaFree(base(Tier::kDevice))), report_freed(Tier::kDevice, TH_TIER_DEVICE);
  if (allocated(Tier::kPinned))
    ignore(cudaFreeHost(base(Tier::kPinned))), report_freed(Tier::kPinned, TH_TIER_PINNED);
  if (allocated(Tier::kHost)) host_->release(host_, base(Tier::kHost));
}

// The planner places the persistent buffers at the start of an arena; all memory above them is transient.
std::byte* Arenas::transient() const {
  std::uint64_t end = 0;
  for (step::BufferId b = 0; b < program_.buffers.size(); ++b) {
    const step::Buffer& x = program_.buffers[b];
    if (x.persistent && x.tier == Tier::kDevice && x.storage != step::Storage::kExternal)
      end = std::max(end, plan_.offset[b] + x.bytes());
  }
  // Rounded up to the alignment of planned buffers, which matrix products rely on.
  return base_[static_cast<std::size_t>(Tier::kDevice)] + (end + 255) / 256 * 256;
}

std::uint64_t Arenas::transient_bytes() const {
  const std::byte *begin = base_[static_cast<std::size_t>(Tier::kDevice)], *from = transient();
  const std::uint64_t arena = plan_.of(Tier::kDevice).arena_bytes,
                      used = static_cast<std::uint64_t>(from - begin);
  // Rounding up may pass the end of the arena.
  return arena > used ? arena - used : 0;
}

}  // namespace trainhost::cuda
