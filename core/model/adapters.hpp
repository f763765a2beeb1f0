// Low-rank adapters (LoRA, Hu et al. 2021) of a run: which tensors they add to a model, in the names and
// shapes of the PEFT library, and where each of them acts. A matrix W [out, in] with an adapter of rank r
// computes y = x W^T + scale * (x A^T) B^T with A [r, in] and B [out, r]. With DoRA (Liu et al. 2024,
// lora.dora) it has the weight W' = m * (W + scale * B A) / n instead, with a magnitude m and the norm n of
// each row of W + scale * B A; n is a constant for gradients. Rows of W are outputs: of an embedding, which
// is stored transposed, m and n belong to the columns of the table, as in PEFT. Only the adapters are
// trained, and the modules of lora.modules_to_save (trainable.hpp).
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/model/adapter_rules.hpp"
#include "core/model/model_spec.hpp"
#include "core/model/run_spec.hpp"
#include "core/model/tensors.hpp"

namespace trainhost {

/// The products that can have adapters: four of a layer, in which q, k and v read the same input, as do gate
/// and up; and two outside the layers. In that of the embedding u is a row of A^T per token, and the output
/// scale * u B^T: A [rank, vocabulary] of PEFT is stored transposed, as a table of `rank` columns.
enum class AdapterGroup : std::uint32_t { kQkv, kO, kGateUp, kDown, kEmbed, kHead };
inline constexpr std::uint32_t kAdapterGroups = 4;     // of a layer
inline constexpr std::uint32_t kAllAdapterGroups = 6;  // with those outside the layers, whose layer is -1

/// The product that contains a matrix of this role. Only for roles of matrices that can have an adapter.
AdapterGroup adapter_group(TensorRole matrix);

/// True for the products whose inputs TP ranks divide, and whose outputs are sums over them; the others
/// divide their outputs. The inputs of the embedding are the tokens of the vocabulary.
constexpr bool has_divided_inputs(AdapterGroup g) {
  return g == AdapterGroup::kO || g == AdapterGroup::kDown || g == AdapterGroup::kEmbed;
}

/// One adapted matrix inside a product. Units: elements.
struct AdapterBlock {
  TensorRole matrix;
  std::uint64_t outputs;        // rows of the matrix
  std::uint64_t output_column;  // its first column in the output of the product
  std::uint64_t
      inner_column;  // its first column in u = x A^T, in which the adapters of a product are side by side
  std::uint64_t first_row_of_b;  // in the stacked B of the product
};

/// The adapted matrices of a product of one layer, in the order q, k, v or gate, up.
struct AdapterBlocks {
  std::array<AdapterBlock, 3> block{};
  std::uint32_t count = 0;
  std::uint64_t inputs = 0;     // columns of every matrix of the product
  std::uint64_t width = 0;      // columns of the product's output
  std::uint64_t rows_of_b = 0;  // sum of the outputs of the blocks
  std::uint64_t rank = 0;       // of each of them
  double scale = 0;             // the factor of B A: alpha / rank
  // Of the embedding: the matrix is stored as a table [inputs, width], and A as a table [inputs, rank].
  bool transposed = false;
  std::uint64_t inner() const { return count * rank; }  // columns of u
  std::span<const AdapterBlock> all() const { return {block.data(), count}; }
};
/// count is 0 if the run adapts no matrix of the product.
AdapterBlocks adapter_blocks(const ModelSpec& m, const RunSpec& r, AdapterGroup group, std::int32_t layer);
/// The adapters of every product of the layers that differ: those of layer 0 if all layers are alike, else of
/// all layers.
std::vector<AdapterBlocks> different_adapter_blocks(const ModelSpec& m, const RunSpec& r);
/// The number of a product among those of a model: 4 * layer + group, then those outside the layers.
std::uint32_t adapted_product_number(const ModelSpec& m, AdapterGroup group, std::int32_t layer);
/// The group of the product with this number.
AdapterGroup group_of_product(const ModelSpec& m, std::uint32_t number);

/// Bits of RunSpec::lora_targets for matrices outside the layers: TH_LORA_HEAD and TH_LORA_EMBED of the SDK.
inline constexpr std::uint32_t kTargetHead = 128, kTargetEmbedding = 256,
                               kTargetsOutsideLayers = kTargetHead | kTargetEmbedding;
/// TH_LORA_TIED: embedding and LM head are one tensor and have one adapter, as with ensure_weight_tying in
/// PEFT. A [V,r] of the embedding, as it is stored, is B of the head, and B [H,r] of the embedding is A of
/// the head transposed. Each has magnitudes of its own. The gradients of both uses are added up.
inline constexpr std::uint32_t kTiedAdapter = 512;
inline bool ties_adapter(const RunSpec& r) { return (r.lora_targets & kTiedAdapter) != 0; }
/// Whether the LM head or the embedding has an adapter: by lora_targets in runs of trainers, else by the
/// policy.
inline bool adapts_head(const RunSpec& r) { return r.memory.adapts_head || (r.lora_targets & kTargetHead); }
inline bool adapts_embedding(const RunSpec& r) {
  return r.memory.adapts_embedding || (r.lora_targets & kTargetEmbedding);
}

/// True if only adapters are trained.
bool trains_adapters(const RunSpec& r);

/// The change scale * B A of an adapted matrix [outputs, inputs], with A [rank, inputs] and B [outputs,
/// rank].
struct AdapterProduct {
  const float *a, *b;
  std::uint64_t rank, inputs;
  double scale;
  /// Calls f(i, row, product) for elements [first, first + count) of the matrix, with the element first + i
  /// of the change, summed in double.
  template <class F>
  void for_elements(std::uint64_t first, std::uint64_t count, F&& f) const {
    std::vector<double> sum;
    for (std::uint64_t done = 0; done < count;) {
      const std::uint64_t row = (first + done) / inputs, column = (first + done) % inputs,
                          n = std::min(inputs - column, count - done);
      sum.assign(n, 0.0);
      for (std::uint64_t k = 0; k < rank; ++k) {
        const double factor = scale * b[row * rank + k];
        if (factor == 0.0) continue;
        for (std::uint64_t i = 0; i < n; ++i) sum[i] += factor * a[k * inputs + column + i];
      }
      for (std::uint64_t i = 0; i < n; ++i) f(done + i, row, sum[i]);
      done += n;
    }
  }
};

/// A and B of every adapted matrix, and with DoRA its magnitudes [out]; empty unless the run trains adapters.
/// Per layer and product: the A's of its matrices, then their B's, then their magnitudes; then those of the
/// embedding and of the LM head.
/// "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight", "....q_proj.lora_magnitude_vector",
/// "base_model.model.model.embed_tokens.lora_embedding_A", which is [vocabulary, rank] here and [rank,
/// vocabulary] in PEFT's files (is_transposed_in_files()).
std::vector<TensorInfo> adapter_tensors(const ModelSpec& m, const RunSpec& r);
/// True for A of the embedding.
bool is_transposed_in_files(const TensorInfo& t);
/// The name of the adapted matrix of a tensor of an adapter: "model.layers.0.self_attn.q_proj.weight".
std::string adapted_weight(const TensorInfo& adapter);
/// tensors(m), then adapter_tensors(m, r): everything that a trainer has in memory.
std::vector<TensorInfo> all_tensors(const ModelSpec& m, const RunSpec& r);
/// The tensors that the run changes, hence those with moments: those of tensors(m) that train.freeze and
/// train.only leave or that lora.modules_to_save names, then the adapters.
std::vector<TensorInfo> trained_tensors(const ModelSpec& m, const RunSpec& r);
/// The tensors whose values a checkpoint has: of a run that trains adapters the trained ones, else
/// tensors(m), frozen ones included.
std::vector<TensorInfo> saved_tensors(const ModelSpec& m, const RunSpec& r);
/// The number of elements of trained_tensors(), in closed form where the run has no rules about tensors.
std::uint64_t count_trained_parameters(const ModelSpec& m, const RunSpec& r);
/// The number of elements of saved_tensors(), in closed form.
std::uint64_t count_saved_parameters(const ModelSpec& m, const RunSpec& r);

}  // namespace trainhost
