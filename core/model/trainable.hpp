// Which tensors of a model a run trains: RunSpec::trainable, the rules of train.freeze and train.only. A
// tensor that is not trained has no gradient and no optimizer state. Runs that train adapters freeze the
// model, except the modules of lora.modules_to_save, which are rules too.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

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

/// Whether the run trains a tensor of the model: is_trained(), but in a run that trains adapters without
/// rules none.
bool trains_weight(const RunSpec& r, std::string_view tensor);

/// The rules of a run that trains adapters and these modules: all whose names end in one of `modules`, as in
/// PEFT ("lm_head", "norm" for every norm).
std::string rules_of_modules(std::span<const std::string> modules);
/// The names that rules_of_modules() was given; empty for other rules.
std::vector<std::string> saved_modules(const RunSpec& r);
/// Whether lora.modules_to_save has the embedding of a model whose LM head is the same tensor. PEFT calls it
/// ensure_weight_tying: it is trained once, with the gradients of both uses.
bool trains_tied_embedding(const ModelSpec& m, const RunSpec& r);
/// Throws usage_error if the run trains adapters, and with them modules that it cannot train: none of that
/// name, adapted or quantized ones, a part of a product.
void require_trainable_modules(const ModelSpec& m, const RunSpec& r);

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
