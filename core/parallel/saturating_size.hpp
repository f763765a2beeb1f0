// Size: a saturating byte count. Search compares millions of layouts; a layout that overflows must compare as
// largest and not throw. A size that is too large stays so in sums, shares and products (except times 0).
// Exact reports check too_large() and reject the entry; value() is limited to kMaxBytes.
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
  /// a / n rounded up. n > 0.
  friend constexpr Size share(Size a, std::uint64_t n) {
    return a.too_large() || n == 1 ? a : Size(a.v_ / n + (a.v_ % n != 0));
  }
  /// Less `b`, which is a part of it.
  constexpr Size without(Size b) const { return too_large() ? *this : Size(v_ - std::min(v_, b.v_)); }
  Size& operator+=(Size b) { return *this = *this + b; }
  friend constexpr auto operator<=>(Size, Size) = default;

 private:
  static constexpr std::uint64_t kTooLarge = UINT64_MAX;
  std::uint64_t v_;
};

}  // namespace trainhost::parallel
