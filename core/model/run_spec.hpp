// RunSpec: one run as numbers (shapes, number types, optimizer, parallelism, memory policy); no file names.
// ModelSpec, RunSpec and TrainerTraits determine the step program and therefore the memory plan, to the byte.
#pragma once
#include <cstdint>
#include <string>

#include "core/base/types.hpp"
#include "core/model/parallelism.hpp"

namespace trainhost {

/// Number of layers per recompute policy, in layer order: the first `full` layers keep only their input; the
/// next `mlp` recompute gate and up, and what selective recomputes; the next `selective` recompute norm
/// outputs and the SwiGLU product; the rest keep everything. The first layers recompute most because their
/// backward pass is last, when the activations of the other layers have been freed.
struct RecomputeLayers {
  std::uint32_t full = 0, mlp = 0, selective = 0;
  std::uint64_t total() const { return std::uint64_t{full} + mlp + selective; }
  bool operator==(const RecomputeLayers&) const = default;
};

struct RunSpec {
  RunMode mode = RunMode::kFull;
  std::uint32_t micro_batch = 1;  // B: sequences per micro-batch
  std::uint32_t seq_len = 256;    // S: tokens per sequence
  std::uint32_t accumulate = 1;   // gradient accumulation steps
  DType weight = DType::kF32, grad = DType::kF32, master = DType::kNone, moment = DType::kF32,
        compute = DType::kF32;
  Optimizer optimizer = Optimizer::kAdamW;
  Recompute recompute = Recompute::kNone;
  RecomputeLayers recompute_layers;  // for Recompute::kLayers
  double beta1 = 0.9, beta2 = 0.95, eps = 1e-8, weight_decay = 0.1, clip_norm = 1.0;
  std::uint64_t seed = 1337;
  Parallelism parallel;
  std::uint32_t lora_rank = 0, lora_targets = 0;
  double lora_alpha = 0;
  std::string lora_rules;  // adapters that differ (adapter_rules.hpp); "" = all layers are alike
  std::string
      trainable;  // rules of train.only and train.freeze (trainable.hpp); "" = every weight is trained
  MemoryPolicy memory;
  std::uint64_t device_budget = 0, host_budget = 0;  // bytes; 0 = the memory that is free
  // Several documents in one sequence: a token attends only to tokens of its own document.
  bool document_mask = false;

  std::uint64_t tokens_per_micro_batch() const { return std::uint64_t{micro_batch} * seq_len; }
  std::uint64_t tokens_per_step() const { return tokens_per_micro_batch() * accumulate; }
  bool operator==(const RunSpec&) const = default;
};

/// Choices of a trainer that change its memory plan. A trainer returns them without using a device;
/// estimators read them. In the C interface: th_profile.
struct TrainerTraits {
  std::string trainer;                  // plugin id
  std::uint32_t alignment = 64;         // bytes, for every buffer of an arena
  std::uint32_t head_chunk_tokens = 0;  // rows of logits in memory; 0 = the whole micro-batch
  std::uint32_t attention_tile_q = 64, attention_tile_k = 64;  // tile of scores per thread
  std::uint32_t threads = 1;
  std::uint32_t slots = 16;  // partial sums of row reductions; results do not depend on the thread count
  std::uint64_t workspace_bytes = 0;  // of the vendor library, a buffer of the plan
  Tier tier = Tier::kHost;            // compute tier: memory tier of the arena
  bool f32_storage = false;           // lower precision only inside matrix products; every buffer is f32
  std::uint64_t runtime_bytes = 0;    // of the device, outside the plan: context, code, library handles
  RecomputeLayers recompute_layers;   // recomputed by the trainer if the run has recompute = none
  std::string mode;                   // resident | hybrid | streamed; "" if the trainer has one mode
  bool operator==(const TrainerTraits&) const = default;
};

}  // namespace trainhost
