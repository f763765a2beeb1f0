// Converts stored floats to f32: exactly from F16, BF16 and F32, rounded to nearest even from F64. Works in
// place: the stored bytes are at the end of the result buffer, so loading needs no second buffer.
#pragma once
#include <cstdint>
#include <span>
#include <string_view>

namespace trainhost::checkpoint {

float f32_from_f16(std::uint16_t bits);
float f32_from_bf16(std::uint16_t bits);

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
