// See dynamic_map.hpp. Decade i of seven (10^-6 to 1) has 2^i values with sign, 2^(i+1) without: the
// midpoints of equal parts of [0.1, 1]. The order of the roundings is that of torch.linspace(), which counts
// the first half from 0.1 up and the second from 1 down, each by one fused multiply-add.
#include "core/model/dynamic_map.hpp"

#include <algorithm>
#include <cassert>
#include <cmath>

namespace trainhost {
namespace {

constexpr float kDecades[] = {1e-6f, 1e-5f, 1e-4f, 1e-3f, 1e-2f, 1e-1f, 1.0f};

/// Element i of torch.linspace(0.1, 1, count) in f32.
float boundary(std::uint32_t i, std::uint32_t count) {
  const float step = (1.0f - 0.1f) / static_cast<float>(count - 1);
  return i < count / 2 ? std::fma(step, static_cast<float>(i), 0.1f)
                       : std::fma(-step, static_cast<float>(count - 1 - i), 1.0f);
}

DynamicMap build(bool with_sign) {
  DynamicMap map{};  // contains the 0
  std::size_t n = 1;
  map[n++] = 1.0f;
  for (std::uint32_t decade = 0; decade < 7; ++decade) {
    const std::uint32_t parts = 1u << (decade + (with_sign ? 0 : 1));
    for (std::uint32_t i = 0; i < parts; ++i) {
      const float value = kDecades[decade] * ((boundary(i, parts + 1) + boundary(i + 1, parts + 1)) / 2.0f);
      map[n++] = value;
      if (with_sign) map[n++] = -value;
    }
  }
  assert(n == map.size());
  std::sort(map.begin(), map.end());
  return map;
}

}  // namespace

const DynamicMap& dynamic_map(bool with_sign) {
  static const DynamicMap with = build(true), without = build(false);
  return with_sign ? with : without;
}

// The number of midpoints below x.
std::uint8_t nearest_in_dynamic_map(const DynamicMap& map, float x) {
  assert(!std::isnan(x));
  std::size_t low = 0, high = map.size() - 1;
  while (low < high) {
    const std::size_t middle = (low + high) / 2;
    if ((map[middle] + map[middle + 1]) / 2.0f < x)
      low = middle + 1;
    else
      high = middle;
  }
  return static_cast<std::uint8_t>(low);
}

}  // namespace trainhost
