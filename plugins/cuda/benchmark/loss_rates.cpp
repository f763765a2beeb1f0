// Benchmark: logits per second and thread of the host's cross-entropy, by instruction set, vocabulary and
// type, with the row in the cache and with rows in memory. Not part of the default build or of the tests.
//   ninja -C build trainhost_cuda_loss_rates && build/bin/trainhost_cuda_loss_rates [THREADS]
// Best of the runs of a tenth of a second; the gradient of a run is the input of the next one.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <thread>
#include <type_traits>
#include <vector>

#include "plugins/cuda/host/loss_rows.hpp"

using namespace trainhost::cuda::host;

namespace {

double seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// The mean over the threads, each with its own memory of at least `bytes`, in G logits/s.
template <class T>
double rate(double (*f)(std::uint64_t, T*, std::int64_t, float), std::size_t vocab, std::size_t bytes,
            std::size_t threads) {
  const std::size_t rows = std::max<std::size_t>(1, bytes / (vocab * sizeof(T)));
  std::vector<double> best(threads);
  const auto measure = [&](std::size_t t) {
    std::mt19937 g(1);
    std::normal_distribution<float> logit(0, 2);
    std::vector<T> memory(rows * vocab);
    for (T& x : memory) {
      const float value = logit(g);
      if constexpr (std::is_same_v<T, float>)
        x = value;
      else
        to_half(1, &value, &x);
    }
    const double begin = seconds();
    do {
      const double start = seconds();
      for (std::size_t r = 0; r < rows; ++r) f(vocab, memory.data() + r * vocab, 0, 1e-4f);
      best[t] = std::max(best[t], static_cast<double>(rows * vocab) / (seconds() - start));
    } while (seconds() - begin < 0.1);
  };
  std::vector<std::thread> others;
  for (std::size_t t = 1; t < threads; ++t) others.emplace_back(measure, t);
  measure(0);
  for (std::thread& t : others) t.join();
  double sum = 0;
  for (double b : best) sum += b;
  return sum / static_cast<double>(threads) * 1e-9;
}

}  // namespace

int main(int argc, char** argv) {
  const auto threads = static_cast<std::size_t>(argc > 1 ? std::max(1, std::atoi(argv[1])) : 1);
  constexpr std::size_t kOneRow = 0, kMemory = 64u << 20;
  std::printf("G logits/s and thread, %zu threads        bf16: cache memory   f32: cache memory\n", threads);
  for (const LossRows& r : runnable_loss_rows())
    for (std::size_t v : {32768u, 50257u, 128256u})
      std::printf("  %-9s vocabulary %6zu %21.2f %6.2f %12.2f %6.2f\n", r.name, v,
                  rate(r.bf16, v, kOneRow, threads), rate(r.bf16, v, kMemory, threads),
                  rate(r.f32, v, kOneRow, threads), rate(r.f32, v, kMemory, threads));
}
