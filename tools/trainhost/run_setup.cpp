// See run_setup.hpp. Precedence of values: options (--set, --backend), then the run file or --model, then
// defaults. The options are passed to the reader of the run file as overrides, so that they get its checks
// and its messages.
#include "tools/trainhost/run_setup.hpp"
#include "core/runfile/suggest.hpp"

#include "tools/trainhost/launched_ranks.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <sstream>
#include <utility>

#include "core/base/plural.hpp"
#include "core/base/text.hpp"
#include "core/data/documents.hpp"
#include "core/data/record_tools.hpp"
#include "core/framework_files/read_files.hpp"
#include "core/model/model_names.hpp"
#include "core/planning/choose_backend.hpp"
#include "core/planning/resolve_run.hpp"
#include "core/process/host_info.hpp"
#include "core/training/batches.hpp"
#include "core/training/model_state.hpp"
#include "core/training/stop_signals.hpp"
#include "tools/trainhost/launched_ranks.hpp"

namespace trainhost::cli {
namespace {

// Process-wide, because the command line is one: set once by main(), before any thread.
std::string& remembered_line() {
  static std::string line;
  return line;
}

/// The argument as it must be typed in a shell: in single quotes if it has a character that the shell
/// interprets.
std::string shell_quoted(std::string_view argument) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_=./,:+@%";
  if (!argument.empty() && argument.find_first_not_of(kPlain) == std::string_view::npos)
    return std::string(argument);
  std::string out = "'";
  for (char c : argument) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

/// Reports a run file without a key, which is probably a mistake. At most once per process, because sweeps
/// load the run many times.
void report_empty_run_file(const runfile::RunConfig& c, const std::string& file) {
  static bool reported = false;
  const auto of_file = [&](const auto& key) { return key.second.file == file; };
  // Options of plugins count as keys although they are not in `given`. Line 0: set by --set, not by the file.
  const bool plugins = std::any_of(c.plugin_option_lines.begin(), c.plugin_option_lines.end(),
                                   [](const auto& o) { return o.second.first > 0; });
  if (reported || plugins || c.run.mode != RunMode::kFull || !c.plugin_path.empty() ||
      std::any_of(c.given.begin(), c.given.end(), of_file))
    return;
  reported = true;
  write_stderr("trainhost: " + escaped(file) + " sets no key: using the built-in run\n");
}

}  // namespace

std::string command_line() { return remembered_line(); }

void remember_command_line(int argc, char** argv) {
  std::string line = "trainhost";  // without the path of argv[0]
  for (int i = 1; i < argc; ++i) line += " " + shell_quoted(argv[i]);
  remembered_line() = line;
}

std::vector<runfile::Override> overrides(const CommonArguments& a) {
  std::vector<runfile::Override> out = a.implied;
  for (const std::string& s : a.settings) {
    // At the first "=": values may contain more of them.
    auto at = s.find('=');
    if (at == std::string::npos || at == 0)
      throw usage_error("expected KEY=VALUE, got '" + escaped(s) + "'",
                        "for example --set train.micro_batch=8", {"--set", 0, 0});
    out.push_back({s.substr(0, at), s.substr(at + 1)});
  }
  // After --set, so that --backend wins over --set train.backend.
  if (!a.backend.empty()) out.push_back({"train.backend", a.backend, "--backend"});
  return out;
}

runfile::Override ranks_of_devices(const CommonArguments& common, const std::vector<runfile::Override>& more,
                                   std::uint32_t devices) {
  // Files of another framework may need the number of data ranks (ZeRO), or a batch that it divides: until it
  // is known, 1 or that of the devices.
  const auto with_ranks = [&](std::uint32_t ranks) {
    std::vector<runfile::Override> tentative = more;
    tentative.push_back({"parallel.data", std::to_string(ranks), "--devices"});
    return load_config(common, tentative, {"parallel.data"}).run.parallel;
  };
  Parallelism p;
  try {
    p = with_ranks(1);
  } catch (const Error&) {
    p = with_ranks(devices);
  }
  const std::uint64_t replica = std::uint64_t{p.tensor} * p.pipeline * p.context;
  if (devices % replica != 0)
    throw usage_error(
        fmt::format("{} is not a multiple of parallel.tensor x parallel.pipeline x "
                    "parallel.context = {} x {} x {}",
                    devices, p.tensor, p.pipeline, p.context),
        "each data-parallel rank takes that many devices; `trainhost search` finds layouts of a "
        "number of devices",
        {"--devices"});
  const std::string data = std::to_string(devices / replica);
  for (const runfile::Override& set : overrides(common))
    if (set.key == "parallel.data" && set.value != data)
      throw usage_error(
          fmt::format("--devices={} and --set parallel.data={} disagree", devices, escaped(set.value, 80)),
          "give one of them");
  return {"parallel.data", data, "--devices"};
}

std::vector<runfile::Override> target_overrides(const CommonArguments& common, const TargetArguments& a) {
  std::vector<runfile::Override> out;
  if (!a.device.empty()) out.push_back({"memory.device", a.device, "--device"});
  if (!a.budget.empty()) out.push_back({"memory.budget", a.budget, "--budget"});
  if (!a.host_budget.empty()) out.push_back({"memory.host_budget", a.host_budget, "--host-budget"});
  if (!a.framework.empty()) out.push_back({"plan.framework", a.framework, "--for"});
  if (a.safe) out.push_back({"plan.safe", "true", "--safe"});
  if (a.devices) out.push_back(ranks_of_devices(common, out, a.devices));
  return out;
}

std::vector<runfile::Override> adapter_settings(const char* option, bool quantized) {
  std::vector<runfile::Override> out = {
      {"lora.rank", "16", option}, {"lora.alpha", "32", option}, {"lora.targets", "\"all-linear\"", option}};
  if (quantized)
    out.insert(out.end(), {{"lora.base", "\"nf4\"", option}, {"lora.double_quant", "true", option}});
  return out;
}

static std::string model_of(const CommonArguments& a) {
  return a.plans_only ? runfile::planned_model(a.model) : a.model;
}

/// The run of a run file, of a model alone (`model`), or the built-in one. `all_errors`: reports all errors
/// of the run at once, as `trainhost check` does, by RunFileErrors. Not where a search varies keys (`open`),
/// because rules for those are not errors of the run.
static runfile::RunConfig load_reporting(const std::string& run_file, const std::string& model,
                                         const std::vector<runfile::Override>& settings,
                                         const std::set<std::string>& open, bool all_errors) {
  try {
    return model.empty() ? runfile::load_run(run_file, settings, open)
                         : runfile::run_for_model(model, settings, open);
  } catch (const Error& first) {
    if (!all_errors || !open.empty() || first.code() != Exit::kUsage) throw;
    runfile::CheckedRun checked = model.empty() ? runfile::check_run(run_file, settings)
                                                : runfile::check_run_for_model(model, settings);
    if (checked.errors.size() < 2) throw;
    throw runfile::RunFileErrors(std::move(checked.errors));
  }
}

/// The run of --from. Options win over the files, as they win over a run file.
static runfile::RunConfig load_framework_files(const CommonArguments& a, const framework_files::JobFiles& job,
                                               std::vector<runfile::Override> options,
                                               const std::set<std::string>& open, bool all_errors) {
  if (!a.run_file.empty()) throw usage_error("--from and a run file are both given", "give one of them");
  std::vector<runfile::Override> given = options;
  if (!a.model.empty()) given.push_back({"model.preset", a.model, "--model"});
  const framework_files::FileSettings files = job.settings(given);
  std::vector<runfile::Override> all = files.settings;
  all.insert(all.end(), options.begin(), options.end());
  runfile::RunConfig c = load_reporting({}, model_of(a), all, open, all_errors);
  c.file_keys = files.keys;
  return c;
}

/// --device=A and --set memory.device=B: neither may win without a word. Options that say so, as --steps, do
/// win.
static void require_agreement(const std::vector<runfile::Override>& sets,
                              const std::vector<runfile::Override>& options) {
  for (const runfile::Override& option : options)
    for (const runfile::Override& set : sets)
      if ((option.option == "--device" || option.option == "--budget" || option.option == "--host-budget" ||
           option.option == "--for") &&
          set.key == option.key && set.value != option.value)
        throw usage_error(fmt::format("{}={} and --set {}={} disagree", option.option,
                                      escaped(option.value, 80), set.key, escaped(set.value, 80)),
                          "give one of them");
}

/// What the name of a model that is stored in 4 bits says about the run. transformers trains adapters alone
/// over such weights.
static std::vector<runfile::Override> stored_type(const CommonArguments& a,
                                                  const std::vector<runfile::Override>& given,
                                                  const std::set<std::string>& open) {
  std::error_code ec;
  if (!a.plans_only || !is_stored_in_nf4(a.model) || std::filesystem::exists(a.model, ec)) return {};
  const auto is_given = [&](std::string_view key, std::string_view value = "") {
    return open.contains(std::string(key)) || std::ranges::any_of(given, [&](const runfile::Override& o) {
             return o.key == key && (value.empty() || o.value == value);
           });
  };
  if (is_given("plan.mode", "inference")) {
    if (is_given("plan.weights")) return {};
    return {{"plan.weights", "nf4", "--model"}};
  }
  if (is_given("lora.base")) return {};
  std::vector<runfile::Override> out{{"lora.base", "nf4", "--model"}};
  if (!is_given("lora.double_quant")) out.push_back({"lora.double_quant", "true", "--model"});
  return out;
}

static runfile::RunConfig load_run_or_model(const CommonArguments& a,
                                            const std::vector<runfile::Override>& more,
                                            const std::set<std::string>& open, bool all_errors) {
  std::vector<runfile::Override> all = overrides(a);
  require_agreement(all, more);
  all.insert(all.end(), more.begin(), more.end());
  if (!a.model.empty() && !a.run_file.empty())
    throw usage_error("--model and a run file are both given", "give one of them");
  if (!a.from.empty())
    return load_framework_files(a, framework_files::JobFiles(a.from), std::move(all), open, all_errors);
  const std::vector<runfile::Override> stored = stored_type(a, all, open);
  all.insert(all.begin(), stored.begin(), stored.end());
  runfile::RunConfig c = load_reporting(a.run_file, model_of(a), all, open, all_errors);
  for (const runfile::Override& o : stored) {
    c.given.erase(o.key);
    c.assumed.push_back({o.key, o.value == "true" ? o.value : "\"" + o.value + "\""});
  }
  if (const std::string_view note = note_on_stored_type(a.model); !stored.empty() && !note.empty())
    c.file_keys.push_back(
        {"--model", a.model, {"--model"}, runfile::KeyUse::kNotModelled, std::string(note), true});
  if (!a.quiet && !a.run_file.empty()) report_empty_run_file(c, a.run_file);
  return c;
}

/// data.seq_len of fine-tuning on records, where it is not given: the longest record, rounded up to a
/// multiple of 16, at most 2,048 tokens and what the model is designed for. Longer ones are truncated, and
/// counted when the data is opened. Nullopt for any other run.
static std::optional<runfile::Override> seq_len_of_records(const runfile::RunConfig& c, bool quiet,
                                                           bool trains) {
  constexpr std::uint64_t kMost = 2048, kMultiple = 16;
  const bool assumed =
      std::any_of(c.assumed.begin(), c.assumed.end(), [](const auto& a) { return a.key == "data.seq_len"; });
  const bool records =
      !c.data.train.empty() && std::all_of(c.data.train.begin(), c.data.train.end(), data::is_record_file);
  if (!assumed || !records || c.given.count("model.path") == 0 || !c.framework.empty()) return std::nullopt;
  const std::optional<LaunchedProcess> launched = launched_process();
  if (trains && (!launched || launched->rank == 0)) training::require_finite_weights(c);
  const std::uint64_t most = c.model.max_positions ? std::min(kMost, c.model.max_positions) : kMost;
  const data::OpenOptions o = planning::open_options(c);
  // The last token of a document is a target only, so a sequence holds one token more than its length.
  const data::LongestRecord longest =
      data::longest_record({.files = o.train, .tokenizer = o.tokenizer, .records = o.records}, most + 2);
  const std::uint64_t inputs = std::max<std::uint64_t>(longest.tokens, 2) - 1;
  const std::uint64_t seq_len = std::min(most, (inputs + kMultiple - 1) / kMultiple * kMultiple);
  // Once per process: a search loads the run many times.
  static std::uint64_t reported = 0;
  if (!quiet && std::exchange(reported, seq_len) != seq_len)
    write_stderr(
        longest.tokens > most + 1
            ? fmt::format("data.seq_len = {}: there are longer records (data.seq_len sets another limit)\n",
                          seq_len)
            : fmt::format("data.seq_len = {}: the longest of {} has {}\n", seq_len,
                          plural(longest.records, "record"), plural(longest.tokens, "token")));
  return runfile::Override{"data.seq_len", std::to_string(seq_len), "length of the longest record"};
}

static runfile::RunConfig load_complete(const CommonArguments& a, const std::vector<runfile::Override>& more,
                                        const std::set<std::string>& open, bool all_errors) {
  runfile::RunConfig c = load_run_or_model(a, more, open, all_errors);
  if (const auto seq_len =
          open.contains("data.seq_len") ? std::nullopt : seq_len_of_records(c, a.quiet, !a.plans_only)) {
    std::vector<runfile::Override> all = more;
    all.push_back(*seq_len);
    c = load_run_or_model(a, all, open, all_errors);
  }
  planning::adopt_vocabulary(c);
  return c;
}

runfile::RunConfig load_config(const CommonArguments& a, const std::vector<runfile::Override>& more,
                               const std::set<std::string>& open) {
  return load_complete(a, more, open, true);
}

/// Reports the rejected plugins in folders that the user named, each once per process: a user who names a
/// folder expects that its plugins are used. Duplicates are reported by the registry.
static void report_rejected_plugins(const std::vector<std::filesystem::path>& folders,
                                    const plugin::Registry& registry) {
  static std::set<std::filesystem::path> reported;
  // A candidate has the file that a symbolic link in the folder leads to.
  std::set<std::filesystem::path> files;
  std::error_code ec;
  for (const std::filesystem::path& folder : folders)
    for (std::filesystem::directory_iterator it(folder, ec), end; !ec && it != end; it.increment(ec)) {
      std::error_code unresolved;
      const std::filesystem::path file = std::filesystem::canonical(it->path(), unresolved);
      files.insert(unresolved ? it->path() : file);
    }
  for (const plugin::Candidate& c : registry.candidates())
    if (c.status == plugin::Status::kRejected && c.code != "duplicate_id" && files.contains(c.file) &&
        reported.insert(c.file).second)
      write_stderr(fmt::format("trainhost: the plugin {} is not used: {}{}\n", escaped(c.file.string(), 4096),
                               c.reason, c.hint.empty() ? "" : " (" + c.hint + ")"));
}

std::unique_ptr<plugin::Registry> make_registry(const CommonArguments& a, const runfile::RunConfig* c,
                                                std::uint32_t threads) {
  std::vector<std::filesystem::path> from_options(a.plugin_path.begin(), a.plugin_path.end());
  // search_path() takes absolute paths only; on the command line relative ones are allowed.
  for (auto& p : from_options) {
    if (!std::filesystem::is_directory(p))
      throw usage_error("--plugin-path: '" + escaped(p.string()) + "' is not a directory",
                        "give the folder that contains the plugins");
    p = std::filesystem::canonical(p);
  }
  plugin::HostOptions host;
  // Without train.threads in a run file: one per physical core, of several processes on this machine its
  // share.
  host.thread_budget = threads ? threads : c && c->threads ? c->threads : threads_of_process();
  if (c) host.plugin_options = c->plugin_options;
  // Levels of the C interface: 0 debug, 1 info, 2 warning, 3 error.
  host.log = [quiet = a.quiet, verbosity = a.verbosity](int level, const std::string& where,
                                                        const std::string& text) {
    if (quiet && level < 3) return;
    if (level >= 1 || verbosity > 1) write_stderr(escaped(where) + ": " + escaped(text, 4096) + "\n");
  };
  host.cancelled = [] { return training::StopSignals::received() != 0; };
  // Plugins are first loaded in a child process (core/plugin/trial_load.hpp), which is this program again.
  host.trial_load_program = plugin::program_file();
  host.estimators = a.own_estimators;
  host.cache_file = plugin::default_cache_file();
  const std::vector<std::filesystem::path> folders =
      plugin::search_path(from_options, c ? c->plugin_path : std::vector<std::filesystem::path>{});
  if (c) host.allow = c->plugin_allow;
  // plugins.allow restricts every folder but the program's own.
  for (const auto& f : folders)
    if (f != plugin::program_folder()) host.allow_in.push_back(f);
  auto r = std::make_unique<plugin::Registry>(folders, std::move(host));
  r->scan();
  // Without a run the command is about plugins and lists them itself.
  if (c && !a.quiet) {
    from_options.insert(from_options.end(), c->plugin_path.begin(), c->plugin_path.end());
    report_rejected_plugins(from_options, *r);
  }
  // After the scan: both compare the run file with the plugins that exist.
  if (c) planning::validate_plugin_options(*c, *r), planning::validate_backend_order(*c, *r);
  return r;
}

namespace {

/// Opens registries of variations of a run, which differ in the options of plugins: the files are scanned
/// once.
class RegistryOpener {
 public:
  explicit RegistryOpener(const CommonArguments& a) : arguments_(a) {}

  std::unique_ptr<plugin::Registry> open(const runfile::RunConfig& c) {
    if (!scanned_ || c.plugin_path != path_ || c.plugin_allow != allow_ || c.threads != threads_)
      scanned_ = make_registry(arguments_, &c), path_ = c.plugin_path, allow_ = c.plugin_allow,
      threads_ = c.threads;
    std::unique_ptr<plugin::Registry> r = scanned_->with_plugin_options(c.plugin_options);
    planning::validate_plugin_options(c, *r), planning::validate_backend_order(c, *r);
    return r;
  }

 private:
  CommonArguments arguments_;
  std::unique_ptr<plugin::Registry> scanned_;  // loads no plugin
  std::vector<std::filesystem::path> path_;
  std::vector<std::string> allow_;
  std::uint32_t threads_ = 0;
};

}  // namespace

planning::RunSource source_of(const CommonArguments& a, const std::vector<runfile::Override>& more) {
  // Read at the first variation.
  const auto job = std::make_shared<std::unique_ptr<const framework_files::JobFiles>>();
  const auto load = [a, more, job](const planning::Settings& settings) {
    // Settings of a planner come after those of the command line, so that they win.
    std::vector<runfile::Override> all = more;
    all.insert(all.end(), settings.begin(), settings.end());
    // A variation that is no valid run is left out, so one error of it is enough.
    const bool all_errors = settings.empty();
    if (a.from.empty()) return load_complete(a, all, {}, all_errors);
    if (!*job) *job = std::make_unique<const framework_files::JobFiles>(a.from);
    const std::vector<runfile::Override> options = overrides(a);
    all.insert(all.begin(), options.begin(), options.end());
    runfile::RunConfig c = load_framework_files(a, **job, std::move(all), {}, all_errors);
    planning::adopt_vocabulary(c);
    return c;
  };
  // std::function copies its target.
  const auto opener = std::make_shared<RegistryOpener>(a);
  return {load, [opener](const runfile::RunConfig& c) { return opener->open(c); }};
}

std::vector<std::string> split_commas(const std::string& text) {
  std::vector<std::string> out;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, ',');)
    if (!part.empty()) out.push_back(part);
  return out;
}

}  // namespace trainhost::cli
