// Keywords of calls in Python scripts that no configuration file has: arguments of from_pretrained() of
// transformers, of trainers beside their configuration, and of Accelerator. Names are those of
// transformers 5.23, TRL 1.16 and accelerate 1.15, and of versions from 2023 on.
#include <algorithm>
#include <charconv>

#include "core/framework_files/rules.hpp"
#include "core/model/framework_release.hpp"

namespace trainhost::framework_files {
namespace {

using runfile::Entry;
using runfile::KeyUse;

void script_class(Job& job, const Entry& e) {
  job.not_modelled = text_of(e) + ": planned with the head and the loss of a language model";
  job.needs_more = true;
}

constexpr Rule kScriptLoad[] = {
    {"class", Use::kCustom, "", "", script_class},
    {"max_memory*", Use::kNotModelled, "", "layers on several devices or in host memory"},
    {"offload_folder", Use::kNotModelled, "", "weights in host memory"},
    {"num_hidden_layers", Use::kNotModelled, "", "another number of layers"},
    {"config", Use::kNotModelled, "", "fields of the model"},
    {"variant", Use::kNotModelled, "", "weights of another type"},
    {"gguf_file", Use::kNotModelled, "", "weights of another type"},
    {"tp_plan", Use::kNotModelled, "", "tensor parallelism"},
    {"use_kernels", Use::kNotModelled, "", "kernels of the Hub"},
};
constexpr const char* kScriptLoadWithoutEffect =
    "attn_implementation_internal cache_dir code_revision device device_map* force_download id2label "
    "ignore_mismatched_sizes label2id "
    "local_files_only low_cpu_mem_usage max_position_embeddings num_labels offload_state_dict "
    "output_loading_info pad_token_id "
    "problem_type resume_download return_dict rope_scaling* revision state_dict subfolder token torchscript "
    "trust_remote_code use_auth_token use_cache "
    "use_safetensors";

constexpr Rule kScriptTrainer[] = {
    {"optimizers", Use::kNotModelled, "", "an optimizer of the script; planned as optim says"},
    {"optimizer_cls_and_kwargs", Use::kNotModelled, "", "an optimizer of the script; planned as optim says"},
    {"loss", Use::kNotModelled, "", "a loss of the script"},
    {"compute_loss_func", Use::kNotModelled, "", "a loss of the script"},
    {"preprocess_logits_for_metrics", Use::kNoEffect},
    {"model_init", Use::kNotModelled, "", "a model that a function makes"},
    {"precompute_ref_log_probs", Use::kWhenTrue, "plan.reference_model", "false"},
};
/// Data, evaluation, and models of other training methods, which set_method() names.
constexpr const char* kScriptTrainerWithoutEffect =
    "callbacks compute_metrics data_collator environment_factory eval_dataset formatting_func infinite "
    "max_completion_length max_target_length peft_config_ref "
    "judge padding_value label_pad_token_id truncation_mode is_encoder_decoder disable_dropout "
    "generate_during_eval model_adapter_name "
    "ref_adapter_name ref_model ref_model_init_kwargs* reward_funcs reward_model reward_processing_class "
    "reward_processing_classes reward_tokenizer rollout_func "
    "teacher_model tokenizer tools train_dataset processing_class value_model policy";

void accelerator_precision(Job& job, const Entry& e) {
  if (e.value.kind != runfile::Value::Kind::kNull) set_accelerate_precision(job, e);
}
constexpr Rule kAccelerator[] = {
    {"mixed_precision", Use::kCustom, "train.precision", "", accelerator_precision},
    {"deepspeed_plugin", Use::kNeedsMore, "", "settings of DeepSpeed in the script; planned without"},
    {"fsdp_plugin", Use::kNotModelled, "", "settings of FSDP in the script; planned without"},
    {"dynamo_backend", Use::kNotModelled, "", "compiled graphs keep other activations"},
    {"dynamo_plugin", Use::kNotModelled, "", "compiled graphs keep other activations"},
};
constexpr const char* kAcceleratorWithoutEffect =
    "cpu dataloader_config device_placement even_batches gradient_accumulation_plugin kwargs_handlers "
    "log_with megatron_lm_plugin "
    "project_config project_dir rng_types split_batches step_scheduler_with_optimizer use_seedable_sampler";

}  // namespace

RuleSet python_load_rules(std::string_view table) { return {kScriptLoad, kScriptLoadWithoutEffect, table}; }
RuleSet python_trainer_rules() { return {kScriptTrainer, kScriptTrainerWithoutEffect, "trainer."}; }
RuleSet python_accelerator_rules() { return {kAccelerator, kAcceleratorWithoutEffect, "accelerator."}; }

const Entry* mark_of(const Entries& entries, std::string_view mark) {
  const auto found = std::ranges::find(entries, mark, &Entry::key);
  return found == entries.end() ? nullptr : &*found;
}

void note_other_trainers(Job& job, const Entries& entries) {
  for (const Entry& e : entries)
    if (e.key == "@@other_trainer")
      job.keys.push_back({e.shown(), "...", e.key_where, KeyUse::kNotModelled,
                          "another trainer of the script; planned is that of " + text_of(e), true});
}

PinnedReleases apply_pinned_releases(Job& job, const Entries& entries) {
  PinnedReleases out;
  if (const Entry* e = mark_of(entries, "@@release.transformers")) {
    const bool counts = !job.is_option("plan.framework_version");
    if (counts) job.set_default("plan.framework_version", e->value.text, *e);
    out.transformers_4 = counts && is_transformers_4("transformers", e->value.text);
    job.keys.push_back({e->shown(), e->value.text, e->key_where, KeyUse::kUsed, ""});
  }
  if (const Entry* e = mark_of(entries, "@@release.trl")) {
    unsigned major = 0, minor = 0;
    const std::string& text = e->value.text;
    const char* const end = text.data() + text.size();
    const auto [point, status] = std::from_chars(text.data(), end, major);
    if (status == std::errc() && point != end) std::from_chars(point + 1, end, minor);
    if (major < 1000 && minor < 1000) out.trl = 1000 * major + minor;
    const bool in_chunks = out.has_trl(1, 7) && !out.has_trl(1, 15);
    job.keys.push_back({e->shown(), text, e->key_where, in_chunks ? KeyUse::kNotModelled : KeyUse::kUsed,
                        in_chunks ? "the loss in chunks of 256 tokens; planned is that of TRL 1.15" : ""});
  }
  return out;
}

void apply_method_mark(Job& job, const Entry& method) {
  set_method(job, text_of(method), method);
  const bool modelled = job.not_modelled.empty();
  job.keys.push_back({method.shown(), "...", method.key_where,
                      modelled ? KeyUse::kUsed : KeyUse::kNotModelled, job.not_modelled, job.needs_more});
  job.not_modelled.clear(), job.needs_more = false;
}

}  // namespace trainhost::framework_files
