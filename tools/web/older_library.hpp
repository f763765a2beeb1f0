// What the C++ library of Emscripten 3.1.6 (libc++ 13) lacks of C++20 and this program uses: algorithms of
// std::ranges, from_chars() and to_chars() of floating-point numbers, bit_cast() and jthread. Included before
// every source by tools/web/build; empty with a newer library. Numbers are read by strtod(), which rounds
// correctly.
#pragma once
#include <version>
#if defined(_LIBCPP_VERSION) && _LIBCPP_VERSION < 15000
#include <algorithm>
#include <bit>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <iterator>
#include <string>
#include <thread>
#include <utility>
namespace std {
struct web_identity {
  template <class T>
  constexpr T&& operator()(T&& t) const noexcept {
    return static_cast<T&&>(t);
  }
};
namespace ranges {
template <class R, class F, class P = web_identity>
constexpr bool any_of(R&& r, F f, P p = {}) {
  for (auto&& x : r)
    if (std::invoke(f, std::invoke(p, x))) return true;
  return false;
}
template <class R, class F, class P = web_identity>
constexpr bool all_of(R&& r, F f, P p = {}) {
  for (auto&& x : r)
    if (!std::invoke(f, std::invoke(p, x))) return false;
  return true;
}
template <class R, class F, class P = web_identity>
constexpr bool none_of(R&& r, F f, P p = {}) {
  return !any_of(r, f, p);
}
template <class R, class F, class P = web_identity>
constexpr auto find_if(R&& r, F f, P p = {}) {
  auto i = std::begin(r);
  for (; i != std::end(r); ++i)
    if (std::invoke(f, std::invoke(p, *i))) break;
  return i;
}
template <class R, class F, class T>
constexpr void replace_if(R&& r, F f, const T& v) {
  std::replace_if(std::begin(r), std::end(r), f, v);
}
template <class R, class T, class P = web_identity>
constexpr auto find(R&& r, const T& v, P p = {}) {
  auto i = std::begin(r);
  for (; i != std::end(r); ++i)
    if (std::invoke(p, *i) == v) break;
  return i;
}
template <class R, class T, class P = web_identity>
constexpr auto count(R&& r, const T& v, P p = {}) {
  std::ptrdiff_t n = 0;
  for (auto&& x : r) n += std::invoke(p, x) == v;
  return n;
}
template <class R, class C = std::less<>, class P = web_identity>
constexpr auto max_element(R&& r, C c = {}, P p = {}) {
  return std::max_element(std::begin(r), std::end(r), [&](auto&& a, auto&& b) {
    return std::invoke(c, std::invoke(p, a), std::invoke(p, b));
  });
}
template <class R, class C = std::less<>, class P = web_identity>
constexpr auto min_element(R&& r, C c = {}, P p = {}) {
  return std::min_element(std::begin(r), std::end(r), [&](auto&& a, auto&& b) {
    return std::invoke(c, std::invoke(p, a), std::invoke(p, b));
  });
}
template <class R, class C = std::less<>, class P = web_identity>
constexpr bool is_sorted(R&& r, C c = {}, P p = {}) {
  return std::is_sorted(std::begin(r), std::end(r), [&](auto&& a, auto&& b) {
    return std::invoke(c, std::invoke(p, a), std::invoke(p, b));
  });
}
template <class R, class C = std::less<>, class P = web_identity>
constexpr auto sort(R&& r, C c = {}, P p = {}) {
  std::sort(std::begin(r), std::end(r),
            [&](auto&& a, auto&& b) { return std::invoke(c, std::invoke(p, a), std::invoke(p, b)); });
  return std::end(r);
}
template <class R, class C = std::less<>, class P = web_identity>
auto stable_sort(R&& r, C c = {}, P p = {}) {
  std::stable_sort(std::begin(r), std::end(r),
                   [&](auto&& a, auto&& b) { return std::invoke(c, std::invoke(p, a), std::invoke(p, b)); });
  return std::end(r);
}
template <class R, class T, class C = std::less<>, class P = web_identity>
constexpr auto lower_bound(R&& r, const T& v, C c = {}, P p = {}) {
  return std::lower_bound(std::begin(r), std::end(r), v,
                          [&](auto&& a, auto&& b) { return std::invoke(c, std::invoke(p, a), b); });
}
template <class R, class T, class C = std::less<>, class P = web_identity>
constexpr auto upper_bound(R&& r, const T& v, C c = {}, P p = {}) {
  return std::upper_bound(std::begin(r), std::end(r), v,
                          [&](auto&& b, auto&& a) { return std::invoke(c, b, std::invoke(p, a)); });
}
template <class R, class F, class P = web_identity>
constexpr auto count_if(R&& r, F f, P p = {}) {
  std::ptrdiff_t n = 0;
  for (auto&& x : r) n += static_cast<bool>(std::invoke(f, std::invoke(p, x)));
  return n;
}
template <class R, class O, class F>
constexpr auto copy_if(R&& r, O o, F f) {
  return std::copy_if(std::begin(r), std::end(r), o, f);
}
template <class R, class O>
constexpr auto move(R&& r, O o) {
  return std::move(std::begin(r), std::end(r), o);
}
template <class R, class O, class F>
constexpr auto transform(R&& r, O o, F f) {
  return std::transform(std::begin(r), std::end(r), o, f);
}
template <class R, class F, class P = web_identity>
constexpr void for_each(R&& r, F f, P p = {}) {
  for (auto&& x : r) std::invoke(f, std::invoke(p, x));
}
template <class R, class O>
constexpr auto copy(R&& r, O o) {
  return std::copy(std::begin(r), std::end(r), o);
}
template <class A, class B, class F = std::equal_to<>, class P = web_identity, class Q = web_identity>
constexpr bool equal(A&& a, B&& b, F f = {}, P p = {}, Q q = {}) {
  return std::equal(std::begin(a), std::end(a), std::begin(b), std::end(b),
                    [&](auto&& x, auto&& y) { return std::invoke(f, std::invoke(p, x), std::invoke(q, y)); });
}
template <class R, class C = std::less<>, class P = web_identity>
constexpr auto max(R&& r, C c = {}, P p = {}) {
  return *ranges::max_element(r, c, p);
}
}  // namespace ranges
inline from_chars_result from_chars(const char* first, const char* last, double& v,
                                    chars_format = chars_format::general) {
  const char* e = first;
  if (e != last && *e == '-') ++e;
  const char* digits = e;
  while (e != last && *e >= '0' && *e <= '9') ++e;
  bool any = e != digits;
  if (e != last && *e == '.') {
    const char* d = ++e;
    while (e != last && *e >= '0' && *e <= '9') ++e;
    any = any || e != d;
    if (!any) return {first, errc::invalid_argument};
  }
  if (!any) return {first, errc::invalid_argument};
  if (e != last && (*e == 'e' || *e == 'E')) {
    const char* x = e + 1;
    if (x != last && (*x == '+' || *x == '-')) ++x;
    if (x != last && *x >= '0' && *x <= '9') {
      while (x != last && *x >= '0' && *x <= '9') ++x;
      e = x;
    }
  }
  const std::string text(first, e);
  const double d = std::strtod(text.c_str(), nullptr);
  if (d > 1.7976931348623157e308 || d < -1.7976931348623157e308) return {e, errc::result_out_of_range};
  if (d == 0)
    for (const char* c = first; c != e && *c != 'e' && *c != 'E'; ++c)
      if (*c >= '1' && *c <= '9') return {e, errc::result_out_of_range};
  v = d;
  return {e, errc{}};
}
inline from_chars_result from_chars(const char* first, const char* last, long double& v,
                                    chars_format f = chars_format::general) {
  double d = 0;
  const from_chars_result r = from_chars(first, last, d, f);
  if (r.ec == errc{}) v = std::strtold(std::string(first, r.ptr).c_str(), nullptr);
  return r;
}
inline to_chars_result to_chars(char* first, char* last, double x, chars_format, int precision) {
  char text[64];
  const int n = std::snprintf(text, sizeof text, "%.*g", precision, x);
  if (last - first < n) return {last, errc::value_too_large};
  std::memcpy(first, text, static_cast<std::size_t>(n));
  return {first + n, errc{}};
}
inline to_chars_result to_chars(char* first, char* last, double x) {
  char text[40];
  const int n = std::snprintf(text, sizeof text, "%.17g", x);
  if (last - first < n) return {last, errc::value_too_large};
  std::memcpy(first, text, static_cast<std::size_t>(n));
  return {first + n, errc{}};
}
inline to_chars_result to_chars(char* first, char* last, double x, chars_format) {
  char text[40];
  for (int digits = 0; digits <= 17; ++digits) {
    std::snprintf(text, sizeof text, "%.*e", digits, x);
    if (std::strtod(text, nullptr) == x) break;
  }
  const std::size_t n = std::strlen(text);
  if (static_cast<std::size_t>(last - first) < n) return {last, errc::value_too_large};
  std::memcpy(first, text, n);
  return {first + n, errc{}};
}
struct jthread : thread {
  using thread::thread;
  jthread(jthread&&) = default;
  ~jthread() {
    if (joinable()) join();
  }
};
#ifndef __cpp_lib_bit_cast
template <class To, class From>
constexpr To bit_cast(const From& f) noexcept {
  return __builtin_bit_cast(To, f);
}
#endif
}  // namespace std
#endif
