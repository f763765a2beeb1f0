// Which tensors of a model a run trains: RunSpec::trainable, the rules of train.freeze and train.only. A
// tensor that is not trained has no gradient and no optimizer state. Runs that train adapters freeze the
// whole model and have no such rules.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/model/model_spec.hpp"
#include "core/model/run_spec.hpp"

namespace trainhost {

/// True if `name` matches the glob `pattern`: '*' matches any text, also none and with dots, '?' for
/// one character.
bool matches_glob(std::string_view pattern, std::string_view name);

/// The fewest characters of `pattern` and `name` that must change for them to match; 0 if they match. For
/// messages that name the nearest parameter.
std::size_t glob_distance(std::string_view pattern, std::string_view name);

/// Whether the rules train a tensor of the model. RunSpec::trainable has one rule per line, '+' (trained) or
/// '-' (frozen) before a glob pattern; the last one that matches decides, and without a match the tensor is
/// trained.
bool is_trained(const RunSpec& r, std::string_view tensor);

/// True if the run trains every weight of the model, and no adapters.
bool trains_all_weights(const RunSpec& r);

/// A pair of tensors of which the rules train one alone, although a trainer computes their gradients
/// together: q, k and v of a layer, gate and up, the biases of such a product, q_norm and k_norm; and a bias
/// without its matrix.
struct SplitProduct {
  std::string trained, frozen;
};
std::optional<SplitProduct> find_split_product(const ModelSpec& m, const RunSpec& r);

}  // namespace trainhost
