// The TOML of torchtitan (0.1 and 0.2), by its class JobConfig. FSDP2 keeps f32 shards and computes
// in training.mixed_precision_param.
#include <fmt/format.h>

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

constexpr Rule kTorchtitan[] = {
    {"model.name", Use::kCopy, "@model_name"},
    {"model.flavor", Use::kCopy, "@model_flavor"},
    {"training.local_batch_size", Use::kCopy, "train.micro_batch"},
    {"training.batch_size", Use::kCopy, "train.micro_batch"},
    {"training.global_batch_size", Use::kCustom, "train.grad_accum", "", torchtitan_batch},
    {"training.seq_len", Use::kCopy, "data.seq_len"},
    {"training.mixed_precision_param", Use::kChoice, "train.precision",
     "bfloat16=bf16|float16=fp16|float32=fp32"},
    {"training.mixed_precision_reduce", Use::kNotModelled, "", "type of the reduced gradients"},
    {"training.enable_cpu_offload", Use::kWhenTrue, "plan.offload_weights", "cpu"},
    {"training.compile", Use::kNotModelled, "", "compiled graphs keep other activations"},
    {"training.data_parallel_shard_degree", Use::kCustom, "parallel.data", "",
     [](Job& j, const Entry& e) { torchtitan_degree(j, e, "@shard"); }},
    {"training.data_parallel_replicate_degree", Use::kCustom, "parallel.data", "",
     [](Job& j, const Entry& e) { torchtitan_degree(j, e, "@replicate"); }},
    {"training.tensor_parallel_degree", Use::kCopy, "parallel.tensor"},
    {"parallelism.data_parallel_shard_degree", Use::kCustom, "parallel.data", "",
     [](Job& j, const Entry& e) { torchtitan_degree(j, e, "@shard"); }},
    {"parallelism.data_parallel_replicate_degree", Use::kCustom, "parallel.data", "",
     [](Job& j, const Entry& e) { torchtitan_degree(j, e, "@replicate"); }},
    {"parallelism.fsdp_reshard_after_forward", Use::kChoice, "parallel.zero", "default=|always=3|never=2"},
    {"parallelism.tensor_parallel_degree", Use::kCopy, "parallel.tensor"},
    {"parallelism.pipeline_parallel_degree", Use::kCopy, "parallel.pipeline"},
    {"parallelism.context_parallel_degree", Use::kCopy, "parallel.context"},
    {"parallelism.expert_parallel_degree", Use::kCopy, "parallel.expert"},
    {"parallelism.pipeline_parallel_*", Use::kNotModelled, "", "pipeline schedule other than 1F1B"},
    {"parallelism.*", Use::kNoEffect},
    {"experimental.pipeline_parallel_degree", Use::kCopy, "parallel.pipeline"},
    {"experimental.context_parallel_degree", Use::kCopy, "parallel.context"},
    {"experimental.*", Use::kNoEffect},
    {"activation_checkpoint.mode", Use::kChoice, "train.recompute",
     "none=none|full=full|selective=selective"},
    {"activation_checkpoint.selective_ac_option", Use::kNotModelled, "",
     "planned as selective recomputation"},
    {"activation_checkpoint.*", Use::kNoEffect},
    {"optimizer.name", Use::kChoice, "optimizer.name", "Adam=adamw|AdamW=adamw|SGD=sgd"},
    {"optimizer.implementation", Use::kCopy, "plan.optimizer_implementation"},
    {"optimizer.early_step_in_backward", Use::kNotModelled, "",
     "gradients are freed during the backward pass"},
    {"optimizer.*", Use::kNoEffect},
    {"float8.*", Use::kNotModelled, "", "8-bit products"},
    {"quantize.*", Use::kNotModelled, "", "8-bit products"},
    {"compile.enable", Use::kNotModelled, "", "compiled graphs keep other activations"},
    {"compile.*", Use::kNoEffect},
    {"model.*", Use::kNoEffect},
    {"training.*", Use::kNoEffect},
    {"job.*", Use::kNoEffect},
    {"profiling.*", Use::kNoEffect},
    {"metrics.*", Use::kNoEffect},
    {"lr_scheduler.*", Use::kNoEffect},
    {"checkpoint.*", Use::kNoEffect},
    {"comm.*", Use::kNoEffect},
    {"memory_estimation.*", Use::kNoEffect},
    {"fault_tolerance.*", Use::kNoEffect},
    {"validation.*", Use::kNoEffect},
    {"debug.*", Use::kNoEffect},
};

}  // namespace

void read_torchtitan(const Entries& entries, Job& job) {
  job.framework = "torchtitan";
  Entries values;
  for (const runfile::Entry& e : entries)
    if (e.value.kind != runfile::Value::Kind::kTable) values.push_back(e);
  apply_rules(kTorchtitan, values, job);
  const Given *name = job.find("@model_name"), *flavor = job.find("@model_flavor");
  if (name && flavor)
    job.set_default(kModel, fmt::format("{}-{}", name->value, flavor->value), "model.name and model.flavor");
  const auto ranks = [&](const char* key) { return job.find(key) ? count_of(*job.find(key)) : 1; };
  const std::uint64_t shard = ranks("@shard"), data = shard * ranks("@replicate");
  if (data > 1) job.set_default("parallel.data", std::to_string(data), "the data-parallel degrees");
  for (const char* key : {"@model_name", "@model_flavor", "@shard", "@replicate"}) job.erase(key);
  // Its plans of tensor parallelism for decoders share the tokens between regions.
  if (const Given* tensor = job.find("parallel.tensor"); tensor && tensor->value != "1")
    job.set_default("parallel.sequence", "true", *tensor);
  job.set_default("parallel.zero", "3", "default of torchtitan (FSDP2)");
  job.set_default("train.precision", "bf16", "default of torchtitan");
  job.set_default("train.micro_batch", "8", "default of torchtitan");
  job.set_default("data.seq_len", "2048", "default of torchtitan");
  job.set_default("train.recompute", "selective", "default of torchtitan");
  job.set_default("plan.optimizer_implementation", "fused", "default of torchtitan");
  job.set_default("plan.weights", "fp32", "default of torchtitan (FSDP2)");
  job.set_default("plan.master", "none", "default of torchtitan (FSDP2)");
  job.set_default("plan.cross_entropy", "plain", "default of torchtitan");
}

}  // namespace trainhost::framework_files
