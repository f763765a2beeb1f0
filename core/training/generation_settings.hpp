// The settings of generation_config.json that generate and chat follow, in the meaning of transformers.
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

#include "core/training/sample_tokens.hpp"

namespace trainhost::training {

struct GenerationSettings {
  SampleOptions sample;               // temperature 0 if do_sample is false
  std::uint32_t max_length = 0;       // prompt and new tokens; 0 = not stated
  std::vector<std::int32_t> eos_ids;  // tokens that end a text
};

/// Settings of the model folder `dir`. Without a file: temperature 0.8. With one: as transformers, which
/// samples only if do_sample is true, then with temperature 1 and the 50 most likely tokens where the file
/// says nothing else. The end tokens are those of the file, else those of config.json. Throws usage_error
/// with file, line and value for a value that cannot be used.
GenerationSettings read_generation_settings(const std::filesystem::path& dir);

}  // namespace trainhost::training
