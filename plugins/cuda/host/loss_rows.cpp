// Cross-entropy of a row in two passes: sum of exponentials relative to the largest logit so far, then the
// gradient. The first pass goes through the row in blocks that fit into L1 and prefetches the next block, so
// that reading memory overlaps with computing; the second one finds the row in L2. Written with vector types
// of GCC, because loops over arrays were not vectorised for bf16. Compiled with -ffp-contract=fast. See
// loss_rows.hpp.
#include "plugins/cuda/host/loss_rows.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#define TRAINHOST_INLINE inline __attribute__((always_inline))

namespace trainhost::cuda::host {
namespace {

constexpr std::uint64_t kStep = 32;                   // elements of a step of a loop
constexpr std::uint64_t kAhead = 4096, kBlocks = 64;  // bytes of a block at least; blocks of a row at most
constexpr float kLog2e = 1.44269504f;
// Adding 1.5 * 2^23 rounds to an integer, which is then in the lower bits of the sum. With 127 more, shifting
// the sum by 23 bits gives the number with that exponent.
constexpr float kRound = 12582912.0f + 127.0f;
// Logits are compared with this one first, so that rows may begin with -inf. A row without a larger one has a
// loss that is NaN.
constexpr float kLeastTop = -1048576.0f;

/// Exponentials are computed relative to 2^exponent, an integer next to the largest logit: 2^(x log2 e -
/// exponent). Logits below `lowest` count as `lowest`, at 2^-125.
struct Reference {
  float round, lowest;
  double exponent;
};
TRAINHOST_INLINE Reference reference_of(float top) {
  const float exponent = std::ceil(top * kLog2e), round = kRound - exponent;
  return {round, (exponent - 125.0f) / kLog2e, static_cast<double>(kRound) - static_cast<double>(round)};
}

TRAINHOST_INLINE float widen(float x) { return x; }
TRAINHOST_INLINE float widen(Half x) {
  const std::uint32_t bits = static_cast<std::uint32_t>(x) << 16;
  float f;
  std::memcpy(&f, &bits, sizeof f);
  return f;
}

TRAINHOST_INLINE float minus_infinity(const float*) { return -INFINITY; }
TRAINHOST_INLINE Half minus_infinity(const Half*) { return 0xff80; }

/// kLanes elements of f32 in a vector. A step is always added up in the same order, whatever kLanes is.
template <unsigned kLanes>
struct Rows {
  typedef float F __attribute__((vector_size(kLanes * 4)));
  typedef std::uint32_t U __attribute__((vector_size(kLanes * 4)));
  typedef std::int16_t I16 __attribute__((vector_size(kLanes * 4)));
  typedef std::uint16_t U16 __attribute__((vector_size(kLanes * 4)));
  static constexpr unsigned kVectors = kStep / kLanes;

  /// The elements of a step; of bf16 first those with even, then those with odd indices.
  struct Step {
    F v[kVectors];
  };
  static TRAINHOST_INLINE void load(const float* at, Step& s) {
#pragma GCC unroll 8
    for (unsigned i = 0; i < kVectors; ++i) std::memcpy(&s.v[i], at + i * kLanes, sizeof(F));
  }
  static TRAINHOST_INLINE void load(const Half* at, Step& s) {
#pragma GCC unroll 8
    for (unsigned i = 0; i < kVectors / 2; ++i) {
      U both;
      std::memcpy(&both, at + i * 2 * kLanes, sizeof both);
      s.v[i] = reinterpret_cast<F>(both << 16);
      s.v[i + kVectors / 2] = reinterpret_cast<F>(both & 0xffff0000u);
    }
  }
  static TRAINHOST_INLINE void store(float* at, const Step& s) { std::memcpy(at, &s, sizeof s); }
  /// Rounds positive numbers to nearest. A tie goes up, not to even: one in 65536 differs.
  static TRAINHOST_INLINE void store(Half* at, const Step& s) {
#pragma GCC unroll 8
    for (unsigned i = 0; i < kVectors / 2; ++i) {
      const U even = reinterpret_cast<U>(s.v[i]) + 0x8000u,
              odd = reinterpret_cast<U>(s.v[i + kVectors / 2]) + 0x8000u,
              both = (even >> 16) | (odd & 0xffff0000u);
      std::memcpy(at + i * 2 * kLanes, &both, sizeof both);
    }
  }

  static TRAINHOST_INLINE float sum(Step& s) {
#pragma GCC unroll 8
    for (unsigned half = kVectors / 2; half > 0; half /= 2)
#pragma GCC unroll 8
      for (unsigned i = 0; i < half; ++i) s.v[i] += s.v[i + half];
    float lanes[kLanes];
    std::memcpy(lanes, &s.v[0], sizeof lanes);
#pragma GCC unroll 8
    for (unsigned half = kLanes / 2; half > 0; half /= 2)
#pragma GCC unroll 8
      for (unsigned i = 0; i < half; ++i) lanes[i] += lanes[i + half];
    return lanes[0];
  }

  static TRAINHOST_INLINE float largest(const float* x, std::uint64_t n) {
    Step top;
    load(x, top);
    for (std::uint64_t i = kStep; i < n; i += kStep) {
      Step s;
      load(x + i, s);
#pragma GCC unroll 8
      for (unsigned v = 0; v < kVectors; ++v) top.v[v] = s.v[v] > top.v[v] ? s.v[v] : top.v[v];
    }
    float all[kStep], most = -INFINITY;
    std::memcpy(all, &top, sizeof all);
    for (float f : all) most = f > most ? f : most;
    return most;
  }
  /// The bits of bf16 as integers: of positive numbers the largest is the largest, of negative ones the
  /// smallest.
  static TRAINHOST_INLINE float largest(const Half* x, std::uint64_t n) {
    I16 most[kVectors / 2];
    U16 least[kVectors / 2];
    std::memcpy(&most, x, sizeof most), std::memcpy(&least, x, sizeof least);
    for (std::uint64_t i = kStep; i < n; i += kStep)
#pragma GCC unroll 8
      for (unsigned v = 0; v < kVectors / 2; ++v) {
        I16 bits;
        std::memcpy(&bits, x + i + v * 2 * kLanes, sizeof bits);
        const U16 positive = reinterpret_cast<U16>(bits);
        most[v] = bits > most[v] ? bits : most[v];
        least[v] = positive < least[v] ? positive : least[v];
      }
    std::int16_t highest[kStep];
    Half lowest[kStep];
    std::memcpy(highest, &most, sizeof highest), std::memcpy(lowest, &least, sizeof lowest);
    const std::int16_t high = *std::max_element(highest, highest + kStep);
    return widen(high >= 0 ? static_cast<Half>(high) : *std::min_element(lowest, lowest + kStep));
  }

  /// Replaces x by e^x relative to the reference, for f32 results: relative error below 3e-7. x = n ln 2 + r;
  /// ln 2 is subtracted in two parts, of which the first has few bits, so that n times it is exact. NaN stays
  /// NaN.
  static TRAINHOST_INLINE void exponential(F& x, const F& lowest, const F& round) {
    x = lowest > x ? lowest : x;
    const F rounded = x * kLog2e + round, n = rounded - round,
            r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
    // The polynomial of degree 5 with the least relative error, 7.5e-8, for |r| <= ln 2 / 2.
    F p = r * 0.00829765508f + 0.041915382f;
    p = p * r + 0.166675747f;
    p = p * r + 0.499988949f;
    p = p * r + 0.999999692f;
    p = p * r + 1.00000007f;
    x = p * reinterpret_cast<F>(reinterpret_cast<U>(rounded) << 23);
  }
  /// The same with one rounding of log2 e for all logits, as if each were larger by a part of 1.3e-8: for
  /// sums of bf16. Degree 5: relative error 7.5e-8 for |r| <= 1/2.
  static TRAINHOST_INLINE void exponential_of_bf16(F& x, const F& lowest, const F& round) {
    x = lowest > x ? lowest : x;
    const F rounded = x * kLog2e + round, r = x * kLog2e - (rounded - round);
    F p = r * 0.0013276472f + 0.00967554133f;
    p = p * r + 0.0555071327f;
    p = p * r + 0.240221197f;
    p = p * r + 0.693146967f;
    p = p * r + 1.00000007f;
    x = p * reinterpret_cast<F>(reinterpret_cast<U>(rounded) << 23);
  }
  /// The same times the factor in the coefficients, for gradients in bf16, which have 8 bits: the relative
  /// error of degree 3, 7.5e-5, is at most a 26th of half a unit of their last bit.
  static TRAINHOST_INLINE void gradient_in_bf16(F& x, const F& lowest, const F& round, const F (&c)[4]) {
    x = lowest > x ? lowest : x;
    const F rounded = x * kLog2e + round, r = x * kLog2e - (rounded - round);
    x = (((c[3] * r + c[2]) * r + c[1]) * r + c[0]) * reinterpret_cast<F>(reinterpret_cast<U>(rounded) << 23);
  }

  static TRAINHOST_INLINE void prefetch(const void* at) {  // may lie behind the logits
    __builtin_prefetch(reinterpret_cast<const void*>(reinterpret_cast<std::uintptr_t>(at) + kAhead));
  }

  /// Sum of the exponentials of a block. f32 stores them.
  static TRAINHOST_INLINE float exponentials(float* x, std::uint64_t n, const Reference& ref) {
    const F lowest = F{} + ref.lowest, round = F{} + ref.round;
    Step sums{};
    for (std::uint64_t i = 0; i < n; i += kStep) {
      prefetch(x + i), prefetch(x + i + kStep / 2);
      Step s;
      load(x + i, s);
#pragma GCC unroll 8
      for (unsigned v = 0; v < kVectors; ++v) exponential(s.v[v], lowest, round), sums.v[v] += s.v[v];
      store(x + i, s);
    }
    return sum(sums);
  }
  static TRAINHOST_INLINE float exponentials(Half* x, std::uint64_t n, const Reference& ref) {
    const F lowest = F{} + ref.lowest, round = F{} + ref.round;
    Step sums{};
    for (std::uint64_t i = 0; i < n; i += kStep) {
      prefetch(x + i);
      Step s;
      load(x + i, s);
#pragma GCC unroll 8
      for (unsigned v = 0; v < kVectors; ++v) exponential_of_bf16(s.v[v], lowest, round), sums.v[v] += s.v[v];
    }
    return sum(sums);
  }

  /// Replaces a block by its gradient: factor * exponentials, which f32 has stored.
  static TRAINHOST_INLINE void gradients(float* x, std::uint64_t n, const Reference&, float factor) {
    for (std::uint64_t i = 0; i < n; i += kStep) {
      Step s;
      load(x + i, s);
#pragma GCC unroll 8
      for (unsigned v = 0; v < kVectors; ++v) s.v[v] *= factor;
      store(x + i, s);
    }
  }
  /// bf16 computes the exponentials again, because storing them would round twice. Not below 2^-100, so that
  /// the products are no denormals, which take hundreds of cycles.
  static TRAINHOST_INLINE void gradients(Half* x, std::uint64_t n, const Reference& ref, float factor) {
    const F lowest = F{} + (ref.lowest + 25.0f / kLog2e), round = F{} + ref.round;
    const F c[4] = {F{} + 0.999928074f * factor, F{} + 0.693260985f * factor, F{} + 0.242611122f * factor,
                    F{} + 0.0551716691f * factor};
    for (std::uint64_t i = 0; i < n; i += kStep) {
      prefetch(x + i);  // behind the last block: the next row
      Step s;
      load(x + i, s);
#pragma GCC unroll 8
      for (unsigned v = 0; v < kVectors; ++v) gradient_in_bf16(s.v[v], lowest, round, c);
      store(x + i, s);
    }
  }

  template <class T>
  static TRAINHOST_INLINE double loss(std::uint64_t n, T* row, std::int64_t target, float scale) {
    constexpr bool kF32 = sizeof(T) == sizeof(float);
    const double at_target =
        static_cast<double>(widen(row[target])) * (kF32 ? 1.4426950408889634 : static_cast<double>(kLog2e));
    const std::uint64_t whole = n / kStep * kStep, rest = n - whole;
    // Elements that fill no step are computed in a step that is filled up with -inf.
    T last[kStep];
    std::fill(last, last + kStep, minus_infinity(row));
    std::memcpy(last, row + whole, rest * sizeof(T));
    const std::uint64_t block = std::max(kAhead / sizeof(T), (whole / (kBlocks - 2) + kStep) / kStep * kStep);
    const auto over_blocks = [&](auto&& f) __attribute__((always_inline)) {
      for (std::uint64_t i = 0; i < whole; i += block) f(row + i, std::min(block, whole - i));
      if (rest) f(last, kStep);
    };

    Reference ref = reference_of(kLeastTop);
    float top = kLeastTop;
    double total = 0, exponents[kBlocks];
    std::uint64_t b = 0;
    over_blocks([&](T * x, std::uint64_t count) __attribute__((always_inline)) {
      if (const float most = largest(x, count); most > top) {
        const Reference next = reference_of(most);
        total *= std::exp2(ref.exponent - next.exponent);
        ref = next, top = most;
      }
      total += exponentials(x, count, ref);
      exponents[b++] = ref.exponent;
    });
    if (top == kLeastTop) total = NAN;
    // With a certain target the error of the sum must not make the loss negative.
    const double share = std::exp2(at_target - ref.exponent);
    total = std::max(total, share);

    const double factor = scale / total;
    b = 0;
    over_blocks([&](T * x, std::uint64_t count) __attribute__((always_inline)) {
      // f32 has stored exponentials relative to the reference of the block.
      const double exponent = kF32 ? exponents[b++] : ref.exponent;
      gradients(x, count, ref,
                static_cast<float>(exponent == ref.exponent ? factor
                                                            : factor * std::exp2(exponent - ref.exponent)));
    });
    std::memcpy(row + whole, last, rest * sizeof(T));
    // The target's element in double: softmax - 1 cancels if the probability is close to 1.
    const auto of_target = static_cast<float>((share / total - 1.0) * scale);
    if constexpr (kF32)
      row[target] = of_target;
    else
      to_half(1, &of_target, row + target);
    // A NaN among the logits makes `total` NaN, and so the loss.
    return 0.69314718055994531 * (std::log2(total) + ref.exponent - at_target);
  }
};

#if defined(__x86_64__)
#define TRAINHOST_LOSS_ROWS(name, lanes, isa)                                                               \
  __attribute__((target(isa))) double name(std::uint64_t n, float* row, std::int64_t target, float scale) { \
    return Rows<lanes>::loss(n, row, target, scale);                                                        \
  }                                                                                                         \
  __attribute__((target(isa))) double name(std::uint64_t n, Half* row, std::int64_t target, float scale) {  \
    return Rows<lanes>::loss(n, row, target, scale);                                                        \
  }
TRAINHOST_LOSS_ROWS(avx512_row, 16, "arch=x86-64-v4")
TRAINHOST_LOSS_ROWS(avx2_row, 8, "arch=x86-64-v3")
#endif

double baseline_row(std::uint64_t n, float* row, std::int64_t target, float scale) {
  return Rows<4>::loss(n, row, target, scale);
}
double baseline_row(std::uint64_t n, Half* row, std::int64_t target, float scale) {
  return Rows<4>::loss(n, row, target, scale);
}

}  // namespace

std::span<const LossRows> runnable_loss_rows() {
  static const LossRows all[] = {
#if defined(__x86_64__)
    {"AVX-512", avx512_row, avx512_row},
    {"AVX2", avx2_row, avx2_row},
#endif
    {"baseline", baseline_row, baseline_row}
  };
  static const std::size_t first = [] {
#if defined(__x86_64__)
    // The features of x86-64-v3 and -v4 that the loops use; clang before 18 does not know the levels.
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") || !__builtin_cpu_supports("bmi2"))
      return 2u;
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                   __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
                   __builtin_cpu_supports("avx512vl")
               ? 0u
               : 1u;
#else
    return 0u;
#endif
  }();
  return std::span(all).subspan(first);
}

double cross_entropy_row(std::uint64_t n, float* row, std::int64_t target, float scale) {
  return runnable_loss_rows().front().f32(n, row, target, scale);
}
double cross_entropy_row(std::uint64_t n, Half* row, std::int64_t target, float scale) {
  return runnable_loss_rows().front().bf16(n, row, target, scale);
}

}  // namespace trainhost::cuda::host
