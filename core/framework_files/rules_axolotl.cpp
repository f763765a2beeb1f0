// The YAML of axolotl (0.12 to 0.19): class AxolotlInputConfig and the arguments of its integrations. It
// loads the base model in the type of the computation, so full training with bf16 has every tensor in bf16.
#include <fmt/format.h>

#include <algorithm>

#include "core/base/text.hpp"
#include "core/framework_files/rules.hpp"

namespace trainhost::framework_files {
namespace {

using runfile::Entry;

/// true, "auto" or "full". "auto" is bf16 where the GPU has it; plans are for GPUs that have it.
void axolotl_narrow(Job& job, const Entry& e, const char* type) {
  const bool word =
      e.value.kind == runfile::Value::Kind::kText && (e.value.text == "auto" || e.value.text == "full");
  if (word || flag_of(e))
    job.set("train.precision", type, e);
  else if (std::string(type) == "bf16")
    job.set("@not_bf16", "true", e);
}

void axolotl_bf16(Job& job, const Entry& e) { axolotl_narrow(job, e, "bf16"); }

/// fp16 means nothing beside bf16.
void axolotl_fp16(Job& job, const Entry& e) {
  if (flag_of(e)) job.set("@fp16", "true", e);
}

void axolotl_checkpointing(Job& job, const Entry& e) {
  const bool word = e.value.kind == runfile::Value::Kind::kText;
  if (!word && !flag_of(e)) return;
  job.set("train.recompute", "full", e);
  if (word && e.value.text == "offload") job.set("plan.offload_activations", "cpu", e);
  if (word && e.value.text == "offload_disk") job.set("plan.offload_activations", "nvme", e);
}

void axolotl_offloading(Job& job, const Entry& e) {
  const bool word = e.value.kind == runfile::Value::Kind::kText;
  if (!word && !flag_of(e)) return;
  job.set("plan.offload_activations", word && e.value.text == "disk" ? "nvme" : "cpu", e);
  if (!word || e.value.text != "hidden_states") job.set("@offloads_saved", "true", e);
}

/// Of a run with adapters every saved tensor is offloaded, and no layer is recomputed; in full training
/// layers are recomputed, and their inputs offloaded.
void axolotl_offloaded_adapters(Job& job) {
  const Given* offload = job.find("@offloads_saved");
  if (offload && job.find("@adapter")) {
    const Given from = *offload;
    job.erase("train.recompute");
    job.set_default("train.recompute", "none", from);
  }
  job.erase("@offloads_saved");
}

/// qlora quantizes the base by bitsandbytes; axolotl switches double quantization on.
void axolotl_adapter(Job& job, const Entry& e) {
  const std::string kind = text_of(e);
  if (kind != "qlora" && kind != "lora") reject_value(e, "lora or qlora");
  job.set("@adapter", "true", e);
  if (kind == "qlora") job.set("lora.base", "nf4", e), job.set("lora.double_quant", "true", e);
}

void axolotl_nf4(Job& job, const Entry& e) {
  if (flag_of(e)) job.set("lora.base", "nf4", e), job.set("lora.double_quant", "true", e);
}

/// axolotl refuses to quantize weights that are trained.
void axolotl_quantized_base(const Job& job, const Entries& entries) {
  if (job.find("@adapter") || job.is_option("lora.rank")) return;
  for (const Entry& e : entries)
    if ((e.key == "load_in_4bit" || e.key == "load_in_8bit") && flag_of(e))
      throw usage_error(
          fmt::format("{} = {} quantizes the base of adapters, but the file has no adapter", e.key,
                      runfile::written(e.value)),
          fmt::format("add adapter: {}, or remove {}", e.key == "load_in_4bit" ? "qlora" : "lora", e.key),
          e.value.where);
}

/// All linear matrices beside those of lora_target_modules.
void axolotl_all_linear(Job& job, const Entry& e) {
  if (!flag_of(e)) return;
  // Replaces the list, so that it is no second value for the same key.
  job.erase("lora.targets");
  job.set("lora.targets", "all-linear", e);
  job.set("@all_linear", "true", e);
  job.set_default(kLinearLayers, "true", e);  // find_all_linear_names()
}

void axolotl_targets(Job& job, const Entry& e) {
  if (!job.find("@all_linear")) set_lora_targets(job, e);
}

void axolotl_fsdp(Job& job, const Entry& e) {
  for (const std::string& word : texts_of(e)) {
    job.set(kFsdp, "true", e);
    if (word == "shard_grad_op") job.set("@fsdp_zero", "2", e);
    if (word == "offload") job.set("@fsdp_offload", "cpu", e);
  }
}

void axolotl_reward(Job& job, const Entry& e) {
  if (flag_of(e)) set_method(job, "rm", e);
}

/// The plugin is on unless its own key says otherwise.
void axolotl_plugins(Job& job, const Entry& e) {
  for (const std::string& plugin : texts_of(e))
    if (plugin.ends_with("CutCrossEntropyPlugin")) job.set("@cut_cross_entropy", "true", e);
}

constexpr const char *kKernels = "kernels that keep other activations", *kSecond = "another training method",
                     *kExperts = "kernels of experts", *kVocabulary = "another vocabulary";

/// false, none and "" train without a second model.
bool trains_by_preferences(const Entry& e) {
  using Kind = runfile::Value::Kind;
  return e.value.kind != Kind::kNull && (e.value.kind != Kind::kBool || e.value.boolean) &&
         (e.value.kind != Kind::kText ||
          (!e.value.text.empty() && e.value.text != "none" && e.value.text != "false"));
}

void axolotl_rl(Job& job, const Entry& e) {
  if (trains_by_preferences(e)) set_method(job, text_of(e), e);
}

constexpr Rule kAxolotl[] = {
    {"base_model", Use::kCopy, kModel},
    {"sequence_len", Use::kCopy, "data.seq_len"},
    {"micro_batch_size", Use::kCopy, "train.micro_batch"},
    {"gradient_accumulation_steps", Use::kCopy, "train.grad_accum"},
    {"batch_size", Use::kCopy, kGlobalBatch},
    {"bf16", Use::kCustom, "train.precision", "", axolotl_bf16},
    {"bfloat16", Use::kCustom, "train.precision", "", axolotl_bf16},
    {"fp16", Use::kCustom, "train.precision", "", axolotl_fp16},
    {"float16", Use::kCustom, "train.precision", "", axolotl_fp16},
    {"float32", Use::kWhenTrue, "@not_bf16", "true"},
    {"gradient_checkpointing", Use::kCustom, "train.recompute", "", axolotl_checkpointing},
    {"gradient_checkpointing_kwargs.use_reentrant", Use::kChoice, "plan.checkpoint_reentrant",
     "true=true|false=false"},
    {"selective_checkpointing", Use::kNotModelled, "", "outputs of attention are kept"},
    {"selective_checkpointing.*", Use::kNotModelled, "", "outputs of some operators are kept"},
    {"activation_offloading", Use::kCustom, "plan.offload_activations", "", axolotl_offloading},
    {"layer_offloading", Use::kNotModelled, "", "weights of layers in host memory"},
    {"ple_cpu_offload", Use::kNotModelled, "", "embeddings in host memory"},
    {"optimizer", Use::kCustom, "optimizer.name", "", set_hugging_face_optimizer},
    {"adapter", Use::kCustom, "lora.base", "", axolotl_adapter},
    {"load_in_8bit", Use::kWhenTrue, "lora.base", "int8"},
    {"load_in_4bit", Use::kCustom, "lora.base", "", axolotl_nf4},
    {"lora_r", Use::kCopy, "lora.rank"},
    {"lora_alpha", Use::kCopy, "lora.alpha"},
    {"lora_dropout", Use::kCopy, "lora.dropout"},
    {"lora_target_modules", Use::kCustom, "lora.targets", "", axolotl_targets},
    {"lora_target_linear", Use::kCustom, "lora.targets", "", axolotl_all_linear},
    {"lora_target_parameters", Use::kNeedsMore, "",
     "adapters of single parameters, which each call copies as a whole"},
    {"peft_use_dora", Use::kWhenTrue, "lora.dora", "true"},
    {"peft_layers_to_transform", Use::kNotModelled, "", "adapters in some layers only"},
    {"lora_modules_to_save", Use::kCustom, "lora.modules_to_save", "", set_modules_to_save},
    {"lora_mlp_kernel", Use::kChoice, "@kernel_mlp", "true=mlp|false=none"},
    {"lora_qkv_kernel", Use::kChoice, "@kernel_qkv", "true=qkv|false=none"},
    {"lora_o_kernel", Use::kChoice, "@kernel_o", "true=o|false=none"},
    {"lora_embedding_kernel", Use::kNotModelled, "", kKernels},
    {"unsloth_*", Use::kNotModelled, "", kKernels},
    {"liger_fused_linear_cross_entropy", Use::kWhenTrue, "plan.cross_entropy", "liger"},
    // Either the key or the plugin switches on a loss without logits.
    {"plugins", Use::kCustom, "plan.cross_entropy", "", axolotl_plugins},
    {"cut_cross_entropy", Use::kChoice, "@cut_loss", "true=cut|false=plain"},
    {"chunked_cross_entropy", Use::kWhenTrue, "plan.cross_entropy", "fused"},
    {"liger_rope", Use::kWhenTrue, "@liger_rope", "true"},
    {"liger_rms_norm", Use::kWhenTrue, "@liger_rms_norm", "true"},
    {"liger_glu_activation", Use::kWhenTrue, "@liger_swiglu", "true"},
    {"liger_swiglu", Use::kWhenTrue, "@liger_swiglu", "true"},
    {"liger_*", Use::kNotModelled, "", kKernels},
    {"flash_attn_*", Use::kNotModelled, "", kKernels},
    {"fused_attn_kernel", Use::kNotModelled, "", kKernels},
    {"use_kernels", Use::kNotModelled, "", kKernels},
    {"tiled_mlp", Use::kNotModelled, "", "the MLP keeps activations of a part of the tokens"},
    // attn_implementation replaces one key per implementation; both are read.
    {"attn_implementation", Use::kCustom, "plan.attention", "", set_attention},
    {"flash_attention", Use::kWhenTrue, "plan.attention", "flash_attention_2"},
    {"sdp_attention", Use::kWhenTrue, "plan.attention", "flash"},
    {"flex_attention", Use::kWhenTrue, "plan.attention", "flash"},
    {"xformers_attention", Use::kWhenTrue, "plan.attention", "flash"},
    {"sage_attention", Use::kWhenTrue, "plan.attention", "flash"},
    {"flash_optimum", Use::kWhenTrue, "plan.attention", "flash"},
    {"eager_attention", Use::kWhenTrue, "plan.attention", "materialised"},
    {"s2_attention", Use::kNotModelled, "", "attention over parts of the sequence"},
    {"large_head_attention", Use::kNotModelled, "", kKernels},
    {"gemma4_hybrid_attn_impl", Use::kNotModelled, "", kKernels},
    {"scaling_softmax*", Use::kNotModelled, "", kKernels},
    {"tensor_parallel_size", Use::kCopy, "parallel.tensor"},
    {"context_parallel_size", Use::kCopy, "parallel.context"},
    {"sequence_parallel_degree", Use::kCopy, "parallel.context"},
    {"expert_parallel_size", Use::kCopy, "parallel.expert"},
    {"dp_shard_size", Use::kCopy, "@shard"},
    {"dp_replicate_size", Use::kCustom, "parallel.data", "",
     [](Job& j, const Entry& e) { set_replicas(j, e, "@replicate"); }},
    {"fsdp", Use::kCustom, "parallel.zero", "", axolotl_fsdp},
    // Three places for the version; it decides whose code shards (axolotl_ranks()).
    {"fsdp_version", Use::kCopy, "@version"},
    {"fsdp_config.version", Use::kCopy, "@version"},
    {"fsdp_config.fsdp_version", Use::kCopy, "@version"},
    {"deepspeed", Use::kCustom, "parallel.zero", "", [](Job&, const Entry&) {}},  // read_files() reads it
    {"deepcompile", Use::kNotModelled, "", "compiled graphs keep other activations"},
    {"ddp_bucket_cap_mb", Use::kCustom, "plan.ddp_bucket", "", set_ddp_bucket},
    {"torch_compile", Use::kNotModelled, "", "compiled graphs keep other activations"},
    // Training of some weights only: planned gradients and moments are those of all.
    {"unfrozen_parameters", Use::kNotModelled, "", "frozen weights have no gradients"},
    {"freeze_mm_modules", Use::kNotModelled, "", "frozen weights have no gradients"},
    {"spectrum_top_fraction", Use::kNotModelled, "", "frozen weights have no gradients"},
    {"lisa_n_layers", Use::kNotModelled, "", "frozen weights have no gradients"},
    {"relora", Use::kNotModelled, "", "adapters that are merged during training"},
    {"mora.*", Use::kNotModelled, "", "adapters of another form"},
    // Preference, reward and other training: a second model, or several rows per example.
    {"rl", Use::kCustom, kMethod, "", axolotl_rl},
    {"reward_model", Use::kCustom, "", "", axolotl_reward},
    {"process_reward_model", Use::kCustom, "", "", axolotl_reward},
    {"precompute_ref_log_probs", Use::kWhenTrue, "plan.reference_model", "false"},
    {"use_eaft", Use::kNotModelled, "", kSecond},
    {"trainer_cls", Use::kNotModelled, "", kSecond},
    {"ebft.*", Use::kNotModelled, "", kSecond},
    {"diffusion.*", Use::kNotModelled, "", kSecond},
    {"kd_*", Use::kNeedsMore, "", kSecond},
    {"hatchery.*", Use::kNotModelled, "", "training on another machine"},
    {"auto_find_batch_size", Use::kNotModelled, "", "the micro-batch may become smaller"},
    {"fp8", Use::kNotModelled, "", "8-bit products"},
    {"fp8_config.*", Use::kNotModelled, "", "8-bit products"},
    {"fp32_norms", Use::kNotModelled, "", "norms in fp32"},
    {"fp32_norm_classes", Use::kNotModelled, "", "norms in fp32"},
    // Weights that are stored in other types than bitsandbytes has.
    {"gptq", Use::kNotModelled, "", "weights of 4 bits by GPTQ"},
    {"qat.*", Use::kNotModelled, "", "simulated quantization"},
    {"quantization.*", Use::kNotModelled, "", "quantized weights"},
    {"llmcompressor.*", Use::kNotModelled, "", "sparse weights"},
    {"model_quantization_config*", Use::kNotModelled, "", "quantized weights"},
    {"nonexpert_quantization*", Use::kNotModelled, "", "quantized weights"},
    {"nvfp4_*", Use::kNotModelled, "", "quantized weights"},
    {"gemma4_*", Use::kNotModelled, "", "quantized weights"},
    // How experts compute: which copies of rows and weights exist.
    {"dsv4_*", Use::kNotModelled, "", kExperts},
    {"quantize_moe_experts", Use::kChoice, "plan.quant_experts", "true=true|false=false"},
    {"moe_bnb_fast", Use::kNotModelled, "", kExperts},
    {"moe_grouped_backend", Use::kNotModelled, "", kExperts},
    {"expert_backend", Use::kNotModelled, "", kExperts},
    {"experts_implementation", Use::kNotModelled, "", kExperts},
    {"use_scattermoe", Use::kNotModelled, "", kExperts},
    {"use_sonicmoe", Use::kNotModelled, "", kExperts},
    {"use_dsv4_kernels", Use::kNotModelled, "", kExperts},
    {"use_glm_dsa_kernels", Use::kNotModelled, "", kExperts},
    // Each expert is a linear layer, which bitsandbytes quantizes.
    {"llama4_linearized_experts", Use::kWhenTrue, "plan.quant_experts", "true"},
    {"resize_token_embeddings_to_32x", Use::kNotModelled, "", kVocabulary},
    {"bnb_config_kwargs.bnb_4bit_compute_dtype", Use::kCustom, "plan.quant_compute", "", set_product_type},
    {"bnb_config_kwargs.*", Use::kNotModelled, "nf4|fp4|true|True", "an argument of BitsAndBytesConfig"},
    {"overrides_of_model_config.*", Use::kNotModelled, "", "fields of the model"},
    {"overrides_of_model_kwargs.*", Use::kNotModelled, "", "fields of the model"},
    {"model_config.*", Use::kNotModelled, "", "fields of the model"},
};
/// Data sets and their templates, evaluation, checkpoints, trackers, other trainers' values (kto_*,
/// orpo_alpha), and the details of what is not modelled anyway. Keys of TrainingArguments that axolotl passes
/// on come after these.
constexpr const char* kAxolotlWithoutEffect =
    "added_tokens_overrides* auto_resume_from_checkpoints axolotl_config_path base_model_* "
    "batch_flattening bench_* center_rewards_coefficient chat_template* "
    "chunked_cross_entropy_num_chunks cls_model_config comet_* cosine_constant_lr_ratio "
    "cosine_min_lr_ratio cpo_alpha curriculum_sampling dataset_* datasets* ddp default_system_message "
    "dense_mixer device device_map dion_* do_bench_eval do_causal_lm_eval dpo_* dynamic_checkpoint.* "
    "eaft_* early_stopping_patience embedding_lr embedding_lr_scale embeddings_skip_upcast eot_tokens "
    "eta_min evals_per_epoch evaluation_strategy excess_length_strategy "
    "experimental_skip_move_to_device expert_parallel_* fix_untrained_tokens flash_attn_d512 "
    "flex_attn_compile_kwargs.* fp8_enable_fsdp_float8_all_gather fsdp_config "
    "fsdp_final_state_dict_type gc_collect_steps gc_steps generate_samples generation_* "
    "gptq_* gpu_memory_limit gradio_* grokfast_* group_by_length heads_k_stride hf_* "
    "image_resize_algorithm image_size include_tkps is_* jagged_* kto_* lisa_layers_attribute "
    "lisa_step_interval lm_eval_* load_best_model_at_end local_rank lora_alpha_pattern "
    "lora_fan_in_fan_out lora_model_dir lora_on_cpu lora_rank_pattern loraplus_* loss_watchdog_* "
    "low_cpu_mem_usage lr_div_factor lr_groups* lr_quadratic_warmup lr_scheduler max_memory* "
    "max_packed_sequence_len max_prompt_len mean_resizing_embeddings merge_lora merge_method "
    "min_sample_len mlflow_* model_type moe_dequant_chunk_size multipack_real_batches nemo_gym_* "
    "noisy_embedding_alpha num_dataset_shards_to_save num_epochs num_generation_samples num_labels "
    "optim_args* orpo_alpha otel_metrics_* output_dir pad_to_multiple_of pad_to_sequence_len peft.* "
    "peft_* pose_* preprocess_iterable pretrain_multipack_* "
    "pretraining_dataset* pretraining_sample_concatenation processor_kwargs.* processor_type "
    "profiler_steps profiler_steps_start push_dataset_to_hub qgalore_* qlora_sharded_model_loading "
    "ray_num_workers ray_run_name reinit_weights relora_cpu_offload relora_prune_* "
    "resources_per_worker.* revision_of_model ring_attn_func rl_beta role_boundaries* rope_scaling* "
    "rpo_alpha sample_packing* save_* saves_per_epoch sdpa_varlen shrink_embeddings shuffle_* "
    "simpo_gamma skip_prepare_dataset special_tokens* spectrum_model_name streaming "
    "streaming_multipack_buffer_size strict swanlab_* test_datasets* tiled_mlp_* tokenizer_* tokens* "
    "torchdistx_path total_num_tokens total_supervised_tokens train_on_inputs trl.* trust_remote_code "
    "type_of_model use_comet use_mlflow use_onebitllms use_otel_metrics use_pose use_ray use_swanlab "
    "use_tensorboard use_trackio use_wandb val_set_size vllm.* wandb_* warmup_* world_size";

/// Without an adapter the keys of LoRA mean nothing.
void axolotl_types(Job& job) {
  // Order of axolotl: bf16 if it is given, then fp16, then the default bf16: auto.
  if (!job.find("train.precision")) {
    if (const Given* fp16 = job.find("@fp16"))
      job.set_default("train.precision", "fp16", *fp16);
    else if (!job.find("@not_bf16"))
      job.set_default("train.precision", "bf16", "default of axolotl (bf16: auto)");
  }
  if (job.find("@adapter"))
    job.erase("plan.moments");  // those of the adapters are f32 anyway
  else
    job.erase_if([](const std::string& key) { return key.starts_with("lora."); });
  // The model is loaded in the type of the computation, so nothing is in f32.
  const Given* type = job.find("train.precision");
  if (type && !job.find("@adapter")) {
    const std::string narrow_type = type->value;
    for (const char* key : {"plan.weights", "plan.gradients", "plan.moments"})
      job.set_default(key, narrow_type, "default of axolotl");
    job.set_default("plan.master", "none", "default of axolotl");
  }
}

/// One key of axolotl per kernel of Liger.
void axolotl_liger(Job& job) {
  std::string kernels;
  const Given* from = nullptr;
  for (const char* name : {"rope", "rms_norm", "swiglu"})
    if (const Given* given = job.find(std::string("@liger_") + name)) {
      from = given;
      kernels += (kernels.empty() ? "" : ",") + std::string(name);
    }
  if (from) job.set_default("plan.liger_kernels", kernels, Given(*from));
  job.erase_if([](const std::string& key) { return key.starts_with("@liger_"); });
}

/// check_auto_enable_lora_kernels(): axolotl switches its kernels of adapters on unless the file has a key of
/// one of them, the base is in 8 bits, or it trains by another method or with code of the model.
void axolotl_adapter_kernels(Job& job, const Entries& entries) {
  std::string kernels;
  const Given* from = nullptr;
  for (const char* name : {"mlp", "qkv", "o"})
    if (const Given* given = job.find(std::string("@kernel_") + name)) {
      from = given;
      if (given->value != "none") kernels += (kernels.empty() ? "" : ",") + given->value;
    }
  if (job.find("@adapter")) {
    using Kind = runfile::Value::Kind;
    const Given* base = job.find("lora.base");
    const auto off = std::ranges::find_if(entries, [&](const Entry& e) {
      const runfile::Value& v = e.value;
      if (e.key == "rl") return v.kind == Kind::kText && !v.text.empty();
      if (e.key == "lora_embedding_kernel") return v.kind == Kind::kBool;
      if (e.key == "load_in_8bit") return base && base->value == "int8";
      return e.key == "trust_remote_code" && v.kind == Kind::kBool && v.boolean;
    });
    if (from)
      job.set_default("plan.adapter_kernels", kernels.empty() ? "none" : kernels, Given(*from));
    else if (off != entries.end())
      job.set_default("plan.adapter_kernels", "none", *off);
  }
  job.erase_if([](const std::string& key) { return key.starts_with("@kernel_"); });
}

/// Checkpoints are reentrant unless a file says otherwise, trains by another method or freezes some weights.
void axolotl_checkpoints(Job& job, const Entries& entries) {
  const auto other = std::ranges::find_if(entries, [](const Entry& e) {
    return e.key == "unfrozen_parameters" ? e.value.kind != runfile::Value::Kind::kNull
                                          : e.key == "rl" && trains_by_preferences(e);
  });
  if (other != entries.end() && job.find("train.recompute"))
    job.set_default("plan.checkpoint_reentrant", "false", *other);
}

void axolotl_ranks(Job& job, const Entries& entries) {
  const auto ranks = [&](const char* key) { return job.find(key) ? count_of(*job.find(key)) : 1; };
  const std::uint64_t shard = ranks("@shard"), data = shard * ranks("@replicate");
  const Given* from = job.find(shard > 1 ? "@shard" : "@replicate");
  if (from && data > 1) job.set_default("parallel.data", std::to_string(data), *from);
  // A table of settings switches FSDP on, and so does dp_shard_size.
  const auto table = std::ranges::find_if(entries, [](const Entry& e) {
    return e.key.starts_with("fsdp_config.") && e.value.kind != runfile::Value::Kind::kNull;
  });
  if (table != entries.end()) job.set_default(kFsdp, "true", *table);
  if (shard > 1) job.set_default(kFsdp, "true", *job.find("@shard"));
  finish_fsdp(job, job.find(kFsdp));
  // Version 2 is axolotl's own code, which keeps the type of the weights.
  const Given *version = job.find("@version"), *type = job.find("train.precision");
  if (type && type->value != "fp32" && !(version && version->value == "2")) {
    job.set_default(kMixed, type->value, *type);
    hold_weights_of_fsdp_in_f32(job);
  }
}

}  // namespace

void read_axolotl(const Entries& entries, Job& job) {
  job.framework = "axolotl";
  apply_rules({{kAxolotl, kAxolotlWithoutEffect},
               fsdp_rules("fsdp_config.fsdp_"),
               fsdp_rules("fsdp_config."),
               training_arguments_without_effect()},
              entries, job);
  axolotl_quantized_base(job, entries);
  axolotl_types(job);
  axolotl_offloaded_adapters(job);
  if (const Given* loss = job.find("@cut_loss"))
    job.set_default("plan.cross_entropy", loss->value, *loss);
  else if (const Given* plugin = job.find("@cut_cross_entropy"))
    job.set_default("plan.cross_entropy", "cut", *plugin);
  axolotl_liger(job);
  axolotl_adapter_kernels(job, entries);
  axolotl_checkpoints(job, entries);
  axolotl_ranks(job, entries);
  for (const char* key : {"@cut_loss", "@cut_cross_entropy", "@adapter", "@all_linear", "@fp16", "@not_bf16",
                          "@shard", "@replicate"})
    job.erase(key);
  // set_pytorch_cuda_alloc_conf(), which also rounds sizes with torch before 2.9.
  job.set_default(kAllocatorOfFramework, "expandable_segments:True", "axolotl sets it");
  job.set_default("train.precision", "fp32", "bf16: false");
  finish_product_type(job);
  job.set_default("train.micro_batch", "1", "default of axolotl");
  job.set_default("data.seq_len", "512", "default of axolotl");
  job.set_default("plan.cross_entropy", "plain", "default of transformers");
}

}  // namespace trainhost::framework_files
