// Published speeds of training runs whose settings trainhost can express, entered by hand with their sources.
#pragma once
#include <string>
#include <vector>

#include "core/model/presets.hpp"
#include "core/parallel/step_time.hpp"
#include "tests/core/parallel/measured_runs.hpp"

namespace trainhost::test {

/// The runs of one source, which have one deviation in common: that of its software.
enum class Source { kRecipes, kRecipesFp8, kBridge, kTitan, kTitanFp8, kLlama3, kA100 };

// Two settings that no source gives as a number, fitted by hand.
inline constexpr double kOverlap = 0.7;  // of the tensor-parallel exchange, where a run overlaps it
inline constexpr double kSlower = 0.77;  // arithmetic at 500 W relative to 700 W

struct SpeedRun {
  Source source;
  std::string what;
  model::Architecture model;
  RunSpec run;
  parallel::Machine machine;
  double tokens_s;               // published, per device
  bool half_recomputed = false;  // torchtitan's selective: half of the products of a layer run again
};

inline model::Architecture llama8b() { return dense(4096, 14336, 32, 8, 128256, 32); }
inline model::Architecture llama70b() { return dense(8192, 28672, 64, 8, 128256, 80); }
inline model::Architecture llama405b(std::uint64_t vocabulary = 128256) {
  return dense(16384, 53248, 128, 8, vocabulary, 126);
}
/// GPT-3 of Megatron-LM: biases, GELU, tied table.
inline model::Architecture gpt(std::uint32_t H, std::uint32_t A, std::uint32_t L) {
  model::Architecture a = dense(H, 4 * H, A, A, 51200, L, true);
  a.layers[0].layer.mlp.gated = false;
  return a;
}

inline parallel::Machine h100(const RunSpec& r) {
  return parallel::machine_of(*find_device_preset("h100-80gb"), r);
}

/// Micro-batches of one sequence; `batch` sequences per step.
inline RunSpec megatron_step(Ranks n, std::uint32_t virtual_stages, std::uint32_t batch, DType compute) {
  RunSpec r = megatron(n, 8192);
  r.compute = compute;
  r.parallel.virtual_stages = virtual_stages;
  r.accumulate = batch / n.data;
  return r;
}

/// NVIDIA/dgxc-benchmarking@143b90dd, the three READMEs of llama3.1: NeMo 24.09 on DGX H100; sequences of
/// 8,192 tokens, micro-batch 1. The 405B recipe has GPT-2's vocabulary. Not stated there, assumed: no
/// recomputation, optimizer state sharded over the data ranks, the tensor-parallel exchange overlapped.
inline std::vector<SpeedRun> recipe_runs(DType compute) {
  struct Row {
    std::uint32_t devices, batch;
    double seconds_bf16, seconds_fp8;
  };
  std::vector<SpeedRun> out;
  const auto add = [&](const char* name, const model::Architecture& a, Ranks n, std::uint32_t v,
                       std::vector<Row> rows) {
    for (const Row& row : rows) {
      n.data = row.devices / (n.tensor * n.pipeline * n.context);
      const RunSpec r = megatron_step(n, v, row.batch, compute);
      parallel::Machine m = h100(r);
      m.tensor_overlap = kOverlap;
      const double seconds = compute == DType::kF8 ? row.seconds_fp8 : row.seconds_bf16;
      out.push_back({compute == DType::kF8 ? Source::kRecipesFp8 : Source::kRecipes,
                     std::string(name) + " " + std::to_string(row.devices), a, r, m,
                     8192.0 * row.batch / seconds / row.devices});
    }
  };
  add("8b cp2", llama8b(), {1, 1, 1, 2}, 1,
      {{8, 128, 12.91, 9.67},
       {16, 256, 13.00, 9.73},
       {32, 512, 13.05, 9.75},
       {64, 1024, 13.08, 9.80},
       {128, 2048, 13.10, 9.82}});
  add("70b tp4 pp4 cp2", llama70b(), {4, 4, 1, 2}, 5,
      {{64, 128, 14.72, 11.01},
       {128, 256, 14.73, 10.93},
       {256, 512, 14.80, 11.16},
       {512, 1024, 14.89, 11.18},
       {1024, 2048, 14.92, 11.28},
       {2048, 4096, 14.98, 11.39}});
  add("405b tp8 pp9 cp2", llama405b(50304), {8, 9, 1, 2}, 7,
      {{576, 252, 17.20, 11.24}, {1152, 504, 17.52, 11.31}, {2304, 1008, 17.62, 12.35}});
  return out;
}

/// NVIDIA-NeMo/Megatron-Bridge@0a25f911, its archive of performance summaries: DGX H100, FP8, micro-batch 1,
/// sequences of 8,192 tokens; NeMo containers 25.09, 25.11, 26.02.
inline std::vector<SpeedRun> bridge_runs() {
  std::vector<SpeedRun> out;
  const auto add = [&](const char* name, const model::Architecture& a, Ranks n, std::uint32_t v,
                       std::uint32_t batch, std::uint32_t zero, double tokens_s) {
    RunSpec r = megatron_step(n, v, batch, DType::kF8);
    r.parallel.zero = zero;
    parallel::Machine m = h100(r);
    m.tensor_overlap = kOverlap;
    out.push_back({Source::kBridge, name, a, r, m, tokens_s});
  };
  add("8b 8, 25.09", llama8b(), {1, 1, 8}, 1, 128, 3, 14079);
  add("8b 8, 25.11", llama8b(), {1, 1, 8}, 1, 128, 3, 14451);
  add("70b tp4 pp8 64, 25.09", llama70b(), {4, 8, 2}, 5, 128, 1, 1619);
  add("70b tp4 pp8 64, 25.11", llama70b(), {4, 8, 2}, 5, 128, 1, 1602);
  add("70b tp4 pp8 64, 26.02", llama70b(), {4, 8, 2}, 5, 256, 1, 1621);
  add("405b tp8 pp8 cp2 1024, 25.09", llama405b(), {8, 8, 8, 2}, 8, 512, 1, 302);
  add("405b tp8 pp8 cp2 1024, 25.11", llama405b(), {8, 8, 8, 2}, 8, 512, 1, 292);
  add("405b tp8 pp8 cp2 1024, 26.02", llama405b(), {8, 8, 8, 2}, 8, 1536, 1, 311);
  return out;
}

/// pytorch/torchtitan@31a17bfd, the benchmarks of December 2024 on H100 (the tables of arXiv 2410.06511),
/// torch.compile; H100 with 2.4 TB/s and a power limit of 500 W instead of 700. Not stated there, assumed:
/// sequences of 8,192 tokens; 405B: weights stay gathered after the forward pass, and as many micro-batches
/// as stages, with which the gain by interleaving is the published one.
inline std::vector<SpeedRun> titan_runs() {
  std::vector<SpeedRun> out;
  const auto add = [&](const char* name, const model::Architecture& a, RunSpec r, DType compute,
                       double overlap, double tokens_s) {
    r.compute = compute;
    parallel::Machine m = h100(r);
    m.matrix_efficiency *= kSlower, m.wide_efficiency *= kSlower, m.attention_efficiency *= kSlower;
    m.memory_bytes_s *= 2.4 / 3.35;
    m.tensor_overlap = overlap;
    const bool half = r.parallel.tensor == 1;
    if (half) r.recompute = Recompute::kSelective;
    out.push_back(
        {compute == DType::kF8 ? Source::kTitanFp8 : Source::kTitan, name, a, r, m, tokens_s, half});
  };
  const auto pipelined = [](std::uint32_t v) {
    RunSpec r = titan({8, 8, 8}, 4, 8192);
    r.accumulate = 8, r.parallel.virtual_stages = v, r.parallel.zero = 2;
    return r;
  };
  add("8b 8, bf16", llama8b(), titan({1, 1, 8}, 2, 8192), DType::kBF16, 0, 6667);
  add("8b 128, bf16", llama8b(), titan({1, 1, 128}, 2, 8192), DType::kBF16, 0, 6514);
  add("8b 8, fp8", llama8b(), titan({1, 1, 8}, 2, 8192), DType::kF8, 0, 8532);
  add("8b 128, fp8", llama8b(), titan({1, 1, 128}, 2, 8192), DType::kF8, 0, 8380);
  add("70b tp8 256, fp8", llama70b(), titan({8, 1, 32}, 16, 8192), DType::kF8, 0, 829);
  add("the same, async TP", llama70b(), titan({8, 1, 32}, 16, 8192), DType::kF8, kOverlap, 876);
  add("405b tp8 pp8 512, fp8, async TP", llama405b(), pipelined(1), DType::kF8, kOverlap, 100);
  add("the same, interleaved", llama405b(), pipelined(2), DType::kF8, kOverlap, 128);
  return out;
}

/// The Llama 3 Herd of Models, arXiv 2407.21783, Table 4: TFLOP/s per device, here converted to tokens/s with
/// causal attention, which the paper does not state. Optimizer state and gradients sharded, weights kept
/// gathered; f32 gradients, reduced once per step; no recomputation; first and last stage one layer less. The
/// paper's stages of a layer each, with embedding and head as two more, cannot be expressed: 7 virtual stages
/// instead of 8. The third row of the table, with 131,072 tokens, is left out: its figure depends on how
/// attention is counted (by 30 %) and on the mask of the documents.
inline std::vector<SpeedRun> llama3_runs() {
  std::vector<SpeedRun> out;
  const auto add = [&](const char* name, Ranks n, std::uint32_t batch, double tflops) {
    RunSpec r = megatron(n, 8192);
    r.parallel.virtual_stages = 7, r.parallel.zero = 1, r.accumulate = batch;
    r.parallel.first_stage_layers = r.parallel.last_stage_layers = 7;
    r.memory.cross_entropy = CrossEntropy::kPlain;
    const double weights =
        126 * (2.0 * 16384 * 16384 + 2.0 * 16384 * 1024 + 3.0 * 16384 * 53248) + 16384.0 * 128256;
    out.push_back({Source::kLlama3, name, llama405b(), r, h100(r),
                   tflops * 1e12 / (6 * weights + 126 * 6.0 * (8193 / 2.0) * 2 * 16384)});
  };
  add("405b tp8 pp16 dp64 8192", {8, 16, 64}, 32, 430);
  add("405b tp8 pp16 dp128 16384", {8, 16, 128}, 16, 400);
  return out;
}

/// Reducing Activation Recomputation in Large Transformer Models, arXiv 2205.05198, Tables 3 and 5:
/// Megatron-LM on A100 80 GB; sequences of 2,048 tokens, materialised attention. Selective recompute with
/// sequence parallelism, and full recompute without it. Entered from memory, not compared with the text; the
/// seconds with selective recompute give the published MFU.
inline std::vector<SpeedRun> a100_runs() {
  std::vector<SpeedRun> out;
  const auto add = [&](const char* name, const model::Architecture& a, Ranks n, std::uint32_t v,
                       std::uint32_t micro, std::uint32_t batch, double selective, double full) {
    RunSpec r = megatron(n, 2048);
    r.memory.attention = AttentionMemory::kMaterialised;
    r.micro_batch = micro, r.accumulate = batch / micro, r.parallel.virtual_stages = v, r.parallel.zero = 0;
    for (const bool all : {false, true}) {
      r.recompute = all ? Recompute::kFull : Recompute::kSelective, r.parallel.sequence = !all;
      out.push_back({Source::kA100, std::string(name) + (all ? ", full recompute" : ""), a, r,
                     parallel::machine_of(*find_device_preset("a100-80gb"), r),
                     2048.0 * batch / (all ? full : selective) / (n.tensor * n.pipeline)});
    }
  };
  add("22b tp8 8", gpt(6144, 64, 48), {8, 1}, 1, 4, 4, 1.10, 1.42);
  add("175b tp8 pp8 64", gpt(12288, 96, 96), {8, 8}, 3, 1, 64, 13.75, 18.13);
  add("530b tp8 pp35 280", gpt(20480, 128, 105), {8, 35}, 3, 1, 280, 37.83, 49.05);
  add("1t tp8 pp64 512", gpt(25600, 160, 128), {8, 64}, 1, 1, 512, 71.49, 94.42);
  return out;
}

}  // namespace trainhost::test
