// Sizes that saturate: search compares millions of layouts and wants an absurd one to be the worst, not an
// exception. Once a size is too large it stays so through sums, shares and products, but for a product with
// nothing, which is nothing. Readers that promise exactness ask too_large() of the size that they show; a
// formula beside it may hold value(), cut off at kMaxBytes, because such a leaf is refused.
#pragma once
#include <algorithm>
#include <cstdint>

#include "core/base/checked.hpp"

namespace trainhost::parallel {

class Size {
 public:
  constexpr Size(std::uint64_t v = 0) : v_(v > kMaxBytes ? kTooLarge : v) {}
  constexpr bool too_large() const { return v_ == kTooLarge; }
  /// At most kMaxBytes.
  constexpr std::uint64_t value() const { return std::min(v_, kMaxBytes); }

  friend constexpr Size operator+(Size a, Size b) {
    std::uint64_t r;
    return __builtin_add_overflow(a.v_, b.v_, &r) ? Size(kTooLarge) : Size(r);
  }
  friend constexpr Size operator*(Size a, Size b) {
    std::uint64_t r;
    return __builtin_mul_overflow(a.v_, b.v_, &r) ? Size(kTooLarge) : Size(r);
  }
  /// Rounded up: the largest of n equal shares. n > 0.
  friend constexpr Size share(Size a, std::uint64_t n) {
    return a.too_large() || n == 1 ? a : Size(a.v_ / n + (a.v_ % n != 0));
  }
  Size& operator+=(Size b) { return *this = *this + b; }
  friend constexpr auto operator<=>(Size, Size) = default;

 private:
  static constexpr std::uint64_t kTooLarge = UINT64_MAX;
  std::uint64_t v_;
};

}  // namespace trainhost::parallel
