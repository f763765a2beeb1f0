// The codes of 8-bit moments: indices into the dynamic map of core/model/dynamic_map.hpp, with sign for the
// first moment and without for the second (Dettmers et al. 2022). A moment is the number of its code times
// the scale of its block, the largest magnitude in it. Layout in memory: state_layout.hpp. This is the fast
// form of nearest_in_dynamic_map(): a table look-up and one comparison.
#pragma once
#include <array>
#include <cstdint>
#include <cstring>

namespace trainhost::step {

struct MomentCodes {
  std::array<float, 256> value;    // by code, ascending
  std::array<float, 256> highest;  // the largest number that the code stands for; +inf for code 255
  // By the upper 16 bits of a float: the smallest code of the floats with these bits. No cell has more than
  // two.
  std::array<std::uint8_t, 65536> first;

  /// The nearest code of x, with |x| <= 1; between two, the smaller one, as bitsandbytes' torch.bucketize.
  std::uint8_t code(float x) const {
    std::uint32_t bits;
    std::memcpy(&bits, &x, sizeof bits);
    const std::uint8_t c = first[bits >> 16];
    return static_cast<std::uint8_t>(c + (x > highest[c]));
  }
};

/// Computed at the first call. Thread-safe.
const MomentCodes& moment_codes(bool is_signed);

/// Replaces n values of one block, at most kMomentBlock, by codes; returns their scale. The values are
/// finite.
float encode_moments(const MomentCodes& codes, std::uint64_t n, const float* values, std::uint8_t* out);

}  // namespace trainhost::step
