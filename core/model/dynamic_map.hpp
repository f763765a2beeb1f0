// The 8-bit dynamic data type (Dettmers 2016), as bitsandbytes has it: 256 values in [-1, 1] or [0, 1] whose
// distance shrinks by powers of ten towards zero. A block of numbers is divided by its largest magnitude, and
// each quotient becomes the index of the nearest value.
#pragma once
#include <array>
#include <cstdint>

namespace trainhost {

/// The values in ascending order, the same bits as create_dynamic_map() of bitsandbytes 0.50 computes with
/// torch 2.15. With sign: 127 negative values, 0 and 128 positive ones up to 1. Without: 0 and 255 positive
/// ones.
using DynamicMap = std::array<float, 256>;
const DynamicMap& dynamic_map(bool with_sign);

/// The index of the value nearest to x; of the lower one if both are equally near, and for x below the first
/// value the first. x must not be NaN.
std::uint8_t nearest_in_dynamic_map(const DynamicMap& map, float x);

}  // namespace trainhost
