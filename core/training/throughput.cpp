// See throughput.hpp.
#include "core/training/throughput.hpp"

#include <algorithm>

#include "core/training/flops.hpp"

namespace trainhost::training {

Speed::Speed(const ModelSpec& m, std::uint64_t seq_len)
    : flops_per_token_(train_flops_per_token(m, seq_len)) {}

void Speed::step(std::uint64_t tokens, double seconds) {
  const double rate = static_cast<double>(tokens) / seconds;
  rate_ = rate_ == 0 ? rate : 0.95 * rate_ + 0.05 * rate;
  seconds_ += seconds;
}

std::optional<double> Speed::mfu(plugin::Session& session) {
  const double flops = rate_ * flops_per_token_;
  for (; flops > peak_flops_ && measurements_ < 4; ++measurements_)
    peak_flops_ = std::max(peak_flops_, session.metric("peak_flops").value_or(0));
  if (flops > peak_flops_) return std::nullopt;
  return flops / peak_flops_;
}

}  // namespace trainhost::training
