// Rules that several frameworks share: TrainingArguments of transformers (4.40 to 5.23), which LLaMA-Factory
// and TRL extend, the settings of FSDP as accelerate reads them, training methods. Names of optimizers:
// optimizer_rules.cpp; of LoRA matrices: lora_rules.cpp.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "core/base/text.hpp"
#include "core/framework_files/rules.hpp"

namespace trainhost::framework_files {
namespace {

using runfile::Entry;
using runfile::Value;

constexpr const char* kHybrid =
    "weights are sharded within each replica; planned as sharded over all data-parallel ranks";

void trainer_mixed(Job& job, const Entry& e, const char* type) {
  // An explicit `false` is remembered: it keeps off what TRL switches on by default.
  if (flag_of(e))
    set_autocast(job, type, e), job.set(kMixed, type, e);
  else
    job.set(std::string("@not_") + type, "true", e);
}

void trainer_bf16(Job& job, const Entry& e) { trainer_mixed(job, e, "bf16"); }
void trainer_fp16(Job& job, const Entry& e) { trainer_mixed(job, e, "fp16"); }

void trainer_checkpointing(Job& job, const Entry& e) {
  // As above: `false` keeps off recomputation, which TRL switches on since 0.22.
  if (flag_of(e))
    job.set("train.recompute", "full", e);
  else
    job.set(kNoRecompute, "true", e);
}

void trainer_adafactor(Job& job, const Entry& e) {
  if (flag_of(e)) job.set("optimizer.name", "adafactor", e);
}

void trainer_fsdp(Job& job, const Entry& e) {
  if (e.value.kind == Value::Kind::kBool) return job.set(kFsdp, flag_of(e) ? "true" : "false", e);
  if (e.value.kind == Value::Kind::kText && e.value.text.empty()) return;  // the default until 4.40
  // "full_shard auto_wrap offload", or a list of these words.
  const std::string words =
      e.value.kind == Value::Kind::kList ? fmt::format("{}", fmt::join(texts_of(e), " ")) : text_of(e);
  const auto has = [&](const char* word) { return words.find(word) != words.npos; };
  if (words.empty()) return;
  // Words that are not named here (auto_wrap, full_shard) say how FSDP wraps layers, or its default.
  job.set(kFsdp, has("no_shard") ? "false" : "true", e);
  if (has("shard_grad_op") || has("zero2")) job.set_default("@fsdp_zero", "2", e);
  if (has("offload")) job.set("@fsdp_offload", "cpu", e);
  if (has("hybrid")) job.not_modelled = kHybrid;
}

/// FSDP2 says true or false, FSDP1 the name or the number of the sharding strategy.
void fsdp_reshard(Job& job, const Entry& e) {
  std::string word = text_of(e);
  std::ranges::transform(word, word.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c; });
  const auto is = [&](std::initializer_list<const char*> words) {
    return std::ranges::any_of(words, [&](const char* w) { return word == w; });
  };
  if (is({"hybrid_shard", "4", "hybrid_shard_zero2", "5"})) job.not_modelled = kHybrid;
  if (is({"true", "full_shard", "1", "hybrid_shard", "4"}))
    job.set("@fsdp_zero", "3", e);
  else if (is({"false", "shard_grad_op", "2", "hybrid_shard_zero2", "5"}))
    job.set("@fsdp_zero", "2", e);
  else if (is({"no_shard", "3"}))
    job.set("@fsdp_zero", "0", e);
  else
    reject_value(e, "true, false, FULL_SHARD, SHARD_GRAD_OP, NO_SHARD, HYBRID_SHARD or HYBRID_SHARD_ZERO2");
}

/// BACKWARD_PRE, BACKWARD_POST, NO_PREFETCH, or their numbers.
void fsdp_backward_prefetch(Job& job, const Entry& e) {
  std::string word = text_of(e);
  std::ranges::transform(word, word.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c; });
  if (word == "backward_pre" || word == "1")
    job.set("@fsdp_backward_prefetch", "pre", e);
  else if (word == "backward_post" || word == "2")
    job.set("@fsdp_backward_prefetch", "post", e);
  else if (word == "no_prefetch" || word == "3" || e.value.kind == Value::Kind::kNull)
    job.set("@fsdp_backward_prefetch", "none", e);
  else
    reject_value(e, "BACKWARD_PRE, BACKWARD_POST or NO_PREFETCH");
}

void fsdp_forward_prefetch(Job& job, const Entry& e) {
  job.set("@fsdp_forward_prefetch", flag_of(e) ? "true" : "false", e);
}

void fsdp_use_orig_params(Job& job, const Entry& e) {
  job.set("@fsdp_use_orig_params", flag_of(e) ? "true" : "false", e);
}

/// Settings of FSDP count only where FSDP is on, which a key elsewhere in the file, or another file, says.
/// They are kept below "@fsdp" until finish_fsdp() knows. Versions 1 and 2 have different names for the same
/// settings.
constexpr Rule kFsdpRules[] = {
    {"version", Use::kCopy, "@fsdp_version"},
    {"reshard_after_forward", Use::kCustom, "parallel.zero", "", fsdp_reshard},
    {"sharding_strategy", Use::kCustom, "parallel.zero", "", fsdp_reshard},
    {"backward_prefetch", Use::kCustom, "plan.backward_prefetch", "", fsdp_backward_prefetch},
    {"forward_prefetch", Use::kCustom, "plan.forward_prefetch", "", fsdp_forward_prefetch},
    {"use_orig_params", Use::kCustom, "plan.use_orig_params", "", fsdp_use_orig_params},
    {"offload_params", Use::kWhenTrue, "@fsdp_offload", "cpu"},
    {"cpu_offload", Use::kWhenTrue, "@fsdp_offload", "cpu"},
    {"activation_checkpointing", Use::kWhenTrue, "@fsdp_recompute", "full"},
    {"activation_checkpointing_offload", Use::kWhenTrue, "@fsdp_recompute_offload", "cpu"},
    {"auto_wrap_policy", Use::kNotModelled, "TRANSFORMER_BASED_WRAP",
     "other units of weights are gathered than layers"},
};
/// Loading, checkpoints, order of collectives, and names of the wrapped classes: plans take each layer as a
/// unit.
constexpr const char* kFsdpWithoutEffect =
    "limit_all_gathers cpu_ram_efficient_loading cpu_offload_pin_memory state_dict_type "
    "final_state_dict_type "
    "sync_module_states "
    "transformer_layer_cls_to_wrap transformer_cls_names_to_wrap min_num_params ignored_modules xla "
    "xla_fsdp_v2 xla_fsdp_settings* xla_fsdp_grad_ckpt mixed_precision_policy activation_cpu_offload";

/// Keys of 4.40 to 5.23, also those that were renamed or removed since: a value of any version is read.
constexpr Rule kTrainingArguments[] = {
    {"model_name_or_path", Use::kCopy, kModel},
    {"per_device_train_batch_size", Use::kCopy, "train.micro_batch"},
    {"per_gpu_train_batch_size", Use::kCopy, "train.micro_batch"},
    {"gradient_accumulation_steps", Use::kCopy, "train.grad_accum"},
    {"bf16", Use::kCustom, "train.precision", "", trainer_bf16},
    {"fp16", Use::kCustom, "train.precision", "", trainer_fp16},
    {"gradient_checkpointing", Use::kCustom, "train.recompute", "", trainer_checkpointing},
    {"activation_checkpointing", Use::kCustom, "train.recompute", "", trainer_checkpointing},
    {"gradient_checkpointing_kwargs.use_reentrant", Use::kChoice, "plan.checkpoint_reentrant",
     "true=true|false=false"},
    {"activation_checkpointing_kwargs.use_reentrant", Use::kChoice, "plan.checkpoint_reentrant",
     "true=true|false=false"},
    {"gradient_checkpointing_kwargs.every_n_layers", Use::kNotModelled, "1", "other layers are kept"},
    {"activation_checkpointing_kwargs.every_n_layers", Use::kNotModelled, "1", "other layers are kept"},
    {"optim", Use::kCustom, "optimizer.name", "", set_hugging_face_optimizer},
    {"adafactor", Use::kCustom, "optimizer.name", "", trainer_adafactor},
    // Liger computes head and loss in chunks of tokens; its other kernels are the default of
    // plan.liger_kernels.
    {"use_liger_kernel", Use::kWhenTrue, "plan.cross_entropy", "liger"},
    {"use_liger", Use::kWhenTrue, "plan.cross_entropy", "liger"},
    {"liger_kernel_config.*", Use::kNotModelled, "true", "operators of Liger that are switched off"},
    {"fsdp", Use::kCustom, "parallel.zero", "", trainer_fsdp},
    {"fsdp_config", Use::kCustom, "parallel.zero", "", [](Job&, const Entry&) {}},  // read_files() reads it
    {"deepspeed", Use::kCustom, "parallel.zero", "", [](Job&, const Entry&) {}},    // read_files() reads it
    {"torch_compile", Use::kNotModelled, "", "compiled graphs keep other activations"},
    {"torchdynamo", Use::kNotModelled, "", "compiled graphs keep other activations"},
    {"auto_find_batch_size", Use::kNotModelled, "", "the micro-batch may become smaller"},
    {"label_smoothing_factor", Use::kNeedsMore, "", "the loss keeps the logarithms of all probabilities"},
    {"half_precision_backend", Use::kNotModelled, "auto|cuda_amp", "mixed precision of apex"},
    {"fp16_backend", Use::kNotModelled, "auto|cuda_amp|amp", "mixed precision of apex"},
    {"ddp_bucket_cap_mb", Use::kCustom, "plan.ddp_bucket", "", set_ddp_bucket},
    // Other sizes of parallelism_config follow from the number of devices.
    {"parallelism_config.tp_size", Use::kCopy, "parallel.tensor"},
    {"parallelism_config.cp_size", Use::kCopy, "parallel.context"},
    {"split_batches", Use::kNotModelled, "", "devices divide each batch"},
    {"accelerator_config.split_batches", Use::kNotModelled, "", "devices divide each batch"},
    {"mp_parameters", Use::kNotModelled, "", "model parallelism of SageMaker"},
};

/// Values of the optimizer and the schedule, data, evaluation, logging, checkpoints, launching. Some change
/// memory outside of training steps (eval_*, per_device_eval_batch_size) or of the host (dataloader_*), which
/// is not planned.
constexpr const char* kTrainerWithoutEffect =
    "accelerator_config* activation_checkpointing_kwargs* adam_* average_tokens_across_devices "
    "batch_eval_metrics bf16_full_eval data_seed dataloader_* ddp_* debug disable_tqdm dispatch_batches "
    "do_eval do_predict do_train enable_jit_checkpoint eval_* evaluation_strategy fp16_full_eval "
    "fp16_opt_level framework fsdp_min_num_params fsdp_transformer_layer_cls_to_wrap full_determinism "
    "generation_* gradient_checkpointing_kwargs* greater_is_better group_by_length hub_* "
    "ignore_data_skip include_for_metrics include_inputs_for_metrics include_num_input_tokens_seen "
    "include_tokens_per_second jit_mode_eval label_names learning_rate length_column_name "
    "load_best_model_at_end local_rank log_level log_level_replica log_on_each_node logging_* "
    "lr_scheduler_kwargs* lr_scheduler_type max_grad_norm max_steps metric_for_best_model "
    "neftune_noise_alpha no_cuda num_train_epochs optim_args optim_target_modules output_dir "
    "overwrite_output_dir parallelism_config.* past_index per_device_eval_batch_size "
    "per_gpu_eval_batch_size predict_with_generate prediction_loss_only project push_to_hub* ray_scope "
    "remove_unused_columns report_to restore_callback_states_from_checkpoint resume_from_checkpoint "
    "run_name save_* seed skip_memory_metrics sortish_sampler split_batches tf32 torch_compile_* "
    "torch_empty_cache_steps tpu_metrics_debug tpu_num_cores trackio_* train_sampling_strategy "
    "use_cache use_cpu use_ipex use_legacy_prediction_loop use_mps_device warmup_ratio warmup_steps "
    "weight_decay";

}  // namespace

RuleSet training_arguments() { return {kTrainingArguments, kTrainerWithoutEffect}; }
RuleSet training_arguments_without_effect() { return {{}, kTrainerWithoutEffect}; }
RuleSet fsdp_rules(std::string_view table) { return {kFsdpRules, kFsdpWithoutEffect, table}; }

void note_deepspeed_file(Job& job, const Entries& options) {
  const bool file = std::ranges::any_of(options, [](const Entry& e) {
    return (e.key == "deepspeed" || e.key == "deepspeed_config" || e.key == "deepspeed_config_file") &&
           e.value.kind == runfile::Value::Kind::kText;
  });
  if (file) job.set_default("@deepspeed_file", "true", "the script");
}

void set_method_of_loss(Job& job, const std::string& loss, const runfile::Entry& from) {
  constexpr std::array kPolicy{"grpo", "bnpo", "dr_grpo", "dapo", "cispo", "sapo", "luspo", "vespo"};
  set_method(job,
             std::ranges::find(kPolicy, loss) != kPolicy.end() ? "grpo"
             : loss == "simpo" || loss == "alphapo"            ? "simpo"
             : loss == "kto"                                   ? "kto"
                                                               : "dpo",
             from);
}

void set_method(Job& job, const std::string& method, const runfile::Entry& from) {
  const auto is = [&](std::initializer_list<std::string_view> names) {
    return std::ranges::find(names, method) != names.end();
  };
  // A loss that rewards its own chosen sequences has pairs too, but no reference.
  const bool no_reference = is({"orpo", "simpo", "cpo", "alphapo"});
  if (is({"dpo", "ipo"}) || no_reference) {
    if (!job.find("plan.method")) job.set_default("plan.method", "dpo", from);
    if (no_reference) job.set_default("plan.reference_model", "false", from);
    return;
  }
  job.needs_more = true;
  if (is({"kto"}))
    job.not_modelled = "a reference model, unless adapters are trained; planned is SFT without it";
  else if (is({"rm", "reward"}))
    job.not_modelled =
        "a reward model has two sequences per example, and a head with one output; planned is SFT with one";
  else if (is({"grpo", "gdpo", "ppo", "rloo", "ebft"}))
    job.not_modelled =
        "reinforcement learning; planned is one training step of the policy, without generation, rewards and "
        "a reference model";
  else
    job.not_modelled = "another training method, perhaps with a second model; planned is SFT";
}

void set_attention(Job& job, const Entry& from) {
  const std::string word = text_of(from);
  // ms-swift also has the short name flash_attn.
  const char* const kernel = word == "eager"                 ? "materialised"
                             : word.starts_with("flash_att") ? "flash_attention_2"
                                                             : "flash";
  job.set("plan.attention", kernel, from);
}

constexpr const char* kProductType = "@product_type";

void set_product_type(Job& job, const Entry& from) {
  std::string word = text_of(from);
  if (word.starts_with("torch.")) word.erase(0, 6);
  const char* const type = word == "bfloat16" || word == "bf16"                     ? "bf16"
                           : word == "float16" || word == "fp16" || word == "half"  ? "fp16"
                           : word == "float32" || word == "fp32" || word == "float" ? "fp32"
                                                                                    : nullptr;
  if (!type) reject_value(from, "bfloat16, float16 or float32");
  job.set(kProductType, type, from);
}

void finish_product_type(Job& job) {
  const Given* given = job.find(kProductType);
  if (!given) return;
  const Given from = *given;
  job.erase(kProductType);
  const Given *base = job.find("lora.base"), *precision = job.find("train.precision");
  if (!base || base->value != "nf4" || !precision || precision->value == from.value) return;
  if (precision->value == "fp32") return job.set_default("plan.quant_compute", from.value, from);
  const auto key = std::ranges::find_if(job.keys, [&](const runfile::FileKey& k) {
    return k.key == from.key && k.where.line == from.where.line;
  });
  if (key == job.keys.end()) return;
  key->use = runfile::KeyUse::kNotModelled;
  key->note = "another type of the products than that of mixed precision";
}

void set_ddp_bucket(Job& job, const Entry& from) {
  job.set("plan.ddp_bucket", std::to_string(whole_of(from)) + "MiB", from);
}

void refuse_trained_quantized_weights(const Job& job, const std::string& hint) {
  const Given* base = job.find("lora.base");
  if (!base || base->by_default || job.is_option("lora.rank") ||
      (base->value != "nf4" && base->value != "int8"))
    return;
  throw usage_error(
      fmt::format(
          "{} quantizes the weights, but no adapters are trained: weights in {} bits cannot be trained",
          base->key, base->value == "nf4" ? 4 : 8),
      hint, base->where);
}

void set_replicas(Job& job, const Entry& from, const char* key) {
  const std::uint64_t n = whole_of(from);
  if (n > 1) job.not_modelled = kHybrid;
  job.set(key, std::to_string(n), from);
}

void finish_fsdp(Job& job, const Given* on, const char* version) {
  if (on) {
    // A copy: set_default() adds to the map that `on` may be an element of. Settings of the command line and
    // of run-file keys in the file stay, because these are defaults.
    const Given from = *on;
    const auto take = [&](const char* theirs, const char* ours) {
      if (const Given* given = job.find(theirs)) job.set_default(ours, given->value, *given);
    };
    take("@fsdp_version", "plan.fsdp_version");
    // Of an older release the default is another (core/model/framework_release.hpp).
    if (*version && !job.is_option("plan.framework_version"))
      job.set_default("plan.fsdp_version", version, from);
    // Settings of FSDP1, which accelerate ignores in version 2. An option may give the version, so that
    // combine() decides.
    take("@fsdp_backward_prefetch", "@flat.backward_prefetch");
    take("@fsdp_forward_prefetch", "@flat.forward_prefetch");
    take("@fsdp_use_orig_params", "@flat.use_orig_params");
    take("@fsdp_zero", "parallel.zero");
    job.set_default("parallel.zero", "3", from);
    take("@fsdp_recompute", "train.recompute");
    take("@fsdp_recompute_offload", "plan.offload_activations");
    take("@fsdp_offload", "plan.offload_weights");
    take("@fsdp_offload", "plan.offload_optimizer");
    take("@fsdp_offload", "plan.offload_gradients");
    job.set_default(kSharded, "true", from);
  }
  job.erase_if([](const std::string& key) { return key.starts_with("@fsdp"); });
}

void hold_weights_of_fsdp_in_f32(Job& job) {
  const Given* fsdp = job.find(kSharded);
  if (!fsdp || !job.find(kMixed) || job.find("lora.rank") || job.find("lora.base")) return;
  // Already so by autocast: its origin stays the file's own key.
  if (const Given* weights = job.find("plan.weights"); weights && weights->value == "fp32") return;
  // fsdp2_prepare_model() of accelerate: trained parameters become f32 before they are sharded. With LoRA the
  // frozen weights keep their type, and the adapters are f32 anyway.
  for (const char* key : {"plan.weights", "plan.gradients", "plan.moments", "plan.master"}) job.erase(key);
  job.set_default("plan.weights", "fp32", *fsdp);
  job.set_default("plan.master", "none", *fsdp);
}

}  // namespace trainhost::framework_files
