// Which queue must wait for which. Four queues run beside each other: kernels, copies up, copies down, and
// the host's own work; each is in order by itself. An operation is given as the ranges that it reads and
// writes; add() says, for every other queue, the last operation there that it must not overtake: one that
// wrote what it touches, or touched what it writes. Pure bookkeeping: no CUDA here, so that it is held
// against brute force in tests.
#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "core/base/types.hpp"

namespace trainhost::cuda {

enum Queue : std::uint32_t { kKernels = 0, kUp = 1, kDown = 2, kHostWork = 3, kQueues = 4 };

struct Access {
  Tier tier;
  std::uint64_t begin, end;  // bytes of that tier's arena
  bool write;
};

class QueueOrder {
 public:
  /// Sequence numbers count from 1 in each queue; 0 = nothing to wait for.
  struct Place {
    std::uint64_t sequence = 0;
    std::array<std::uint64_t, kQueues> wait{};
  };
  Place add(Queue q, std::span<const Access> accesses);
  /// Everything queued so far is done.
  void all_done();

 private:
  struct Entry {
    std::uint64_t sequence;
    Access access;
  };
  using Clock = std::array<std::uint64_t, kQueues>;
  std::array<std::vector<Entry>, kQueues> entries_;
  std::array<Clock, kQueues> knows_{};  // by queue: what of the others is certain to be done before its next
  std::array<std::vector<Clock>, kQueues> at_{};  // by queue and sequence: what was certain there
  Clock last_{};
};

}  // namespace trainhost::cuda
