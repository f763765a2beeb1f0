// Files of LLaMA-Factory's format v1 (0.9.5 with USE_V1): src/llamafactory/v1, which has its own Trainer and
// no TrainingArguments. Activation checkpointing is on unless it is switched off. Full training converts the
// model to f32; without FSDP2 nothing runs under autocast, whatever bf16 says.
#include <algorithm>

#include "core/framework_files/rules.hpp"

namespace trainhost::framework_files {
namespace {

using runfile::Entry;

constexpr const char *kDistribution = "@dist", *kOffload = "@dist_offload", *kReshard = "@dist_zero",
                     *kBf16 = "@bf16", *kAdapters = "@peft";

void v1_adapters(Job& job, const Entry& e) {
  const std::string kind = text_of(e);
  if (kind != "lora" && kind != "freeze") reject_value(e, "lora or freeze");
  if (kind == "freeze")
    job.not_modelled = "frozen weights have no gradients; planned as full training";
  else
    job.set(kAdapters, "true", e);
}

void v1_targets(Job& job, const Entry& e) {
  for (const std::string& name : texts_of(e))
    if (name == "all") return job.set("lora.targets", "all-linear", e);
  set_lora_targets(job, e);
}

void v1_quantized(Job& job, const Entry& e) {
  const std::uint64_t bits = whole_of(e);
  if (bits != 4 && bits != 8) reject_value(e, "4 or 8");
  job.set("@bits", std::to_string(bits), e);
}

void v1_distribution(Job& job, const Entry& e) {
  const std::string name = text_of(e);
  if (name != "fsdp2" && name != "fsdpturbo" && name != "deepspeed")
    reject_value(e, "fsdp2, fsdpturbo or deepspeed");
  job.set(kDistribution, name == "deepspeed" ? name : "fsdp2", e);
  if (name == "fsdpturbo")
    job.not_modelled = "units and kernels of FSDPTurbo; planned as FSDP2";
  else if (name == "fsdp2")
    job.not_modelled =
        "its units (each module with an adapter; embedding, layers, the rest) reduce in f32; planned as "
        "accelerate prepares them";
}

constexpr const char* kBatching = "several sequences in one row, or as many as a number of tokens allows";

constexpr Rule kV1[] = {
    {"model", Use::kCopy, kModel},
    {"model_class", Use::kNeedsMore, "llm", "a model without the head of a language model"},
    {"cutoff_len", Use::kCopy, "data.seq_len"},
    {"micro_batch_size", Use::kCopy, "train.micro_batch"},
    {"global_batch_size", Use::kCopy, kGlobalBatch},
    {"flash_attn", Use::kChoice, "plan.attention",
     "eager=materialised|sdpa=flash|flash_attention_2=flash_attention_2|flash_attention_3=flash_attention_2"},
    {"bf16", Use::kChoice, kBf16, "true=true|false=false"},
    {"enable_activation_checkpointing", Use::kChoice, "train.recompute", "true=full|false=none"},
    {"batching_strategy", Use::kNotModelled, "normal", kBatching},
    {"peft_config.name", Use::kCustom, "lora.rank", "", v1_adapters},
    {"peft_config.r", Use::kCopy, "lora.rank"},
    {"peft_config.lora_alpha", Use::kCopy, "lora.alpha"},
    {"peft_config.lora_dropout", Use::kCopy, "lora.dropout"},
    {"peft_config.target_modules", Use::kCustom, "lora.targets", "", v1_targets},
    {"peft_config.use_dora", Use::kWhenTrue, "lora.dora", "true"},
    {"peft_config.modules_to_save", Use::kCustom, "lora.modules_to_save", "", set_modules_to_save},
    {"peft_config.freeze_*", Use::kNotModelled, "", "frozen weights have no gradients"},
    {"peft_config.cast_trainable_params_to_fp32", Use::kNoEffect},
    {"quant_config.name", Use::kNotModelled, "auto|bnb", "other quantized weights"},
    {"quant_config.quantization_bit", Use::kCustom, "lora.base", "", v1_quantized},
    {"quant_config.double_quantization", Use::kChoice, "lora.double_quant", "true=true|false=false"},
    {"quant_config.quantization_type", Use::kNotModelled, "nf4|fp4", "other quantized weights"},
    {"quant_config.compute_dtype", Use::kCustom, "plan.quant_compute", "", set_product_type},
    {"dist_config.name", Use::kCustom, "parallel.zero", "", v1_distribution},
    // Another file, which read_files() reads.
    {"dist_config.config_file", Use::kNoEffect},
    {"dist_config.reshard_after_forward", Use::kChoice, kReshard, "true=3|false=2"},
    {"dist_config.offload_params", Use::kWhenTrue, kOffload, "cpu"},
    {"dist_config.mp_replicate_size", Use::kNotModelled, "1", "replicas that each shard the weights"},
    {"dist_config.mp_shard_size", Use::kCopy, kRanks},
    {"dist_config.ep_size", Use::kCopy, "parallel.expert"},
    {"dist_config.ep_dispatcher", Use::kNoEffect},
    {"dist_config.dp_size", Use::kNoEffect},  // of the batches: ranks without those of cp_size
    {"dist_config.cp_size", Use::kCopy, "parallel.context"},
    {"cp_size", Use::kCopy, "parallel.context"},
    {"kernel_config.name", Use::kNotModelled, "auto|", "kernels that keep fewer activations"},
    {"optim_config.*", Use::kNotModelled, "", "optimizer state of another size"},
};
/// Data, sampling, saving, and where weights are loaded.
constexpr const char* kV1WithoutEffect =
    "cp_mode dist_config.cp_mode dist_config.dcp_path dist_config.pin_memory dist_config.timeout "
    "eval_dataset full_determinism init_config.* kernel_config.include_kernels learning_rate "
    "logging_steps lr_scheduler_config.* max_grad_norm max_new_tokens max_steps num_train_epochs "
    "output_dir peft_config.adapter_name_or_path peft_config.export_* peft_config.infer_dtype "
    "peft_config.use_rslora resume_from_checkpoint sample_backend save_ckpt_as_hf save_epochs "
    "kernel_config.chunk_size save_steps save_total_limit seed template train_dataset trust_remote_code "
    "batching_workers "
    "peft_config quant_config dist_config kernel_config init_config optim_config lr_scheduler_config";

constexpr const char* kDefault = "default of LLaMA-Factory v1";

void v1_types(Job& job) {
  const Given* dist = job.find(kDistribution);
  const Given* bf16 = job.find(kBf16);
  const bool narrow = !bf16 || bf16->value == "true";
  const std::string type = dist && narrow ? "bf16" : "fp32";
  const std::string source =
      dist ? "default of LLaMA-Factory v1 (bf16)" : "no autocast in LLaMA-Factory v1 without dist_config";
  job.set_default("train.precision", type, source);
  if (job.find(kAdapters)) {
    // dtype "auto": that of the checkpoint, which is taken to be bf16.
    if (!job.find("lora.base")) job.set_default("lora.base", "bf16", "dtype of the checkpoint (\"auto\")");
    return;
  }
  job.set_default("plan.weights", "fp32", "full training of LLaMA-Factory v1 converts the model to f32");
  job.set_default("plan.master", "none", "full training of LLaMA-Factory v1 converts the model to f32");
}

void v1_base(Job& job) {
  const Given* bits = job.find("@bits");
  if (!bits || !job.find(kAdapters)) return;
  const Given from = *bits;
  job.set_default("lora.base", from.value == "4" ? "nf4" : "int8", from);
  if (from.value == "4") job.set_default("lora.double_quant", "true", kDefault);
  // Without autocast, and not prepared by peft: all other weights stay as they are loaded. Plans have
  // autocast there.
  job.set_default("train.precision", "bf16", from);
}

void v1_sharding(Job& job) {
  const Given* dist = job.find(kDistribution);
  if (!dist || dist->value != "fsdp2") return;
  const Given from = *dist;
  if (const Given* zero = job.find(kReshard)) job.set_default("parallel.zero", zero->value, *zero);
  job.set_default("parallel.zero", "3", from);
  if (const Given* offload = job.find(kOffload))
    for (const char* key : {"plan.offload_weights", "plan.offload_optimizer", "plan.offload_gradients"})
      job.set_default(key, offload->value, *offload);
}

}  // namespace

const Entry* llama_factory_v1(const Entries& entries) {
  const auto found = std::ranges::find_if(entries, [](const Entry& e) {
    return e.key == "model_class" || e.key == "train_dataset" || e.key.starts_with("peft_config.") ||
           e.key.starts_with("dist_config.") || e.key.starts_with("kernel_config.") ||
           e.key.starts_with("quant_config.");
  });
  return found == entries.end() ? nullptr : &*found;
}

void read_llama_factory_v1(const Entries& entries, Job& job) {
  apply_rules({{kV1, kV1WithoutEffect}}, entries, job);
  v1_base(job);
  v1_types(job);
  v1_sharding(job);
  if (job.find(kAdapters)) {
    for (const auto& [key, value] : {std::pair{"lora.rank", "8"},
                                     {"lora.alpha", "16"},
                                     {"lora.dropout", "0.05"},
                                     {"lora.targets", "all-linear"}})
      job.set_default(key, value, kDefault);
  } else {
    job.erase_if([](const std::string& key) { return key.starts_with("lora."); });
  }
  finish_product_type(job);
  drop_unused_double_quantization(job);
  if (const Given* dist = job.find(kDistribution); !dist || dist->value != "deepspeed")
    job.set_default("plan.framework_version", "v1", "format of the file");
  job.erase_if([](const std::string& key) {
    return key.starts_with("@dist") || key == kBf16 || key == kAdapters || key == "@bits";
  });
  job.set_default("data.seq_len", "2048", kDefault);
  job.set_default("train.micro_batch", "1", kDefault);
  job.set_default(kAllocatorOfRanks, "expandable_segments:True", kDefault);
  job.set_default("train.recompute", "full", kDefault);
  job.set_default("plan.checkpoint_reentrant", "false", kDefault);
  job.set_default("plan.optimizer_implementation", "foreach", "torch.optim.AdamW");
  job.set_default("plan.cross_entropy", "plain", kDefault);
}

}  // namespace trainhost::framework_files
