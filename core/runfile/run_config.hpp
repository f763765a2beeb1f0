// The run file as a value: every key of the interface with its default; the defaults together are the
// built-in run. Made by load_run() from TOML plus --set overrides; nothing else parses user input about a
// run.
#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "core/base/error.hpp"
#include "core/model/model_spec.hpp"
#include "core/model/run_spec.hpp"

namespace trainhost::runfile {

enum class Order { kShuffled, kSequential };
enum class Schedule { kConstant, kCosine, kLinear };

struct DataConfig {
  std::vector<std::filesystem::path> train, valid;  // absolute; empty train = the built-in text
  double valid_fraction = 0;                        // last part of the text; only when `valid` is empty
  std::string tokenizer = "bytes";                  // or the absolute path of a SentencePiece .model
  Order order = Order::kShuffled;
  std::string dtype;  // "", "uint16", "uint32"
};

struct OptimizerConfig {
  double lr = 0, min_lr = 0;
  Schedule schedule = Schedule::kCosine;
  std::uint64_t warmup_steps = 0;
};

struct OutputConfig {
  std::filesystem::path dir;  // absolute
  std::uint64_t checkpoint_every = 0, keep = 2;
};

struct RunConfig {
  std::filesystem::path file;  // "" = the built-in run
  ModelSpec model;
  std::optional<std::filesystem::path> weights;  // safetensors file or index; absolute
  bool model_is_builtin = true;                  // no [model] table, preset or config given
  DataConfig data;
  RunSpec run;  // shapes, types, optimizer numbers, recompute, parallel, seed
  std::string precision = "fp32";
  std::string backend = "auto";
  std::uint64_t steps = 0, eval_every = 0;
  std::uint32_t threads = 0;  // 0 = every core
  OptimizerConfig optimizer;
  std::string device;  // preset name, "" = none
  std::optional<std::uint64_t> budget, host_budget;
  std::vector<std::string> estimators{"auto"};
  OutputConfig output;
  std::vector<std::filesystem::path> plugin_path;  // absolute
  std::vector<std::string> backend_order = {"cuda",
                                            "cpu"};  // auto tries them in turn; one of them falls back along
  Where backend_order_at;                            // its line; no file where it was not given
  std::vector<std::string>
      plugin_allow;  // SHA-256 in hex of plugins that are not the program's own; empty = any
  std::map<std::string, std::map<std::string, std::string>>
      plugin_options;  // [plugin.NAME] key -> value as text
  std::map<std::string, std::pair<std::uint32_t, std::uint32_t>>
      plugin_option_lines;  // "NAME.key" -> line, column
  std::map<std::string, Where>
      given;  // every key that was set, and where; a key that is absent has its default
};

/// --set train.micro_batch=8; `option`: what the user typed instead, "--device".
struct Override {
  std::string key, value, option = {};
};

/// Reads, guards, parses and validates a run file; `file` empty = the built-in run with the overrides
/// applied. Unknown keys, wrong types, out-of-range values and impossible combinations throw Error(kUsage)
/// with file, line, column, value and the nearest valid name. `open`: keys whose values here are not the last
/// word, as a search varies them; combinations with one of them are not judged.
RunConfig load_run(const std::filesystem::path& file, const std::vector<Override>& overrides = {},
                   const std::set<std::string>& open = {});

/// The same from text; `name` stands for the file in messages, relative paths resolve against `base`.
RunConfig parse_run(const std::string& toml, const std::string& name, const std::filesystem::path& base,
                    const std::vector<Override>& overrides = {}, const std::set<std::string>& open = {});

/// --model=PRESET|config.json: the built-in run's other keys with that model in place.
RunConfig run_for_model(const std::string& preset_or_path, const std::vector<Override>& overrides = {},
                        const std::set<std::string>& open = {});

/// A Hugging Face config.json. Families that cannot be trained are returned with their family name and
/// whatever dimensions are known: who refuses them is the caller. Throws Error(kUsage) on malformed JSON or
/// impossible values.
ModelSpec read_model_config(const std::filesystem::path& config_json);
ModelSpec parse_model_config(const std::string& json, const std::string& name);
/// The config.json that Hugging Face software loads the trained model with.
std::string model_config_json(const ModelSpec& m);

/// Names of the matrices that [lora] targets may name; bit i of RunSpec::lora_targets stands for the i-th.
std::span<const std::string> lora_target_names();

/// Throws Error(kUsage), with the key's place, for settings that are valid but whose function does not exist
/// yet and would change the result of training: precision, recompute = "auto", [parallel], [lora]. Called
/// before training.
void refuse_unsupported(const RunConfig& c);

/// A commented run file, generated from the schema table.
std::string init_text();

/// lr of update t (from 0). Warm-up: lr*(t+1)/warmup for t < warmup; then constant, cosine or linear down to
/// min_lr.
double lr_at(const OptimizerConfig& o, std::uint64_t t, std::uint64_t steps);

}  // namespace trainhost::runfile
