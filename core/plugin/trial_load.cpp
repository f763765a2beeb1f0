// See trial_load.hpp: the parent's side. What it sends and receives are lines of fields; trial_load_child.cpp
// answers.
#include "core/plugin/trial_load.hpp"

#include <fmt/format.h>

#include <cstdlib>

#include "core/base/text.hpp"
#include "core/plugin/cache_fields.hpp"
#include "core/process/child.hpp"

namespace trainhost::plugin {
namespace {

constexpr std::uint64_t kNoise =
    1 << 20;  // bytes on standard output and error: beyond this a plugin is refused

std::string request_text(const ProbeRequest& r) {
  const FileId& i = r.id;
  std::string text =
      join_fields({"file", r.file.string(), std::to_string(i.device), std::to_string(i.inode),
                   std::to_string(i.size), std::to_string(i.mtime_s), std::to_string(i.mtime_ns)}) +
      "\n";
  text += join_fields({"threads", std::to_string(r.threads)}) + "\n";
  for (const auto& [key, value] : r.options) text += join_fields({"option", key, value}) + "\n";
  return text;
}

const char* doing(const std::string& stage) {
  if (stage == "load") return "while it was loaded";
  if (stage == "start") return "in its start()";
  if (stage == "abi") return "while its tables were asked for";
  if (stage == "probe") return "in its probe()";
  if (stage == "stop") return "in its stop()";
  return "before it was loaded";
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

std::string last_words(const ChildResult& c) {
  const std::string line = c.output.substr(0, c.output.find('\n'));
  return line.empty() ? "" : fmt::format("; it wrote: {}", escaped(line));
}

/// What the child told before it ended, and the stage that it had reached.
void read_record(const std::string& record, ProbeVerdict& v, std::string& stage) {
  for (std::string_view line : lines_of(record)) {
    std::vector<std::string> f = split_fields(line);
    f.resize(7);
    const Native native{f[5], static_cast<std::int32_t>(std::strtol(f[6].c_str(), nullptr, 10))};
    if (f[0] == "stage") stage = f[1];
    if (f[0] == "warning") v.warnings.push_back(f[1]);
    if (f[0] == "refused") v.refused.emplace(f[1], f[2], f[3], f[4], native);
    if (f[0] == "unavailable") v.unavailable.emplace(f[1], f[2], f[3], f[4], native);
  }
}

void judge_end(const ChildResult& c, const ChildLimits& limits, const std::string& stage, ProbeVerdict& v) {
  if (c.end != ChildEnd::kDone) {
    v.unavailable.reset();
    v.refused.emplace(stage.empty() ? "load" : stage, code_of(c.end),
                      fmt::format("{} it {}{}", doing(stage), describe(c, limits), last_words(c)),
                      "it was tried in a process of its own and is left alone until the file changes");
    return;
  }
  if (v.refused) return;
  if (c.left_behind > 0)
    v.refused.emplace("hygiene", "processes",
                      fmt::format("left {} process(es) running after its stop()", c.left_behind),
                      "end in stop() what start() began");
  else if (c.output_bytes > kNoise)
    v.refused.emplace(
        "hygiene", "noise",
        fmt::format("wrote {} to standard output or error while it was tried", format_bytes(c.output_bytes)),
        "use the host's log()");
  else if (c.output_bytes > 0)
    v.warnings.push_back(fmt::format("wrote {} bytes to standard output or error: {}", c.output_bytes,
                                     escaped(c.output.substr(0, c.output.find('\n')))));
}

}  // namespace

ProbeVerdict probe_in_child(const ProbeRequest& request) {
  ChildRequest child;
  child.program = request.program;
  child.arguments = {kProbeWord};
  child.input = request_text(request);
  child.limits.seconds = request.seconds;
  const ChildResult result = run_child(child);
  ProbeVerdict v;
  std::string stage;
  read_record(result.record, v, stage);
  judge_end(result, child.limits, stage, v);
  return v;
}

}  // namespace trainhost::plugin
