// Allocation of the arenas, with messages that state the missing bytes. See arenas.hpp.
#include "plugins/cuda/engine/arenas.hpp"

#include <algorithm>

#include "core/abi/error_guard.hpp"
#include "core/base/text.hpp"
#include "plugins/cuda/engine/cuda_errors.hpp"

namespace trainhost::cuda {
namespace {

constexpr const char* kTag = "arena";
constexpr const char* kHint =
    "reduce train.micro_batch, or set train.recompute = \"auto\" or plugin.cuda.mode = \"streamed\"";

}  // namespace

Arenas::Arenas(const th_host* host, const step::Program& program, const placement::MemoryPlan& plan)
    : host_(host), program_(program), plan_(plan) {
  try {
    allocate_device(plan.of(Tier::kDevice).arena_bytes);
    allocate_pinned(plan.of(Tier::kPinned).arena_bytes);
    allocate_host(plan.of(Tier::kHost).arena_bytes);
  } catch (...) {  // the destructor does not run for an object whose constructor threw
    free_all();
    throw;
  }
}

Arenas::~Arenas() { free_all(); }

void Arenas::allocate_device(std::uint64_t bytes) {
  if (bytes == 0) return;
  void* p = nullptr;
  const cudaError_t status = cudaMalloc(&p, bytes);
  if (status == cudaErrorMemoryAllocation) {
    ignore(cudaGetLastError());  // resets the error that a later cudaGetLastError() would return
    std::size_t free = 0, total = 0;
    check(cudaMemGetInfo(&free, &total), "querying the free device memory");
    const std::uint64_t missing = bytes > free ? bytes - free : 0;  // 0: enough bytes, but fragmented
    throw abi::StatusError(TH_E_DEVICE_OOM,
                           "the run needs " + format_bytes(bytes) + " of device memory, but " +
                               format_bytes(free) + " of " + format_bytes(total) +
                               " are free: " + (missing ? format_bytes(missing) + " short" : "fragmented"),
                           kHint, missing);
  }
  check(status, "allocating " + format_bytes(bytes) + " of device memory");
  base(Tier::kDevice) = static_cast<std::byte*>(p);
  if (host_->took) host_->took(host_, static_cast<std::int64_t>(bytes), TH_TIER_DEVICE, kTag);
}

void Arenas::allocate_pinned(std::uint64_t bytes) {
  if (bytes == 0) return;
  void* p = nullptr;
  const cudaError_t status = cudaHostAlloc(&p, bytes, cudaHostAllocDefault);
  if (status == cudaErrorMemoryAllocation) {
    ignore(cudaGetLastError());
    throw abi::StatusError(TH_E_HOST_OOM,
                           "cannot allocate " + format_bytes(bytes) + " of page-locked host memory",
                           "free host memory, or raise the limit of locked memory (ulimit -l)", bytes);
  }
  check(status, "allocating " + format_bytes(bytes) + " of page-locked memory");
  base(Tier::kPinned) = static_cast<std::byte*>(p);
  if (host_->took) host_->took(host_, static_cast<std::int64_t>(bytes), TH_TIER_PINNED, kTag);
}

void Arenas::allocate_host(std::uint64_t bytes) {
  if (bytes == 0) return;
  base(Tier::kHost) =
      static_cast<std::byte*>(host_->alloc(host_, bytes, program_.traits.alignment, TH_TIER_HOST, kTag));
  if (!base(Tier::kHost))
    throw abi::StatusError(
        TH_E_HOST_OOM, "cannot allocate " + format_bytes(bytes) + " of host memory for the run", "", bytes);
}

void Arenas::free_all() {
  // Reports freed bytes. Memory of host_->alloc() is not reported: the host counts it itself.
  const auto report_freed = [&](Tier t, std::uint32_t tier) {
    base(t) = nullptr;
    if (host_->took) host_->took(host_, -static_cast<std::int64_t>(plan_.of(t).arena_bytes), tier, kTag);
  };
  if (std::byte* p = base(Tier::kDevice)) ignore(cudaFree(p)), report_freed(Tier::kDevice, TH_TIER_DEVICE);
  if (std::byte* p = base(Tier::kPinned))
    ignore(cudaFreeHost(p)), report_freed(Tier::kPinned, TH_TIER_PINNED);
  if (std::byte* p = base(Tier::kHost)) host_->release(host_, p), base(Tier::kHost) = nullptr;
}

// The planner places the persistent buffers at the start of an arena; all memory above them is transient.
std::byte* Arenas::transient() const {
  std::uint64_t end = 0;
  for (step::BufferId b = 0; b < program_.buffers.size(); ++b) {
    const step::Buffer& x = program_.buffers[b];
    if (x.persistent && x.tier == Tier::kDevice && x.storage != step::Storage::kExternal)
      end = std::max(end, plan_.offset[b] + x.bytes());
  }
  return base_[static_cast<std::size_t>(Tier::kDevice)] + (end + 255) / 256 * 256;
}

std::uint64_t Arenas::transient_bytes() const {
  const std::byte *begin = base_[static_cast<std::size_t>(Tier::kDevice)], *from = transient();
  const std::uint64_t arena = plan_.of(Tier::kDevice).arena_bytes,
                      used = static_cast<std::uint64_t>(from - begin);
  return arena > used ? arena - used : 0;
}

}  // namespace trainhost::cuda
