// GPU-003: a run that requests CUDA on a machine without it trains on the CPU, reports the reason and
// succeeds. Tests the whole program in a child process with an empty CUDA_VISIBLE_DEVICES, which hides every
// device.
#include <fmt/format.h>
#include <stdlib.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>

#include "core/base/error.hpp"
#include "core/base/json_value.hpp"
#include "core/base/text.hpp"
#include "core/process/child.hpp"
#include "core/training/events.hpp"
#include "core/verify/context.hpp"
#include "core/verify/contract_table.hpp"
#include "core/verify/judge_modes.hpp"

namespace trainhost::verify {
namespace {

constexpr std::uint64_t kFallbackSteps = 2;

/// A temporary directory for the run file and the output of the child. The destructor removes it.
/// Owner: the check. Nothing in it is needed after the child has ended.
class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    std::string pattern = (std::filesystem::temp_directory_path() / "trainhost-verify-XXXXXX").string();
    if (!::mkdtemp(pattern.data()))
      throw run_error("cannot create the directory " + pattern + ": " + std::strerror(errno));
    path_ = pattern;
  }
  ~TemporaryDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

struct ChildEvents {
  std::string backend, fallback_reason, last_message = "nothing";
  std::uint64_t steps = 0;
  bool done = false;
};

/// The JSON events in the output of the child; `last_message` is the last line that is not JSON.
/// The last other line is usually an error message, and is the best explanation of a failure.
ChildEvents parse_events(const std::string& output) {
  ChildEvents e;
  std::istringstream in(output);
  for (std::string line; std::getline(in, line);) {
    const std::optional<JsonValue> j = training::parse_event(line);
    if (!j) {
      if (line.find_first_not_of(' ') != line.npos) e.last_message = escaped(line, 300);
      continue;
    }
    const std::string_view event = j->text_of("event");
    if (event == "start") {
      e.backend = j->text_of("backend");
      e.fallback_reason = j->text_of("fallback_reason");
    }
    e.steps += event == "step";
    e.done = e.done || event == "done";
  }
  return e;
}

std::vector<std::string> child_arguments(const Context& context, const std::filesystem::path& run_file) {
  std::vector<std::string> arguments = {
      "train", run_file.string(), "--backend=cuda", "--steps", std::to_string(kFallbackSteps), "--json",
      "-q"};
  for (const std::filesystem::path& p : context.plugin_path)
    arguments.insert(arguments.end(), {"--plugin-path", p.string()});
  return arguments;
}

// The built-in run needs no files and trains in seconds.
Finding judge_fallback(const Context& context) {
  TemporaryDirectory directory;
  const std::filesystem::path run_file = directory.path() / "run.toml";
  // A relative output directory is relative to the run file, so it is inside `directory`.
  std::ofstream(run_file) << builtin_run_toml() << "[output]\ndir = \"out\"\n";
  ChildRequest child;
  child.program =
      std::filesystem::canonical(context.program);  // before fork: /proc/self depends on the process
  child.arguments = child_arguments(context, run_file);
  // An empty value hides all devices; an absent one would show all.
  child.environment = {{"CUDA_VISIBLE_DEVICES", ""}};
  child.limits.seconds = 120;
  child.limits.output_bytes = 4 << 20;
  const ChildResult r = run_child(child);
  const ChildEvents e = parse_events(r.output);
  const double code = r.code;
  auto falsified = [&](const std::string& why) {
    return Finding{false, code, 0, "a run with --backend=cuda and no visible device " + why};
  };
  // kExited, not kDone: the program writes events to its output, not a record for run_child().
  if (r.end != ChildEnd::kExited)
    return falsified(describe(r, child.limits) + "; its last output: " + e.last_message);
  // Each of these is required by the contract; the exit code alone would also be 0 for a run on the device.
  if (r.code != 0)
    return falsified(fmt::format("exited with code {}; its last output: {}", r.code, e.last_message));
  if (e.backend != "cpu") return falsified(fmt::format("trained on '{}'", escaped(e.backend)));
  if (e.fallback_reason.empty()) return falsified("trained on the cpu without reporting a reason");
  if (e.steps != kFallbackSteps || !e.done)
    return falsified(fmt::format("took {} of {} steps{}", e.steps, kFallbackSteps,
                                 e.done ? "" : " and did not report the end of training"));
  return {true, code, 0,
          fmt::format("with no visible device it trained {} steps on the cpu and reported the reason: {}",
                      kFallbackSteps, escaped(e.fallback_reason, 300))};
}

}  // namespace

Result check_fallback(Context& context) {
  if (context.trainers.backend() != "cuda")
    return skipped(fmt::format("the {} backend makes no transfers and needs no fallback; only cuda has one",
                               context.trainers.backend()));
  return run_once([&] { return judge_fallback(context); });
}

}  // namespace trainhost::verify
