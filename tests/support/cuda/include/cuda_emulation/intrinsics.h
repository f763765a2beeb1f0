// Built-in device functions of CUDA. Approximate functions (__expf) call the C library, so they are more
// accurate than on the device; tests use tolerances that hold for both.
#pragma once
#include "execution.h"

#include <math.h>
#include <string.h>

#include <algorithm>
#include <type_traits>

// Macros, because the C library declares functions with these names.
#define __expf ::expf
#define __logf ::logf
#define __exp10f ::exp10f
#define __log2f ::log2f
#define __sinf ::sinf
#define __cosf ::cosf
#define __powf ::powf

inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
inline double rsqrt(double x) { return 1.0 / sqrt(x); }
inline float __fdividef(float a, float b) { return a / b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
inline float __fsqrt_rn(float a) { return sqrtf(a); }
inline float __frcp_rn(float a) { return 1.0f / a; }

template <class A, class B>
constexpr std::common_type_t<A, B> min(A a, B b) {
  return b < a ? b : a;
}
template <class A, class B>
constexpr std::common_type_t<A, B> max(A a, B b) {
  return a < b ? b : a;
}

// ---- bits
inline unsigned __float_as_uint(float x) { return __builtin_bit_cast(unsigned, x); }
inline int __float_as_int(float x) { return __builtin_bit_cast(int, x); }
inline float __uint_as_float(unsigned x) { return __builtin_bit_cast(float, x); }
inline float __int_as_float(int x) { return __builtin_bit_cast(float, x); }
inline long long __double_as_longlong(double x) { return __builtin_bit_cast(long long, x); }
inline double __longlong_as_double(long long x) { return __builtin_bit_cast(double, x); }
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __clz(int x) { return x == 0 ? 32 : __builtin_clz(static_cast<unsigned>(x)); }

// ---- memory
template <class T>
T __ldg(const T* p) {
  return *p;
}
template <class T>
T __ldcg(const T* p) {
  return *p;
}
template <class T>
T __ldcs(const T* p) {
  return *p;
}
template <class T>
void __stcg(T* p, T v) {
  *p = v;
}
template <class T>
void __stcs(T* p, T v) {
  *p = v;
}
inline void __threadfence() {}
inline void __threadfence_block() {}

namespace emu {
template <class T>
T fetch_add(T* p, T v) {
  T old = *p;
  *p = static_cast<T>(old + v);
  return old;
}
}  // namespace emu
// Integers only: floating-point sums by atomics would not be reproducible.
inline int atomicAdd(int* p, int v) { return emu::fetch_add(p, v); }
inline unsigned atomicAdd(unsigned* p, unsigned v) { return emu::fetch_add(p, v); }
inline unsigned long long atomicAdd(unsigned long long* p, unsigned long long v) {
  return emu::fetch_add(p, v);
}
inline int atomicMax(int* p, int v) {
  int old = *p;
  *p = std::max(old, v);
  return old;
}
inline int atomicExch(int* p, int v) {
  int old = *p;
  *p = v;
  return old;
}
inline int atomicCAS(int* p, int expected, int v) {
  int old = *p;
  if (old == expected) *p = v;
  return old;
}

// ---- barriers, votes and shuffles
inline void __syncthreads() { emu::block_barrier(); }
[[noreturn]] inline void __trap() { emu::trap("__trap()"); }

namespace emu {
struct Shuffle {
  unsigned long long value, result;
  unsigned from;  // lane
};
struct Vote {
  bool predicate;
  unsigned result;  // of all lanes
};
void no_operation(void* const* lanes, unsigned mask);  // only waits for the lanes
void shuffle(void* const* lanes, unsigned mask);       // reading a lane outside the mask returns NaN bytes
void vote(void* const* lanes, unsigned mask);

template <class T>
T shuffled(unsigned mask, T value, unsigned from) {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= 8);
  Shuffle s{0, 0, from};
  memcpy(&s.value, &value, sizeof(T));
  warp_collective(mask, shuffle, &s);
  memcpy(static_cast<void*>(&value), &s.result, sizeof(T));
  return value;
}
inline unsigned voted(unsigned mask, bool predicate) {
  Vote v{predicate, 0};
  warp_collective(mask, vote, &v);
  return v.result;
}
}  // namespace emu

inline void __syncwarp(unsigned mask = 0xffffffffu) {
  emu::warp_collective(mask, emu::no_operation, nullptr);
}
inline unsigned __ballot_sync(unsigned mask, int predicate) { return emu::voted(mask, predicate != 0); }
inline int __any_sync(unsigned mask, int predicate) { return emu::voted(mask, predicate != 0) != 0; }
inline int __all_sync(unsigned mask, int predicate) { return emu::voted(mask, predicate == 0) == 0; }

// Shuffles work inside segments of `width` lanes; a lane whose source would be outside its segment gets its
// own value.
template <class T>
T __shfl_sync(unsigned mask, T value, int source, int width = 32) {
  const unsigned w = static_cast<unsigned>(width), me = emu::lane();
  return emu::shuffled(mask, value, (me & ~(w - 1)) | (static_cast<unsigned>(source) & (w - 1)));
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = 32) {
  const unsigned w = static_cast<unsigned>(width), me = emu::lane(),
                 from = me ^ static_cast<unsigned>(lane_mask);
  return emu::shuffled(mask, value, from > (me | (w - 1)) ? me : from & 31);
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32) {
  const unsigned w = static_cast<unsigned>(width), me = emu::lane();
  return emu::shuffled(mask, value, (me & (w - 1)) + delta >= w ? me : me + delta);
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32) {
  const unsigned w = static_cast<unsigned>(width), me = emu::lane();
  return emu::shuffled(mask, value, (me & (w - 1)) < delta ? me : me - delta);
}
