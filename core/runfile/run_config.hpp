// The run file as a value, and the public interface of core/runfile. load_run() builds a RunConfig from TOML
// and --set overrides; nothing else parses user input about a run. The defaults are the built-in run.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "core/base/error.hpp"
#include "core/model/model_spec.hpp"
#include "core/model/run_spec.hpp"
#include "core/runfile/file_key.hpp"
#include "core/runfile/run_file_error.hpp"

namespace trainhost::runfile {

enum class Order { kShuffled, kSequential };
enum class Schedule { kConstant, kCosine, kLinear, kWsd };
/// The last phase of Schedule::kWsd: the part of lr - min_lr that remains after the part x of the phase.
enum class Decay { kLinear, kCosine, kOneMinusSqrt };  // 1 - x; (1 + cos(pi x)) / 2; 1 - sqrt(x)

struct DataConfig {
  std::vector<std::filesystem::path> train, valid;  // absolute; empty train = the built-in text
  // Of data.weights, by entry of data.train: its share of the training data, and the number of its files,
  // which are consecutive in `train`. Empty: nothing is mixed.
  std::vector<double> weights;
  std::vector<std::size_t> entry_files;
  double valid_fraction = 0;        // fraction of the text, from its end; 0 if `valid` is given
  std::string tokenizer = "bytes";  // or the absolute path of a SentencePiece .model or a tokenizer.json
  Order order = Order::kShuffled;
  std::string dtype;  // "uint16", "uint32", or "" = derived from the vocabulary size
  // Of records:
  std::string chat_template = "auto";       // or the name of a built-in one
  bool loss_on_all = false;                 // false: only completions
  bool skip_broken = false;                 // false: a broken record ends the run
  std::optional<bool> packing;              // several records in one sequence; unset: where the trainer can
  bool special_tokens = true;               // names of special tokens in plain texts are special tokens
  std::map<std::string, std::string> keys;  // "text" to the key that a record has instead
};

struct OptimizerConfig {
  double lr = 0, min_lr = 0;
  Schedule schedule = Schedule::kCosine;
  std::uint64_t warmup_steps = 0;
  std::uint64_t decay_steps = 0;  // of kWsd; with warmup_steps at most the steps of the run
  Decay decay = Decay::kLinear;   // of kWsd
  // Parts of the steps of the run, from 0 to 1, where given instead of a number of steps.
  std::optional<double> warmup_ratio = {}, decay_ratio = {};
};

/// What follows a step that failed numerically.
enum class Policy {
  kIgnore,    // for spikes only
  kStop,      // end the run
  kSkip,      // leave the update of the step out
  kRollback,  // return to the last checkpoint and continue with the data after the step
};

struct SafetyConfig {
  Policy on_nonfinite = Policy::kStop, on_spike = Policy::kIgnore;
  double spike_threshold = 6;        // standard deviations
  std::uint32_t spike_window = 128;  // losses
  std::uint64_t verify_every = 0;    // steps; 0 = never
};

struct OutputConfig {
  std::filesystem::path dir;    // absolute
  std::filesystem::path cache;  // of tokenized text; shared by the numbered folders of a default name
  std::uint64_t checkpoint_every = 0, keep = 2;
  double checkpoint_minutes = 0;
  bool keep_best = false, async_checkpoints = false;
  bool report = true;              // report.html at the end
  std::uint64_t sample_every = 0;  // steps between samples of generated text; 0 = only at the end
  bool model_best = false;         // the result has the weights of the best checkpoint; then keep_best is set
  DType dtype = DType::kF32;       // of the weights in model/: kF32, kBF16 or kF16
  bool tensorboard = true;         // event files for TensorBoard in the folder tb
};

/// [lora] as it was given or as model.adapter defines it, for adapter_config.json; what trainers need is in
/// RunSpec.
struct LoraConfig {
  double alpha = 0;
  bool rslora = false;  // scale alpha / sqrt(rank) instead of alpha / rank
};

struct RunConfig {
  std::filesystem::path file;  // absolute; "" = not read from a file
  ModelSpec model;
  std::filesystem::path model_folder;            // of model.path or model.config; absolute; "" = not given
  std::optional<std::filesystem::path> weights;  // safetensors file or index; absolute
  std::optional<std::filesystem::path>
      adapter;                   // model.adapter: folder of the adapter to start from; absolute
  bool model_is_builtin = true;  // no model config, preset or inline field given
  DataConfig data;
  RunSpec run;  // shapes, types, optimizer, recomputation, parallelism, seed
  std::string precision = "fp32";
  std::string backend = "auto";
  std::uint64_t steps = 0, eval_every = 0;
  double epochs =
      0;  // train.epochs; 0 = not given: `steps` holds. Else the run sets `steps` when its data is open
  std::uint64_t early_stopping = 0;        // evaluations without improvement that end the run; 0 = none do
  double early_stopping_min_delta = 0;     // nats
  double eval_epochs = 0;                  // 0 = eval_every holds; else the run sets it when its data is open
  std::uint32_t threads = 0;               // 0 = all cores
  std::string communicator = "auto";       // plugin id
  std::uint32_t communicator_timeout = 0;  // seconds; 0 = none
  OptimizerConfig optimizer;
  LoraConfig lora;
  SafetyConfig safety;
  std::string device;                                // name of a device preset; "" = none
  std::optional<std::uint64_t> budget, host_budget;  // bytes
  std::vector<std::string> estimators{"auto"};
  // Which key named the estimators: "memory.estimator", "memory.estimators.llama"; "" = neither is given.
  std::string estimator_rule;
  Where estimator_rule_at;  // of a line of [memory.estimators]; else no file
  OutputConfig output;
  std::vector<std::filesystem::path> plugin_path;  // absolute
  // Order in which `auto` tries backends; an unavailable one falls back to the next.
  std::vector<std::string> backend_order = {"cuda", "cpu"};
  Where backend_order_at;  // position of plugins.order; no file if it was not given
  // SHA-256 digests in lower-case hex of the plugin files accepted from outside the program's own folders;
  // empty = any file.
  std::vector<std::string> plugin_allow;
  // Whose step is planned (plan.framework); "" = trainhost's own. Its other settings are in plugin_options,
  // at plugin::kFrameworkOptions, for the estimator that describes it.
  std::string framework;
  bool safe = false;  // plan.safe: a plan is judged by the upper bounds of its estimate
  // [plugin.NAME]: NAME -> key -> value as text
  std::map<std::string, std::map<std::string, std::string>> plugin_options;
  // "NAME.key" -> line, column
  std::map<std::string, std::pair<std::uint32_t, std::uint32_t>> plugin_option_lines;
  // Every key that was given, with its position. A key that is not in the map has its default.
  std::map<std::string, Where> given;
  // Keys of run_for_model() that were not given and have the usual value of such a run, not their default.
  struct Assumed {
    std::string key, value;  // the value as TOML
  };
  std::vector<Assumed> assumed;
  /// The run file with every key that has a value, as TOML. Written when it is called: planning loads
  /// hundreds of variations of a run and writes none of them.
  std::function<std::string()> resolved;
  // What became of the keys of another framework's files (core/framework_files), in the order of the files.
  std::vector<FileKey> file_keys;
};

/// One --set train.micro_batch=8. `option`: the option that the user typed instead, for example "--device".
/// `where`: the value's position, where it came from a file of another framework.
struct Override {
  std::string key, value, option = {};
  Where where = {};
};

/// Reads, parses and validates a run file; an empty `file` means the built-in run with the overrides applied.
/// Unknown keys, wrong types, out-of-range values and invalid combinations throw Error(kUsage) with file,
/// line, column, value and the nearest valid name. `open`: keys that a search still varies; rules that read
/// one of them are not applied.
RunConfig load_run(const std::filesystem::path& file, const std::vector<Override>& overrides = {},
                   const std::set<std::string>& open = {});

/// The same from text. `name`: the file name in messages; relative paths are relative to `base`.
RunConfig parse_run(const std::string& toml, const std::string& name, const std::filesystem::path& base,
                    const std::vector<Override>& overrides = {}, const std::set<std::string>& open = {});

/// All errors of a run file and of overrides, and the run if there are none.
struct CheckedRun {
  std::vector<RunFileError> errors;  // by position
  RunConfig run;                     // incomplete if there are errors
};
/// load_run() without stopping at the first error, except for text that is not TOML. Errors that may only
/// follow from another one are left out. Reads the files that describe models and adapters; looks up data,
/// but does not read it. An empty `file` is the built-in run.
CheckedRun check_run(const std::filesystem::path& file, const std::vector<Override>& overrides = {});
/// The same from text. `file`: RunConfig::file.
CheckedRun check_run(const std::string& toml, const std::string& name, const std::filesystem::path& file,
                     const std::filesystem::path& base, const std::vector<Override>& overrides = {});

/// --model=PRESET|config.json: a usual run of that model. What is not given: bf16, one sequence per
/// micro-batch, 2,048 tokens or as many as the model is designed for (RunConfig::assumed lists these keys);
/// otherwise the defaults of the run file.
RunConfig run_for_model(const std::string& preset_or_path, const std::vector<Override>& overrides = {},
                        const std::set<std::string>& open = {});
/// The same without stopping at the first error, as check_run().
CheckedRun check_run_for_model(const std::string& preset_or_path,
                               const std::vector<Override>& overrides = {});

/// The weights in a folder, by the names in kWeightFiles; nullopt if there are none or `folder` is "".
std::optional<std::filesystem::path> weights_beside(const std::filesystem::path& folder);
/// A file of the tokenizer in a folder, by the names that transformers and Mistral give it; nullopt as above.
/// Not each of them can be read.
std::optional<std::filesystem::path> tokenizer_beside(const std::filesystem::path& folder);

/// Reads a Hugging Face config.json. A family that cannot be trained is returned with its name and the known
/// dimensions; the caller decides whether to reject it. Throws Error(kUsage) on malformed JSON or invalid
/// values. `of_framework`: as for model_from_config().
ModelSpec read_model_config(const std::filesystem::path& config_json, bool of_framework = false);
ModelSpec parse_model_config(const std::string& json, const std::string& name, bool of_framework = false);
/// The text of a config.json with which Hugging Face software loads the trained model, with weights of type
/// `dtype`. Fields of the config that the model was read from and that are not known here are kept.
std::string model_config_json(const ModelSpec& m, DType dtype = DType::kF32);
/// torch_dtype (or dtype) of the config.json that the model was read from; nullopt if it names no type of
/// kF32, kBF16 and kF16.
std::optional<DType> model_config_dtype(const ModelSpec& m);

/// Steps of linear warm-up in a run of `steps` that gives none: 300, at most a tenth.
std::uint64_t default_warmup_steps(std::uint64_t steps);
/// optimizer.decay_ratio where neither it nor optimizer.decay_steps is given.
inline constexpr double kDefaultDecayRatio = 0.1;
/// The part `ratio` (0 to 1) of `steps`, rounded up, as transformers rounds warmup_ratio.
std::uint64_t part_of_steps(double ratio, std::uint64_t steps);
/// Sets the steps of the run, and those of warm-up and decay that follow from them.
void set_steps(RunConfig& c, std::uint64_t steps);

/// Matrix names accepted in lora.targets; bit i of RunSpec::lora_targets selects the i-th name.
std::span<const std::string> lora_target_names();
/// The names of the kinds of matrices of lora_targets, those outside the layers included.
std::vector<std::string> names_of_targets(std::uint32_t lora_targets);
/// True for an entry of lora.targets that is a pattern of names of matrices: it has one of * ? .
bool is_module_pattern(const std::string& target);

/// Throws Error(kUsage) at the key's position for settings that can be planned but not trained and would
/// change the result: [parallel], [lora], [plan], and the types and optimizers marked so in the schema.
/// Called before training.
void reject_unsupported(const RunConfig& c);

/// Throws Error(kUsage) if the folder of model.path has no weights. Called before training; a plan and the
/// data of a run need none.
void require_weights(const RunConfig& c);

/// The commented run file that `trainhost init` prints, generated from the schema. `schema_url`: of the JSON
/// Schema, in a first line that editors read (`#:schema`); "" = no such line.
std::string init_text(const std::string& schema_url = {});

/// The text of RunConfig::resolved without the keys that have their default.
std::string without_defaults(const std::string& resolved);

/// Learning rate of optimizer step `t` (from 0) in a run of `steps`. Warm-up: lr * (t + 1) / warmup_steps for
/// t < warmup_steps; then constant, or cosine or linear decay to min_lr; or (WSD) constant, and decay to
/// min_lr over the last decay_steps, or over what is left of them after warm-up.
double lr_at(const OptimizerConfig& o, std::uint64_t t, std::uint64_t steps);

}  // namespace trainhost::runfile
