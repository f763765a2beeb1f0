// Benchmark: time and GFLOP/s of attention and its gradient in fp32 at the shapes of models. For work on
// kernels; not part of the default build or of the tests.
//   ninja -C build trainhost_cpu_attention && build/bin/trainhost_cpu_attention [THREADS]
// Operands are in memory, not in the caches, as in a step. Prints the fastest of twenty repetitions.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#include "core/step/operands.hpp"
#include "core/step/scratch_sizes.hpp"
#include "plugins/cpu/benchmark/timing.hpp"
#include "plugins/cpu/common/cpu_traits.hpp"
#include "plugins/cpu/engine/op_context.hpp"

using namespace trainhost;
using namespace trainhost::cpu;

namespace {

struct Shape {
  std::uint32_t sequences, seq, heads, d;
  const char* what;
};
constexpr Shape kShapes[] = {{1, 1024, 12, 64, "110M"},
                             {1, 1024, 8, 64, "42M"},
                             {8, 256, 6, 48, "15M"},
                             {8, 256, 4, 64, "byte-tiny"},
                             {1, 1024, 16, 128, "D = 128"}};

/// Different values in [-1, 1).
Array<float> different_values(std::uint64_t n) {
  Array<float> values(n);
  std::uint32_t bits = 1;
  for (float& x : values) {
    bits = bits * 1664525u + 1013904223u;
    x = static_cast<float>(static_cast<std::int32_t>(bits)) * 0x1p-31f;
  }
  return values;
}

struct Arrays final : Storage {
  std::vector<Array<float>> all;
  void* at(step::BufferId b) override { return all[b].data(); }
};

/// Changes memory that is larger than the caches.
void evict_caches(ThreadPool& pool, Array<float>& other) {
  pool.run(pool.threads(), [&](std::uint32_t t, std::uint32_t) {
    const Range r = part(other.size(), t, pool.threads());
    for (std::uint64_t i = r.begin; i < r.end; i += 16) other[i] += 1.0f;
  });
}

/// Attention of one layer without its plan.
class Layer {
 public:
  Layer(const Shape& s, ThreadPool& pool) : context_{program_, arrays_, pool, select_kernels(), {}, {}} {
    ModelSpec& m = program_.model;
    m.vocab = 256, m.layers = 1, m.intermediate = m.hidden = s.heads * s.d;
    m.heads = m.kv_heads = s.heads, m.head_dim = s.d;
    program_.run.seq_len = s.seq, program_.run.micro_batch = s.sequences;
    program_.traits = traits_of(m, program_.run, pool.threads());
    const std::uint64_t rows = context_.step.rows = std::uint64_t{s.sequences} * s.seq;
    forward_.layer = backward_.layer = 0;
    using namespace step::operand;
    forward_[attention::kQkv] = backward_[attention_bwd::kQkv] = add(rows, m.qkv_width());
    forward_[attention::kScratch] = backward_[attention_bwd::kScratch] =
        add(pool.threads(), step::attention_scratch_floats(program_.traits, s.d));
    forward_[attention::kO] = backward_[attention_bwd::kO] = add(rows, m.q_width());
    forward_[attention::kLse] = backward_[attention_bwd::kLse] = add(rows, s.heads);
    backward_[attention_bwd::kDO] = add(rows, m.q_width());
    backward_[attention_bwd::kDQkv] = add(rows, m.qkv_width());
    context_.workspace = add(1, program_.traits.workspace_bytes / sizeof(float));
  }
  void forward() { run_attention(context_, forward_); }
  void backward() { run_attention_bwd(context_, backward_); }

 private:
  step::BufferId add(std::uint64_t rows, std::uint64_t cols) {
    step::Buffer& b = program_.buffers.emplace_back();
    b.rows = rows, b.cols = cols;
    arrays_.all.push_back(different_values(rows * cols));
    return static_cast<step::BufferId>(program_.buffers.size() - 1);
  }
  step::Program program_;
  Arrays arrays_;
  OpContext context_;
  step::Op forward_, backward_;
};

}  // namespace

int main(int argc, char** argv) {
  const auto threads = static_cast<std::uint32_t>(
      argc > 1 ? std::max(1, std::atoi(argv[1])) : static_cast<int>(std::thread::hardware_concurrency()));
  ThreadPool pool(threads);
  FlushDenormals mode;
  Array<float> other(std::size_t{1} << 25);  // 128 MiB
  const double peak = fma_peak(pool) * 1e-9;
  std::printf(
      "%s, %u threads, FMA peak %.0f GFLOP/s; ms, GFLOP/s of the causal half and their fraction of the peak: "
      "forward, backward (best of 20)\n",
      select_kernels().name, threads, peak);
  for (const Shape& s : kShapes) {
    Layer layer(s, pool);
    double best[2] = {1e9, 1e9};
    for (int i = 0; i < 40; ++i) {
      evict_caches(pool, other);
      const double start = seconds();
      if (i % 2 == 0)
        layer.forward();
      else
        layer.backward();
      best[i % 2] = std::min(best[i % 2], seconds() - start);
    }
    std::printf("  %-10s", s.what);
    for (int part = 0; part < 2; ++part) {
      const double pairs = 0.5 * s.seq * (s.seq + 1.0) * s.sequences * s.heads,
                   gflop = (part == 0 ? 4e-9 : 10e-9) * pairs * s.d;
      std::printf(" %8.2f %5.0f %5.2f", best[part] * 1e3, gflop / best[part], gflop / best[part] / peak);
    }
    std::printf("\n");
    std::fflush(stdout);
  }
}
