// Validation of a ModelSpec, whatever its source; messages use the Hugging Face field names, which users
// write. Also the rotary frequencies. Parameters: tensors.cpp. Order: zero sizes, limits, divisibility, then
// products: each check may rely on the previous ones.
#include "core/model/model_spec.hpp"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstdio>

#include "core/base/checked.hpp"
#include "core/base/error.hpp"
#include "core/model/tensors.hpp"

namespace trainhost {
namespace {

constexpr std::uint64_t kMaxVocab = INT32_MAX;  // token ids are 32-bit
constexpr std::uint32_t kMaxLayers = 1u << 12;  // published models have up to 126
// Rotary angles are computed in double: one below 2^31 has 22 bits after the point.
constexpr std::uint64_t kMaxPositions = 1u << 31;

[[noreturn]] void fail(const std::string& message, const std::string& hint = {}) {
  throw usage_error(message, hint);
}

void positive(const char* field, std::uint64_t value) {
  if (value == 0) fail(std::string(field) + " = 0: expected a positive number");
}

void at_most(const char* field, std::uint64_t value, std::uint64_t most) {
  if (value > most)
    fail(std::string(field) + " = " + std::to_string(value) + " is too large: expected at most " +
         std::to_string(most));
}

std::string shown(double value) {
  char out[32];
  std::snprintf(out, sizeof out, "%g", value);
  return out;
}

// Rejects NaN too: no comparison with NaN is true.
void positive_number(const char* field, double value) {
  if (!(std::isfinite(value) && value > 0))
    fail(std::string(field) + " = " + shown(value) + ": expected a positive number");
}

// Fields that the kind does not use are not read, and may have any value.
void validate_rope(const RopeScaling& r) {
  if (r.kind == RopeKind::kDefault) return;
  positive_number("rope_scaling.factor", r.factor);
  if (r.kind != RopeKind::kLlama3) return;
  positive_number("rope_scaling.low_freq_factor", r.low_freq_factor);
  positive_number("rope_scaling.high_freq_factor", r.high_freq_factor);
  // llama3() divides by the difference.
  if (r.high_freq_factor <= r.low_freq_factor)
    fail("rope_scaling.high_freq_factor must be greater than rope_scaling.low_freq_factor");
  positive("rope_scaling.original_max_position_embeddings", r.original_max_positions);
}

constexpr double kTwoPi = 6.28318530717958647692;

/// Scaling of LLaMA 3.1: short wavelengths are kept, long ones stretched by `factor`, the rest interpolated.
double llama3(double freq, const RopeScaling& r) {
  const double wavelength = kTwoPi / freq, original = static_cast<double>(r.original_max_positions);
  if (wavelength < original / r.high_freq_factor) return freq;
  if (wavelength > original / r.low_freq_factor) return freq / r.factor;
  const double keep = (original / wavelength - r.low_freq_factor) / (r.high_freq_factor - r.low_freq_factor);
  return (1 - keep) * freq / r.factor + keep * freq;
}

}  // namespace

// The families whose forward pass the engine implements. Others can be planned (known_family()).
bool trainable_family(const std::string& family) {
  static constexpr std::string_view kFamilies[] = {"llama", "mistral", "qwen2", "qwen3"};
  return std::find(std::begin(kFamilies), std::end(kFamilies), family) != std::end(kFamilies);
}

void validate(const ModelSpec& m) {
  positive("vocab_size", m.vocab);
  positive("hidden_size", m.hidden);
  positive("num_hidden_layers", m.layers);
  positive("num_attention_heads", m.heads);
  positive("num_key_value_heads", m.kv_heads);
  positive("head_dim", m.head_dim);
  positive("intermediate_size", m.intermediate);
  positive("max_position_embeddings", m.max_positions);
  at_most("vocab_size", m.vocab, kMaxVocab);
  at_most("num_hidden_layers", m.layers, kMaxLayers);
  at_most("max_position_embeddings", m.max_positions, kMaxPositions);
  // Zero was rejected above, so the divisor is positive.
  if (m.heads % m.kv_heads != 0)
    fail("num_attention_heads = " + std::to_string(m.heads) +
             " is not a multiple of num_key_value_heads = " + std::to_string(m.kv_heads),
         "each KV head serves the same number of query heads");
  if (m.head_dim % 2 != 0)
    fail("head_dim = " + std::to_string(m.head_dim) + " is odd: rotary embeddings rotate pairs of dimensions",
         "set head_dim to an even number");
  positive_number("rms_norm_eps", m.norm_eps);
  positive_number("rope_theta", m.rope_theta);
  if (!(std::isfinite(m.initializer_range) && m.initializer_range >= 0))
    fail("initializer_range = " + shown(m.initializer_range) + ": expected a number >= 0");
  validate_rope(m.rope);
  // Upper bound of all sizes computed from a model: 4-byte weight and gradient, 8-byte optimizer state.
  checked_mul(count_parameters(m).total, 16);
}

// One frequency per pair of dimensions: theta^(-2i/D), i = 0 .. D/2 - 1. Computed in double and independent
// of the engine, so that all engines rotate by the same angles.
std::vector<double> rope_inv_freq(const ModelSpec& m) {
  assert(m.head_dim % 2 == 0);  // validate()
  std::vector<double> out(m.head_dim / 2);
  for (std::size_t i = 0; i < out.size(); ++i) {
    const double freq = 1.0 / std::pow(m.rope_theta, 2.0 * static_cast<double>(i) / m.head_dim);
    switch (m.rope.kind) {
      case RopeKind::kDefault:
        out[i] = freq;
        break;
      case RopeKind::kLinear:
        out[i] = freq / m.rope.factor;
        break;
      case RopeKind::kLlama3:
        out[i] = llama3(freq, m.rope);
        break;
    }
  }
  return out;
}

}  // namespace trainhost
