// Reads the adapter_config.json of a PEFT folder: what an adapter is, as far as its tensors do not say it.
// The file is untrusted: every key that changes the arithmetic is checked. The tensors are read by
// core/training.
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/base/error.hpp"

namespace trainhost::runfile {

struct AdapterConfig {
  std::uint32_t rank = 0;
  double alpha = 0;                          // lora_alpha
  bool rslora = false;                       // use_rslora
  bool dora = false;                         // use_dora
  double dropout = 0;                        // lora_dropout; of training alone
  std::uint32_t targets = 0;                 // bit i: lora_target_names()[i]
  std::vector<std::string> modules_to_save;  // ends of the names of modules that are trained whole
  bool tied = false;                         // ensure_weight_tying: embedding and LM head stay one tensor
  std::string base;                          // base_model_name_or_path; "" if the file names none
  /// Why the adapter cannot be trained further, although it can be applied: its targets are not whole kinds
  /// of matrices.
  std::optional<Error> not_trainable;
  /// rank_pattern and alpha_pattern: regular expressions of the ends of the names of modules, in the order of
  /// the file, of which the first that matches holds instead of `rank` or `alpha`.
  std::vector<std::pair<std::string, std::uint32_t>> rank_pattern;
  std::vector<std::pair<std::string, double>> alpha_pattern;
  /// The factor of B A for a matrix of this rank and alpha.
  double scale(std::uint32_t rank_of_matrix, double alpha_of_matrix) const;
};

/// Throws usage_error for another file than that of a LoRA adapter, for invalid values, and for an adapter
/// that PEFT would apply in another way than W + scale * B A, or with DoRA its rows in other norms
/// (trained biases).
AdapterConfig read_adapter_config(const std::filesystem::path& file);

/// The folder with adapter_config.json: `dir` itself, or adapter/ in it, as a run leaves it; nullopt if
/// neither has one.
std::optional<std::filesystem::path> adapter_folder(const std::filesystem::path& dir);

}  // namespace trainhost::runfile
