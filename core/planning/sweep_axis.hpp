// Parses `sweep --over KEY=VALUES`: a range of whole numbers or sizes (doubling, by a step, by a factor) or a
// list. Plans nothing.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace trainhost::planning {

struct AxisValue {
  double x = 0;       // the value; its index in the list where it is not a number
  std::string label;  // as --set takes it: "2048", "8GiB", "full"
};

struct Axis {
  std::string key, unit;       // "data.seq_len", "tokens"; unit "" where there is none
  bool whole_numbers = false;  // numbers between two values are valid too, so crossovers can be bisected
  bool bytes = false;          // memory sizes: shown with their unit
  std::vector<AxisValue> values;
};

inline constexpr std::size_t kMostPoints = 1000;

/// "data.seq_len=512..16384" doubles; "512..16384+512" adds; "1..81*3" multiplies;
/// "train.recompute=none,selective,full" is a list. The end of a range is always a point. Throws usage_error
/// for an unknown key (with the nearest one), an invalid value, and an empty or endless range.
Axis parse_axis(const std::string& over);

}  // namespace trainhost::planning
