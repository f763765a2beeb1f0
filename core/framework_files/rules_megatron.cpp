// Arguments of Megatron-LM (core 0.9 to 0.14), by its argument parser. A model with RMSNorm and SwiGLU
// becomes the fields of a Llama; for any other, --model gives a config.json.
#include <fmt/format.h>

#include "core/framework_files/rules.hpp"

namespace trainhost::framework_files {
namespace {

using runfile::Entry;

void megatron_narrow(Job& job, const Entry& e, const char* type) {
  if (flag_of(e)) job.set("train.precision", type, e);
}

constexpr Rule kMegatron[] = {
    {"num-layers", Use::kCopy, "model.num_hidden_layers"},
    {"hidden-size", Use::kCopy, "model.hidden_size"},
    {"num-attention-heads", Use::kCopy, "model.num_attention_heads"},
    {"num-query-groups", Use::kCopy, "model.num_key_value_heads"},
    {"group-query-attention", Use::kNoEffect},
    {"ffn-hidden-size", Use::kCopy, "model.intermediate_size"},
    {"kv-channels", Use::kCopy, "model.head_dim"},
    {"vocab-size", Use::kCopy, "model.vocab_size"},
    {"padded-vocab-size", Use::kCopy, "model.vocab_size"},
    {"max-position-embeddings", Use::kCopy, "model.max_position_embeddings"},
    {"untie-embeddings-and-output-weights", Use::kWhenTrue, "model.tie_word_embeddings", "false"},
    {"add-qkv-bias", Use::kWhenTrue, "@qkv_bias", "true"},
    {"swiglu", Use::kWhenTrue, "@swiglu", "true"},
    {"normalization", Use::kChoice, "@rmsnorm", "RMSNorm=true|LayerNorm="},
    {"disable-bias-linear", Use::kWhenTrue, "@no_bias", "true"},
    {"seq-length", Use::kCopy, "data.seq_len"},
    {"micro-batch-size", Use::kCopy, "train.micro_batch"},
    {"global-batch-size", Use::kCopy, kGlobalBatch},
    {"bf16", Use::kCustom, "train.precision", "",
     [](Job& j, const Entry& e) { megatron_narrow(j, e, "bf16"); }},
    {"fp16", Use::kCustom, "train.precision", "",
     [](Job& j, const Entry& e) { megatron_narrow(j, e, "fp16"); }},
    {"tensor-model-parallel-size", Use::kCopy, "parallel.tensor"},
    {"pipeline-model-parallel-size", Use::kCopy, "parallel.pipeline"},
    {"num-layers-per-virtual-pipeline-stage", Use::kCopy, "@layers_per_stage"},
    {"num-virtual-stages-per-pipeline-rank", Use::kCopy, "parallel.interleave"},
    {"context-parallel-size", Use::kCopy, "parallel.context"},
    {"expert-model-parallel-size", Use::kCopy, "parallel.expert"},
    {"sequence-parallel", Use::kWhenTrue, "parallel.sequence", "true"},
    {"use-distributed-optimizer", Use::kWhenTrue, "parallel.zero", "1"},
    {"recompute-activations", Use::kWhenTrue, "train.recompute", "selective"},
    {"recompute-granularity", Use::kChoice, "train.recompute", "full=full|selective=selective"},
    {"recompute-num-layers", Use::kCopy, "@recompute_layers"},
    {"recompute-method", Use::kCopy, "@recompute_method"},
    {"make-vocab-size-divisible-by", Use::kCopy, "parallel.vocab_multiple"},
    {"use-flash-attn", Use::kWhenTrue, "plan.attention", "flash"},
    {"attention-backend", Use::kChoice, "plan.attention",
     "auto=flash|flash=flash|fused=flash|unfused=materialised|local="},
    {"optimizer", Use::kChoice, "optimizer.name", "adam=adamw|sgd=sgd|muon=muon"},
    {"optimizer-cpu-offload", Use::kWhenTrue, "plan.offload_optimizer", "cpu"},
    {"main-params-dtype", Use::kCopy, "plan.master"},
    {"nproc_per_node", Use::kCopy, kPerNode},
    {"nproc-per-node", Use::kCopy, kPerNode},
    {"nnodes", Use::kCopy, kNodes},
    {"num-experts", Use::kNotModelled, "", "experts: give the model by --model=config.json"},
    {"fp8-*", Use::kNotModelled, "", "8-bit products of TransformerEngine"},
    {"moe-*", Use::kNotModelled, "", "experts"},
    {"recompute-modules", Use::kNotModelled, "", "planned as selective recomputation"},
    {"cpu-offloading*", Use::kNotModelled, "", "offload of activations"},
    {"overlap-param-gather", Use::kNotModelled, "", "buckets of gathered weights"},
    {"ddp-bucket-size", Use::kNotModelled, "", "buckets of gradients"},
    {"accumulate-allreduce-grads-in-fp32", Use::kNoEffect},
    {"use-mcore-models", Use::kNoEffect},
    {"transformer-impl", Use::kNoEffect},
    {"position-embedding-type", Use::kNoEffect},
    {"use-rotary-position-embeddings", Use::kNoEffect},
    {"rotary-*", Use::kNoEffect},
    {"no-*", Use::kNoEffect},
    {"train-*", Use::kNoEffect},
    {"lr*", Use::kNoEffect},
    {"min-lr", Use::kNoEffect},
    {"weight-decay*", Use::kNoEffect},
    {"adam-*", Use::kNoEffect},
    {"clip-grad", Use::kNoEffect},
    {"init-*", Use::kNoEffect},
    {"attention-dropout", Use::kNoEffect},
    {"hidden-dropout", Use::kNoEffect},
    {"attention-softmax-in-fp32", Use::kNoEffect},
    {"norm-epsilon", Use::kNoEffect},
    {"seed", Use::kNoEffect},
    {"data-*", Use::kNoEffect},
    {"split", Use::kNoEffect},
    {"mock-data", Use::kNoEffect},
    {"tokenizer-*", Use::kNoEffect},
    {"vocab-file", Use::kNoEffect},
    {"merge-file", Use::kNoEffect},
    {"save*", Use::kNoEffect},
    {"load", Use::kNoEffect},
    {"ckpt-*", Use::kNoEffect},
    {"eval-*", Use::kNoEffect},
    {"log-*", Use::kNoEffect},
    {"tensorboard-*", Use::kNoEffect},
    {"wandb-*", Use::kNoEffect},
    {"distributed-*", Use::kNoEffect},
    {"overlap-grad-reduce", Use::kNoEffect},
    {"tp-comm-*", Use::kNoEffect},
    {"manual-gc*", Use::kNoEffect},
    {"num-workers", Use::kNoEffect},
    {"exit-*", Use::kNoEffect},
    {"profile*", Use::kNoEffect},
    {"bias-*", Use::kNoEffect},
    {"node_rank", Use::kNoEffect},
    {"node-rank", Use::kNoEffect},
    {"master_*", Use::kNoEffect},
    {"master-*", Use::kNoEffect},
    {"rdzv*", Use::kNoEffect},
};

std::uint64_t megatron_number(const Job& job, const char* key, std::uint64_t otherwise) {
  const Given* given = job.find(key);
  return given ? count_of(*given) : otherwise;
}

/// The model of the arguments: fields of a Llama, or none.
void megatron_finish_model(Job& job) {
  const bool llama = job.find("@swiglu") && job.find("@rmsnorm");
  constexpr const char* kFields[] = {"model.num_hidden_layers",   "model.hidden_size",
                                     "model.num_attention_heads", "model.num_key_value_heads",
                                     "model.intermediate_size",   "model.head_dim",
                                     "model.vocab_size",          "model.max_position_embeddings",
                                     "model.tie_word_embeddings"};
  if (llama && job.find("model.num_hidden_layers")) {
    job.set_default("model.model_type", job.find("@qkv_bias") ? "qwen2" : "llama",
                    "because of --swiglu and RMSNorm");
    job.set_default("model.tie_word_embeddings", "true", "default of Megatron-LM");
    if (const Given* heads = job.find("model.num_attention_heads"))
      job.set_default("model.num_key_value_heads", heads->value, "default of Megatron-LM");
  } else {
    for (const char* field : kFields) job.erase(field);
  }
}

}  // namespace

void read_megatron(const Entries& entries, Job& job) {
  job.framework = "megatron";
  apply_rules(kMegatron, entries, job);
  // layers / (stages * virtual stages) layers are in one virtual stage.
  if (job.find("@layers_per_stage")) {
    const std::uint64_t layers = megatron_number(job, "model.num_hidden_layers", 0),
                        stages = megatron_number(job, "parallel.pipeline", 1) *
                                 megatron_number(job, "@layers_per_stage", 1);
    if (layers && stages && layers % stages == 0)
      job.set_default("parallel.interleave", std::to_string(layers / stages), "the layers per virtual stage");
  }
  const Given *recompute = job.find("train.recompute"), *method = job.find("@recompute_method");
  if (recompute && recompute->value == "full" && (!method || method->value == "uniform"))
    job.set_default("train.recompute_every", std::to_string(megatron_number(job, "@recompute_layers", 1)),
                    "because of --recompute-num-layers");
  megatron_finish_model(job);
  for (const char* key : {"@layers_per_stage", "@recompute_method", "@recompute_layers", "@swiglu",
                          "@rmsnorm", "@no_bias", "@qkv_bias"})
    job.erase(key);
  job.set_default("train.precision", "fp32", "default of Megatron-LM");
  job.set_default("parallel.vocab_multiple", "128", "default of Megatron-LM");
  job.set_default("plan.cross_entropy", "in-place", "default of Megatron-LM");
}

}  // namespace trainhost::framework_files
