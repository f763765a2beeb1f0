// DistributedDataParallel: the buckets from which gradients are reduced. They are filled in the order in
// which gradients arrive, that of the parameters backwards, and exist during the whole run. Describes
// torch 2.15, without the exchange of the buckets after the first step, which frees the old ones first.
#pragma once
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "core/frameworks/autograd/tape.hpp"

namespace trainhost::frameworks {

struct DdpPolicy {
  bool on = false;                       // several data-parallel ranks with all weights each
  std::uint64_t bucket = 25u << 20;      // bytes: bucket_cap_mb; the first bucket has 1 MiB at most
  bool gradient_as_bucket_view = false;  // gradients are views of the buckets, so they exist once
  bool operator==(const DdpPolicy&) const = default;
};

class Ddp {
 public:
  Ddp(Tape& tape, const DdpPolicy& policy, const std::vector<Tensor>& trained);

  /// reduces: this is the last micro-batch of a step. The others only sum gradients (no_sync).
  void before_backward(bool reduces) { reduces_ = reduces; }
  /// Copies the gradient of `parameter` into its bucket.
  void after_gradient(const Tensor& parameter);

 private:
  Tape& t_;
  DdpPolicy policy_;
  std::vector<Tensor> buckets_;
  std::unordered_map<const void*, std::size_t> bucket_of_;
  bool reduces_ = true;
};

}  // namespace trainhost::frameworks
