// See ddp.hpp. The buckets are those of _compute_bucket_assignment_by_size() in torch 2.15: a first one of 1
// MiB so that the reduction begins early, then bucket_cap_mb.
#include "core/frameworks/sharding/ddp.hpp"

#include <algorithm>
#include <utility>

namespace trainhost::frameworks {

Ddp::Ddp(Tape& tape, const DdpPolicy& policy, const std::vector<Tensor>& trained)
    : t_(tape), policy_(policy) {
  constexpr std::uint64_t kFirst = 1 << 20;
  std::uint64_t limit = std::min(kFirst, policy.bucket), bytes = 0;
  const auto close = [&] {
    if (bytes)
      buckets_.push_back(t_.new_storage({static_cast<std::int64_t>(bytes)}, Element::kByte,
                                        Purpose::kCommunication, "", "bucket of DDP"));
    bytes = 0;
    limit = policy.bucket;
  };
  for (auto p = trained.rbegin(); p != trained.rend(); ++p) {
    bucket_of_[p->get()] = buckets_.size();
    bytes += (*p)->bytes();
    if (bytes >= limit) close();
  }
  close();
}

void Ddp::after_gradient(const Tensor& p) {
  if (!reduces_ || !policy_.gradient_as_bucket_view) return;
  const auto bucket = bucket_of_.find(p.get());
  if (bucket == bucket_of_.end()) return;
  Tensor view = t_.alias(buckets_[bucket->second], p->shape);
  view->type = p->grad->type;
  p->grad = std::move(view);
}

}  // namespace trainhost::frameworks
