// See memory_model.hpp.
#include "core/layout/memory_model.hpp"

namespace trainhost::layout {
namespace {

/// Layers of each run in each chunk: two stages with equal ones differ in what is in flight alone, and the later has less.
std::vector<std::uint64_t> pattern(const Stage& s) {
  std::vector<std::uint64_t> out;
  s.segments([&](const Segment& g) {
    out.push_back(static_cast<std::uint64_t>(g.run - s.a.layers.data()));
    out.push_back(g.count);
  });
  return out;
}

}  // namespace

/// Stages that can be the worst: the first, the last, and of those between the first of each pattern that the first stage does
/// not have; it has the embedding besides. Under one recompute policy for all layers, as a search has it.
const std::vector<std::uint32_t>& MemoryModel::candidates() {
  std::vector<std::uint32_t>& out = candidates_[{r_.pipeline_parallel, r_.layout.interleave}];
  if (!out.empty()) return out;
  std::vector<std::vector<std::uint64_t>> seen;
  for (std::uint32_t stage = 0; stage < r_.pipeline_parallel; ++stage) {
    std::vector<std::uint64_t> p = pattern(Stage(a_, r_, stage));
    const bool known = std::find(seen.begin(), seen.end(), p) != seen.end(), last = stage + 1 == r_.pipeline_parallel;
    if (!known || last) out.push_back(stage);
    if (!known) seen.push_back(std::move(p));
  }
  return out;
}

void MemoryModel::set_shape() {
  const Stage any(a_, r_, 0);
  sums_.clear();
  for (const arch::LayerRun& run : a_.layers) sums_.push_back(layer_sums(any, run.layer));
}

void MemoryModel::set_depth() {
  prepared_.clear();
  for (const std::uint32_t stage : candidates()) prepared_.emplace_back(a_, r_, stage, sums_.data());
}

MemoryModel::Bytes MemoryModel::bytes() {
  Bytes worst;
  for (Prepared& p : prepared_) {
    const Sink& s = p.emit();
    const std::uint64_t device = s.bytes[std::size_t(Tier::kDevice)].value();
    if (&p == &prepared_.front() || device > worst.device)
      worst = {device, (s.bytes[std::size_t(Tier::kPinned)] + s.bytes[std::size_t(Tier::kHost)]).value()};
  }
  return worst;
}

std::uint64_t MemoryModel::at_least() {
  std::uint64_t least = 0;
  for (Prepared& p : prepared_) least = std::max(least, p.emit().least.value());
  return least;
}

}  // namespace trainhost::layout
