// NF4 and the 8-bit dynamic map compared with bitsandbytes, bit for bit: nf4_cases.inc.
#include "core/model/nf4.hpp"

#include <boost/test/unit_test.hpp>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "core/model/dynamic_map.hpp"
#include "core/model/run_spec.hpp"
#include "core/model/tensors.hpp"

using namespace trainhost;

namespace {

struct Case {
  std::uint64_t elements;
  bool doubled;
  std::uint64_t codes, scales, values, bf16;
  float mean;
};
#include "tests/core/model/nf4_cases.inc"

/// elements() of tests/interop/bnb_nf4.py.
std::vector<float> elements(std::uint64_t n) {
  std::vector<float> out(n);
  for (std::uint64_t i = 0; i < n; ++i) {
    std::uint64_t z = (i + n) * 0x9E3779B97F4A7C15ull;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    z ^= z >> 31;
    const float x = static_cast<float>(z >> 40) * 0x1p-23f - 1.0f;
    out[i] = x * x * x * 0.05f;
    if (i / 64 % 11 == 10) out[i] *= 1e-30f;
    if (i / 64 % 7 == 6) out[i] = 0.0f;
  }
  return out;
}

std::uint64_t fnv(const void* data, std::size_t bytes, std::uint64_t h = 0xCBF29CE484222325ull) {
  for (std::size_t i = 0; i < bytes; ++i)
    h = (h ^ static_cast<const unsigned char*>(data)[i]) * 0x100000001B3ull;
  return h;
}

/// Rounded to nearest even, as torch rounds.
std::uint16_t bf16_of(float x) {
  std::uint32_t u;
  std::memcpy(&u, &x, 4);
  return static_cast<std::uint16_t>((u + 0x7FFF + (u >> 16 & 1)) >> 16);
}

/// Quantized in pieces of `step` blocks.
std::vector<std::byte> quantized(const nf4::Layout& l, const std::vector<float>& x, std::uint64_t step) {
  std::vector<std::byte> to(l.bytes);
  std::vector<float> absmax(l.blocks);
  for (std::uint64_t b = 0; b < l.blocks; b += step) {
    const std::uint64_t first = b * nf4::kBlock, n = std::min(step * nf4::kBlock, x.size() - first);
    nf4::quantize_blocks(l, b, std::span(x).subspan(first, n), to.data(), absmax.data());
  }
  nf4::store_scales(l, absmax.data(), to.data());
  return to;
}

std::vector<float> dequantized(const nf4::Layout& l, const std::vector<std::byte>& from) {
  std::vector<float> out(l.elements);
  nf4::dequantize_blocks(l, from.data(), 0, out);
  return out;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(nf4_quantization)

BOOST_AUTO_TEST_CASE(codes_scales_and_values_have_the_bits_of_bitsandbytes) {
  for (const Case& c : kCases) {
    BOOST_TEST_CONTEXT(c.elements << " elements, double quantization " << c.doubled) {
      const nf4::Layout l = nf4::layout(c.elements, c.doubled);
      const std::vector<std::byte> q = quantized(l, elements(c.elements), 1000);
      const std::vector<float> values = dequantized(l, q);
      BOOST_TEST(fnv(q.data() + l.codes, (c.elements + 1) / 2) == c.codes);
      const std::size_t skip = c.doubled ? 4 : 0;  // the mean
      BOOST_TEST(fnv(q.data() + skip, l.codes - skip) == c.scales);
      BOOST_TEST(fnv(values.data(), 4 * values.size()) == c.values);
      std::vector<std::uint16_t> rounded;
      for (float x : values) rounded.push_back(bf16_of(x));
      BOOST_TEST(fnv(rounded.data(), 2 * rounded.size()) == c.bf16);
      float mean = 0;
      if (c.doubled) std::memcpy(&mean, q.data(), 4);
      BOOST_TEST(mean == c.mean);
    }
  }
}

BOOST_AUTO_TEST_CASE(the_dynamic_maps_have_the_bits_of_bitsandbytes) {
  BOOST_TEST(fnv(dynamic_map(true).data(), sizeof(DynamicMap)) == kSignedMap);
  BOOST_TEST(fnv(dynamic_map(false).data(), sizeof(DynamicMap)) == kUnsignedMap);
}

BOOST_AUTO_TEST_CASE(the_nearest_value_of_the_map_is_found_by_its_midpoints) {
  for (const bool with_sign : {false, true}) {
    const DynamicMap& map = dynamic_map(with_sign);
    for (std::size_t i = 0; i < 256; ++i) {
      BOOST_TEST(nearest_in_dynamic_map(map, map[i]) == i);
      if (i == 255) continue;
      const float middle = (map[i] + map[i + 1]) / 2.0f;
      BOOST_TEST(nearest_in_dynamic_map(map, middle) == i);
      BOOST_TEST(nearest_in_dynamic_map(map, std::nextafter(middle, 2.0f)) == i + 1);
    }
    BOOST_TEST(nearest_in_dynamic_map(map, -3.0f) == 0);
    BOOST_TEST(nearest_in_dynamic_map(map, 3.0f) == 255);
  }
}

BOOST_AUTO_TEST_CASE(the_pieces_in_which_a_tensor_arrives_do_not_change_a_bit) {
  const nf4::Layout l = nf4::layout(64 * 300 + 7, true);
  const std::vector<float> x = elements(l.elements);
  const std::vector<std::byte> whole = quantized(l, x, 10000);
  for (const std::uint64_t step : {1, 7, 299}) BOOST_TEST((quantized(l, x, step) == whole));
  // Any range of blocks gives the values of the whole tensor.
  const std::vector<float> all = dequantized(l, whole);
  std::vector<float> part(64 * 20 + 7);
  nf4::dequantize_blocks(l, whole.data(), 280, part);
  BOOST_TEST((part == std::vector<float>(all.begin() + 280 * 64, all.end())));
}

BOOST_AUTO_TEST_CASE(values_are_half_a_step_off_at_most) {
  const nf4::Layout l = nf4::layout(64 * 40, false);
  const std::vector<float> x = elements(l.elements);
  const std::vector<float> y = dequantized(l, quantized(l, x, 40));
  for (std::size_t b = 0; b < 40; ++b) {
    float scale = 0;
    for (std::size_t i = 0; i < 64; ++i) scale = std::max(scale, std::fabs(x[64 * b + i]));
    for (std::size_t i = 0; i < 64; ++i)  // the widest gap between two values is 0.304
      BOOST_TEST_REQUIRE(std::fabs(x[64 * b + i] - y[64 * b + i]) <= 0.1521f * scale);
  }
}

BOOST_AUTO_TEST_CASE(the_size_is_that_of_codes_and_scales) {
  const auto bytes = [](std::uint64_t n, bool doubled) { return nf4::layout(n, doubled).bytes; };
  BOOST_TEST(bytes(64, false) == 32u + 4);
  BOOST_TEST(bytes(64, true) == 32u + 1 + 4 + 4);
  BOOST_TEST(bytes(65, true) == 33u + 2 + 4 + 4);
  BOOST_TEST(bytes(4096 * 4096, true) == 4096u * 4096 / 2 + 262144 + 4 * 1024 + 4);
  BOOST_CHECK_THROW(nf4::layout(std::numeric_limits<std::uint64_t>::max(), false), std::exception);
}

BOOST_AUTO_TEST_CASE(matrices_of_layers_are_quantized_and_nothing_else) {
  RunSpec r;
  r.mode = RunMode::kQlora;
  TensorInfo t{"q", TensorRole::kQ, 0, 2, {4, 4}};
  BOOST_TEST(nf4::is_quantized(r, t));
  r.mode = RunMode::kLora;
  BOOST_TEST(!nf4::is_quantized(r, t));
  r.mode = RunMode::kQlora;
  BOOST_TEST(!nf4::is_quantized(r, {"a", TensorRole::kQ, 0, 2, {4, 4}, AdapterPart::kA}));
  BOOST_TEST(!nf4::is_quantized(r, {"e", TensorRole::kEmbed, -1, 2, {4, 4}}));
  BOOST_TEST(!nf4::is_quantized(r, {"n", TensorRole::kNorm1, 0, 1, {4, 1}}));
}

BOOST_AUTO_TEST_SUITE_END()
