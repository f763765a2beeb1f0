// Arguments of Megatron-LM (core 0.9 to 0.16), by its argument parser and the configuration classes that it
// reads. The model that they describe: rules_megatron_model.cpp. Most arguments mean something only beside
// others, so rules note them below "@megatron.", and rules_megatron_combined.cpp combines them.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <initializer_list>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "core/base/checked.hpp"
#include "core/base/text.hpp"
#include "core/framework_files/rules.hpp"

namespace trainhost::framework_files {
namespace {

using runfile::Entry;

void megatron_narrow(Job& job, const Entry& e, const char* type) {
  if (flag_of(e)) job.set("train.precision", type, e);
}

void megatron_method(Job& job, const Entry& e) {
  job.set("@megatron.recompute_method", text_of(e), e);
  if (text_of(e) == "block")
    job.not_modelled =
        "only some layers of a stage are recomputed; planned for all, unless their number is 0";
}

/// One type for all layers, or one for each.
void megatron_exchange(Job& job, const Entry& e) {
  const std::string type = text_of(e);
  if (type == "p2p" || type == "a2a")
    job.set("plan.context_exchange", type, e);
  else
    job.not_modelled = "this exchange of context parallelism; planned as p2p, the default";
}

/// A model that the arguments describe and fields of a run file do not. The first such argument is kept for
/// the message.
void megatron_other_model(Job& job, const Entry& e) {
  if (e.value.kind == runfile::Value::Kind::kBool && !e.value.boolean) return;
  if (!job.find(kOtherModel)) job.set(kOtherModel, e.key, e);
  job.not_modelled = "a model that arguments do not describe here: give it by --model=config.json";
}

/// Recipes of Transformer Engine; a custom one is a Python function.
void set_megatron_recipe(Job& job, const Entry& e, std::initializer_list<const char*> known,
                         const char* expected) {
  const std::string recipe = text_of(e);
  if (recipe == "custom") {
    job.set("@megatron.custom_recipe", "true", e);
    job.not_modelled = "products of a recipe in Python; planned in 16 bits";
    return;
  }
  if (std::ranges::find(known, recipe) == known.end()) reject_value(e, expected);
  job.set("@megatron.recipe", recipe, e);
}

void megatron_recipe(Job& job, const Entry& e) {
  set_megatron_recipe(job, e, {"delayed", "tensorwise", "blockwise", "mxfp8"},
                      "delayed, tensorwise, blockwise, mxfp8 or custom");
}

void megatron_fp4_recipe(Job& job, const Entry& e) {
  set_megatron_recipe(job, e, {"nvfp4"}, "nvfp4 or custom");
}

/// Both formats have 8 bits.
void megatron_format(Job& job, const Entry& e) {
  if (text_of(e) != "e4m3" && text_of(e) != "hybrid") reject_value(e, "e4m3 or hybrid");
  job.set("@megatron.fp8", "delayed", e);
}

void megatron_fp4_format(Job& job, const Entry& e) {
  if (text_of(e) != "e2m1") reject_value(e, "e2m1");
  job.set("@megatron.fp4", "nvfp4", e);
}

/// A list of words, or one text with spaces between them. Modules that are not described are listed as such.
void megatron_modules(Job& job, const Entry& e) {
  std::vector<std::string> modules;
  for (const runfile::Value& v :
       e.value.kind == runfile::Value::Kind::kList ? e.value.items : std::vector<runfile::Value>{e.value}) {
    // "[moe_act mlp]" in YAML files of Megatron-LM.
    std::string text = v.text;
    std::ranges::replace_if(
        text, [](char c) { return std::string_view("[],'\"").find(c) != std::string_view::npos; }, ' ');
    std::istringstream words(text);
    for (std::string word; words >> word;) modules.push_back(word);
  }
  constexpr std::array kDescribed{"core_attn", "moe_act", "layernorm",     "mla_up_proj",
                                  "mlp",       "moe",     "shared_experts"};
  std::string known, unknown;
  for (const std::string& m : modules) {
    std::string& list = std::ranges::find(kDescribed, m) == kDescribed.end() ? unknown : known;
    list += (list.empty() ? "" : ",") + escaped(m, 40);
  }
  if (!unknown.empty()) job.not_modelled = "recomputation of " + unknown + "; planned without it";
  job.set("@megatron.modules", known, e);
}

/// "'([0]*3+[1]*58)'": scripts that `eval` a text have quotes inside it.
void megatron_layer_pattern(Job& job, const Entry& e) {
  std::string text = text_of(e);
  std::erase_if(text, [](char c) { return c == '\'' || c == '"'; });
  job.set("@megatron.sparse_layers", text, e);
}

/// The shared expert runs beside the exchange of tokens, with buffers of its own.
void megatron_overlap(Job& job, const Entry& e) {
  if (!flag_of(e)) return;
  job.set("@megatron.shared_overlap", "true", e);
  job.not_modelled = "experts";
}

/// DeepEP sends each token once to a rank, however many of its experts are there.
void megatron_dispatcher(Job& job, const Entry& e) {
  if (text_of(e) != "alltoall") job.not_modelled = "this dispatcher of tokens; planned as alltoall";
}

constexpr const char *k8Bit = "8-bit or 4-bit products", *kGraphs = "memory of CUDA graphs",
                     *kUnfused = "operators that are not fused keep more activations",
                     *kStages = "layers of the pipeline stages";

constexpr Rule kMegatron[] = {
    {"num-layers", Use::kCopy, "model.num_hidden_layers"},
    {"hidden-size", Use::kCopy, "model.hidden_size"},
    {"num-attention-heads", Use::kCopy, "model.num_attention_heads"},
    {"num-query-groups", Use::kCopy, "@megatron.query_groups"},
    {"group-query-attention", Use::kWhenTrue, "@megatron.grouped", "true"},
    {"ffn-hidden-size", Use::kCopy, "model.intermediate_size"},
    {"kv-channels", Use::kCopy, "model.head_dim"},
    {"vocab-size", Use::kCopy, "model.vocab_size"},
    {"padded-vocab-size", Use::kCopy, "@megatron.padded_vocab"},
    {"max-position-embeddings", Use::kCopy, "model.max_position_embeddings"},
    {"untie-embeddings-and-output-weights", Use::kWhenTrue, "model.tie_word_embeddings", "false"},
    {"add-qkv-bias", Use::kWhenTrue, "@megatron.qkv_bias", "true"},
    {"qk-layernorm", Use::kWhenTrue, "@megatron.qk_norm", "true"},
    {"swiglu", Use::kWhenTrue, "@megatron.swiglu", "true"},
    // Models of run files have RMSNorm without biases.
    {"normalization", Use::kNotModelled, "RMSNorm", "biases of LayerNorm"},
    {"disable-bias-linear", Use::kWhenTrue, "@megatron.no_bias", "true"},
    {"seq-length", Use::kCopy, "data.seq_len"},
    {"micro-batch-size", Use::kCopy, "train.micro_batch"},
    {"global-batch-size", Use::kCopy, kGlobalBatch},
    // Without either, training is in f32.
    {"bf16", Use::kCustom, "train.precision", "",
     [](Job& j, const Entry& e) { megatron_narrow(j, e, "bf16"); }},
    {"fp16", Use::kCustom, "train.precision", "",
     [](Job& j, const Entry& e) { megatron_narrow(j, e, "fp16"); }},
    {"tensor-model-parallel-size", Use::kCopy, "parallel.tensor"},
    {"pipeline-model-parallel-size", Use::kCopy, "parallel.pipeline"},
    {"num-layers-per-virtual-pipeline-stage", Use::kCopy, "@megatron.layers_per_stage"},
    {"num-virtual-stages-per-pipeline-rank", Use::kCopy, "parallel.interleave"},
    {"context-parallel-size", Use::kCopy, "parallel.context"},
    {"expert-model-parallel-size", Use::kCopy, "parallel.expert"},
    {"sequence-parallel", Use::kWhenTrue, "parallel.sequence", "true"},
    {"use-distributed-optimizer", Use::kWhenTrue, "parallel.zero", "1"},
    // An abbreviation of --recompute-granularity selective.
    {"recompute-activations", Use::kWhenTrue, "train.recompute", "selective"},
    {"recompute-granularity", Use::kChoice, "train.recompute", "full=full|selective=selective"},
    {"recompute-num-layers", Use::kCopy, "@megatron.recompute_layers"},
    {"recompute-method", Use::kCustom, "@megatron.recompute_method", "", megatron_method},
    {"make-vocab-size-divisible-by", Use::kCopy, "parallel.vocab_multiple"},
    // Before --attention-backend there was one switch; "unfused" and "local" materialise the scores.
    {"use-flash-attn", Use::kWhenTrue, "plan.attention", "flash"},
    {"attention-backend", Use::kChoice, "plan.attention",
     "auto=flash|flash=flash|fused=flash|unfused=materialised|local=materialised"},
    // Adam decays weights as AdamW does; SGD has momentum by default.
    {"optimizer", Use::kChoice, "optimizer.name",
     "adam=adamw|sgd=sgd-momentum|muon=muon|dist_muon=muon|lion=lion"},
    {"optimizer-cpu-offload", Use::kWhenTrue, "plan.offload_optimizer", "cpu"},
    {"optimizer-offload-fraction", Use::kNotModelled, "1.0|1", "only a part of the optimizer is offloaded"},
    // The types below count with a precision-aware optimizer only. Run files have no fp16 master weights;
    // bf16 has their size.
    {"use-precision-aware-optimizer", Use::kWhenTrue, "@megatron.own_types", "true"},
    {"main-params-dtype", Use::kChoice, "@megatron.master", "fp32=fp32|fp16=bf16"},
    {"main-grads-dtype", Use::kChoice, "@megatron.gradients", "fp32=fp32|bf16=bf16"},
    {"exp-avg-dtype", Use::kChoice, "@megatron.first_moment", "fp32=fp32|fp16=fp16|bf16=bf16|fp8=fp8"},
    {"exp-avg-sq-dtype", Use::kChoice, "@megatron.second_moment", "fp32=fp32|fp16=fp16|bf16=bf16|fp8=fp8"},
    {"grad-reduce-in-bf16", Use::kWhenTrue, "plan.gradients", "bf16"},
    {"accumulate-allreduce-grads-in-fp32", Use::kWhenTrue, "@megatron.wide_gradients", "true"},
    // Three kinds of sharding: the distributed optimizer (ZeRO 1), torch's FSDP2, and Megatron's own FSDP.
    {"use-torch-fsdp2", Use::kWhenTrue, "@megatron.fsdp2", "true"},
    {"torch-fsdp2-no-reshard-after-forward", Use::kWhenTrue, "@megatron.fsdp2_kept", "true"},
    {"use-megatron-fsdp", Use::kWhenTrue, "@megatron.fsdp", "true"},
    {"use-custom-fsdp", Use::kWhenTrue, "@megatron.fsdp", "true"},
    {"data-parallel-sharding-strategy", Use::kChoice, "@megatron.fsdp_zero",
     "no_shard=0|optim=1|optim_grads=2|optim_grads_params=3"},
    {"num-distributed-optimizer-instances", Use::kNotModelled, "1",
     "optimizer state is sharded over fewer ranks"},
    // Options of torchrun, which start scripts have in front.
    {"nproc_per_node", Use::kCopy, kPerNode},
    {"nproc-per-node", Use::kCopy, kPerNode},
    {"nnodes", Use::kCopy, kNodes},
    {"nodes", Use::kCopy, kNodes},
    // Models with experts, and latent attention: rules_megatron_model.cpp.
    {"num-experts", Use::kCopy, "@megatron.experts"},
    {"moe-router-topk", Use::kCopy, "@megatron.experts_per_token"},
    {"moe-ffn-hidden-size", Use::kCopy, "@megatron.expert_width"},
    {"moe-shared-expert-intermediate-size", Use::kCopy, "@megatron.shared_width"},
    {"moe-shared-expert-overlap", Use::kCustom, "@megatron.shared_overlap", "", megatron_overlap},
    {"moe-shared-expert-gate", Use::kWhenTrue, "@megatron.shared_gate", "true"},
    {"moe-layer-freq", Use::kCustom, "@megatron.sparse_layers", "", megatron_layer_pattern},
    {"moe-router-enable-expert-bias", Use::kWhenTrue, "@megatron.expert_bias", "true"},
    {"multi-latent-attention", Use::kWhenTrue, "@megatron.latent", "true"},
    {"q-lora-rank", Use::kCopy, "@megatron.q_lora_rank"},
    {"kv-lora-rank", Use::kCopy, "@megatron.kv_lora_rank"},
    {"qk-head-dim", Use::kCopy, "@megatron.qk_head_dim"},
    {"qk-pos-emb-head-dim", Use::kCopy, "@megatron.rope_head_dim"},
    {"v-head-dim", Use::kCopy, "@megatron.v_head_dim"},
    // Other models.
    {"hybrid-override-pattern", Use::kCustom, "", "", megatron_other_model},
    {"hybrid-layer-pattern", Use::kCustom, "", "", megatron_other_model},
    {"heterogeneous-layers-config-path", Use::kCustom, "", "", megatron_other_model},
    {"heterogeneous-layers-config-encoded-json", Use::kCustom, "", "", megatron_other_model},
    {"is-hybrid-model", Use::kCustom, "", "", megatron_other_model},
    {"mtp-num-layers", Use::kNeedsMore, "", "layers that predict further tokens"},
    {"fp8-format", Use::kCustom, "plan.fp8_recipe", "", megatron_format},
    {"fp8-recipe", Use::kCustom, "plan.fp8_recipe", "", megatron_recipe},
    {"fp4-format", Use::kCustom, "plan.fp8_recipe", "", megatron_fp4_format},
    {"fp4-recipe", Use::kCustom, "plan.fp8_recipe", "", megatron_fp4_recipe},
    {"fp8-param-gather", Use::kWhenTrue, "@megatron.fp8_weights", "true"},
    {"fp4-param-gather", Use::kNotModelled, "", "weights in 4 bits; planned in 16 bits"},
    {"fp4-param", Use::kNotModelled, "", "weights in 4 bits; planned in 16 bits"},
    {"fp8-amax-history-len", Use::kCopy, "@megatron.amax_history"},
    // How a scale follows from the maxima.
    {"fp8-margin", Use::kNoEffect},
    {"fp8-interval", Use::kNoEffect},
    {"fp8-amax-compute-algo", Use::kNoEffect},
    {"fp8-dot-product-attention", Use::kNotModelled, "", "attention in 8 bits"},
    {"fp8-multi-head-attention", Use::kNotModelled, "", "attention in 8 bits"},
    {"no-fp8-wgrad", Use::kNotModelled, "", "products for gradients of weights in 16 bits"},
    {"disable-parameter-transpose-cache", Use::kNotModelled, "",
     "quantized copies of weights that each micro-batch makes again"},
    {"fp8-param", Use::kNotModelled, "", k8Bit},
    {"fp8-wgrad", Use::kNotModelled, "", k8Bit},
    {"fp8-*", Use::kNotModelled, "", k8Bit},
    {"fp4-*", Use::kNotModelled, "", k8Bit},
    {"first-last-layers-bf16", Use::kWhenTrue, "@megatron.ends_in_bf16", "true"},
    {"num-layers-at-start-in-bf16", Use::kCopy, "@megatron.bf16_first"},
    {"num-layers-at-end-in-bf16", Use::kCopy, "@megatron.bf16_last"},
    {"keep-fp8-*", Use::kNotModelled, "", k8Bit},
    {"kitchen-*", Use::kNotModelled, "", k8Bit},
    {"te-precision-config-file", Use::kNotModelled, "", k8Bit},
    // Grouped products and fused permutation are what is planned.
    {"moe-grouped-gemm", Use::kNoEffect},
    {"moe-permute-fusion", Use::kNoEffect},
    {"moe-aux-loss-coeff", Use::kNoEffect},
    {"moe-z-loss-coeff", Use::kNoEffect},
    {"moe-router-dtype", Use::kChoice, "@megatron.router", "fp32=fp32|fp64=fp32|none=bf16"},
    {"moe-token-dispatcher-type", Use::kCustom, "@megatron.dispatcher", "", megatron_dispatcher},
    {"moe-layer-recompute", Use::kWhenTrue, "@megatron.recompute_experts", "true"},
    // How experts are chosen.
    {"moe-router-load-balancing-type", Use::kNoEffect},
    {"moe-router-score-function", Use::kNoEffect},
    {"moe-router-pre-softmax", Use::kNoEffect},
    {"moe-router-num-groups", Use::kNoEffect},
    {"moe-router-group-topk", Use::kNoEffect},
    {"moe-router-topk-scaling-factor", Use::kNoEffect},
    {"moe-router-bias-update-rate", Use::kNoEffect},
    {"moe-router-force-load-balancing", Use::kNoEffect},
    {"moe-per-layer-logging", Use::kNoEffect},
    {"moe-*", Use::kNotModelled, "", "experts"},
    {"expert-tensor-parallel-size", Use::kCopy, kExpertTensor},
    {"recompute-modules", Use::kCustom, "plan.recompute_modules", "", megatron_modules},
    // 0.1 is Megatron's own default for both; scripts for Llamas set 0, which is_off() accepts.
    {"attention-dropout", Use::kNeedsMore, "", "masks of dropout are kept"},
    {"hidden-dropout", Use::kNeedsMore, "", "masks of dropout are kept"},
    {"transformer-impl", Use::kChoice, "@megatron.local",
     "local=true|transformer_engine=|inference_optimized="},
    // Only those that are learned are a table of weights.
    {"position-embedding-type", Use::kCustom, "@megatron.positions", "",
     [](Job& j, const Entry& e) {
       j.set("@megatron.positions", text_of(e) == "learned_absolute" ? "learned_absolute" : "computed", e);
     }},
    {"use-rotary-position-embeddings", Use::kWhenTrue, "@megatron.rotary", "true"},
    // The only way in which weights in MXFP8 are gathered.
    {"reuse-grad-buf-for-mxfp8-param-ag", Use::kWhenTrue, "@megatron.reused_buffer", "true"},
    {"linear-attention-freq", Use::kNotModelled, "", "layers of another kind"},
    {"spec", Use::kNotModelled, "", "layers of another kind"},
    {"checkpoint-activations", Use::kWhenTrue, "train.recompute", "full"},
    {"distribute-saved-activations", Use::kNotModelled, "",
     "kept activations are sharded over tensor-parallel ranks"},
    {"cpu-offloading*", Use::kNotModelled, "", "offload of activations"},
    {"fine-grained-activation-offloading", Use::kNotModelled, "", "offload of activations"},
    {"fine-grained-offloading-*", Use::kNotModelled, "", "offload of activations"},
    {"offload-modules", Use::kNotModelled, "", "offload of activations"},
    // Buffers of communication, whose sizes Megatron derives from the model and the ranks.
    {"overlap-param-gather", Use::kNotModelled, "", "buckets of gathered weights"},
    {"ddp-bucket-size", Use::kNotModelled, "", "buckets of gradients"},
    {"ddp-num-buckets", Use::kNotModelled, "", "buckets of gradients"},
    {"fsdp-double-buffer", Use::kNotModelled, "", "a second buffer of gathered weights"},
    {"megatron-fsdp-*", Use::kNotModelled, "", "buffers of Megatron's FSDP"},
    {"outer-dp-sharding-strategy", Use::kNotModelled, "no_shard", "sharding over groups of replicas"},
    {"enable-full-sharding-in-hsdp", Use::kNotModelled, "", "sharding over groups of replicas"},
    {"use-nccl-ub", Use::kNotModelled, "", "buffers that are registered for communication"},
    {"decoder-first-pipeline-num-layers", Use::kCopy, "plan.first_stage_layers"},
    {"decoder-last-pipeline-num-layers", Use::kCopy, "plan.last_stage_layers"},
    {"pipeline-model-parallel-layout", Use::kNotModelled, "", kStages},
    {"account-for-embedding-in-pipeline-split", Use::kWhenTrue, "@megatron.counted_embedding", "true"},
    {"account-for-loss-in-pipeline-split", Use::kWhenTrue, "@megatron.counted_loss", "true"},
    {"standalone-embedding-stage", Use::kNotModelled, "", kStages},
    {"pipeline-model-parallel-split-rank", Use::kNotModelled, "", kStages},
    {"microbatch-group-size-per-virtual-pipeline-stage", Use::kNotModelled, "", "another pipeline schedule"},
    {"overlap-moe-expert-parallel-comm", Use::kNotModelled, "", "another pipeline schedule"},
    {"delay-wgrad-compute", Use::kNotModelled, "", "activations are kept longer"},
    {"defer-embedding-wgrad-compute", Use::kNotModelled, "", "activations are kept longer"},
    {"wgrad-deferral-limit", Use::kNotModelled, "", "activations are kept longer"},
    {"hierarchical-context-parallel-sizes", Use::kNotModelled, "", "another context parallelism"},
    {"encoder-num-layers", Use::kNeedsMore, "", "a second model"},
    {"encoder-seq-length", Use::kNeedsMore, "", "a second model"},
    {"encoder-*", Use::kNeedsMore, "", "a second model"},
    {"retro-*", Use::kNeedsMore, "", "a second model"},
    {"vision-*", Use::kNeedsMore, "", "a second model"},
    {"vision-model-type", Use::kNeedsMore, "", "a second model"},
    {"language-model-type", Use::kNotModelled, "", "a second model"},
    {"perform-rl-step", Use::kNotModelled, "", "another training method"},
    {"freeze-*", Use::kNotModelled, "", "frozen weights have no gradients"},
    {"fp32-residual-connection", Use::kNeedsMore, "", "a residual stream in fp32"},
    {"fp16-lm-cross-entropy", Use::kNotModelled, "", "logits in fp16"},
    {"output-logit-dtype", Use::kNotModelled, "", "type of the logits"},
    {"cross-entropy-loss-fusion", Use::kWhenTrue, "@megatron.fused_loss", "true"},
    {"cross-entropy-fusion-impl", Use::kChoice, "@megatron.loss_kernel", "native=native|te=te"},
    {"cp-comm-type", Use::kCustom, "plan.context_exchange", "", megatron_exchange},
    {"tokenizer-type", Use::kCopy, "@megatron.tokenizer"},
    {"tokenizer-model", Use::kCustom, "@megatron.tokenizer_name", "",
     [](Job& j, const Entry& e) {
       if (e.value.kind == runfile::Value::Kind::kText) j.set("@megatron.tokenizer_name", e.value.text, e);
     }},
    {"no-masked-softmax-fusion", Use::kNotModelled, "", "matters to unfused attention only"},
    {"no-bias-dropout-fusion", Use::kNeedsMore, "", kUnfused},
    {"no-bias-*", Use::kNeedsMore, "", kUnfused},
    {"no-rope-fusion", Use::kWhenTrue, "plan.rope_fusion", "false"},
    {"apply-rope-fusion", Use::kCopy, "plan.rope_fusion"},
    {"no-gradient-accumulation-fusion", Use::kNeedsMore, "", "a gradient of each matrix beside the buffer"},
    {"apply-layernorm-1p", Use::kNoEffect},
    {"enable-cuda-graph", Use::kNotModelled, "", kGraphs},
    {"external-cuda-graph", Use::kNotModelled, "", kGraphs},
    {"cuda-graph-impl", Use::kNotModelled, "none", kGraphs},
    {"cuda-graph-modules", Use::kNotModelled, "", kGraphs},
    {"cuda-graph-scope", Use::kNotModelled, "", kGraphs},
    {"optimizer-cuda-graph", Use::kNotModelled, "", kGraphs},
    {"rampup-batch-size", Use::kNotModelled, "", "smaller global batches at the beginning"},
    {"decrease-batch-size-if-needed", Use::kNoEffect},
    {"window-size", Use::kNotModelled, "", "attention over a window"},
    {"window-attn-skip-freq", Use::kNotModelled, "", "attention over a window"},
    {"yaml-cfg", Use::kNotModelled, "", "another file: give its settings as arguments"},
    {"use-checkpoint-args", Use::kNotModelled, "", "arguments that are in the checkpoint"},
    {"use-mp-args-from-checkpoint-args", Use::kNotModelled, "", "arguments that are in the checkpoint"},
    {"activation-func-fp8-input-store", Use::kWhenTrue, "plan.fp8_swiglu_input", "true"},
    {"activation-offload-fraction", Use::kNotModelled, "", "offload of activations"},
    {"attention-output-gate", Use::kNotModelled, "", "layers of another kind"},
    {"dsa-*", Use::kNotModelled, "", "layers of another kind"},
    {"enable-mhc-connections", Use::kNotModelled, "", "layers of another kind"},
    {"experimental-attention-variant", Use::kNotModelled, "", "layers of another kind"},
    {"linear-*", Use::kNotModelled, "", "layers of another kind"},
    {"hybrid-context-parallel", Use::kNotModelled, "", "another context parallelism"},
    {"gtp-*", Use::kNotModelled, "", "weights that are sharded in another way"},
    {"tensor-parallel-num-weight-shards", Use::kNotModelled, "1", "weights that are sharded in another way"},
    {"expert-tensor-parallel-num-weight-shards", Use::kNotModelled, "1",
     "weights that are sharded in another way"},
    {"num-layers-in-*", Use::kNotModelled, "", kStages},
    {"num-microbatches-with-partial-activation-checkpoints", Use::kNotModelled, "", "another recomputation"},
    {"use-transformer-engine-op-fuser", Use::kNotModelled, "", "operators that are fused further"},
    {"fused-residual-rmsnorm", Use::kNotModelled, "", "operators that are fused further"},
    {"use-kitchen*", Use::kNotModelled, "", k8Bit},
    {"quant-recipe", Use::kNotModelled, "", k8Bit},
};
/// Data, tokenizers, checkpoints, logging, launching, fault tolerance, inference, and other programs of the
/// repository (bert-*, ict-*, retriever-*). Arguments that only tune a feature which is not modelled, or not
/// used by a Llama (mamba-*, mtp-*), are here too: the one that switches it on has a rule. "no-*" is behind
/// the rules for those that matter.
constexpr const char* kMegatronWithoutEffect =
    "AFTER_SCRIPT BEFORE_SCRIPT ENV_VARS* LAUNCHER METRICS* MODE TEST_EVALUATION* TEST_TYPE "
    "THROUGHPUT_TEST_PARAMS* activation-func-clamp-value adam-* adlr-* allow-ambiguous-pad-tokens app-tag-* "
    "apply-query-key-layer-scaling apply-residual-connection-post-layernorm "
    "apply-wd-to-qk-layernorm async-ckpt-* async-save async-strategy attention-softmax-in-fp32 "
    "auto-detect-ckpt-format autocast-dtype barrier-with-L1-time batch-invariant-* batch-p2p-* "
    "batch-size bert-* bias-activation-fusion bias-dropout-fusion biencoder-* block-data-path "
    "cache-mla-latents calc-ft-timeouts calculate-per-token-loss chat-template check-for-large-grads "
    "check-for-nan-in-loss check-for-spiky-loss check-weight-hash-across-dp-replicas-interval ckpt-* "
    "classes-fraction clip-grad comm-* config-logger-dir create-all-gather-group "
    "cuda-graph-retain-backward-graph cuda-graph-use-single-mempool cuda-graph-warmup-steps data-* "
    "dataloader-* ddp-average-in-collective ddp-pad-buckets-for-high-nccl-busbw "
    "ddp-param-name-patterns-for-fp32-local-accumulation ddp-reduce-scatter-with-fp32-accumulation "
    "deallocate-pipeline-outputs decode-only-cuda-graphs decoder-num-layers decoder-seq-length "
    "decoupled-lr decoupled-min-lr delay-offload-until-cuda-graph delta-offload-bytes-across-pp-ranks "
    "deterministic-mode dino-* disable-* dist-ckpt-* distrib-optim-fully-reshardable-mem-efficient "
    "distributed-* dump-param-to-param-group-map embedding-init-method-std embedding-path "
    "empty-unused-memory-level enable-autocast enable-chunked-prefill enable-experimental "
    "enable-ft-package enable-msc end-* eod-mask-loss ep-overlap-early-attn-memory-release "
    "error-injection-* eval-* evidence-* exit-* fake-process-group filter-warnings fim-* finetune "
    "flash-attention-version flash-decode flight-recorder-* fsdp-db-use-persist-buf-on-alloc-fail "
    "fsdp-manual-registration ft-* full-validation fully-parallel-* gdp-* glu-linear-offset "
    "gpu-sniff-test-interval gradient-accumulation-fusion grpo-* head-lr-mult "
    "hetereogenous-dist-checkpoint high-priority-a2a-comm-stream high-priority-stream-groups "
    "hybrid-attention-ratio hybrid-mlp-ratio hysteresis ict-* img-h img-w indexer-* inference-* init-* "
    "initial-loss-scale inprocess-* iter-per-epoch iterations-to-skip langrl-* "
    "layernorm-epsilon layernorm-zero-centered-gamma lazy-mpu-init legacy-tokenizer lion-beta1 "
    "lion-beta2 load load-main-params-from-ckpt load-model-opt-format local-rank log-* log-dir log_dir "
    "logging-* logits-* loss-scale loss-scale-window lr* mamba-* manual-gc* mask-* "
    "masked-softmax-fusion master-* master_* max-restarts max-seqlen-per-dp-cp-rank max-tokens-to-oom "
    "max_restarts memory-efficient-layer-norm memory-keys memory-snapshot-path merge-file metadata-path "
    "mhc-* mid-level-dataset-surplus min-loss-scale min-lr min-offloaded-tensor-size "
    "mla-down-proj-fusion mlp-chunks-for-prefill mlp-chunks-for-training mock-data model-parallel-size "
    "modules-to-filter monitor-interval mrope-section mscale mscale-all-dim mtp-* "
    "multiple-validation-sets muon-* mup-* nccl-* no-* no-persist-layer-norm "
    "no-use-tokenizer-model-from-checkpoint-args node-rank node_rank non-persistent-* "
    "norm-epsilon null-tokenizer-* num-channels num-classes num-dataset-builder-threads "
    "num-speculative-tokens num-workers nvtx-ranges object-storage-cache-path one-logger-* onnx-safe "
    "openai-gelu otel-* output-bert-embeddings overlap-cpu-optimizer-d2h-h2d "
    "overlap-dispatch-backward-with-experts-wgrad overlap-grad-reduce overlap-p2p-comm* "
    "overlap-p2p-communication-warmup-flush overlap-param-gather-with-optimizer-step "
    "override-ckpt-iteration override-opt-param-scheduler override-opt_param-scheduler pad-vocab-size "
    "patch-dim per-dataset-sequences-path per-split-data-args-path persist-layer-norm "
    "persistent-save-interval phase-transition-iterations pipeline-model-parallel-comm-backend "
    "pretrained-checkpoint profile* pytorch-profiler-* qk-clip* qk-l2-norm "
    "query-* quick-geglu rdzv* record-memory-history record-shapes redirects "
    "refit-method relative-attention-max-distance relative-attention-num-buckets "
    "renormalize-blend-weights replication* rerun-mode reset-attention-mask reset-position-ids result-* "
    "retriever-* rl-* role rope-* rotary-* run-workload-inspector-server runtime-time-unit s3-* "
    "sample-rate save* seed set-level-for-all-loggers sft sft-tokenizer-prompt-format sgd-momentum "
    "sharp-enabled-group short-seq-prob skip-train softmax-scale softmax-type special-tokens split "
    "squared-relu standalone start-* step-batch-size-schedule straggler-* "
    "suggested-communication-unit-size swin-* symmetric-ar-type te-rng-tracker tee tensorboard-* "
    "test-data-path test-mode tiktoken-* timing-* titles-* tokenizer-* tp-comm-* tp-only-amax-red "
    "train-* trust-remote-code use-checkpoint-opt-param-scheduler use-checkpoint-opt_param-scheduler "
    "use-cpu-initialization use-dist-ckpt use-fused-weighted-squared-relu use-gigatoken "
    "use-gloo-process-groups use-grouped-gemm-for-* use-legacy-models use-legacy-static-engine "
    "use-mamba-mem-eff-path use-mcore-models use-mup use-nsys-profiler use-one-sent-docs "
    "use-persistent-ckpt-worker use-pytorch-profiler use-ring-exchange-p2p use-rope-scaling "
    "use-same-sampling-seed-across-dp-ranks use-sharp "
    "use-te-activation-func use-te-rng-tracker use-tokenizer-model-from-checkpoint-args "
    "use-torch-optimizer-for-cpu-offload use-tp-pp-dp-mapping valid-data-path "
    "validation-set-names variable-seq-lengths verify-integrity vocab-extra-ids vocab-file wandb-* "
    "warmup wd-incr-steps weight-decay* wsd-decay-steps yarn-*";

/// Both dropouts are 0.1 where no argument says otherwise; flash attention keeps no mask.
void note_default_dropout(const Entries& entries, Job& job) {
  const Given* attention = job.find("plan.attention");
  const bool scores = attention && attention->value == "materialised";
  for (const char* name : {"attention-dropout", "hidden-dropout"}) {
    const bool given = std::ranges::any_of(entries, [&](const Entry& e) { return e.key == name; });
    if (!given && (scores || std::string_view(name) == "hidden-dropout"))
      job.keys.push_back({name,
                          "0.1 (default of Megatron-LM)",
                          {entries.front().key_where.file, 0, 0},
                          runfile::KeyUse::kNotModelled,
                          "masks of dropout are kept",
                          true});
  }
}

}  // namespace

RuleSet megatron_rules() { return {kMegatron, kMegatronWithoutEffect}; }

void read_megatron(const Entries& entries, Job& job) {
  job.framework = "megatron";
  apply_rules({megatron_rules()}, entries, job);
  finish_megatron(job);
  note_default_dropout(entries, job);
}

}  // namespace trainhost::framework_files
