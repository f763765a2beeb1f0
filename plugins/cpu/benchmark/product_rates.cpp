// Benchmark: GFLOP/s of forward product, input gradient and weight gradient at the shapes of a model, in fp32
// and with every bf16 kernel. For work on kernels; not part of the default build or of the tests.
//   ninja -C build trainhost_cpu_products && build/bin/trainhost_cpu_products [THREADS]
// Prints the fastest of eight repetitions. In a run, plugins/cpu/front_end/core_type.cpp sets
// OPENBLAS_CORETYPE; this program does not: set it to the same value.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#include "core/base/bf16.hpp"
#include "plugins/cpu/benchmark/timing.hpp"
#include "plugins/cpu/engine/openblas.hpp"
#include "plugins/cpu/engine/thread_pool.hpp"
#include "plugins/cpu/engine/weight_product.hpp"

using namespace trainhost;
using namespace trainhost::cpu;

namespace {

struct WorkspaceStorage final : Storage {
  Array<float> floats;
  void* at(step::BufferId) override { return floats.data(); }
};

/// FLOP/s of register tiles whose operands are in the L1 cache, at the clock of this moment.
double tile_rate(ThreadPool& pool) { return rate_of(pool, select_kernels().tile_loop, 1024, 0.002); }

struct Shape {
  std::uint64_t tokens, n, k;
  const char* what;
};
constexpr Shape kShapes[] = {{1024, 2304, 768, "110M qkv"},          {1024, 768, 768, "110M o"},
                             {1024, 4096, 768, "110M gate|up"},      {1024, 768, 2048, "110M down"},
                             {512, 32000, 768, "110M head"},         {2048, 768, 256, "byte-tiny qkv"},
                             {2048, 1408, 256, "byte-tiny gate|up"}, {512, 288, 96, "built-in qkv"}};

void forward(OpContext& ctx, const Shape& s, const float* x, const float* w, float* y) {
  product_with_weight(ctx, Right::kTransposed, s.tokens, s.n, s.k, x, w, {}, y);
}
void forward(OpContext& ctx, const Shape& s, const Bf16* x, const Bf16* w, Bf16* y) {
  bf16_product(ctx, s.tokens, s.n, s.k, {x, s.k, false}, {w, s.k, false}, {y, s.n});
}

/// Seconds, and the rate in fractions of tile_rate() before and after it, of forward, dx and dw.
struct Measured {
  double best[3] = {1e9, 1e9, 1e9};
  std::vector<double> of_tile[3];
};
/// Different values in [-1/8, 1/8), as activations have: with equal ones a CPU needs less power and may keep
/// a higher clock.
float next_value(std::uint32_t& bits) {
  bits = bits * 1664525u + 1013904223u;
  return static_cast<float>(static_cast<std::int32_t>(bits)) * 0x1p-34f;
}
template <class T>
Array<T> different_values(std::uint64_t n) {
  Array<T> values(n);
  std::uint32_t bits = 1;
  for (T& v : values) {
    const float x = next_value(bits);
    if constexpr (std::is_same_v<T, float>)
      v = x;
    else
      v = bf16_from_f32(x);
  }
  return values;
}

template <class T>
void measure(OpContext& ctx, const Shape& s, Measured& to) {
  Array<T> x = different_values<T>(s.tokens * s.k), w = different_values<T>(s.n * s.k), y(s.tokens * s.n);
  Array<float> g(s.n * s.k);
  for (int part = 0; part < 3; ++part) {
    const double before = tile_rate(ctx.pool), start = seconds();
    if (part == 0) forward(ctx, s, x.data(), w.data(), y.data());
    const T *dy = y.data(), *left = x.data();
    if (part == 1) input_gradient(ctx, s.tokens, s.n, s.k, dy, static_cast<const T*>(w.data()), x.data());
    if (part == 2)
      weight_gradient(ctx, s.n, s.k, s.tokens, dy, left, true, g.data(), 0, [](std::uint32_t) {});
    const double length = seconds() - start, flops = 2.0 * static_cast<double>(s.tokens * s.n * s.k);
    to.best[part] = std::min(to.best[part], length);
    to.of_tile[part].push_back(flops / length * 2 / (before + tile_rate(ctx.pool)));
  }
}

}  // namespace

int main(int argc, char** argv) {
  openblas_single_threaded();
  const auto threads = static_cast<std::uint32_t>(
      argc > 1 ? std::max(1, std::atoi(argv[1])) : static_cast<int>(std::thread::hardware_concurrency()));
  step::Program program;
  ModelSpec& m = program.model;
  m.vocab = 32000, m.hidden = 768, m.intermediate = 2048, m.heads = m.kv_heads = 12, m.head_dim = 64;
  program.run.seq_len = 1024, program.run.micro_batch = 2, program.traits.threads = threads;
  WorkspaceStorage space;
  program.buffers.emplace_back().role = "workspace";
  // More than the plan: the shapes below are not all those of this model.
  const auto plan_workspace = [&](DType compute) {
    program.run.compute = compute;
    program.buffers[0].rows = workspace_floats(m, program.run, program.traits) + (1u << 21);
    space.floats.resize(std::max<std::size_t>(space.floats.size(), program.buffers[0].rows));
  };
  ThreadPool pool(threads);
  std::size_t tables = 0;
  const Bf16Kernels* const* bf16 = runnable_bf16_kernels(&tables);
  FlushDenormals mode;
  const bool own = select_own_products(select_kernels());
  const double peak = fma_peak(pool) * 1e-9;
  std::printf(
      "%s, %s, %u threads, FMA peak %.0f GFLOP/s; GFLOP/s of forward, dx, dw (best of 8), fractions of the "
      "peak, and of register tiles in the L1 cache at the clock of that moment (medians)\n",
      select_kernels().name, own ? "own products" : ("OpenBLAS " + openblas_core()).c_str(), threads, peak);
  for (const Shape& s : kShapes)
    for (std::size_t table = 0; table <= tables; ++table) {
      const Bf16Kernels* packed = table ? bf16[table - 1] : nullptr;
      // Of the tables that multiply bf16 in f32 only the widest, or the one that TRAINHOST_CPU_ISA names.
      if (packed && !packed->native && packed != &select_bf16_kernels() &&
          (packed->name != std::string(select_kernels().name) || std::getenv("TRAINHOST_CPU_ISA")))
        continue;
      plan_workspace(packed ? DType::kBF16 : DType::kF32);
      OpContext ctx{program, space, pool, select_kernels(), {}, {}, 0, packed, own};
      Measured found;
      for (int rep = 0; rep < 8; ++rep)
        if (packed)
          measure<Bf16>(ctx, s, found);
        else
          measure<float>(ctx, s, found);
      const double flops =
          2e-9 * static_cast<double>(s.tokens) * static_cast<double>(s.n) * static_cast<double>(s.k);
      std::printf("  %-18s %-16s", s.what, packed ? (std::string("bf16 ") + packed->name).c_str() : "fp32");
      for (const double t : found.best) std::printf(" %7.0f", flops / t);
      for (const double t : found.best) std::printf(" %6.2f", flops / t / peak);
      for (std::vector<double>& of : found.of_tile) {
        std::nth_element(of.begin(), of.begin() + static_cast<std::ptrdiff_t>(of.size() / 2), of.end());
        std::printf(" %6.2f", of[of.size() / 2]);
      }
      std::printf("\n");
      std::fflush(stdout);
    }
}
