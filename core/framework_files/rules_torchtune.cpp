// The YAML of torchtune (0.4 to 0.6): recipes/configs. `dtype: bf16` has every tensor in bf16. The model is
// named by its builder: torchtune.models.llama3.llama3_8b, lora_llama3_8b, qlora_llama3_8b.
#include "core/framework_files/rules.hpp"

namespace trainhost::framework_files {
namespace {

using runfile::Entry;

std::string last_part(const std::string& component) {
  const std::size_t dot = component.rfind('.');
  return dot == component.npos ? component : component.substr(dot + 1);
}

void torchtune_model(Job& job, const Entry& e) {
  std::string name = last_part(text_of(e));
  if (name.starts_with("qlora_")) job.set("lora.base", "nf4", e), job.set("lora.double_quant", "true", e);
  for (const char* prefix : {"qlora_", "lora_"})
    if (name.starts_with(prefix)) {
      name.erase(0, std::string(prefix).size());
      job.set_default("lora.rank", "8", "default of torchtune");
    }
  job.set(kModel, name, e);
}

void torchtune_type(Job& job, const Entry& e) {
  const std::string word = text_of(e);
  if (word == "bf16" || word == "fp16")
    set_pure(job, word, e);
  else if (word == "fp32")
    job.set("train.precision", "fp32", e);
  else
    reject_value(e, "bf16 or fp32");
}

void torchtune_optimizer(Job& job, const Entry& e) {
  const std::string name = last_part(text_of(e));
  if (name == "AdamW" || name == "Adam" || name == "PagedAdamW")
    job.set("optimizer.name", "adamw", e);
  else if (name == "PagedAdamW8bit" || name == "AdamW8bit" || name == "Adam8bit" || name == "AdamW4bit")
    job.set("optimizer.name", "adamw-8bit", e);
  else if (name == "SGD")
    job.set("optimizer.name", "sgd", e);
  else
    reject_value(e,
                 "torch.optim.AdamW, torch.optim.SGD, bitsandbytes.optim.PagedAdamW8bit or "
                 "torchao.optim.AdamW8bit");
}

void torchtune_loss(Job& job, const Entry& e) {
  const std::string name = last_part(text_of(e));
  job.set("plan.cross_entropy", name == "CrossEntropyLoss" ? "plain" : "fused", e);
}

/// q_proj, k_proj, v_proj, output_proj.
void attention_modules(Job& job, const Entry& e) {
  std::string list;
  for (const std::string& t : texts_of(e))
    list += (list.empty() ? "\"" : ", \"") + (t == "output_proj" ? "o_proj" : t) + "\"";
  if (!list.empty()) job.set("@lora_attention", list, e);
}

constexpr Rule kTorchtune[] = {
    {"model._component_", Use::kCustom, kModel, "", torchtune_model},
    {"tokenizer.max_seq_len", Use::kCopy, "data.seq_len"},
    {"batch_size", Use::kCopy, "train.micro_batch"},
    {"gradient_accumulation_steps", Use::kCopy, "train.grad_accum"},
    {"dtype", Use::kCustom, "train.precision", "", torchtune_type},
    {"enable_activation_checkpointing", Use::kWhenTrue, "train.recompute", "full"},
    {"enable_activation_offloading", Use::kWhenTrue, "plan.offload_activations", "cpu"},
    {"optimizer._component_", Use::kCustom, "optimizer.name", "", torchtune_optimizer},
    {"optimizer.fused", Use::kWhenTrue, "plan.optimizer_implementation", "fused"},
    {"optimizer_in_bwd", Use::kNotModelled, "", "gradients are freed during the backward pass"},
    {"loss._component_", Use::kCustom, "plan.cross_entropy", "", torchtune_loss},
    {"model.lora_rank", Use::kCopy, "lora.rank"},
    {"model.lora_alpha", Use::kCopy, "lora.alpha"},
    {"model.lora_attn_modules", Use::kCustom, "lora.targets", "", attention_modules},
    {"model.apply_lora_to_mlp", Use::kWhenTrue, "@lora_mlp", "true"},
    {"model.apply_lora_to_output", Use::kNotModelled, "", "an adapter of the LM head"},
    {"model.use_dora", Use::kWhenTrue, "lora.dora", "true"},
    {"model.quantize_base", Use::kWhenTrue, "lora.base", "nf4"},
    {"model.*", Use::kNoEffect},
    {"tensor_parallel_dim", Use::kCopy, "parallel.tensor"},
    {"context_parallel_dim", Use::kCopy, "parallel.context"},
    {"data_parallel_shard_dim", Use::kNotModelled, "", "number of FSDP ranks: set parallel.data"},
    {"fsdp_cpu_offload", Use::kWhenTrue, "plan.offload_weights", "cpu"},
    {"fsdp_reshard_after_forward", Use::kChoice, "parallel.zero", "true=3|false=2"},
    {"compile", Use::kNotModelled, "", "compiled graphs keep other activations"},
    {"compile.*", Use::kNotModelled, "", "compiled graphs keep other activations"},
    {"optimizer.*", Use::kNoEffect},
    {"loss.*", Use::kNoEffect},
    {"tokenizer.*", Use::kNoEffect},
    {"checkpointer.*", Use::kNoEffect},
    {"dataset*", Use::kNoEffect},
    {"batch_size_val", Use::kNoEffect},
    {"run_val_every_n_steps", Use::kNoEffect},
    {"lr_scheduler.*", Use::kNoEffect},
    {"metric_logger.*", Use::kNoEffect},
    {"profiler.*", Use::kNoEffect},
    {"clip_grad_norm", Use::kNoEffect},
    {"output_dir", Use::kNoEffect},
    {"seed", Use::kNoEffect},
    {"shuffle", Use::kNoEffect},
    {"epochs", Use::kNoEffect},
    {"max_steps_per_epoch", Use::kNoEffect},
    {"resume_from_checkpoint", Use::kNoEffect},
    {"save_*", Use::kNoEffect},
    {"log_*", Use::kNoEffect},
    {"enable_async_checkpointing", Use::kNoEffect},
    {"custom_sharded_layers", Use::kNoEffect},
    {"device", Use::kNoEffect},
};

}  // namespace

void read_torchtune(const Entries& entries, Job& job) {
  job.framework = "torchtune";
  apply_rules(kTorchtune, entries, job);
  std::string targets;
  if (const Given* given = job.find("@lora_attention")) targets = given->value;
  if (job.find("@lora_mlp"))
    targets += std::string(targets.empty() ? "" : ", ") + R"("gate_proj", "up_proj", "down_proj")";
  job.erase("@lora_attention"), job.erase("@lora_mlp");
  if (!targets.empty()) job.set_default("lora.targets", "[" + targets + "]", "the LoRA keys of the model");
  job.set_default("train.precision", "fp32", "default of torchtune");
  job.set_default("train.micro_batch", "1", "default of torchtune");
  // Frozen weights under [lora] have the type of the computation.
  if (job.find("lora.rank"))
    for (const char* key : {"plan.weights", "plan.gradients", "plan.moments", "plan.master"}) job.erase(key);
}

}  // namespace trainhost::framework_files
