// The course of a quantity in one line of text: "█▇▅▃▂▂▁▁".
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace trainhost::report {

/// The values of a whole run in bounded memory: means over equal numbers of steps, which double when the
/// space is used up.
class History {
 public:
  /// Values that are not finite are left out.
  void add(double value);
  /// In `n` parts of equal numbers of values, the mean of each; fewer if there are fewer values.
  std::vector<double> means(std::size_t n) const;

 private:
  static constexpr std::size_t kMost = 512;
  std::vector<double> sums_;  // of per_sum_ values each; the last one of in_last_
  std::uint64_t per_sum_ = 1, in_last_ = 0;
};

/// One character per value; its height is the value between the smallest and the largest. The largest eighth
/// of the values has full height: the first losses of a run would flatten the rest. Without UTF-8, characters
/// of four heights: "'-.._". All values equal: the lowest.
std::string sparkline(const std::vector<double>& values, bool utf8);

/// A bar of exactly `width` columns that is filled up to `share`: "███▌░░░░", without UTF-8 "[###...]".
std::string track(double share, unsigned width, bool utf8);

}  // namespace trainhost::report
