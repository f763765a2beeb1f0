// Both collections are sorted vectors with binary search.
#include "core/parallel/pareto_front.hpp"

#include <algorithm>
#include <cassert>
#include <tuple>

namespace trainhost::parallel {

bool faster(const FoundLayout& a, const FoundLayout& b) {
  return std::tie(a.step_seconds, a.device_bytes, a.host_bytes, a.index) <
         std::tie(b.step_seconds, b.device_bytes, b.host_bytes, b.index);
}

bool smaller(const FoundLayout& a, const FoundLayout& b) {
  return std::tie(a.device_bytes, a.step_seconds, a.host_bytes, a.index) <
         std::tie(b.device_bytes, b.step_seconds, b.host_bytes, b.index);
}

// At most `top` elements: insertion in a vector is cheaper than a heap.
void FastestLayouts::add(const FoundLayout& f) {
  if (!admits(f.step_seconds)) return;
  kept_.insert(std::upper_bound(kept_.begin(), kept_.end(), f, faster), f);
  if (kept_.size() > top_) kept_.pop_back();
}

bool ParetoFront::admits(std::uint64_t bytes, double seconds) const {
  // The last of those with no more bytes is the fastest of them. add() breaks ties of bytes and seconds.
  const auto after =
      std::upper_bound(kept_.begin(), kept_.end(), bytes,
                       [](std::uint64_t b, const FoundLayout& f) { return b < f.device_bytes; });
  if (after == kept_.begin()) return true;
  const FoundLayout& before = *std::prev(after);
  return seconds < before.step_seconds || (seconds == before.step_seconds && bytes == before.device_bytes);
}

void ParetoFront::add(const FoundLayout& f) {
  if (!admits(f.device_bytes, f.step_seconds)) return;
  auto at = std::lower_bound(kept_.begin(), kept_.end(), f, [](const FoundLayout& a, const FoundLayout& b) {
    return a.device_bytes < b.device_bytes;
  });
  if (at != kept_.end() && at->device_bytes == f.device_bytes && at->step_seconds == f.step_seconds) {
    if (smaller(f, *at)) *at = f;
    return;
  }
  auto end = at;
  // Those with at least as many bytes and no shorter time are dominated by f.
  while (end != kept_.end() && end->step_seconds >= f.step_seconds) ++end;
  at = kept_.insert(kept_.erase(at, end), f);
  // Bytes strictly increase and seconds strictly decrease.
  assert(at == kept_.begin() ||
         (std::prev(at)->device_bytes < f.device_bytes && std::prev(at)->step_seconds > f.step_seconds));
  assert(std::next(at) == kept_.end() ||
         (std::next(at)->device_bytes > f.device_bytes && std::next(at)->step_seconds < f.step_seconds));
}

}  // namespace trainhost::parallel
