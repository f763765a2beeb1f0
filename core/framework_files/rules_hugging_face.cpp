// Jobs of transformers and TRL as JSON or YAML: TrainingArguments (shared_rules.cpp), SFTConfig and
// ModelConfig of TRL (0.12 to 1.16), and the YAML of `accelerate config` (1.15).
#include <algorithm>
#include <array>

#include "core/framework_files/rules.hpp"

namespace trainhost::framework_files {
namespace {

using runfile::Entry;

/// The type in which the model is loaded. "auto" is that of the checkpoint: bf16 for the models of today.
void trainer_type(Job& job, const Entry& e) {
  const std::string word = text_of(e);
  if (word == "auto" || word == "bfloat16" || word == "bf16")
    job.set("@loaded", "bf16", e);
  else if (word == "float16" || word == "fp16")
    job.set("@loaded", "fp16", e);
  else if (word == "float32" || word == "fp32")
    job.set("@loaded", "fp32", e);
  else
    reject_value(e, "auto, bfloat16, float16 or float32");
}

// For keys of trainers that are planned as SFT. Trainers of pairs are planned as DPO (set_method()), and a
// file that gives `beta` is one of those where no other key speaks against it (trl_method()).
constexpr const char* kOtherTrainer = "another training method, perhaps with a second model";
/// `beta`, until trl_method() knows what it means.
constexpr const char* kBeta = "@beta";

/// A loss of SFTTrainer.
constexpr const char* kSftLoss = "@sft_loss";

/// All but eager compute attention in blocks, also a kernel of the Hub ("kernels-community/flash-attn").
void trl_attention(Job& job, const Entry& e) {
  const std::string word = text_of(e);
  if (word.empty() || word == "null" || word == "None") return;
  std::string kind = word.substr(word.find('|') == word.npos ? 0 : word.find('|') + 1);  // "paged|eager"
  if (kind.ends_with("_paged")) kind.erase(kind.size() - 6);
  if (kind == "eager") return job.set("plan.attention", "materialised", e);
  if (kind != "sdpa" && !kind.starts_with("flash_attention") && kind != "flex_attention" &&
      kind.find('/') == kind.npos)
    reject_value(e,
                 "eager, sdpa, flash_attention_2, flash_attention_3, flex_attention or a kernel of the Hub");
  job.set("plan.attention", kind.starts_with("flash_attention") ? "flash_attention_2" : "flash", e);
}

/// The weight of the reference model in DPO and GRPO; at 0 there is none. KTO, CPO and ORPO have the key too:
/// trl_method() decides when all keys are read.
void trl_beta(Job& job, const Entry& e) {
  using Kind = runfile::Value::Kind;
  if ((e.value.kind == Kind::kInteger || e.value.kind == Kind::kNumber) && e.value.number == 0) return;
  job.set_default(kBeta, "true", e);
}

void trl_rewards(Job& job, const Entry& e) {
  // Off, or a list without an item.
  const bool off = (e.value.kind == runfile::Value::Kind::kBool && !e.value.boolean) ||
                   (e.value.kind == runfile::Value::Kind::kList && e.value.items.empty());
  if (!off) set_method(job, "grpo", e);
}

/// Losses of SFT; those of the other trainers are read as another training method.
void trl_loss(Job& job, const Entry& e) {
  constexpr std::array kOther{"sigmoid", "hinge", "ipo", "exo_pair", "nca_pair", "robust", "bco_pair",
                              "sppo_hard", "aot", "aot_pair", "aot_unpaired", "discopop", "apo_zero",
                              "apo_down", "apo_zero_unpaired", "sigmoid_norm", "sft", "kto", "bco", "simpo",
                              "alphapo", "grpo", "bnpo", "dr_grpo", "dapo", "cispo", "sapo", "luspo", "vespo",
                              // open-instruct's names of losses of DPO
                              "dpo", "dpo_norm", "wpo"};
  const std::vector<std::string> names = texts_of(e);
  for (const std::string& name : names) {
    // Since 1.15 all three are computed with the fused head.
    if (name == "nll" || name == "dft" || name == "chunked_nll") {
      job.set_default(kSftLoss, "true", e);
    } else if (std::ranges::find(kOther, name) != kOther.end()) {
      set_method_of_loss(job, name, e);
    } else {
      reject_value(e, "a loss of TRL: nll, dft, chunked_nll, or one of DPO or GRPO");
    }
  }
}

/// A script may give another class than BitsAndBytesConfig; null is none.
void trl_quantization(Job& job, const Entry&) {
  job.not_modelled = "weights that are quantized otherwise than by bitsandbytes";
  job.needs_more = true;
}

constexpr Rule kTrl[] = {
    // SFTConfig: max_seq_length before 0.16, max_length since.
    {"max_length", Use::kCopy, "data.seq_len"},
    {"max_seq_length", Use::kCopy, "data.seq_len"},
    // Other trainers of TRL.
    {"beta", Use::kCustom, kMethod, "", trl_beta},
    {"num_generations", Use::kCustom, kMethod, "", trl_rewards},
    {"reward_*", Use::kCustom, kMethod, "", trl_rewards},
    {"precompute_ref_log_probs", Use::kWhenTrue, "plan.reference_model", "false"},
    {"teacher_*", Use::kNeedsMore, "", kOtherTrainer},
    {"sync_ref_model", Use::kNeedsMore, "", kOtherTrainer},
    {"center_rewards_coefficient", Use::kNotModelled, "", kOtherTrainer},
    {"use_vllm", Use::kNeedsMore, "", "another program may use memory of the same device"},
    {"block_size", Use::kCopy, "data.seq_len"},  // of the example scripts of transformers
    {"config_overrides", Use::kNotModelled, "", "fields of the model"},
    {"activation_offloading", Use::kWhenTrue, "plan.offload_activations", "cpu"},
    {"loss_type", Use::kCustom, "plan.cross_entropy", "", trl_loss},
    // ModelConfig and ScriptArguments, which the scripts of TRL read from the same file.
    {"use_peft", Use::kWhenTrue, "@peft", "true"},
    {"lora_r", Use::kCopy, "lora.rank"},
    {"lora_alpha", Use::kCopy, "lora.alpha"},
    {"lora_dropout", Use::kCopy, "lora.dropout"},
    {"lora_target_modules", Use::kCustom, "lora.targets", "", set_lora_targets},
    {"lora_target_parameters", Use::kNeedsMore, "",
     "adapters of single parameters, which each call copies as a whole"},
    {"lora_modules_to_save", Use::kCustom, "lora.modules_to_save", "", set_modules_to_save},
    {"use_dora", Use::kWhenTrue, "lora.dora", "true"},
    {"load_in_4bit", Use::kWhenTrue, "lora.base", "nf4"},
    {"load_in_8bit", Use::kWhenTrue, "lora.base", "int8"},
    {"quantization_config", Use::kCustom, "lora.base", "", trl_quantization},
    {"use_bnb_nested_quant", Use::kWhenTrue, "lora.double_quant", "true"},
    {"bnb_4bit_quant_storage", Use::kChoice, "plan.quant_storage",
     "uint8=uint8|bfloat16=compute|float16=compute"},
    // Scores exist in eager attention only.
    {"attn_implementation", Use::kCustom, "plan.attention", "", trl_attention},
    {"dtype", Use::kCustom, "plan.weights", "", trainer_type},
    {"torch_dtype", Use::kCustom, "plan.weights", "", trainer_type},
    {"model_init_kwargs.dtype", Use::kCustom, "plan.weights", "", trainer_type},
    {"model_init_kwargs.torch_dtype", Use::kCustom, "plan.weights", "", trainer_type},
    {"model_init_kwargs.attn_implementation", Use::kCustom, "plan.attention", "", trl_attention},
    {"model_init_kwargs.*", Use::kNotModelled, "", "an argument of from_pretrained()"},
};
/// BitsAndBytesConfig of transformers, as arguments of from_pretrained() have it.
constexpr Rule kBitsAndBytes[] = {
    {"load_in_4bit", Use::kWhenTrue, "lora.base", "nf4"},
    {"load_in_8bit", Use::kWhenTrue, "lora.base", "int8"},
    {"bnb_4bit_use_double_quant", Use::kWhenTrue, "lora.double_quant", "true"},
    {"bnb_4bit_quant_storage", Use::kChoice, "plan.quant_storage",
     "uint8=uint8|bfloat16=compute|float16=compute"},
    {"bnb_4bit_compute_dtype", Use::kCustom, "plan.quant_compute", "", set_product_type},
    {"llm_int8_threshold", Use::kNotModelled, "6|6.0", "another number of columns with outliers"},
    {"llm_int8_has_fp16_weight", Use::kNotModelled, "", "weights in f16"},
    {"llm_int8_skip_modules", Use::kNotModelled, "", "matrices that are not quantized"},
    {"llm_int8_enable_fp32_cpu_offload", Use::kNotModelled, "", "weights in host memory"},
};
constexpr const char* kBitsAndBytesWithoutEffect =
    "quant_method _load_in_4bit _load_in_8bit bnb_4bit_quant_type";

/// Data and its columns, packing (rows are planned with max_length tokens either way), generation in other
/// trainers, values of their losses.
constexpr const char* kTrlWithoutEffect =
    "assistant_only_loss bnb_4bit_quant_type cache_dir cache_implementation "
    "cast_lm_head_to_fp32 chars_per_token chat_template_kwargs* chat_template_path completion_only_loss "
    "config_name dataset_batch_size dataset_config dataset_config_name dataset_kwargs* dataset_name "
    "dataset_num_proc dataset_streaming dataset_test_split dataset_text_field dataset_train_split "
    "datasets* delta desirable_weight disable_dropout discopop_tau ds3_gather_for_generation entropy_* "
    "eos_token epsilon epsilon_high eval_packing f_alpha_divergence_coef f_divergence_type "
    "ignore_bias_buffers importance_sampling_level keep_linebreaks label_smoothing ld_alpha "
    "log_completions log_completions_hub_repo log_multimodal log_unique_prompts "
    "lora_task_type loss_weights low_cpu_mem_usage mask_truncated_completions max_completion_length "
    "max_eval_samples max_prompt_length max_tool_calling_iterations max_train_samples min_p "
    "model_revision model_type multi_objective_aggregation normalize_advantages "
    "num_completions_to_print num_generations_eval num_iterations num_of_sequences "
    "off_policy_mask_threshold overwrite_cache packing packing_strategy pad_to_multiple_of pad_token "
    "padding_free precompute_ref_batch_size preprocessing_num_workers "
    "ref_model_mixup_alpha ref_model_sync_steps repetition_penalty router_aux_loss_coef sapo_* "
    "scale_rewards shuffle_dataset steps_per_generation streaming temperature test_split_size token "
    "tokenizer_name top_entropy_quantile top_k top_p train_file "
    "transformers_continuous_batching_config* truncation_mode trust_remote_code undesirable_weight "
    "use_adaptive_entropy use_bias_correction_kl use_fast_tokenizer use_rslora "
    "use_transformers_continuous_batching use_transformers_paged use_weighting validation_file "
    "validation_split_percentage vespo_* vllm_*";

/// The name of the length in TRL before 0.20.
bool has_old_length(const Entries& entries) {
  return std::ranges::any_of(entries, [](const Entry& e) { return e.key == "max_seq_length"; });
}

/// A key that TrainingArguments do not have. TRL before 0.20 names the length max_seq_length, and has the
/// defaults of TrainingArguments.
const Entry* key_of_trl(const Entries& entries) {
  constexpr const char* kKeys[] = {"max_length",         "packing",          "dataset_name",
                                   "dataset_text_field", "use_peft",         "completion_only_loss",
                                   "padding_free",       "packing_strategy", "assistant_only_loss"};
  const auto named = [&](const char* key) {
    return std::ranges::find_if(entries, [&](const Entry& e) { return e.key == key; });
  };
  // The example scripts of transformers have a dataset_name too, and open-instruct a packing.
  for (const char* key : {"max_seq_length", "block_size", "with_tracking", "dataset_mixer_list"})
    if (named(key) != entries.end()) return nullptr;
  for (const char* key : kKeys)
    if (const auto found = named(key); found != entries.end()) return &*found;
  return nullptr;
}

/// The fused head of TRL 1.15 and newer, the newest release that plans describe. Not where that release
/// computes all logits (label smoothing) or stops with an error (adapters of the head), not for trainers
/// without it (CPO), and not beside an option that names a release of transformers.
void set_head_of_trl(Job& job, const Entries& entries, const PinnedReleases& pins) {
  const auto given = [&](std::string_view key, auto holds) {
    return std::ranges::any_of(entries, [&](const Entry& e) { return e.key == key && holds(e.value); });
  };
  const auto number_above_0 = [](const runfile::Value& v) { return v.number > 0; };
  const auto any = [](const runfile::Value& v) { return v.kind != runfile::Value::Kind::kNull; };
  const Given* targets = job.find("lora.targets");
  const bool without_pairs =
      job.find("plan.method") && !given("precompute_ref_log_probs", any) && job.find("plan.reference_model");
  if (given("label_smoothing_factor", number_above_0) || given("cpo_alpha", any) ||
      given("simpo_gamma", any) || without_pairs ||
      (targets && targets->value.find("lm_head") != std::string::npos) ||
      job.is_option("plan.framework_version") || pins.transformers_4 || !pins.has_trl(1, 7) ||
      (job.find("plan.method") && !pins.has_trl(1, 15)))
    return;
  // use_liger_kernel switches on the kernels of the layers alone.
  if (const Given* liger = job.find("plan.cross_entropy");
      liger && liger->value == "liger" && !job.is_option("plan.cross_entropy")) {
    const Given from = *liger;
    job.erase("plan.cross_entropy");
    job.set_default("plan.liger_kernels", "rope,rms_norm,swiglu", from);
  }
  job.set_default("plan.cross_entropy", "fused", "default of TRL 1.15 and newer");
}

/// SFTConfig: bf16 since 0.19, recomputation since 0.22, f32 models (dtype) since 0.27, 1,024 tokens since
/// 0.15. loaded: the script loads the model itself, whose type is not the default of TRL.
void set_trl_defaults(Job& job, bool loaded, const PinnedReleases& pins) {
  if (pins.has_trl(0, 19) && !job.find("@not_bf16") && !job.find("train.precision")) {
    job.set_default("train.precision", "bf16", "default of TRL");
    job.set_default("plan.weights", "fp32", "default of TRL");
    job.set_default("plan.master", "none", "default of TRL");
    job.set_default(kMixed, "bf16", "default of TRL");
  }
  if (pins.has_trl(0, 22) && !job.find(kNoRecompute))
    job.set_default("train.recompute", "full", "default of TRL");
  if (pins.has_trl(0, 27) && job.find("@peft") && !loaded)
    job.set_default("lora.base", "fp32", "default of TRL");
}

/// from_pretrained() of transformers 5 loads a model in the type of its checkpoint, which is assumed to be
/// bf16. With fp16 the model must be in f32. TRL has its own default; files with max_seq_length are of TRL
/// before 0.20, which used transformers 4 (f32). Under DeepSpeed without bf16 and fp16 the model is cast to
/// f32; its file may be read later (kByCheckpoint).
void set_type_of_checkpoint(Job& job, const Entries& entries, bool trl, const PinnedReleases& pins) {
  const auto given = [&](std::string_view key) {
    return std::ranges::any_of(entries, [&](const Entry& e) { return e.key.starts_with(key); });
  };
  const Given* mixed = job.find(kMixed);
  if (mark_of(entries, "@@model_object")) {  // of a script, which gives the trainer a loaded model
    const Given* base = job.find("lora.base");
    if (pins.transformers_4 && !base) return job.set_default("@loaded", "fp32", "default of transformers 4");
    constexpr const char* kStored = "transformers 5 loads a model as it is stored, assumed to be in 16 bits";
    if (mixed && mixed->value == "fp16" && !job.find("@peft")) return;
    job.set_default("@loaded", mixed ? mixed->value : "bf16", kStored);
    if (!mixed) job.set_default(kByCheckpoint, "true", "transformers 5");
    return;
  }
  if (trl || job.find("@peft") || given("max_seq_length") || pins.transformers_4) return;
  if (mixed ? mixed->value != "bf16"
            : given("deepspeed") || job.framework == "deepspeed" || job.find("train.precision"))
    return;
  job.set_default("@loaded", "bf16", "transformers 5 loads a model as it is stored, assumed to be in bf16");
  if (!mixed) job.set_default(kByCheckpoint, "true", "transformers 5");
}

/// What is known of a trainer beside its keys. script: the calls of a Python script are known. prepared: it
/// calls prepare_model_for_kbit_training(), which casts what is not quantized to f32.
struct Trainer {
  bool trl = false, script = false, prepared = false;
};

/// With adapters, the frozen weights have the type in which the model is loaded; otherwise all tensors that
/// the optimizer updates have it, also under autocast. SFTTrainer leaves the embedding, the norms and the
/// head of a quantized model as they are loaded, and casts the adapters to bf16.
void trainer_loaded_type(Job& job, const Trainer& trainer) {
  // TRL reads the LoRA keys of ModelConfig only with use_peft.
  const bool adapters = job.find("@peft") || job.is_option("lora.rank");
  const Given* base = job.find("lora.base");
  const bool quantized = adapters && base && (base->value == "nf4" || base->value == "int8");
  const bool casts_adapters = trainer.trl && quantized;
  const bool keeps_type = quantized && !trainer.prepared && (trainer.trl || trainer.script);
  if (adapters) {
    job.set_default("lora.rank", "16", "default of TRL");
    job.set_default("lora.alpha", "32", "default of TRL");
    job.set_default("lora.dropout", "0.05", "default of TRL");
  } else {
    refuse_trained_quantized_weights(job, "add use_peft: true, or --set lora.rank=16; or load it in 16 bits");
    job.erase_if([](const std::string& key) { return key.starts_with("lora."); });
  }
  if (const Given* loaded = job.find("@loaded")) {
    const Given type = *loaded;
    const bool narrow = type.value != "fp32";
    if (narrow || adapters)
      for (const char* key : {"plan.weights", "plan.master"}) job.erase(key);
    if (adapters)
      job.set_default("lora.base", type.value, type);
    else if (narrow)
      for (const char* key : {"plan.weights", "plan.gradients", "plan.moments"})
        job.set_default(key, type.value, type);
    if (narrow) job.set_default("train.precision", type.value, type);
    if (narrow && (!adapters || keeps_type)) job.set_default("plan.master", "none", type);
  } else if (adapters) {
    for (const char* key : {"plan.weights", "plan.master"}) job.erase(key);
  }
  if (casts_adapters) job.set_default("plan.gradients", "bf16", "default of TRL");
  job.erase("@peft"), job.erase("@loaded");
}

void accelerate_distribution(Job& job, const Entry& e) { job.set("@distributed", text_of(e), e); }

constexpr Rule kAccelerate[] = {
    {"num_processes", Use::kCopy, kRanks},
    {"distributed_type", Use::kCustom, "", "", accelerate_distribution},
    {"mixed_precision", Use::kCustom, "train.precision", "", set_accelerate_precision},
    {"gradient_accumulation_steps", Use::kCopy, "train.grad_accum"},
    {"parallelism_config.parallelism_config_tp_size", Use::kCopy, "parallel.tensor"},
    {"parallelism_config.parallelism_config_cp_size", Use::kCopy, "parallel.context"},
    {"parallelism_config.parallelism_config_sp_size", Use::kCopy, "parallel.context"},
    {"parallelism_config.parallelism_config_dp_replicate_size", Use::kCustom, "", "",
     [](Job& j, const Entry& e) { set_replicas(j, e, "@replicate"); }},
    {"dynamo_backend", Use::kNotModelled, "NO|no", "compiled graphs keep other activations"},
    {"dynamo_config.dynamo_backend", Use::kNotModelled, "NO|no", "compiled graphs keep other activations"},
    {"fp8_config.*", Use::kNotModelled, "", "8-bit products of TransformerEngine, torchao or MS-AMP"},
    {"kt_config.*", Use::kNotModelled, "", "experts in host memory"},
};
/// Launching.
constexpr const char* kAccelerateWithoutEffect =
    "command_file commands compute_environment debug ec2_instance_type iam_role_name downcast_bf16 "
    "dynamo_config dynamo_config.dynamo_mode dynamo_config.dynamo_use_dynamic "
    "dynamo_config.dynamo_use_fullgraph dynamo_config.dynamo_use_regional_compilation enable_cpu_affinity "
    "gpu_ids ipex_config.* machine_rank main_process_ip main_process_port main_training_function "
    "mpirun_config.* num_machines parallelism_config parallelism_config.parallelism_config_cp_backend "
    "parallelism_config.parallelism_config_cp_comm_strategy "
    "parallelism_config.parallelism_config_dp_shard_size "
    "parallelism_config.parallelism_config_sp_attn_implementation "
    "parallelism_config.parallelism_config_sp_backend parallelism_config.parallelism_config_sp_seq_length "
    "parallelism_config.parallelism_config_sp_seq_length_is_variable pow_config.* rdzv_backend same_network "
    "tpu_* use_cpu "
    "deepspeed_config fsdp_config megatron_lm_config";
/// A file may have the tables of all types, and accelerate uses the one of distributed_type.
constexpr RuleSet kOtherThanDeepSpeed{{}, "deepspeed_config.*"}, kOtherThanFsdp{{}, "fsdp_config.*"},
    kOtherThanMegatron{{}, "megatron_lm_config.*"};

constexpr Rule kAccelerateDeepSpeed[] = {
    {"zero_stage", Use::kCopy, "parallel.zero"},
    {"offload_optimizer_device", Use::kChoice, "plan.offload_optimizer", "none=|cpu=cpu|nvme=nvme"},
    {"offload_param_device", Use::kChoice, "plan.offload_weights", "none=|cpu=cpu|nvme=nvme"},
    {"gradient_accumulation_steps", Use::kCopy, "train.grad_accum"},
    {"deepspeed_config_file", Use::kCustom, "parallel.zero", "", [](Job&, const Entry&) {}},
};
constexpr const char* kAccelerateDeepSpeedWithoutEffect =
    "deepspeed_exclusion_filter deepspeed_hostfile deepspeed_inclusion_filter deepspeed_moe_layer_cls_names "
    "deepspeed_multinode_launcher gradient_clipping offload_optimizer_nvme_path offload_param_nvme_path "
    "seq_parallel_communication_data_type zero3_init_flag zero3_save_16bit_model";

constexpr Rule kAccelerateMegatron[] = {
    {"megatron_lm_tp_degree", Use::kCopy, "parallel.tensor"},
    {"megatron_lm_pp_degree", Use::kCopy, "parallel.pipeline"},
    {"megatron_lm_sequence_parallelism", Use::kWhenTrue, "parallel.sequence", "true"},
    {"megatron_lm_use_distributed_optimizer", Use::kWhenTrue, "parallel.zero", "1"},
    {"megatron_lm_recompute_activations", Use::kWhenTrue, "train.recompute", "selective"},
    {"megatron_lm_gradient_clipping", Use::kNoEffect},
    {"*", Use::kNotModelled, "", "Megatron-LM under accelerate"},
};

/// A key that only trainers other than that of DPO have beside `beta`: KTO, GRPO, CPO, distillation.
bool of_other_trainer(const Entry& e) {
  constexpr std::array kOther{"desirable_weight", "undesirable_weight", "use_vllm",   "num_iterations",
                              "num_generations",  "cpo_alpha",          "simpo_gamma"};
  return e.value.kind != runfile::Value::Kind::kNull &&
         (std::ranges::find(kOther, e.key) != kOther.end() || e.key == "@@method" ||
          e.key.starts_with("epsilon") || e.key.starts_with("reward_") || e.key.starts_with("teacher_"));
}

/// Takes a file with `beta` as one of DPO if neither its loss nor another key tells the method.
void trl_method(Job& job, const Entries& entries) {
  const Given* beta = job.find(kBeta);
  if (!beta) return;
  const Given from = *beta;
  job.erase(kBeta);
  if (job.find("plan.method")) return;
  const bool other = std::ranges::any_of(entries, [](const Entry& e) {
    return (e.key == "loss_type" && e.value.kind != runfile::Value::Kind::kNull) || of_other_trainer(e);
  });
  if (!other) job.set_default("plan.method", "dpo", from);
  const auto key = std::ranges::find_if(job.keys, [&](const runfile::FileKey& k) {
    return k.key == from.key && k.where.line == from.where.line;
  });
  if (key == job.keys.end()) return;
  key->use = runfile::KeyUse::kNotModelled;
  key->note = other ? kOtherTrainer : "no key names the training method; taken as DPO, which has this key";
  key->needs_more = other;
}

/// Training methods that generate the sequences that they train on.
bool generates(const Entry* method) {
  constexpr std::array kMethods{"grpo", "rloo", "ppo", "online_dpo", "xpo", "nash_md", "gkd"};
  return method && std::ranges::find(kMethods, method->value.text) != kMethods.end();
}

/// Prompts and completions of at most these lengths make a sequence. TRL 0.28 has no length of prompts.
void set_generated_length(Job& job, const Entries& entries) {
  const auto find = [&](const char* key) { return std::ranges::find(entries, key, &Entry::key); };
  const auto prompt = find("max_prompt_length"), completion = find("max_completion_length");
  const auto whole = [&](const auto& e) {
    return e != entries.end() && e->value.kind == runfile::Value::Kind::kInteger && e->value.integer > 0 &&
           e->value.integer < (1 << 30);
  };
  if (whole(prompt) && whole(completion))
    job.set_default("data.seq_len", std::to_string(prompt->value.integer + completion->value.integer),
                    *completion);
}

/// `script`: the options of a shell script, which has those of a launcher too.
void read_trainer(const Entries& entries, Job& job, bool script) {
  job.framework = "transformers";
  apply_rules({{kBitsAndBytes, kBitsAndBytesWithoutEffect, "model_init_kwargs.quantization_config."},
               {kBitsAndBytes, kBitsAndBytesWithoutEffect, "quantization_config."},
               training_script_rules(),
               python_load_rules("model_init_kwargs."),
               {kTrl, kTrlWithoutEffect},
               fsdp_rules("fsdp_config.fsdp_"),
               fsdp_rules("fsdp_config."),
               training_arguments(),
               script ? launcher_rules() : RuleSet{},
               script ? fsdp_rules("fsdp_") : RuleSet{},
               python_load_rules("from_pretrained."),
               python_trainer_rules(),
               python_accelerator_rules()},
              entries, job);
  note_other_trainers(job, entries);
  const Entry* method = mark_of(entries, "@@method");
  if (method) apply_method_mark(job, *method);
  trl_method(job, entries);
  const PinnedReleases pins = apply_pinned_releases(job, entries);
  const Given* fsdp = job.find(kFsdp);
  finish_fsdp(job, fsdp && fsdp->value == "true" ? fsdp : nullptr, pins.transformers_4 ? "" : "2");
  // The class of the arguments tells more than their keys, where a script names it.
  const bool loaded = mark_of(entries, "@@model_object"), of_script = mark_of(entries, "@@script");
  const bool trl =
      mark_of(entries, "@@trl_arguments") || (!mark_of(entries, "@@arguments") && key_of_trl(entries));
  if (trl) set_trl_defaults(job, loaded, pins);
  // Trainers that generate have no such length.
  if ((trl || mark_of(entries, "@@trl_trainer")) && !generates(method))
    job.set_default("data.seq_len", "1024", "default of TRL");
  if (generates(method)) set_generated_length(job, entries);
  if (trl || mark_of(entries, "@@trl_trainer") || (job.find(kSftLoss) && !has_old_length(entries)))
    set_head_of_trl(job, entries, pins);
  job.erase(kSftLoss);
  finish_training_script(job, entries);
  set_type_of_checkpoint(job, entries, trl, pins);
  trainer_loaded_type(job, {of_script ? mark_of(entries, "@@trl_trainer") != nullptr : trl, of_script,
                            mark_of(entries, "@@prepared") != nullptr});
  drop_unused_double_quantization(job);
  hold_weights_of_fsdp_in_f32(job);
  if (!mark_of(entries, "@@loop")) job.set_default("train.micro_batch", "8", "default of TrainingArguments");
  job.set_default("train.precision", "fp32", "default of TrainingArguments");
  if (of_script) job.set_default("train.recompute", "none", "default of TrainingArguments");
  finish_product_type(job);
  job.set_default("plan.cross_entropy", "plain", "default of transformers");
}

}  // namespace

RuleSet trl_rules() { return {kTrl, kTrlWithoutEffect}; }

void read_training_arguments(const Entries& entries, Job& job) { read_trainer(entries, job, false); }

void read_training_script(const Entries& entries, Job& job) {
  const Entries options = script_options(entries, job);
  read_trainer(options, job, true);
  note_deepspeed_file(job, options);
  finish_launcher(job);
}

void set_accelerate_precision(Job& job, const Entry& e) {
  const std::string word = text_of(e);
  if (word == "no") return job.set_default("train.precision", "fp32", e);
  if (word != "bf16" && word != "fp16" && word != "fp8") reject_value(e, "bf16, fp16, fp8 or no");
  if (word == "fp8") job.not_modelled = "8-bit products, planned in bf16";
  job.set_default(kMixed, word, e);
  // The types of autocast: f32 weights that operators cast.
  if (job.find("train.precision")) return;
  job.set_default("train.precision", word == "fp8" ? "bf16" : word, e);
  job.set_default("plan.weights", "fp32", e);
  job.set_default("plan.master", "none", e);
}

void read_accelerate(const Entries& entries, Job& job) {
  if (job.framework.empty()) job.framework = "transformers";
  const auto kind = std::ranges::find_if(entries, [](const Entry& e) { return e.key == "distributed_type"; });
  const std::string type = kind == entries.end() ? "" : kind->value.text;
  const RuleSet base{kAccelerate, kAccelerateWithoutEffect};
  if (type == "FSDP")
    apply_rules({fsdp_rules("fsdp_config.fsdp_"), base, kOtherThanDeepSpeed, kOtherThanMegatron}, entries,
                job);
  else if (type == "DEEPSPEED")
    apply_rules({{kAccelerateDeepSpeed, kAccelerateDeepSpeedWithoutEffect, "deepspeed_config."},
                 base,
                 kOtherThanFsdp,
                 kOtherThanMegatron},
                entries, job);
  else if (type == "MEGATRON_LM")
    apply_rules({{kAccelerateMegatron, "", "megatron_lm_config."}, base, kOtherThanDeepSpeed, kOtherThanFsdp},
                entries, job);
  else
    apply_rules({base, kOtherThanDeepSpeed, kOtherThanFsdp, kOtherThanMegatron}, entries, job);
  const Given* given = job.find("@distributed");
  // accelerate wraps the layers, whatever the Trainer does.
  if (const Given* own = job.find("train.recompute"); type == "FSDP" && own && own->value == "none" &&
                                                      job.find("@fsdp_recompute") &&
                                                      !job.is_option("train.recompute"))
    job.erase("train.recompute");
  // Version 1 is accelerate's default; transformers 5 has 2.
  finish_fsdp(job, type == "FSDP" ? given : nullptr, "1");
  if (type == "DEEPSPEED") {
    // With deepspeed_config_file accelerate ignores the other keys of the table; read_files() reads that
    // file.
    const bool other_file = std::ranges::any_of(
        entries, [](const Entry& e) { return e.key == "deepspeed_config.deepspeed_config_file"; });
    if (!other_file) job.set_default("parallel.zero", "2", "default of accelerate"), finish_deepspeed(job);
  }
  job.erase("@distributed");
  hold_weights_of_fsdp_in_f32(job);
  job.set_default("plan.cross_entropy", "plain", "default of transformers");
}

}  // namespace trainhost::framework_files
