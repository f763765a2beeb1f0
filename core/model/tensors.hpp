// The model's parameters as a checkpoint names them: one entry per tensor of the Hugging Face layout, in file
// order. The one place that knows tensor names and shapes; counts, loading, saving and the step program all
// read it.
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

struct TensorInfo {
  std::string name;  // "model.layers.3.self_attn.q_proj.weight"
  TensorRole role;
  std::int32_t layer = -1;             // -1: not of a layer
  std::uint32_t rank = 1;              // 1 or 2
  std::array<std::uint64_t, 2> dim{};  // [rows, cols]; rank 1: [n, 1]
  std::uint64_t elements() const { return dim[0] * dim[1]; }
};

/// Every parameter tensor once; the head of a tied model is the embedding and has no entry.
std::vector<TensorInfo> tensors(const ModelSpec& m);

struct ParameterCounts {
  std::uint64_t total = 0, embedding = 0, per_layer = 0, final_norm = 0, head = 0;
};
/// Closed form, without enumerating layers (O(1): a 405B model costs nothing). Equal to the sum over
/// tensors().
ParameterCounts count_parameters(const ModelSpec& m);

/// Fills out[i] with the initial value of element `first + i` (row-major) of tensor `t`: norms 1, biases 0,
/// matrices N(0, initializer_range). A pure function of (seed, tensor name, element index): every trainer
/// starts from the same bits on any device and in any order.
void init_tensor(const ModelSpec& m, const TensorInfo& t, std::uint64_t seed, std::uint64_t first,
                 std::span<float> out);

}  // namespace trainhost
