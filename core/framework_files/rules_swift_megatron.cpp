// Options of Megatron of ms-swift (4.5): `megatron sft`, `megatron pt` and `megatron rlhf`, in a shell script
// or YAML. The model is one of Hugging Face by its name; everything else has the names of Megatron-LM's
// arguments, with "_" for "-", and defaults of its own (class MegatronArguments). So the rules of Megatron-LM
// read them.
#include <fmt/format.h>

#include <algorithm>

#include "core/base/text.hpp"
#include "core/framework_files/rules.hpp"

namespace trainhost::framework_files {
namespace {

using runfile::Entry;

constexpr const char* kMegatronOfSwift = "default of Megatron of ms-swift";

void swift_megatron_tuner(Job& job, const Entry& e) {
  const std::string kind = text_of(e);
  if (kind != "full" && kind != "lora" && kind != "lora_llm") reject_value(e, "full, lora or lora_llm");
  job.set("@swift.tuner", kind == "full" ? "full" : "lora", e);
  if (kind == "lora_llm") job.not_modelled = "the vision encoder is trained whole; planned as LoRA";
}

/// f32 checkpoints train in f16.
void swift_megatron_type(Job& job, const Entry& e) {
  const std::string word = text_of(e);
  if (word != "bfloat16" && word != "float16" && word != "float32")
    reject_value(e, "bfloat16, float16 or float32");
  job.set("@swift.type", word == "bfloat16" ? "bf16" : "fp16", e);
}

/// "flash_3" names a version of the same kernel.
void swift_megatron_attention(Job& job, const Entry& e) {
  const std::string kernel = text_of(e);
  const bool materialised = kernel == "unfused" || kernel == "local";
  if (!materialised && !kernel.starts_with("flash") && kernel != "fused" && kernel != "auto")
    reject_value(e, "flash, fused, unfused, local or auto");
  job.set("plan.attention", materialised ? "materialised" : "flash", e);
}

void swift_megatron_optimizer(Job& job, const Entry& e) {
  job.set("parallel.zero", flag_of(e) ? "1" : "0", e);
}

/// Muon has no distributed optimizer.
void swift_megatron_muon(Job& job, const Entry& e) {
  const std::string name = text_of(e);
  if (name != "adam" && name != "sgd" && name != "muon" && name != "dist_muon")
    return reject_optimizer(job, e, {"adam", "sgd", "muon", "dist_muon"});
  job.set("optimizer.name", name == "adam" ? "adamw" : name == "sgd" ? "sgd-momentum" : "muon", e);
  if (name.ends_with("muon")) job.set_default("parallel.zero", "0", e);
}

/// DPO and the others add losses to the step of SFT, which is planned.
void swift_megatron_method(Job& job, const Entry& e) {
  job.not_modelled = "its step is planned as that of SFT, without the second model or what is sampled";
  job.needs_more = e.value.text != "rm";
}

constexpr const char *kUntrained = "frozen weights have no gradients", *kOtherModelToo = "a second model",
                     *kSampler = "an engine of vLLM on the same device";

constexpr Rule kSwiftMegatron[] = {
    {"model", Use::kCopy, kModel},
    {"model-id-or-path", Use::kCopy, kModel},
    {"max-length", Use::kCopy, "data.seq_len"},
    {"tuner-type", Use::kCustom, "lora.rank", "", swift_megatron_tuner},
    {"train-type", Use::kCustom, "lora.rank", "", swift_megatron_tuner},
    {"torch-dtype", Use::kCustom, "train.precision", "", swift_megatron_type},
    {"lora-rank", Use::kCopy, "lora.rank"},
    {"lora-alpha", Use::kCopy, "lora.alpha"},
    {"lora-dropout", Use::kCopy, "lora.dropout"},
    {"target-modules", Use::kCustom, "lora.targets", "", set_lora_targets},
    {"target-regex", Use::kCustom, "lora.targets", "", set_lora_targets},
    {"modules-to-save", Use::kCustom, "lora.modules_to_save", "", set_modules_to_save},
    {"lora-dtype", Use::kNotModelled, "", "adapters of another type"},
    {"lora-bias", Use::kNotModelled, "none", "trained biases"},
    {"use-rslora", Use::kNoEffect},
    {"micro-batch-size", Use::kCopy, "train.micro_batch"},
    {"global-batch-size", Use::kCopy, kGlobalBatch},
    {"recompute-granularity", Use::kChoice, "train.recompute", "full=full|selective=selective|none=none"},
    {"attention-backend", Use::kCustom, "plan.attention", "", swift_megatron_attention},
    {"use-distributed-optimizer", Use::kCustom, "parallel.zero", "", swift_megatron_optimizer},
    {"optimizer", Use::kCustom, "optimizer.name", "", swift_megatron_muon},
    {"virtual-pipeline-model-parallel-size", Use::kCopy, "parallel.interleave"},
    {"NPROC-PER-NODE", Use::kCopy, kPerNode},
    {"NNODES", Use::kCopy, kNodes},
    {"rlhf-type", Use::kCustom, "", "", swift_megatron_method},
    {"@rlhf", Use::kCustom, "", "", swift_megatron_method},
    {"ref-model", Use::kNeedsMore, "", kOtherModelToo},
    {"mcore-ref-model", Use::kNeedsMore, "", kOtherModelToo},
    {"teacher-model", Use::kNeedsMore, "", kOtherModelToo},
    {"use-vllm", Use::kNeedsMore, "", kSampler},
    // Roles of a run under Ray beside the trainer.
    {"colocate-groups*", Use::kNeedsMore, "", "other roles take turns on the devices of the trainer"},
    {"rollout.*", Use::kNotModelled, "", "an engine that samples; its devices are not planned"},
    {"teacher.*", Use::kNotModelled, "", "a second model; its devices are not planned"},
    {"task-type", Use::kNotModelled, "causal_lm",
     "another head of the model; planned with logits of all words, which need more"},
    {"freeze-llm", Use::kNotModelled, "", kUntrained},
    {"freeze-parameters*", Use::kNotModelled, "", kUntrained},
    {"trainable-parameters*", Use::kNotModelled, "", kUntrained},
    {"megatron-extra-kwargs*", Use::kNotModelled, "", "further arguments of Megatron-LM"},
    {"offload-model", Use::kNotModelled, "", "weights that are moved to host memory between two phases"},
    {"offload-optimizer", Use::kNotModelled, "", "state that is moved to host memory between two phases"},
};
/// What only ms-swift has beside data, templates and sampling.
constexpr const char* kSwiftMegatronWithoutEffect =
    "align-* async-save bias-* bridge-backend calculate-* check-model ddp-* dist-ckpt-* finetune hub-token "
    "language-model-only output-dir remove-unused-columns teacher-deepspeed lr* mcore-model mcore-adapter "
    "mcore-ref-adapter metric-* merge-lora max-shard-size "
    "masked-softmax-fusion num-train-epochs offload-bridge perform-initialization report-to gkd-* "
    "save-* teacher-* tensorboard-* train-iters use-hf use-ray ref-adapters real-tau rollout-* "
    "router-replay-* "
    "tau-* top-* reference-free f-divergence-type calculate-KL center-rewards-coefficient linear-decoupled-* "
    "mlp-padding-free group-by-length data-sharding";

/// Types of a model in bf16 or f16, with f32 main weights.
void swift_megatron_types(Job& job) {
  const Given* type = job.find("@swift.type");
  const Given from = type ? *type : Given{"bf16", kMegatronOfSwift, {}, true};
  job.set_default("train.precision", from.value, from);
}

}  // namespace

void read_swift_megatron(const Entries& entries, Job& job) {
  job.framework = "megatron";
  Entries options = entries;
  for (Entry& e : options) {
    if (e.key.find('_') == e.key.npos) continue;
    if (e.spelling.empty()) e.spelling = e.key;
    std::replace(e.key.begin(), e.key.end(), '_', '-');
  }
  // The names of ms-swift itself have "_" in their rules.
  const RuleSet common = swift_without_effect();
  static const std::string dashed = [&] {
    std::string text(common.without_effect);
    std::replace(text.begin(), text.end(), '_', '-');
    return text;
  }();
  apply_rules({{kSwiftMegatron, kSwiftMegatronWithoutEffect}, megatron_rules(), {{}, dashed}}, options, job);
  const auto given = [&](const char* key) {
    return std::ranges::any_of(options, [&](const Entry& e) { return e.key == key; });
  };
  const Given* tuner = job.find("@swift.tuner");
  if (tuner && tuner->value == "lora") {
    job.set_default("lora.rank", "8", kMegatronOfSwift);
    job.set_default("lora.alpha", "32", kMegatronOfSwift);
    job.set_default("lora.dropout", "0.05", kMegatronOfSwift);
    job.set_default("lora.targets", "all-linear", kMegatronOfSwift);
  } else {
    job.erase_if([](const std::string& key) { return key.starts_with("lora."); });
  }
  swift_megatron_types(job);
  if (const Given* type = job.find("train.precision"); tuner && tuner->value == "lora")
    job.set_default("lora.base", type->value, *type);
  job.set_default("train.micro_batch", "1", kMegatronOfSwift);
  job.set_default(kGlobalBatch, "16", kMegatronOfSwift);
  job.set_default("train.recompute", "selective", kMegatronOfSwift);
  job.set_default("plan.attention", "flash", kMegatronOfSwift);
  job.set_default(kExpertTensor, "1", kMegatronOfSwift);
  job.set_default("plan.rope_fusion", "false", kMegatronOfSwift);
  if (!given("cross-entropy-loss-fusion")) job.set_default("@megatron.fused_loss", "true", kMegatronOfSwift);
  job.set_default("parallel.zero", "1", kMegatronOfSwift);
  for (const char* key : {"@swift.tuner", "@swift.type"}) job.erase(key);
  finish_megatron(job);
}

void read_swift_megatron_script(const Entries& entries, Job& job) {
  // `megatron rlhf --config FILE`: the options are in that file.
  if (const auto named = std::ranges::find(entries, "config", &Entry::key); named != entries.end()) {
    const std::string path = text_of(*named);
    const bool known = path.find('$') == path.npos;  // "$SCRIPT_DIR/grpo.yaml"
    throw usage_error(
        fmt::format("{} = {}: the options of this run are in that file", named->shown(), escaped(path, 200)),
        "give it instead: --from " + escaped(known ? path : path.substr(path.rfind('/') + 1), 200),
        named->value.where);
  }
  read_swift_megatron(entries, job);
  for (const char* ranks : {"parallel.tensor", "parallel.pipeline", "parallel.context"})
    if (const Given* given = job.find(ranks); given && given->value != "1")
      return;  // needs several processes
  const bool counted = std::ranges::any_of(
      entries, [](const Entry& e) { return e.key == "NPROC_PER_NODE" || e.key == "NNODES"; });
  if (!counted) job.set_default(kRanks, "1", "a script without NPROC_PER_NODE");
}

}  // namespace trainhost::framework_files
