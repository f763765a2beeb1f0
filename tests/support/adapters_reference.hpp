// Reference for adapters: the model in double with the adapters merged into its weights, W + scale * B A, and
// the chain rule: dA = scale * B^T dW, dB = scale * dW A^T. With DoRA each row of this sum has the norm of
// its magnitude, and the norm of the sum is a constant for gradients. So the reference model knows nothing of
// adapters. For tests alone.
#pragma once
#include <cmath>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/model/adapters.hpp"
#include "core/model/nf4.hpp"
#include "tests/support/small_models.hpp"

namespace trainhost::test {

using reference::Vec;
using reference::Weights;

/// q and v, every matrix, one of each product: k, gate, down, o with up.
inline constexpr std::uint32_t kAdapterTargets[] = {0b0000101, 0x7f,      0b0000010,
                                                    0b0010000, 0b1000000, 0b0101000};

/// Of matrices outside the layers: the LM head, the embedding, both, and both beside every matrix of a layer.
inline constexpr std::uint32_t kSetsOutsideLayers[] = {kTargetHead, kTargetEmbedding, kTargetsOutsideLayers,
                                                       0x1ff};
/// These, and for a model in which both are one tensor one adapter of both.
inline std::vector<std::uint32_t> sets_outside_layers(const ModelSpec& m) {
  std::vector<std::uint32_t> all(std::begin(kSetsOutsideLayers), std::end(kSetsOutsideLayers));
  if (m.tied)
    all.insert(all.end(), {kTargetEmbedding | kTiedAdapter, 0x7f | kTargetEmbedding | kTiedAdapter});
  return all;
}

/// The model that computes what one with adapters does. A tied LM head with an adapter, or an embedding with
/// one, are different matrices once the adapters are merged.
inline ModelSpec reference_model(ModelSpec m, const RunSpec& r) {
  if (r.lora_targets & kTargetsOutsideLayers) m.tied = false;
  return m;
}
/// Its weights.
inline Weights reference_weights(const ModelSpec& m, const RunSpec& r, Weights base) {
  if (m.tied && (r.lora_targets & kTargetsOutsideLayers))
    base["lm_head.weight"] = base.at("model.embed_tokens.weight");
  return base;
}

inline RunSpec lora_run(const NamedModel& z, std::uint32_t micro_batch, std::uint32_t accumulate,
                        std::uint32_t targets, std::uint32_t rank) {
  RunSpec r;
  r.seq_len = z.seq, r.micro_batch = micro_batch, r.accumulate = accumulate, r.clip_norm = 0.0;
  r.mode = RunMode::kLora, r.lora_rank = rank, r.lora_targets = targets, r.lora_alpha = 1.5 * rank;
  return r;
}

/// Adapters of another size in each product of a layer: all of layer 0, then every other one, up to rank 7.
inline void set_different_adapters(const ModelSpec& m, RunSpec& r) {
  const TensorRole kRoles[] = {TensorRole::kQ,    TensorRole::kK,  TensorRole::kV,   TensorRole::kO,
                               TensorRole::kGate, TensorRole::kUp, TensorRole::kDown};
  set_adapters(
      m,
      [&](const AdaptableMatrix& x) -> AdapterSize {
        if (x.target > 64) return {};  // outside the layers
        const std::uint32_t layer = static_cast<std::uint32_t>(std::stoul(x.module.substr(13)));
        std::uint32_t kind = 0;
        while (x.target >> kind != 1) ++kind;
        const std::uint32_t group = static_cast<std::uint32_t>(adapter_group(kRoles[kind]));
        if (layer > 0 && (layer + kind) % 2) return {};
        return {1 + (3 * layer + 2 * group) % 7, 1.5 + layer + group};
      },
      r);
}

/// Random values for A, B and magnitudes: B is 0 in a new run, which would hide everything behind it.
inline Weights random_adapters(const ModelSpec& m, const RunSpec& r, unsigned seed) {
  std::mt19937 g(seed);
  Weights w;
  for (const TensorInfo& t : adapter_tensors(m, r)) {
    Vec& v = w[t.name];
    v.resize(t.elements());
    for (double& x : v) x = static_cast<float>((static_cast<double>(g()) / 4294967296.0 * 2 - 1) * 0.4);
    if (t.part == AdapterPart::kMagnitude)
      for (double& x : v) x = static_cast<float>(0.7 + x);
  }
  return w;
}

struct AdaptedMatrix {
  std::string weight, a, b, magnitude;  // names
  std::size_t outputs, inputs, rank;
  double scale;
  // Of the embedding, whose rows are W + scale * A^T B^T: b is A, which is stored as a table, and a is B
  // transposed.
  bool table = false;
  bool by_columns = table;  // magnitudes belong to columns
  std::size_t magnitudes() const { return by_columns ? inputs : outputs; }
  std::size_t magnitude_of(std::size_t o, std::size_t i) const { return by_columns ? i : o; }
  /// Index in a of the element [k, i] of the factor [rank, inputs].
  std::size_t index(std::size_t k, std::size_t i) const { return table ? i * rank + k : k * inputs + i; }
};
inline std::vector<AdaptedMatrix> adapted(const ModelSpec& m, const RunSpec& r) {
  std::vector<AdaptedMatrix> out;
  for (const TensorInfo& t : adapter_tensors(m, r)) {
    if (t.part != AdapterPart::kA) continue;
    const bool table = t.role == TensorRole::kEmbed;
    const std::string end = table ? "lora_embedding_A" : "lora_A.weight";
    const std::string module = t.name.substr(0, t.name.size() - end.size());
    AdaptedMatrix x{module.substr(std::string("base_model.model.").size()) + "weight",
                    table ? module + "lora_embedding_B" : t.name,
                    table ? t.name : module + "lora_B.weight",
                    module + "lora_magnitude_vector",
                    0,
                    0,
                    0,
                    0,
                    table};
    const AdapterSize size = size_of_adapter(r, x.weight.substr(0, x.weight.rfind('.')));
    x.scale = size.alpha / size.rank, x.rank = size.rank;
    for (const TensorInfo& w : tensors(m))
      if (w.name == x.weight) x.outputs = w.dim[0], x.inputs = w.dim[1];
    if (x.outputs == 0) throw std::logic_error(x.weight + " is no tensor of the model");
    out.push_back(x);
    if (!table || !ties_adapter(r)) continue;
    // The head has the same factors, and magnitudes of its rows.
    x.weight = "lm_head.weight", x.magnitude = "base_model.model.lm_head.lora_magnitude_vector";
    x.by_columns = false;
    out.push_back(std::move(x));
  }
  return out;
}

/// W + scale * B A in place of every adapted matrix.
inline Weights with_products(const ModelSpec& m, const RunSpec& r, Weights w, const Weights& adapters) {
  for (const AdaptedMatrix& x : adapted(m, r))
    for (std::size_t o = 0; o < x.outputs; ++o)
      for (std::size_t i = 0; i < x.inputs; ++i)
        for (std::size_t k = 0; k < x.rank; ++k)
          w[x.weight][o * x.inputs + i] +=
              x.scale * adapters.at(x.b)[o * x.rank + k] * adapters.at(x.a)[x.index(k, i)];
  return w;
}

/// The norms of the rows of with_products(), of the embedding of its columns, by the name of the magnitudes.
inline Weights norms_of_rows(const ModelSpec& m, const RunSpec& r, const Weights& base,
                             const Weights& adapters) {
  const Weights w = with_products(m, r, base, adapters);
  Weights out;
  for (const AdaptedMatrix& x : adapted(m, r)) {
    Vec& norms = out[x.magnitude];
    norms.resize(x.magnitudes());
    for (std::size_t o = 0; o < x.outputs; ++o)
      for (std::size_t i = 0; i < x.inputs; ++i)
        norms[x.magnitude_of(o, i)] += std::pow(w.at(x.weight)[o * x.inputs + i], 2);
    for (double& n : norms) n = std::sqrt(n);
  }
  return out;
}

inline Weights merged(const ModelSpec& m, const RunSpec& r, const Weights& base, const Weights& adapters) {
  Weights w = with_products(m, r, base, adapters);
  if (!r.memory.dora) return w;
  const Weights norms = norms_of_rows(m, r, base, adapters);
  for (const AdaptedMatrix& x : adapted(m, r))
    for (std::size_t o = 0; o < x.outputs; ++o)
      for (std::size_t i = 0; i < x.inputs; ++i) {
        const std::size_t n = x.magnitude_of(o, i);
        w[x.weight][o * x.inputs + i] *= adapters.at(x.magnitude)[n] / norms.at(x.magnitude)[n];
      }
  return w;
}

/// Gradients of A, B and magnitudes from those of the merged weights.
inline Weights adapter_gradients(const ModelSpec& m, const RunSpec& r, const Weights& base, const Weights& dw,
                                 const Weights& adapters) {
  const Weights sums = with_products(m, r, base, adapters), norms = norms_of_rows(m, r, base, adapters);
  Weights out;
  for (const AdaptedMatrix& x : adapted(m, r)) {
    Vec &da = out[x.a], &db = out[x.b];
    da.resize(x.rank * x.inputs), db.resize(x.outputs * x.rank);
    if (r.memory.dora) out[x.magnitude].resize(x.magnitudes());
    for (std::size_t o = 0; o < x.outputs; ++o) {
      for (std::size_t i = 0; i < x.inputs; ++i) {
        const std::size_t n = x.magnitude_of(o, i);
        const double norm = norms.at(x.magnitude)[n],
                     factor = r.memory.dora ? adapters.at(x.magnitude)[n] / norm : 1.0;
        const double of_row = dw.at(x.weight)[o * x.inputs + i];
        if (r.memory.dora) out[x.magnitude][n] += of_row * sums.at(x.weight)[o * x.inputs + i] / norm;
        for (std::size_t k = 0; k < x.rank; ++k) {
          const double d = x.scale * factor * of_row;
          da[x.index(k, i)] += d * adapters.at(x.b)[o * x.rank + k];
          db[o * x.rank + k] += d * adapters.at(x.a)[x.index(k, i)];
        }
      }
    }
  }
  return out;
}

/// The weights of which the program of `r` computes: the matrices of the layers quantized to NF4 and back.
inline Weights in_nf4(const ModelSpec& m, const RunSpec& r, Weights w) {
  for (const TensorInfo& t : tensors(m)) {
    if (!nf4::is_quantized(r, t)) continue;
    Vec& v = w.at(t.name);
    const nf4::Layout l = nf4::layout(t.elements(), r.memory.double_quantized);
    std::vector<float> values(v.begin(), v.end()), scales(l.blocks);
    std::vector<std::byte> bytes(l.bytes);
    nf4::quantize_blocks(l, 0, values, bytes.data(), scales.data());
    nf4::store_scales(l, scales.data(), bytes.data());
    nf4::dequantize_blocks(l, bytes.data(), 0, values);
    v.assign(values.begin(), values.end());
  }
  return w;
}

inline Weights united(Weights a, const Weights& b) {
  a.insert(b.begin(), b.end());
  return a;
}

}  // namespace trainhost::test
