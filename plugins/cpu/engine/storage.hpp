// Where the buffers of a program lie. The executor asks for an address once per operand and operation; it announces
// every operation before and after, so that a test storage can take and drop buffers one by one.
// The product uses ArenaStorage: one allocation of the planned size, addresses by addition.
#pragma once
#include <cstddef>
#include <cstdint>

#include "core/plan/memory_plan.hpp"
#include "trainhost/host.h"

namespace trainhost::cpu {

class Storage {
 public:
  virtual ~Storage() = default;
  virtual void* at(plan::BufferId b) = 0;
  virtual void enter(std::uint32_t op) { (void)op; }
  virtual void leave(std::uint32_t op) { (void)op; }
};

class ArenaStorage final : public Storage {
 public:
  /// Takes plan.arena_bytes of the profile's tier from the host under the tag "arena". Throws bridge::StatusError with
  /// TH_E_HOST_OOM and the missing bytes when the host has none left.
  ArenaStorage(const th_host* host, const plan::Program& program, const plan::MemoryPlan& plan);
  ~ArenaStorage() override;
  ArenaStorage(const ArenaStorage&) = delete;
  void* at(plan::BufferId b) override { return base_ + plan_.offset[b]; }

 private:
  const th_host* host_;
  const plan::MemoryPlan& plan_;
  std::byte* base_ = nullptr;
};

}  // namespace trainhost::cpu
