// Generates text with the model of a finished run or of a directory in Hugging Face layout: `trainhost
// generate`.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "core/plugin/registry.hpp"
#include "core/training/sample_tokens.hpp"

namespace trainhost::training {

struct GenerateRequest {
  std::filesystem::path dir;  // a run's output.dir, a model directory, or an adapter of PEFT
  std::string prompt;
  std::string backend = "auto";
  /// Tokens that the model attends to; 0: max_length of generation_config.json, else at most 1024.
  std::uint32_t context = 0;
  SampleOptions sample;
};

/// Calls `emit` with each piece of new text. Throws usage_error if the directory has no model, or if its
/// tokenizer cannot be read; Error(kNoBackend) if the backend cannot generate.
void generate(const GenerateRequest& r, plugin::Registry& registry,
              const std::function<void(const std::string&)>& emit);

}  // namespace trainhost::training
