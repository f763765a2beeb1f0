// Parameters of a trainable model: names, shapes, counts and initial values of its tensors, in the layout and
// file order of Hugging Face checkpoints. Counts, loading, saving and the step program read this list.
#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/model/model_spec.hpp"

namespace trainhost {

enum class TensorRole : std::uint32_t {
  kEmbed,
  kNorm1,
  kQ,
  kK,
  kV,
  kQBias,
  kKBias,
  kVBias,
  kQNorm,
  kKNorm,
  kO,
  kOBias,
  kNorm2,
  kGate,
  kUp,
  kGateBias,
  kUpBias,
  kDown,
  kDownBias,
  kFinalNorm,
  kHead,
};

/// Whether a tensor is of the model itself, or of a low-rank adapter (adapters.hpp) of the matrix that
/// TensorInfo::role names: A, B, or with DoRA the magnitudes of the matrix's rows.
enum class AdapterPart : std::uint32_t { kNone, kA, kB, kMagnitude };

/// Of a tensor of optimizer state, what it is of the tensor whose name it has (optimizer_state.hpp): of each
/// element, of each row or column of a matrix, or of each block of elements.
enum class StatePart : std::uint8_t { kElements, kRows, kColumns, kBlocks };

struct TensorInfo {
  std::string name;  // "model.layers.3.self_attn.q_proj.weight"
  TensorRole role;
  std::int32_t layer = -1;             // -1: not in a layer
  std::uint32_t rank = 1;              // 1 or 2
  std::array<std::uint64_t, 2> dim{};  // [rows, cols]; rank 1: [n, 1]
  AdapterPart part = AdapterPart::kNone;
  StatePart state = StatePart::kElements;
  std::uint64_t blocks_per_row = 1;  // with kBlocks, of a matrix whose rows are whole blocks
  std::uint64_t elements() const { return dim[0] * dim[1]; }
};

/// Files of the weights in a model folder, in the order in which they are looked for; transformers uses the
/// same order.
inline constexpr const char* kWeightFiles[] = {"model.safetensors", "model.safetensors.index.json"};

/// Every parameter tensor once; a tied head is the embedding and has no entry.
std::vector<TensorInfo> tensors(const ModelSpec& m);

struct ParameterCounts {
  std::uint64_t total = 0, embedding = 0, per_layer = 0, final_norm = 0, head = 0;
};
/// Closed form, O(1) in the number of layers. Equal to the sum over tensors().
ParameterCounts count_parameters(const ModelSpec& m);

/// Fills out[i] with the initial value of element `first + i` (row-major) of tensor `t`: norms 1, biases 0,
/// matrices N(0, initializer_range), A of an adapter uniform in +-1/sqrt(inputs) and B 0, as PEFT does. A
/// pure function of (seed, tensor name, element index): every trainer starts from the same bits on any device
/// and in any order. Not for the magnitudes of DoRA, which follow from the weights
/// (core/executor/initial_magnitudes.cpp).
void init_tensor(const ModelSpec& m, const TensorInfo& t, std::uint64_t seed, std::uint64_t first,
                 std::span<float> out);

}  // namespace trainhost
