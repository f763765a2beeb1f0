// Which matrices have an adapter, and of which size: RunSpec::lora_targets, lora_rank and lora_alpha for all
// layers alike, and RunSpec::lora_rules for single matrices that differ (lora.targets with patterns,
// lora.rank_pattern, lora.alpha_pattern).
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "core/model/model_spec.hpp"
#include "core/model/run_spec.hpp"
#include "core/model/tensors.hpp"

namespace trainhost {

/// Rank 0: no adapter. The adapter adds alpha / rank * B A; rsLoRA (alpha / sqrt(rank)) is stated as
/// alpha * sqrt(rank), so that trainers know one formula.
struct AdapterSize {
  std::uint32_t rank = 0;
  double alpha = 0;
  bool operator==(const AdapterSize&) const = default;
};

/// A matrix that can have an adapter: its name, "model.layers.0.self_attn.q_proj", and its bit in
/// RunSpec::lora_targets.
struct AdaptableMatrix {
  std::string module;
  std::uint32_t target;
};
std::vector<AdaptableMatrix> adaptable_matrices(const ModelSpec& m);
/// The name of a matrix of a layer, as AdaptableMatrix has it.
std::string adapted_module(TensorRole matrix, std::int32_t layer);

/// Sets lora_targets and lora_rules of `r`, so that every matrix has the adapter that `size` gives it.
/// lora_rank and lora_alpha are what most of them have, and were set before.
void set_adapters(const ModelSpec& m, const std::function<AdapterSize(const AdaptableMatrix&)>& size,
                  RunSpec& r);
/// The adapter of a matrix whose bit lora_targets has.
AdapterSize size_of_adapter(const RunSpec& r, std::string_view module);

/// Throws usage_error if the run trains adapters and lora_rules names a matrix that the model does not have,
/// has no valid size, gives the matrices of a product (q, k and v; gate and up) of a layer different ones, or
/// leaves no adapter.
void require_valid_adapters(const ModelSpec& m, const RunSpec& r);

}  // namespace trainhost
