// TrainingArguments of transformers (5.x; also 4.x, SFTConfig of TRL), as JSON or YAML, and the YAML that
// `accelerate config` writes (1.x). Key names and defaults are those of the
// classes TrainingArguments and ClusterConfig.
#include <fmt/format.h>

#include "core/framework_files/rules.hpp"

namespace trainhost::framework_files {
namespace {

using runfile::Entry;

void trainer_mixed(Job& job, const Entry& e, const char* type) {
  if (flag_of(e)) set_autocast(job, type, e);
}

/// "full_shard auto_wrap offload", or a list of these words.
void trainer_fsdp(Job& job, const Entry& e) {
  std::string words = e.value.kind == runfile::Value::Kind::kList
                          ? fmt::format("{}", fmt::join(texts_of(e), " "))
                          : e.value.text;
  if (words.find("full_shard") != words.npos || words.find("hybrid_shard") != words.npos || words == "true")
    job.set("parallel.zero", "3", e);
  else if (words.find("shard_grad_op") != words.npos)
    job.set("parallel.zero", "2", e);
  if (words.find("offload") != words.npos)
    job.set("plan.offload_weights", "cpu", e), job.set("plan.offload_optimizer", "cpu", e);
}

void trainer_liger(Job& job, const Entry& e) {
  if (flag_of(e)) job.set("plan.cross_entropy", "fused", e);
}

void trainer_precision_word(Job& job, const Entry& e) {
  const std::string word = text_of(e);
  if (word == "bf16" || word == "fp16")
    set_autocast(job, word, e);
  else if (word == "no")
    job.set("train.precision", "fp32", e);
  else
    reject_value(e, "bf16, fp16 or no");
}

void trainer_offload_parameters(Job& job, const Entry& e) {
  if (!flag_of(e)) return;
  job.set("plan.offload_weights", "cpu", e);
  job.set("plan.offload_optimizer", "cpu", e);
}

void trainer_reshard(Job& job, const Entry& e) {
  const std::string word = text_of(e);
  if (word == "FULL_SHARD" || word == "HYBRID_SHARD" || word == "1" || e.value.boolean)
    job.set("parallel.zero", "3", e);
  else if (word == "SHARD_GRAD_OP" || word == "HYBRID_SHARD_ZERO2" || word == "2" || word == "false")
    job.set("parallel.zero", "2", e);
}

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

/// With adapters, the frozen weights have the type in which the model is loaded; otherwise all tensors that
/// the optimizer updates have it, also under autocast.
void trainer_loaded_type(Job& job) {
  const bool adapters = job.find("@peft");
  if (!adapters)
    for (const char* key :
         {"lora.rank", "lora.alpha", "lora.targets", "lora.dora", "lora.base", "lora.double_quant"})
      job.erase(key);
  else
    job.set_default("lora.rank", "16", "default of TRL"),
        job.set_default("lora.alpha", "32", "default of TRL");
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
    if (narrow && !adapters) job.set_default("plan.master", "none", type);
  } else if (adapters) {
    for (const char* key : {"plan.weights", "plan.master"}) job.erase(key);
  }
  job.erase("@peft"), job.erase("@loaded");
}

constexpr Rule kTrainingArguments[] = {
    {"per_device_train_batch_size", Use::kCopy, "train.micro_batch"},
    {"gradient_accumulation_steps", Use::kCopy, "train.grad_accum"},
    {"max_length", Use::kCopy, "data.seq_len"},
    {"max_seq_length", Use::kCopy, "data.seq_len"},
    {"bf16", Use::kCustom, "train.precision", "",
     [](Job& j, const Entry& e) { trainer_mixed(j, e, "bf16"); }},
    {"fp16", Use::kCustom, "train.precision", "",
     [](Job& j, const Entry& e) { trainer_mixed(j, e, "fp16"); }},
    {"tf32", Use::kNoEffect},
    {"gradient_checkpointing", Use::kWhenTrue, "train.recompute", "full"},
    {"gradient_checkpointing_kwargs*", Use::kNoEffect},
    {"optim", Use::kCustom, "optimizer.name", "", set_hugging_face_optimizer},
    {"use_liger_kernel", Use::kCustom, "plan.cross_entropy", "", trainer_liger},
    {"use_liger", Use::kCustom, "plan.cross_entropy", "", trainer_liger},
    {"fsdp", Use::kCustom, "parallel.zero", "", trainer_fsdp},
    {"fsdp_config.activation_checkpointing", Use::kWhenTrue, "train.recompute", "full"},
    {"fsdp_config.reshard_after_forward", Use::kCustom, "parallel.zero", "", trainer_reshard},
    {"fsdp_config.*", Use::kNoEffect},
    {"model_name_or_path", Use::kCopy, kModel},
    // ModelConfig of TRL, which its scripts read from the same file.
    {"use_peft", Use::kWhenTrue, "@peft", "true"},
    {"lora_r", Use::kCopy, "lora.rank"},
    {"lora_alpha", Use::kCopy, "lora.alpha"},
    {"lora_target_modules", Use::kCustom, "lora.targets", "", set_lora_targets},
    {"lora_modules_to_save", Use::kNotModelled, "", "further modules that are trained"},
    {"use_dora", Use::kWhenTrue, "lora.dora", "true"},
    {"load_in_4bit", Use::kWhenTrue, "lora.base", "nf4"},
    {"load_in_8bit", Use::kWhenTrue, "lora.base", "int8"},
    {"use_bnb_nested_quant", Use::kWhenTrue, "lora.double_quant", "true"},
    {"attn_implementation", Use::kChoice, "plan.attention",
     "eager=materialised|sdpa=flash|flash_attention_2=flash|flash_attention_3=flash|flex_attention=flash"},
    {"dtype", Use::kCustom, "plan.weights", "", trainer_type},
    {"torch_dtype", Use::kCustom, "plan.weights", "", trainer_type},
    {"activation_offloading", Use::kWhenTrue, "plan.offload_activations", "cpu"},
    {"lora_*", Use::kNoEffect},
    {"use_rslora", Use::kNoEffect},
    {"bnb_4bit_*", Use::kNoEffect},
    {"model_revision", Use::kNoEffect},
    {"trust_remote_code", Use::kNoEffect},
    {"eos_token", Use::kNoEffect},
    {"pad_token", Use::kNoEffect},
    {"chat_template_path", Use::kNoEffect},
    {"completion_only_loss", Use::kNoEffect},
    {"assistant_only_loss", Use::kNoEffect},
    {"eval_packing", Use::kNoEffect},
    {"packing_strategy", Use::kNoEffect},
    {"padding_free", Use::kNoEffect},
    {"loss_type", Use::kNoEffect},
    {"deepspeed", Use::kNotModelled, "", "read that file too: --from=FILE"},
    {"torch_compile", Use::kNotModelled, "", "compiled graphs keep other activations"},
    {"torch_compile_*", Use::kNoEffect},
    {"auto_find_batch_size", Use::kNotModelled, "", "the micro-batch may become smaller"},
    {"neftune_noise_alpha", Use::kNoEffect},
    {"ddp_bucket_cap_mb", Use::kNotModelled, "", "buckets of DistributedDataParallel"},
    {"eval_accumulation_steps", Use::kNoEffect},
    {"per_device_eval_batch_size", Use::kNoEffect},
    {"bf16_full_eval", Use::kNoEffect},
    {"fp16_*", Use::kNoEffect},
    {"half_precision_backend", Use::kNoEffect},
    {"learning_rate", Use::kNoEffect},
    {"weight_decay", Use::kNoEffect},
    {"adam_*", Use::kNoEffect},
    {"optim_args", Use::kNoEffect},
    {"max_grad_norm", Use::kNoEffect},
    {"num_train_epochs", Use::kNoEffect},
    {"max_steps", Use::kNoEffect},
    {"lr_scheduler*", Use::kNoEffect},
    {"warmup_*", Use::kNoEffect},
    {"output_dir", Use::kNoEffect},
    {"overwrite_output_dir", Use::kNoEffect},
    {"do_*", Use::kNoEffect},
    {"eval_*", Use::kNoEffect},
    {"evaluation_strategy", Use::kNoEffect},
    {"prediction_loss_only", Use::kNoEffect},
    {"logging_*", Use::kNoEffect},
    {"log_*", Use::kNoEffect},
    {"save_*", Use::kNoEffect},
    {"load_best_model_at_end", Use::kNoEffect},
    {"metric_for_best_model", Use::kNoEffect},
    {"greater_is_better", Use::kNoEffect},
    {"seed", Use::kNoEffect},
    {"data_seed", Use::kNoEffect},
    {"full_determinism", Use::kNoEffect},
    {"dataloader_*", Use::kNoEffect},
    {"dataset_*", Use::kNoEffect},
    {"packing", Use::kNoEffect},
    {"remove_unused_columns", Use::kNoEffect},
    {"label_names", Use::kNoEffect},
    {"label_smoothing_factor", Use::kNoEffect},
    {"group_by_length", Use::kNoEffect},
    {"length_column_name", Use::kNoEffect},
    {"report_to", Use::kNoEffect},
    {"run_name", Use::kNoEffect},
    {"project", Use::kNoEffect},
    {"disable_tqdm", Use::kNoEffect},
    {"push_to_hub*", Use::kNoEffect},
    {"hub_*", Use::kNoEffect},
    {"ddp_*", Use::kNoEffect},
    {"accelerator_config*", Use::kNoEffect},
    {"resume_from_checkpoint", Use::kNoEffect},
    {"local_rank", Use::kNoEffect},
    {"include_*", Use::kNoEffect},
    {"skip_memory_metrics", Use::kNoEffect},
    {"use_cpu", Use::kNoEffect},
    {"average_tokens_across_devices", Use::kNoEffect},
};

constexpr Rule kAccelerate[] = {
    {"num_processes", Use::kCopy, kRanks},
    {"mixed_precision", Use::kCustom, "train.precision", "", trainer_precision_word},
    {"deepspeed_config.zero_stage", Use::kCopy, "parallel.zero"},
    {"deepspeed_config.offload_optimizer_device", Use::kChoice, "plan.offload_optimizer",
     "none=|cpu=cpu|nvme=nvme"},
    {"deepspeed_config.offload_param_device", Use::kChoice, "plan.offload_weights",
     "none=|cpu=cpu|nvme=nvme"},
    {"deepspeed_config.gradient_accumulation_steps", Use::kCopy, "train.grad_accum"},
    {"deepspeed_config.deepspeed_config_file", Use::kNotModelled, "", "read that file too: --from=FILE"},
    {"deepspeed_config.*", Use::kNoEffect},
    {"fsdp_config.fsdp_sharding_strategy", Use::kCustom, "parallel.zero", "", trainer_reshard},
    {"fsdp_config.fsdp_reshard_after_forward", Use::kCustom, "parallel.zero", "", trainer_reshard},
    {"fsdp_config.fsdp_offload_params", Use::kCustom, "plan.offload_weights", "", trainer_offload_parameters},
    {"fsdp_config.fsdp_activation_checkpointing", Use::kWhenTrue, "train.recompute", "full"},
    {"fsdp_config.*", Use::kNoEffect},
    {"parallelism_config.parallelism_config_tp_size", Use::kCopy, "parallel.tensor"},
    {"parallelism_config.parallelism_config_cp_size", Use::kCopy, "parallel.context"},
    {"parallelism_config.*", Use::kNoEffect},
    {"gradient_accumulation_steps", Use::kCopy, "train.grad_accum"},
    {"dynamo_config*", Use::kNotModelled, "", "compiled graphs keep other activations"},
    {"fp8_config*", Use::kNotModelled, "", "8-bit products of TransformerEngine or torchao"},
    {"megatron_lm_config*", Use::kNotModelled, "", "Megatron-LM under accelerate"},
    {"compute_environment", Use::kNoEffect},
    {"distributed_type", Use::kNoEffect},
    {"debug", Use::kNoEffect},
    {"downcast_bf16", Use::kNoEffect},
    {"enable_cpu_affinity", Use::kNoEffect},
    {"gpu_ids", Use::kNoEffect},
    {"machine_rank", Use::kNoEffect},
    {"main_*", Use::kNoEffect},
    {"num_machines", Use::kNoEffect},
    {"rdzv_backend", Use::kNoEffect},
    {"same_network", Use::kNoEffect},
    {"tpu_*", Use::kNoEffect},
    {"use_cpu", Use::kNoEffect},
};

}  // namespace

void read_training_arguments(const Entries& entries, Job& job) {
  job.framework = "transformers";
  apply_rules(kTrainingArguments, entries, job);
  trainer_loaded_type(job);
  job.set_default("train.micro_batch", "8", "default of TrainingArguments");
  job.set_default("train.precision", "fp32", "default of TrainingArguments");
  job.set_default("plan.cross_entropy", "plain", "default of transformers");
}

void read_accelerate(const Entries& entries, Job& job) {
  if (job.framework.empty()) job.framework = "transformers";
  apply_rules(kAccelerate, entries, job);
  job.set_default("plan.cross_entropy", "plain", "default of transformers");
}

}  // namespace trainhost::framework_files
