// See trial_load.hpp: the parent. Request and record are lines of fields; the child is in
// trial_load_child.cpp. Everything the child reports is untrusted, as the plugin runs in the same process and
// may write into the record.
#include "core/plugin/trial_load.hpp"

#include <fmt/format.h>

#include <cstdlib>

#include "core/base/text.hpp"
#include "core/plugin/field_lines.hpp"
#include "core/process/child.hpp"

namespace trainhost::plugin {
namespace {

constexpr std::uint64_t kMaxOutputBytes =
    1 << 20;  // bytes on standard output and standard error; more reject the plugin

/// The identity of the file is part of the request: the child rejects a file that was replaced meanwhile.
std::string request_text(const TrialLoadRequest& r) {
  const FileId& i = r.id;
  std::string text =
      join_fields({"file", r.file.string(), std::to_string(i.device), std::to_string(i.inode),
                   std::to_string(i.size), std::to_string(i.mtime_s), std::to_string(i.mtime_ns)}) +
      "\n";
  text += join_fields({"threads", std::to_string(r.threads)}) + "\n";
  for (const auto& [key, value] : r.options) text += join_fields({"option", key, value}) + "\n";
  return text;
}

/// Words for the stage that was running when the child ended.
const char* stage_phrase(const std::string& stage) {
  if (stage == "load") return "while loading";
  if (stage == "start") return "in start()";
  if (stage == "abi") return "while its tables were read";
  if (stage == "probe") return "in probe()";
  if (stage == "stop") return "in stop()";
  return "before loading";
}

const char* code_of(ChildEnd end) {
  switch (end) {
    case ChildEnd::kSignal:
      return "crashed";
    case ChildEnd::kStopped:
      return "stopped";
    case ChildEnd::kLate:
      return "hung";
    default:
      return "exited";
  }
}

std::string first_output_line(const ChildResult& c) {
  const std::string line = c.output.substr(0, c.output.find('\n'));
  return line.empty() ? "" : fmt::format("; it wrote: {}", escaped(line));
}

/// Reads the child's record: results, and the last stage that it reported. Unknown lines are skipped; missing
/// fields are empty.
void read_record(const std::string& record, TrialLoadResult& v, std::string& stage) {
  for (std::string_view line : lines_of(record)) {
    std::vector<std::string> f = split_fields(line);
    f.resize(7);
    const VendorError native{f[5], static_cast<std::int32_t>(std::strtol(f[6].c_str(), nullptr, 10))};
    if (f[0] == "stage") stage = f[1];
    if (f[0] == "warning") v.warnings.push_back(f[1]);
    if (f[0] == "note" && v.notes.size() < kMaxNotes) v.notes.push_back(f[1]);
    if (f[0] == "rejected") v.rejected.emplace(f[1], f[2], f[3], f[4], native);
    if (f[0] == "unavailable") v.unavailable.emplace(f[1], f[2], f[3], f[4], native);
  }
}

/// A child that did not end by itself overrides what it reported before: a crash after "unavailable" is a
/// crash.
void judge_end_of_child(const ChildResult& c, const ChildLimits& limits, const std::string& stage,
                           TrialLoadResult& v) {
  if (c.end != ChildEnd::kDone) {
    v.unavailable.reset();
    v.rejected.emplace(
        stage.empty() ? "load" : stage, code_of(c.end),
        fmt::format("its trial load {} {}{}", describe(c, limits), stage_phrase(stage), first_output_line(c)),
        "it ran only in a child process; it is tried again when the file changes");
    return;
  }
  if (v.rejected) return;
  if (c.left_behind > 0)
    v.rejected.emplace("hygiene", "processes",
                       fmt::format("it left {} process(es) running after stop()", c.left_behind),
                       "end in stop() every process that start() created");
  else if (c.output_bytes > kMaxOutputBytes)
    v.rejected.emplace("hygiene", "noise",
                       fmt::format("it wrote {} to standard output or error during the trial load",
                                   format_bytes(c.output_bytes)),
                       "write through the host's log()");
  else if (c.output_bytes > 0)
    v.warnings.push_back(fmt::format("it wrote {} bytes to standard output or error: {}", c.output_bytes,
                                     escaped(c.output.substr(0, c.output.find('\n')))));
}

}  // namespace

/// Does not throw for anything that the plugin does; failing to start a child is an error of the host.
TrialLoadResult run_trial_load(const TrialLoadRequest& request) {
  ChildRequest child;
  child.program = request.program;
  child.arguments = {kTrialLoadArgument};
  child.input = request_text(request);
  child.limits.seconds = request.seconds;
  const ChildResult result = run_child(child);
  TrialLoadResult v;
  std::string stage;
  read_record(result.record, v, stage);
  judge_end_of_child(result, child.limits, stage, v);
  return v;
}

}  // namespace trainhost::plugin
