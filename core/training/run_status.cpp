// See run_status.hpp. Two counters of ended processes: of the own cgroup (memory.events or
// memory.oom_control), which includes its limits, and of the machine (/proc/vmstat), which is there without
// cgroups as well. Both count from boot, so they are compared only within one boot.
#include "core/training/run_status.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <string_view>

#include "core/base/json_value.hpp"
#include "core/base/text.hpp"
#include "core/checkpoint/durable.hpp"
#include "core/checkpoint/store.hpp"
#include "core/training/events.hpp"

namespace trainhost::training {
namespace {

namespace fs = std::filesystem;
constexpr const char* kFile = "status.json";
constexpr std::uint64_t kMostBytes = 1 << 16;

/// A file of /proc or /sys; "" where it cannot be read. Files there have size 0, so read_whole() does not
/// work.
std::string read_system_file(const fs::path& path) {
  std::string text;
  std::FILE* f = std::fopen(path.c_str(), "re");
  if (!f) return text;
  std::array<char, 4096> block;
  for (std::size_t n; text.size() < kMostBytes && (n = std::fread(block.data(), 1, block.size(), f)) > 0;)
    text.append(block.data(), n);
  std::fclose(f);
  return text;
}

/// The number behind `key` in lines "key number"; nullopt if there is no such line.
std::optional<std::int64_t> counter(const std::string& text, const std::string& key) {
  // Each round begins at the start of a line; "key " must match from there, so that oom_kill is not found in
  // oom_kill_disable.
  for (std::size_t at = 0; at < text.size(); at = std::min(text.find('\n', at), text.size() - 1) + 1) {
    if (text.compare(at, key.size() + 1, key + " ") != 0) continue;
    std::int64_t n = 0;
    const char* const from = text.data() + at + key.size() + 1;
    if (std::from_chars(from, text.data() + text.size(), n).ec == std::errc{}) return n;
  }
  return std::nullopt;
}

/// The file of the own cgroup with the counter oom_kill; "" where there is none. Lines of /proc/self/cgroup:
/// "0::/PATH" (version 2), "9:memory:/PATH" (version 1).
std::string cgroup_counter_file() {
  const std::string text = read_system_file("/proc/self/cgroup");
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line = std::string_view(text).substr(at, end - at);
    at = end + 1;
    std::error_code ec;
    std::string file;
    if (const auto v1 = line.find(":memory:"); v1 != line.npos)
      file = fmt::format("/sys/fs/cgroup/memory{}/memory.oom_control", line.substr(v1 + 8));
    else if (line.starts_with("0::"))
      file = fmt::format("/sys/fs/cgroup{}/memory.events", line.substr(3));
    // A process in a container may see a path of the host that is not mounted here.
    if (!file.empty() && fs::exists(file, ec)) return file;
  }
  return {};
}

/// What identifies the machine, its boot and the cgroup, and the counters that are compared.
struct Machine {
  std::string host, boot, cgroup;
  std::optional<std::int64_t> cgroup_kills, machine_kills;
};

Machine this_machine() {
  Machine m;
  std::array<char, 256> host{};
  if (::gethostname(host.data(), host.size() - 1) == 0) m.host = host.data();
  m.boot = read_system_file("/proc/sys/kernel/random/boot_id");
  while (m.boot.ends_with('\n')) m.boot.pop_back();
  m.cgroup = cgroup_counter_file();
  if (!m.cgroup.empty()) m.cgroup_kills = counter(read_system_file(m.cgroup), "oom_kill");
  m.machine_kills = counter(read_system_file("/proc/vmstat"), "oom_kill");
  return m;
}

void write(const fs::path& dir, const JsonValue& j) {
  checkpoint::write_file_atomically(dir / kFile, j.dump(2) + "\n");
}

std::optional<JsonValue> read(const fs::path& dir) {
  std::error_code ec;
  // A folder that others can write to might hold a link or a FIFO here.
  if (!fs::is_regular_file(fs::symlink_status(dir / kFile, ec))) return std::nullopt;
  try {
    JsonValue j = parse_json(checkpoint::read_whole(dir / kFile, kMostBytes), 4);
    return j.is_object() ? std::optional(std::move(j)) : std::nullopt;
    // A status that cannot be read is no status: it must not keep the next run from starting.
  } catch (const Error&) {
    return std::nullopt;
  } catch (const JsonError&) {
    return std::nullopt;
  }
}

/// Whether the counter rose since `key` was noted.
bool rose(const JsonValue& before, const char* key, const std::optional<std::int64_t>& now) {
  const JsonValue* const then = before.find(key);
  return now && then && then->kind == JsonValue::Kind::kInteger && *now > then->integer;
}

}  // namespace

std::optional<std::string> cause_of_last_end(const fs::path& dir) {
  const std::optional<JsonValue> last = read(dir);
  if (!last || last->text_of("state") != "running") return std::nullopt;
  const Machine now = this_machine();
  const std::uint64_t step = last_step(dir / "metrics.jsonl");
  const std::string when = step ? fmt::format("after step {}", step) : "before its first step";
  // From the most to the least certain cause: counters of another machine or boot say nothing.
  std::string cause;
  if (last->text_of("host") != now.host)
    cause = fmt::format("on the host {}: it was killed, it crashed, or the machine failed",
                        escaped(last->text_of("host"), 256));
  else if (last->text_of("boot") != now.boot)
    cause = "because the machine was restarted";
  else if (last->text_of("cgroup") == now.cgroup && rose(*last, "cgroup_oom_kills", now.cgroup_kills))
    cause = "by the kernel, because the memory limit of its cgroup was reached";
  else if (rose(*last, "machine_oom_kills", now.machine_kills))
    cause = "probably by the kernel, which ended a process of this machine because memory was used up";
  else
    cause = "without a message: it was killed (SIGKILL) or it crashed";
  return fmt::format("the last run in this folder was ended {} {}", when, cause);
}

void write_running(const fs::path& dir) {
  const Machine m = this_machine();
  JsonValue j = {
      {"state", "running"}, {"pid", ::getpid()}, {"host", m.host}, {"boot", m.boot}, {"cgroup", m.cgroup}};
  if (m.cgroup_kills) j["cgroup_oom_kills"] = *m.cgroup_kills;
  if (m.machine_kills) j["machine_oom_kills"] = *m.machine_kills;
  write(dir, j);
}

void write_ended(const fs::path& dir, const std::string& state, Exit code, const std::string& reason) {
  JsonValue j = {{"state", state}, {"exit_code", static_cast<int>(code)}};
  if (!reason.empty()) j["reason"] = escaped(reason, 4096);
  write(dir, j);
}

RunState run_state(const fs::path& dir) {
  const std::optional<JsonValue> j = read(dir);
  if (!j) return {};
  RunState out{std::string(j->text_of("state")), std::string(j->text_of("reason"))};
  if (out.state != "running") return out;
  // A process of another machine cannot be asked.
  const Machine now = this_machine();
  if (j->text_of("host") != now.host) return out;
  const JsonValue* const pid = j->find("pid");
  const bool gone =
      pid && pid->integer > 0 && ::kill(static_cast<pid_t>(pid->integer), 0) != 0 && errno == ESRCH;
  if (gone || j->text_of("boot") != now.boot) out.state = "killed";
  return out;
}

}  // namespace trainhost::training
