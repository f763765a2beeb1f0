// See memory_model.hpp.
#include "core/layout/memory_model.hpp"

namespace trainhost::layout {

const std::vector<std::uint32_t>& MemoryModel::candidates() {
  std::vector<std::uint32_t>& out = candidates_[{r_.pipeline_parallel, r_.layout.interleave}];
  if (out.empty()) out = stages_that_count(a_, kinds_, r_);
  return out;
}

void MemoryModel::set_shape() {
  sums_ = sums_by_kind(Stage(a_, kinds_, r_, 0));
}

void MemoryModel::set_depth() {
  prepared_.clear();
  for (const std::uint32_t stage : candidates()) prepared_.emplace_back(a_, kinds_, r_, stage, sums_.data());
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
