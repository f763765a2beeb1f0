// All memory of a run: one allocation a tier, of exactly the planned size. Device and page-locked memory come
// from the CUDA runtime and are reported to the host's ledger; pageable memory comes from the host. Nothing
// is taken later.
#pragma once
#include <cstddef>
#include <cstdint>

#include "core/placement/memory_plan.hpp"
#include "trainhost/host.h"

namespace trainhost::cuda {

class Arenas {
 public:
  /// Throws abi::StatusError: TH_E_DEVICE_OOM or TH_E_HOST_OOM with the bytes that were missing.
  Arenas(const th_host* host, const step::Program& program, const placement::MemoryPlan& plan);
  ~Arenas();
  Arenas(const Arenas&) = delete;

  void* at(step::BufferId b, std::uint32_t instance = 0) const {
    const step::Buffer& x = program_.buffers[b];
    return base_[static_cast<std::size_t>(x.tier)] + plan_.offset[b] +
           (x.ring > 1 ? instance : 0) * x.instance_stride();
  }
  template <class T>
  T* get(step::BufferId b, std::uint32_t instance = 0) const {
    return b == step::kNoBuffer ? nullptr : static_cast<T*>(at(b, instance));
  }
  /// Device memory that no persistent buffer uses: free between steps.
  std::byte* transient() const;
  std::uint64_t transient_bytes() const;

 private:
  void take_device(std::uint64_t bytes);
  void take_pinned(std::uint64_t bytes);
  void take_host(std::uint64_t bytes);
  void give_back();
  std::byte*& base(Tier t) { return base_[static_cast<std::size_t>(t)]; }

  const th_host* host_;
  const step::Program& program_;
  const placement::MemoryPlan& plan_;
  std::byte* base_[5] = {};
};

}  // namespace trainhost::cuda
