// The types of the safetensors reference implementation, including its 4-, 6- and 8-bit floats.
#include "core/checkpoint/dtypes.hpp"

#include <array>
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

}  // namespace trainhost::checkpoint
