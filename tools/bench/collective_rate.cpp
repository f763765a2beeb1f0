// Measures how fast the ranks of this machine exchange data: prints, as JSON, the latency of a message and
// the seconds per byte that a rank receives in an all-gather and in a reduce-scatter. Started by mpirun.
//   bench_collectives FOLDER_OF_THE_PLUGIN
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <vector>

#include "core/plugin/registry.hpp"

namespace {

using namespace trainhost;

/// Median seconds of an operation on `elements` f32 of all ranks.
double median_seconds(Collectives& all, CollectiveKind kind, std::uint64_t elements) {
  std::vector<float> data(elements), scratch(std::min<std::uint64_t>(elements + 64, 2 << 20));
  Collective c;
  c.kind = kind, c.data = data.data(), c.count = elements;
  c.piece = (elements + all.ranks() - 1) / all.ranks();
  c.scratch = scratch.data(), c.scratch_bytes = scratch.size() * sizeof(float);
  std::vector<double> seconds;
  for (int i = 0; i < 31; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    all.run(c);
    seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  std::nth_element(seconds.begin(), seconds.begin() + 15, seconds.end());
  return seconds[15];
}

int run(int argc, char** argv) {
  if (argc != 2) return std::fprintf(stderr, "usage: mpirun -n 2 bench_collectives PLUGINS\n"), 2;
  plugin::Registry registry({argv[1]}, {});
  registry.scan();
  const auto ranks = registry.communicator("mpi").connect(60000);
  const double part = double(ranks->ranks() - 1) / ranks->ranks();
  constexpr std::uint64_t kShort = 16, kSmall = 1 << 18, kLarge = 1 << 22;  // elements of 4 bytes
  double per_byte[2] = {};
  const double latency = median_seconds(*ranks, CollectiveKind::kAllGather, kShort);
  for (const CollectiveKind kind : {CollectiveKind::kAllGather, CollectiveKind::kReduceScatter})
    per_byte[kind == CollectiveKind::kReduceScatter] =
        (median_seconds(*ranks, kind, kLarge) - median_seconds(*ranks, kind, kSmall)) /
        (part * double(kLarge - kSmall) * sizeof(float));
  if (ranks->rank() == 0)
    std::printf("{\"latency_s\": %.3g, \"gather_per_byte\": %.3g, \"reduce_per_byte\": %.3g}\n", latency,
                per_byte[0], per_byte[1]);
  return 0;
}

}  // namespace

int main(int argc, char** argv) try { return run(argc, argv); } catch (const std::exception& e) {
  return std::fprintf(stderr, "%s\n", e.what()), 1;
}
