// Derives which queue must wait for which from the memory that operations access. There are six queues:
// kernels, copies to the device, copies to the host, host functions, and for the embedding of the next
// micro-batch its host function and its copy to the device; each is in order by itself. An
// operation is described by the byte ranges that it reads and writes; add() returns, for every other queue,
// the last operation that it must wait for. Pure bookkeeping without CUDA calls; the executor issues the
// waits (executor_queues.cpp), and tests compare the result with brute force.
#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "core/base/types.hpp"

namespace trainhost::cuda {

enum Queue : std::uint32_t {
  kKernels = 0,
  kUp = 1,
  kDown = 2,
  kHostWork = 3,
  kEmbedding = 4,
  kHidden = 5,
  kQueues = 6
};

/// Access to bytes [begin, end) of a tier's arena.
struct Access {
  Tier tier;
  std::uint64_t begin, end;
  bool write;
};

class QueueOrder {
 public:
  /// Number of an operation in its queue, from 1, and for each other queue the number of the operation to
  /// wait for; 0 = none.
  struct Waits {
    std::uint64_t sequence = 0;
    std::array<std::uint64_t, kQueues> wait{};
  };
  /// Appends an operation to queue q. It must wait for every earlier operation of another queue that wrote a
  /// byte which it accesses, or accessed a byte which it writes; waits that follow from other waits are
  /// omitted.
  Waits add(Queue q, std::span<const Access> accesses);
  /// Forgets all operations. Everything that was queued must have finished.
  void all_done();

 private:
  struct Entry {
    std::uint64_t sequence;
    Access access;
  };
  /// A vector clock: for each queue, the sequence number up to which operations are known to have finished.
  using Clock = std::array<std::uint64_t, kQueues>;
  std::array<std::vector<Entry>, kQueues> entries_;  // by queue, in order of sequence
  std::array<Clock, kQueues> known_{};               // by queue: finished before its next operation starts
  std::array<std::vector<Clock>, kQueues>
      known_at_{};  // by queue and sequence - 1: finished when that one ends
  Clock last_{};    // by queue: sequence number of its last operation
};

}  // namespace trainhost::cuda
