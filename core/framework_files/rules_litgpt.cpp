// The YAML of litgpt (0.5): config_hub. Precision "bf16-true" has every tensor in bf16.
#include "core/framework_files/rules.hpp"

namespace trainhost::framework_files {
namespace {

using runfile::Entry;

void litgpt_precision(Job& job, const Entry& e) {
  const std::string word = text_of(e);
  if (word == "bf16-true" || word == "16-true")
    set_pure(job, word == "16-true" ? "fp16" : "bf16", e);
  else if (word == "bf16-mixed" || word == "16-mixed")
    set_autocast(job, word == "16-mixed" ? "fp16" : "bf16", e);
  else if (word == "32-true" || word == "32")
    job.set("train.precision", "fp32", e);
  else
    reject_value(e, "bf16-true, bf16-mixed, 16-true, 16-mixed or 32-true");
}

void litgpt_quantize(Job& job, const Entry& e) {
  const std::string word = text_of(e);
  if (word.starts_with("bnb.nf4") || word.starts_with("bnb.fp4"))
    job.set("lora.base", "nf4", e), job.set("lora.double_quant", word.ends_with("-dq") ? "true" : "false", e);
  else if (word.starts_with("bnb.int8"))
    job.set("lora.base", "int8", e);
  else
    reject_value(e, "bnb.nf4, bnb.nf4-dq, bnb.fp4, bnb.fp4-dq or bnb.int8-training");
}

void litgpt_target(Job& job, const Entry& e, const char* names) {
  if (flag_of(e)) job.set(std::string("@lora.") + e.key, names, e);
}

constexpr Rule kLitgpt[] = {
    {"checkpoint_dir", Use::kCopy, kModel},
    {"model_name", Use::kCopy, kModel},
    {"precision", Use::kCustom, "train.precision", "", litgpt_precision},
    {"quantize", Use::kCustom, "lora.base", "", litgpt_quantize},
    {"devices", Use::kCopy, kPerNode},
    {"num_nodes", Use::kCopy, kNodes},
    {"train.micro_batch_size", Use::kCopy, "train.micro_batch"},
    {"train.global_batch_size", Use::kCopy, kGlobalBatch},
    {"train.max_seq_length", Use::kCopy, "data.seq_len"},
    {"lora_r", Use::kCopy, "lora.rank"},
    {"lora_alpha", Use::kCopy, "lora.alpha"},
    {"lora_query", Use::kCustom, "lora.targets", "",
     [](Job& j, const Entry& e) { litgpt_target(j, e, "\"q_proj\""); }},
    {"lora_key", Use::kCustom, "lora.targets", "",
     [](Job& j, const Entry& e) { litgpt_target(j, e, "\"k_proj\""); }},
    {"lora_value", Use::kCustom, "lora.targets", "",
     [](Job& j, const Entry& e) { litgpt_target(j, e, "\"v_proj\""); }},
    {"lora_projection", Use::kCustom, "lora.targets", "",
     [](Job& j, const Entry& e) { litgpt_target(j, e, "\"o_proj\""); }},
    {"lora_mlp", Use::kCustom, "lora.targets", "",
     [](Job& j, const Entry& e) { litgpt_target(j, e, R"("gate_proj", "up_proj", "down_proj")"); }},
    {"lora_head", Use::kNotModelled, "", "an adapter of the LM head"},
    {"lora_dropout", Use::kNoEffect},
    {"optimizer", Use::kChoice, "optimizer.name", "AdamW=adamw|torch.optim.AdamW=adamw"},
    {"optimizer.class_path", Use::kChoice, "optimizer.name",
     "torch.optim.AdamW=adamw|torch.optim.SGD=sgd|bitsandbytes.optim.PagedAdamW=adamw|bitsandbytes.optim."
     "AdamW8bit=adamw-8bit"},
    {"optimizer.*", Use::kNoEffect},
    {"train.*", Use::kNoEffect},
    {"eval.*", Use::kNoEffect},
    {"data*", Use::kNoEffect},
    {"out_dir", Use::kNoEffect},
    {"logger_name", Use::kNoEffect},
    {"seed", Use::kNoEffect},
    {"resume", Use::kNoEffect},
    {"access_token", Use::kNoEffect},
    {"tokenizer_dir", Use::kNoEffect},
    {"initial_checkpoint_dir", Use::kNoEffect},
    {"model_config*", Use::kNoEffect},
};

}  // namespace

void read_litgpt(const Entries& entries, Job& job) {
  job.framework = "litgpt";
  apply_rules(kLitgpt, entries, job);
  std::string targets;
  for (const char* key : {"@lora.lora_query", "@lora.lora_key", "@lora.lora_value", "@lora.lora_projection",
                          "@lora.lora_mlp"}) {
    if (const Given* given = job.find(key)) targets += (targets.empty() ? "" : ", ") + given->value;
    job.erase(key);
  }
  if (!targets.empty()) job.set_default("lora.targets", "[" + targets + "]", "the lora_ keys");
  job.set_default("train.micro_batch", "1", "default of litgpt");
  job.set_default("plan.cross_entropy", "plain", "default of litgpt");
  if (job.find("lora.rank"))
    for (const char* key : {"plan.weights", "plan.gradients", "plan.moments", "plan.master"}) job.erase(key);
}

}  // namespace trainhost::framework_files
