// One training run as numbers: shapes, number types, optimizer, policies. No paths, no names of files.
// Together with ModelSpec and TrainerTraits it decides the step program, and so the memory, to the byte.
#pragma once
#include <cstdint>
#include <string>

#include "core/base/types.hpp"
#include "core/model/parallelism.hpp"

namespace trainhost {

/// How much each layer makes again in its backward pass, counted from the first layer: `full` layers keep
/// their input alone; the next `mlp` make gate and up again, and what selective makes; the next `selective`
/// make norm outputs and the SwiGLU product again; the rest keep everything. The first layers pay most: their
/// backward pass comes last, when everything else has been given up.
struct RecomputeLayers {
  std::uint32_t full = 0, mlp = 0, selective = 0;
  std::uint64_t total() const { return std::uint64_t{full} + mlp + selective; }
  bool operator==(const RecomputeLayers&) const = default;
};

struct RunSpec {
  RunMode mode = RunMode::kFull;
  std::uint32_t micro_batch = 1;  // B sequences that go through the model together
  std::uint32_t seq_len = 256;    // S tokens each
  std::uint32_t accumulate = 1;   // micro-batches per update
  DType weight = DType::kF32, grad = DType::kF32, master = DType::kNone, moment = DType::kF32,
        compute = DType::kF32;
  Optimizer optimizer = Optimizer::kAdamW;
  Recompute recompute = Recompute::kNone;
  RecomputeLayers recompute_layers;  // of Recompute::kLayers
  double beta1 = 0.9, beta2 = 0.95, eps = 1e-8, weight_decay = 0.1, clip_norm = 1.0;
  std::uint64_t seed = 1337;
  Parallelism parallel;
  std::uint32_t lora_rank = 0, lora_targets = 0;
  double lora_alpha = 0;
  MemoryPolicy memory;
  std::uint64_t device_budget = 0, host_budget = 0;  // bytes; 0 = whatever is free

  std::uint64_t tokens_per_micro_batch() const { return std::uint64_t{micro_batch} * seq_len; }
  std::uint64_t tokens_per_step() const { return tokens_per_micro_batch() * accumulate; }
  bool operator==(const RunSpec&) const = default;
};

/// Choices of a trainer that change its memory, published without touching a device, handed to estimators.
struct TrainerTraits {
  std::string trainer;                  // plugin id
  std::uint32_t alignment = 64;         // bytes, of every buffer in an arena
  std::uint32_t head_chunk_tokens = 0;  // rows of logits alive at once; 0 = all of the micro-batch
  std::uint32_t attention_tile_q = 64, attention_tile_k = 64;  // scores alive at once, per thread
  std::uint32_t threads = 1;
  std::uint32_t slots = 16;           // fixed partial sums of row-reductions: work is cut by shape alone
  std::uint64_t workspace_bytes = 0;  // the vendor library's, taken from the plan
  Tier tier = Tier::kHost;            // where the arena lives
  bool f32_storage = false;           // a lower precision is for products alone: every buffer stays f32
  std::uint64_t runtime_bytes = 0;   // of the device, beside the plan: context, code, library handles; stated
  RecomputeLayers recompute_layers;  // what the trainer recomputes where the run asks for none
  std::string mode;                  // resident | hybrid | streamed; "" where there is one mode
  bool operator==(const TrainerTraits&) const = default;
};

}  // namespace trainhost
