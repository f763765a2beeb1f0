// Scripts and notebooks of Unsloth (2026.10): arguments of FastLanguageModel.from_pretrained() and
// get_peft_model(), beside those of the trainers of TRL. Defaults are those of its classes FastLanguageModel
// and FastModel, and of the configurations that it puts in place of TRL's.
#include <algorithm>
#include <array>

#include "core/base/text.hpp"
#include "core/framework_files/rules.hpp"

namespace trainhost::framework_files {
namespace {

using runfile::Entry;
using runfile::Value;

constexpr const char *kUnslothLength = "@unsloth_length", *kTrainerLength = "@unsloth_trainer_length",
                     *kUnslothFour = "@unsloth_4bit", *kUnslothEight = "@unsloth_8bit",
                     *kUnslothFull = "@unsloth_full", *kUnslothMixed = "@unsloth_float32",
                     *kUnslothCheckpoint = "@unsloth_checkpoint", *kNoAttention = "@unsloth_no_attention",
                     *kNoMlp = "@unsloth_no_mlp";

/// The GPU decides unless the script does.
void unsloth_precision(Job& job, const Entry& e, const char* type) {
  if (e.value.kind == Value::Kind::kText && e.value.text == "by device") return;
  if (flag_of(e)) job.set("train.precision", type, e);
}
void unsloth_bf16(Job& job, const Entry& e) { unsloth_precision(job, e, "bf16"); }
void unsloth_fp16(Job& job, const Entry& e) { unsloth_precision(job, e, "fp16"); }

void unsloth_type(Job& job, const Entry& e) {
  const std::string type = text_of(e);
  if (type == "bfloat16" || type == "float16")
    return job.set("train.precision", type == "float16" ? "fp16" : "bf16", e);
  if (type != "float32") reject_value(e, "torch.bfloat16, torch.float16, torch.float32 or None");
  job.not_modelled = "weights in f32; planned in 16 bits";
  job.needs_more = true;
}

/// "unsloth": checkpoints that move the inputs of layers to host memory. get_peft_model() replaces what
/// from_pretrained() was given.
void unsloth_load_checkpointing(Job& job, const Entry& e) {
  job.set_default(kUnslothCheckpoint,
                  e.value.kind == Value::Kind::kBool ? (flag_of(e) ? "true" : "false") : text_of(e), e);
}
void unsloth_adapter_checkpointing(Job& job, const Entry& e) {
  job.set(kUnslothCheckpoint,
          e.value.kind == Value::Kind::kBool ? (flag_of(e) ? "true" : "false") : text_of(e), e);
}

void unsloth_trainer_checkpointing(Job& job, const Entry& e) {
  if (flag_of(e)) return;
  job.not_modelled = "use_gradient_checkpointing of Unsloth decides";
}

/// Unsloth trains embed_tokens and lm_head whole, where they are named as targets.
void unsloth_targets(Job& job, const Entry& e) {
  const std::vector<std::string> names = texts_of(e);
  if (names.size() == 1)
    return names.front() == "all-linear" ? job.set("lora.targets", "all-linear", e)
                                         : set_lora_targets(job, e);
  Entry matrices = e, modules = e;
  const auto is_module = [](const Value& v) { return v.text == "embed_tokens" || v.text == "lm_head"; };
  std::erase_if(matrices.value.items, is_module);
  std::erase_if(modules.value.items, [&](const Value& v) { return !is_module(v); });
  if (!matrices.value.items.empty()) set_lora_targets(job, matrices);
  if (!modules.value.items.empty()) set_modules_to_save(job, modules);
}

void unsloth_class(Job& job, const Entry& e) {
  job.not_modelled = text_of(e) + ": planned as a language model, without a vision or audio encoder";
  job.needs_more = true;
}

constexpr const char* kUsesVllm = "vLLM uses memory of the same device";

constexpr Rule kUnslothLoad[] = {
    {"class", Use::kCustom, "", "", unsloth_class},
    {"max_seq_length", Use::kCopy, kUnslothLength},
    {"dtype", Use::kCustom, "train.precision", "", unsloth_type},
    {"load_in_4bit", Use::kChoice, kUnslothFour, "true=true|false=false"},
    {"load_in_8bit", Use::kChoice, kUnslothEight, "true=true|false=false"},
    {"load_in_16bit", Use::kWhenTrue, kUnslothFour, "false"},
    {"load_in_fp8", Use::kNotModelled, "", "weights in 8 bits; planned in 16"},
    {"full_finetuning", Use::kWhenTrue, kUnslothFull, "true"},
    {"float32_mixed_precision", Use::kWhenTrue, kUnslothMixed, "true"},
    {"use_gradient_checkpointing", Use::kCustom, kUnslothCheckpoint, "", unsloth_load_checkpointing},
    {"fast_inference", Use::kNeedsMore, "", kUsesVllm},
    {"offload_embedding", Use::kNotModelled, "", "the embedding in host memory"},
    {"qat_scheme", Use::kNotModelled, "", "weights that are quantized in each step"},
    {"num_labels", Use::kNotModelled, "", "a head of a classifier"},
};
constexpr const char* kUnslothLoadWithoutEffect =
    "attn_implementation auto_config auto_model device_map* disable_log_stats fast_inference_setup "
    "fix_tokenizer float8_kv_cache fullgraph "
    "gpu_memory_utilization local_files_only max_lora_rank random_state resize_model_vocab return_logits "
    "revision rope_scaling* "
    "supported_lora_modules text_only token tokenizer_name trust_remote_code unsloth_force_compile "
    "unsloth_tiled_mlp unsloth_vllm_standby use_exact_model_name "
    "whisper_language whisper_task";

constexpr Rule kUnslothAdapters[] = {
    {"r", Use::kCopy, "lora.rank"},
    {"lora_alpha", Use::kCopy, "lora.alpha"},
    {"lora_dropout", Use::kCopy, "lora.dropout"},
    {"target_modules", Use::kCustom, "lora.targets", "", unsloth_targets},
    {"modules_to_save", Use::kCustom, "lora.modules_to_save", "", set_modules_to_save},
    {"use_dora", Use::kWhenTrue, "lora.dora", "true"},
    {"use_gradient_checkpointing", Use::kCustom, kUnslothCheckpoint, "", unsloth_adapter_checkpointing},
    {"bias", Use::kNotModelled, "none", "biases that are trained"},
    {"layers_to_transform", Use::kNotModelled, "", "adapters in some layers only"},
    {"finetune_vision_layers", Use::kNeedsMore, "", "adapters of the vision encoder"},
    {"finetune_audio_layers", Use::kNeedsMore, "", "adapters of the audio encoder"},
    {"finetune_language_layers", Use::kNoEffect},
    {"finetune_attention_modules", Use::kWhenFalse, kNoAttention, "true"},
    {"finetune_mlp_modules", Use::kWhenFalse, kNoMlp, "true"},
    {"target_parameters", Use::kNeedsMore, "",
     "adapters of single parameters, which each call copies as a whole"},
    {"qat_scheme", Use::kNotModelled, "", "weights that are quantized in each step"},
};
constexpr const char* kUnslothAdaptersWithoutEffect =
    "exclude_modules init_lora_weights inference_mode layers_pattern loftq_config* max_seq_length "
    "random_state task_type temporary_location use_rslora";

/// Trainers of pairs cut them at their own length.
constexpr Rule kUnslothPairs[] = {
    {"max_length", Use::kCopy, kTrainerLength},
    {"loss_type", Use::kNoEffect},
};

constexpr const char* kOtherMethod = "another training method, perhaps with a second model";
/// In place of the rules of TRL and TrainingArguments.
constexpr Rule kUnslothTrainer[] = {
    {"max_seq_length", Use::kCopy, kTrainerLength},
    {"max_length", Use::kNoEffect},  // that of the model replaces it
    {"bf16", Use::kCustom, "train.precision", "", unsloth_bf16},
    {"fp16", Use::kCustom, "train.precision", "", unsloth_fp16},
    {"gradient_checkpointing", Use::kCustom, "", "", unsloth_trainer_checkpointing},
    {"beta", Use::kNoEffect},
    {"num_generations", Use::kNoEffect},
    {"reward_*", Use::kNoEffect},
    {"loss_type", Use::kNotModelled, "nll|sigmoid", kOtherMethod},
    {"embedding_learning_rate", Use::kNoEffect},
    {"gradient_checkpointing_kwargs*", Use::kNoEffect},
};

/// A value of a setting between rules, without its default; "" where there is none.
std::string unsloth_setting(Job& job, const char* key) {
  const Given* g = job.find(key);
  return g ? g->value : "";
}

void set_unsloth_length(Job& job) {
  const Given *model = job.find(kUnslothLength), *trainer = job.find(kTrainerLength);
  const std::string of_model = model ? model->value : "2048";  // default of from_pretrained()
  if (trainer && (!model || count_of(*trainer) <= count_of(*model)))
    job.set_default("data.seq_len", trainer->value, *trainer);
  else if (model)
    job.set_default("data.seq_len", of_model, *model);
  else
    job.set_default("data.seq_len", of_model, "default of Unsloth");
}

void set_unsloth_base(Job& job) {
  constexpr const char* kUnsloth = "default of Unsloth";
  const std::string four = unsloth_setting(job, kUnslothFour), eight = unsloth_setting(job, kUnslothEight);
  if (eight == "true") {
    job.set_default("lora.base", "int8", *job.find(kUnslothEight));
  } else if (four != "false") {
    const Given* given = job.find(kUnslothFour);
    if (given)
      job.set_default("lora.base", "nf4", *given), job.set_default("lora.double_quant", "true", *given);
    else
      job.set_default("lora.base", "nf4", kUnsloth), job.set_default("lora.double_quant", "true", kUnsloth);
  }
}

void set_unsloth_adapters(Job& job) {
  constexpr const char* kUnsloth = "default of Unsloth";
  job.set_default("lora.rank", "16", kUnsloth);
  job.set_default("lora.alpha", "16", kUnsloth);
  job.set_default("lora.dropout", "0", kUnsloth);
  if (const Given* no_mlp = job.find(kNoMlp))
    job.set_default("lora.targets", R"(["q_proj", "k_proj", "v_proj", "o_proj"])", *no_mlp);
  else if (const Given* no_attention = job.find(kNoAttention))
    job.set_default("lora.targets", R"(["gate_proj", "up_proj", "down_proj"])", *no_attention);
  job.set_default("lora.targets", "all-linear", kUnsloth);
}

void set_unsloth_checkpointing(Job& job) {
  const Given* g = job.find(kUnslothCheckpoint);
  if (!g || g->value == "unsloth" || g->value == "None") {  // the default of plans for Unsloth
    if (job.framework != "unsloth") job.set_default("train.recompute", "full", "default of Unsloth");
    return;
  }
  const Given from = *g;
  if (from.value != "true" && from.value != "false")
    throw usage_error(from.key + " = " + escaped(from.value, 60) + ": expected \"unsloth\", True or False",
                      {}, from.where);
  job.set_default("train.recompute", from.value == "true" ? "full" : "none", from);
  job.set_default("plan.offload_activations", "none", from);
}

/// Weights that are trained whole: bf16, or f32 under autocast.
void set_unsloth_full(Job& job, const Given& from) {
  job.erase_if([](const std::string& key) { return key.starts_with("lora."); });
  job.set_default("train.precision", "bf16", from);
  if (const Given* mixed = job.find(kUnslothMixed)) {
    const Given g = *mixed;
    job.set_default("plan.weights", "fp32", g), job.set_default("plan.master", "none", g);
  } else if (job.framework != "unsloth") {
    for (const char* key : {"plan.weights", "plan.gradients", "plan.moments"})
      job.set_default(key, "bf16", from);
  }
}

bool is_of_pairs(const std::string& method) { return method == "dpo" || method == "orpo" || method == "cpo"; }

/// Pairs are the trainer of TRL, which computes all logits in the releases that Unsloth takes. Its functions
/// are not described beside that loss, so the modules of transformers and peft are planned.
void read_pairs(Job& job, const Entry& method) {
  job.framework = "transformers";
  set_method(job, text_of(method), method);
  job.keys.push_back({method.shown(), "...", method.key_where, runfile::KeyUse::kNotModelled,
                      "its loss is planned, but not the functions of Unsloth, which keep fewer activations"});
  job.set_default("train.precision", "bf16", "default of Unsloth");
  job.set_default("plan.cross_entropy", "plain", method);
  // Unsloth loads everything in 16 bits.
  job.set_default("plan.master", "none", method);
}

/// Unsloth requires its own releases of transformers and TRL.
void note_unused_pins(Job& job, const Entries& entries) {
  for (const Entry& e : entries)
    if (e.key.starts_with("@@release."))
      job.keys.push_back({e.shown(), e.value.text, e.key_where, runfile::KeyUse::kNotModelled,
                          "planned is Unsloth 2026.10"});
}

}  // namespace

void read_unsloth(const Entries& entries, Job& job) {
  job.framework = "unsloth";
  const Entry* method = mark_of(entries, "@@method");
  const bool pairs = method && is_of_pairs(text_of(*method));
  apply_rules({pairs ? RuleSet{kUnslothPairs} : RuleSet{},
               {kUnslothLoad, kUnslothLoadWithoutEffect, "unsloth."},
               {kUnslothAdapters, kUnslothAdaptersWithoutEffect, "adapters."},
               {kUnslothTrainer, ""},
               python_trainer_rules(),
               trl_rules(),
               training_arguments()},
              entries, job);
  note_other_trainers(job, entries);
  note_unused_pins(job, entries);
  if (pairs)
    read_pairs(job, *method);
  else if (method)
    job.keys.push_back({method->shown(), "...", method->key_where, runfile::KeyUse::kNotModelled,
                        "another training method; planned is one training step of SFT", true});
  const Entry* no_adapters = mark_of(entries, "@@no_adapters");
  const Given* full = job.find(kUnslothFull);
  if (full) {
    set_unsloth_full(job, Given(*full));
  } else if (!no_adapters || job.find("@peft") || job.is_option("lora.rank")) {
    set_unsloth_base(job);
    set_unsloth_adapters(job);
  } else {
    const bool quantized =
        unsloth_setting(job, kUnslothFour) != "false" || unsloth_setting(job, kUnslothEight) == "true";
    if (quantized)
      throw usage_error(
          "the script loads the weights in 4 or 8 bits, as Unsloth does by default, and adds no adapters: "
          "such weights cannot be trained",
          "add get_peft_model(), full_finetuning = True, or --set lora.rank=16", no_adapters->key_where);
    set_unsloth_full(job, Given{"true", no_adapters->shown(), no_adapters->key_where});
  }
  set_unsloth_length(job);
  set_unsloth_checkpointing(job);
  const bool trl = mark_of(entries, "@@trl_arguments");
  constexpr const char* kUnsloth = "default of Unsloth";
  job.set_default("train.micro_batch", trl ? "4" : "8", trl ? kUnsloth : "default of TrainingArguments");
  if (trl)
    job.set_default("train.grad_accum", "2", kUnsloth),
        job.set_default("optimizer.name", "adamw-8bit", kUnsloth);
  job.erase_if([](const std::string& key) { return key.starts_with("@unsloth_"); });
  for (const char* key : {kMixed, "@peft", "@beta", "@not_bf16", "@not_fp16", kNoRecompute}) job.erase(key);
}

}  // namespace trainhost::framework_files
