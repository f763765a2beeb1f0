// The YAML of litgpt (0.5.11): config_hub, the arguments of its pretrain and finetune commands. Precision
// "bf16-true" has every tensor in bf16. Several devices shard by FSDP.
#include <algorithm>
#include <array>
#include <utility>

#include "core/framework_files/rules.hpp"

namespace trainhost::framework_files {
namespace {

using runfile::Entry;

void litgpt_precision(Job& job, const Entry& e) {
  // "-true" is the type of every tensor, "-mixed" autocast with f32 weights: names of Lightning Fabric.
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
  // fp4 has the size of nf4. "-dq" quantizes the scales too.
  if (word.starts_with("bnb.nf4") || word.starts_with("bnb.fp4"))
    job.set("lora.base", "nf4", e), job.set("lora.double_quant", word.ends_with("-dq") ? "true" : "false", e);
  else if (word.starts_with("bnb.int8"))
    job.set("lora.base", "int8", e);
  else
    reject_value(e, "bnb.nf4, bnb.nf4-dq, bnb.fp4, bnb.fp4-dq or bnb.int8-training");
}

/// One flag per matrix. They become one list when all are known, because each has a default of its own.
void litgpt_target(Job& job, const Entry& e, const char* names) {
  job.set(std::string("@lora.") + e.key, flag_of(e) ? names : "", e);
}

/// "AdamW", or the path of a class.
void litgpt_optimizer(Job& job, const Entry& e) {
  const std::string path = text_of(e), name = path.substr(path.rfind('.') + 1);
  if (name == "AdamW" || name == "Adam" || name == "PagedAdamW")
    job.set("optimizer.name", "adamw", e);
  else if (name.find("8bit") != name.npos)
    job.set("optimizer.name", "adamw-8bit", e);
  else if (name == "SGD")
    job.set("optimizer.name", "sgd", e);
  else if (name == "GaLoreAdamW")
    job.set("optimizer.name", "adamw", e),
        job.not_modelled = "optimizer state of lower rank, planned as AdamW";
  else
    reject_optimizer(job, e,
                     {"AdamW", "SGD", "bitsandbytes.optim.PagedAdamW", "bitsandbytes.optim.AdamW8bit"});
}

void litgpt_tied(Job& job, const Entry& e) {
  if (flag_of(e)) job.set("@litgpt.tied", "true", e);
}

/// A model that the fields of a run file do not describe.
void litgpt_other(Job& job, const Entry& e) {
  if (!job.find(kOtherModel)) job.set(kOtherModel, e.key, e);
  job.not_modelled = "another model than a Llama: give it by --model=config.json";
}

void litgpt_other_if_true(Job& job, const Entry& e) {
  job.set("@" + e.key, flag_of(e) ? "true" : "false", e);
  if (flag_of(e)) litgpt_other(job, e);
}

void litgpt_class(Job& job, const Entry& e) {
  const std::string name = text_of(e);
  job.set("@" + e.key, name, e);
  if (name != "RMSNorm" && name != "LLaMAMLP") litgpt_other(job, e);
}

constexpr Rule kLitgpt[] = {
    {"checkpoint_dir", Use::kCopy, kModel},
    {"model_name", Use::kCopy, kModel},
    {"precision", Use::kCustom, "train.precision", "", litgpt_precision},
    {"quantize", Use::kCustom, "lora.base", "", litgpt_quantize},
    // `devices` are those of one node. train.global_batch_size counts the sequences of all devices.
    {"devices", Use::kCopy, kPerNode},
    {"num_nodes", Use::kCopy, kNodes},
    {"train.micro_batch_size", Use::kCopy, "train.micro_batch"},
    {"train.global_batch_size", Use::kCopy, kGlobalBatch},
    // Rows are padded to the longest example of a micro-batch; this is their limit.
    {"train.max_seq_length", Use::kCopy, "data.seq_len"},
    {"lora_r", Use::kCopy, "lora.rank"},
    {"lora_alpha", Use::kCopy, "lora.alpha"},
    {"lora_dropout", Use::kCopy, "lora.dropout"},
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
    {"lora_head", Use::kCustom, "lora.targets", "",
     [](Job& j, const Entry& e) { litgpt_target(j, e, "\"lm_head\""); }},
    {"optimizer", Use::kCustom, "optimizer.name", "", litgpt_optimizer},
    {"optimizer.class_path", Use::kCustom, "optimizer.name", "", litgpt_optimizer},
    {"train.tie_embeddings", Use::kCustom, "model.tie_word_embeddings", "", litgpt_tied},
    // The model of `pretrain`: fields of Config, whose classes are those of Llama or of another model.
    {"model_config.n_layer", Use::kCopy, "@litgpt.num_hidden_layers"},
    {"model_config.n_embd", Use::kCopy, "@litgpt.hidden_size"},
    {"model_config.n_head", Use::kCopy, "@litgpt.num_attention_heads"},
    {"model_config.n_query_groups", Use::kCopy, "@litgpt.num_key_value_heads"},
    {"model_config.head_size", Use::kCopy, "@litgpt.head_dim"},
    {"model_config.intermediate_size", Use::kCopy, "@litgpt.intermediate_size"},
    {"model_config.vocab_size", Use::kCopy, "@litgpt.unpadded"},
    {"model_config.padded_vocab_size", Use::kCopy, "@litgpt.vocab_size"},
    {"model_config.block_size", Use::kCopy, "@litgpt.max_position_embeddings"},
    {"model_config.bias", Use::kCustom, "", "", litgpt_other_if_true},
    {"model_config.parallel_residual", Use::kCustom, "", "", litgpt_other_if_true},
    {"model_config.norm_class_name", Use::kCustom, "", "", litgpt_class},
    {"model_config.mlp_class_name", Use::kCustom, "", "", litgpt_class},
    {"model_config.name", Use::kNoEffect},
    {"model_config.hf_config*", Use::kNoEffect},
    {"model_config.norm_eps", Use::kNoEffect},
    {"model_config.rope_base", Use::kNoEffect},
    {"model_config.rotary_percentage", Use::kNoEffect},
    {"model_config.lm_head_bias", Use::kCustom, "", "", litgpt_other_if_true},
    {"model_config*", Use::kNotModelled, "", "fields of the model: give it by --model=config.json"},
};
/// Data, evaluation, checkpoints, learning rates and other values of optimizers.
constexpr const char* kLitgptWithoutEffect =
    "access_token data data.* eval eval.evaluate_example eval.final_validation eval.initial_validation "
    "eval.interval eval.max_iters eval.max_new_tokens initial_checkpoint_dir log log.checkpoint_name "
    "log.group log.log_model log.metadata* log.project log.run log.save_logs log.teamspace logger_name "
    "optimizer.init_args.* optimizer.init_args.betas optimizer.init_args.eps optimizer.init_args.lr "
    "optimizer.init_args.weight_decay "
    "out_dir resume seed tokenizer_dir train.epochs train.log_interval train.lr_warmup_fraction "
    "train.lr_warmup_steps train.max_norm train.max_steps train.max_time train.max_tokens train.min_lr "
    "train.save_interval";

/// model_config replaces the model that model_name names. Config pads the vocabulary to a multiple of 512.
void litgpt_model(Job& job) {
  const Given* layers = job.find("@litgpt.num_hidden_layers");
  if (const Given* tied = job.find("@litgpt.tied"); tied && !layers)
    job.keys.push_back({tied->key, "true", tied->where, runfile::KeyUse::kNotModelled,
                        "the embedding and the LM head share weights"});
  // What is left out is as in GPT-NeoX: its classes, biases and parallel residuals.
  const bool complete = std::ranges::all_of(
      std::array{"norm_class_name", "mlp_class_name", "bias", "parallel_residual"},
      [&](const char* field) { return job.find(std::string("@model_config.") + field) != nullptr; });
  if (layers && !complete && !job.find(kOtherModel)) {
    const Given from = *layers;
    job.set_default(kOtherModel, from.key, from);
  }
  if (layers) {
    const Given from = *layers;
    job.erase(kModel);
    if (!job.find(kOtherModel)) {
      job.set_default("model.model_type", "llama", from);
      constexpr std::uint64_t kMultiple = 512;
      if (const Given* words = job.find("@litgpt.unpadded"))
        job.set_default("@litgpt.vocab_size",
                        std::to_string((count_of(*words) + kMultiple - 1) / kMultiple * kMultiple), *words);
      for (const char* field :
           {"num_hidden_layers", "hidden_size", "num_attention_heads", "num_key_value_heads", "head_dim",
            "intermediate_size", "vocab_size", "max_position_embeddings"})
        if (const Given* given = job.find(std::string("@litgpt.") + field))
          job.set_default(std::string("model.") + field, given->value, Given(*given));
      job.set_default("model.tie_word_embeddings", job.find("@litgpt.tied") ? "true" : "false", from);
      // Without max_seq_length rows are as long as the model allows.
      if (const Given* block = job.find("@litgpt.max_position_embeddings"))
        job.set_default("data.seq_len", block->value, Given(*block));
    }
  }
  job.erase_if([](const std::string& key) {
    return key.starts_with("@litgpt.") || key.starts_with("@model_config.");
  });
}

void litgpt_adapters(Job& job, const Entries& entries) {
  // finetune_lora has these keys, finetune_full and pretrain do not.
  const bool adapters =
      std::ranges::any_of(entries, [](const Entry& e) { return e.key.starts_with("lora_"); });
  std::string targets;
  // lora_query and lora_value are true unless the file says otherwise.
  for (const auto& [key, otherwise] : {std::pair{"@lora.lora_query", "\"q_proj\""},
                                       {"@lora.lora_key", ""},
                                       {"@lora.lora_value", "\"v_proj\""},
                                       {"@lora.lora_projection", ""},
                                       {"@lora.lora_mlp", ""},
                                       {"@lora.lora_head", ""}}) {
    const Given* given = job.find(key);
    const std::string names = given ? given->value : otherwise;
    if (!names.empty()) targets += (targets.empty() ? "" : ", ") + names;
    job.erase(key);
  }
  if (!adapters) return;
  job.set_default("lora.rank", "8", "default of litgpt");
  job.set_default("lora.alpha", "16", "default of litgpt");
  if (!targets.empty()) job.set_default("lora.targets", "[" + targets + "]", "the lora_ keys");
  // The types above are those of full training. Frozen weights have the type of the computation, but in
  // bf16-mixed, which keeps them in f32.
  if (const Given* weights = job.find("plan.weights"); weights && weights->value == "fp32")
    job.set_default("lora.base", "fp32", "precision of litgpt");
  for (const char* key : {"plan.weights", "plan.gradients", "plan.moments", "plan.master"}) job.erase(key);
}

}  // namespace

void read_litgpt(const Entries& entries, Job& job) {
  job.framework = "litgpt";
  apply_rules({{kLitgpt, kLitgptWithoutEffect}}, entries, job);
  // pretrain builds a model from its name; finetune commands load one from checkpoint_dir.
  const bool pretrain = std::ranges::any_of(
      entries, [](const Entry& e) { return e.key == "model_name" || e.key.starts_with("model_config"); });
  if (!job.find("train.precision")) {
    job.set_default("train.precision", "bf16", "default of litgpt (bf16-mixed)");
    job.set_default("plan.weights", "fp32", "default of litgpt (bf16-mixed)");
    job.set_default("plan.master", "none", "default of litgpt (bf16-mixed)");
  }
  litgpt_model(job);
  litgpt_adapters(job, entries);
  // Each command has its own defaults of TrainArgs. A global batch that does not divide is rounded down
  // (gradient_accumulation_iters()).
  job.set_default("train.micro_batch", pretrain ? "4" : "1", "default of litgpt");
  job.set_default(kGlobalBatch, pretrain ? "512" : "16", "default of litgpt");
  job.set_default(kRoundBatch, "true", "litgpt");
  if (!pretrain) job.set_default(kPerNode, "1", "default of litgpt");
  job.set_default(kZeroOfMany, "3", "FSDP of litgpt");
  // The strategy of the finetune commands recomputes every block.
  if (!pretrain) job.set_default(kRecomputeOfMany, "full", "FSDP of litgpt");
  if (pretrain) {
    job.set_default("plan.optimizer_implementation", "fused", "default of litgpt");
    job.set_default("plan.execution", "compile", "pretrain of litgpt");
  }
  job.set_default("plan.cross_entropy", "plain", "default of litgpt");
}

}  // namespace trainhost::framework_files
