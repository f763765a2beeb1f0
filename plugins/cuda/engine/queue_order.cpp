// Vector clocks: what a queue has waited for, and what that had waited for before, needs no second wait.
#include "plugins/cuda/engine/queue_order.hpp"

#include <algorithm>

namespace trainhost::cuda {
namespace {

bool conflict(const Access& a, const Access& b) {
  return (a.write || b.write) && a.tier == b.tier && a.begin < b.end && b.begin < a.end;
}

}  // namespace

QueueOrder::Place QueueOrder::add(Queue q, std::span<const Access> accesses) {
  Place place;
  Clock& mine = knows_[q];
  for (std::uint32_t r = 0; r < kQueues; ++r) {
    if (r == q) continue;
    // Newest first: the first conflict is the last operation to wait for.
    for (auto e = entries_[r].rbegin(); e != entries_[r].rend() && e->sequence > mine[r]; ++e) {
      const bool hit = std::any_of(accesses.begin(), accesses.end(),
                                   [&](const Access& a) { return conflict(a, e->access); });
      if (!hit) continue;
      place.wait[r] = e->sequence;
      break;
    }
  }
  // What another of these waits brings with it needs none of its own.
  const auto last = place.wait;
  for (std::uint32_t r = 0; r < kQueues; ++r)
    for (std::uint32_t other = 0; other < kQueues; ++other)
      if (last[r] && last[other] && other != r && at_[other][last[other] - 1][r] >= last[r])
        place.wait[r] = 0;
  for (std::uint32_t r = 0; r < kQueues; ++r) {
    if (last[r] == 0) continue;
    const Clock& then = at_[r][last[r] - 1];
    for (std::uint32_t i = 0; i < kQueues; ++i) mine[i] = std::max(mine[i], then[i]);
    mine[r] = std::max(mine[r], last[r]);
  }
  place.sequence = ++last_[q];
  mine[q] = place.sequence;
  at_[q].push_back(mine);
  for (const Access& a : accesses) entries_[q].push_back({place.sequence, a});
  return place;
}

void QueueOrder::all_done() {
  for (auto& e : entries_) e.clear();
  for (auto& a : at_) a.clear();
  knows_ = {};
  last_ = {};
}

}  // namespace trainhost::cuda
