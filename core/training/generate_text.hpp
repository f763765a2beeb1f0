// `trainhost generate`: prompts of a command line or a file, continued by the model of a finished run or of a
// directory in Hugging Face layout. What the parts do: inference_model.hpp, text_generator.hpp.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/base/json_value.hpp"
#include "core/training/inference_model.hpp"
#include "core/training/text_generator.hpp"

namespace trainhost::training {

/// What the user sets; the rest is from generation_config.json.
struct SampleOverrides {
  std::optional<double> temperature, top_p, repetition_penalty;
  std::optional<std::uint32_t> top_k;
  std::uint32_t tokens = 200;
  std::uint64_t seed = 1;
};

/// The options of a generation. A top_k or top_p that the user sets asks for sampling, with temperature 1
/// where the model's settings say that the most likely token is taken.
SampleOptions sample_options(const GenerationSettings& settings, const SampleOverrides& o);

/// The prompts of a file: of .jsonl and .ndjson the "prompt" of each object, or a line that is a string;
/// otherwise each line. Empty lines are left out. Throws usage_error with file and line for a line that is
/// neither, and if there are no prompts.
std::vector<std::string> read_prompts(const std::filesystem::path& file);

/// The ids of a prompt, as Hugging Face software makes them: special tokens are found, and begin tokens put
/// in front.
std::vector<std::int32_t> prompt_ids(const tokenizer::Tokenizer& tokenizer, const std::string& prompt);

/// A generator for a loaded model that ends texts at its end tokens, and at those of `more_ends`.
TextGenerator make_generator(InferenceModel& model, const SampleOptions& options,
                             const std::set<std::int32_t>& more_ends = {});

/// Generated text for a terminal: escaped, because it may contain control sequences, except line ends.
std::string escaped_lines(const std::string& text);

/// {"prompt", "completion", "finish_reason", "prompt_tokens", "completion_tokens"}
JsonValue result_json(const std::string& prompt, const Continuation& c);

/// "12 prompt tokens at 350.1/s, 200 new tokens at 51.2/s, 200 steps that read 13.1 GB/s of weights"
std::string speed_text(const GenerationSpeed& s, std::uint64_t step_bytes);
/// {"prompt_tokens", "prompt_tokens_per_second", "new_tokens", "new_tokens_per_second", "steps",
/// "weight_bytes", "gigabytes_per_second"}
JsonValue speed_json(const GenerationSpeed& s, std::uint64_t step_bytes);

}  // namespace trainhost::training
