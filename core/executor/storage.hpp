// Addresses of the buffers of a program. A backend calls at() once per operand and operation; the walker
// calls enter() and leave() around every operation, so that a test storage can allocate and free buffers one
// by one. Trainers use ArenaStorage: one allocation of the planned size.
#pragma once
#include <cassert>
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
  /// Memory that the CPU can address, for the bytes from `first` on of a buffer, until the next call.
  /// Here the buffer itself; other memory where the CPU cannot address the buffer.
  virtual std::byte* staged(step::BufferId b, std::uint64_t first) {
    return static_cast<std::byte*>(at(b)) + first;
  }
  /// Copies bytes [first, first + n) of a buffer to its staged memory, or back.
  virtual void load_staged(step::BufferId, std::uint64_t first, std::uint64_t n) { (void)first, (void)n; }
  virtual void store_staged(step::BufferId, std::uint64_t first, std::uint64_t n) { (void)first, (void)n; }

  float* f32(step::BufferId b) { return b == step::kNoBuffer ? nullptr : static_cast<float*>(at(b)); }
  double* f64(step::BufferId b) { return static_cast<double*>(at(b)); }
};

/// A trainer's own allocator, for memory that a device and the CPU can both address. take() returns
/// zero-filled memory, or nullptr if there is not enough.
class Allocator {
 public:
  virtual ~Allocator() = default;
  virtual void* take(std::uint64_t bytes, std::uint64_t alignment) = 0;
  virtual void give_back(void* block) = 0;
};

class ArenaStorage final : public Storage {
 public:
  /// Allocates plan.arena_bytes of the trainer's compute tier with the tag "arena": from the host, or from
  /// `own`, which is then reported to the host's ledger. host, plan and own must outlive it. Errors:
  /// abi::StatusError with TH_E_HOST_OOM (TH_E_DEVICE_OOM in device memory) and the missing bytes.
  ArenaStorage(const th_host* host, const step::Program& program, const placement::MemoryPlan& plan,
               Allocator* own = nullptr);
  ~ArenaStorage() override;
  ArenaStorage(const ArenaStorage&) = delete;
  void* at(step::BufferId b) override {
    assert(plan_.offset[b] < plan_.arena_bytes && "a buffer of the compute tier's arena");
    return base_ + plan_.offset[b];
  }

 private:
  const th_host* host_;
  const placement::MemoryPlan& plan_;
  Allocator* own_;
  const std::uint32_t tier_;
  std::byte* base_ = nullptr;
};

}  // namespace trainhost::executor
