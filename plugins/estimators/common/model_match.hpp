// What match() and estimate() of the estimators ask about a model: whether an estimator knows it, whether it
// has the dimensions of the rules, and its true number of parameters, which core/model counts. Computes no
// memory. The options of the run file: options.hpp.
#pragma once
#include <cstdint>
#include <new>
#include <string>
#include <utility>

#include "core/base/error.hpp"
#include "core/model/architecture.hpp"
#include "core/model/model_spec.hpp"
#include "core/model/run_spec.hpp"
#include "core/model/tensors.hpp"

namespace trainhost::rules {

/// The score of `f`, or 0 if it throws: match() returns a score and no status, and such a model does not
/// match. Without memory for an answer `best`, so that estimate() is called, which can report the error.
template <class F>
std::int32_t guard_match(std::int32_t best, F&& f) noexcept {
  try {
    return f();
  } catch (const std::bad_alloc&) {
    return best;
  } catch (...) {
    return 0;
  }
}

/// Whether the parameters of this family can be counted; match() accepts only such families.
inline bool countable_family(const std::string& family) {
  return trainable_family(family) || model::known_family(family);
}

/// Distinct trained weights: the closed form of the trainable families, else of the architecture. Throws
/// usage_error for an unknown family and for an invalid config.
inline std::uint64_t true_parameters(const ModelSpec& m) {
  if (trainable_family(m.family)) return count_parameters(m).total;
  return model::count(model::from_model(m)).total;
}

/// Throws usage_error with the name of the first missing dimension among H, L and A.
inline void need_dimensions(const ModelSpec& m, const char* estimator) {
  const std::pair<const char*, std::uint64_t> needed[] = {
      {"hidden_size", m.hidden}, {"num_hidden_layers", m.layers}, {"num_attention_heads", m.heads}};
  for (const auto& [key, value] : needed)
    if (!value)
      throw usage_error(std::string("the estimator ") + estimator + " needs " + key +
                        ", which the model's config.json does not have");
}

/// Throws usage_error for a run that freezes some of its weights, or whose layers have different adapters:
/// closed forms and replays count the gradients and the optimizer state of all of them.
inline void require_all_weights_trained(const RunSpec& r, const char* estimator) {
  if (!r.trainable.empty())
    throw usage_error(std::string("train.freeze, train.only: the estimator ") + estimator +
                          " counts every weight as trained",
                      "the estimator llama plans such runs");
  if (!r.lora_rules.empty())
    throw usage_error(std::string("lora.targets, lora.rank_pattern, lora.alpha_pattern: the estimator ") +
                          estimator + " plans the same adapters in every layer",
                      "the estimator llama plans such runs");
}

}  // namespace trainhost::rules
