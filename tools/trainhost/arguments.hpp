// The command line as plain structs, one per command, so that no command depends on the parser (CLI11). Each
// command_*.cpp implements run() for its structs. Values are as typed: a key of the run file is checked when
// the run file is loaded (run_setup.hpp).
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "core/base/error.hpp"
#include "core/runfile/run_config.hpp"
#include "core/training/generate_text.hpp"

namespace trainhost::plugin {
class Estimator;
}

namespace trainhost::cli {

/// Options that several commands share. A command that does not offer an option leaves it at its default.
struct CommonArguments {
  std::string run_file{};                    // RUN.toml; "" = the built-in run
  std::vector<std::string> from{};           // --from FILE...: files of another framework
  std::vector<std::string> settings{};       // --set KEY=VALUE
  std::vector<runfile::Override> implied{};  // by arguments of the command; --set wins
  std::vector<std::string> plugin_path{};    // --plugin-path DIR
  std::string model{}, backend{};            // --model, --backend
  // Of a process that calls this code as a library: HostOptions::estimators.
  std::vector<std::shared_ptr<plugin::Estimator>> own_estimators{};
  bool json = false, quiet = false;
  int verbosity = 0;  // number of -v
  // No weights are read: `model` may be the name of a model on the Hugging Face Hub.
  bool plans_only = false;
};

struct TrainArguments {
  CommonArguments common;       // common.model: a folder is model.path, whose weights are trained further
  std::string steps;            // "" = train.steps of the run file
  std::string profile;          // file of the Chrome trace; "" = no profile
  std::string memory_snapshot;  // output file; "" = none
  std::string find_lr;          // "" = not given, "true" = as without a value, or FROM:TO[:STEPS]
  std::string resume;           // "" = not given, "auto", or else as without a value
  bool overwrite = false, no_fallback = false;
  bool log_ranks = false;  // rank_N.log of every process
  std::string live;        // "" = not given, "true" = the default port, or a port
};

/// `train` with the settings of fine-tuning.
struct FinetuneArguments : TrainArguments {
  std::string folder;             // model.path
  std::vector<std::string> data;  // data.train; at least one
  std::string adapter;            // model.adapter; "" = none
  bool lora = false, qlora = false, dora = false;
};

/// What a run is planned for.
struct TargetArguments {
  std::string device, budget, host_budget;  // "" = memory.device, memory.budget, memory.host_budget
  std::string framework;                    // "" = plan.framework
  std::uint32_t devices = 0;                // in all; 0 = as many as the run has ranks
  bool safe = false;                        // plan.safe
};

/// Files of a picture; "" = none.
struct PictureArguments {
  std::string svg, png;
  bool any() const { return !svg.empty() || !png.empty(); }
};

struct PlanArguments {
  CommonArguments common{.plans_only = true};
  TargetArguments target;
  std::string estimators;                  // comma-separated
  std::string html, csv, memory_snapshot;  // output files; "" = none
  PictureArguments picture;
  std::string web;   // "" = not given, "true" = open the planner page, or the file for it
  std::string rank;  // whose memory, from 0; "" = of the rank that needs most
  bool explain = false, limits = false, print_run = false;
};

struct SweepArguments {
  CommonArguments common{.plans_only = true};
  TargetArguments target;
  std::string over;  // KEY=VALUES
  std::string estimators, html, csv;
  PictureArguments picture;
};

struct SearchArguments {
  CommonArguments common{.plans_only = true};
  TargetArguments target;  // without safe and devices
  std::string html, csv;
  PictureArguments picture;
  std::uint32_t devices = 0;       // 0 = as many as the run file has ranks
  std::uint64_t global_batch = 0;  // sequences per optimizer step; 0 = as in the run file
  std::size_t top = 10;
  std::size_t threads = 0;  // 0 = one per core
  bool every = false;       // no pruning
};

struct CompareArguments {
  CommonArguments common;
  std::vector<std::string> runs;  // folders, at least one
  std::string html;               // output file; "" = none
  PictureArguments picture;
};

struct WatchArguments {
  CommonArguments common;
  std::vector<std::string> runs;  // folders, at least one
  std::uint32_t port = 7070;      // 0 = any free one
};

struct VerifyArguments {
  CommonArguments common;
  std::string only;  // comma-separated ids; "" = every check
};

struct GenerateArguments {
  CommonArguments common;
  std::string directory, adapter, prompt, prompts;  // prompts: a file
  training::SampleOverrides sample;
  std::uint32_t context = 0, batch = 8, threads = 0;
};

struct ChatArguments {
  ChatArguments() { sample.tokens = 1024; }
  CommonArguments common;
  std::string directory, adapter, system, chat_template = "auto";
  training::SampleOverrides sample;
  std::uint32_t context = 0, threads = 0;
};

struct EvalArguments {
  CommonArguments common;
  std::string directory, adapter;
  std::vector<std::string> data;       // files, at least one
  std::string compare;                 // another model, run or adapter; "" = none
  std::string details;                 // file; "" = none
  std::string chat_template, loss_on;  // "" = those of the run
  std::string on_error = "stop";
  std::vector<std::string> keys;  // NAME=KEY
  std::string delimiter = " ", question_format = "{}";
  std::uint32_t shots = 0;
  std::string shots_from;                // file; "" = that of the question
  std::uint32_t window = 0, stride = 0;  // 0 = by the run or the model; half of the window
  std::uint32_t batch = 8, threads = 0;
};

struct MergeArguments {
  CommonArguments common;
  std::string adapter, model, output;
};

/// The options that `data info` and `data tokenize` share.
struct DataArguments {
  CommonArguments common;
  std::vector<std::string> files;  // at least one
  std::string tokenizer;           // "" = bytes, of files that are text by their names
  std::string dtype;               // "", uint16 or uint32
};
struct DataInfoArguments : DataArguments {
  std::uint64_t vocab = 0;
};
struct DataTokenizeArguments : DataArguments {
  std::string output;  // "" = the first file with the suffix .bin
};

/// The options that `data stats` and `data show` share.
struct DataRecordsArguments {
  CommonArguments common;
  std::vector<std::string> files;  // at least one
  std::string tokenizer;           // "" = bytes
  std::string model;               // folder with tokenizer_config.json; "" = that of the tokenizer
  std::string chat_template = "auto", loss_on = "completions";
  std::vector<std::string> keys;  // NAME=KEY
};
struct DataStatsArguments : DataRecordsArguments {
  std::uint32_t seq_len = 0;  // 0 = nothing is truncated
};
struct DataShowArguments : DataRecordsArguments {
  std::uint64_t first = 1, count = 3;
};

struct PluginsListArguments {
  CommonArguments common;
};
struct PluginsInfoArguments {
  CommonArguments common;
  std::string plugin;  // id or file
};
struct PluginsNewArguments {
  std::string name, kind, language, family;
  std::string directory;  // "" = name
};
struct PluginsCheckArguments {
  std::string plugin;                 // id or file
  std::string only, skip;             // comma-separated ids or levels
  std::string junit, explain, pages;  // "" = not given
  std::optional<std::string> json;    // a file; "" or "-" = standard output
  std::vector<std::string> plugin_path;
  bool list = false, quiet = false, verbose = false;
  int level = 5;
  double deadline_s = 10;
  std::optional<double> fuzz_s;
  std::uint64_t seed = 1;
};
/// The hidden command that `plugins check` runs in its child processes.
struct PluginsCheckWorkerArguments {};

struct ModelsArguments {
  CommonArguments common;
  std::string part;  // of the name; "": all
};
struct DevicesArguments {
  CommonArguments common;
  std::string part;
};
/// Without common.model and common.backend.
struct DoctorArguments {
  CommonArguments common;
};
struct CheckArguments {
  CommonArguments common;  // without model and backend
};
struct SchemaArguments {};
struct InitArguments {
  CommonArguments common;  // from, model and settings; without from: a file with every default
  std::string file;        // "" or "-" = standard output
  bool force = false;
};

struct VersionArguments {};
struct HelpArguments {
  std::vector<std::string> command;  // {"plugins", "new"}; empty = the program
};
struct CompletionArguments {
  std::string shell;
};
/// The hidden command that the scripts of `completion` call.
struct CompleteArguments {
  std::vector<std::string> words;  // after the name of the program; the last one is completed
};

/// The hidden command of the build.
struct ManPagesArguments {
  std::vector<std::string> words;  // folder, document of the plugin interface
};

/// std::monostate: --help or --version, already printed.
using Arguments =
    std::variant<std::monostate, TrainArguments, FinetuneArguments, PlanArguments, SweepArguments,
                 SearchArguments, CompareArguments, WatchArguments, VerifyArguments, GenerateArguments,
                 ChatArguments, EvalArguments, MergeArguments, DataInfoArguments, DataTokenizeArguments,
                 DataStatsArguments, DataShowArguments, PluginsListArguments, PluginsInfoArguments,
                 PluginsNewArguments, PluginsCheckArguments, PluginsCheckWorkerArguments, ModelsArguments,
                 DevicesArguments, DoctorArguments, CheckArguments, SchemaArguments, InitArguments,
                 VersionArguments, HelpArguments, CompletionArguments, CompleteArguments, ManPagesArguments>;

/// Parses the arguments after the program's name. `trainhost run.toml` and `trainhost --backend=cuda` mean
/// `trainhost train ...`. Throws usage_error, with the nearest valid name, for what it does not understand.
Arguments parse_arguments(std::vector<std::string> arguments);

// One per command, each in its command_*.cpp. They throw Error on failure.
Exit run(const TrainArguments& a);
Exit run(const FinetuneArguments& a);
Exit run(const PlanArguments& a);
Exit run(const SweepArguments& a);
Exit run(const SearchArguments& a);
Exit run(const CompareArguments& a);
Exit run(const WatchArguments& a);
Exit run(const VerifyArguments& a);
Exit run(const GenerateArguments& a);
Exit run(const ChatArguments& a);
Exit run(const EvalArguments& a);
Exit run(const MergeArguments& a);
Exit run(const DataInfoArguments& a);
Exit run(const DataTokenizeArguments& a);
Exit run(const DataStatsArguments& a);
Exit run(const DataShowArguments& a);
Exit run(const PluginsListArguments& a);
Exit run(const PluginsInfoArguments& a);
Exit run(const PluginsNewArguments& a);
Exit run(const PluginsCheckArguments& a);
Exit run(const PluginsCheckWorkerArguments& a);
Exit run(const ModelsArguments& a);
Exit run(const DevicesArguments& a);
Exit run(const DoctorArguments& a);
Exit run(const CheckArguments& a);
Exit run(const SchemaArguments& a);
Exit run(const InitArguments& a);
Exit run(const VersionArguments& a);
Exit run(const HelpArguments& a);
Exit run(const CompletionArguments& a);
Exit run(const CompleteArguments& a);
Exit run(const ManPagesArguments& a);

}  // namespace trainhost::cli
