// Prints how many layouts per second one core evaluates (core/parallel). Not a test. Target: bench_layout.
#include <chrono>
#include <cstdio>

#include "core/parallel/rank_memory.hpp"

using namespace trainhost;

static model::Architecture llama(std::uint32_t layers) {
  model::Architecture a;
  a.family = "llama", a.vocab = 128256, a.hidden = 8192;
  model::Layer l;
  l.attention.heads = 64, l.attention.kv_heads = 8, l.attention.head_dim = 128;
  l.mlp.width = 28672;
  a.layers = {{l, layers}};
  return a;
}

int main() {
  const model::Architecture a = llama(80);
  const struct {
    const char* what;
    Optimizer optimizer;
    std::uint32_t interleave;
  } cases[] = {{"AdamW, 1F1B", Optimizer::kAdamW, 1},
               {"AdamW, interleaved 5", Optimizer::kAdamW, 5},
               {"Adafactor, 1F1B", Optimizer::kAdafactor, 1}};
  for (const auto& [what, optimizer, interleave] : cases) {
    RunSpec r;
    r.weight = r.compute = DType::kBF16, r.master = DType::kF32, r.optimizer = optimizer;
    r.seq_len = 4096, r.parallel.pipeline = 8, r.accumulate = 64, r.parallel.zero = 1;
    r.parallel.virtual_stages = interleave, r.parallel.sequence = true;
    std::uint64_t sum = 0;
    const int n = 2000000;
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < n; ++i) {
      r.parallel.tensor = 1u << (i & 3), r.micro_batch = 1 + (i >> 2 & 7), r.parallel.data = 1 + (i & 63);
      sum += parallel::stage_numbers(a, r, i & 7).tier(Tier::kDevice);
    }
    const double s = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    std::printf("%-22s %8.0f ns each, %.2f million per second (%llu)\n", what, s / n * 1e9, n / s / 1e6,
                static_cast<unsigned long long>(sum & 1));
  }
}
