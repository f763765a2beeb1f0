// See linker_cache.hpp. Layout: a header of 48 bytes, entries of 24 (flags, key, value, version, hardware),
// names; offsets count from the header.
#include "core/plugin/linker_cache.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace trainhost::plugin {
namespace {

constexpr std::string_view kMagic = "glibc-ld.so.cache1.1";
constexpr std::size_t kHeader = 48, kEntry = 24, kKey = 4, kMaxName = 256;

/// 0 outside the file.
std::uint32_t number_at(std::string_view bytes, std::size_t at) {
  std::uint32_t n = 0;
  if (at <= bytes.size() && sizeof n <= bytes.size() - at) std::memcpy(&n, bytes.data() + at, sizeof n);
  return n;
}

/// Up to its NUL; "" for one that has no end within kMaxName, or none at all.
std::string_view name_at(std::string_view bytes, std::size_t at) {
  if (at >= bytes.size()) return {};
  const std::string_view rest = bytes.substr(at, kMaxName);
  const std::size_t end = rest.find('\0');
  return end == rest.npos ? std::string_view() : rest.substr(0, end);
}

}  // namespace

std::set<std::string> sonames_in_cache(std::string_view bytes) {
  std::set<std::string> out;
  const std::size_t base = bytes.find(kMagic);
  if (base == bytes.npos) return out;
  const auto count = std::min<std::size_t>(number_at(bytes, base + kMagic.size()), bytes.size() / kEntry);
  for (std::size_t i = 0; i < count; ++i) {
    const std::string_view name = name_at(bytes, base + number_at(bytes, base + kHeader + i * kEntry + kKey));
    if (!name.empty()) out.emplace(name);
  }
  return out;
}

}  // namespace trainhost::plugin
