// What decides a training step of a framework on PyTorch: whose modules run, their types, what is recomputed,
// adapters, optimizer, and how ranks divide the work. Policies of DDP, FSDP, ZeRO and the pipeline are in
// their own headers. From a run file: plugins/estimators/pytorch/settings.hpp; what follows from them:
// training_step.hpp.
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "core/base/types.hpp"
#include "core/frameworks/autograd/tape.hpp"
#include "core/frameworks/megatron/quantized.hpp"
#include "core/frameworks/pipeline.hpp"
#include "core/frameworks/sharding/ddp.hpp"
#include "core/frameworks/sharding/fsdp.hpp"
#include "core/frameworks/sharding/zero.hpp"

namespace trainhost::frameworks {

/// kFlash2: the package flash-attn (attn_implementation = "flash_attention_2" of transformers).
enum class AttentionKernel : std::uint8_t { kEager, kSdpa, kFlash2 };
/// Whose modules run: those of transformers, the Llama of torchtitan, that of torchtune, the GPT of litgpt,
/// or that of Megatron Core.
enum class ModelSource : std::uint8_t { kTransformers, kTorchtitan, kTorchtune, kLitgpt, kMegatron };
enum class OptimizerLoop : std::uint8_t { kForeach, kFused, kForLoop };

/// Losses of torchtune: of all logits, of the logits in chunks (CEWithChunkedOutputLoss), of the hidden
/// states in chunks (LinearCrossEntropyLoss), or of a copy of the logits without the last token (until August
/// 2024).
enum class LossKind : std::uint8_t { kPlain, kChunkedLogits, kChunkedHead, kMovedLogits };

/// Releases of transformers whose modules allocate differently, newest first; each is the first of its group.
/// k454: as 5, but rotary embeddings have one table. Before 4.52 a checkpoint holds the module that FSDP1
/// makes of a layer; since then it is in that module. Before 4.54 keys and values are repeated for each query
/// head (SDPA); before 4.49 the loss copies the f32 logits without the last token, instead of padding the
/// labels; the models of 4.45 and before compute the loss, and f32 logits replace those of the head.
enum class TransformersRelease : std::uint8_t { k5, k454, k452, k449, k446, k445 };

/// Bits of StepSettings::lora_targets, as in RunSpec::lora_targets.
enum LoraTarget : std::uint32_t {
  kLoraQ = 1,
  kLoraK = 2,
  kLoraV = 4,
  kLoraO = 8,
  kLoraGate = 16,
  kLoraUp = 32,
  kLoraDown = 64,
};

/// Modules of --recompute-modules beside core_attn, whose outputs or activations are recomputed.
struct RecomputedModules {
  bool activation = false;      // moe_act: the outputs of SwiGLU in the experts
  bool norms = false;           // layernorm: outputs of norms that are not part of a product
  bool up_projections = false;  // mla_up_proj: q, keys and values of multi-latent attention
  bool mlp = false;             // of dense layers
  bool experts = false;         // moe: router, experts and shared expert
  bool shared_expert = false;
  bool operator==(const RecomputedModules&) const = default;
};

/// What only Megatron-LM has.
struct MegatronPolicy {
  bool distributed_optimizer = false;  // weights are moved to a buffer; main weights and moments are divided
  std::uint32_t optimizer_ranks = 1;   // that share main weights and moments
  std::uint32_t expert_ranks = 1;      // each has a part of the experts
  std::uint32_t expert_tensor = 1;     // ranks that divide the matrices of one expert
  /// Ranks that share main weights and moments of the same experts, if there is a distributed optimizer.
  std::uint32_t expert_optimizer_ranks = 1;
  bool router_in_f32 = true;         // --moe-router-dtype fp32; otherwise scores have the type of the weights
  std::uint32_t optimizer_rank = 0;  // of these
  bool sequence_parallel = false;
  bool context_ring = true;           // context parallelism by p2p; otherwise by all-to-all
  bool loss_in_place = true;          // the loss of Transformer Engine; otherwise that of Megatron Core
  bool loss_compiled = false;         // the latter by torch.compile (--cross-entropy-loss-fusion)
  bool fused_rotation = true;         // false: --no-rope-fusion
  std::uint32_t recompute_every = 1;  // layers that are recomputed together
  RecomputedModules recomputed;       // of each layer
  std::uint32_t virtual_stages = 1;   // of each pipeline rank
  Element gradients = Element::kF32, moments = Element::kF32;
  std::uint64_t linear_workspace = 0;  // bytes that Transformer Engine gives cuBLAS
  ProductPolicy products;              // in 8 or 4 bits
  bool operator==(const MegatronPolicy&) const = default;
};

/// Functions of Liger that replace those of transformers, on one device or under DDP.
struct LigerKernels {
  bool norms = false, rotary = false, swiglu = false;
  bool loss = false;  // with the head, in chunks of tokens
  bool operator==(const LigerKernels&) const = default;
};

/// Functions of axolotl that replace the modules of peft where each of their matrices has an adapter, on one
/// device or under DDP.
struct AdapterKernels {
  bool mlp = false, qkv = false, output = false;
  bool operator==(const AdapterKernels&) const = default;
};

/// Functions of Unsloth that replace the modules of transformers and peft; on one device or under DDP.
struct UnslothFunctions {
  bool on = false;
  bool offloads = false;      // reentrant checkpoints, whose inputs are in host memory
  bool small_device = false;  // of at most 24.5 GiB
  bool operator==(const UnslothFunctions&) const = default;
};

/// Whose loss a training by preferences has (DPO).
enum class PreferenceTrainer : std::uint8_t { kNone, kTrl, kFactory };

/// Training by preferences, with modules of transformers. `batch` counts chosen and rejected sequences.
struct Preferences {
  PreferenceTrainer trainer = PreferenceTrainer::kNone;
  bool reference = true;  // computed in the step: by a second model, or with adapters by the base alone
  /// Type in which the second model is loaded, where it is not that of the first; without ZeRO, which casts
  /// both.
  std::optional<Element> reference_type;
  bool operator==(const Preferences&) const = default;
};

/// How long a variable of a training loop of one's own keeps the output of the model, with its logits: until
/// the backward pass has ended (of a function), or until the next output exists (of the loop).
enum class KeptLogits : std::uint8_t { kNone, kBackward, kLoop };

struct StepSettings {
  std::uint32_t batch = 1, sequence = 1, accumulate = 1;  // sequences, tokens, micro-batches
  Element weights = Element::kF32;
  bool autocast = false;
  Element autocast_type = Element::kBF16;
  AttentionKernel attention = AttentionKernel::kSdpa;
  bool checkpoint = false;  // every layer
  bool reentrant = false;   // its checkpoints; transformers on one device, under DDP or FSDP1 only
  bool selective = false;   // every layer, but attention and every second product are kept; torchtitan only
  std::uint32_t recomputed_layers = 0;  // every n-th layer is recomputed; torchtitan only
  ModelSource modules = ModelSource::kTransformers;
  /// torch.compile of each layer, and of the loss; torchtitan (where layers are recomputed) and torchtune.
  bool compiles_layers = false, compiles_loss = false;
  std::uint32_t tensor = 1;   // tensor-parallel ranks, with sequence parallelism; torchtitan only
  StageOfPipeline stage;      // its `accumulate` micro-batches run as 1F1B; torchtitan only
  std::uint32_t expert = 1;   // ranks that share the experts, of those of FSDP; torchtitan only
  std::uint32_t context = 1;  // context-parallel ranks, which share the tokens evenly; torchtitan only
  /// Float8Linear in the layers; float8_gather: FSDP2 gathers their weights in 8 bits. torchtitan only.
  bool float8_layers = false, float8_gather = false;
  bool recomputes_attention = false;  // selective recomputation keeps products only; torchtitan only
  bool composite_norms = false;       // RMSNorm of separate operators, which compute in f32; torchtitan only
  Optimizer optimizer = Optimizer::kAdamW;
  OptimizerLoop loop = OptimizerLoop::kForeach;
  bool weight_decay = false;                      // of SGD; AdamW decays the weights in place
  std::uint32_t lora_rank = 0, lora_targets = 0;  // rank 0: full training
  /// Ranks of each layer in the order of the bits of LoraTarget, 0: none; empty: lora_rank where lora_targets
  /// says so.
  std::vector<std::array<std::uint32_t, 7>> lora_ranks;
  double dropout = 0, lora_dropout = 0;  // dropout: of GPT-2 and Seed-OSS
  Element adapters = Element::kF32;      // over weights of bitsandbytes
  LigerKernels liger;
  AdapterKernels adapter_kernels;
  UnslothFunctions unsloth;
  /// The Trainer computes a second loss from the logits of the model (format v1 of LLaMA-Factory); on one
  /// device or under DDP.
  bool trainer_loss = false;
  TransformersRelease release = TransformersRelease::k5;
  Preferences preferences;
  bool frozen = false;      // nothing is trained: the reference model
  bool cut_loss = false;    // Cut Cross Entropy; transformers on one device or under DDP
  bool tiled_loss = false;  // of TRL; models of transformers
  KeptLogits kept_logits = KeptLogits::kNone;
  bool f32_outputs = false;  // accelerate converts what the model returns under autocast to f32
  DdpPolicy ddp;
  FsdpPolicy fsdp;          // `weights` is then the type of the gathered weights
  ZeroPolicy zero;          // DeepSpeed; `weights` is then the type of the model
  std::uint32_t steps = 2;  // the first allocates the optimizer state; all others are like the second
  // The first micro-batch is the longest by far: what follows it is left out, as is the rest of its step.
  bool longest_is_first = false;
  bool copies_step = true;     // the second step is a copy of the events of the first where both are the same
  bool repeats_layers = true;  // the events of equal layers are copies where each layer has the same
  // torchtune, and nf4 also litgpt and transformers.
  LossKind loss = LossKind::kPlain;
  bool update_in_backward = false;  // each parameter is updated when its gradient is complete
  /// In which bitsandbytes multiplies 4-bit weights, where it is not the type of the model or of autocast.
  std::optional<Element> product_type;
  bool nf4 = false;  // frozen linear layers are in NF4: in torchtune of torchao, else of bitsandbytes
  bool double_quantized = false;  // the scales of bitsandbytes' NF4 have 8 bits
  bool stable_embedding = true;   // litgpt with nf4 replaces the embedding by one of bitsandbytes
  bool int8 = false;              // frozen linear layers are in 8 bits of bitsandbytes (LLM.int8())
  /// Columns of each input of these with values of 6.0 or more: this share, rounded up, or this number.
  double outlier_share = 0;
  std::optional<std::uint32_t> outliers;
  std::int64_t outlier_columns(std::int64_t inputs) const;
  /// Type of experts and router over a quantized base, where it is not `weights`.
  std::optional<Element> expert_weights;
  /// Type of norms over a quantized base, where it is not `weights`; not sharded.
  std::optional<Element> norm_weights;
  bool whole_packed = false;    // FSDP2 leaves each rank all packed weights (bnb_4bit_quant_storage uint8)
  bool packed = false;          // positions are given, because a row holds several sequences
  bool offload_inputs = false;  // the inputs of checkpointed layers are in host memory until they are needed
  /// torch 2.5: the first call of a compiled 8-bit step clones what it changes.
  bool tunes_with_clones = false;
  /// AdamW of bitsandbytes in 8 bits: the moments of embeddings are in f32.
  bool f32_embedding_moments = false;
  bool paged_optimizer = false;  // moments of large parameters are not allocated by PyTorch (bitsandbytes)
  std::uint32_t positions = 0;   // that the table of angles has; 0: `sequence`
  MegatronPolicy megatron;
  TapeOptions machine;
  bool operator==(const StepSettings&) const = default;
};

}  // namespace trainhost::frameworks
