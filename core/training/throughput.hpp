// How fast a run goes: smoothed tokens a second, and the share of the machine's own matrix-product rate.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "core/model/model_spec.hpp"
#include "core/plugin/plugin.hpp"

namespace trainhost::training {

class Speed {
 public:
  Speed(const ModelSpec& m, std::uint64_t seq_len);

  void step(std::uint64_t tokens, double seconds);
  double tokens_per_s() const { return rate_; }  // smoothed; 0 before the first step
  double seconds() const { return seconds_; }    // of all steps

  /// Share of the matrix-product rate. That rate is measured at the first call, perhaps while others had the
  /// processors: a share above one shows it, and it is measured again, a few times at most. nullopt: not
  /// known.
  std::optional<double> mfu(plugin::Session& session);

 private:
  double flops_per_token_, rate_ = 0, seconds_ = 0, peak_flops_ = 0;
  int measurements_ = 0;
};

/// "1:05", "2:03:07", "3d 4h".
std::string format_duration(double seconds);
/// "98.1K", "2.31M".
std::string format_rate(double per_second);

}  // namespace trainhost::training
