// Values of 4-bit codes: a look-up in a table of 16 values by one permutation (AVX-512) or two (AVX2), then
// one product with the scale of the block, so that every instruction set gives the same bits. Part of
// kernels_isa.cpp.
#pragma once

/// A whole block of 64 codes.
TH_INLINE void dequantize_block(const unsigned char* codes, const float* table, float scale, float* out) {
#if defined(__AVX512F__)
  const __m512 values = _mm512_loadu_ps(table), factor = _mm512_set1_ps(scale);
  // 8 bytes, each twice; the even element is its high half.
  const __m512i shift = _mm512_set1_epi64(4);  // low 32 bits: 4, high 32 bits: 0
  for (int i = 0; i < 4; ++i) {
    const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(codes + 8 * i));
    const __m512i index = _mm512_srlv_epi32(_mm512_cvtepu8_epi32(_mm_unpacklo_epi8(bytes, bytes)), shift);
    // The permutation reads only the low four bits of an index.
    _mm512_storeu_ps(out + 16 * i, _mm512_mul_ps(_mm512_permutexvar_ps(index, values), factor));
  }
#elif defined(__AVX2__)
  const __m256 low = _mm256_loadu_ps(table), high = _mm256_loadu_ps(table + 8),
               factor = _mm256_set1_ps(scale);
  const __m256i shift = _mm256_set1_epi64x(4);
  for (int i = 0; i < 8; ++i) {
    const __m128i bytes = _mm_loadu_si32(codes + 4 * i);
    const __m256i index = _mm256_srlv_epi32(_mm256_cvtepu8_epi32(_mm_unpacklo_epi8(bytes, bytes)), shift);
    // The permutation reads the low three bits; bit 3, moved to the sign, selects the half of the table.
    const __m256 upper = _mm256_castsi256_ps(_mm256_slli_epi32(index, 28));
    const __m256 value =
        _mm256_blendv_ps(_mm256_permutevar8x32_ps(low, index), _mm256_permutevar8x32_ps(high, index), upper);
    _mm256_storeu_ps(out + 8 * i, _mm256_mul_ps(value, factor));
  }
#else
  for (int i = 0; i < 32; ++i) {
    out[2 * i] = table[codes[i] >> 4] * scale;
    out[2 * i + 1] = table[codes[i] & 15] * scale;
  }
#endif
}

static void dequantize_nf4(std::uint64_t n, const unsigned char* codes, const float* table,
                           const float* scales, float* out) {
  const std::uint64_t blocks = n / 64;
  for (std::uint64_t b = 0; b < blocks; ++b) dequantize_block(codes + 32 * b, table, scales[b], out + 64 * b);
  for (std::uint64_t i = 64 * blocks; i < n; ++i)
    out[i] = table[i % 2 ? codes[i / 2] & 15 : codes[i / 2] >> 4] * scales[blocks];
}
