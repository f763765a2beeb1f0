// The YAML of torchtune (0.4 to 0.6.1): recipes/configs. Distributed recipes shard by FSDP2. `dtype: bf16`
// has every tensor in bf16. The model is named by its builder: torchtune.models.llama3.llama3_8b,
// lora_llama3_8b, qlora_llama3_8b.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/framework_files/rules.hpp"

namespace trainhost::framework_files {
namespace {

using runfile::Entry;

std::string last_part(const std::string& component) {
  const std::size_t dot = component.rfind('.');
  return dot == component.npos ? component : component.substr(dot + 1);
}

void torchtune_model(Job& job, const Entry& e) {
  // The prefix is the recipe for the weights; the rest is the name of the model. Arguments of the builder
  // (model.lora_rank, model.quantize_base) replace what the prefix means.
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
  if (name.starts_with("Paged")) job.set("plan.optimizer_paged", "true", e);
  if (name == "AdamW" || name == "Adam" || name == "PagedAdamW")
    job.set("optimizer.name", "adamw", e);
  else if (name == "CPUOffloadOptimizer")
    job.set("optimizer.name", "adamw", e), job.set("plan.offload_optimizer", "cpu", e);
  else if (name == "PagedAdamW8bit" || name == "AdamW8bit" || name == "Adam8bit" || name == "AdamW4bit")
    job.set("optimizer.name", "adamw-8bit", e);
  else if (name == "SGD")
    job.set("optimizer.name", "sgd", e);
  else
    reject_optimizer(job, e,
                     {"torch.optim.AdamW", "torch.optim.SGD", "bitsandbytes.optim.PagedAdamW8bit",
                      "torchao.optim.AdamW8bit"});
}

void torchtune_loss(Job& job, const Entry& e) {
  const std::string name = last_part(text_of(e));
  const bool plain = name == "CrossEntropyLoss";
  if (!plain && name.find("CrossEntropy") == name.npos && name.find("CEWithChunked") == name.npos)
    job.not_modelled = "another training method";
  else
    job.set("plan.cross_entropy",
            plain                               ? "plain"
            : name.starts_with("CEWithChunked") ? "chunked"
                                                : "fused",
            e);
}

void torchtune_nf4(Job& job, const Entry& e) {
  if (flag_of(e)) job.set("lora.base", "nf4", e), job.set("lora.double_quant", "true", e);
}

void torchtune_offload(Job& job, const Entry& e) {
  if (flag_of(e)) set_fsdp_offload(job, e);
}

void torchtune_degree(Job& job, const Entry& e, const char* key) {
  // -1: what is left of the devices.
  if (e.value.kind == runfile::Value::Kind::kInteger && e.value.integer < 0) return;
  job.set(key, std::to_string(whole_of(e)), e);
}

/// q_proj, k_proj, v_proj, output_proj. Joined with the MLP's (apply_lora_to_mlp) when the whole file is
/// read.
void attention_modules(Job& job, const Entry& e) {
  std::string list;
  for (const std::string& t : texts_of(e))
    list += (list.empty() ? "\"" : ", \"") + (t == "output_proj" ? "o_proj" : t) + "\"";
  if (!list.empty()) job.set("@lora_attention", list, e);
}

/// Layers that are units of FSDP2 of their own: embedding and head together are described.
void torchtune_units(Job& job, const Entry& e) {
  std::vector<std::string> names = texts_of(e);
  std::ranges::sort(names);
  if (names == std::vector<std::string>{"output", "tok_embeddings"})
    job.set("plan.separate_ends", "true", e);
  else if (!names.empty())
    job.not_modelled = "layers that are gathered alone";
}

constexpr const char* kCompiled = "compiled graphs keep other activations";

constexpr Rule kTorchtune[] = {
    // Of the command in a comment (torchtune_command()), which any other value replaces.
    {"nproc_per_node", Use::kCustom, "parallel.data", "",
     [](Job& j, const Entry& e) { j.set_default(kPerNode, text_of(e), e); }},
    {"model._component_", Use::kCustom, kModel, "", torchtune_model},
    {"tokenizer.max_seq_len", Use::kCopy, "data.seq_len"},
    {"batch_size", Use::kCopy, "train.micro_batch"},
    {"gradient_accumulation_steps", Use::kCopy, "train.grad_accum"},
    {"dtype", Use::kCustom, "train.precision", "", torchtune_type},
    {"enable_activation_checkpointing", Use::kWhenTrue, "train.recompute", "full"},
    {"enable_activation_offloading", Use::kWhenTrue, "plan.offload_activations", "cpu"},
    {"optimizer._component_", Use::kCustom, "optimizer.name", "", torchtune_optimizer},
    {"optimizer.fused", Use::kWhenTrue, "plan.optimizer_implementation", "fused"},
    {"optimizer.foreach", Use::kChoice, "plan.optimizer_implementation", "true=foreach|false=for-loop"},
    {"optimizer.optim_bits", Use::kNotModelled, "32", "moments in 8 bits; AdamW8bit is planned so"},
    {"optimizer.is_paged", Use::kNotModelled, "", "paged moments; PagedAdamW is planned so"},
    {"optimizer.amsgrad", Use::kNeedsMore, "", "a third moment"},
    {"optimizer.offload_gradients", Use::kNotModelled, "", "gradients in host memory"},
    {"loss.num_output_chunks", Use::kNotModelled, "8", "other chunks than eight"},
    {"optimizer_in_bwd", Use::kWhenTrue, "plan.optimizer_in_backward", "true"},
    {"loss._component_", Use::kCustom, "plan.cross_entropy", "", torchtune_loss},
    {"model.lora_rank", Use::kCopy, "lora.rank"},
    {"model.lora_alpha", Use::kCopy, "lora.alpha"},
    {"model.lora_dropout", Use::kCopy, "lora.dropout"},
    {"model.lora_attn_modules", Use::kCustom, "lora.targets", "", attention_modules},
    {"model.apply_lora_to_mlp", Use::kWhenTrue, "@lora_mlp", "true"},
    {"model.apply_lora_to_output", Use::kWhenTrue, "@lora_head", "true"},
    {"model.use_dora", Use::kWhenTrue, "lora.dora", "true"},
    {"model.quantize_base", Use::kCustom, "lora.base", "", torchtune_nf4},
    // Arguments above are found first; any other one may change the model.
    {"model.*", Use::kNotModelled, "", "an argument of the model's builder"},
    // Of the recipes that recompute selectively; ac_option says which layers or operators.
    {"ac_mode", Use::kChoice, "train.recompute", "full=full|selective=selective|none="},
    {"ac_option", Use::kNotModelled, "", "layers that are recomputed; planned as selective recomputation"},
    {"tensor_parallel_dim", Use::kCopy, "parallel.tensor"},
    {"context_parallel_dim", Use::kCopy, "parallel.context"},
    // Kept apart until both degrees are known: their product is the number of ranks.
    {"data_parallel_shard_dim", Use::kCustom, "parallel.data", "",
     [](Job& j, const Entry& e) { torchtune_degree(j, e, "@shard"); }},
    {"data_parallel_replicate_dim", Use::kCustom, "parallel.data", "",
     [](Job& j, const Entry& e) { set_replicas(j, e, "@replicate"); }},
    {"fsdp_cpu_offload", Use::kCustom, "plan.offload_weights", "", torchtune_offload},
    {"fsdp.cpu_offload", Use::kCustom, "plan.offload_weights", "", torchtune_offload},
    // Versions 1 and 2 of FSDP; count on several ranks only.
    {"fsdp_reshard_after_forward", Use::kChoice, kZeroOfMany, "true=3|false=2"},
    {"fsdp_sharding_strategy", Use::kChoice, kZeroOfMany,
     "FULL_SHARD=3|SHARD_GRAD_OP=2|NO_SHARD=0|HYBRID_SHARD=3"},
    {"memory_efficient_fsdp_wrap", Use::kNotModelled, "", "the embedding is gathered alone"},
    {"custom_sharded_layers", Use::kCustom, "plan.separate_ends", "", torchtune_units},
    // `compile: true`, or a table that says what is compiled.
    {"compile", Use::kWhenTrue, "plan.execution", "compile"},
    {"compile.model", Use::kWhenTrue, "plan.execution", "compile"},
    {"compile.loss", Use::kNotModelled, "", kCompiled},
    {"compile.optimizer_step", Use::kNotModelled, "", kCompiled},
    {"compile.scale_grads", Use::kNotModelled, "", kCompiled},
    {"enable_fp8_training", Use::kNotModelled, "", "8-bit products"},
    {"quantizer.*", Use::kNotModelled, "", "simulated or later quantization"},
    // Recipes of distillation, DPO and PPO.
    {"teacher_*", Use::kNeedsMore, "", "a second model"},
    {"ref_*", Use::kNeedsMore, "", "a second model"},
    {"policy_model.*", Use::kNeedsMore, "", "a second model"},
    {"reward_*", Use::kNeedsMore, "", "a second model"},
    {"value_*", Use::kNeedsMore, "", "a second model"},
    {"kd_loss._component_", Use::kNotModelled, "", "another training method"},
    {"kd_loss.*", Use::kNotModelled, "", "another training method"},
    {"layer_dropout*", Use::kNotModelled, "", "layers are left out"},
    {"early_exit*", Use::kNotModelled, "", "another loss"},
};
/// Data, checkpoints, logging, generation, values of losses and optimizers.
constexpr const char* kTorchtuneWithoutEffect =
    "base_model_path batch_size_val checkpoint_dir checkpoint_files checkpointer.* clip_grad_norm collate_fn "
    "cudnn_deterministic_mode data_dir dataloader.* dataset dataset.* datasets* dataset_val.* device "
    "enable_async_checkpointing enable_kv_cache epochs fake_quant_after_n_steps forward_batch_size "
    "fp8_recipe_name gamma grpo_samples image include_path instruct_template chat_format kd_ratio "
    "kl_coeff loss.epsilon loss.kl_coeff name limit lmbda log_every_n_steps log_level log_peak_memory_stats "
    "loss low_cpu_ram "
    "lr_scheduler.* max_generated_tokens max_new_tokens max_seq_length max_steps_per_epoch "
    "metric_logger.* min_response_length model_type num_steps optimizer output_dir "
    "packed penalise_no_eos ppo_batch_size ppo_epochs profile_memory profiler.* prompt prompt.* "
    "resume_from_checkpoint run_val_every_n_steps save_adapter_weights_only save_every_n_epochs seed "
    "shuffle stop_token_ids tasks temperature tensor_parallel_plan.* tokenizer.* top_k whiten_rewards "
    "num_warmup_steps dtype_val "
    "loss.beta loss.epsilon loss.ignore_index loss.gamma "
    "loss.label_smoothing loss.normalize loss.sym_kd_ratio "
    "loss.value_clip_range loss.value_coeff optimizer.betas "
    "optimizer.bf16_stochastic_round optimizer.block_size optimizer.block_wise optimizer.capturable "
    "optimizer.dampening optimizer.differentiable optimizer.eps "
    "optimizer.lr optimizer.maximize optimizer.min_8bit_size "
    "optimizer.minimal_size optimizer.momentum optimizer.nesterov "
    "optimizer.optimizer_class optimizer.percentile_clipping "
    "optimizer.weight_decay";

/// Throws for a file of a recipe that generates, evaluates or quantizes: those that train have an optimizer.
void check_recipe_trains(const Entries& entries) {
  constexpr std::pair<const char*, const char*> kOther[] = {{"max_new_tokens", "generates"},
                                                            {"prompt.user", "generates"},
                                                            {"tasks", "evaluates"},
                                                            {"quantizer._component_", "quantizes"}};
  const auto find = [&](auto matches) { return std::ranges::find_if(entries, matches); };
  if (find([](const Entry& e) { return e.key.find("optimizer") != e.key.npos; }) != entries.end()) return;
  for (const auto& [key, does] : kOther)
    if (const auto given = find([&, name = key](const Entry& e) { return e.key == name; });
        given != entries.end())
      throw usage_error(
          fmt::format("{} without an optimizer: this is a recipe that {}, and trains nothing", key, does),
          "give the files of a training run; --model=MODEL --set plan.mode=inference plans inference",
          given->key_where);
}

/// Keys that only distributed recipes have: one device would be a guess, so combine() asks for their number.
void ask_for_devices(Job& job) {
  if (job.find(kPerNode) || job.find("parallel.data")) return;
  for (const char* key :
       {kZeroOfMany, "plan.offload_weights", "plan.separate_ends", "parallel.tensor", "parallel.context"})
    if (const Given* given = job.find(key)) {
      const Given from = *given;
      const bool degree = std::string_view(key).starts_with("parallel.");
      if (degree && from.value == "1") continue;
      return job.set_default("parallel.zero", key == kZeroOfMany ? from.value : "3", from);
    }
}

}  // namespace

void torchtune_command(const std::string& text, const std::string& path, Entries& entries) {
  constexpr std::string_view kOption = "--nproc_per_node";
  std::uint32_t line = 1;
  for (std::size_t begin = 0; begin < text.size(); ++line) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view comment = std::string_view(text).substr(begin, end - begin);
    begin = end + 1;
    const std::size_t run = comment.find("tune run "), option = comment.find(kOption);
    if (!comment.starts_with('#') || run == comment.npos || option == comment.npos) continue;
    // Several nodes: the recipe does not say how many are meant.
    if (const std::size_t nodes = comment.find("--nnodes"); nodes != comment.npos) {
      const std::string_view count =
          comment.substr(std::min(nodes + 9, comment.size()));  // behind " " or "="
      if (count.substr(0, count.find_first_of(" \t\\")) != "1") continue;
    }
    std::size_t at = option + kOption.size(), digits = 0;
    while (at < comment.size() && (comment[at] == ' ' || comment[at] == '=')) ++at;
    while (at + digits < comment.size() && comment[at + digits] >= '0' && comment[at + digits] <= '9')
      ++digits;
    if (digits == 0 || digits > 4) continue;
    const Where where{path, line, static_cast<std::uint32_t>(at + 1)};
    runfile::Value v = runfile::text_value(std::string(comment.substr(at, digits)), where);
    v.kind = runfile::Value::Kind::kInteger;
    v.integer = std::stoll(v.text);
    v.number = static_cast<double>(v.integer);
    entries.push_back({"nproc_per_node", where, std::move(v)});
    return;
  }
}

void read_torchtune(const Entries& entries, Job& job) {
  check_recipe_trains(entries);
  job.framework = "torchtune";
  apply_rules({{kTorchtune, kTorchtuneWithoutEffect}}, entries, job);
  std::string targets;
  if (const Given* given = job.find("@lora_attention")) targets = given->value;
  if (job.find("@lora_mlp"))
    targets += std::string(targets.empty() ? "" : ", ") + R"("gate_proj", "up_proj", "down_proj")";
  if (job.find("@lora_head")) targets += std::string(targets.empty() ? "" : ", ") + R"("lm_head")";
  job.erase("@lora_attention"), job.erase("@lora_mlp"), job.erase("@lora_head");
  if (!targets.empty()) job.set_default("lora.targets", "[" + targets + "]", "the LoRA keys of the model");
  // A recipe does not say how many devices there are (torchrun does), unless it gives both degrees.
  const auto ranks = [&](const char* key) { return job.find(key) ? count_of(*job.find(key)) : 1; };
  const std::uint64_t shard = ranks("@shard"), data = shard * ranks("@replicate");
  if (job.find("@shard")) job.set_default("parallel.data", std::to_string(data), *job.find("@shard"));
  job.erase("@shard"), job.erase("@replicate");
  ask_for_devices(job);
  // On one device nothing is sharded, so these are no settings yet.
  job.set_default(kZeroOfMany, "3", "FSDP2 of torchtune");
  job.set_default("train.precision", "fp32", "default of torchtune");
  // Frozen weights under [lora] have the type of the computation.
  if (job.find("lora.rank"))
    for (const char* key : {"plan.weights", "plan.gradients", "plan.moments", "plan.master"}) job.erase(key);
}

}  // namespace trainhost::framework_files
