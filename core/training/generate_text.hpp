// Text from a finished run or any model directory in Hugging Face layout: `trainhost generate`.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "core/plugin/registry.hpp"
#include "core/training/sample.hpp"

namespace trainhost::training {

struct GenerateRequest {
  std::filesystem::path dir;  // a run's output.dir, or a directory with config.json and model.safetensors
  std::string prompt;
  std::string backend = "auto";
  std::uint32_t context =
      0;  // tokens the model sees; 0: generation_config.json's max_length, else up to 1024
  SampleOptions sample;
};

/// Throws usage_error when the directory holds no model, or one whose tokenizer we cannot read.
void generate(const GenerateRequest& r, plugin::Registry& registry,
              const std::function<void(const std::string&)>& emit);

}  // namespace trainhost::training
