// The types of the safetensors reference implementation, including its 4-, 6- and 8-bit floats, and bit-level
// conversion. The tests compare all 65536 values of both 16-bit types with a simple reference.
#include "core/checkpoint/dtypes.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstring>
#include <utility>

namespace trainhost::checkpoint {

namespace {

constexpr std::array<std::pair<std::string_view, std::uint32_t>, 22> kTypes{{
    {"F32", 32},        {"BF16", 16},   {"F16", 16},    {"F64", 64},    {"BOOL", 8},    {"U8", 8},
    {"I8", 8},          {"I16", 16},    {"U16", 16},    {"I32", 32},    {"U32", 32},    {"I64", 64},
    {"U64", 64},        {"C64", 64},    {"F8_E4M3", 8}, {"F8_E5M2", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8},
    {"F8_E5M2FNUZ", 8}, {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"F4", 4},
}};

}  // namespace

std::uint32_t dtype_bits(std::string_view name) {
  for (const auto& [n, bits] : kTypes)
    if (n == name) return bits;
  return 0;
}

const std::vector<std::string>& dtype_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> v;
    for (const auto& t : kTypes) v.emplace_back(t.first);
    return v;
  }();
  return names;
}

static_assert(std::endian::native == std::endian::little,
              "safetensors data are little-endian and used without byte swapping");

float f32_from_f16(std::uint16_t bits) {
  constexpr std::uint32_t kExponent = 0x7C00u << 13;
  // Exponent and mantissa at their f32 positions; the exponent bias is still 15.
  std::uint32_t u = (bits & 0x7FFFu) << 13;
  std::uint32_t exponent = u & kExponent;
  u += (127u - 15u) << 23;
  if (exponent == kExponent) {
    u += (128u - 16u) << 23;  // infinity or NaN
  } else if (exponent == 0) {
    // Zero or subnormal: add the exponent of 2^-14, then subtract 2^-14 as a float; the difference is exact.
    float f = std::bit_cast<float>(u + (1u << 23)) - std::bit_cast<float>(113u << 23);
    u = std::bit_cast<std::uint32_t>(f);
  }
  return std::bit_cast<float>(u | (bits & 0x8000u) << 16);
}

std::uint16_t f16_from_f32(float value) {
  const std::uint32_t u = std::bit_cast<std::uint32_t>(value), magnitude = u & 0x7FFFFFFFu;
  const auto sign = static_cast<std::uint16_t>(u >> 16 & 0x8000u);
  if (magnitude > 0x7F800000u) return sign | 0x7E00u;   // NaN
  if (magnitude >= 0x477FF000u) return sign | 0x7C00u;  // 65520 and above: infinite
  if (magnitude < 0x38800000u) {                        // below 2^-14: subnormal
    // Adding 0.5 moves the last place of f16, 2^-24, to the last place of f32; the addition rounds.
    const float moved = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(moved) - 0x3F000000u));
  }
  const std::uint32_t rounded = magnitude + 0xFFFu + (magnitude >> 13 & 1);  // as for bf16
  return static_cast<std::uint16_t>(sign | (rounded - 0x38000000u) >> 13);
}

// The types that can be loaded into f32 weights; F64 is rounded.
bool loads_as_f32(std::string_view dtype) {
  return dtype == "F32" || dtype == "F16" || dtype == "BF16" || dtype == "F64";
}

void widen_in_place(std::span<float> out, bool bf16) {
  // out[i] overwrites the stored values 2i-n and 2i-n+1 (n = out.size()), neither of which is after i: every
  // value is read before it is overwritten. The values go through an array of their own, because GCC 12 takes
  // one loop with both pointers into the same buffer for one without effect, and removes calls of it (the
  // store has base address 0 after -fivopts, which -fipa-pure-const does not count as memory).
  const std::byte* from = std::as_bytes(out).data() + 2 * out.size();
  std::array<std::uint16_t, 512> piece;
  for (std::size_t i = 0; i < out.size(); i += piece.size()) {
    const std::size_t n = std::min(piece.size(), out.size() - i);
    std::memcpy(piece.data(), from + 2 * i, 2 * n);
    for (std::size_t k = 0; k < n; ++k) out[i + k] = bf16 ? f32_from_bf16(piece[k]) : f32_from_f16(piece[k]);
  }
}

// Compared as bits: independent of floating-point flags of the compiler.
NonFinite count_nonfinite(std::span<const float> values) {
  constexpr std::uint32_t kInf = 0x7F800000u;
  std::uint64_t count = 0;
  for (float f : values) count += (std::bit_cast<std::uint32_t>(f) & kInf) == kInf;
  NonFinite r{count, 0};
  if (count > 0)
    while ((std::bit_cast<std::uint32_t>(values[r.first]) & kInf) != kInf) ++r.first;
  return r;
}

}  // namespace trainhost::checkpoint
