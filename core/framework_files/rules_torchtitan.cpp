// The TOML of torchtitan (0.1.0 to 0.2.2; 0.3 has Python instead), by its class JobConfig. FSDP2 keeps f32
// shards and computes in training.mixed_precision_param.
#include <fmt/format.h>
#include <algorithm>
#include <iterator>
#include <string_view>

#include "core/framework_files/rules.hpp"

namespace trainhost::framework_files {
namespace {

using runfile::Entry;

void torchtitan_degree(Job& job, const Entry& e, const char* key) {
  // -1: what is left of the devices.
  if (e.value.kind == runfile::Value::Kind::kInteger && e.value.integer < 0) return;
  job.set(key, std::to_string(whole_of(e)), e);
}

void torchtitan_batch(Job& job, const Entry& e) {
  if (e.value.kind == runfile::Value::Kind::kInteger && e.value.integer < 0) return;
  job.set(kGlobalBatch, std::to_string(whole_of(e)), e);
}

/// bfloat16: parameters, gradients and optimizer states, without an f32 copy.
void torchtitan_type(Job& job, const Entry& e) {
  const std::string type = text_of(e);
  if (type != "bfloat16" && type != "float32") reject_value(e, "bfloat16 or float32");
  if (type == "bfloat16") set_pure(job, "bf16", e);
}

void torchtitan_offload(Job& job, const Entry& e) {
  if (flag_of(e)) set_fsdp_offload(job, e);
}

/// A loss that is not compiled has its logits in f32. The loss alone may be compiled, as in the files for
/// models with experts.
void torchtitan_components(Job& job, const Entry& e) {
  const std::vector<std::string> compiled = texts_of(e);
  const auto has = [&](const char* name) { return std::ranges::find(compiled, name) != compiled.end(); };
  if (!has("loss")) job.set("plan.cross_entropy", "plain", e);
  if (!has("model")) job.set("@eager_layers", has("loss") ? "loss" : "", e);
}

/// After all keys, as compile.enable decides whether anything is compiled.
void torchtitan_eager_layers(Job& job) {
  const Given* eager = job.find("@eager_layers");
  if (eager && job.find("plan.execution")) {
    const Given from = *eager;
    job.erase("plan.execution");
    if (from.value == "loss") job.set_default("plan.cross_entropy", "fused", from);
  }
  job.erase("@eager_layers");
}

/// Interleaved1F1B has two stages per rank, unless the number of layers of a stage is given.
/// get_schedule_class() of torch has these beside 1F1B and Interleaved1F1B.
constexpr std::string_view kOtherSchedules[] = {"GPipe",
                                                "gpipe",
                                                "LoopedBFS",
                                                "InterleavedZeroBubble",
                                                "ZBVZeroBubble",
                                                "DualPipeV",
                                                "PipelineScheduleSingle",
                                                "PipelineScheduleMulti"};

void torchtitan_schedule(Job& job, const Entry& e) {
  const std::string name = text_of(e);
  if (name == "Interleaved1F1B")
    job.set("@stages_per_rank", "2", e);
  else if (std::ranges::find(kOtherSchedules, name) != std::end(kOtherSchedules))
    job.not_modelled = "planned as 1F1B, which has fewer micro-batches in flight", job.needs_more = true;
  else if (name != "1F1B" && name != "1f1b")
    reject_value(e, "1F1B, Interleaved1F1B, GPipe or another schedule of torch.distributed.pipelining");
}

void torchtitan_converters(Job& job, const Entry& e) {
  // 0.2 has the longer name.
  for (const std::string& name : texts_of(e))
    if (name == "float8" || name == "quantize.linear.float8")
      job.set("@float8", "true", e);
    else
      job.not_modelled = "8-bit products, or another converter of the model";
}

/// Float8Linear keeps what bf16 keeps; only weights that FSDP2 gathers in 8 bits differ, which scales per row
/// do not have.
void torchtitan_float8(Job& job) {
  const Given *gathers = job.find("@float8_gather"), *type = job.find("train.precision");
  if (job.find("@float8") && gathers && !job.find("@float8_recipe") && type && type->value == "bf16") {
    const Given from = *gathers;
    job.erase("train.precision");
    job.set_default("train.precision", "fp8", from);
  }
  for (const char* key : {"@float8", "@float8_gather", "@float8_recipe"}) job.erase(key);
}

/// Tables of converters that nothing switches on, as most files have them.
void torchtitan_unused_converters(Job& job, const Entries& entries) {
  const bool used = job.find("@float8") || std::ranges::any_of(entries, [](const Entry& e) {
                      return e.key == "model.converters" && !e.value.items.empty();
                    });
  if (used) return;
  for (runfile::FileKey& k : job.keys)
    if (k.key.starts_with("float8.") || k.key.starts_with("mx.") || k.key.starts_with("quantize."))
      k.use = runfile::KeyUse::kWithoutEffect, k.note.clear(), k.needs_more = false;
}

/// Flavors of dense models that are no presets.
constexpr struct {
  const char *name, *type;
  int vocabulary, width, layers, heads, kv_heads, head, mlp;
  bool tied;
} kFlavors[] = {{"llama3-debugmodel", "llama", 2048, 256, 6, 16, 16, 16, 768, false},
                {"qwen3-debugmodel", "qwen3", 2048, 256, 8, 16, 8, 128, 3072, true}};

/// A preset, or the fields of a flavor.
void torchtitan_model(Job& job) {
  const Given *name = job.find("@model_name"), *flavor = job.find("@model_flavor");
  if (name && name->value == "flux")
    throw usage_error("model.name = \"flux\" generates images; plans are of language models", {},
                      name->where);
  // Models of transformers: the flavor "full" is the named one, others have fewer layers.
  const Given* named = job.find("@hf_model");
  if (named && name && name->value == "transformers_modeling_backend" && flavor->value == "full")
    return job.set_default(kModel, named->value, *named);
  // Its flavors of DeepSeek V3 with the sizes of other models.
  if (name && name->value == "deepseek_v3" && (flavor->value == "16B" || flavor->value == "236B"))
    return job.set_default(kModel, flavor->value == "16B" ? "deepseek-v2-lite" : "deepseek-v2",
                           Given{"", "model.name and model.flavor", flavor->where});
  std::string size = flavor->value;  // "8B_flex" is 8B with another kernel of attention
  for (const char* kernel : {"_flex_attn", "_varlen_attn", "_flex", "_varlen"})
    if (size.ends_with(kernel)) size.resize(size.size() - std::string(kernel).size());
  const std::string model = fmt::format("{}-{}", name ? name->value : "llama3", size);
  for (const auto& f : kFlavors) {
    if (model != f.name) continue;
    const auto set = [&](const char* key, const std::string& value) {
      job.set_default(std::string("model.") + key, value, *flavor);
    };
    set("model_type", f.type), set("tie_word_embeddings", f.tied ? "true" : "false");
    set("vocab_size", std::to_string(f.vocabulary)), set("hidden_size", std::to_string(f.width));
    set("num_hidden_layers", std::to_string(f.layers)), set("head_dim", std::to_string(f.head));
    set("num_attention_heads", std::to_string(f.heads));
    set("num_key_value_heads", std::to_string(f.kv_heads));
    set("intermediate_size", std::to_string(f.mlp));
    return;
  }
  job.set_default(kModel, model, Given{"", "model.name and model.flavor", flavor->where});
}

constexpr const char* kOption = "activation_checkpoint.selective_ac_option";

/// activation_checkpoint.selective_ac_option is "2" where a file does not say "op", as the examples of
/// torchtitan do: every second layer is recomputed whole.
void set_default_option(const Entries& entries, Job& job) {
  const auto find = [&](std::string_view key) { return std::ranges::find(entries, key, &Entry::key); };
  const auto mode = find("activation_checkpoint.mode");
  if (find(kOption) != entries.end() || (mode != entries.end() && mode->value.text != "selective")) return;
  job.set_default("@selective_layers", "2", "default of torchtitan (selective_ac_option)");
}

/// Recomputation of every n-th layer, after compilation is known: a compiler chooses what the others keep.
void torchtitan_layers(Job& job) {
  const Given* layers = job.find("@selective_layers");
  if (!layers) return;
  const Given from = *layers;
  job.erase("@selective_layers");
  if (!job.find("plan.execution")) {
    const Given* recompute = job.find("train.recompute");
    if (recompute && recompute->value == "selective" && !job.is_option("train.recompute") &&
        !job.is_option("plan.execution"))
      job.set_default("plan.selective_layers", from.value, from);
    return;
  }
  constexpr const char* kNote = "compiled layers are planned as \"op\"";
  bool given = false;
  for (runfile::FileKey& k : job.keys)
    if (k.key == kOption) given = true, k.use = runfile::KeyUse::kNotModelled, k.note = kNote;
  if (!given && !job.keys.empty())
    job.keys.push_back({kOption,
                        "\"2\" (default of torchtitan)",
                        {job.keys.front().where.file, 0, 0},
                        runfile::KeyUse::kNotModelled,
                        kNote,
                        true});
}

bool is_many(const Job& job, const char* key) {
  const Given* given = job.find(key);
  return given && given->value != "1";
}

/// FSDP2 shards over data_parallel_shard_degree (-1: all devices that are left) and context-parallel ranks.
/// With one such rank there is none, and mixed precision has an effect without other parallelism only.
void torchtitan_sharding(Job& job) {
  const Given *shard = job.find("@shard"), *reshard = job.find("@reshard");
  if (shard && shard->value == "1" && !is_many(job, "parallel.context")) {
    job.set_default("parallel.zero", "0", *shard);
    if (!is_many(job, "parallel.tensor") && !is_many(job, "parallel.pipeline")) return;
    const Given from = *shard;
    job.erase("train.precision");
    job.set_default("train.precision", "fp32", from);
    return;
  }
  if (reshard) return job.set_default("parallel.zero", reshard->value, *reshard);
  // "default": weights stay gathered under pipeline parallelism.
  job.set_default("parallel.zero", is_many(job, "parallel.pipeline") ? "2" : "3",
                  "default of torchtitan (FSDP2)");
}

/// Pipeline stages divide the local batch into micro-batches of pipeline_parallel_microbatch_size sequences.
void torchtitan_micro_batches(Job& job) {
  const Given local = *job.find("train.micro_batch"), *given = job.find("@micro_of_stages");
  const Given micro = given ? *given : Given{"1", "default of torchtitan", {}, true};
  if (count_of(local) % count_of(micro))
    throw usage_error(fmt::format("{} = {} does not divide the local batch of {} sequences", micro.key,
                                  micro.value, local.value),
                      {}, micro.where);
  job.erase("train.micro_batch");
  job.set_default("train.micro_batch", micro.value, micro);
  if (!job.find(kGlobalBatch))
    job.set_default("train.grad_accum", std::to_string(count_of(local) / count_of(micro)), local);
}

constexpr Rule kTorchtitan[] = {
    {"model.name", Use::kCopy, "@model_name"},
    {"model.flavor", Use::kCopy, "@model_flavor"},
    {"hf_transformers.model", Use::kCopy, "@hf_model"},
    {"training.local_batch_size", Use::kCopy, "train.micro_batch"},
    {"training.batch_size", Use::kCopy, "train.micro_batch"},
    {"training.global_batch_size", Use::kCustom, "train.grad_accum", "", torchtitan_batch},
    {"training.seq_len", Use::kCopy, "data.seq_len"},
    {"training.mixed_precision_param", Use::kChoice, "train.precision",
     "bfloat16=bf16|float16=fp16|float32=fp32"},
    {"training.mixed_precision_reduce", Use::kNotModelled, "float32", "type of the reduced gradients"},
    {"training.dtype", Use::kCustom, "plan.weights", "", torchtitan_type},
    {"training.enable_cpu_offload", Use::kCustom, "plan.offload_weights", "", torchtitan_offload},
    {"training.compile", Use::kWhenTrue, "plan.execution", "compile"},
    {"training.data_parallel_shard_degree", Use::kCustom, "parallel.data", "",
     [](Job& j, const Entry& e) { torchtitan_degree(j, e, "@shard"); }},
    {"training.data_parallel_replicate_degree", Use::kCustom, "parallel.data", "",
     [](Job& j, const Entry& e) { j.set("@replicate", std::to_string(whole_of(e)), e); }},
    {"training.tensor_parallel_degree", Use::kCopy, "parallel.tensor"},
    {"parallelism.data_parallel_shard_degree", Use::kCustom, "parallel.data", "",
     [](Job& j, const Entry& e) { torchtitan_degree(j, e, "@shard"); }},
    {"parallelism.data_parallel_replicate_degree", Use::kCustom, "parallel.data", "",
     [](Job& j, const Entry& e) { j.set("@replicate", std::to_string(whole_of(e)), e); }},
    {"parallelism.fsdp_reshard_after_forward", Use::kChoice, "@reshard", "default=|always=3|never=2"},
    {"parallelism.tensor_parallel_degree", Use::kCopy, "parallel.tensor"},
    {"parallelism.pipeline_parallel_degree", Use::kCopy, "parallel.pipeline"},
    {"parallelism.context_parallel_degree", Use::kCopy, "parallel.context"},
    {"parallelism.expert_parallel_degree", Use::kCopy, "parallel.expert"},
    {"parallelism.pipeline_parallel_microbatch_size", Use::kCopy, "@micro_of_stages"},
    {"parallelism.pipeline_parallel_schedule", Use::kCustom, "parallel.interleave", "", torchtitan_schedule},
    {"parallelism.pipeline_parallel_schedule_csv", Use::kNotModelled, "",
     "pipeline schedule other than 1F1B"},
    {"parallelism.pipeline_parallel_expert_parallel_overlap", Use::kNoEffect},
    // What decides which layers a stage has, or how a batch is divided.
    {"parallelism.pipeline_parallel_*", Use::kNotModelled, "", "layers or sequences of the pipeline stages"},
    {"parallelism.module_fqns_per_model_part", Use::kNotModelled, "", "layers of the pipeline stages"},
    {"parallelism.disable_loss_parallel", Use::kNeedsMore, "", "each rank has all logits"},
    {"parallelism.expert_tensor_parallel_degree", Use::kCopy, kExpertTensor},
    {"experimental.pipeline_parallel_degree", Use::kCopy, "parallel.pipeline"},
    {"experimental.context_parallel_degree", Use::kCopy, "parallel.context"},
    {"training.debug_moe_force_load_balance", Use::kNoEffect},
    {"activation_checkpoint.mode", Use::kChoice, "train.recompute",
     "none=none|full=full|selective=selective|memory_budget=selective"},
    // memory_budget lets the compiler choose; selective recomputation is the nearest that plans know.
    {"activation_checkpoint.memory_budget", Use::kNotModelled, "", "planned as selective recomputation"},
    {"activation_checkpoint.selective_ac_option", Use::kCustom, "plan.selective_layers", "",
     [](Job& j, const Entry& e) {
       if (text_of(e) != "op") j.set("@selective_layers", text_of(e), e);
     }},
    {"optimizer.name", Use::kChoice, "optimizer.name", "Adam=adamw|AdamW=adamw|SGD=sgd"},
    {"optimizer.implementation", Use::kCopy, "plan.optimizer_implementation"},
    {"optimizer.early_step_in_backward", Use::kNotModelled, "",
     "gradients are freed during the backward pass"},
    {"float8.enable_float8_linear", Use::kWhenTrue, "@float8", "true"},
    {"float8.enable_fsdp_float8_all_gather", Use::kWhenTrue, "@float8_gather", "true"},
    {"float8.recipe_name", Use::kChoice, "@float8_recipe",
     "tensorwise=|rowwise=rowwise|rowwise_with_gw_hp=rowwise"},
    {"quantize.linear.float8.enable_fsdp_float8_all_gather", Use::kWhenTrue, "@float8_gather", "true"},
    {"quantize.linear.float8.recipe_name", Use::kChoice, "@float8_recipe",
     "tensorwise=|rowwise=rowwise|rowwise_with_gw_hp=rowwise"},
    {"quantize.linear.float8.precompute_float8_dynamic_scale_for_fsdp", Use::kNoEffect},
    {"quantize.linear.float8.emulate", Use::kNoEffect},
    {"float8.precompute_float8_dynamic_scale_for_fsdp", Use::kNoEffect},
    {"float8.emulate", Use::kNoEffect},
    // Tables of converters: "model.converters" switches them on, and says so too.
    {"float8.*", Use::kNotModelled, "", "8-bit products"},
    {"mx.*", Use::kNotModelled, "", "8-bit products"},
    {"quantize.*", Use::kNotModelled, "", "8-bit products"},
    {"model.converters", Use::kCustom, "train.precision", "", torchtitan_converters},
    {"compile.enable", Use::kWhenTrue, "plan.execution", "compile"},
    {"compile.components", Use::kCustom, "plan.cross_entropy", "", torchtitan_components},
    {"memory_estimation.disable_fake_mode", Use::kNoEffect},
    {"fault_tolerance.semi_sync_method", Use::kNeedsMore, "", "a second copy of the weights"},
    {"encoder.*", Use::kNeedsMore, "", "further models"},
};
/// Tables that do not concern the step, then single keys of tables whose others have rules above.
constexpr const char* kTorchtitanWithoutEffect =
    "activation_checkpoint.debug activation_checkpoint.determinism_check activation_checkpoint.early_stop "
    "activation_checkpoint.per_op_sac_force_recompute_mm_shapes_by_fqns "
    "activation_checkpoint.preserve_rng_state "
    "activation_checkpoint.visualize_memory_budget_pareto checkpoint.* comm.* compile.backend data.* debug.* "
    "eval.* experimental.* "
    "fault_tolerance.* inference.* job.* lr_scheduler.* memory_estimation.* metrics.* "
    "model.hf_assets_path model.norm_type model.print_after_conversion model.tokenizer_path "
    "optimizer.beta1 optimizer.beta2 optimizer.eps optimizer.fused optimizer.lr optimizer.weight_decay "
    "parallelism.context_parallel_load_balancer parallelism.context_parallel_rotate_method "
    "parallelism.enable_async_tensor_parallel parallelism.enable_compiled_autograd "
    "parallelism.expert_parallel_comm_backend profiling.* training.classifer_free_guidance_prob "
    "training.classifier_free_guidance_prob training.data_parallel_type training.dataloader.* "
    "training.dataset training.dataset_path training.deterministic training.gc_debug training.gc_freq "
    "training.img_size training.max_norm training.seed training.steps training.test_mode "
    "training.warmup_steps validation.*";

}  // namespace

void read_torchtitan(const Entries& entries, Job& job) {
  job.framework = "torchtitan";
  // Headers of tables are entries of read_toml(); rules know keys only.
  Entries values;
  for (const runfile::Entry& e : entries)
    if (e.value.kind != runfile::Value::Kind::kTable) values.push_back(e);
  apply_rules({{kTorchtitan, kTorchtitanWithoutEffect}}, values, job);
  if (job.find("@model_flavor")) torchtitan_model(job);
  const auto ranks = [&](const char* key) { return job.find(key) ? count_of(*job.find(key)) : 1; };
  const std::uint64_t shard = ranks("@shard"), data = shard * ranks("@replicate");
  // A shard degree of -1, the default, is the rest of the devices, which the file does not count.
  const bool counts = job.find("@shard") || data == 1;
  if (counts && data > 1) job.set_default("parallel.data", std::to_string(data), "the data-parallel degrees");
  // Its plans of tensor parallelism for decoders share the tokens between regions.
  if (const Given* tensor = job.find("parallel.tensor"); tensor && tensor->value != "1")
    job.set_default("parallel.sequence", "true", *tensor);
  torchtitan_sharding(job);
  // Without shards the replicas are DDP.
  if (const Given* n = job.find("@replicate"); n && n->value != "1" && !(job.find("@shard") && shard == 1))
    job.set_default("plan.fsdp_replicas", n->value, Given(*n));
  // Has no effect without expert parallelism.
  if (is_many(job, "parallel.expert"))
    job.set_default(kExpertTensor, "1", "default of torchtitan");
  else
    job.erase(kExpertTensor);
  job.set_default("train.precision", "bf16", "default of torchtitan");
  torchtitan_unused_converters(job, values);
  torchtitan_float8(job);
  job.set_default("train.micro_batch", "8", "default of torchtitan");
  // After the default of the local batch, which stages divide.
  if (is_many(job, "parallel.pipeline")) torchtitan_micro_batches(job);
  if (const Given* stages = job.find("@stages_per_rank"); stages && is_many(job, "parallel.pipeline"))
    job.set_default("parallel.interleave", stages->value, Given(*stages));
  torchtitan_eager_layers(job);
  for (const char* key : {"@model_name", "@model_flavor", "@hf_model", "@shard", "@replicate", "@reshard",
                          "@micro_of_stages", "@stages_per_rank"})
    job.erase(key);
  job.set_default("data.seq_len", "2048", "default of torchtitan");
  job.set_default("train.recompute", "selective", "default of torchtitan");
  set_default_option(values, job);
  torchtitan_layers(job);
  job.set_default("plan.optimizer_implementation", "fused", "default of torchtitan");
  job.set_default("plan.weights", "fp32", "default of torchtitan (FSDP2)");
  job.set_default("plan.master", "none", "default of torchtitan (FSDP2)");
  // A compiled loss has no name of its own: the estimator of torchtitan knows it.
  if (!job.find("plan.execution")) job.set_default("plan.cross_entropy", "plain", "default of torchtitan");
}

}  // namespace trainhost::framework_files
