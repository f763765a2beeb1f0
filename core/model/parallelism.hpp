// How a run is spread over devices (Parallelism) and what each device keeps (MemoryPolicy). Both are parts of
// RunSpec. A step program (core/step) is that of one rank: it implements data parallelism with ZeRO 0 to 3,
// and tensor parallelism with and without sequence parallelism. Only planners implement the other values.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "core/base/types.hpp"

namespace trainhost {

/// How the work of a run is spread over devices: the number of ranks in each dimension.
struct Parallelism {
  std::uint32_t data = 1;    // DP ranks; each trains on its own micro-batches
  std::uint32_t tensor = 1;  // TP ranks; each holds a part of every matrix
  bool sequence = false;     // between the tensor-parallel parts, each TP rank keeps its share of the tokens
  std::uint32_t pipeline = 1;        // PP ranks (stages); each holds a part of the layers
  std::uint32_t virtual_stages = 1;  // per PP rank (parallel.interleave); 1 = non-interleaved 1F1B
  std::uint32_t context = 1;  // CP ranks; each holds its share of the tokens of a sequence in every layer
  std::uint32_t expert = 1;   // EP ranks, a part of the DP x CP ranks; each holds a part of the experts
  // TP ranks over which each expert is divided; the EP ranks are then a part of the DP x CP x TP ranks.
  // 0: as many as `tensor`.
  std::uint32_t expert_tensor = 0;
  std::uint32_t zero = 0;  // ZeRO stage, 0 to 3
  // Layers of the first and the last pipeline stage; 0: as many as the other stages have.
  std::uint32_t first_stage_layers = 0, last_stage_layers = 0;
  // Number of one of the DP ranks, from 1: the program and the memory are those of this rank. 0: of none in
  // particular, which is a question for planners.
  std::uint32_t data_rank = 0;
  std::uint32_t tensor_rank = 0;  // likewise of the TP ranks; set together with data_rank
  bool operator==(const Parallelism&) const = default;
};

/// The number of TP ranks over which each expert is divided.
constexpr std::uint32_t expert_tensor_ranks(const Parallelism& p) {
  return p.expert_tensor != 0 ? p.expert_tensor : p.tensor;
}

/// True if no rank has all weights, so that reading them, and computing with them, needs all ranks together.
inline bool divides_weights(const Parallelism& p) { return p.zero == 3 || p.tensor > 1; }

/// kMaterialised: the A*S*S attention scores are kept for the backward pass.
enum class AttentionMemory : std::uint32_t { kFlash = 1, kMaterialised = 2 };

/// kFused: logits are computed in chunks of tokens. kPlain: logits and their gradient are materialised.
/// kInPlace: one f32 tensor is materialised; the gradient overwrites the logits (fused kernel of
/// Megatron-LM). kLiger: chunks of as many tokens as Liger takes, and the weight gradient of the head beside
/// them. kCut: no logits are in memory (Cut Cross Entropy). th_run has the first three; of the others it has
/// kFused, the nearest one.
enum class CrossEntropy : std::uint32_t { kFused = 1, kPlain = 2, kInPlace = 3, kLiger = 4, kCut = 5 };

/// What ZeRO 3 and FSDP shard of weights in 4 or 8 bits: all of them; the packed elements, not their scales,
/// which are no parameters; or nothing of them, because bytes are no type that FSDP2 shards.
enum class PackedWeights : std::uint8_t { kSharded, kScalesWhole, kWhole };

/// What a rank keeps, in which type and in which memory tier, as far as only planners read it.
struct MemoryPolicy {
  std::uint32_t vocab_multiple = 1;   // the vocabulary is padded to a multiple of this times the TP ranks
  std::uint32_t recompute_every = 1;  // with recompute full: layers recomputed together from one kept input
  AttentionMemory attention = AttentionMemory::kFlash;
  CrossEntropy cross_entropy = CrossEntropy::kFused;
  Tier weights_in = Tier::kDevice, optimizer_in = Tier::kDevice, activations_in = Tier::kDevice;
  DType frozen = DType::kNone;    // of the base weights under [lora]; kNone: type of the run's weights
  bool double_quantized = false;  // nf4: the block scales are themselves 8-bit (QLoRA)
  bool dora = false;              // a magnitude vector for each adapter
  DType kv_cache = DType::kNone;  // of an inference run; kNone: type of the run's weights
  std::uint32_t kv_page = 1;      // tokens per page of the KV cache; a sequence allocates whole pages

  // th_run has none of these but lora_dropout; an estimator gets them as options, like the settings of a
  // framework.
  Tier gradients_in = Tier::kDevice;
  std::uint32_t prefill_chunk = 0;   // inference: tokens that go through the model together; 0: all
  std::uint32_t gap_permille = 200;  // gaps of the allocator, per 1,000 bytes that a step allocates and frees
  bool adapts_head = false;          // closed form: the LM head has an adapter too
  bool adapts_embedding = false;     // likewise the embedding
  // Likewise: lora.modules_to_save of a framework, where a trained copy is beside the frozen module.
  bool saves_head = false, saves_embedding = false;
  PackedWeights packed = PackedWeights::kSharded;  // likewise
  DType frozen_experts = DType::kNone;             // likewise, over a quantized base; kNone: type of the base
  bool dequantizes = false;  // likewise: products with quantized weights make a copy in the compute type
  // The quantized experts of a layer are one parameter, which is copied as a whole, and autograd keeps the
  // copy.
  bool stacks_quantized_experts = false;
  double lora_dropout = 0;  // of the inputs of adapters
  bool operator==(const MemoryPolicy&) const = default;
};

/// Of a framework's run. storage: plan.quant_storage, "" if it is not given; flat: FSDP1. Under DeepSpeed
/// packed weights are parameters of any type, which stage 3 shards.
PackedWeights packed_weights_of(std::string_view framework, std::string_view storage, bool flat);

struct ModelSpec;
struct RunSpec;

/// Sets what the closed form knows of a framework's quantized base. bitsandbytes quantizes linear layers, and
/// transformers 5 stacks the experts of a layer in one parameter, which is none: quantize_experts
/// (plan.quant_experts) says that something else does so, as axolotl's quantize_moe_experts. Otherwise they
/// stay in the compute type, or in f32 where prepare_model_for_kbit_training() of peft casts them.
void set_quantized_base(std::string_view framework, std::optional<bool> quantize_experts, RunSpec& r);

/// Run-file key and value of the first setting that no step program implements ("parallel.tensor",
/// "plan.attention", ...); key "" if trainers implement all of them. Includes optimizer, number types and
/// what [lora] can only plan (quantized weights other than NF4, the head). Inference and recompute = "auto"
/// (resolved by the host) are implemented.
struct PlannedOnly {
  std::string key, value;
  explicit operator bool() const { return !key.empty(); }
};
PlannedOnly planned_only_setting(const RunSpec& r);

/// Whether a step program (core/step) trains this model in this run: a trainable family, all weights or
/// adapters of matrices, one rank, or one of several data- and tensor-parallel ranks.
bool trains_by_program(const ModelSpec& m, const RunSpec& r);

}  // namespace trainhost
