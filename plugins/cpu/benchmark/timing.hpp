// What the benchmarks share: memory in huge pages, a clock, and the rates of loops.
#pragma once
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <new>
#include <vector>

#include "plugins/cpu/engine/thread_pool.hpp"
#include "plugins/cpu/kernels/kernel_table.hpp"

namespace trainhost::cpu {

/// Memory in huge pages, as the host's arena has (core/plugin/ledger.cpp).
template <class T>
struct HugePages {
  using value_type = T;
  static constexpr std::align_val_t kAlign{2u << 20};
  T* allocate(std::size_t n) {
    void* at = ::operator new(n * sizeof(T), kAlign);
    ::madvise(at, n * sizeof(T), MADV_HUGEPAGE);  // only advice
    return static_cast<T*>(at);
  }
  void deallocate(T* at, std::size_t) { ::operator delete(at, kAlign); }
  friend bool operator==(HugePages, HugePages) { return true; }
};
template <class T>
using Array = std::vector<T, HugePages<T>>;

inline double seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

using Loop = double (*)(std::uint64_t rounds, float* use);
/// FLOP/s of a loop: the sum over the threads, each by its own clock for `length` seconds.
inline double rate_of(ThreadPool& pool, Loop loop, std::uint64_t rounds, double length) {
  std::vector<double> rates(pool.threads() * 8);  // one cache line each
  pool.run(pool.threads(), [&](std::uint32_t t, std::uint32_t) {
    float sum = 0;
    double flops = 0, elapsed = 0;
    const double start = seconds();
    do flops += loop(rounds, &sum), elapsed = seconds() - start;
    while (elapsed < length);
    rates[t * 8] = flops / elapsed;
  });
  double sum = 0;
  for (double r : rates) sum += r;
  return sum;
}

/// The highest of eight rates of FMAs on registers.
inline double fma_peak(ThreadPool& pool) {
  double best = 0;
  for (int i = 0; i < 8; ++i) best = std::max(best, rate_of(pool, select_kernels().fma_loop, 4096, 0.02));
  return best;
}

}  // namespace trainhost::cpu
