// The rules of each kind of file, one function per kind: reads the entries of one file into the job. What
// several files mean together: read_files.cpp.
#pragma once
#include <vector>

#include "core/framework_files/job.hpp"

namespace trainhost::framework_files {

using Entries = std::vector<runfile::Entry>;

/// Settings between the rules of FSDP and finish_fsdp().
inline constexpr const char *kFsdp = "@fsdp", *kNoRecompute = "@no_recompute", *kMixed = "@mixed";
/// Settings of the allocator that a framework makes itself: always, or where it starts several ranks.
inline constexpr const char *kAllocatorOfFramework = "@allocator", *kAllocatorOfRanks = "@allocator_of_ranks";
/// train.precision is that of the checkpoint alone.
inline constexpr const char* kByCheckpoint = "@by_checkpoint";

/// TrainingArguments of transformers, and its keys without effect on memory alone.
RuleSet training_arguments();
RuleSet training_arguments_without_effect();
/// The settings of FSDP below `table`, as accelerate reads them: "fsdp_config.", "fsdp_config.fsdp_".
RuleSet fsdp_rules(std::string_view table);
/// Sets what the settings of FSDP mean if FSDP is `on`, a key of the file; null if it is off. version: of
/// FSDP where the file names none.
void finish_fsdp(Job& job, const Given* on, const char* version = "");
/// With FSDP and mixed precision, accelerate converts trained weights to f32, whatever they were loaded in.
/// For files that read the same job one after the other: does nothing until both are known.
void hold_weights_of_fsdp_in_f32(Job& job);

/// Reports that `method` ("dpo", "grpo", "rm") trains otherwise than SFT, which is planned, and how its step
/// differs.
void set_method(Job& job, const std::string& method, const runfile::Entry& from);
/// The same from the name of a loss of TRL or open-instruct: "sigmoid" is one of DPO.
void set_method_of_loss(Job& job, const std::string& loss, const runfile::Entry& from);
/// Notes that the options of a script name a file of DeepSpeed, which then sets its stage and types.
void note_deepspeed_file(Job& job, const Entries& options);

/// ddp_bucket_cap_mb, in MiB.
void set_ddp_bucket(Job& job, const runfile::Entry& from);

/// bnb_4bit_compute_dtype: bfloat16, float16 or float32, also with "torch." before.
void set_product_type(Job& job, const runfile::Entry& from);
/// plan.quant_compute, where nothing runs in mixed precision. A type other than that of mixed precision is
/// not modelled. When train.precision is known.
void finish_product_type(Job& job);

/// Double quantization means nothing for a base that is not quantized to 4 bits.
void drop_unused_double_quantization(Job& job);

/// For a run without adapters: throws if a file quantizes its weights, which trainers refuse to train.
void refuse_trained_quantized_weights(const Job& job, const std::string& hint);

/// Sets the number of replicas that each shard the weights. Plans shard over all data-parallel ranks.
void set_replicas(Job& job, const runfile::Entry& from, const char* key);

/// The kernel of attention by its name in transformers: eager, flash_attention_2, or one that computes in
/// blocks as sdpa does (flex_attention, a kernel of the Hub).
void set_attention(Job& job, const runfile::Entry& from);

/// The list of a LoRA key: names of matrices, a regular expression, or "all-linear".
void set_lora_targets(Job& job, const runfile::Entry& from);

/// Modules that are trained whole beside adapters, as peft names them: those that can be planned are the
/// embedding and the LM head.
void set_modules_to_save(Job& job, const runfile::Entry& from);

/// Optimizer names as transformers, axolotl and LLaMA-Factory share them: "adamw_torch_fused",
/// "paged_adamw_8bit".
void set_hugging_face_optimizer(Job& job, const runfile::Entry& from);

/// The keys of TRL beside TrainingArguments: SFTConfig, ModelConfig, ScriptArguments.
RuleSet trl_rules();
/// Keywords of from_pretrained(), of trainers and of Accelerator in Python scripts (python_job.hpp). table:
/// before those of from_pretrained(), which model_init_kwargs of TRL are too.
RuleSet python_load_rules(std::string_view table);
RuleSet python_trainer_rules();
RuleSet python_accelerator_rules();
/// What a script says beside keys: an entry whose key begins with @@, as "@@method"; null if there is none.
/// Rules do not see them.
const runfile::Entry* mark_of(const Entries& entries, std::string_view mark);
/// Reports trainers of a script that are not planned.
void note_other_trainers(Job& job, const Entries& entries);
/// Releases that a script pins; without a pin the newest that plans describe.
struct PinnedReleases {
  bool transformers_4 = false;
  unsigned trl = ~0u;  // 1000 * major + minor
  bool has_trl(unsigned major, unsigned minor) const { return trl >= 1000 * major + minor; }
};
/// Sets plan.framework_version, unless an option does, and reports the pins.
PinnedReleases apply_pinned_releases(Job& job, const Entries& entries);
/// Sets the training method that the trainer of a script has, and reports it.
void apply_method_mark(Job& job, const runfile::Entry& method);

/// Keys that scripts around the Trainer add to TrainingArguments: open-instruct, FastChat, LLaVA, Qwen, the
/// examples of PEFT, DeepSpeed-Chat. For their files and for their options.
RuleSet training_script_rules();
/// Sets the defaults of that script whose keys are among `entries`.
void finish_training_script(Job& job, const Entries& entries);
/// mixed_precision of accelerate, which TrainingArguments replace.
void set_accelerate_precision(Job& job, const runfile::Entry& from);
/// Options of torchrun, deepspeed and accelerate launch.
RuleSet launcher_rules();
/// The entries of a script. Options of launchers whose value the script does not say are reported, and left
/// out.
Entries script_options(const Entries& entries, Job& job);
/// PYTORCH_CUDA_ALLOC_CONF and its other names.
void read_allocator(const Entries& environment, Job& job);
/// Sets what the options of launchers mean together.
void finish_launcher(Job& job);

/// Sets the types of a run with the precision of `job` under DeepSpeed: master weights in f32.
void finish_deepspeed(Job& job);

void read_peft(const Entries& entries, Job& job);                // adapter_config.json
void read_training_arguments(const Entries& entries, Job& job);  // transformers, TRL
/// The same from the options of a shell script that starts training.
void read_training_script(const Entries& entries, Job& job);
void read_accelerate(const Entries& entries, Job& job);
void read_deepspeed(const Entries& entries, Job& job);
void read_axolotl(const Entries& entries, Job& job);
void read_llama_factory(const Entries& entries, Job& job);
void read_llama_factory_script(const Entries& entries, Job& job);
/// A key that only format v1 of LLaMA-Factory has; null in a file of the other format.
const runfile::Entry* llama_factory_v1(const Entries& entries);
void read_llama_factory_v1(const Entries& entries, Job& job);
/// ms-swift: `swift sft`, `swift pt` and `swift rlhf`.
void read_swift(const Entries& entries, Job& job);
/// ms-swift: `megatron sft`, `megatron pt` and `megatron rlhf`.
void read_swift_megatron(const Entries& entries, Job& job);
/// The same from a script, which starts one process unless it sets NPROC_PER_NODE.
void read_swift_megatron_script(const Entries& entries, Job& job);
/// Data, templates, sampling and checkpoints of ms-swift, whichever of its trainers runs.
RuleSet swift_without_effect();
void read_torchtune(const Entries& entries, Job& job);
/// Appends the number of devices of the command in a comment: "# tune run --nproc_per_node 8 RECIPE".
/// torchtune has it nowhere else.
void torchtune_command(const std::string& text, const std::string& path, Entries& entries);
void read_torchtitan(const Entries& entries, Job& job);
void read_megatron(const Entries& entries, Job& job);
/// Arguments of Megatron-LM, and what they mean together after they were applied.
RuleSet megatron_rules();
void finish_megatron(Job& job);
/// The model of those arguments: its fields, the text of a config.json with the vocabulary beside it, or
/// kOtherModel.
void finish_megatron_model(Job& job);
void read_litgpt(const Entries& entries, Job& job);
/// The calls of a Python script of Unsloth.
void read_unsloth(const Entries& entries, Job& job);

}  // namespace trainhost::framework_files
