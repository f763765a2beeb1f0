// See cpu_topology.hpp.
#include "core/process/cpu_topology.hpp"

#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <fstream>
#include <map>
#include <tuple>

#include "core/base/error.hpp"
#include "core/base/text.hpp"

namespace trainhost {
namespace {

constexpr std::uint32_t kMaxCpus = 65536;

/// The list in a file; empty if it is missing.
std::vector<std::uint32_t> cpus_in(const std::filesystem::path& file) {
  std::ifstream in(file);
  std::string line;
  return std::getline(in, line) ? parse_cpu_list(line) : std::vector<std::uint32_t>{};
}

/// The node of every CPU that a node lists.
std::map<std::uint32_t, std::uint32_t> nodes_of_cpus(const std::filesystem::path& root) {
  std::map<std::uint32_t, std::uint32_t> node_of;
  const std::filesystem::path nodes = root / "sys/devices/system/node";
  for (const std::uint32_t node : cpus_in(nodes / "online"))
    for (const std::uint32_t cpu : cpus_in(nodes / ("node" + std::to_string(node)) / "cpulist"))
      node_of.emplace(cpu, node);
  return node_of;
}

/// The lowest CPU that shares a core with this one.
std::uint32_t core_of(const std::filesystem::path& root, std::uint32_t cpu) {
  const std::filesystem::path topology =
      root / "sys/devices/system/cpu" / ("cpu" + std::to_string(cpu)) / "topology";
  for (const char* file : {"core_cpus_list", "thread_siblings_list"}) {  // the second: before Linux 5.3
    const std::vector<std::uint32_t> shared = cpus_in(topology / file);
    if (std::find(shared.begin(), shared.end(), cpu) != shared.end())
      return *std::min_element(shared.begin(), shared.end());
  }
  return cpu;
}

}  // namespace

std::vector<std::uint32_t> allowed_cpus() {
  std::vector<std::uint32_t> cpus;
  for (std::uint32_t most = 1024; most <= kMaxCpus; most *= 2) {
    cpu_set_t* set = CPU_ALLOC(most);
    if (!set) return {};
    const std::size_t bytes = CPU_ALLOC_SIZE(most);
    const bool read = ::sched_getaffinity(0, bytes, set) == 0;
    const bool too_small = !read && errno == EINVAL;
    if (read)
      for (std::uint32_t i = 0; i < most; ++i)
        if (CPU_ISSET_S(i, bytes, set)) cpus.push_back(i);
    CPU_FREE(set);
    if (!too_small) break;
  }
  return cpus;
}

const std::vector<std::uint32_t>& process_cpus() {
  static const std::vector<std::uint32_t> cpus = allowed_cpus();
  return cpus;
}

std::vector<std::uint32_t> parse_cpu_list(const std::string& text) {
  std::vector<std::uint32_t> cpus;
  const char *at = text.data(), *end = at + text.size();
  const auto number = [&](std::uint32_t& n) {
    const auto [next, error] = std::from_chars(at, end, n);
    at = next;
    return error == std::errc{} && n < kMaxCpus;
  };
  while (at != end && *at != '\n') {
    std::uint32_t first = 0, last = 0;
    if (!number(first)) return {};
    last = first;
    if (at != end && *at == '-' && (++at, !number(last))) return {};
    if (last < first || last - first >= kMaxCpus - cpus.size()) return {};
    for (std::uint32_t i = first; i <= last; ++i) cpus.push_back(i);
    if (at != end && *at == ',')
      ++at;
    else if (at != end && *at != '\n')
      return {};
  }
  return cpus;
}

std::vector<CpuPlace> cpu_places(const std::filesystem::path& root, std::span<const std::uint32_t> cpus) {
  const std::map<std::uint32_t, std::uint32_t> node_of = nodes_of_cpus(root);
  std::vector<CpuPlace> places;
  for (const std::uint32_t cpu : cpus) {
    const auto node = node_of.find(cpu);
    places.push_back({cpu, core_of(root, cpu), node == node_of.end() ? 0 : node->second});
  }
  std::sort(places.begin(), places.end(), [](const CpuPlace& a, const CpuPlace& b) {
    return std::tie(a.node, a.core, a.cpu) < std::tie(b.node, b.core, b.cpu);
  });
  return places;
}

std::uint32_t core_count(std::span<const CpuPlace> places) {
  std::vector<std::uint32_t> cores;
  for (const CpuPlace& p : places) cores.push_back(p.core);
  std::sort(cores.begin(), cores.end());
  return static_cast<std::uint32_t>(std::unique(cores.begin(), cores.end()) - cores.begin());
}

bool spans_nodes(std::span<const CpuPlace> places) {
  return !places.empty() && places.front().node != places.back().node;  // they are sorted
}

Binding selected_binding() {
  const char* wanted = std::getenv("TRAINHOST_CPU_BIND");
  const std::string name = wanted && *wanted ? wanted : "node";
  const std::vector<std::string> known = {"none", "node", "core"};
  const auto at = std::find(known.begin(), known.end(), name);
  if (at == known.end())
    throw usage_error("TRAINHOST_CPU_BIND=" + escaped(name) + ": expected none, node or core" +
                      did_you_mean(name, known));
  return static_cast<Binding>(at - known.begin());
}

std::vector<std::vector<std::uint32_t>> worker_cpus(std::span<const CpuPlace> places, std::uint32_t threads,
                                                    Binding binding) {
  if (binding == Binding::kNone || places.empty()) return {};
  if (binding == Binding::kNode && !spans_nodes(places)) return {};
  if (threads < core_count(places)) return {};
  std::vector<CpuPlace> cores;  // one place of each
  for (const CpuPlace& p : places)
    if (cores.empty() || cores.back().core != p.core || cores.back().node != p.node) cores.push_back(p);
  std::vector<std::vector<std::uint32_t>> bound(threads);
  for (std::uint32_t w = 0; w < threads; ++w) {
    const CpuPlace& own = cores[std::uint64_t{w} * cores.size() / threads];
    for (const CpuPlace& p : places)
      if (p.node == own.node && (binding == Binding::kNode || p.core == own.core)) bound[w].push_back(p.cpu);
  }
  return bound;
}

std::vector<std::vector<std::uint32_t>> worker_cpus(std::uint32_t threads) {
  const Binding binding = selected_binding();
  return binding == Binding::kNone ? std::vector<std::vector<std::uint32_t>>{}
                                   : worker_cpus(cpu_places("/", process_cpus()), threads, binding);
}

}  // namespace trainhost
