// Prints how many layouts per second the search evaluates: GPT-3 175B on 4096 devices, with about the choices
// of Calculon's search (core/parallel/README.md, "Search"). Not a test. Target: bench_search.
#include <chrono>
#include <cstdio>
#include <ctime>
#include <thread>

#include "core/parallel/layout_search.hpp"

using namespace trainhost;

namespace {

model::Architecture gpt3() {
  model::Architecture a;
  a.family = "gpt2", a.name = "gpt3-175b";
  a.vocab = 51200, a.max_positions = 2048, a.hidden = 12288, a.learned_positions = 2048;
  model::Layer l;
  l.attention.heads = l.attention.kv_heads = 96, l.attention.head_dim = 128;
  l.attention.q_bias = l.attention.k_bias = l.attention.v_bias = l.attention.o_bias = true;
  l.mlp = {false, true, true, 49152};
  l.norm = model::NormKind::kLayer;
  a.layers = {{l, 96}};
  a.final_norm = model::NormKind::kLayer;
  a.tied = true;
  return a;
}

parallel::SearchRequest request_for(const model::Architecture& a) {
  parallel::SearchRequest q;
  q.architecture = &a;
  q.space.base.weight = q.space.base.compute = DType::kBF16;
  q.space.base.master = DType::kF32;
  q.space.base.seq_len = 2048;
  q.space.devices = 4096, q.space.global_batch = 4096;
  q.space.axes.attention = {AttentionMemory::kFlash, AttentionMemory::kMaterialised};
  q.space.axes.cross_entropy = {CrossEntropy::kFused, CrossEntropy::kInPlace, CrossEntropy::kPlain};
  q.machine = parallel::machine_of(*find_device_preset("h100-80gb"), q.space.base);
  q.device_budget = q.machine.memory_bytes;
  return q;
}

/// Only the ranks that Calculon has: no context parallelism.
parallel::SearchRequest without_context(parallel::SearchRequest q) {
  q.space.axes.context = {1};
  return q;
}

void measure(const char* what, parallel::SearchRequest q, std::size_t threads, bool prune) {
  q.prune = prune;
  const std::clock_t cpu = std::clock();
  const auto begin = std::chrono::steady_clock::now();
  std::vector<parallel::SearchOutcome> outcomes(threads);
  std::vector<std::thread> others;
  for (std::size_t i = 1; i < threads; ++i)
    others.emplace_back([&, i] { outcomes[i] = parallel::search(q, i, threads); });
  outcomes[0] = parallel::search(q, 0, threads);
  for (std::thread& t : others) t.join();
  const parallel::SearchOutcome a = parallel::merge(std::move(outcomes), q);
  const double s = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  const double used = double(std::clock() - cpu) /
                      CLOCKS_PER_SEC;  // CPU time of all threads, independent of other work on the machine
  std::printf(
      "%-16s %zu thread%s %-9s %10llu layouts, %10llu evaluated, %10llu fit: %.2f s, %.2f s of CPU, %.2f "
      "million layouts per second of CPU",
      what, threads, threads > 1 ? "s" : " ", prune ? "pruned" : "all", (unsigned long long)a.layouts,
      (unsigned long long)a.evaluated, (unsigned long long)a.fitting, s, used,
      double(a.layouts) / used / 1e6);
  if (!a.best.empty()) {
    const parallel::FoundLayout& f = a.best.front();
    std::printf("; best t%u p%u d%u c%u v%u b%u zero %u, %.3f s, Pareto front of %zu", f.micro.tensor,
                f.pipeline.pipeline, f.pipeline.data, f.micro.context, f.pipeline.interleave,
                f.micro.micro_batch, f.state.zero, f.step_seconds, a.pareto.size());
  }
  std::printf("\n");
}

}  // namespace

int main() {
  const model::Architecture a = gpt3();
  for (const std::size_t threads : {1, 2})
    for (const bool prune : {false, true}) {
      measure("all ranks", request_for(a), threads, prune);
      measure("without context", without_context(request_for(a)), threads, prune);
    }
}
