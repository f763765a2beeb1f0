// Decides whether the loss of a step is a spike: more than `threshold` standard deviations above the mean of
// the last `window` losses. Only upward: a loss that falls is what training is for. While the loss falls
// quickly the deviation is large, so the beginning of a run gives no alarms.
#pragma once
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>

namespace trainhost::training {

class SpikeDetector {
 public:
  SpikeDetector(std::uint32_t window, double threshold) : window_(window), threshold_(threshold) {}

  /// Standard deviations of `loss` above the mean of the window; 0 before the window is full. A deviation
  /// below 1e-4 of the mean counts as that much, so that a constant loss does not make noise a spike.
  double deviations(double loss) const;
  bool is_spike(double loss) const { return deviations(loss) > threshold_; }
  /// Adds the loss of a step whose update stays.
  void add(double loss);

  /// The losses as exact text for a checkpoint, and back; a resumed run then decides as an uninterrupted one.
  /// Text of another form gives an empty window.
  std::string text() const;
  void restore(std::string_view text);

 private:
  std::uint32_t window_;
  double threshold_;
  std::deque<double> losses_;  // the newest is last
};

}  // namespace trainhost::training
