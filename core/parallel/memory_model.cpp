// The parts of MemoryModel that run once per shape or depth.
#include "core/parallel/memory_model.hpp"

namespace trainhost::parallel {

const std::vector<std::uint32_t>& MemoryModel::candidates() {
  std::vector<std::uint32_t>& out = candidates_[{r_.parallel.pipeline, r_.parallel.virtual_stages}];
  if (out.empty()) out = candidate_stages(a_, kinds_, r_);
  return out;
}

void MemoryModel::set_shape() { sums_ = sums_by_kind(Stage(a_, kinds_, r_, 0)); }

void MemoryModel::set_depth() {
  prepared_.clear();
  stages_ = &candidates();
}

}  // namespace trainhost::parallel
