// Options of ms-swift (4.5): `swift sft`, `swift pt` and `swift rlhf`, in a shell script or YAML. Its
// trainers are those of transformers and TRL, so the job is one of transformers or, with --deepspeed, of
// DeepSpeed. Its own defaults are those of its argument classes.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "core/base/checked.hpp"
#include "core/framework_files/rules.hpp"
#include "core/model/model_names.hpp"

namespace trainhost::framework_files {
namespace {

using runfile::Entry;
using runfile::Value;

constexpr const char* kSource = "default of ms-swift";

void swift_tuner(Job& job, const Entry& e) {
  const std::string kind = text_of(e);
  job.set("@tuner", kind == "full" ? "full" : "lora", e);
  if (kind != "full" && kind != "lora") job.not_modelled = "adapters of another form, planned as LoRA";
}

void swift_type(Job& job, const Entry& e) {
  const std::string word = text_of(e);
  if (word != "bfloat16" && word != "float16" && word != "float32")
    reject_value(e, "bfloat16, float16 or float32");
  job.set("@type", word, e);
}

void swift_bits(Job& job, const Entry& e) {
  const std::uint64_t bits = whole_of(e);
  if (bits == 0 || bits > 8) reject_value(e, "4 or 8");
  if (bits != 4 && bits != 8) job.not_modelled = "planned with the next larger of 4 and 8 bits";
  job.set("lora.base", bits <= 4 ? "nf4" : "int8", e);
  if (bits <= 4) job.set_default("lora.double_quant", "true", kSource);
}

/// Names of its configurations: zero0 to zero3, zero2_offload, zero3_offload. Paths are read as files.
void swift_deepspeed(Job& job, const Entry& e) {
  const std::string name = text_of(e);
  if (name.size() < 5 || !name.starts_with("zero")) reject_value(e, "zero0, zero1, zero2 or zero3");
  const char stage = name[4];
  job.framework = "deepspeed";
  job.set("parallel.zero", std::string(1, stage), e);
  if (name.ends_with("_offload")) {
    job.set("plan.offload_optimizer", "cpu", e);
    if (stage == '3') job.set("plan.offload_weights", "cpu", e);
  }
  job.set_default("plan.reduce_bucket", stage == '3' ? "0" : "200000000", e);
  if (stage == '3')
    job.set_default("plan.prefetch_bucket", "-1", e), job.set_default("plan.persistence_threshold", "-1", e);
  job.set("@deepspeed", "true", e);
}

/// Its configuration recomputes layers by FSDP.
void swift_fsdp(Job& job, const Entry& e) {
  job.set("parallel.zero", "3", e);
  job.set_default("plan.fsdp_version", "2", e);
  job.set(kSharded, "true", e);
}

/// '{"use_reentrant": false}': its words, of a script or of a file.
void swift_checkpoints(Job& job, const Entry& e) {
  std::string text;
  for (const Value& v : e.value.items) text += v.text;
  if (text.empty()) text = text_of(e);
  const std::size_t key = text.find("use_reentrant");
  if (key == text.npos) return;
  job.set("plan.checkpoint_reentrant", text.find("true", key) != text.npos ? "true" : "false", e);
}

void swift_checkpointing(Job& job, const Entry& e) {
  job.set("train.recompute", flag_of(e) ? "full" : "none", e);
}

constexpr const char *kFrozen = "frozen weights have no gradients", *kModels = "a second model",
                     *kEngine = "an engine of vLLM on the same device";

constexpr Rule kSwift[] = {
    // Set before the ranks are started.
    {"ENV.NPROC_PER_NODE", Use::kCopy, kPerNode},
    {"ENV.NNODES", Use::kCopy, kNodes},
    {"@device_map", Use::kNotModelled, "",
     "each process divides the layers over its devices; planned is the sum of these devices"},
    {"model", Use::kCopy, kModel},
    {"model_id_or_path", Use::kCopy, kModel},
    {"max_length", Use::kCopy, "data.seq_len"},
    {"tuner_type", Use::kCustom, "lora.rank", "", swift_tuner},
    {"train_type", Use::kCustom, "lora.rank", "", swift_tuner},
    {"sft_type", Use::kCustom, "lora.rank", "", swift_tuner},
    {"torch_dtype", Use::kCustom, "train.precision", "", swift_type},
    {"bf16", Use::kChoice, "@bf16", "true=true|false=false"},
    {"fp16", Use::kChoice, "@fp16", "true=true|false=false"},
    {"gradient_checkpointing", Use::kCustom, "train.recompute", "", swift_checkpointing},
    {"gradient_checkpointing_kwargs", Use::kCustom, "plan.checkpoint_reentrant", "", swift_checkpoints},
    {"gradient_checkpointing_kwargs.use_reentrant", Use::kChoice, "plan.checkpoint_reentrant",
     "true=true|false=false"},
    {"lora_rank", Use::kCopy, "lora.rank"},
    {"lora_alpha", Use::kCopy, "lora.alpha"},
    {"lora_dropout", Use::kCopy, "lora.dropout"},
    {"use_dora", Use::kWhenTrue, "lora.dora", "true"},
    {"target_modules", Use::kCustom, "lora.targets", "", set_lora_targets},
    {"target_regex", Use::kCustom, "lora.targets", "", set_lora_targets},
    {"target_parameters", Use::kNeedsMore, "",
     "adapters of single parameters, which each call copies as a whole"},
    {"modules_to_save", Use::kCustom, "lora.modules_to_save", "", set_modules_to_save},
    {"lora_dtype", Use::kNotModelled, "float32|None", "adapters of another type"},
    {"lora_bias", Use::kNotModelled, "none", "trained biases"},
    {"quant_bits", Use::kCustom, "lora.base", "", swift_bits},
    {"quant_method", Use::kNotModelled, "bnb", "other quantized weights"},
    {"bnb_4bit_use_double_quant", Use::kChoice, "lora.double_quant", "true=true|false=false"},
    {"bnb_4bit_quant_storage", Use::kChoice, "plan.quant_storage",
     "uint8=uint8|bfloat16=compute|float16=compute"},
    {"bnb_4bit_compute_dtype", Use::kCustom, "plan.quant_compute", "", set_product_type},
    {"attn_impl", Use::kCustom, "plan.attention", "", set_attention},
    {"@deepspeed_preset", Use::kCustom, "parallel.zero", "", swift_deepspeed},
    {"@fsdp_preset", Use::kCustom, "parallel.zero", "", swift_fsdp},
    {"sequence_parallel_size", Use::kCopy, "parallel.context"},
    // per_token_loss_func_sp(), which runs with sequence_parallel_size alone. The published run of ms-swift's
    // example with Qwen3.5 4B has 68 GiB, and its plan 125.
    {"CELOSS_PARALLEL_SIZE", Use::kNotModelled, "0",
     "a loss whose gradient overwrites the logits, with sequence_parallel_size; planned with the loss of "
     "transformers, which needs about twice as much"},
    {"deepspeed_autotp_size", Use::kCopy, "parallel.tensor"},
    {"NPROC_PER_NODE", Use::kCopy, kPerNode},
    {"NNODES", Use::kCopy, kNodes},
    {"rlhf_type", Use::kCustom, kMethod, "", [](Job& j, const Entry& e) { set_method(j, text_of(e), e); }},
    // The command without --rlhf_type (add_swift_entries() in file_kinds.cpp).
    {"@rlhf", Use::kCustom, kMethod, "",
     [](Job& j, const Entry&) { j.set_default("plan.method", "dpo", kSource); }},
    {"precompute_ref_log_probs", Use::kWhenTrue, "plan.reference_model", "false"},
    {"ref_model", Use::kNeedsMore, "", kModels},
    {"reward_model", Use::kNeedsMore, "", kModels},
    {"teacher_model", Use::kNeedsMore, "", kModels},
    {"use_vllm", Use::kNeedsMore, "", kEngine},
    {"use_logits_to_keep", Use::kNotModelled, "", "logits of answers alone"},
    {"task_type", Use::kNotModelled, "causal_lm",
     "another head of the model; planned with logits of all words, which need more"},
    {"freeze_llm", Use::kNotModelled, "", kFrozen},
    {"freeze_parameters*", Use::kNotModelled, "", kFrozen},
    {"trainable_parameters*", Use::kNotModelled, "", kFrozen},
    {"optimizer", Use::kNotModelled, "", "an optimizer of ms-swift"},
    {"use_galore", Use::kNotModelled, "", "optimizer state of lower rank"},
    {"lisa_activated_layers", Use::kNotModelled, "", kFrozen},
    {"tuner_backend", Use::kNotModelled, "peft", "kernels of Unsloth"},
    {"zero_hpz_partition_size", Use::kNotModelled, "", "weights are sharded within each node too"},
    {"device_map", Use::kNotModelled, "", "layers on several devices"},
    {"new_special_tokens", Use::kNotModelled, "", "another vocabulary"},
    {"router_aux_loss_coef", Use::kNoEffect},
};
/// Data and templates, evaluation and sampling, checkpoints, values of losses and of other adapters.
constexpr const char* kSwiftWithoutEffect =
    "acc_strategy adapter_* adapters add_* advantage_* agent_template aligner_lr async_* attn_impl_* boft_* "
    "cached_* cached_dataset cached_val_dataset callbacks check_model chord_* columns "
    "create_checkpoint_symlink custom_* dataset dataset_* "
    "delta desirable_weight disable_* download_mode ds3_gather_for_generation dynamic_sample early_stop_* "
    "enable_* epsilon* eval_* external_plugins fourier_* freeze_aligner freeze_vit galore_* gkd_* gym_* "
    "ignore_args_error importance_sampling_level init_* interleave_prob is_binary_loss_scale kl_* "
    "label_smoothing lazy_tokenize ld_alpha lisa_* lmbda load_* log_completions log_entropy logprobs "
    "lora_ga_* lorap_lr_ratio loss_scale loss_type loss_weights max_completion_length max_epochs max_memory "
    "max_model_len max_new_tokens max_pixels max_resample_times max_turns merge_lora metric model_author "
    "model_kwargs model_name model_revision model_type move_model_batches mrl_dims multi_turn_* norm_bbox "
    "num_beams num_generations num_infer_workers num_iterations num_labels offload_* overlong_filter "
    "packing packing_* padding_free padding_side preserve_thinking problem_type reft_* repetition_penalty "
    "response_length response_prefix resume_only_model reward_* rope_scaling rpo_alpha save_only_model "
    "scale_rewards seq_kd sft_alpha shuffle_buffer_size simpo_gamma sleep_level soft_* split_dataset_ratio "
    "steps_per_generation stop_words stopping_strategy stream streaming strict swanlab_* system task_* "
    "temperature template template_backend to_cached_dataset tool* top_* train_dataloader_shuffle "
    "truncation_strategy undesirable_weight use_chat_template use_flash_ckpt use_gym_env use_hf use_ray "
    "use_rslora "
    "bnb_4bit_quant_type device_groups* experts_impl fipo_* log_rollout_* tau_* teacher_deepspeed "
    "teacher_model_server val_dataset* vera_* vit_* vllm_* warmup_ratio beta ENV.*";

/// SequenceParallel.pad(): ranks that share a sequence have equal parts of it.
void pad_to_ranks(Job& job) {
  const Given *ranks = job.find("parallel.context"), *length = job.find("data.seq_len");
  if (!ranks || !length || job.is_option("data.seq_len") || job.is_option("parallel.context")) return;
  const std::uint64_t parts = count_of(*ranks), tokens = count_of(*length);
  if (tokens % parts == 0) return;
  const Given from = *length;
  job.erase("data.seq_len");
  job.set_default("data.seq_len", std::to_string(checked_mul((tokens - 1) / parts + 1, parts)), from);
}

/// The type of the checkpoint (torch_dtype) decides the mixed precision that --bf16 and --fp16 leave open:
/// f16 and f32 train in f16. With neither, the run has the type of the weights.
void swift_types(Job& job, bool adapters) {
  const Given *given = job.find("@type"), *bf16 = job.find("@bf16"), *fp16 = job.find("@fp16");
  const Given from = given ? *given : Given{"bfloat16", kSource, {}, true};
  const std::string type = from.value == "bfloat16" ? "bf16" : "fp16",
                    loaded = from.value == "float32" ? "fp32" : type;
  bool narrow = bf16 ? bf16->value == "true" : type == "bf16";
  const bool half = fp16 ? fp16->value == "true" : type == "fp16";
  if (narrow && half) {
    // transformers refuses both. Without torch_dtype the type of the checkpoint is only assumed.
    const Given& flag = fp16 ? *fp16 : *bf16;
    if (given || bf16)
      throw usage_error(
          fmt::format("{} = true beside {} = {}: transformers refuses bf16 and fp16 together", flag.key,
                      fp16 && bf16 ? bf16->key : from.key, fp16 && bf16 ? bf16->value : from.value),
          fp16 ? "add --bf16 false, or remove --fp16" : "add --fp16 false, or remove --bf16", flag.where);
    narrow = false;
  }
  const Given precision = fp16 && half ? *fp16 : bf16 ? *bf16 : fp16 ? *fp16 : from;
  job.set_default("train.precision", half ? "fp16" : narrow ? "bf16" : loaded, precision);
  if (adapters) {
    job.set_default("lora.base", loaded, from);
    // Embedding, norms and head of a quantized model stay as they are loaded.
    const Given* named = job.find(kModel);
    if (const std::string& base = job.find("lora.base")->value;
        base == "nf4" || base == "int8" || (named && is_stored_in_nf4(named->value)))
      job.set_default("plan.master", "none", kSource);
  } else {
    for (const char* key : {"plan.weights", "plan.gradients", "plan.moments"})
      job.set_default(key, loaded, from);
    job.set_default("plan.master", "none", from);
  }
}

}  // namespace

RuleSet swift_without_effect() { return {{}, kSwiftWithoutEffect}; }

void read_swift(const Entries& entries, Job& job) {
  job.framework = "transformers";
  const Entries options = script_options(entries, job);
  for (const Entry& e : options)  // a configuration of DeepSpeed
    if (e.key == "fsdp" && e.value.text.starts_with("zero")) reject_value(e, "fsdp2 or full_shard");
  apply_rules({{kSwift, kSwiftWithoutEffect},
               fsdp_rules("fsdp_config.fsdp_"),
               fsdp_rules("fsdp_config."),
               training_arguments(),
               launcher_rules()},
              options, job);
  const Given* fsdp = job.find(kFsdp);
  finish_fsdp(job, fsdp && fsdp->value == "true" ? fsdp : nullptr, "2");
  const Given* tuner = job.find("@tuner");
  const bool adapters = !tuner || tuner->value == "lora";
  if (adapters) {
    job.set_default("lora.rank", "8", kSource);
    job.set_default("lora.alpha", "32", kSource);
    job.set_default("lora.dropout", "0.05", kSource);
    job.set_default("lora.targets", "all-linear", kSource);
    // find_all_linears() lists their names for "all-linear".
    const std::string& targets = job.find("lora.targets")->value;
    if (targets == "all-linear" || targets == R"(["all-linear"])")
      job.set_default(kLinearLayers, "true", kSource);
  } else {
    job.erase_if([](const std::string& key) { return key.starts_with("lora."); });
  }
  swift_types(job, adapters);
  pad_to_ranks(job);
  finish_product_type(job);
  drop_unused_double_quantization(job);
  if (job.find("@deepspeed")) finish_deepspeed(job);
  note_deepspeed_file(job, options);
  finish_launcher(job);
  job.set_default("train.micro_batch", "1", kSource);
  job.set_default(kLeastBatch, "16", kSource);
  job.set_default("train.recompute", "full", kSource);
  job.set_default(kReentrantAlone, "true", kSource);
  job.set_default("plan.cross_entropy", "plain", "default of transformers");
  for (const char* key : {"@tuner", "@type", "@bf16", "@fp16", "@deepspeed"}) job.erase(key);
}

}  // namespace trainhost::framework_files
