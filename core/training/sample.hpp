// Text from logits: temperature, top-k, top-p, with a seeded generator, one token at a time.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>

#include "core/data/dataset.hpp"
#include "core/plugin/plugin.hpp"

namespace trainhost::training {

struct SampleOptions {
  std::uint32_t tokens = 200;  // how many new ones at most
  double temperature = 0.8;    // 0: always the likeliest
  std::uint32_t top_k = 0;     // 0: no limit
  double top_p = 1.0;
  std::uint64_t seed = 1;
};

/// Index drawn from the logits; u in [0, 1). Deterministic. `logits` is scratch afterwards.
std::int32_t pick(std::span<float> logits, const SampleOptions& o, double u);

/// Continues `prompt`, handing each piece of new text to `emit` as soon as it is whole UTF-8. A full context
/// (seq_len) goes on with its second half.  `logits`: [vocab] scratch.
void sample(plugin::Session& s, const data::Tokenizer& tokenizer, const std::string& prompt,
            const SampleOptions& o, std::uint32_t seq_len, std::span<float> logits,
            const std::function<void(const std::string&)>& emit);

/// Text to show at the end of a run: what the model makes of the validation text's first tokens, escaped, two
/// columns in. nullopt where the trainer cannot generate, the tokens have no known text, or the tokenizer has
/// more words than the model. `logits`: [vocab] scratch.
std::optional<std::string> closing_sample(plugin::Session& s, const data::Tokenizer& tokenizer,
                                          const data::Source& source, const ModelSpec& m, const RunSpec& r,
                                          std::span<float> logits);

}  // namespace trainhost::training
