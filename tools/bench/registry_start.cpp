// Benchmark of start-up time: lists N plugins (copies of one with different ids) without the cache (file
// validation and trial load of each) and with it. Prints the minimum time in ms. Not a test; cache_test.cpp
// checks behaviour. Usage: bench_registry PLUGIN.so [N]
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "core/plugin/registry.hpp"
#include "core/plugin/trial_load.hpp"

namespace fs = std::filesystem;
namespace tp = trainhost::plugin;
using Clock = std::chrono::steady_clock;

namespace {

double milliseconds(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

std::string read(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void write(const fs::path& file, const std::string& bytes) { std::ofstream(file, std::ios::binary) << bytes; }

/// Replaces the id by another of the same length, in the manifest and in the table.
/// Equal length, since offsets in the file must not move.
std::string renamed(std::string bytes, const std::string& id, int i) {
  std::string number = std::to_string(i);
  if (number.size() < id.size()) number = std::string(id.size() - number.size(), 'x') + number;
  number.resize(id.size());
  for (std::size_t at = 0; !id.empty() && (at = bytes.find(id, at)) != bytes.npos; at += id.size())
    bytes.replace(at, id.size(), number);
  return bytes;
}

struct Run {
  double ms = 0;
  std::size_t ok = 0, listed = 0;
};

Run run(const fs::path& folder, bool cold) {
  tp::HostOptions o;
  o.trial_load_program = "/proc/self/exe";
  o.cache_file = folder / "cache" / "plugins-1.cache";
  if (cold) fs::remove(o.cache_file);
  const auto begin = Clock::now();
  tp::Registry registry({folder}, o);
  registry.probe_all();
  Run r{milliseconds(begin)};
  r.listed = registry.candidates().size();
  for (const tp::Candidate& c : registry.candidates()) r.ok += c.status == tp::Status::kOk;
  return r;
}

}  // namespace

int main(int argc, char** argv) {
  // The trial load runs in this program as well.
  if (argc == 2 && std::strcmp(argv[1], tp::kTrialLoadArgument) == 0) tp::serve_trial_load();
  if (argc < 2) {
    fmt::print(stderr, "bench_registry PLUGIN.so [N]\n");
    return 2;
  }
  const int n = argc > 2 ? std::max(1, std::atoi(argv[2])) : 200;
  std::string pattern = (fs::temp_directory_path() / "trainhost-bench-XXXXXX").string();
  const fs::path folder = ::mkdtemp(pattern.data());
  const std::string bytes = read(argv[1]), id = tp::inspect_file(fs::canonical(argv[1])).manifest.id;
  for (int i = 0; i < n; ++i) {
    const fs::path file = folder / fmt::format("p{}.so", i);
    write(file, renamed(bytes, id, i));
    // An hour old: a file that changed a moment ago is not cached.
    fs::last_write_time(file, fs::file_time_type::clock::now() - std::chrono::hours(1));
  }
  const Run cold = run(folder, true);
  Run warm = run(folder, false);
  // The minimum of 20: other load only makes a run longer.
  for (int i = 0; i < 20; ++i) warm.ms = std::min(warm.ms, run(folder, false).ms);
  fs::remove_all(folder);
  fmt::print("{} plugins, {} listed ok: cold {:.1f} ms, warm {:.2f} ms\n", cold.listed, warm.ok, cold.ms,
             warm.ms);
  return warm.listed == static_cast<std::size_t>(n) ? 0 : 1;
}
