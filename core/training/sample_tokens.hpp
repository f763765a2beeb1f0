// Samples tokens from the logits of a session: temperature, top-k, top-p, with a seeded random generator.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/data/dataset.hpp"
#include "core/plugin/plugin.hpp"

namespace trainhost::training {

struct SampleOptions {
  std::uint32_t tokens = 200;  // number of new tokens
  double temperature = 0.8;    // 0: always the most likely token
  std::uint32_t top_k = 0;     // 0: all tokens
  double top_p = 1.0;
  double repetition_penalty = 1.0;
  std::uint64_t seed = 1;
};

/// The id sampled with the random number `u` in [0, 1). Deterministic. Overwrites `logits`.
std::int32_t sample_token(std::span<float> logits, const SampleOptions& o, double u);

/// Makes ids that the text already has less likely: positive logits are divided by the penalty, others
/// multiplied, each id once. Source: CTRL (Keskar et al. 2019), as in transformers. 1 = no penalty.
void apply_repetition_penalty(std::span<float> logits, std::span<const std::int32_t> ids, double penalty);

/// The sample that a run prints: a continuation of the first tokens of the validation text, escaped
/// and indented by two columns. nullopt if the trainer cannot generate, the text of the tokens is unknown, or
/// the tokenizer has more ids than the model. `logits`: scratch of [vocab].
std::optional<std::string> sample_of_trained_model(plugin::Session& s, const data::Tokenizer& tokenizer,
                                                   const data::Source& source, const ModelSpec& m,
                                                   const RunSpec& r, std::span<float> logits);

}  // namespace trainhost::training
