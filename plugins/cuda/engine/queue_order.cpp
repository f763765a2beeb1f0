// Vector clocks: an operation that waits for another also knows everything that the other one had waited for,
// so those waits need not be issued again. No CUDA calls: executor_queues.cpp records and waits for events.
// See queue_order.hpp.
#include "plugins/cuda/engine/queue_order.hpp"

#include <algorithm>
#include <cassert>

namespace trainhost::cuda {
namespace {

/// True if two accesses need an order: they overlap and at least one of them writes.
bool conflict(const Access& a, const Access& b) {
  return (a.write || b.write) && a.tier == b.tier && a.begin < b.end && b.begin < a.end;
}

}  // namespace

QueueOrder::Waits QueueOrder::add(Queue q, std::span<const Access> accesses) {
  Waits result;
  Clock& mine = known_[q];
  for (std::uint32_t r = 0; r < kQueues; ++r) {
    if (r == q) continue;
    // Newest first: queue r is in order, so the newest conflict covers all older ones. Operations up to
    // mine[r] are known to have finished.
    for (auto e = entries_[r].rbegin(); e != entries_[r].rend() && e->sequence > mine[r]; ++e) {
      const bool hit = std::any_of(accesses.begin(), accesses.end(),
                                   [&](const Access& a) { return conflict(a, e->access); });
      if (!hit) continue;
      result.wait[r] = e->sequence;
      break;
    }
  }
  // Drops the wait for queue r if another wait implies it: the operation of `other` knew at its end that r
  // had progressed at least that far. `last` keeps all waits, so that the result does not depend on the order
  // in which they are dropped. Two waits cannot drop each other: that would need two operations that each
  // finished before the other one started.
  const auto last = result.wait;
  for (std::uint32_t r = 0; r < kQueues; ++r)
    for (std::uint32_t other = 0; other < kQueues; ++other)
      if (last[r] && last[other] && other != r && known_at_[other][last[other] - 1][r] >= last[r])
        result.wait[r] = 0;
  // The operation knows everything that the operations it waits for knew: the maximum of the clocks.
  for (std::uint32_t r = 0; r < kQueues; ++r) {
    if (last[r] == 0) continue;
    const Clock& then = known_at_[r][last[r] - 1];
    for (std::uint32_t i = 0; i < kQueues; ++i) mine[i] = std::max(mine[i], then[i]);
    mine[r] = std::max(mine[r], last[r]);
  }
  result.sequence = ++last_[q];
  mine[q] = result.sequence;
  known_at_[q].push_back(mine);
  assert(known_at_[q].size() == last_[q]);
  for (const Access& a : accesses) entries_[q].push_back({result.sequence, a});
  return result;
}

void QueueOrder::all_done() {
  for (auto& e : entries_) e.clear();
  for (auto& k : known_at_) k.clear();
  known_ = {};
  last_ = {};
}

}  // namespace trainhost::cuda
