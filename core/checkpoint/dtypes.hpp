// Element types of safetensors files: names, widths, and conversion to f32 (exact from F16, BF16 and F32,
// rounded to nearest even from F64). Conversion works in place: the stored bytes are at the end of the result
// buffer, so loading needs no second buffer. An unknown name is an error; only the types of loads_as_f32()
// can be loaded as weights.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/bf16.hpp"

namespace trainhost::checkpoint {

/// Bits per element; 0 if the format has no such type.
std::uint32_t dtype_bits(std::string_view name);

/// All type names, for messages.
const std::vector<std::string>& dtype_names();

float f32_from_f16(std::uint16_t bits);
using trainhost::bf16_from_f32;
using trainhost::f32_from_bf16;
/// Rounded to nearest even. A value beyond the largest of the type becomes infinite.
std::uint16_t f16_from_f32(float value);

/// True if weights of this safetensors type can be loaded.
bool loads_as_f32(std::string_view dtype);

/// Converts the F16 (or BF16) values in the last 2 * out.size() bytes of `out` to f32; out[i] becomes value
/// i.
void widen_in_place(std::span<float> out, bool bf16);

struct NonFinite {
  std::uint64_t count = 0, first = 0;  // first: index of the first one if count > 0
};
/// Counts NaN and infinite values. Tests the bits, because -ffast-math may optimise isfinite() away.
NonFinite count_nonfinite(std::span<const float> values);

}  // namespace trainhost::checkpoint
