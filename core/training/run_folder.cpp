// See run_folder.hpp. Decides from the names in the folder alone; the files are checked when they are read.
// What is removed here was allowed by --overwrite, or belongs to a run that was killed.
#include "core/training/run_folder.hpp"

#include <fmt/format.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstdio>
#include <iterator>
#include <optional>
#include <string_view>

#include "core/base/directory.hpp"
#include "core/base/error.hpp"
#include "core/base/json_value.hpp"
#include "core/base/text.hpp"
#include "core/checkpoint/durable.hpp"
#include "core/checkpoint/store.hpp"
#include "core/training/utc_time.hpp"

extern char** environ;

namespace trainhost::training {
namespace {

namespace fs = std::filesystem;

/// Also true for a broken link, which must not be written through.
bool is_present(const fs::path& path) { return checkpoint::file_type_of(path) != fs::file_type::not_found; }

/// What a run leaves, in the order in which it is removed: without summary.json the rest counts as
/// unfinished.
constexpr const char* kResults[] = {"summary.json",  "model",         "adapter",     "checkpoints",
                                    "metrics.jsonl", "samples.jsonl", "report.html", "tb"};

/// Other files of the folder; each is replaced when a run starts.
constexpr const char* kRecords[] = {"run.toml", "environment.json", "status.json"};

/// rank_N.log of --log-ranks: a run of fewer processes would leave those of others.
bool is_rank_log(std::string_view name) {
  if (!name.starts_with("rank_") || !name.ends_with(".log") || name.size() < 10) return false;
  name = name.substr(5, name.size() - 9);
  return name.find_first_not_of("0123456789") == name.npos;
}

bool has_finished_run(const fs::path& dir) {
  return is_present(dir / "summary.json") || is_present(dir / "model") || is_present(dir / "adapter");
}

/// A run replaces what an earlier one has left. Files of the same names in a folder that has no record of a
/// run are of another program, or the user's own run.toml.
void require_no_foreign_files(const fs::path& dir) {
  if (is_present(dir / "environment.json") || is_present(dir / "status.json")) return;
  const auto refuse = [&](const char* name) {
    if (is_present(dir / name))
      throw usage_error(fmt::format("{} has {}, which is not of a run, and a run would replace it",
                                    escaped(dir.string(), 4096), name),
                        "train into another --set output.dir=DIR, or move it away");
  };
  for (const char* name : kResults) refuse(name);
  for (const char* name : kRecords) refuse(name);
}

/// runs/NAME, runs/NAME-2, ...: the last one that exists, or the first.
struct Numbered {
  fs::path last, next;
};
Numbered numbered(const fs::path& first) {
  fs::path last = first, next = first;
  for (std::uint64_t n = 2; is_present(next); ++n) {
    last = next;
    next = fs::path(first) += fmt::format("-{}", n);
  }
  return {last, next};
}

/// "model name : AMD EPYC 7R13" of the first processor; "" where /proc/cpuinfo has none.
std::string processor_name() {
  std::string name;
  std::FILE* f = std::fopen("/proc/cpuinfo", "re");
  if (!f) return name;
  char text[256];
  while (name.empty() && std::fgets(text, sizeof text, f)) {
    const std::string_view line = text;
    const auto colon = line.find(": ");
    if (line.starts_with("model name") && colon != line.npos) name = line.substr(colon + 2);
  }
  std::fclose(f);
  while (name.ends_with('\n')) name.pop_back();
  return name;
}

/// Variables that change how a run computes or where it runs. Not the whole environment, which may hold
/// secrets.
JsonValue relevant_variables() {
  constexpr std::string_view kPrefixes[] = {"OMP_",    "OPENBLAS_",       "CUDA_",
                                            "NCCL_",   "TRAINHOST_",      "SLURM_",
                                            "MALLOC_", "LD_LIBRARY_PATH", "LD_PRELOAD"};
  JsonValue out = JsonValue::object();
  for (char** v = environ; v && *v; ++v) {
    const std::string_view entry = *v;
    const auto equals = entry.find('=');
    if (equals == entry.npos) continue;
    for (const std::string_view prefix : kPrefixes)
      if (entry.starts_with(prefix))
        out[std::string(entry.substr(0, equals))] = escaped(entry.substr(equals + 1), 4096);
  }
  return out;
}

/// The longest path below the folder is that of a shard of the model while it is written, of less than 100
/// bytes. Longer paths would fail when the run ends.
void require_usable_length(const fs::path& dir) {
  constexpr std::size_t kBelow = 100;
  if (dir.native().size() + kBelow >= PATH_MAX)
    throw usage_error(
        fmt::format("output.dir has {} bytes; the limit of the system is {}, and a run needs {} below it",
                    dir.native().size(), PATH_MAX - 1, kBelow),
        "set a shorter output.dir");
}

/// The number of steps of the finished run in `dir`, UINT64_MAX for one that train.early_stopping has ended;
/// nullopt if it has no readable summary.json.
std::optional<std::uint64_t> finished_steps(const fs::path& dir) {
  std::error_code ec;
  if (!fs::is_regular_file(fs::symlink_status(dir / "summary.json", ec))) return std::nullopt;
  try {
    const JsonValue summary = parse_json(checkpoint::read_whole(dir / "summary.json", 16 << 20));
    const JsonValue* const steps = summary.find("steps");
    if (!steps || steps->integer < 0) return std::nullopt;
    if (const JsonValue* early = summary.find("stopped_early"); early && early->boolean) return UINT64_MAX;
    return static_cast<std::uint64_t>(steps->integer);
  } catch (const JsonError&) {
    return std::nullopt;
  }
}

/// --resume=auto, for job schedulers that start the same command until the run is finished.
RunFolder resume_or_start(const fs::path& dir, const runfile::OutputConfig& output, std::uint64_t steps) {
  const std::optional<std::uint64_t> finished = finished_steps(dir);
  if (finished && *finished >= steps) return {dir, true, true};
  if (checkpoint::Store(dir / "checkpoints", output.keep).count() > 0) return {dir, true};
  if (finished)
    throw usage_error(fmt::format("{} has a finished run of {} steps and no checkpoint to continue from",
                                  escaped(dir.string(), 4096), *finished),
                      "replace it with --overwrite, or train into another --set output.dir=DIR");
  require_no_foreign_files(dir);
  return {dir};
}

}  // namespace

RunFolder select_run_folder(const runfile::OutputConfig& output, const RunFolderOptions& o) {
  require_usable_length(output.dir);
  Numbered dir{output.dir, output.dir};
  if (o.default_name) dir = numbered(output.dir);
  if (o.resume == Resume::kYes && !o.overwrite) return {dir.last, true};
  if (o.overwrite) {
    require_no_foreign_files(dir.last);
    return {dir.last};
  }
  if (o.resume == Resume::kAuto) return resume_or_start(dir.last, output, o.steps);
  const std::string shown = escaped(dir.last.string(), 4096);
  if (has_finished_run(dir.last)) {
    if (o.default_name) return {dir.next};
    throw usage_error(shown + " has the model of an earlier run",
                      "train into another --set output.dir=DIR, or replace the earlier run with --overwrite");
  }
  if (checkpoint::Store(dir.last / "checkpoints", output.keep).count() > 0)
    throw usage_error(
        shown + " has checkpoints of a run that did not finish",
        "continue it with --resume, replace it with --overwrite, or train into another --set output.dir=DIR");
  require_no_foreign_files(dir.last);
  return {dir.last};
}

namespace {

/// At the start, because a rename replaces no directory by a file: the run would train and then fail.
void reject_directories_in_place_of_files(const fs::path& dir) {
  for (const char* name : {"summary.json", "checkpoints/latest", "checkpoints/best"})
    if (checkpoint::file_type_of(dir / name) == fs::file_type::directory)
      throw run_error(escaped((dir / name).string(), 4096) + " is a directory; the run writes a file there",
                      "rename or remove it");
}

}  // namespace

void clear_run_folder(const fs::path& dir, bool resume) {
  if (!resume)
    for (const char* name : kResults) checkpoint::remove_tree(dir / name);
  reject_directories_in_place_of_files(dir);
  std::error_code ec;
  for (const std::string& name : names_in_directory(dir, ec)) {
    const auto left_by_killed_run = [&](const char* base) { return checkpoint::is_temp_name(name, base); };
    if ((!resume && is_rank_log(name)) ||
        std::any_of(std::begin(kResults), std::end(kResults), left_by_killed_run) ||
        std::any_of(std::begin(kRecords), std::end(kRecords), left_by_killed_run))
      checkpoint::remove_tree(dir / name);
  }
}

void record_start(const fs::path& dir, const std::string& run_file, const std::string& command_line) {
  utsname system{};
  ::uname(&system);
  std::error_code ec;
  JsonValue j = {{"command", command_line},
                 {"directory", escaped(fs::current_path(ec).string(), 4096)},
                 {"time", utc_time()},
                 {"version", TRAINHOST_VERSION},
                 {"host", system.nodename},
                 {"system", fmt::format("{} {} {}", system.sysname, system.release, system.machine)},
                 {"processor", processor_name()}};
  j["variables"] = relevant_variables();
  // First, because it marks the folder as that of a run (require_no_foreign_files()).
  checkpoint::write_file_atomically(dir / "environment.json", j.dump(2) + "\n");
  checkpoint::write_file_atomically(dir / "run.toml", run_file);
}

}  // namespace trainhost::training
