// Size arithmetic that notices overflow. Every product of dimensions goes through here, whether the numbers
// come from a config, a file header or our own tables. Throws Error (exit 2, "too large"); never wraps, never
// saturates.
#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/base/error.hpp"

namespace trainhost {

inline constexpr std::uint64_t kMaxBytes =
    INT64_MAX;  // sizes stay below 2^63, so that signed offsets are safe

[[noreturn]] void throw_too_large(const char* what);

/// Whether an error is one of throw_too_large's, also where a plugin passed on its words alone.
bool is_too_large(const Error& e);

/// `e` with the numbers behind it: "...; the largest numbers in it are hidden_size = 2147483647, ...". At
/// most four, the largest first; `numbers` are names as the user writes them, with their values.
Error with_largest(const Error& e, std::vector<std::pair<std::string, std::uint64_t>> numbers,
                   const Where& where);

inline std::uint64_t checked_add(std::uint64_t a, std::uint64_t b, const char* what = "a size") {
  std::uint64_t r;
  if (__builtin_add_overflow(a, b, &r) || r > kMaxBytes) throw_too_large(what);
  return r;
}

/// a * b * ..., zero as soon as one factor is zero.
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
