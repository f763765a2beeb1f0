// See layer_norms.hpp. The names of the metrics are those of th_trainer::metric.
#include "core/training/layer_norms.hpp"

#include <fmt/format.h>

#include <cmath>
#include <optional>

namespace trainhost::training {

Scalars LayerNorms::measure(std::uint64_t step, std::uint64_t steps, plugin::Session& session, Ranks& ranks) {
  if (!known_ || (step % kEvery != 0 && step != 1 && step != steps)) return {};
  const char* const metric = ranks.several() ? "grad_norm_part" : "grad_norm";
  // Squares of every layer, then of what is outside, then the number of values that are missing.
  std::vector<double> values(layers_ + 2, 0.0);
  for (std::uint32_t l = 0; l <= layers_ && values.back() == 0; ++l) {
    const std::string key =
        l < layers_ ? fmt::format("{}.layer.{}", metric, l) : fmt::format("{}.outside_layers", metric);
    if (const std::optional<double> norm = session.metric(key))
      values[l] = *norm * *norm;
    else
      values.back() = 1;
  }
  if (ranks.several()) ranks.sum(values);
  known_ = values.back() == 0;  // the same on all ranks
  if (!known_) return {};
  Scalars norms;
  // With leading zeros, because TensorBoard sorts tags as texts.
  const int digits = static_cast<int>(std::to_string(layers_).size());
  for (std::uint32_t l = 0; l < layers_; ++l)
    norms.emplace_back(fmt::format("grad_norm/layer_{:0{}}", l, digits), std::sqrt(values[l]));
  norms.emplace_back("grad_norm/outside_layers", std::sqrt(values[layers_]));
  return norms;
}

}  // namespace trainhost::training
