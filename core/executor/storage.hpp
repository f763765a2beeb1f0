// Where the buffers of a program lie. A backend asks for an address once per operand and operation; the
// walker announces every operation before and after, so that a test storage can take and drop buffers one by
// one. The product uses ArenaStorage: one allocation of the planned size, addresses by addition.
#pragma once
#include <cstddef>
#include <cstdint>

#include "core/placement/memory_plan.hpp"
#include "trainhost/host.h"

namespace trainhost::executor {

class Storage {
 public:
  virtual ~Storage() = default;
  virtual void* at(step::BufferId b) = 0;
  virtual void enter(std::uint32_t op) { (void)op; }
  virtual void leave(std::uint32_t op) { (void)op; }

  float* f32(step::BufferId b) { return b == step::kNoBuffer ? nullptr : static_cast<float*>(at(b)); }
  double* f64(step::BufferId b) { return static_cast<double*>(at(b)); }
};

/// A trainer's own allocator, for memory that a device and the CPU both address. take() gives zero-filled
/// bytes, or nullptr when there are none left.
class Allocator {
 public:
  virtual ~Allocator() = default;
  virtual void* take(std::uint64_t bytes, std::uint64_t alignment) = 0;
  virtual void give_back(void* block) = 0;
};

class ArenaStorage final : public Storage {
 public:
  /// Takes plan.arena_bytes of the trainer's tier under the tag "arena": from the host, or from `own`, and
  /// then the host's ledger is told. Throws abi::StatusError with TH_E_HOST_OOM (TH_E_DEVICE_OOM in the
  /// device's tier) and the missing bytes when there are none left. host, plan and own must outlive it.
  ArenaStorage(const th_host* host, const step::Program& program, const placement::MemoryPlan& plan,
               Allocator* own = nullptr);
  ~ArenaStorage() override;
  ArenaStorage(const ArenaStorage&) = delete;
  void* at(step::BufferId b) override { return base_ + plan_.offset[b]; }

 private:
  const th_host* host_;
  const placement::MemoryPlan& plan_;
  Allocator* own_;
  const std::uint32_t tier_;
  std::byte* base_ = nullptr;
};

}  // namespace trainhost::executor
