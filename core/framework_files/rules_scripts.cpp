// Scripts around the Trainer, and the programs that start them. Such a script adds keys of its own to
// TrainingArguments (open-instruct, FastChat, LLaVA, Qwen, the examples of PEFT), or has all options itself
// (DeepSpeed-Chat); torchrun, deepspeed and accelerate launch say how many devices there are. Names and
// defaults are those of open-instruct e6c3044a, FastChat 0e6d3e4b, LLaVA c121f043, PEFT 0.21 and
// DeepSpeedExamples.
#include <algorithm>
#include <array>

#include "core/base/text.hpp"
#include "core/framework_files/rules.hpp"

namespace trainhost::framework_files {
namespace {

using runfile::Entry;
using runfile::Value;

constexpr const char *kSecondModel = "a reference model beside the one that is trained",
                     *kOtherProgram = "another program may use memory of the same device";
constexpr const char *kScriptStage = "@script_stage", *kScriptOffload = "@script_offload",
                     *kUseDeepSpeed = "@use_deepspeed";
constexpr const char *kSourceLength = "@source_length", *kTargetLength = "@target_length",
                     *kFullFinetune = "@full_finetune";

/// bitsandbytes with doubly quantized scales, as FastChat and open-instruct have it. Qwen's script loads a
/// model in 4 bits of GPTQ, which has the same size within 1 %.
void script_nf4(Job& job, const Entry& e) {
  if (!flag_of(e)) return;
  job.set("lora.base", "nf4", e);
  job.set_default("lora.double_quant", "true", e);
}

void script_qlora(Job& job, const Entry& e) {
  if (flag_of(e)) job.set("@peft", "true", e);
  script_nf4(job, e);
}

/// Scripts of one's own, as many tutorials have them. Nobody quantizes weights to train them whole.
void own_script_nf4(Job& job, const Entry& e) {
  if (!flag_of(e)) return;
  job.set("lora.base", "nf4", e);
  job.set_default("@peft", "true", e);
}

/// LLaVA: 16 loads the model as it is stored; double_quant is true unless it is given.
void script_bits(Job& job, const Entry& e) {
  const std::uint64_t bits = whole_of(e);
  if (bits != 4 && bits != 8 && bits != 16) reject_value(e, "4, 8 or 16");
  if (bits != 16) job.set("lora.base", bits == 4 ? "nf4" : "int8", e);
  if (bits == 4) job.set_default("lora.double_quant", "true", "default of LLaVA");
}

/// Ranks of each node: 8, or a list.
void learners(Job& job, const Entry& e) {
  std::uint64_t all = 0;
  if (e.value.kind != Value::Kind::kList)
    all = whole_of(e);
  else
    for (const Value& v : e.value.items) {
      if (v.kind != Value::Kind::kInteger || v.integer < 0) reject_value(e, "numbers of devices");
      all += static_cast<std::uint64_t>(v.integer);
    }
  if (all > 0) job.set(kRanks, std::to_string(all), e);
}

void script_lora_targets(Job& job, const Entry& e) {
  const std::vector<std::string> names = texts_of(e);
  if (names.size() == 1 && names.front() == "all-linear") return job.set("lora.targets", "all-linear", e);
  set_lora_targets(job, e);
}

constexpr Rule kScript[] = {
    {"model_max_length", Use::kCopy, "data.seq_len"},
    {"max_seq_len", Use::kCopy, "data.seq_len"},
    {"pack_length", Use::kCopy, "data.seq_len"},
    {"lora_rank", Use::kCopy, "lora.rank"},
    {"lora_target_modules", Use::kCustom, "lora.targets", "", script_lora_targets},
    {"use_lora", Use::kWhenTrue, "@peft", "true"},
    {"use_peft_lora", Use::kWhenTrue, "@peft", "true"},
    {"lora_enable", Use::kWhenTrue, "@peft", "true"},
    {"use_qlora", Use::kCustom, "lora.base", "", script_qlora},
    {"q_lora", Use::kCustom, "lora.base", "", script_nf4},
    {"bits", Use::kCustom, "lora.base", "", script_bits},
    {"double_quant", Use::kChoice, "lora.double_quant", "true=true|false=false"},
    {"quant_type", Use::kNotModelled, "nf4|fp4", "other quantized weights"},
    {"use_4bit_quantization", Use::kWhenTrue, "lora.base", "nf4"},
    {"use_4bit", Use::kCustom, "lora.base", "", own_script_nf4},
    // Where model_name_or_path is not given.
    {"model_name", Use::kCustom, kModel, "",
     [](Job& j, const Entry& e) { j.set_default(kModel, text_of(e), e); }},
    // The script of QLoRA.
    {"source_max_len", Use::kCopy, kSourceLength},
    {"target_max_len", Use::kCopy, kTargetLength},
    {"full_finetune", Use::kWhenTrue, kFullFinetune, "true"},
    {"lora_modules", Use::kNoEffect},
    {"max_memory_MB", Use::kNoEffect},
    {"bnb_4bit_use_double_quant", Use::kWhenTrue, "lora.double_quant", "true"},
    {"use_8bit_quantization", Use::kWhenTrue, "lora.base", "int8"},
    {"use_nested_quant", Use::kWhenTrue, "lora.double_quant", "true"},
    {"bnb_4bit_quant_storage_dtype", Use::kChoice, "plan.quant_storage",
     "uint8=uint8|bfloat16=compute|float16=compute"},
    {"bnb_4bit_compute_dtype", Use::kCustom, "plan.quant_compute", "", set_product_type},
    {"use_flash_attn", Use::kWhenTrue, "plan.attention", "flash_attention_2"},
    {"use_flash_attn_2", Use::kWhenTrue, "plan.attention", "flash_attention_2"},
    {"use_flash_attention_2", Use::kWhenTrue, "plan.attention", "flash_attention_2"},
    {"flash_attn", Use::kWhenTrue, "plan.attention", "flash_attention_2"},
    {"use_reentrant", Use::kChoice, "plan.checkpoint_reentrant", "true=true|false=false"},
    {"use_unsloth", Use::kNotModelled, "", "kernels of Unsloth"},
    {"use_8bit_optimizer", Use::kWhenTrue, "optimizer.name", "adamw-8bit"},
    {"fused_optimizer", Use::kChoice, "plan.optimizer_implementation", "true=fused|false=foreach"},
    {"sequence_parallel_size", Use::kCopy, "parallel.context"},
    {"compile_model", Use::kNotModelled, "", "compiled graphs keep other activations"},
    // Of open-instruct's reinforcement learning.
    {"deepspeed_stage", Use::kCopy, kScriptStage},
    {"num_learners_per_node", Use::kCustom, kRanks, "", learners},
    {"num_samples_per_prompt_rollout", Use::kCustom, kMethod, "",
     [](Job& j, const Entry& e) { set_method(j, "grpo", e); }},
    {"load_ref_policy", Use::kNeedsMore, "", kSecondModel},
    {"vllm_num_engines", Use::kNotModelled, "", "engines on other devices"},
    {"single_gpu_mode", Use::kNeedsMore, "", kOtherProgram},
    {"dpo_loss_type", Use::kCustom, kMethod, "",
     [](Job& j, const Entry& e) { set_method_of_loss(j, text_of(e), e); }},
    // LLaVA.
    {"vision_tower", Use::kNeedsMore, "", "a vision encoder and the tokens of images"},
    {"tune_mm_mlp_adapter", Use::kNotModelled, "", "only the projector is trained; planned as full training"},
    {"freeze_backbone", Use::kNotModelled, "", "frozen weights have no gradients"},
    // DeepSpeed-Chat.
    {"zero_stage", Use::kCopy, kScriptStage},
    {"offload", Use::kWhenTrue, kScriptOffload, "cpu"},
    {"lora_dim", Use::kCustom, "lora.rank", "",
     [](Job& j, const Entry& e) {
       if (whole_of(e) > 0) j.set("@lora_dim", text_of(e), e);
     }},
    {"only_optimize_lora", Use::kWhenTrue, "@only_lora", "true"},
    {"compute_fp32_loss", Use::kNeedsMore, "", "logits in f32"},
};
/// Data and templates, logging and checkpoints, evaluation, sampling, values of losses.
constexpr const char* kScriptWithoutEffect =
    "benchmarks callbacks gamma_beta_ratio load_balancing_* active_sampling add_bos add_eot_token "
    "add_r1_style_format_reward add_special_tokens "
    "additive_format_reward "
    "advantage_normalization_type append_concat_token apply_* async_steps backend_timeout cache_dataset_only "
    "chat_template chat_template_format chat_template_name checkpoint_state_dir checkpoint_state_freq "
    "checkpointing_steps clean_checkpoints_at_end clip_grad_norm clip_higher clip_lower code_* "
    "concatenated_forward "
    "dataset device_map device_map.* do_mmlu_eval max_new_tokens mmlu_* train_on_source use_auth "
    "use_auth_token "
    "cosine_* data data_cache_path data_loader_seed data_output_path data_path data_split dataset_* "
    "dataset_mixture* deepspeed_zpg description do_not_randomize_output_dir early_stopping "
    "enable_tensorboard eot_token eval_* exp_name format gather_whole_model gradient_clipping "
    "ground_truths_key gs_* hard_coded_* hf_* hub_* image_aspect_ratio image_folder image_grid_pinpoints "
    "inflight_updates is_multimodal keep_last_n_checkpoints kl_estimator lazy_preprocess llm_judge_* "
    "local_cache_dir local_eval_every lora_bias lora_learning_rate lora_module_name lora_weight_path "
    "mask_tool_use max_length_* max_prompt_token_length max_retries max_token_length max_tool_calls "
    "max_train_samples max_train_steps mixer_list mm_* no_auto_dataset_cache no_filter_zero_std_samples "
    "no_resampling_pass_rate no_try_* non_stop_penalty non_stop_penalty_value num_epochs num_evals "
    "num_mini_batches "
    "num_nodes_per_learner num_unique_prompts_rollout num_warmup_steps oe_eval_* only_reward_good_outputs "
    "pass_rate_max pass_rate_min penalty_reward_value pool_size preprocessing_num_workers "
    "pretrain_mm_mlp_adapter print_loss record_entropy reduce_loss response_length reward_aggregator "
    "rollouts_save_path save_freq save_tokenizer save_traces send_slack_alerts sft_messages_key "
    "sft_only_data_path splits stop_strings stop_token system_prompt* tensorboard_path test_data "
    "timeout tokenizer_name_or_path tokenizer_revision tool_* tools total_episodes train_data "
    "trackio try_* use_slow_tokenizer validation_data verbose version vllm_* wandb_* weight_loss "
    "with_tracking dataset_prompt_column freeze_mm_mlp_adapter group_by_modality_length mpt_attn_impl";

/// Options of torchrun, deepspeed, accelerate launch, and of the job launcher of open-instruct.
constexpr Rule kLauncher[] = {
    {"nproc_per_node", Use::kCopy, kPerNode},
    {"num_gpus", Use::kCopy, kPerNode},
    {"gpus", Use::kCopy, kPerNode},
    {"nnodes", Use::kCopy, kNodes},
    {"num_nodes", Use::kCopy, kNodes},
    {"num_processes", Use::kCopy, kRanks},
    {"mixed_precision", Use::kCustom, "train.precision", "", set_accelerate_precision},
    {"use_deepspeed", Use::kWhenTrue, kUseDeepSpeed, "true"},
    {"use_fsdp", Use::kWhenTrue, kFsdp, "true"},
    {"offload_optimizer_device", Use::kChoice, "plan.offload_optimizer", "none=|cpu=cpu|nvme=nvme"},
    {"offload_param_device", Use::kChoice, "plan.offload_weights", "none=|cpu=cpu|nvme=nvme"},
    {"dynamo_backend", Use::kNotModelled, "NO|no", "compiled graphs keep other activations"},
    // Other files, which read_files() reads.
    {"config_file", Use::kCustom, "parallel.data", "", [](Job&, const Entry&) {}},
    {"deepspeed_config_file", Use::kCustom, "parallel.zero", "", [](Job&, const Entry&) {}},
    {"deepspeed_config", Use::kCustom, "parallel.zero", "", [](Job&, const Entry&) {}},
};
constexpr const char* kLauncherWithoutEffect =
    "artifact_ttl beaker_* budget cluster deepspeed_hostfile deepspeed_multinode_launcher env eval_priority "
    "exclude gpu_ids hostfile image include machine_rank main_process_ip main_process_port "
    "main_training_function master_addr master_port module mount_docker_socket multi_gpu no_host_networking "
    "no_local_rank node_rank non_resumable num_machines num_cpu_threads_per_process preemptible priority "
    "pure_docker_mode rdzv_* same_network secret standalone start_method task_name workspace zero3_*";

bool has_key(const Entries& entries, std::initializer_list<const char*> keys) {
  return std::ranges::any_of(entries, [&](const Entry& e) {
    return std::ranges::any_of(keys, [&](const char* key) { return e.key == key; });
  });
}

/// The adapters of a script: their rank, scale and matrices where it gives none.
void set_adapters(Job& job, const char* rank, const char* dropout, const char* targets, const char* source) {
  job.set_default("lora.rank", rank, source);
  job.set_default("lora.alpha", "16", source);
  job.set_default("lora.dropout", dropout, source);
  job.set_default("lora.targets", targets, source);
}

/// Its adapters freeze the weights of linear layers; without only_optimize_lora the rest of the model is
/// trained.
void finish_deepspeed_chat(Job& job, const Entries& entries) {
  const Given *dim = job.find("@lora_dim"), *only = job.find("@only_lora");
  if (dim) {
    const Given from = *dim;
    job.set_default("@peft", "true", from);
    job.set_default("lora.rank", from.value, from);
    job.set_default("lora.targets", "all-linear", from);
    if (!only)
      job.keys.push_back(
          {from.key, from.value, from.where, runfile::KeyUse::kNotModelled,
           "without only_optimize_lora embeddings, norms and biases are trained too; planned are "
           "the adapters",
           true});
  }
  job.erase("@lora_dim"), job.erase("@only_lora");
  // accelerate launch has a zero_stage too, beside use_deepspeed.
  const bool chat = has_key(entries, {"data_split"}) ||
                    (has_key(entries, {"zero_stage"}) && !has_key(entries, {"use_deepspeed"}));
  if (!chat) return;
  constexpr const char* kChat = "default of DeepSpeed-Chat";
  job.set_default("data.seq_len", "512", kChat);
  job.set_default("train.micro_batch", "16", kChat);
  if (!job.find("train.precision")) job.set_default("@loaded", "fp16", kChat);
}

/// The script of QLoRA (artidoro/qlora), which trains adapters of all linear layers over 4 bits unless
/// full_finetune is true. A row has a source and a target.
void finish_qlora(Job& job) {
  constexpr const char* kQlora = "default of the script of QLoRA";
  const Given *source = job.find(kSourceLength), *target = job.find(kTargetLength);
  if (source || target) {
    const std::uint64_t tokens = (source ? count_of(*source) : 1024) + (target ? count_of(*target) : 256);
    job.set_default("data.seq_len", std::to_string(tokens), Given(source ? *source : *target));
    if (!job.find(kFullFinetune)) {
      job.set_default("@peft", "true", kQlora);
      job.set_default("lora.base", "nf4", kQlora);
      job.set_default("lora.double_quant", "true", kQlora);
      set_adapters(job, "64", "0.0", "all-linear", kQlora);
    }
    job.set_default("train.micro_batch", "1", kQlora);
    job.set_default("train.grad_accum", "16", kQlora);
    job.set_default("train.recompute", "full", kQlora);
  }
  for (const char* key : {kSourceLength, kTargetLength, kFullFinetune}) job.erase(key);
}

}  // namespace

RuleSet training_script_rules() { return {kScript, kScriptWithoutEffect}; }
RuleSet launcher_rules() { return {kLauncher, kLauncherWithoutEffect}; }

void finish_training_script(Job& job, const Entries& entries) {
  constexpr const char* kQwen = "default of Qwen's script";
  const bool open_instruct =
      has_key(entries, {"dataset_mixer", "dataset_mixer_list"}) ||
      // The examples without a Trainer of transformers have with_tracking and block_size.
      (has_key(entries, {"with_tracking"}) && !has_key(entries, {"block_size"})) ||
      std::ranges::any_of(entries, [](const Entry& e) { return e.key.starts_with("dataset_mixer."); });
  if (open_instruct) {
    constexpr const char* kSource = "default of open-instruct";
    job.set_default("@loaded", "bf16", kSource);
    job.set_default("plan.optimizer_implementation", "fused", kSource);
    if (job.find("@peft")) set_adapters(job, "64", "0.1", "all-linear", kSource);
  } else if (has_key(entries, {"lora_enable"})) {
    if (job.find("@peft")) set_adapters(job, "64", "0.05", "all-linear", "default of LLaVA");
  } else if (has_key(entries, {"use_peft_lora"})) {
    if (job.find("@peft")) set_adapters(job, "64", "0.1", "all-linear", "default of the example of PEFT");
  } else if (has_key(entries, {"q_lora"})) {
    // FastChat's script of adapters has no key that switches them on, Qwen's has.
    const auto q_lora = std::ranges::find_if(entries, [](const Entry& e) { return e.key == "q_lora"; });
    if (!has_key(entries, {"use_lora"})) {
      job.set_default("@peft", "true", *q_lora);
      set_adapters(job, "8", "0.05", R"(["q_proj", "v_proj"])", "default of FastChat");
    } else if (job.find("@peft")) {
      set_adapters(job, "64", "0.05", "all-linear", kQwen);
    }
  } else if (has_key(entries, {"use_lora"}) && has_key(entries, {"lazy_preprocess"}) && job.find("@peft")) {
    set_adapters(job, "64", "0.05", "all-linear", kQwen);
    // Words of chats are new to base models.
    const Given* model = job.find(kModel);
    if (model && comparable(model->value).find("chat") == std::string::npos)
      job.set_default("lora.modules_to_save", R"(["embed_tokens", "lm_head"])", kQwen);
  }
  finish_deepspeed_chat(job, entries);
  finish_qlora(job);
}

Entries script_options(const Entries& entries, Job& job) {
  // In capitals: variables of ms-swift.
  constexpr std::array kCounts{"nproc_per_node", "num_gpus",  "gpus",   "NPROC_PER_NODE",
                               "nnodes",         "num_nodes", "NNODES", "num_processes"};
  const auto whole = [](const Entry& e) {
    return e.value.kind == Value::Kind::kInteger && e.value.integer > 0;
  };
  // Devices per node say nothing where the number of nodes is not known.
  const bool nodes_unknown = std::ranges::any_of(entries, [&](const Entry& e) {
    return (e.key == "nnodes" || e.key == "num_nodes" || e.key == "NNODES") && !whole(e);
  });
  Entries out;
  for (const Entry& e : entries) {
    const bool count = std::ranges::find(kCounts, e.key) != kCounts.end();
    // Devices are needed for sharded runs only, which ask for them.
    const bool per_node =
        e.key == "nproc_per_node" || e.key == "num_gpus" || e.key == "gpus" || e.key == "NPROC_PER_NODE";
    if (count && (!whole(e) || (per_node && nodes_unknown))) {
      job.keys.push_back({e.shown(), runfile::written(e.value), e.key_where, runfile::KeyUse::kNotModelled,
                          "the script does not say how many"});
      continue;
    }
    out.push_back(e);
  }
  return out;
}

void read_allocator(const Entries& environment, Job& job) {
  for (const Entry& e : environment) {
    runfile::FileKey key{e.shown(), runfile::written(e.value), e.key_where, runfile::KeyUse::kUsed, ""};
    const std::string text = e.value.kind == Value::Kind::kText ? e.value.text : "";
    if (text.empty()) {
      key.use = runfile::KeyUse::kWithoutEffect;
    } else if (text.find_first_of("$`") != text.npos) {
      key.use = runfile::KeyUse::kNotModelled;
      key.note = "the file does not say its value: --set plan.allocator=VALUE";
    } else {
      job.set_default("plan.allocator", text, e);
    }
    job.keys.push_back(std::move(key));
  }
}

void finish_launcher(Job& job) {
  const Given *stage = job.find(kScriptStage), *offload = job.find(kScriptOffload),
              *on = job.find(kUseDeepSpeed);
  if (stage) {
    const Given from = *stage;
    job.set_default("parallel.zero", from.value, from);
    if (offload) {
      const Given to = *offload;
      job.set_default("plan.offload_optimizer", to.value, to);
      if (from.value == "3") job.set_default("plan.offload_weights", to.value, to);
    }
    finish_deepspeed(job);
  } else if (on && !job.find("@deepspeed_file")) {
    const Given from = *on;
    job.set_default("parallel.zero", "2", "default of accelerate");
    finish_deepspeed(job);
  }
  for (const char* key : {kScriptStage, kScriptOffload, kUseDeepSpeed, "@deepspeed_file"}) job.erase(key);
}

}  // namespace trainhost::framework_files
