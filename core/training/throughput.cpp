// See throughput.hpp.
#include "core/training/throughput.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/model/adapters.hpp"
#include "core/model/trainable.hpp"

namespace trainhost::training {

/// Steps of a run before the peak rate is measured, in seconds: the measurement keeps every core busy for 12
/// to 50 ms, which is longer than many a short run.
constexpr double kLeastSeconds = 0.5;

// 6 FLOPs per matrix parameter and token, 4 if it is frozen (no gradient of the weight; the adapters
// themselves are left out, they have a thousandth of the parameters), plus causal attention: 6 * S * q per
// layer (docs/memory-model.md).
double train_flops_per_token(const ModelSpec& m, std::uint64_t seq_len, bool frozen) {
  const double H = m.hidden, L = m.layers, I = m.intermediate, V = static_cast<double>(m.vocab);
  const double qkv = static_cast<double>(m.qkv_width()), q = static_cast<double>(m.q_width());
  const double matrix_parameters = L * (H * qkv + H * q + 3 * H * I) + V * H;
  return (frozen ? 4 : 6) * matrix_parameters + 6 * L * static_cast<double>(seq_len) * q;
}

double train_flops_per_token(const ModelSpec& m, const RunSpec& r) {
  if (r.trainable.empty()) return train_flops_per_token(m, r.seq_len, trains_adapters(r));
  // 2 per parameter of a matrix for the forward pass, 2 for the gradient of its input if anything before it
  // is trained, 2 for its own gradient if it is trained. Attention: 2 of 6 are of the forward pass.
  double flops = 0;
  bool any_before = false;
  std::int32_t layer = -1;
  for (const TensorInfo& t : tensors(m)) {
    const bool trained = trains_weight(r, t.name);
    if (t.layer != layer && t.layer >= 0)
      flops += (any_before ? 6.0 : 2.0) * static_cast<double>(std::uint64_t{r.seq_len} * m.q_width());
    layer = t.layer;
    const bool product = t.rank == 2 && (t.role != TensorRole::kEmbed || m.tied);
    if (product)
      flops += (2.0 + (any_before ? 2 : 0) + (trained ? 2 : 0)) * static_cast<double>(t.elements());
    any_before = any_before || trained;
  }
  return flops;
}

Throughput::Throughput(const ModelSpec& m, const RunSpec& r)
    : flops_per_token_(train_flops_per_token(m, r) /
                       (std::max(1u, r.parallel.data) * std::max(1u, r.parallel.tensor))) {}

/// Exponential average with weight 0.05: about the last 20 steps.
void Throughput::add_step(std::uint64_t tokens, double seconds) {
  const double rate = static_cast<double>(tokens) / seconds;
  // The first step sets the average.
  rate_ = rate_ == 0 ? rate : 0.95 * rate_ + 0.05 * rate;
  tokens_ += static_cast<double>(tokens);
  seconds_ += seconds;
}

/// The peak is measured, not from the data sheet: a model rate above it means that the measurement was
/// disturbed.
std::optional<double> Throughput::mfu(plugin::Session& session, double tokens_per_s) {
  if (seconds_ < kLeastSeconds) return std::nullopt;
  const double flops = tokens_per_s * flops_per_token_;
  // Measured again, at most four times, while the model seems faster than the peak.
  for (; flops > peak_flops_ && measurements_ < 4; ++measurements_)
    peak_flops_ = std::max(peak_flops_, session.metric("peak_flops").value_or(0));
  if (flops > peak_flops_) return std::nullopt;
  return flops / peak_flops_;
}

std::string format_duration(double seconds) {
  if (!(seconds >= 0 && seconds < 1e15)) return "-";
  auto s = static_cast<std::uint64_t>(std::llround(seconds));
  if (s >= 86400) return fmt::format("{}d {}h", s / 86400, s % 86400 / 3600);
  if (s >= 3600) return fmt::format("{}:{:02}:{:02}", s / 3600, s % 3600 / 60, s % 60);
  return fmt::format("{}:{:02}", s / 60, s % 60);
}

std::string format_rate(double x) {
  // Three significant digits, as in tables of frameworks.
  if (x >= 1e6) return fmt::format("{:.2f}M", x / 1e6);
  if (x >= 1e4) return fmt::format("{:.1f}K", x / 1e3);
  if (x >= 100) return fmt::format("{:.0f}", x);
  return fmt::format("{:.1f}", x);
}

}  // namespace trainhost::training
