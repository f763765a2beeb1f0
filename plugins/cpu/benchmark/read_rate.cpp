// Rate at which this machine reads memory: BYTES of allocated memory are summed by THREADS threads, each its
// own part, for about two seconds. The reference for the decoding rate that `trainhost generate` prints
// (README.md).
//   trainhost_cpu_read_rate BYTES THREADS
#include <sys/mman.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

namespace {

typedef std::uint64_t Words __attribute__((vector_size(64)));

// Eight streams, because one of them does not reach the rate of the memory. The sums are used, so that the
// compiler keeps the loads.
std::uint64_t sum(const Words* at, std::uint64_t count) {
  constexpr std::uint64_t kStreams = 8;
  const std::uint64_t part = count / kStreams;
  Words sums[kStreams] = {};
  for (std::uint64_t i = 0; i < part; ++i)
    for (std::uint64_t s = 0; s < kStreams; ++s) sums[s] += at[s * part + i];
  std::uint64_t total = 0;
  for (const Words& w : sums)
    for (int i = 0; i < 8; ++i) total += w[i];
  return total;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return std::fprintf(stderr, "usage: %s BYTES THREADS\n", argv[0]), 2;
  const std::uint64_t bytes = std::strtoull(argv[1], nullptr, 10),
                      threads = std::strtoull(argv[2], nullptr, 10);
  if (bytes < (1u << 20) || threads < 1 || threads > 1024)
    return std::fprintf(stderr, "expected at least 1 MiB and 1 to 1024 threads\n"), 2;
  void* block = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (block == MAP_FAILED) return std::perror("mmap"), 1;
  madvise(block, bytes, MADV_HUGEPAGE);  // as the host allocates weights
  for (std::uint64_t i = 0; i < bytes; i += 4096) static_cast<char*>(block)[i] = 1;
  std::atomic<std::uint64_t> total{0}, read{0};
  const auto start = std::chrono::steady_clock::now();
  const auto seconds = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  std::vector<std::thread> workers;
  for (std::uint64_t t = 0; t < threads; ++t)
    workers.emplace_back([&, t] {
      const std::uint64_t words = bytes / sizeof(Words), begin = words * t / threads,
                          end = words * (t + 1) / threads;
      do {
        total += sum(static_cast<const Words*>(block) + begin, end - begin);
        read += (end - begin) * sizeof(Words);
      } while (seconds() < 2.0);
    });
  for (std::thread& w : workers) w.join();
  std::printf("%.2f GB/s with %llu threads (sum %llu)\n", static_cast<double>(read.load()) / seconds() / 1e9,
              static_cast<unsigned long long>(threads), static_cast<unsigned long long>(total.load()));
}
