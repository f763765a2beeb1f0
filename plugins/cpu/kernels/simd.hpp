// Vectors of kLanes floats with the compiler's vector extension: one source for every instruction set.
// Included only by kernels_isa.cpp, inside the namespace of one instruction set. No standard header with
// inline functions may be included there, because the linker could use their code in translation units for
// older CPUs.
#pragma once

#if defined(__AVX512F__)
constexpr int kLanes = 16;
#elif defined(__AVX2__)
constexpr int kLanes = 8;
#else
constexpr int kLanes = 4;
#endif

typedef float Vec __attribute__((vector_size(kLanes * 4)));
typedef std::int32_t VecI __attribute__((vector_size(kLanes * 4)));
typedef float HalfVec __attribute__((vector_size(kLanes * 2)));
typedef double VecD __attribute__((vector_size(kLanes * 4)));  // kLanes / 2 doubles: one register

typedef Vec VecU __attribute__((aligned(4), may_alias));
typedef HalfVec HalfVecU __attribute__((aligned(4), may_alias));

#define TH_INLINE static inline __attribute__((always_inline))

TH_INLINE Vec load(const float* p) { return *reinterpret_cast<const VecU*>(p); }
TH_INLINE void store(float* p, Vec v) { *reinterpret_cast<VecU*>(p) = v; }
#if defined(__AVX512F__)
TH_INLINE Vec splat(float x) { return reinterpret_cast<Vec>(_mm512_set1_ps(x)); }
#elif defined(__AVX2__)
TH_INLINE Vec splat(float x) { return reinterpret_cast<Vec>(_mm256_set1_ps(x)); }
#else
TH_INLINE Vec splat(float x) { return Vec{x, x, x, x}; }
#endif

// The first n of kLanes elements (0 < n < kLanes); the rest read as 0 and are not written.
#if defined(__AVX512F__)
TH_INLINE Vec load_part(const float* p, std::uint64_t n) {
  return reinterpret_cast<Vec>(_mm512_maskz_loadu_ps(static_cast<__mmask16>((1u << n) - 1), p));
}
TH_INLINE void store_part(float* p, Vec v, std::uint64_t n) {
  _mm512_mask_storeu_ps(p, static_cast<__mmask16>((1u << n) - 1), reinterpret_cast<__m512>(v));
}
#elif defined(__AVX2__)
TH_INLINE __m256i part_mask(std::uint64_t n) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(n)),
                            _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
TH_INLINE Vec load_part(const float* p, std::uint64_t n) {
  return reinterpret_cast<Vec>(_mm256_maskload_ps(p, part_mask(n)));
}
TH_INLINE void store_part(float* p, Vec v, std::uint64_t n) {
  _mm256_maskstore_ps(p, part_mask(n), reinterpret_cast<__m256>(v));
}
#else
TH_INLINE Vec load_part(const float* p, std::uint64_t n) {
  Vec v{};
  for (std::uint64_t i = 0; i < n; ++i) v[i] = p[i];
  return v;
}
TH_INLINE void store_part(float* p, Vec v, std::uint64_t n) {
  for (std::uint64_t i = 0; i < n; ++i) p[i] = v[i];
}
#endif

// ---- bfloat16, which is the upper half of an f32

typedef std::uint32_t VecW __attribute__((vector_size(kLanes * 4)));

/// x rounded to bfloat16, to nearest, ties to even, in the upper half of each word; a NaN stays one. The
/// lower half is undefined.
TH_INLINE VecW rounded_words(Vec x) {
  const VecW bits = reinterpret_cast<VecW>(x);
  const VecW near = bits + 0x7fffu + (bits >> 16 & 1u);
  return x != x ? (bits | 0x400000u) : near;
}
/// The values of the words.
TH_INLINE Vec value_of(VecW words) { return reinterpret_cast<Vec>(words & 0xffff0000u); }

// GCC 12 compiles the conversion of a vector of 16-bit to one of 32-bit numbers to five instructions, so the
// one instruction that there is is named.
TH_INLINE Vec load(const Bf16* p) {
#if defined(__AVX512F__)  // with a mask: GCC 12 warns about its own intrinsic without one
  return reinterpret_cast<Vec>(reinterpret_cast<VecI>(_mm512_maskz_cvtepu16_epi32(
                                   0xffff, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))))
                               << 16);
#elif defined(__AVX2__)
  return reinterpret_cast<Vec>(
      _mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))), 16));
#else
  return reinterpret_cast<Vec>(VecW{p[0], p[1], p[2], p[3]} << 16);
#endif
}
TH_INLINE void store(Bf16* p, Vec v) {
  const VecW words = rounded_words(v) >> 16;
#if defined(__AVX512F__)
  _mm512_mask_cvtepi32_storeu_epi16(p, 0xffff, reinterpret_cast<__m512i>(words));
#elif defined(__AVX2__)
  const __m256i w = reinterpret_cast<__m256i>(words);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p),
                   _mm_packus_epi32(_mm256_castsi256_si128(w), _mm256_extracti128_si256(w, 1)));
#else
  for (int i = 0; i < kLanes; ++i) p[i] = static_cast<Bf16>(words[i]);
#endif
}
#if defined(__AVX512F__)
TH_INLINE Vec load_part(const Bf16* p, std::uint64_t n) {
  const auto mask = static_cast<__mmask16>((1u << n) - 1);
  return reinterpret_cast<Vec>(
      reinterpret_cast<VecI>(_mm512_maskz_cvtepu16_epi32(mask, _mm256_maskz_loadu_epi16(mask, p))) << 16);
}
TH_INLINE void store_part(Bf16* p, Vec v, std::uint64_t n) {
  _mm512_mask_cvtepi32_storeu_epi16(p, static_cast<__mmask16>((1u << n) - 1),
                                    reinterpret_cast<__m512i>(rounded_words(v) >> 16));
}
#else
TH_INLINE Vec load_part(const Bf16* p, std::uint64_t n) {
  Bf16 part[kLanes] = {};
  for (std::uint64_t i = 0; i < n; ++i) part[i] = p[i];
  return load(part);
}
TH_INLINE void store_part(Bf16* p, Vec v, std::uint64_t n) {
  Bf16 part[kLanes];
  store(part, v);
  for (std::uint64_t i = 0; i < n; ++i) p[i] = part[i];
}
#endif

/// The first n of kLanes elements, 0 < n <= kLanes.
template <class T>
TH_INLINE Vec load_some(const T* p, std::uint64_t n) {
  return n == kLanes ? load(p) : load_part(p, n);
}
template <class T>
TH_INLINE void store_some(T* p, Vec v, std::uint64_t n) {
  if (n == kLanes)
    store(p, v);
  else
    store_part(p, v, n);
}

/// An f32 that is rounded to bfloat16 when it is loaded: operands of bf16 products that are stored in f32.
struct RoundedF32 {
  float value;
};
TH_INLINE Vec load(const RoundedF32* p) { return value_of(rounded_words(load(&p->value))); }
TH_INLINE Vec load_part(const RoundedF32* p, std::uint64_t n) {
  return value_of(rounded_words(load_part(&p->value, n)));
}

TH_INLINE float value_of(float x) { return x; }
TH_INLINE float value_of(Bf16 x) { return __builtin_bit_cast(float, std::uint32_t{x} << 16); }

// Horizontal sums and maxima: halves are combined, always in the same order.
typedef float Vec4 __attribute__((vector_size(16)));
#if defined(__AVX512F__)
TH_INLINE Vec4 fold_sum(Vec v) {
  HalfVec h = __builtin_shufflevector(v, v, 0, 1, 2, 3, 4, 5, 6, 7) +
              __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15);
  return __builtin_shufflevector(h, h, 0, 1, 2, 3) + __builtin_shufflevector(h, h, 4, 5, 6, 7);
}
TH_INLINE Vec4 fold_max(Vec v) {
  HalfVec a = __builtin_shufflevector(v, v, 0, 1, 2, 3, 4, 5, 6, 7),
          b = __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15);
  HalfVec h = a > b ? a : b;
  Vec4 c = __builtin_shufflevector(h, h, 0, 1, 2, 3), d = __builtin_shufflevector(h, h, 4, 5, 6, 7);
  return c > d ? c : d;
}
#elif defined(__AVX2__)
TH_INLINE Vec4 fold_sum(Vec v) {
  return __builtin_shufflevector(v, v, 0, 1, 2, 3) + __builtin_shufflevector(v, v, 4, 5, 6, 7);
}
TH_INLINE Vec4 fold_max(Vec v) {
  Vec4 c = __builtin_shufflevector(v, v, 0, 1, 2, 3), d = __builtin_shufflevector(v, v, 4, 5, 6, 7);
  return c > d ? c : d;
}
#else
TH_INLINE Vec4 fold_sum(Vec v) { return v; }
TH_INLINE Vec4 fold_max(Vec v) { return v; }
#endif
TH_INLINE float sum(Vec v) {
  Vec4 q = fold_sum(v);
  return (q[0] + q[2]) + (q[1] + q[3]);
}
TH_INLINE float max(Vec v) {
  Vec4 q = fold_max(v);
  float a = q[0] > q[2] ? q[0] : q[2], b = q[1] > q[3] ? q[1] : q[3];
  return a > b ? a : b;
}
TH_INLINE Vec max(Vec a, Vec b) { return a > b ? a : b; }

/// 2^x for x <= 126, relative error at most 1.8e-7; 2^-126 below -126. For softmax, whose powers are at most
/// about 1: half the instructions of exp(). A polynomial of degree 5 with the least largest error on [-0.5,
/// 0.5] and 2^0 = 1.
TH_INLINE Vec exp2(Vec x) {
  const Vec floor_ = splat(-126.0f), magic = splat(12582912.0f);  // 1.5 * 2^23: rounds to integer
  x = x < floor_ ? floor_ : x;
  const Vec t = x + magic, f = x - (t - magic);
  Vec p = splat(1.326472731307149e-3f);
  p = p * f + 9.671512991189957e-3f;
  p = p * f + 5.550733581185341e-2f;
  p = p * f + 2.4022242426872253e-1f;
  p = p * f + 6.931470036506653e-1f;
  p = p * f + 1.0f;
  // The shift leaves the integer of t alone. The factor is multiplied, not added to the exponent: a NaN stays
  // one.
  const VecI factor = (reinterpret_cast<VecI>(t) << 23) + 0x3f800000;
  return p * reinterpret_cast<Vec>(factor);
}
constexpr float kLog2E = 1.44269504088896341f;

/// e^x, at most 2 ulp off for x in [-87.3, 88]; 0 below, e^88 above. Range reduction by ln 2 in two parts and
/// the degree-6 polynomial of the Cephes library.
TH_INLINE Vec exp(Vec x) {
  const Vec limit = splat(88.0f), floor_ = splat(-87.3f),
            magic = splat(12582912.0f);  // 1.5 * 2^23: rounds to integer
  VecI under = x < floor_;
  x = x > limit ? limit : x;
  x = x < floor_ ? floor_ : x;
  Vec t = x * 1.44269504088896341f + magic;
  Vec n = t - magic;
  Vec r = x - n * 0.693359375f;
  r = r + n * 2.12194440e-4f;
  Vec p = splat(1.9875691500e-4f);
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * (r * r) + r + 1.0f;
  VecI bits = reinterpret_cast<VecI>(t) - reinterpret_cast<VecI>(magic);  // n as an integer
  Vec scale = reinterpret_cast<Vec>((bits + 127) << 23);
  return reinterpret_cast<Vec>(reinterpret_cast<VecI>(p * scale) & ~under);
}
