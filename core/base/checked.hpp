// Size arithmetic with overflow checks, for every product of dimensions, whatever its source (config, file
// header, built-in table). Throws Error (exit 2, "too large"). Saturating sizes for search:
// core/parallel/saturating_size.hpp.
#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/base/error.hpp"

namespace trainhost {

inline constexpr std::uint64_t kMaxBytes = INT64_MAX;  // below 2^63, so that signed offsets are safe

[[noreturn]] void throw_too_large(const char* what);

/// Whether `e` is an error of throw_too_large(); also if a plugin passed on only its message.
bool is_too_large(const Error& e);

/// `e` with up to four of `numbers` (user-visible name, value) appended, largest first: "...; the largest
/// numbers in it are hidden_size = 2147483647, ...".
Error with_largest(const Error& e, std::vector<std::pair<std::string, std::uint64_t>> numbers,
                   const Where& where);

inline std::uint64_t checked_add(std::uint64_t a, std::uint64_t b, const char* what = "a size") {
  std::uint64_t r;
  if (__builtin_add_overflow(a, b, &r) || r > kMaxBytes) throw_too_large(what);
  return r;
}

/// a * b * ...; left to right, so a zero factor prevents later overflows.
template <class... T>
std::uint64_t checked_mul(std::uint64_t a, T... rest) {
  std::uint64_t r = a;
  ((r =
        [&](std::uint64_t b) {
          std::uint64_t p;
          if (__builtin_mul_overflow(r, b, &p) || p > kMaxBytes) throw_too_large("a product of dimensions");
          return p;
        }(static_cast<std::uint64_t>(rest))),
   ...);
  return r;
}

/// Smallest multiple of `align` (a power of two) that is >= n.
inline std::uint64_t align_up(std::uint64_t n, std::uint64_t align) {
  return checked_add(n, align - 1, "an aligned size") & ~(align - 1);
}

}  // namespace trainhost
