// The arithmetic of `train --find-lr`: the rates of the ramp, when a loss has diverged, and which learning
// rate the losses suggest. Knows no trainer; find_lr.cpp computes the steps.
//
// The range test is that of Smith (2017): the learning rate grows exponentially from step to step while the
// model trains, so one short run shows at which rates the loss falls, and at which it diverges.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/runfile/run_config.hpp"

namespace trainhost::training {

struct LrRange {
  double from = 0, to = 0;
  std::uint64_t steps = 100;
  double ratio() const;                   // of the rates of two consecutive steps
  double rate(std::uint64_t step) const;  // of step 0 to steps - 1: from to `to`
};

/// 1e-7 to 0.1 where loaded weights are trained, 1e-6 to 1 for random weights and for adapters; a hundred
/// times that for SGD, whose updates are as small as the gradient.
LrRange default_lr_range(const runfile::RunConfig& c);

/// FROM:TO or FROM:TO:STEPS. Throws usage_error unless 0 < FROM < TO <= 100 and STEPS is 20 to 10,000.
LrRange parse_lr_range(const std::string& text, const LrRange& defaults);

/// Whether the median of the last five losses is above twice the smallest such median and above the first
/// one. A median, so that one bad batch does not end the test.
bool has_diverged(std::span<const double> losses);

enum class RangeEnd { kComplete, kDiverged, kNonfinite };

struct LrPoint {
  double lr = 0, loss = 0, grad_norm = 0;
};

/// What the losses of a range test say.
struct LrSuggestion {
  std::optional<double> lr;  // two significant digits; nullopt: none
  std::string reason;        // why this rate, or why none; a sentence without its full stop
  // Rates before rounding. `minimum`: where the smoothed loss is lowest. Both nullopt if it does not fall.
  std::optional<double> steepest, minimum;
  std::vector<double> smoothed;  // of each point
};

/// The rule. A weighted line (Gaussian weights, bandwidth steps / 20) through the losses around each step
/// gives its smoothed loss and its slope; unlike a moving average it does not lag behind the ramp. A loss
/// above the limit of has_diverged() counts as the limit. The suggestion is the smaller of
/// - the rate at which the smoothed loss falls fastest before its minimum, and
/// - a tenth of the rate of the minimum, where the next larger rates already diverge.
/// There is none if the fall from the first rate to the minimum is within three standard errors of the
/// smoothed loss, or if the rate is at an end of the range or outside of it, so that its other side is not
/// known.
LrSuggestion suggest_lr(const LrRange& range, std::span<const LrPoint> points, RangeEnd end);

struct LrRangeResult {
  LrRange range;
  std::vector<LrPoint> points;  // one per step with a finite loss
  RangeEnd end = RangeEnd::kComplete;
  LrSuggestion suggestion;
};

}  // namespace trainhost::training
