// All memory of a run: one allocation per memory tier, of exactly the planned size. Device and page-locked
// memory come from the CUDA runtime and are reported to the host with took(); pageable memory comes from the
// host's allocator. Nothing is allocated after allocate(). Offsets: core/placement/memory_plan.hpp.
#pragma once
#include <cassert>
#include <cstddef>
#include <cstdint>

#include "core/placement/memory_plan.hpp"
#include "trainhost/host.h"

namespace trainhost::cuda {

class Arenas {
 public:
  /// All arguments must outlive it. Until allocate(), addresses are not valid, but they have the alignment of
  /// the later ones and are not null, so the kernels of a run can be selected by them.
  Arenas(const th_host* host, const step::Program& program, const placement::MemoryPlan& plan);
  ~Arenas();
  Arenas(const Arenas&) = delete;

  /// Returns the free device memory. Throws abi::StatusError (TH_E_DEVICE_OOM) with the missing bytes if the
  /// plan needs more, or if `otherwise` says why the memory cannot be used.
  std::uint64_t require_free_device_memory(const char* otherwise = nullptr) const;
  /// Allocates all tiers; the device must be current. Compares the plan with the memory that is free now:
  /// what the CUDA runtime and loaded code take must have been taken before. Throws abi::StatusError:
  /// TH_E_DEVICE_OOM or TH_E_HOST_OOM with the number of missing bytes.
  void allocate();

  /// Address of a buffer, in the memory of its tier. instance: of a ring buffer (Buffer::ring), which has one
  /// per micro-batch in flight; ignored for other buffers.
  void* at(step::BufferId b, std::uint32_t instance = 0) const {
    const step::Buffer& x = program_.buffers[b];
    assert(x.ring <= 1 || instance < x.ring);
    return base_[static_cast<std::size_t>(x.tier)] + plan_.offset[b] +
           (x.ring > 1 ? instance : 0) * x.instance_stride();
  }
  /// The same as a typed pointer; null for kNoBuffer.
  template <class T>
  T* get(step::BufferId b, std::uint32_t instance = 0) const {
    return b == step::kNoBuffer ? nullptr : static_cast<T*>(at(b, instance));
  }
  /// Device memory above the persistent buffers. Between steps it has no contents that are needed later.
  std::byte* transient() const;
  std::uint64_t transient_bytes() const;

 private:
  void allocate_device(std::uint64_t bytes);
  void allocate_pinned(std::uint64_t bytes);
  void allocate_host(std::uint64_t bytes);
  void free_all();
  std::byte*& base(Tier t) { return base_[static_cast<std::size_t>(t)]; }
  bool& allocated(Tier t) { return allocated_[static_cast<std::size_t>(t)]; }

  const th_host* host_;
  const step::Program& program_;
  const placement::MemoryPlan& plan_;
  std::byte* base_[5];      // by Tier
  bool allocated_[5] = {};  // false where the plan has no bytes
};

}  // namespace trainhost::cuda
