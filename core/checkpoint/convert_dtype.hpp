// Stored floats to f32, exactly where f32 can hold them (F16, BF16, F32) and rounded to nearest even from
// F64. In place: the stored bytes lie at the end of the very buffer that takes the result, so loading needs
// no second one.
#pragma once
#include <cstdint>
#include <span>
#include <string_view>

namespace trainhost::checkpoint {

float f32_from_f16(std::uint16_t bits);
float f32_from_bf16(std::uint16_t bits);

/// Can weights of this type be loaded?
bool loads_as_f32(std::string_view dtype);

/// The last 2 * out.size() bytes of `out` hold F16 (or BF16) values; afterwards out[i] is the i-th as f32.
void widen_in_place(std::span<float> out, bool bf16);

struct NonFinite {
  std::uint64_t count = 0, first = 0;  // first: index of the first one, when count > 0
};
/// NaN and infinite values, found in the bits, so that no compiler flag can optimise the question away.
NonFinite count_nonfinite(std::span<const float> values);

}  // namespace trainhost::checkpoint
