// adapter_config.json of PEFT (class LoraConfig of 0.21): the adapters of a job whose TrainingArguments are
// in another file, because a script makes both. The file alone says nothing about batches and lengths.
#include <fmt/format.h>

#include "core/framework_files/rules.hpp"

namespace trainhost::framework_files {
namespace {

using runfile::Entry;

void peft_type(Job&, const Entry& e) {
  if (const std::string type = text_of(e); type != "LORA")
    reject_value(e, "LORA, the only adapters of PEFT that can be planned");
}

void peft_targets(Job& job, const Entry& e) {
  if (e.value.kind == runfile::Value::Kind::kText && e.value.text == "all-linear")
    return job.set("lora.targets", "all-linear", e);
  set_lora_targets(job, e);
}

/// "rank_pattern.q_proj": 32. Keys of PEFT are regular expressions over names of modules; those that are one
/// name are planned.
void peft_rank_pattern(Job& job, const Entry& e) {
  const std::string name = e.key.substr(e.key.find('.') + 1);
  if (name.find_first_of("^$*+?()[]{}|\\.") != name.npos) {
    job.not_modelled = "ranks for a regular expression; planned with rank r";
    job.needs_more = true;
    return;
  }
  const Given* known = job.find("@rank_pattern");
  std::string list = known ? known->value + ", " : "";
  job.erase("@rank_pattern");
  job.set("@rank_pattern", list + fmt::format("\"{} = {}\"", name, whole_of(e)), e);
}

constexpr const char *kOtherForm = "adapters of another form",
                     *kTokens = "rows of the embedding that are trained";

constexpr Rule kPeft[] = {
    {"base_model_name_or_path", Use::kCopy, kModel},
    {"peft_type", Use::kCustom, "", "", peft_type},
    {"r", Use::kCopy, "lora.rank"},
    {"lora_alpha", Use::kCopy, "lora.alpha"},
    {"lora_dropout", Use::kCopy, "lora.dropout"},
    {"target_modules", Use::kCustom, "lora.targets", "", peft_targets},
    {"modules_to_save", Use::kCustom, "lora.modules_to_save", "", set_modules_to_save},
    {"use_dora", Use::kWhenTrue, "lora.dora", "true"},
    {"rank_pattern.*", Use::kCustom, "lora.rank_pattern", "", peft_rank_pattern},
    {"bias", Use::kNotModelled, "none", "biases that are trained"},
    {"lora_bias", Use::kNotModelled, "", "biases of the adapters"},
    {"layers_to_transform", Use::kNotModelled, "", "adapters in some layers only"},
    {"exclude_modules", Use::kNotModelled, "", "adapters in some modules only"},
    {"layer_replication*", Use::kNeedsMore, "", "layers that are stacked several times"},
    {"trainable_token_indices*", Use::kNotModelled, "", kTokens},
    {"target_parameters", Use::kNeedsMore, "",
     "adapters of single parameters, which each call copies as a whole"},
    // PEFT trains one tensor for both modules of a tied model; two are planned.
    {"ensure_weight_tying", Use::kNotModelled, "",
     "one tensor for the embedding and a tied head, planned as two"},
    {"use_qalora", Use::kNotModelled, "", kOtherForm},
    {"use_bdlora*", Use::kNotModelled, "", kOtherForm},
    {"alora_invocation_tokens", Use::kNotModelled, "", kOtherForm},
    {"arrow_config*", Use::kNotModelled, "", kOtherForm},
    {"kasa_config*", Use::kNotModelled, "", kOtherForm},
    {"velora_config*", Use::kNotModelled, "", kOtherForm},
    {"monteclora_config*", Use::kNotModelled, "", kOtherForm},
};
/// How adapters begin and are scaled, and what inference does with them.
constexpr const char* kPeftWithoutEffect =
    "alpha_pattern* auto_mapping* corda_config* eva_config* fan_in_fan_out inference_mode init_lora_weights "
    "layers_pattern loftq_config* lora_ga_config* megatron_config* megatron_core peft_version "
    "qalora_group_size rank_pattern revision runtime_config* task_type use_rslora";

}  // namespace

void read_peft(const Entries& entries, Job& job) {
  job.framework = "transformers";  // that of a later file wins
  apply_rules({{kPeft, kPeftWithoutEffect}}, entries, job);
  if (const Given* ranks = job.find("@rank_pattern"))
    job.set_default("lora.rank_pattern", "[" + ranks->value + "]", *ranks);
  job.erase("@rank_pattern");
  // The rules of TrainingArguments read keys of adapters only with it.
  job.set("@peft", "true", entries.front());
  for (const auto& [key, value] : {std::pair{"lora.rank", "8"}, {"lora.alpha", "8"}, {"lora.dropout", "0"}})
    job.set_default(key, value, "default of PEFT");
  job.set_default("plan.cross_entropy", "plain", "default of transformers");
}

}  // namespace trainhost::framework_files
