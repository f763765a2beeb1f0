// build_program(): rejects settings without a step program, naming the run-file key; builds the sections in
// order; then applies the recompute policy and the device mode as transforms.
#include <cassert>
#include <string>

#include "core/base/checked.hpp"
#include "core/base/error.hpp"
#include "core/base/text.hpp"
#include "core/model/adapter_rules.hpp"
#include "core/model/adapters.hpp"
#include "core/model/nf4.hpp"
#include "core/model/optimizer_state.hpp"
#include "core/model/run_rules.hpp"
#include "core/model/tensor_parts.hpp"
#include "core/model/trainable.hpp"
#include "core/step/builder.hpp"
#include "core/step/device_modes.hpp"
#include "core/step/recompute.hpp"
#include "core/step/zero_stages.hpp"

namespace trainhost::step {
namespace {

void require_supported_family(const ModelSpec& m) {
  if (!trainable_family(m.family))
    throw usage_error(
        "model_type = \"" + escaped(m.family) + "\" cannot be trained",
        "families that can be trained: llama, mistral, qwen2, qwen3; others can be planned: trainhost plan");
}

void require_positive(const char* key, std::uint64_t value) {
  if (value == 0) throw usage_error(std::string(key) + " = 0: expected a positive number");
}

// Supported: f32; bf16 with an f32 master copy; on a device TF32, which changes only how f32 is multiplied.
// With bf16, a trainer that only rounds operands keeps the f32 program (the weights are the master copy);
// others store weights and activations in two bytes.
void require_supported_precision(const RunSpec& r, const TrainerTraits& p) {
  if (r.compute == DType::kBF16 && r.weight == DType::kBF16 && r.master == DType::kF32 &&
      r.grad == DType::kF32 && r.moment == DType::kF32)
    return;
  if (p.tier == Tier::kDevice && r.compute == DType::kTF32 && r.weight == DType::kF32 &&
      r.master == DType::kNone && r.grad == DType::kF32 && r.moment == DType::kF32)
    return;
  const auto f32 = [](const char* what, DType t, DType expected) {
    if (t == expected) return;
    throw usage_error(
        "train.precision: " + std::string(what) + " as " + std::string(name(t)) + " is not supported",
        "set train.precision = \"fp32\"");
  };
  f32("weights", r.weight, DType::kF32);
  f32("gradients", r.grad, DType::kF32);
  f32("moments", r.moment, DType::kF32);
  f32("arithmetic", r.compute, DType::kF32);
  f32("a master copy of the weights", r.master, DType::kNone);
}

void require_supported_run(const ModelSpec& m, const RunSpec& r, const TrainerTraits& p) {
  require_positive("train.micro_batch", r.micro_batch);
  require_positive("train.grad_accum", r.accumulate);
  require_positive("data.seq_len", r.seq_len);
  require_supported_precision(r, p);
  if (const PlannedOnly b = planned_only_setting(r))
    throw usage_error(b.key + " = " + b.value + " is not supported for training", "remove the key");
  if (r.mode != RunMode::kInference && r.recompute == Recompute::kAuto)
    throw usage_error("train.recompute = \"auto\" must be resolved before a program is built",
                      "set train.recompute to \"none\", \"selective\" or \"full\"");
  if (r.recompute == Recompute::kLayers && r.recompute_layers.total() > m.layers)
    throw usage_error("train.recompute names " + std::to_string(r.recompute_layers.total()) +
                      " layers, but the model has " + std::to_string(m.layers));
}

/// Optimizers that need whole matrices, or blocks of them.
bool needs_whole_parameters(Optimizer o) {
  return o == Optimizer::kAdafactor || o == Optimizer::kMuon || o == Optimizer::kAdamW8bit;
}

/// Blocks of consecutive elements have one scale, so each must be in the part of one TP rank.
void require_whole_blocks(const std::vector<TensorInfo>& tensors, const RunSpec& r, std::uint64_t block,
                          const std::string& of, const char* hint) {
  for (const TensorInfo& t : tensors) {
    const Division division = division_of(t);
    const TensorPart part = part_of_tensor(t, r.parallel, 0);
    if (division == Division::kNone ||
        (division == Division::kColumns ? part.part_cols : part.elements()) % block == 0)
      continue;
    throw usage_error("parallel.tensor = " + std::to_string(r.parallel.tensor) + " divides a block of " +
                          std::to_string(block) + " " + of + " of " + t.name + " [" +
                          std::to_string(t.dim[0]) + ", " + std::to_string(t.dim[1]) + "]",
                      hint);
  }
}

/// Several tensor-parallel ranks.
void require_supported_tensor_ranks(const ModelSpec& m, const RunSpec& r, const TrainerTraits& p) {
  const std::string setting = "parallel.tensor = " + std::to_string(r.parallel.tensor);
  if (r.parallel.tensor_rank > r.parallel.tensor || r.parallel.data_rank == 0)
    throw usage_error("rank " + std::to_string(r.parallel.tensor_rank) + " of " + setting + " and rank " +
                      std::to_string(r.parallel.data_rank) +
                      " of parallel.data = " + std::to_string(r.parallel.data) + " do not exist");
  require_divisible(m, r.parallel);
  if (r.parallel.sequence && r.tokens_per_micro_batch() % r.parallel.tensor)
    throw usage_error("parallel.sequence: " + setting + " does not divide " +
                          std::to_string(r.tokens_per_micro_batch()) +
                          " tokens of a micro-batch (train.micro_batch x data.seq_len)",
                      nearest_divisors(r.parallel.tensor, r.tokens_per_micro_batch()));
  if (p.mode == "hybrid" || p.mode == "streamed")
    throw usage_error(
        setting + " is not supported in mode \"" + p.mode + "\", which keeps parts of a run in host memory",
        "use mode resident, in which each rank has its part of every matrix");
  if (r.mode == RunMode::kQlora) {
    if (r.memory.double_quantized)
      throw usage_error(
          setting +
              " is not supported with lora.double_quant = true, which quantizes the scales of a "
              "whole matrix together",
          "set lora.double_quant = false");
    std::vector<TensorInfo> quantized = tensors(m);
    std::erase_if(quantized, [&](const TensorInfo& t) { return !nf4::is_quantized(r, t); });
    require_whole_blocks(quantized, r, nf4::kBlock, "weights in NF4",
                         "use another parallel.tensor, or remove lora.base");
  }
  if (r.optimizer == Optimizer::kAdamW8bit) {
    std::vector<TensorInfo> coded = trained_tensors(m, r);
    std::erase_if(coded, [](const TensorInfo& t) { return t.elements() < kSmallest8bitTensor; });
    require_whole_blocks(coded, r, kMomentBlock, "moments in 8 bits (optimizer.name = \"adamw-8bit\")",
                         "use adamw, or another parallel.tensor");
  }
}

/// Several data-parallel ranks. With ZeRO they update any range of elements of a parameter, which factored
/// and 8-bit state and whole matrices do not allow.
void require_supported_ranks(const ModelSpec& m, const RunSpec& r, const TrainerTraits& p) {
  const Parallelism& ranks = r.parallel;
  if (ranks.tensor > 1 && r.mode != RunMode::kInference) require_supported_tensor_ranks(m, r, p);
  if (ranks.data_rank > ranks.data)
    throw usage_error("rank " + std::to_string(ranks.data_rank) +
                      " of parallel.data = " + std::to_string(ranks.data) + " does not exist");
  if (ranks.zero > 0 && ranks.data == 1)
    throw usage_error(
        "parallel.zero = " + std::to_string(ranks.zero) + " divides state among ranks, but there is one",
        "set parallel.zero = 0, or start several processes");
  if (ranks.data == 1) return;
  if (p.mode == "hybrid" || p.mode == "streamed")
    throw usage_error("parallel.data = " + std::to_string(ranks.data) + " is not supported in mode \"" +
                          p.mode + "\", which keeps parts of a run in host memory",
                      "use mode resident, or parallel.zero = 3, which divides the weights among the ranks");
  if (ranks.zero > 0 && needs_whole_parameters(r.optimizer))
    throw usage_error(
        "optimizer.name = \"" + std::string(name(r.optimizer)) + "\" cannot be divided among ranks",
        "set parallel.zero = 0, or use adamw, lion, sgd or sgd-momentum");
}

/// The rules of the run are valid, train something, and no part of what a trainer computes together.
void require_supported_rules(const ModelSpec& m, const RunSpec& r) {
  require_valid_adapters(m, r);
  if (ties_adapter(r) && (!trains_adapters(r) || !m.tied || !(r.lora_targets & kTargetEmbedding) ||
                          (r.lora_targets & kTargetHead)))
    throw usage_error(
        "lora.ensure_weight_tying needs a model whose LM head is its embedding, and an adapter of that",
        "remove the key, or add \"embed_tokens\" to lora.targets");
  if (r.trainable.empty()) return;
  require_trainable_modules(m, r);
  if (const std::optional<SplitProduct> split = find_split_product(m, r))
    throw usage_error(split->trained + " is trained and " + split->frozen +
                          " is frozen, but a trainer computes their gradients together",
                      "freeze or train both");
  if (trained_tensors(m, r).empty()) throw usage_error("train.freeze and train.only leave nothing to train");
}

/// Traits come from a trainer; wrong ones are an error of that plugin, so the message names it.
void require_valid_traits(const TrainerTraits& p, std::uint64_t layers) {
  const auto bad = [&](const std::string& what) {
    throw usage_error("trainer \"" + escaped(p.trainer) + "\" returned invalid traits: " + what);
  };
  if (p.alignment < 8 || (p.alignment & (p.alignment - 1)))
    bad("alignment = " + std::to_string(p.alignment) + ", expected a power of two of at least 8");
  if (p.threads == 0) bad("threads = 0");
  if (p.slots == 0) bad("slots = 0");
  if (p.recompute_layers.total() > layers)
    bad("recompute_layers = " + std::to_string(p.recompute_layers.total()) + ", but the model has " +
        std::to_string(layers));
  if (p.attention_tile_q == 0 || p.attention_tile_k == 0) bad("attention_tile_q or attention_tile_k = 0");
}

}  // namespace

/// Order: check everything, then build. Policies and modes are transforms of the finished program, so that
/// the builders know neither.
Program build_program(const ModelSpec& model, const RunSpec& run, const TrainerTraits& traits) {
  require_supported_family(model);
  validate(model);
  require_supported_run(model, run, traits);
  require_supported_ranks(model, run, traits);
  require_supported_rules(model, run);
  require_valid_traits(traits, model.layers);
  Builder b;
  b.p.model = run.mode == RunMode::kInference ? model : part_of_model(model, run.parallel);
  b.p.run = run, b.p.traits = traits;
  const std::size_t layers = model.layers;
  // Capacity for the largest layer (biases, q/k norms, recomputation); exceeding it only costs a
  // reallocation.
  b.p.buffers.reserve(128 + layers * 144);
  b.p.ops.reserve(64 + layers * 72);
  build_params(b);
  if (b.trains()) {
    build_micro(b);
    build_update(b);
  }
  build_eval(b);
  build_generate(b);
  if (b.trains()) apply_recompute(b.p, recompute_policy(run, traits));
  if (b.has_data_ranks()) apply_zero_stage(b.p, b.collective_scratch);
  apply_mode(b.p);
  assert(!b.p.sections.empty() && b.p.sections.back().end == b.p.ops.size());
  return std::move(b.p);
}

}  // namespace trainhost::step
