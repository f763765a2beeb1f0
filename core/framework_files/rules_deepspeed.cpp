// The JSON configuration of DeepSpeed (0.16 to 0.18), by its runtime and ZeRO configuration classes.
// The value "auto" is filled in by transformers from TrainingArguments.
#include "core/framework_files/rules.hpp"

namespace trainhost::framework_files {
namespace {

using runfile::Entry;

/// bf16 or fp16 weights with f32 master weights. DeepSpeed keeps gradients in the type of the weights where
/// it shards them, otherwise in f32; read_deepspeed() sets that.
void deepspeed_narrow(Job& job, const Entry& e, const char* type) {
  if (e.value.kind == runfile::Value::Kind::kText && e.value.text == "auto") return;
  if (!flag_of(e)) return;
  job.set("train.precision", type, e);
  job.erase("plan.weights"), job.erase("plan.master");  // DeepSpeed replaces the types of autocast
  job.set("plan.weights", type, e);
  job.set("plan.master", "fp32", e);
}

constexpr Rule kDeepSpeed[] = {
    {"train_batch_size", Use::kCopy, kGlobalBatch},
    {"train_micro_batch_size_per_gpu", Use::kCopy, "train.micro_batch"},
    {"gradient_accumulation_steps", Use::kCopy, "train.grad_accum"},
    {"zero_optimization.stage", Use::kCopy, "parallel.zero"},
    {"zero_optimization.offload_optimizer.device", Use::kChoice, "plan.offload_optimizer",
     "none=|cpu=cpu|nvme=nvme|auto="},
    {"zero_optimization.offload_param.device", Use::kChoice, "plan.offload_weights",
     "none=|cpu=cpu|nvme=nvme|auto="},
    {"zero_optimization.cpu_offload", Use::kWhenTrue, "plan.offload_optimizer", "cpu"},
    {"zero_optimization.offload_optimizer.*", Use::kNoEffect},
    {"zero_optimization.offload_param.*", Use::kNoEffect},
    {"zero_optimization.reduce_bucket_size", Use::kNotModelled, "", "buckets of collectives"},
    {"zero_optimization.allgather_bucket_size", Use::kNotModelled, "", "buckets of collectives"},
    {"zero_optimization.stage3_prefetch_bucket_size", Use::kNotModelled, "", "weights gathered ahead"},
    {"zero_optimization.stage3_max_live_parameters", Use::kNotModelled, "", "weights gathered ahead"},
    {"zero_optimization.stage3_param_persistence_threshold", Use::kNotModelled, "",
     "small weights are not sharded"},
    {"zero_optimization.zero_hpz_partition_size", Use::kNotModelled, "",
     "a second copy of the weights per node"},
    {"zero_optimization.zero_quantized_*", Use::kNotModelled, "", "quantized communication"},
    {"zero_optimization.*", Use::kNoEffect},
    {"bf16.enabled", Use::kCustom, "train.precision", "",
     [](Job& j, const Entry& e) { deepspeed_narrow(j, e, "bf16"); }},
    {"fp16.enabled", Use::kCustom, "train.precision", "",
     [](Job& j, const Entry& e) { deepspeed_narrow(j, e, "fp16"); }},
    {"bf16.*", Use::kNoEffect},
    {"fp16.*", Use::kNoEffect},
    {"data_types.grad_accum_dtype", Use::kCopy, "plan.gradients"},
    {"optimizer.type", Use::kChoice, "optimizer.name",
     "Adam=adamw|AdamW=adamw|FusedAdam=adamw|DeepSpeedCPUAdam=adamw|SGD=sgd|Lion=lion|Adafactor=adafactor|"
     "Muon=muon|auto="},
    {"optimizer.*", Use::kNoEffect},
    {"activation_checkpointing.*", Use::kNotModelled, "",
     "only models that call deepspeed.checkpointing use it"},
    {"tensor_parallel.autotp_size", Use::kCopy, "parallel.tensor"},
    {"sequence_parallel_size", Use::kCopy, "parallel.context"},
    {"gradient_clipping", Use::kNoEffect},
    {"scheduler.*", Use::kNoEffect},
    {"steps_per_print", Use::kNoEffect},
    {"wall_clock_breakdown", Use::kNoEffect},
    {"dump_state", Use::kNoEffect},
    {"prescale_gradients", Use::kNoEffect},
    {"communication_data_type", Use::kNoEffect},
    {"comms_logger*", Use::kNoEffect},
    {"tensorboard.*", Use::kNoEffect},
    {"wandb.*", Use::kNoEffect},
    {"csv_monitor.*", Use::kNoEffect},
    {"flops_profiler.*", Use::kNoEffect},
    {"aio.*", Use::kNoEffect},
    {"zero_allow_untested_optimizer", Use::kNoEffect},
    {"zero_force_ds_cpu_optimizer", Use::kNoEffect},
    {"checkpoint.*", Use::kNoEffect},
    {"seed", Use::kNoEffect},
};

}  // namespace

void read_deepspeed(const Entries& entries, Job& job) {
  job.framework = "deepspeed";
  apply_rules(kDeepSpeed, entries, job);
  const Given *stage = job.find("parallel.zero"), *type = job.find("train.precision");
  if (type && type->value != "fp32") {
    // With "enabled": "auto" transformers decides the type, and DeepSpeed still keeps master weights.
    const std::string narrow_type = type->value;
    job.erase("plan.weights"), job.erase("plan.master");
    job.set_default("plan.weights", narrow_type, "default of DeepSpeed");
    job.set_default("plan.master", "fp32", "default of DeepSpeed");
    if (stage && stage->value != "0") job.set_default("plan.gradients", narrow_type, "default of DeepSpeed");
  }
}

}  // namespace trainhost::framework_files
