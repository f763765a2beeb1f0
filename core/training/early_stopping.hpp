// Decides when a run ends because its validation loss no longer falls: after `patience` evaluations in a row
// that did not lower it by more than `min_delta`. Which checkpoint is kept is not decided here
// (validate.cpp).
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace trainhost::training {

class EarlyStopping {
 public:
  /// `patience` 0: never. `min_delta`: in nats, at least 0. The loss that others are compared with is the
  /// last one that was an improvement, so small improvements add up (as Lightning's EarlyStopping counts).
  EarlyStopping(std::uint64_t patience, double min_delta) : patience_(patience), min_delta_(min_delta) {}

  bool enabled() const { return patience_ > 0; }
  /// Adds the validation loss of one evaluation; one that is not finite is no improvement.
  void add(double loss);
  /// Evaluations since the last improvement.
  std::uint64_t waited() const { return waited_; }
  std::uint64_t patience() const { return patience_; }
  bool stops() const { return enabled() && waited_ >= patience_; }

  /// The state as exact text for a checkpoint, and back; a resumed run then ends where an uninterrupted one
  /// does. Text of another form gives the state before the first evaluation.
  std::string text() const;
  void restore(std::string_view text);

 private:
  std::uint64_t patience_;
  double min_delta_;
  std::optional<double> reference_;
  std::uint64_t waited_ = 0;
};

}  // namespace trainhost::training
