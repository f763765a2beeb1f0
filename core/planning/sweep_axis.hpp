// What `sweep --over KEY=VALUES` goes through: a range of whole numbers or sizes (doubling, by steps, by
// factors), or a list. Words in, values out; plans nothing.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace trainhost::planning {

struct AxisValue {
  double x = 0;       // the value, or its place in the list
  std::string label;  // as --set takes it: "2048", "8GiB", "full"
};

struct Axis {
  std::string key, unit;       // "data.seq_len", "tokens"; unit "" where there is none to name
  bool whole_numbers = false;  // what lies between two values is a value too: crossovers can be narrowed down
  bool bytes = false;          // of memory sizes: values are shown with their unit
  std::vector<AxisValue> values;
};

inline constexpr std::size_t kMostPoints = 1000;

/// "data.seq_len=512..16384" doubles; "512..16384+512" adds; "1..81*3" multiplies;
/// "train.recompute=none,selective,full" is a list. The end of a range is always a point. Throws usage_error
/// for a key that the run file does not know (with the nearest), a value that the key does not take, and
/// ranges that go nowhere.
Axis parse_axis(const std::string& over);

}  // namespace trainhost::planning
