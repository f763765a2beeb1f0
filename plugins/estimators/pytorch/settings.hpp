// From a run of the run file to the settings of a PyTorch training step (core/frameworks/training_step.hpp),
// for six groups of frameworks. Refuses what is not described, and counts no bytes: report.hpp.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "core/frameworks/allocator/caching_allocator.hpp"
#include "core/frameworks/training_step.hpp"
#include "core/model/architecture.hpp"
#include "core/model/run_spec.hpp"

namespace trainhost::pytorch {

/// Plain: a module of transformers, on one device, with DDP, or sharded by accelerate. FSDP2: the same module
/// under fully_shard.
/// torchtitan, torchtune, litgpt: their own modules. DeepSpeed: a module of transformers with its engine.
/// Megatron: the GPT model of Megatron Core.
enum class Framework : std::uint8_t {
  kPlain,
  kFsdp2,
  kTorchtitan,
  kTorchtune,
  kLitgpt,
  kDeepSpeed,
  kMegatron
};

/// ProductPolicy::capability of AMD devices, which have no compute capability.
inline constexpr std::uint32_t kAmdDevice = 0;

/// As of December 2024, of June 2025, and from October 2025 on; k020: the release 0.2.0, where it differs.
enum class TorchtitanVersion : std::uint8_t { k00, k01, k02, k020 };

/// lit-gpt until February 2024, up to 0.4.13 (October 2024), up to 0.5.10 (August 2025), and as of June 2026.
enum class LitgptRelease : std::uint8_t { k2023, k04, k05, kNewest };

/// What the run file says for a framework, beyond RunSpec.
struct Options {
  Framework framework = Framework::kPlain;
  std::string name = "pytorch";  // of the framework, as in the run file
  frameworks::TransformersRelease release = frameworks::TransformersRelease::k5;
  std::string release_name = "5.23";  // of transformers
  bool by_accelerate = false;         // parallel.zero: accelerate prepares the model for FSDP
  bool flat_parameters = false;       // FSDP1
  frameworks::BackwardPrefetch backward_prefetch = frameworks::BackwardPrefetch::kNone;  // of FSDP1
  bool forward_prefetch = false, original_parameters = true;                             // likewise
  std::vector<std::string> fsdp_keys;               // settings of sharded weights that were given
  std::vector<std::string> ddp_keys;                // settings of DistributedDataParallel that were given
  std::optional<bool> packed_as_bytes;              // plan.quant_storage = "uint8"
  bool f32_norms = false;                           // plan.norms
  std::optional<frameworks::Element> product_type;  // plan.quant_compute
  bool quantizes_experts = false;                   // plan.quant_experts
  std::optional<std::uint32_t> int8_outliers;       // columns of each input of LLM.int8()
  bool no_sync = false;                             // FSDP reduces in the last micro-batch only
  std::uint64_t ddp_bucket = 25u << 20;             // bytes
  bool gradient_as_bucket_view = false;
  bool compile = false;                // torch.compile; otherwise eager execution
  bool compiles_loss = false;          // of torchtitan
  bool float8_gather = true;           // of torchtitan
  std::uint32_t fsdp_replicas = 1;     // of torchtitan: groups of data-parallel ranks that have all weights
  std::uint32_t selective_layers = 0;  // of torchtitan: every n-th layer is recomputed whole; 0: by operator
  TorchtitanVersion version = TorchtitanVersion::k02;
  LitgptRelease litgpt_release = LitgptRelease::kNewest;
  bool flash_attention_2 = false;  // plan.attention: the package flash-attn
  std::optional<bool> reentrant;   // checkpoints of recomputed layers; else the framework's default
  frameworks::OptimizerLoop loop = frameworks::OptimizerLoop::kForeach;
  frameworks::AllocatorConfig allocator;
  bool allocator_given = false;
  std::uint64_t runtime = 512u << 20;  // bytes of the CUDA context and libraries, outside of the allocator
  /// The report of a run beyond the budget may have the bytes of its peak alone, and no notes; or any bytes
  /// beyond the budget.
  bool only_if_it_fits = false, verdict_only = false;
  bool upper_bounds = true;            // false: those that take a replay of their own may be left out
  bool runtime_given = false;          // false: the constant above, which is not measured
  double dropout = 0;                  // of GPT-2 and Seed-OSS
  std::optional<double> lora_dropout;  // of the inputs of adapters; else the framework's default
  // torchtune only.
  bool separate_ends = false;  // embedding and head are units of FSDP2
  frameworks::LossKind loss = frameworks::LossKind::kChunkedHead;
  bool update_in_backward = false, paged_optimizer = false;
  frameworks::LigerKernels liger;
  frameworks::AdapterKernels adapter_kernels;  // of axolotl
  bool adapter_kernels_given = false;
  bool trainer_loss = false;  // of format v1 of LLaMA-Factory
  bool cut_loss = false;      // Cut Cross Entropy
  bool tiled_loss = false;    // of TRL 1.15 and newer
  frameworks::KeptLogits kept_logits = frameworks::KeptLogits::kNone;
  bool prefers = false;        // plan.method = "dpo"
  bool reference = true;       // plan.reference_model
  bool torch_of_2024 = false;  // torchtune 0.4 with torch 2.5; else torch 2.15
  bool moved_logits = false;   // torchtune 0.1 and 0.2, until August 2024
  /// DeepSpeed: elements; none: hidden size squared, as transformers replaces "auto".
  std::optional<std::uint64_t> reduce_bucket = 500'000'000;
  bool overlap_reduce = false;
  /// Stage 3, elements; none: what transformers takes for "auto".
  std::optional<std::uint64_t> prefetch = 50'000'000, persistence = 100'000;
  std::uint64_t max_live = 1'000'000'000, reuse_distance = 1'000'000'000;
  bool offload_gradients = false;      // DeepSpeed does so with the optimizer
  bool context_ring = true;            // Megatron-LM: --cp-comm-type p2p; otherwise a2a
  frameworks::ProductPolicy products;  // of Megatron-LM
  // Of Megatron-LM: what selective recomputation recomputes, the type of the router's scores, its own
  // loss by torch.compile, and one kernel for the rotary embedding.
  bool recomputes_attention = true, modules_given = false, router_in_f32 = true;
  bool compiled_loss = false, fused_rotation = true;
  frameworks::RecomputedModules recomputed;
  // Fields of RunSpec that no plugin gets; 0: as the other stages, and the tensor-parallel ranks.
  std::uint32_t first_stage_layers = 0, last_stage_layers = 0, expert_tensor = 0;
  bool capability_given = false;  // products.capability is that of memory.device
};

/// The step, and sentences about what was assumed. Throws usage_error, one sentence with the setting and the
/// reason, for what a plain PyTorch run does not have or what is not described.
frameworks::StepSettings step_settings(const model::Architecture& architecture, const RunSpec& run,
                                       const Options& options, std::vector<std::string>& notes);

/// `what`: the setting; `why`: the reason, or what PyTorch has instead. Throws usage_error.
[[noreturn]] void reject(const std::string& what, const std::string& why, const std::string& hint = {});

/// Workspaces, and whether the device has the kernels of compute capability 8.0.
void set_device(const Options& options, frameworks::StepSettings& settings, std::vector<std::string>& notes);
/// The package flash-attn in modules of transformers, and what SDPA takes on older devices; when the types
/// are known. Throws usage_error.
void set_attention_kernels(const model::Architecture& architecture, const RunSpec& run,
                           const Options& options, frameworks::StepSettings& settings,
                           std::vector<std::string>& notes);
/// Notes that SDPA materialises scores in bf16 on older devices, of a framework that has no f16.
void note_emulated_bf16(const Options& options, const frameworks::StepSettings& settings,
                        std::vector<std::string>& notes);
/// Notes the bytes that the attention of Megatron-LM keeps on older devices beside those that are replayed.
void note_unfused_attention(const model::Architecture& architecture, const Options& options,
                            const frameworks::StepSettings& settings, std::vector<std::string>& notes);

/// Replaces a model by the copy with other modules that Unsloth loads in its place, if there is one.
void use_copy_of_unsloth(model::Architecture& architecture, std::vector<std::string>& notes);
/// "4.48.1", "4.57" or "5". Throws usage_error for a release that is not described.
frameworks::TransformersRelease transformers_release(const std::string& version);
/// An older release of transformers, when attention and loss are known. Throws usage_error.
void set_release(const model::Architecture& architecture, const RunSpec& run, const Options& options,
                 frameworks::StepSettings& settings, std::vector<std::string>& notes);

/// Adapters with the functions of Unsloth, when types and checkpoints are known. Throws usage_error.
void set_unsloth(const model::Architecture& architecture, const RunSpec& run,
                 frameworks::StepSettings& settings, std::vector<std::string>& notes);

/// torchtune's recipes. Throws usage_error.
void set_torchtune(const model::Architecture& architecture, const RunSpec& run, const Options& options,
                   frameworks::StepSettings& settings, std::vector<std::string>& notes);

/// LoRA and full training of litgpt. Throws usage_error.
void set_litgpt(const model::Architecture& architecture, const RunSpec& run, const Options& options,
                frameworks::StepSettings& settings, std::vector<std::string>& notes);

/// Types of QLoRA and LLM.int8() of transformers. Throws usage_error.
void set_quantized(const model::Architecture& architecture, const RunSpec& run, const Options& options,
                   frameworks::StepSettings& settings, std::vector<std::string>& notes);

/// The options that a training by preferences has in effect. Throws usage_error.
Options options_of_preferences(const Options& given, std::vector<std::string>& notes);
/// Training by preferences, when everything but sharding is known. Throws usage_error.
void set_preferences(const model::Architecture& architecture, const RunSpec& run, const Options& options,
                     frameworks::StepSettings& settings, std::vector<std::string>& notes);

/// Megatron-LM. Throws usage_error.
void set_megatron(const model::Architecture& architecture, const RunSpec& run, const Options& options,
                  frameworks::StepSettings& settings, std::vector<std::string>& notes);

/// Its products in 8 or 4 bits, after everything else. Throws usage_error.
void set_products(const model::Architecture& architecture, const RunSpec& run, const Options& options,
                  frameworks::StepSettings& settings, std::vector<std::string>& notes);

/// Those of torchtitan, which set_fsdp() calls. Throws usage_error.
void set_torchtitan(const model::Architecture& architecture, const RunSpec& run, const Options& options,
                    frameworks::StepSettings& settings, std::vector<std::string>& notes);
/// FSDP of a run whose other settings are known. Throws usage_error.
void set_fsdp(const model::Architecture& architecture, const RunSpec& run, const Options& options,
              frameworks::StepSettings& settings, std::vector<std::string>& notes);
/// The same for ZeRO of DeepSpeed.
void set_deepspeed(const model::Architecture& architecture, const RunSpec& run, const Options& options,
                   frameworks::StepSettings& settings, std::vector<std::string>& notes);

}  // namespace trainhost::pytorch
