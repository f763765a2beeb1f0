// The YAML of axolotl (0.12 and later): src/axolotl/utils/schemas. It loads the base model in the type of the
// computation, so full training with bf16 has every tensor in bf16.
#include "core/base/text.hpp"
#include "core/framework_files/rules.hpp"

namespace trainhost::framework_files {
namespace {

using runfile::Entry;

/// true, "auto" or "full".
void axolotl_narrow(Job& job, const Entry& e, const char* type) {
  const bool word =
      e.value.kind == runfile::Value::Kind::kText && (e.value.text == "auto" || e.value.text == "full");
  if (word || flag_of(e)) job.set("train.precision", type, e);
}

void axolotl_checkpointing(Job& job, const Entry& e) {
  const bool word = e.value.kind == runfile::Value::Kind::kText;
  if (!word && !flag_of(e)) return;
  job.set("train.recompute", "full", e);
  if (word && e.value.text == "offload") job.set("plan.offload_activations", "cpu", e);
}

void axolotl_adapter(Job& job, const Entry& e) {
  const std::string kind = text_of(e);
  if (kind == "qlora")
    job.set("lora.base", "nf4", e), job.set("lora.double_quant", "true", e);
  else if (kind != "lora")
    reject_value(e, "lora or qlora");
}

void axolotl_all_linear(Job& job, const Entry& e) {
  if (flag_of(e)) job.set("lora.targets", "all-linear", e);
}

void axolotl_fused_loss(Job& job, const Entry& e) {
  if (flag_of(e)) job.set("plan.cross_entropy", "fused", e);
}

void axolotl_sharding(Job& job, const Entry& e) {
  if (whole_of(e) > 1) job.set("parallel.zero", "3", e);
}

constexpr Rule kAxolotl[] = {
    {"base_model", Use::kCopy, kModel},
    {"sequence_len", Use::kCopy, "data.seq_len"},
    {"micro_batch_size", Use::kCopy, "train.micro_batch"},
    {"gradient_accumulation_steps", Use::kCopy, "train.grad_accum"},
    {"bf16", Use::kCustom, "train.precision", "",
     [](Job& j, const Entry& e) { axolotl_narrow(j, e, "bf16"); }},
    {"fp16", Use::kCustom, "train.precision", "",
     [](Job& j, const Entry& e) { axolotl_narrow(j, e, "fp16"); }},
    {"bfloat16", Use::kCustom, "train.precision", "",
     [](Job& j, const Entry& e) { axolotl_narrow(j, e, "bf16"); }},
    {"gradient_checkpointing", Use::kCustom, "train.recompute", "", axolotl_checkpointing},
    {"activation_offloading", Use::kWhenTrue, "plan.offload_activations", "cpu"},
    {"optimizer", Use::kCustom, "optimizer.name", "", set_hugging_face_optimizer},
    {"adapter", Use::kCustom, "lora.base", "", axolotl_adapter},
    {"load_in_8bit", Use::kWhenTrue, "lora.base", "int8"},
    {"load_in_4bit", Use::kWhenTrue, "lora.base", "nf4"},
    {"lora_r", Use::kCopy, "lora.rank"},
    {"lora_alpha", Use::kCopy, "lora.alpha"},
    {"lora_target_modules", Use::kCustom, "lora.targets", "", set_lora_targets},
    {"lora_target_linear", Use::kCustom, "lora.targets", "", axolotl_all_linear},
    {"peft_use_dora", Use::kWhenTrue, "lora.dora", "true"},
    {"lora_modules_to_save", Use::kNotModelled, "", "further modules that are trained"},
    {"lora_*", Use::kNoEffect},
    {"peft*", Use::kNoEffect},
    {"liger_fused_linear_cross_entropy", Use::kCustom, "plan.cross_entropy", "", axolotl_fused_loss},
    {"cut_cross_entropy", Use::kCustom, "plan.cross_entropy", "", axolotl_fused_loss},
    {"chunked_cross_entropy", Use::kCustom, "plan.cross_entropy", "", axolotl_fused_loss},
    {"liger_*", Use::kNotModelled, "", "fused operators of Liger keep fewer activations"},
    {"flash_attention", Use::kWhenTrue, "plan.attention", "flash"},
    {"sdp_attention", Use::kWhenTrue, "plan.attention", "flash"},
    {"flex_attention", Use::kWhenTrue, "plan.attention", "flash"},
    {"xformers_attention", Use::kWhenTrue, "plan.attention", "flash"},
    {"eager_attention", Use::kWhenTrue, "plan.attention", "materialised"},
    {"tensor_parallel_size", Use::kCopy, "parallel.tensor"},
    {"context_parallel_size", Use::kCopy, "parallel.context"},
    {"sequence_parallel_degree", Use::kCopy, "parallel.context"},
    {"dp_shard_size", Use::kCustom, "parallel.zero", "", axolotl_sharding},
    {"fsdp_config.offload_params", Use::kWhenTrue, "plan.offload_weights", "cpu"},
    {"fsdp_config.activation_checkpointing", Use::kWhenTrue, "train.recompute", "full"},
    {"fsdp_config.reshard_after_forward", Use::kChoice, "parallel.zero", "true=3|false=2"},
    {"fsdp_config*", Use::kNoEffect},
    {"fsdp_version", Use::kNoEffect},
    {"fsdp", Use::kCustom, "parallel.zero", "",
     [](Job& j, const Entry& e) {
       for (const std::string& word : texts_of(e))
         if (word == "full_shard") j.set("parallel.zero", "3", e);
     }},
    {"deepspeed", Use::kNotModelled, "", "read that file too: --from=FILE"},
    {"torch_compile", Use::kNotModelled, "", "compiled graphs keep other activations"},
    {"unfrozen_parameters*", Use::kNotModelled, "", "frozen weights have no gradients"},
    {"sample_packing*", Use::kNoEffect},
    {"pad_to_sequence_len", Use::kNoEffect},
    {"eval_*", Use::kNoEffect},
    {"evals_per_epoch", Use::kNoEffect},
    {"datasets*", Use::kNoEffect},
    {"test_datasets*", Use::kNoEffect},
    {"dataset_*", Use::kNoEffect},
    {"shuffle_*", Use::kNoEffect},
    {"base_model_*", Use::kNoEffect},
    {"model_type", Use::kNoEffect},
    {"tokenizer_*", Use::kNoEffect},
    {"special_tokens*", Use::kNoEffect},
    {"tokens*", Use::kNoEffect},
    {"added_tokens*", Use::kNoEffect},
    {"chat_template*", Use::kNoEffect},
    {"trust_remote_code", Use::kNoEffect},
    {"is_*", Use::kNoEffect},
    {"strict", Use::kNoEffect},
    {"plugins", Use::kNoEffect},
    {"num_epochs", Use::kNoEffect},
    {"max_steps", Use::kNoEffect},
    {"learning_rate", Use::kNoEffect},
    {"lr_scheduler*", Use::kNoEffect},
    {"warmup_*", Use::kNoEffect},
    {"weight_decay", Use::kNoEffect},
    {"max_grad_norm", Use::kNoEffect},
    {"adam_*", Use::kNoEffect},
    {"optim_args*", Use::kNoEffect},
    {"train_on_inputs", Use::kNoEffect},
    {"group_by_length", Use::kNoEffect},
    {"tf32", Use::kNoEffect},
    {"gradient_checkpointing_kwargs*", Use::kNoEffect},
    {"early_stopping_patience", Use::kNoEffect},
    {"resume_from_checkpoint", Use::kNoEffect},
    {"auto_resume_from_checkpoints", Use::kNoEffect},
    {"local_rank", Use::kNoEffect},
    {"logging_steps", Use::kNoEffect},
    {"save*", Use::kNoEffect},
    {"output_dir", Use::kNoEffect},
    {"val_set_size", Use::kNoEffect},
    {"hub_*", Use::kNoEffect},
    {"wandb_*", Use::kNoEffect},
    {"mlflow_*", Use::kNoEffect},
    {"use_tensorboard", Use::kNoEffect},
    {"debug", Use::kNoEffect},
    {"seed", Use::kNoEffect},
    {"ddp_*", Use::kNoEffect},
};

}  // namespace

void read_axolotl(const Entries& entries, Job& job) {
  job.framework = "axolotl";
  apply_rules(kAxolotl, entries, job);
  const Given* type = job.find("train.precision");
  const bool adapters = job.find("lora.rank") || job.find("lora.base");
  if (type && type->value != "fp32" && !adapters) {
    const std::string narrow_type = type->value;
    for (const char* key : {"plan.weights", "plan.gradients", "plan.moments"})
      job.set_default(key, narrow_type, "default of axolotl");
    job.set_default("plan.master", "none", "default of axolotl");
  }
  job.set_default("train.micro_batch", "1", "default of axolotl");
  job.set_default("plan.cross_entropy", "plain", "default of transformers");
}

}  // namespace trainhost::framework_files
