// Vector clocks: what a queue has waited for, and what that had waited for before, needs no second wait.
#include "plugins/cuda/engine/order.hpp"

#include <algorithm>

namespace trainhost::cuda {
namespace {

bool conflict(const Access& a, const Access& b) {
  return (a.write || b.write) && a.tier == b.tier && a.begin < b.end && b.begin < a.end;
}

}  // namespace

Order::Place Order::add(Queue q, std::span<const Access> accesses) {
  Place place;
  Clock& mine = knows_[q];
  for (std::uint32_t r = 0; r < kQueues; ++r) {
    if (r == q) continue;
    std::uint64_t last = 0;
    // Newest first: the first conflict is the last operation to wait for.
    for (auto e = entries_[r].rbegin(); e != entries_[r].rend() && e->sequence > mine[r]; ++e) {
      const bool hit = std::any_of(accesses.begin(), accesses.end(), [&](const Access& a) { return conflict(a, e->access); });
      if (!hit) continue;
      last = e->sequence;
      break;
    }
    if (last == 0) continue;
    place.wait[r] = last;
    const Clock& then = at_[r][last - 1];
    for (std::uint32_t i = 0; i < kQueues; ++i) mine[i] = std::max(mine[i], then[i]);
    mine[r] = std::max(mine[r], last);
  }
  place.sequence = ++last_[q];
  mine[q] = place.sequence;
  at_[q].push_back(mine);
  for (const Access& a : accesses) entries_[q].push_back({place.sequence, a});
  return place;
}

void Order::all_done() {
  for (auto& e : entries_) e.clear();
  for (auto& a : at_) a.clear();
  knows_ = {};
  last_ = {};
}

}  // namespace trainhost::cuda
