// See arenas.hpp.
#include "plugins/cuda/engine/arenas.hpp"

#include <algorithm>

#include "core/abi/error_guard.hpp"
#include "core/base/text.hpp"
#include "plugins/cuda/engine/cuda_errors.hpp"

namespace trainhost::cuda {
namespace {

constexpr const char* kTag = "arena";
constexpr const char* kHint =
    "a smaller train.micro_batch, train.recompute = \"auto\", or [plugin.cuda] mode = \"streamed\"";

}  // namespace

Arenas::Arenas(const th_host* host, const step::Program& program, const placement::MemoryPlan& plan)
    : host_(host), program_(program), plan_(plan) {
  try {
    take_device(plan.of(Tier::kDevice).arena_bytes);
    take_pinned(plan.of(Tier::kPinned).arena_bytes);
    take_host(plan.of(Tier::kHost).arena_bytes);
  } catch (...) {
    give_back();
    throw;
  }
}

Arenas::~Arenas() { give_back(); }

void Arenas::take_device(std::uint64_t bytes) {
  if (bytes == 0) return;
  void* p = nullptr;
  const cudaError_t status = cudaMalloc(&p, bytes);
  if (status == cudaErrorMemoryAllocation) {
    ignore(cudaGetLastError());
    std::size_t free = 0, total = 0;
    check(cudaMemGetInfo(&free, &total), "asking for the device's free memory");
    const std::uint64_t missing = bytes > free ? bytes - free : 0;
    throw abi::StatusError(TH_E_DEVICE_OOM,
                           "the run needs " + format_bytes(bytes) + " of device memory, " +
                               format_bytes(free) + " of " + format_bytes(total) + " are free: " +
                               (missing ? format_bytes(missing) + " are missing" : "not in one piece"),
                           kHint, missing);
  }
  check(status, "taking " + format_bytes(bytes) + " of device memory");
  base(Tier::kDevice) = static_cast<std::byte*>(p);
  if (host_->took) host_->took(host_, static_cast<std::int64_t>(bytes), TH_TIER_DEVICE, kTag);
}

void Arenas::take_pinned(std::uint64_t bytes) {
  if (bytes == 0) return;
  void* p = nullptr;
  const cudaError_t status = cudaHostAlloc(&p, bytes, cudaHostAllocDefault);
  if (status == cudaErrorMemoryAllocation) {
    ignore(cudaGetLastError());
    throw abi::StatusError(TH_E_HOST_OOM, "no " + format_bytes(bytes) + " of page-locked host memory",
                           "more free memory, or a higher limit of locked memory (ulimit -l)", bytes);
  }
  check(status, "taking " + format_bytes(bytes) + " of page-locked memory");
  base(Tier::kPinned) = static_cast<std::byte*>(p);
  if (host_->took) host_->took(host_, static_cast<std::int64_t>(bytes), TH_TIER_PINNED, kTag);
}

void Arenas::take_host(std::uint64_t bytes) {
  if (bytes == 0) return;
  base(Tier::kHost) =
      static_cast<std::byte*>(host_->alloc(host_, bytes, program_.traits.alignment, TH_TIER_HOST, kTag));
  if (!base(Tier::kHost))
    throw abi::StatusError(
        TH_E_HOST_OOM, "no " + format_bytes(bytes) + " of host memory for the state of the run", "", bytes);
}

void Arenas::give_back() {
  const auto gone = [&](Tier t, std::uint32_t tier) {
    base(t) = nullptr;
    if (host_->took) host_->took(host_, -static_cast<std::int64_t>(plan_.of(t).arena_bytes), tier, kTag);
  };
  if (std::byte* p = base(Tier::kDevice)) ignore(cudaFree(p)), gone(Tier::kDevice, TH_TIER_DEVICE);
  if (std::byte* p = base(Tier::kPinned)) ignore(cudaFreeHost(p)), gone(Tier::kPinned, TH_TIER_PINNED);
  if (std::byte* p = base(Tier::kHost)) host_->release(host_, p), base(Tier::kHost) = nullptr;
}

// Persistent buffers lie at the bottom of an arena, side by side.
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
