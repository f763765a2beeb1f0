// The JSON configuration of DeepSpeed (0.16 to 0.19), by its runtime and ZeRO configuration classes.
// The value "auto" is filled in by transformers from TrainingArguments.
#include <algorithm>
#include <cmath>

#include "core/framework_files/rules.hpp"

namespace trainhost::framework_files {
namespace {

using runfile::Entry;

/// "true": moments have the type of the master weights.
constexpr const char* kStatesOfWeights = "@states_of_weights";

bool is_auto(const Entry& e) { return e.value.kind == runfile::Value::Kind::kText && e.value.text == "auto"; }

/// bf16 or fp16 weights with f32 master weights; finish_deepspeed() sets the gradients.
void deepspeed_narrow(Job& job, const Entry& e, const char* type) {
  if (is_auto(e) || !flag_of(e)) return;
  job.set("train.precision", type, e);
  job.erase("plan.weights"), job.erase("plan.master");  // DeepSpeed replaces the types of autocast
  job.set("plan.weights", type, e);
}

void deepspeed_bf16(Job& job, const Entry& e) { deepspeed_narrow(job, e, "bf16"); }
void deepspeed_fp16(Job& job, const Entry& e) { deepspeed_narrow(job, e, "fp16"); }

/// Names of DeepSpeed in any case of letters; others are those of torch.optim.
void deepspeed_optimizer(Job& job, const Entry& e) {
  static constexpr struct {
    const char *theirs, *ours, *not_modelled;
  } kNames[] = {{"auto", "", ""},
                {"adam", "adamw", ""},
                {"adamw", "adamw", ""},
                {"fusedadam", "adamw", ""},
                {"deepspeedcpuadam", "adamw", ""},
                {"nadam", "adamw", ""},
                {"radam", "adamw", ""},
                {"lamb", "adamw", ""},
                {"muadam", "adamw", ""},
                {"muadamw", "adamw", ""},
                {"onebitadam", "adamw", "buffers of compressed communication"},
                {"zerooneadam", "adamw", "buffers of compressed communication"},
                {"onebitlamb", "adamw", "buffers of compressed communication"},
                {"adagrad", "sgd-momentum", "planned as one fp32 state per weight"},
                {"sgd", "sgd", ""},
                {"musgd", "sgd", ""},
                {"lion", "lion", ""},
                {"muon", "muon", ""},
                {"adafactor", "adafactor", ""}};
  std::string name = text_of(e);
  std::ranges::transform(name, name.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c; });
  std::vector<std::string> known;
  for (const auto& n : kNames) {
    known.emplace_back(n.theirs);
    if (name != n.theirs) continue;
    if (*n.ours) job.set("optimizer.name", n.ours, e);
    job.not_modelled = n.not_modelled;
    return;
  }
  reject_optimizer(job, e, known);
}

/// DeepSpeed also accepts 1e9. Above 10^15 nothing changes.
std::string elements_of(const Entry& e) {
  constexpr double kMost = 1e15;
  const double n = e.value.number;
  if (e.value.kind == runfile::Value::Kind::kNumber && n >= 0 && n == std::floor(n))
    return std::to_string(static_cast<std::uint64_t>(std::min(n, kMost)));
  return std::to_string(std::min(whole_of(e), static_cast<std::uint64_t>(kMost)));
}

/// transformers replaces "auto" by sizes that follow from the hidden size H: H * H for the bucket, 0.9 * H *
/// H for the prefetch, 10 * H for the threshold. The values below stand for these in run files.
void reduce_bucket(Job& job, const Entry& e) {
  job.set("plan.reduce_bucket", is_auto(e) ? "0" : elements_of(e), e);
}
void prefetch_bucket(Job& job, const Entry& e) {
  job.set("plan.prefetch_bucket", is_auto(e) ? "-1" : elements_of(e), e);
}
void persistence_threshold(Job& job, const Entry& e) {
  job.set("plan.persistence_threshold", is_auto(e) ? "-1" : elements_of(e), e);
}
// Not filled in by transformers: DeepSpeed has its own default then.
void max_live(Job& job, const Entry& e) {
  if (!is_auto(e)) job.set("plan.max_live", elements_of(e), e);
}
void reuse_distance(Job& job, const Entry& e) {
  if (!is_auto(e)) job.set("plan.reuse_distance", elements_of(e), e);
}

void pin_memory(Job& job, const Entry& e) {
  if (!flag_of(e)) job.not_modelled = "the plan counts pinned buffers of the host, which may be larger";
}

/// DeepSpeedCPUAdam then keeps moments in the type of the weights that it updates: those are f32 unless
/// bf16_master_weights_and_grads or fp16_master_weights_and_grads is true. finish_deepspeed() knows both.
void optimizer_states(Job& job, const Entry& e) {
  if (!flag_of(e)) job.set(kStatesOfWeights, "true", e);
}

constexpr const char* kOwnCheckpoints = "only models that call deepspeed.checkpointing use it";

constexpr Rule kDeepSpeed[] = {
    // Two of these three, with the number of ranks, give the third.
    {"train_batch_size", Use::kCopy, kGlobalBatch},
    {"train_micro_batch_size_per_gpu", Use::kCopy, "train.micro_batch"},
    {"gradient_accumulation_steps", Use::kCopy, "train.grad_accum"},
    {"zero_optimization.stage", Use::kCopy, "parallel.zero"},
    {"zero_optimization.offload_optimizer.device", Use::kChoice, "plan.offload_optimizer",
     "none=|cpu=cpu|nvme=nvme|auto="},
    {"zero_optimization.offload_optimizer.ratio", Use::kNotModelled, "1.0|1",
     "only a part of the optimizer is offloaded"},
    {"zero_optimization.offload_optimizer.pin_memory", Use::kCustom, "", "", pin_memory},
    {"zero_optimization.offload_optimizer.buffer_*", Use::kNotModelled, "auto", "buffers of the offload"},
    {"zero_optimization.offload_param.device", Use::kChoice, "plan.offload_weights",
     "none=|cpu=cpu|nvme=nvme|auto="},
    {"zero_optimization.offload_param.pin_memory", Use::kCustom, "", "", pin_memory},
    {"zero_optimization.offload_param.buffer_*", Use::kNotModelled, "auto", "buffers of the offload"},
    {"optimizer.params.amsgrad", Use::kNeedsMore, "", "a third moment"},
    {"optimizer.params.torch_adam", Use::kNotModelled, "", "the optimizer of torch"},
    {"zero_optimization.cpu_offload", Use::kWhenTrue, "plan.offload_optimizer", "cpu"},
    {"zero_optimization.cpu_offload_param", Use::kWhenTrue, "plan.offload_weights", "cpu"},
    // Stage 3 knows its settings with and without the prefix; the class has one as the alias of the other.
    {"zero_optimization.reduce_bucket_size", Use::kCustom, "plan.reduce_bucket", "", reduce_bucket},
    {"zero_optimization.overlap_comm", Use::kCopy, "plan.overlap_reduce"},
    {"zero_optimization.allgather_bucket_size", Use::kNotModelled, "", "buckets of collectives"},
    {"zero_optimization.prefetch_bucket_size", Use::kCustom, "plan.prefetch_bucket", "", prefetch_bucket},
    {"zero_optimization.stage3_prefetch_bucket_size", Use::kCustom, "plan.prefetch_bucket", "",
     prefetch_bucket},
    {"zero_optimization.max_live_parameters", Use::kCustom, "plan.max_live", "", max_live},
    {"zero_optimization.stage3_max_live_parameters", Use::kCustom, "plan.max_live", "", max_live},
    {"zero_optimization.max_reuse_distance", Use::kCustom, "plan.reuse_distance", "", reuse_distance},
    {"zero_optimization.stage3_max_reuse_distance", Use::kCustom, "plan.reuse_distance", "", reuse_distance},
    {"zero_optimization.param_persistence_threshold", Use::kCustom, "plan.persistence_threshold", "",
     persistence_threshold},
    {"zero_optimization.stage3_param_persistence_threshold", Use::kCustom, "plan.persistence_threshold", "",
     persistence_threshold},
    {"zero_optimization.model_persistence_threshold", Use::kNotModelled, "", "small weights are not sharded"},
    {"zero_optimization.stage3_model_persistence_threshold", Use::kNotModelled, "",
     "small weights are not sharded"},
    {"zero_optimization.module_granularity_threshold", Use::kNotModelled, "", "weights gathered together"},
    {"zero_optimization.stage3_module_granularity_threshold", Use::kNotModelled, "",
     "weights gathered together"},
    {"zero_optimization.sub_group_size", Use::kNotModelled, "auto", "weights updated together"},
    {"zero_optimization.contiguous_gradients", Use::kNotModelled, "true",
     "gradients are not copied to one buffer"},
    // ZeRO++ and MiCS: other groups of ranks, or other types in collectives.
    {"zero_optimization.zero_hpz_partition_size", Use::kNotModelled, "1",
     "a second copy of the weights per node"},
    {"zero_optimization.mics_shard_size", Use::kNotModelled, "-1", "weights are sharded over fewer ranks"},
    {"zero_optimization.zero_quantized_*", Use::kNotModelled, "", "quantized communication"},
    {"zero_optimization.zeropp_loco_param.*", Use::kNotModelled, "", "quantized communication"},
    {"zero_optimization.zenflow.*", Use::kNotModelled, "", "asynchronous offload of the optimizer"},
    // Types: finish_deepspeed() sets what follows from them together.
    {"bf16.enabled", Use::kCustom, "train.precision", "", deepspeed_bf16},
    {"bfloat16.enabled", Use::kCustom, "train.precision", "", deepspeed_bf16},
    {"fp16.enabled", Use::kCustom, "train.precision", "", deepspeed_fp16},
    {"bf16.bf16_master_weights_and_grads", Use::kWhenTrue, "@narrow_master", "bf16"},
    {"fp16.fp16_master_weights_and_grads", Use::kWhenTrue, "@narrow_master", "fp16"},
    {"bf16.bf16_optimizer_states", Use::kWhenTrue, "plan.moments", "bf16"},
    {"torch_autocast.enabled", Use::kChoice, "@autocast", "true=true|false=|auto="},
    {"torch_autocast.dtype", Use::kChoice, "@autocast_type",
     "bfloat16=bf16|float16=fp16|bf16=bf16|fp16=fp16|torch.bfloat16=bf16|torch.float16=fp16|half=fp16|auto="},
    {"amp.enabled", Use::kNotModelled, "", "mixed precision of apex"},
    {"optimizer.params.fp32_optimizer_states", Use::kCustom, "", "", optimizer_states},
    {"data_types.grad_accum_dtype", Use::kCopy, "plan.gradients"},
    {"optimizer.type", Use::kCustom, "optimizer.name", "", deepspeed_optimizer},
    {"activation_checkpointing.contiguous_memory_optimization", Use::kNotModelled, "", kOwnCheckpoints},
    {"activation_checkpointing.cpu_checkpointing", Use::kNotModelled, "", kOwnCheckpoints},
    {"activation_checkpointing.number_checkpoints", Use::kNotModelled, "", kOwnCheckpoints},
    {"activation_checkpointing.partition_activations", Use::kNotModelled, "", kOwnCheckpoints},
    // Tables that switch on something plans do not know. Their further keys have no effect of their own.
    {"tensor_parallel.autotp_size", Use::kCopy, "@autotp"},
    {"tensor_parallel.tp.tp_size", Use::kCopy, "@autotp"},
    {"sequence_parallel_size", Use::kCopy, "parallel.context"},
    {"compile.deepcompile", Use::kNotModelled, "", "compiled graphs keep other activations"},
    {"compression_training.*", Use::kNotModelled, "", "compression of weights or activations"},
    {"expert_parallel.*", Use::kNotModelled, "", "expert parallelism"},
    {"hybrid_engine.*", Use::kNotModelled, "", "inference between training steps"},
    {"progressive_layer_drop.*", Use::kNotModelled, "", "layers are left out"},
    {"quantize_training.*", Use::kNotModelled, "", "quantization of weights during training"},
    {"sparse_attention.*", Use::kNotModelled, "", "sparse attention"},
    {"data_efficiency.*", Use::kNotModelled, "", "other lengths of sequences"},
    {"curriculum_learning.*", Use::kNotModelled, "", "other lengths of sequences"},
};
/// How collectives are done (not which memory they need), checkpoints, logging, profiling, the schedule. Of
/// tables that decide memory each key is listed, so that a misspelt one is not taken for one of these.
constexpr const char* kDeepSpeedWithoutEffect =
    "zero_optimization.allgather_partitions zero_optimization.allgather_sequential "
    "zero_optimization.cpu_offload_use_pin_memory zero_optimization.elastic_checkpoint "
    "zero_optimization.enable_sanity_checks zero_optimization.gather_16bit_weights_on_model_save "
    "zero_optimization.ignore_unused_parameters zero_optimization.leaf_module.* "
    "zero_optimization.legacy_stage1 zero_optimization.load_from_fp32_weights "
    "zero_optimization.log_trace_cache_warnings zero_optimization.memory_efficient_linear "
    "zero_optimization.mics_hierarchical_params_gather "
    "zero_optimization.offload_optimizer.cpuadam_cores_perc zero_optimization.offload_optimizer.fast_init "
    "zero_optimization.offload_optimizer.nvme_path zero_optimization.offload_optimizer.pipeline* "
    "zero_optimization.offload_optimizer.super_offload zero_optimization.offload_param.max_in_cpu "
    "zero_optimization.offload_param.nvme_path "
    "zero_optimization.override_module_apply zero_optimization.pipeline_loading_checkpoint "
    "zero_optimization.reduce_scatter zero_optimization.round_robin_gradients "
    "zero_optimization.save_muon_momentum_buffer_in_memory "
    "zero_optimization.stage3_allgather_sequential "
    "zero_optimization.stage3_gather_16bit_weights_on_model_save "
    "zero_optimization.stage3_gather_fp16_weights_on_model_save "
    "zero_optimization.stage3_use_all_reduce_for_fetch_params "
    "zero_optimization.use_all_reduce_for_fetch_params zero_optimization.use_multi_rank_bucket_allreduce "
    "activation_checkpointing activation_checkpointing.profile "
    "activation_checkpointing.synchronize_checkpoint_boundary "
    "optimizer.legacy_fusion optimizer.params optimizer.params.adam_lr optimizer.params.adam_w_mode "
    "optimizer.params.adamw_mode optimizer.params.betas "
    "optimizer.params.bias_correction optimizer.params.capturable optimizer.params.coeff_beta "
    "optimizer.params.comm_backend_name optimizer.params.cuda_aware optimizer.params.dampening "
    "optimizer.params.differentiable optimizer.params.eps optimizer.params.eps_inside_sqrt "
    "optimizer.params.factor_max optimizer.params.factor_min optimizer.params.factor_threshold "
    "optimizer.params.foreach optimizer.params.freeze_step "
    "optimizer.params.fused optimizer.params.local_step_clipper optimizer.params.local_step_scaler "
    "optimizer.params.lr optimizer.params.max_coeff optimizer.params.max_grad_norm "
    "optimizer.params.maximize optimizer.params.min_coeff optimizer.params.momentum "
    "optimizer.params.muon_lr optimizer.params.nesterov optimizer.params.ns_method "
    "optimizer.params.ns_steps optimizer.params.set_grad_none "
    "optimizer.params.var_freeze_step optimizer.params.var_update_scaler "
    "optimizer.params.weight_decay scheduler.params scheduler.type scheduler.params.cos_min_ratio "
    "scheduler.params.cycle_first_stair_count scheduler.params.cycle_first_step_size "
    "scheduler.params.cycle_max_lr scheduler.params.cycle_max_mom scheduler.params.cycle_min_lr "
    "scheduler.params.cycle_min_mom scheduler.params.cycle_momentum "
    "scheduler.params.cycle_second_stair_count scheduler.params.cycle_second_step_size "
    "scheduler.params.decay_lr_rate scheduler.params.decay_mom_rate "
    "scheduler.params.decay_step_size scheduler.params.last_batch_iteration "
    "scheduler.params.lr_range_test_min_lr scheduler.params.lr_range_test_staircase "
    "scheduler.params.lr_range_test_step_rate scheduler.params.lr_range_test_step_size "
    "scheduler.params.total_num_steps scheduler.params.warmup_max_lr scheduler.params.warmup_min_lr "
    "scheduler.params.warmup_min_ratio scheduler.params.warmup_num_steps "
    "scheduler.params.warmup_type aio.block_size aio.intra_op_parallelism aio.overlap_events "
    "aio.queue_depth aio.single_submit aio.thread_count aio.use_gds "
    "torch_autocast.lower_precision_safe_modules "
    "aio amp.* autotuning.* bf16.check_grad_overflow bf16.immediate_grad_update "
    "bfloat16.check_grad_overflow bfloat16.immediate_grad_update checkpoint.* comet.* comms_config.* "
    "comms_logger.* "
    "communication_data_type compile.* csv_monitor.* dataloader_drop_last datastates.* "
    "disable_allgather dump_state eigenvalue.* elasticity.* flops_profiler.* fp16.auto_cast "
    "fp16.consecutive_hysteresis "
    "fp16.hysteresis fp16.initial_scale_power fp16.loss_scale fp16.loss_scale_window fp16.min_loss_scale "
    "fp32_allreduce "
    "gradient_allreduce_op gradient_clipping gradient_predivide_factor graph_harvesting log_level "
    "managed_gradient_accumulation memory_breakdown monitor_config.* nebula.* optimizer pipeline.* "
    "prescale_gradients scheduler seed seq_parallel_communication_data_type sparse_gradients "
    "steps_per_print tensor_parallel.tp.tp_grain_size tensor_parallel.tp_overlap_comm "
    "tensor_parallel.preset_model "
    "tensor_parallel.partition_config.* tensor_parallel.dtype tensorboard.* timers.* "
    "use_data_before_expert_parallelism wall_clock_breakdown wandb.* weight_quantization.* "
    "zero_allow_untested_optimizer zero_force_ds_cpu_optimizer _comment";

}  // namespace

void finish_deepspeed(Job& job) {
  job.framework = "deepspeed";
  // Without bf16 and fp16 its engine casts the model to f32.
  if (job.find(kByCheckpoint)) {
    for (const char* key :
         {"train.precision", "plan.weights", "plan.gradients", "plan.moments", "plan.master"})
      if (const Given* g = job.find(key); g && g->by_default) job.erase(key);
    job.erase(kByCheckpoint);
    job.set_default("train.precision", "fp32", "default of DeepSpeed");
  }
  const Given* type = job.find("train.precision");
  // An f32 model has no narrow weights, and keeps the defaults of a run file.
  if (!type || type->value == "fp32") return;
  // With "enabled": "auto" transformers decides the type, and DeepSpeed still keeps master weights. Gradients
  // have the type of the weights (until 0.16: f32 for bf16 without ZeRO).
  const std::string narrow_type = type->value;
  job.erase("plan.weights"), job.erase("plan.master");
  // The optimizer updates master weights, so its moments have their type, and not that of the model.
  for (const char* key : {"plan.moments", "plan.gradients"})
    if (const Given* g = job.find(key); g && g->by_default) job.erase(key);
  job.set_default("plan.weights", narrow_type, "default of DeepSpeed");
  if (const Given* narrow = job.find("@narrow_master")) {
    // Run files have no fp16 here; bf16 has its size.
    job.set_default("plan.master", "bf16", *narrow);
    job.set_default("plan.gradients", narrow_type, *narrow);
    // f16 moments have the size of bf16.
    if (const Given* states = job.find(kStatesOfWeights); states && job.find("plan.offload_optimizer"))
      job.set_default("plan.moments", "bf16", Given(*states));
  }
  job.set_default("plan.master", "fp32", "default of DeepSpeed");
  job.set_default("plan.gradients", narrow_type, "default of DeepSpeed");
}

void read_deepspeed(const Entries& entries, Job& job) {
  job.framework = "deepspeed";
  apply_rules({{kDeepSpeed, kDeepSpeedWithoutEffect}}, entries, job);
  job.set_default("parallel.zero", "0", "default of DeepSpeed");
  if (const Given* tensor = job.find("@autotp"); tensor && tensor->value != "0")
    job.set_default("parallel.tensor", tensor->value, *tensor);
  // torch_autocast is an alternative to bf16 and fp16: the weights stay in f32 and operators cast them.
  const Given *autocast = job.find("@autocast"), *autocast_type = job.find("@autocast_type");
  if (autocast) {
    job.set_default("train.precision", autocast_type ? autocast_type->value : "bf16", *autocast);
    job.set_default("plan.weights", "fp32", *autocast);
    job.set_default("plan.master", "none", *autocast);
  } else {
    finish_deepspeed(job);
  }
  for (const char* key : {"@autotp", "@autocast", "@autocast_type", "@narrow_master", kStatesOfWeights})
    job.erase(key);
}

}  // namespace trainhost::framework_files
