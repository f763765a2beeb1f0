// The YAML of LLaMA-Factory (0.9.x): src/llamafactory/hparams. Activation checkpointing is on unless it is
// disabled; trained weights are f32 under autocast unless pure_bf16 is set.
#include "core/framework_files/rules.hpp"

namespace trainhost::framework_files {
namespace {

using runfile::Entry;

void factory_mixed(Job& job, const Entry& e, const char* type) {
  if (flag_of(e)) set_autocast(job, type, e);
}

void factory_kind_of_training(Job& job, const Entry& e) {
  const std::string kind = text_of(e);
  if (kind == "lora")
    job.set_default("lora.rank", "8", "default of LLaMA-Factory");
  else if (kind != "full")
    reject_value(e, "lora or full");
}

void factory_quantized(Job& job, const Entry& e) {
  const std::uint64_t bits = whole_of(e);
  if (bits != 4 && bits != 8) reject_value(e, "4 or 8");
  job.set("lora.base", bits == 4 ? "nf4" : "int8", e);
  if (bits == 4) job.set_default("lora.double_quant", "true", "default of LLaMA-Factory");
}

void factory_targets(Job& job, const Entry& e) {
  std::string list;
  for (const std::string& t : texts_of(e)) {
    if (t == "all") return job.set("lora.targets", "all-linear", e);
    list += (list.empty() ? "[\"" : ", \"") + t + "\"";
  }
  if (!list.empty()) job.set("lora.targets", list + "]", e);
}

constexpr Rule kLlamaFactory[] = {
    {"model_name_or_path", Use::kCopy, kModel},
    {"cutoff_len", Use::kCopy, "data.seq_len"},
    {"per_device_train_batch_size", Use::kCopy, "train.micro_batch"},
    {"gradient_accumulation_steps", Use::kCopy, "train.grad_accum"},
    {"finetuning_type", Use::kCustom, "lora.rank", "", factory_kind_of_training},
    {"lora_rank", Use::kCopy, "lora.rank"},
    {"lora_alpha", Use::kCopy, "lora.alpha"},
    {"lora_target", Use::kCustom, "lora.targets", "", factory_targets},
    {"use_dora", Use::kWhenTrue, "lora.dora", "true"},
    {"quantization_bit", Use::kCustom, "lora.base", "", factory_quantized},
    {"double_quantization", Use::kChoice, "lora.double_quant", "true=true|false=false"},
    {"bf16", Use::kCustom, "train.precision", "",
     [](Job& j, const Entry& e) { factory_mixed(j, e, "bf16"); }},
    {"fp16", Use::kCustom, "train.precision", "",
     [](Job& j, const Entry& e) { factory_mixed(j, e, "fp16"); }},
    {"pure_bf16", Use::kCustom, "plan.weights", "",
     [](Job& j, const Entry& e) {
       if (flag_of(e)) set_pure(j, "bf16", e);
     }},
    {"disable_gradient_checkpointing", Use::kWhenTrue, "train.recompute", "none"},
    {"flash_attn", Use::kChoice, "plan.attention", "auto=flash|fa2=flash|sdpa=flash|disabled=materialised"},
    {"enable_liger_kernel", Use::kWhenTrue, "plan.cross_entropy", "fused"},
    {"optim", Use::kCustom, "optimizer.name", "", set_hugging_face_optimizer},
    {"deepspeed", Use::kNotModelled, "", "read that file too: --from=FILE"},
    {"fsdp*", Use::kNotModelled, "", "sharding by FSDP: set parallel.zero"},
    {"use_unsloth*", Use::kNotModelled, "", "kernels of Unsloth keep fewer activations"},
    {"use_galore", Use::kNotModelled, "", "low-rank gradients"},
    {"use_badam", Use::kNotModelled, "", "block-wise training"},
    {"additional_target", Use::kNotModelled, "", "further modules that are trained"},
    {"freeze_*", Use::kNotModelled, "", "frozen weights have no gradients"},
    {"stage", Use::kChoice, "", "pt=|sft="},
    {"upcast_*", Use::kNotModelled, "", "norms or logits in f32"},
    {"quantization_*", Use::kNoEffect},
    {"lora_*", Use::kNoEffect},
    {"use_rslora", Use::kNoEffect},
    {"loraplus_*", Use::kNoEffect},
    {"do_*", Use::kNoEffect},
    {"dataset*", Use::kNoEffect},
    {"eval_*", Use::kNoEffect},
    {"template", Use::kNoEffect},
    {"packing", Use::kNoEffect},
    {"neat_packing", Use::kNoEffect},
    {"max_samples", Use::kNoEffect},
    {"overwrite_*", Use::kNoEffect},
    {"preprocessing_*", Use::kNoEffect},
    {"dataloader_*", Use::kNoEffect},
    {"streaming", Use::kNoEffect},
    {"mask_history", Use::kNoEffect},
    {"train_on_prompt", Use::kNoEffect},
    {"tokenized_path", Use::kNoEffect},
    {"output_dir", Use::kNoEffect},
    {"logging_*", Use::kNoEffect},
    {"save_*", Use::kNoEffect},
    {"plot_loss", Use::kNoEffect},
    {"report_to", Use::kNoEffect},
    {"run_name", Use::kNoEffect},
    {"learning_rate", Use::kNoEffect},
    {"num_train_epochs", Use::kNoEffect},
    {"max_steps", Use::kNoEffect},
    {"lr_scheduler*", Use::kNoEffect},
    {"warmup_*", Use::kNoEffect},
    {"weight_decay", Use::kNoEffect},
    {"max_grad_norm", Use::kNoEffect},
    {"adam_*", Use::kNoEffect},
    {"ddp_*", Use::kNoEffect},
    {"resume_from_checkpoint", Use::kNoEffect},
    {"val_size", Use::kNoEffect},
    {"per_device_eval_batch_size", Use::kNoEffect},
    {"trust_remote_code", Use::kNoEffect},
    {"seed", Use::kNoEffect},
    {"adapter_name_or_path", Use::kNoEffect},
    {"cache_dir", Use::kNoEffect},
    {"resize_vocab", Use::kNotModelled, "", "another vocabulary"},
};

}  // namespace

void read_llama_factory(const Entries& entries, Job& job) {
  job.framework = "llama-factory";
  apply_rules(kLlamaFactory, entries, job);
  job.set_default("data.seq_len", "2048", "default of LLaMA-Factory (cutoff_len)");
  job.set_default("train.micro_batch", "8", "default of TrainingArguments");
  job.set_default("train.recompute", "full", "default of LLaMA-Factory");
  job.set_default("plan.cross_entropy", "plain", "default of transformers");
  if (job.find("lora.rank")) {
    job.set_default("lora.targets", "all-linear", "default of LLaMA-Factory");
    // The frozen weights have the type of the computation; the types of autocast are those of full training.
    job.erase("plan.weights"), job.erase("plan.master");
  }
}

}  // namespace trainhost::framework_files
