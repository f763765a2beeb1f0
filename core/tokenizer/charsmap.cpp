// See charsmap.hpp.
#include "core/tokenizer/charsmap.hpp"

#include <cstring>
#include <stdexcept>

#include "core/base/text.hpp"
#include "core/tokenizer/unicode.hpp"

namespace trainhost::tokenizer {
namespace {

std::string from_base64(std::string_view text) {
  static constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::uint32_t values[256];
  for (std::uint32_t& v : values) v = 64;
  for (std::uint32_t i = 0; i < 64; ++i) values[static_cast<unsigned char>(kDigits[i])] = i;
  while (!text.empty() && text.back() == '=') text.remove_suffix(1);
  std::string out;
  std::uint32_t bits = 0;
  unsigned count = 0;
  for (char c : text) {
    const std::uint32_t v = values[static_cast<unsigned char>(c)];
    if (v == 64) throw std::invalid_argument("it is not base64");
    bits = bits << 6 | v;
    if ((count += 6) >= 8) {
      count -= 8;
      out += static_cast<char>(bits >> count);
    }
  }
  return out;
}

}  // namespace

Charsmap::Charsmap(std::string_view base64) {
  const std::string bytes = from_base64(base64);
  std::uint32_t size = 0;
  if (bytes.size() < sizeof size) throw std::invalid_argument("it is too short");
  std::memcpy(&size, bytes.data(), sizeof size);
  if (size % 4 != 0 || size == 0 || size > bytes.size() - 4)
    throw std::invalid_argument("its table is longer than the data");
  units_.resize(size / 4);
  std::memcpy(units_.data(), bytes.data() + 4, size);
  texts_ = bytes.substr(4 + size);
  if (!valid_utf8(texts_)) throw std::invalid_argument("its texts are not UTF-8");
}

/// Bits of a unit: 31 and 0-7 label, 8 has a value, 9 the offset (bits 10-30) is shifted by 8 more.
std::optional<std::string_view> Charsmap::replacement(std::string_view chunk) const {
  const auto offset = [](std::uint32_t unit) { return (unit >> 10) << ((unit & (1u << 9)) >> 6); };
  std::uint64_t node = offset(units_[0]);
  for (char ch : chunk) {
    const auto c = static_cast<unsigned char>(ch);
    node ^= c;
    if (c == 0 || node >= units_.size()) return std::nullopt;
    const std::uint32_t unit = units_[node];
    if ((unit & (1u << 31 | 0xFF)) != c) return std::nullopt;
    node ^= offset(unit);
    if (node >= units_.size()) return std::nullopt;
    if (unit >> 8 & 1) {
      const std::uint32_t at = units_[node] & ~(1u << 31);
      if (at >= texts_.size()) return std::nullopt;
      const std::size_t end = texts_.find('\0', at);
      return std::string_view(texts_).substr(at, end == std::string::npos ? end : end - at);
    }
  }
  return std::nullopt;
}

void Charsmap::append_replaced(std::string& out, std::string_view text) const {
  while (!text.empty()) {
    const std::string_view cluster = text.substr(0, first_grapheme(text));
    text.remove_prefix(cluster.size());
    if (cluster.size() < 6)
      if (const auto r = replacement(cluster)) {
        out.append(*r);
        continue;
      }
    for (std::size_t at = 0; at < cluster.size();) {
      const std::string_view c = cluster.substr(at, utf8_length(cluster[at]));
      at += c.size();
      out.append(replacement(c).value_or(c));
    }
  }
}

}  // namespace trainhost::tokenizer
