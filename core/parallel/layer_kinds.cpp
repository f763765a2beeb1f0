// Runs of a kind are sorted by first layer, so that within() is a binary search.
#include "core/parallel/layer_kinds.hpp"

#include <algorithm>

namespace trainhost::parallel {

LayerKinds::LayerKinds(const model::Architecture& a) {
  for (const model::LayerRun& run : a.layers) {
    if (run.count == 0) continue;
    auto kind = std::ranges::find_if(kinds_, [&](const Kind& k) { return *k.layer == run.layer; });
    if (kind == kinds_.end()) kind = kinds_.insert(kind, Kind{&run.layer, 0, {}});
    kind->runs.push_back({layers_, run.count, kind->count});
    kind->count += run.count;
    layers_ += run.count;
  }
}

std::uint64_t LayerKinds::before(std::size_t kind, std::uint64_t at) const {
  const std::vector<Run>& runs = kinds_[kind].runs;
  const auto next = std::ranges::upper_bound(runs, at, {}, &Run::first);
  if (next == runs.begin()) return 0;
  const Run& run = *(next - 1);
  return run.before + std::min(at - run.first, run.count);
}

std::vector<model::LayerRun> LayerKinds::merged() const {
  std::vector<model::LayerRun> out;
  for (const Kind& k : kinds_) out.push_back({*k.layer, static_cast<std::uint32_t>(k.count)});
  return out;
}

}  // namespace trainhost::parallel
