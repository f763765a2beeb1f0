// See nf4.hpp. The order of the roundings is that of the portable backend of bitsandbytes 0.50, which its
// CUDA kernels share: a block is multiplied by the reciprocal of its scale, only a shorter last block is
// divided; the midpoints between neighbouring values decide, and a quotient on a midpoint gets the lower
// value. Its CPU library searches 8-bit codes approximately: about one in 600 is a neighbour. Compiled
// without contraction to FMA.
#include "core/model/nf4.hpp"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstring>

#include "core/base/checked.hpp"
#include "core/model/dynamic_map.hpp"
#include "core/model/run_spec.hpp"
#include "core/model/tensors.hpp"

namespace trainhost::nf4 {
namespace {

constexpr float kLeastScale = 1e-38f;  // of the divisor; a block of zeros has scale 0

float read_f32(const std::byte* from) {
  float x;
  std::memcpy(&x, from, sizeof x);
  return x;
}
void write_f32(std::byte* to, float x) { std::memcpy(to, &x, sizeof x); }

float largest_magnitude(std::span<const float> block) {
  float m = 0.0f;
  for (float x : block) m = std::max(m, std::fabs(x));
  return m;
}

/// Calls put(i, quotient) for every element of a block with its scale.
template <class F>
void each_quotient(std::span<const float> block, float scale, bool whole, F&& put) {
  const float divisor = std::max(scale, kLeastScale), factor = 1.0f / divisor;
  for (std::size_t i = 0; i < block.size(); ++i)
    put(i, std::clamp(whole ? block[i] * factor : block[i] / divisor, -1.0f, 1.0f));
}

/// The number of midpoints below x.
unsigned code_of(float x) {
  unsigned code = 0;
  for (std::size_t i = 0; i + 1 < kValues.size(); ++i) code += (kValues[i] + kValues[i + 1]) / 2.0f < x;
  return code;
}

}  // namespace

Layout layout(std::uint64_t elements, bool double_quantized) {
  assert(elements > 0);
  Layout l;
  l.elements = elements;
  l.blocks = (elements - 1) / kBlock + 1;
  if (double_quantized) l.scale_blocks = (l.blocks - 1) / kScaleBlock + 1;
  l.scales = double_quantized ? checked_mul(l.scale_blocks + 1, 4) : 0;
  l.codes = checked_add(l.scales, double_quantized ? l.blocks : checked_mul(l.blocks, 4));
  l.bytes = checked_add(l.codes, (elements - 1) / 2 + 1);
  return l;
}

bool is_quantized(const RunSpec& r, const TensorInfo& t) {
  return r.mode == RunMode::kQlora && t.part == AdapterPart::kNone && t.layer >= 0 && t.rank == 2;
}

void quantize_blocks(const Layout& l, std::uint64_t first_block, std::span<const float> values, std::byte* to,
                     float* absmax) {
  std::byte* codes = to + l.codes + first_block * (kBlock / 2);
  assert(first_block * kBlock + values.size() <= l.elements);
  for (std::uint64_t b = first_block; !values.empty(); ++b) {
    const auto block = values.first(std::min<std::size_t>(kBlock, values.size()));
    const bool whole = block.size() == kBlock;
    assert(whole || b + 1 == l.blocks);
    float scale = largest_magnitude(block);
    unsigned high = 0;
    each_quotient(block, scale, whole, [&](std::size_t i, float x) {
      if (i % 2 == 0)
        high = code_of(x) << 4;
      else
        codes[i / 2] = static_cast<std::byte>(high | code_of(x));
    });
    // The byte of a last element without a partner is filled up with the code of 0.
    if (block.size() % 2) codes[block.size() / 2] = static_cast<std::byte>(high | code_of(0.0f));
    if (!whole) scale = std::max(scale, kLeastScale);
    absmax[b] = scale;
    codes += kBlock / 2;
    values = values.subspan(block.size());
  }
}

void store_scales(const Layout& l, float* absmax, std::byte* to) {
  if (!l.doubled()) {
    std::memcpy(to, absmax, l.blocks * sizeof(float));
    return;
  }
  double sum = 0.0;
  for (std::uint64_t b = 0; b < l.blocks; ++b) sum += absmax[b];
  const float mean = static_cast<float>(sum / static_cast<double>(l.blocks));
  write_f32(to, mean);
  for (std::uint64_t b = 0; b < l.blocks; ++b) absmax[b] -= mean;
  const DynamicMap& map = dynamic_map(true);
  for (std::uint64_t s = 0; s < l.scale_blocks; ++s) {
    const std::uint64_t first = s * kScaleBlock, n = std::min(kScaleBlock, l.blocks - first);
    const std::span<const float> block(absmax + first, n);
    float scale = largest_magnitude(block);
    const bool whole = n == kScaleBlock;
    each_quotient(block, scale, whole, [&](std::size_t i, float x) {
      to[l.scales + first + i] = static_cast<std::byte>(nearest_in_dynamic_map(map, x));
    });
    if (!whole) scale = std::max(scale, kLeastScale);
    write_f32(to + 4 * (s + 1), scale);
  }
}

void read_scales(const Layout& l, const std::byte* from, std::uint64_t first_block, std::span<float> out) {
  assert(first_block + out.size() <= l.blocks);
  if (!l.doubled()) {
    std::memcpy(out.data(), from + 4 * first_block, out.size() * sizeof(float));
    return;
  }
  const float mean = read_f32(from);
  const DynamicMap& map = dynamic_map(true);
  for (std::size_t i = 0; i < out.size(); ++i) {
    const std::uint64_t b = first_block + i;
    out[i] = map[static_cast<std::uint8_t>(from[l.scales + b])] * read_f32(from + 4 * (b / kScaleBlock + 1)) +
             mean;
  }
}

void dequantize_blocks(const Layout& l, const std::byte* from, std::uint64_t first_block,
                       std::span<float> out) {
  const std::byte* codes = from + l.codes;
  for (std::size_t i = 0; i < out.size();) {
    const std::uint64_t first = first_block * kBlock + i;
    float scale;
    read_scales(l, from, first / kBlock, {&scale, 1});
    for (const std::size_t end = std::min<std::size_t>(i + kBlock, out.size()); i < end; ++i) {
      const std::uint64_t e = first_block * kBlock + i;
      const auto both = static_cast<unsigned>(codes[e / 2]);
      out[i] = kValues[e % 2 ? both & 15 : both >> 4] * scale;
    }
  }
}

}  // namespace trainhost::nf4
