// Processor, instruction sets, CPU limit, caches and NUMA nodes, from /proc/cpuinfo, control groups and /sys.
#include <fmt/format.h>

#include <algorithm>
#include <sstream>

#include "core/base/plural.hpp"
#include "core/base/text.hpp"
#include "core/machine/check_machine.hpp"
#include "core/machine/system_files.hpp"

namespace trainhost::machine {
namespace {

namespace fs = std::filesystem;

Finding of_cpu(std::string name) { return {"cpu", std::move(name)}; }

Finding check_processor(const std::string& cpuinfo, unsigned usable) {
  Finding f = of_cpu("processor");
  std::string name = value_of_line(cpuinfo, "model name");
  unsigned installed = 0;
  std::istringstream lines(cpuinfo);
  for (std::string line; std::getline(lines, line);) installed += line.starts_with("processor");
  f.value = fmt::format("{}, {}", name.empty() ? "unknown" : escaped(name), plural(usable, "CPU"));
  if (installed > usable) f.value += fmt::format(" of {}", installed);
  f.data = {{"name", name}, {"usable_cpus", usable}, {"cpus", std::max(installed, usable)}};
  return f;
}

Finding check_instruction_sets(const std::string& cpuinfo) {
  Finding f = of_cpu("instruction sets");
  std::istringstream in(value_of_line(cpuinfo, "flags"));
  std::vector<std::string> flags;
  for (std::string flag; in >> flag;) flags.push_back(flag);
  const auto has = [&](const char* flag) {
    return std::find(flags.begin(), flags.end(), flag) != flags.end();
  };
  std::vector<std::string> present;
  for (const char* flag : {"sse4_2", "avx", "avx2", "fma", "bmi2", "f16c", "avx512f", "avx512bw",
                           "avx512_bf16", "amx_tile", "amx_bf16"})
    if (has(flag)) present.push_back(flag);
  f.value = flags.empty()     ? "unknown"
            : present.empty() ? "none beyond x86-64"
                              : fmt::format("{}", fmt::join(present, " "));
  f.data = {{"flags", present}};
  if (!flags.empty() && !has("sse4_2")) {
    f.state = State::kError;
    f.hint =
        "the CPU trainer needs SSE4.2 and POPCNT (x86-64-v2): let the virtual machine pass the features of "
        "its "
        "host, or use a newer CPU";
  } else if (!flags.empty() && !(has("avx2") && has("fma") && has("bmi2"))) {
    f.state = State::kWarning;
    f.hint =
        "without AVX2, FMA and BMI2 the CPU trainer uses scalar kernels: let the virtual machine pass the "
        "features of its host, or use a newer CPU";
  }
  return f;
}

/// CPUs that a directory of a control group allows: "150000 100000" is 1.5; nullopt: not limited.
std::optional<double> cpu_quota(const fs::path& group) {
  std::string quota = file_text(group / "cpu.max").value_or("");
  if (quota.empty())
    quota = file_text(group / "cpu.cfs_quota_us").value_or("") + " " +
            file_text(group / "cpu.cfs_period_us").value_or("");
  double time = 0, period = 0;
  std::istringstream in(quota);
  if (!(in >> time >> period) || time <= 0 || period <= 0) return std::nullopt;
  return time / period;
}

Finding check_cpu_limit(const fs::path& root, unsigned usable) {
  Finding f = of_cpu("CPU limit");
  std::optional<double> least;
  bool of_version_1 = false;  // which train.threads = 0 does not respect
  for (const fs::path& group : control_groups(root, "cpu"))
    if (const auto quota = cpu_quota(group)) {
      least = std::min(least.value_or(*quota), *quota);
      of_version_1 = of_version_1 || !fs::exists(group / "cpu.max");
    }
  f.value = least ? fmt::format("{:g} CPUs, by a control group", *least) : "none";
  f.data = {{"cpus", least ? JsonValue(*least) : JsonValue()}};
  if (least && *least < usable && of_version_1) {
    f.state = State::kWarning;
    f.hint = fmt::format("one thread per CPU would be throttled: --set train.threads={}",
                         std::max(1u, static_cast<unsigned>(*least)));
  }
  return f;
}

/// "32768K" in bytes.
std::uint64_t cache_bytes(const std::string& size) {
  const std::uint64_t n = leading_number(size).value_or(0);
  return size.ends_with('K') ? n << 10 : size.ends_with('M') ? n << 20 : n;
}

Finding check_caches(const fs::path& root) {
  Finding f = of_cpu("caches");
  const fs::path folder = root / "sys/devices/system/cpu/cpu0/cache";
  std::vector<std::string> shown;
  JsonValue all = JsonValue::array();
  for (const std::string& name : names_in(folder)) {
    if (!name.starts_with("index")) continue;
    const auto text = [&](const char* file) { return file_text(folder / name / file).value_or(""); };
    const std::string type = text("type"), level = text("level");
    const std::uint64_t bytes = cache_bytes(text("size"));
    if (type == "Instruction" || bytes == 0) continue;
    const std::string shared = text("shared_cpu_list");
    shown.push_back(fmt::format("L{}{} {} of CPU {}", escaped(level), type == "Data" ? "d" : "",
                                format_bytes(bytes), escaped(shared)));
    all.push_back({{"level", level}, {"bytes", bytes}, {"shared_by", shared}});
  }
  f.value = shown.empty() ? "unknown" : fmt::format("{}", fmt::join(shown, ", "));
  f.data = {{"caches", all}};
  return f;
}

Finding check_numa(const fs::path& root) {
  Finding f = of_cpu("NUMA");
  const fs::path folder = root / "sys/devices/system/node";
  std::vector<std::string> shown;
  JsonValue all = JsonValue::array();
  std::size_t without_memory = 0;
  for (const std::string& name : names_in(folder)) {
    if (!name.starts_with("node") || !leading_number(std::string_view(name).substr(4))) continue;
    const std::string cpus = file_text(folder / name / "cpulist").value_or("");
    // "Node 0 MemTotal:       24000000 kB"
    const std::string total = value_of_line(file_text(folder / name / "meminfo").value_or(""),
                                            fmt::format("Node {} MemTotal", name.substr(4)));
    const std::uint64_t bytes = leading_number(total).value_or(0) * 1024;
    without_memory += bytes == 0 && !cpus.empty();
    shown.push_back(fmt::format("CPU {} with {}", escaped(cpus), format_bytes(bytes)));
    all.push_back({{"cpus", cpus}, {"memory_bytes", bytes}});
  }
  f.value =
      shown.empty() ? "unknown" : fmt::format("{}: {}", plural(shown.size(), "node"), fmt::join(shown, "; "));
  f.data = {{"nodes", all}};
  if (shown.size() > 1 && without_memory > 0) {
    f.state = State::kWarning;
    f.hint =
        "a node has CPUs but no memory, so that its threads are slower: distribute the memory modules, or "
        "bind the run to the other nodes with numactl";
  }
  return f;
}

}  // namespace

Findings check_cpu(const fs::path& root, unsigned usable) {
  const std::string cpuinfo = file_text(root / "proc/cpuinfo").value_or("");
  return {check_processor(cpuinfo, usable), check_instruction_sets(cpuinfo), check_cpu_limit(root, usable),
          check_caches(root), check_numa(root)};
}

}  // namespace trainhost::machine
