// Training by preferences (DPO) of models of transformers: by DPOTrainer of TRL, which axolotl uses too, or
// by the trainer of LLaMA-Factory. A micro-batch counts pairs. What is described: docs/pytorch-memory.md
// ("DPO").
#include <limits>

#include "plugins/estimators/pytorch/settings.hpp"

namespace trainhost::pytorch {

Options options_of_preferences(const Options& given, std::vector<std::string>& notes) {
  Options o = given;
  if (!o.prefers) return o;
  const bool factory = o.name == "llama-factory", trl = !factory && o.name != "axolotl";
  if (o.liger.loss && trl)
    reject("plan.cross_entropy = \"liger\" with plan.method = \"dpo\"",
           "its fused loss of DPO was not compared with PyTorch", "leave plan.cross_entropy out");
  // Both losses are part of the model, which computes one only where it gets labels.
  if (o.liger.loss || o.cut_loss)
    notes.push_back(
        "DPO needs the logits: " + std::string(o.cut_loss ? "Cut Cross Entropy" : "the fused loss of Liger") +
        " has no effect.");
  o.liger.loss = o.cut_loss = false;
  return o;
}

void set_preferences(const model::Architecture& a, const RunSpec& r, const Options& o,
                     frameworks::StepSettings& s, std::vector<std::string>& notes) {
  using frameworks::PreferenceTrainer;
  if (!o.prefers) return;
  const auto refuse = [](const std::string& of, const char* why) {
    reject("plan.method = \"dpo\" " + of, why);
  };
  constexpr const char* kNotCompared = "its step was not compared with PyTorch";
  const bool deepspeed = o.framework == Framework::kDeepSpeed;
  if (o.framework != Framework::kPlain && !deepspeed) refuse("under " + o.name, kNotCompared);
  if (r.parallel.zero && (s.nf4 || a.has_experts()))
    refuse(std::string("with sharded weights ") + (s.nf4 ? "in 4 bits" : "of experts"), kNotCompared);
  if (r.parallel.zero && (r.memory.optimizer_in != Tier::kDevice || r.memory.weights_in != Tier::kDevice))
    refuse("with offload", kNotCompared);
  if (r.parallel.zero && o.flat_parameters && o.forward_prefetch && s.lora_rank && o.reference)
    refuse("with adapters and plan.forward_prefetch",
           "FSDP1 stops with an error in the backward pass (_post_backward_hook_state)");
  if (s.trainer_loss) refuse("of format v1 of LLaMA-Factory", "it has another trainer");
  if (s.int8) refuse("over a base in 8 bits", kNotCompared);
  if (a.family == "gpt2" || a.family == "gpt_oss") refuse("in the family '" + a.family + "'", kNotCompared);
  if (s.batch > std::numeric_limits<std::uint32_t>::max() / 2)
    reject("train.micro_batch = " + std::to_string(s.batch), "there are two sequences per pair");
  if (r.seq_len < 2) refuse("and data.seq_len = 1", "the loss predicts the next token");
  s.batch *= 2;
  s.preferences.trainer = o.name == "llama-factory" ? PreferenceTrainer::kFactory : PreferenceTrainer::kTrl;
  s.preferences.reference = o.reference;
  // load_model() of LLaMA-Factory leaves a model that is not trained in the type of its checkpoint.
  const bool second = o.reference && !s.lora_rank;
  const bool narrow = second && s.preferences.trainer == PreferenceTrainer::kFactory && s.autocast;
  if (narrow) s.preferences.reference_type = s.autocast_type;
  s.lora_dropout = s.dropout = 0;  // disable_dropout_in_model()
  notes.push_back("DPO: train.micro_batch counts pairs, so that each micro-batch has " +
                  std::to_string(s.batch) + " sequences, and the logits of all of them exist. " +
                  (!o.reference
                       ? "The reference is computed before the training (plan.reference_model = false)."
                   : !second ? "The reference is the model without its adapters."
                   : narrow  ? "The reference is a second model, in the type of its checkpoint."
                             : "The reference is a second model, in the type of the first."));
  if (deepspeed && r.parallel.zero == 3 && s.lora_rank && o.reference)
    notes.push_back(
        "The pass of the reference, without adapters, resets DeepSpeed's counts of gradients that a module "
        "waits "
        "for: weights outside of recomputed layers stay gathered until the backward pass has ended; without "
        "recomputation all weights do.");
  if (second && r.parallel.zero)
    notes.push_back(deepspeed
                        ? (r.parallel.zero == 3 ? "The reference is sharded too, by an engine of its own."
                                                : "Below stage 3 each rank has the whole reference.")
                    : o.flat_parameters || s.preferences.trainer == PreferenceTrainer::kFactory
                        ? "The reference is sharded too, in units of its own."
                        : "TRL shards the reference as one unit (fully_shard() of the model alone): its "
                          "forward pass gathers all weights, which exist twice while they are copied.");
  notes.push_back("Dropout is off, as both trainers switch it off. Not counted: masks of padded sequences.");
}

}  // namespace trainhost::pytorch
