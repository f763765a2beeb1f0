// Reads the adapter_config.json of a PEFT folder: what an adapter is, as far as its tensors do not say it.
// The file is untrusted: every key that changes the arithmetic is checked. The tensors are read by
// core/training.
#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/base/error.hpp"
#include "core/model/adapter_rules.hpp"

namespace trainhost::runfile {

/// A regular expression of the file, for names of modules or their ends.
struct CompiledPattern;  // <regex> is included by adapter_config.cpp alone, because it is slow to compile
struct ModulePattern {
  std::string text;
  std::shared_ptr<const CompiledPattern> compiled;
};

struct AdapterConfig {
  std::uint32_t rank = 0;
  double alpha = 0;                          // lora_alpha
  bool rslora = false;                       // use_rslora
  bool dora = false;                         // use_dora
  double dropout = 0;                        // lora_dropout; of training alone
  std::vector<std::string> modules_to_save;  // ends of the names of modules that are trained whole
  bool tied = false;                         // ensure_weight_tying: embedding and LM head stay one tensor
  std::string base;                          // base_model_name_or_path; "" if the file names none
  /// target_modules: names or ends of names of modules; or a regular expression of whole names; or
  /// "all-linear".
  std::vector<std::string> targets;
  std::optional<ModulePattern> target_pattern;
  bool all_linear = false;
  /// exclude_modules, likewise; layers_to_transform: empty for all.
  std::vector<std::string> excluded;
  std::optional<ModulePattern> excluded_pattern;
  std::vector<std::uint32_t> layers;
  /// rank_pattern and alpha_pattern: of the ends of the names of modules, in the order of the file, of which
  /// the first that matches holds instead of `rank` or `alpha`.
  std::vector<std::pair<ModulePattern, std::uint32_t>> rank_pattern;
  std::vector<std::pair<ModulePattern, double>> alpha_pattern;

  /// The adapter of a module, if it has one: "model.layers.0.self_attn.q_proj". alpha / rank is the factor of
  /// B A.
  AdapterSize size_of(const std::string& module) const;
  /// Whether PEFT adapts a matrix of this name.
  bool adapts(const std::string& module) const;
  /// Whether it adapts the embedding or the LM head.
  bool adapts_outside_layers() const { return adapts("model.embed_tokens") || adapts("lm_head"); }
};

/// Throws usage_error for another file than that of a LoRA adapter, for invalid values, and for an adapter
/// that PEFT would apply in another way than W + scale * B A, or with DoRA its rows in other norms
/// (trained biases). Regular expressions are those of ECMAScript, which agree with Python's but for groups
/// with names, flags and look-behind.
AdapterConfig read_adapter_config(const std::filesystem::path& file);

/// The folder with adapter_config.json: `dir` itself, or adapter/ in it, as a run leaves it; nullopt if
/// neither has one.
std::optional<std::filesystem::path> adapter_folder(const std::filesystem::path& dir);

}  // namespace trainhost::runfile
