// The YAML of LLaMA-Factory (0.9.5): src/llamafactory/hparams, which extends TrainingArguments. Activation
// checkpointing is on unless it is disabled; trained weights are f32 under autocast unless pure_bf16 is set.
#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "core/framework_files/rules.hpp"

namespace trainhost::framework_files {
namespace {

using runfile::Entry;

void factory_kind_of_training(Job& job, const Entry& e) {
  const std::string kind = text_of(e);
  if (kind != "lora" && kind != "full" && kind != "freeze" && kind != "oft")
    reject_value(e, "lora, full, freeze or oft");
  job.set("@kind", kind, e);
  if (kind == "freeze") job.not_modelled = "frozen weights have no gradients; planned as full training";
  if (kind == "oft") job.not_modelled = "orthogonal adapters; planned as LoRA";
}

void factory_quantized(Job& job, const Entry& e) {
  // quantization_method bitsandbytes has 4 and 8 bits; others have more widths, and are not modelled.
  const std::uint64_t bits = whole_of(e);
  if (bits == 0 || bits > 8) reject_value(e, "4 or 8");
  if (bits != 4 && bits != 8) job.not_modelled = "planned with the next larger of 4 and 8 bits";
  job.set("lora.base", bits <= 4 ? "nf4" : "int8", e);
  if (bits <= 4) job.set_default("lora.double_quant", "true", "default of LLaMA-Factory");
}

void factory_targets(Job& job, const Entry& e) {
  for (const std::string& name : texts_of(e))
    if (name == "all") {
      job.set_default(kLinearLayers, "true", e);  // find_all_linear_modules()
      return job.set("lora.targets", "all-linear", e);
    }
  set_lora_targets(job, e);
}

void factory_stage(Job& job, const Entry& e) {
  const std::string stage = text_of(e);
  static const std::vector<std::string> kStages{"pt", "sft", "rm", "ppo", "dpo", "kto"};
  if (std::ranges::find(kStages, stage) == kStages.end()) reject_name(e, "a stage of LLaMA-Factory", kStages);
  if (stage != "pt" && stage != "sft") set_method(job, stage, e);
}

/// Losses of preferences without a reference (use_ref_model).
void factory_preference(Job& job, const Entry& e) {
  const std::string loss = text_of(e);
  if (loss == "orpo" || loss == "simpo") job.set("plan.reference_model", "false", e);
}

/// Without additional_target, adapters over a resized vocabulary train embedding and LM head whole.
void factory_resized_vocabulary(Job& job, const Entry& e) {
  if (!flag_of(e)) return;
  job.set("@resized", "true", e);
  job.not_modelled = "another vocabulary";
}

constexpr const char* kStates = "optimizer state of another size";

// Keys of hparams that TrainingArguments do not have: data and LoRA, kernels and optimizers, the Megatron
// adapter, other training methods.
constexpr Rule kLlamaFactory[] = {
    {"cutoff_len", Use::kCopy, "data.seq_len"},
    {"finetuning_type", Use::kCustom, "lora.rank", "", factory_kind_of_training},
    {"lora_rank", Use::kCopy, "lora.rank"},
    {"lora_alpha", Use::kCopy, "lora.alpha"},
    {"lora_dropout", Use::kCopy, "lora.dropout"},
    {"lora_target", Use::kCustom, "lora.targets", "", factory_targets},
    {"use_dora", Use::kWhenTrue, "lora.dora", "true"},
    {"quantization_bit", Use::kCustom, "lora.base", "", factory_quantized},
    {"quantization_method", Use::kNotModelled, "bnb|bitsandbytes", "other quantized weights"},
    {"double_quantization", Use::kChoice, "lora.double_quant", "true=true|false=false"},
    {"pure_bf16", Use::kWhenTrue, "@pure", "bf16"},
    {"disable_gradient_checkpointing", Use::kWhenTrue, "@no_checkpointing", "true"},
    {"use_reentrant_gc", Use::kChoice, "plan.checkpoint_reentrant", "true=true|false=false"},
    {"gradient_checkpointing_kwargs.use_reentrant", Use::kNoEffect},  // it has its own, of use_reentrant_gc
    {"flash_attn", Use::kChoice, "plan.attention",
     "auto=flash|fa2=flash_attention_2|fa3=flash_attention_2|sdpa=flash|disabled=materialised"},
    {"enable_liger_kernel", Use::kWhenTrue, "plan.cross_entropy", "liger"},
    // Replaces `optim`, whatever it says.
    {"use_muon", Use::kWhenTrue, "@optimizer", "muon"},
    {"use_adam_mini", Use::kNotModelled, "", kStates},
    {"use_galore", Use::kNotModelled, "", kStates},
    {"use_apollo", Use::kNotModelled, "", kStates},
    {"use_badam", Use::kNotModelled, "", "one block of layers is trained at a time"},
    {"use_llama_pro", Use::kNotModelled, "", "frozen weights have no gradients"},
    {"use_unsloth", Use::kNotModelled, "", "kernels of Unsloth keep fewer activations"},
    {"use_unsloth_gc", Use::kNotModelled, "", "kept activations move to host memory"},
    {"use_v1_kernels", Use::kNotModelled, "", "kernels that keep other activations"},
    {"use_kt", Use::kNotModelled, "", "experts in host memory"},
    {"kt_*", Use::kNotModelled, "", "experts in host memory"},
    {"use_mca", Use::kNotModelled, "", "Megatron-LM under LLaMA-Factory"},
    // Of the Megatron adapter; the rest of its keys is not modelled as a whole.
    {"tensor_model_parallel_size", Use::kCopy, "parallel.tensor"},
    {"pipeline_model_parallel_size", Use::kCopy, "parallel.pipeline"},
    {"expert_model_parallel_size", Use::kCopy, "parallel.expert"},
    {"context_parallel_size", Use::kCopy, "parallel.context"},
    {"sequence_parallel", Use::kWhenTrue, "parallel.sequence", "true"},
    {"use_distributed_optimizer", Use::kWhenTrue, "parallel.zero", "1"},
    {"recompute_granularity", Use::kChoice, "train.recompute", "full=full|selective=selective"},
    {"moe_*", Use::kNotModelled, "", "experts"},
    {"use_hyper_parallel", Use::kNotModelled, "", "another distributed backend"},
    // Which tensors a loss saves is known for the plain and the fused one only.
    {"use_dft_loss", Use::kNotModelled, "", "another loss"},
    {"use_asft_loss", Use::kNeedsMore, "", "another loss, with a second model"},
    {"use_eaft_loss", Use::kNotModelled, "", "another loss"},
    {"additional_target", Use::kCustom, "lora.modules_to_save", "", set_modules_to_save},
    {"freeze_trainable_*", Use::kNotModelled, "", "frozen weights have no gradients"},
    {"freeze_extra_modules", Use::kNotModelled, "", "frozen weights have no gradients"},
    {"freeze_language_model", Use::kNotModelled, "", "frozen weights have no gradients"},
    {"stage", Use::kCustom, kMethod, "", factory_stage},
    {"pref_loss", Use::kCustom, "plan.reference_model", "", factory_preference},
    {"ref_model", Use::kNeedsMore, "", "a second model"},
    {"reward_model", Use::kNeedsMore, "", "a second model"},
    {"upcast_layernorm", Use::kNeedsMore, "", "norms in f32"},
    {"upcast_lmhead_output", Use::kNeedsMore, "", "logits in f32"},
    {"shift_attn", Use::kNotModelled, "", "attention over parts of the sequence"},
    {"mixture_of_depths", Use::kNotModelled, "", "layers that not all tokens pass"},
    {"rope_scaling", Use::kNoEffect},
    {"resize_vocab", Use::kCustom, "", "", factory_resized_vocabulary},
    {"fp8", Use::kNotModelled, "", "8-bit products"},
    {"fp8_backend", Use::kNoEffect},
};
/// Data and templates, generation, export, values of other methods, and settings of optimizers and adapters
/// that are not modelled as a whole (galore_*, badam_*).
constexpr const char* kLlamaFactoryWithoutEffect =
    "adapter_folder adapter_name_or_path add_special_tokens add_tokens apollo_* apply_rope_fusion "
    "asft_alpha audio_sampling_rate badam_* batch_size bias_activation_fusion block_diag_attn "
    "buffer_size cache_dir compute_accuracy create_new_adapter crop_to_patches data_shared_file_system "
    "dataset dataset_* default_system device_map disable_shuffling do_sample download_mode "
    "dpo_label_smoothing eaft_alpha early_stopping_steps enable_thinking enable_torch_profiler eval_* "
    "export_* fp8_enable_fsdp_float8_all_gather freeze_multi_modal_projector freeze_vision_tower "
    "galore_* hf_hub_token hyper_parallel_args* ignore_pad_token_for_loss image_* "
    "include_effective_tokens_per_second infer_backend infer_dtype init_special_tokens interleave_probs "
    "kto_chosen_weight kto_rejected_weight lang ld_alpha length_penalty loraplus_* "
    "low_cpu_mem_usage mask_history master_addr master_port max_length max_new_tokens max_samples "
    "media_dir mix_strategy model_max_length model_revision module_dropout moe_aux_loss_coef "
    "ms_hub_token n_shot neat_packing new_special_tokens_config num_beams offload_folder oft_* "
    "om_hub_token overlap_grad_reduce overlap_param_gather overwrite_cache packing pissa_* plot_loss "
    "ppo_* pref_* preprocessing_* preserve_thinking print_param_status profile_modules profiler_* "
    "quantization_* ray_* ref_model_* repetition_penalty reward_model_* seed sglang_* simpo_gamma "
    "skip_special_tokens split_special_tokens streaming swanlab_* task task_dir temperature template "
    "tokenized_path tool_format top_k top_p train_from_scratch train_on_prompt trust_remote_code "
    "use_audio_in_video use_fast_tokenizer use_kv_cache use_rslora use_swanlab "
    "val_size video_* vllm_*";

void factory_adapters(Job& job) {
  const Given* kind = job.find("@kind");
  // finetuning_type is lora by default.
  const bool adapters = !kind || kind->value == "lora" || kind->value == "oft" || job.is_option("lora.rank");
  if (!adapters) {
    refuse_trained_quantized_weights(job, "set finetuning_type: lora, or remove quantization_bit");
    job.erase_if([](const std::string& key) { return key.starts_with("lora."); });
    return;
  }
  // FinetuningArguments: rank 8, alpha twice the rank, all linear layers.
  job.set_default("lora.rank", "8", "default of LLaMA-Factory");
  job.set_default("lora.alpha", std::to_string(2 * count_of(*job.find("lora.rank"))),
                  "default of LLaMA-Factory");
  if (!job.find("lora.targets")) job.set_default(kLinearLayers, "true", "default of LLaMA-Factory");
  job.set_default("lora.targets", "all-linear", "default of LLaMA-Factory");
  if (const Given* resized = job.find("@resized"))
    job.set_default("lora.modules_to_save", R"(["embed_tokens", "lm_head"])", *resized);
  // The frozen weights have the type of the computation; the types of autocast are those of full training.
  job.erase("plan.weights"), job.erase("plan.master");
}

/// `launcher`: rules for the options of the program that starts a script.
void read_factory(const Entries& entries, Job& job, const RuleSet& launcher) {
  apply_rules({{kLlamaFactory, kLlamaFactoryWithoutEffect},
               fsdp_rules("fsdp_config.fsdp_"),
               fsdp_rules("fsdp_config."),
               training_arguments(),
               launcher},
              entries, job);
  const Given* fsdp = job.find(kFsdp);
  finish_fsdp(job, fsdp && fsdp->value == "true" ? fsdp : nullptr, "2");
  if (const Given* pure = job.find("@pure")) {
    // pure_bf16 replaces the types of bf16: autocast.
    for (const char* key : {"plan.weights", "plan.master"}) job.erase(key);
    for (const char* key : {"train.precision", "plan.weights", "plan.gradients", "plan.moments"})
      job.set_default(key, "bf16", *pure);
    job.set_default("plan.master", "none", *pure);
  }
  // gradient_checkpointing of TrainingArguments has no effect of its own.
  if (const Given* disabled = job.find("@no_checkpointing")) {
    const Given from = *disabled;
    job.erase("train.recompute");
    job.set_default("train.recompute", "none", from);
  }
  if (const Given* optimizer = job.find("@optimizer")) {
    job.erase("optimizer.name");
    job.set_default("optimizer.name", optimizer->value, *optimizer);
  }
  factory_adapters(job);
  drop_unused_double_quantization(job);
  hold_weights_of_fsdp_in_f32(job);
  for (const char* key : {"@kind", "@pure", "@no_checkpointing", "@optimizer", "@resized"}) job.erase(key);
  job.set_default(kAllocatorOfRanks, "expandable_segments:True", "the launcher of LLaMA-Factory sets it");
  job.set_default("data.seq_len", "2048", "default of LLaMA-Factory (cutoff_len)");
  job.set_default("train.micro_batch", "8", "default of TrainingArguments");
  job.set_default("train.precision", "fp32", "default of TrainingArguments");
  job.set_default("train.recompute", "full", "default of LLaMA-Factory");
  job.set_default("plan.cross_entropy", "plain", "default of transformers");
}

/// Throws for a file of a command that exports, predicts or chats. `train` trains with do_train only.
void check_command_trains(const Entries& entries) {
  constexpr std::pair<const char*, const char*> kOther[] = {{"export_dir", "exports a model"},
                                                            {"peft_config.export_dir", "exports a model"},
                                                            {"do_predict", "predicts"},
                                                            {"infer_backend", "generates"}};
  const auto find = [&](std::string_view key) { return std::ranges::find(entries, key, &Entry::key); };
  for (const char* trains : {"do_train", "train_dataset", "per_device_train_batch_size"})
    if (const auto given = find(trains); given != entries.end() && text_of(*given) != "false") return;
  for (const auto& [key, does] : kOther)
    if (const auto given = find(key); given != entries.end())
      throw usage_error(fmt::format("{}: this file {}, and trains nothing", key, does),
                        "give the files of a training run; --model=MODEL --set plan.mode=inference plans "
                        "inference",
                        given->key_where);
}

}  // namespace

void read_llama_factory(const Entries& entries, Job& job) {
  check_command_trains(entries);
  job.framework = "llama-factory";
  if (llama_factory_v1(entries)) return read_llama_factory_v1(entries, job);
  read_factory(entries, job, {});
}

void read_llama_factory_script(const Entries& entries, Job& job) {
  job.framework = "llama-factory";
  const Entries options = script_options(entries, job);
  read_factory(options, job, launcher_rules());
  note_deepspeed_file(job, options);
  finish_launcher(job);
}

}  // namespace trainhost::framework_files
