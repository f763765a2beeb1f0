// Continues texts with a model: processes prompts, samples tokens, turns them into text. Several texts share
// each forward pass, so that the weights are read once per step. The cache of a sequence is kept between
// calls: the ids that a new prompt has in common with it are not computed again.
#pragma once
#include <cstdint>
#include <functional>
#include <random>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "core/plugin/plugin.hpp"
#include "core/tokenizer/tokenizer.hpp"
#include "core/training/sample_tokens.hpp"

namespace trainhost::training {

/// What a generator works with; all of it outlives the generator.
struct Inference {
  plugin::Decoder& decoder;
  const tokenizer::Tokenizer& tokenizer;
  std::uint64_t vocab = 0;      // of the model; ids beyond the tokenizer's vocabulary are never sampled
  std::uint32_t context = 0;    // positions of a sequence
  std::uint32_t rows = 1;       // of a forward pass; at least `sequences`
  std::uint32_t sequences = 1;  // texts that are continued at the same time
  std::span<float> logits;      // [sequences, vocab]
};

/// Why a text ended.
enum class Finish { kEndToken, kLength, kContextFull, kStopped };
/// "stop", "length", "context", "interrupted"
const char* name(Finish f);

/// A text that was continued.
struct Continuation {
  std::string text;               // the new part, without the end token
  std::vector<std::int32_t> ids;  // new tokens; the end token is the last one for kEndToken
  std::uint64_t prompt_tokens = 0;
  Finish finish = Finish::kLength;
};

struct GenerationSpeed {
  std::uint64_t prompt_tokens = 0;          // that were computed; those found in a cache do not count
  std::uint64_t new_tokens = 0, steps = 0;  // a step gives one token to each text
  double prompt_seconds = 0, step_seconds = 0;
};

class TextGenerator {
 public:
  /// `end_ids`: tokens that end a text.
  TextGenerator(const Inference& inference, const SampleOptions& options, std::set<std::int32_t> end_ids);

  struct Callbacks {
    /// A piece of new text of prompt `index`, complete UTF-8 characters. May be empty.
    std::function<void(std::size_t index, const std::string& piece)> text;
    /// Called when a text has ended, in any order. May be empty.
    std::function<void(std::size_t index, const Continuation&)> done;
    /// True: all texts end with kStopped. Called between forward passes. May be empty.
    std::function<bool()> stopped;
  };
  /// Continues prompts until an end token or options.tokens new ones. Text i samples with the seed
  /// options.seed + i, whichever texts are continued at the same time. If the context is full, it restarts
  /// with its second half where `restart` is true, else the text ends. Throws usage_error for a prompt that
  /// is empty or fills the context, before anything is computed.
  std::vector<Continuation> run(std::span<const std::vector<std::int32_t>> prompts,
                                const Callbacks& callbacks, bool restart);

  const GenerationSpeed& speed() const { return speed_; }

 private:
  struct Text;
  void feed(Text& t, const Callbacks& callbacks);
  bool sample(Text& t, std::span<float> logits, const Callbacks& callbacks, bool restart);
  void step(std::vector<Text*>& texts);

  Inference in_;
  SampleOptions options_;
  std::set<std::int32_t> end_ids_;
  std::vector<std::vector<std::int32_t>> cached_;  // ids in the cache of each sequence
  GenerationSpeed speed_;
};

}  // namespace trainhost::training
