// See early_stopping.hpp.
#include "core/training/early_stopping.hpp"

#include <fmt/format.h>

#include <charconv>
#include <cmath>

namespace trainhost::training {

void EarlyStopping::add(double loss) {
  if (std::isfinite(loss) && (!reference_ || loss < *reference_ - min_delta_)) {
    reference_ = loss;
    waited_ = 0;
  } else {
    ++waited_;
  }
}

// "LOSS WAITED", or "- WAITED" before the first finite loss.
std::string EarlyStopping::text() const {
  return fmt::format("{} {}", reference_ ? fmt::format("{}", *reference_) : "-", waited_);
}

void EarlyStopping::restore(std::string_view text) {
  reference_.reset();
  waited_ = 0;
  const auto space = text.find(' ');
  if (space == text.npos) return;
  const std::string_view loss = text.substr(0, space), waited = text.substr(space + 1);
  const auto read = [](std::string_view from, auto& to) {
    const auto [end, error] = std::from_chars(from.data(), from.data() + from.size(), to);
    return error == std::errc{} && end == from.data() + from.size();
  };
  double value = 0;
  std::uint64_t n = 0;
  if (!read(waited, n) || (loss != "-" && (!read(loss, value) || !std::isfinite(value)))) return;
  waited_ = n;
  if (loss != "-") reference_ = value;
}

}  // namespace trainhost::training
