// See training_keys.hpp. One table for all frameworks: no name means one thing in one of them and another
// thing in another.
#include "core/framework_files/training_keys.hpp"

#include <fmt/format.h>

#include <optional>
#include <string_view>

namespace trainhost::framework_files {
namespace {

using runfile::FileKey;
using runfile::KeyUse;

struct TrainingKey {
  std::string_view theirs, ours;
};
constexpr TrainingKey kTrainingKeys[] = {
    // TrainingArguments, axolotl, LLaMA-Factory
    {"learning_rate", "optimizer.lr"},
    {"weight_decay", "optimizer.weight_decay"},
    {"adam_epsilon", "optimizer.eps"},
    {"max_grad_norm", "optimizer.grad_clip"},
    {"lr_scheduler_type", "optimizer.schedule"},
    {"lr_scheduler", "optimizer.schedule"},
    {"warmup_steps", "optimizer.warmup_steps"},
    {"warmup_ratio", "optimizer.warmup_ratio"},
    {"num_train_epochs", "train.epochs"},
    {"num_epochs", "train.epochs"},
    {"max_steps", "train.steps"},
    {"seed", "train.seed"},
    {"save_steps", "output.checkpoint_every"},
    {"save_total_limit", "output.keep"},
    {"eval_steps", "train.eval_every"},
    {"val_set_size", "data.valid_fraction"},
    // torchtune
    {"epochs", "train.epochs"},
    {"optimizer.lr", "optimizer.lr"},
    {"optimizer.weight_decay", "optimizer.weight_decay"},
    {"optimizer.eps", "optimizer.eps"},
    {"clip_grad_norm", "optimizer.grad_clip"},
    {"lr_scheduler.num_warmup_steps", "optimizer.warmup_steps"},
    // torchtitan
    {"training.steps", "train.steps"},
    {"training.seed", "train.seed"},
    {"training.max_norm", "optimizer.grad_clip"},
    {"training.warmup_steps", "optimizer.warmup_steps"},
    {"lr_scheduler.warmup_steps", "optimizer.warmup_steps"},
    {"checkpoint.interval", "output.checkpoint_every"},
    // litgpt
    {"train.epochs", "train.epochs"},
    {"train.max_steps", "train.steps"},
    {"train.max_norm", "optimizer.grad_clip"},
    {"train.lr_warmup_steps", "optimizer.warmup_steps"},
    {"train.lr_warmup_fraction", "optimizer.warmup_ratio"},
    {"train.min_lr", "optimizer.min_lr"},
    {"train.save_interval", "output.checkpoint_every"},
    {"optimizer.init_args.lr", "optimizer.lr"},
    {"optimizer.init_args.weight_decay", "optimizer.weight_decay"},
    // DeepSpeed
    {"gradient_clipping", "optimizer.grad_clip"},
    {"optimizer.params.lr", "optimizer.lr"},
    {"optimizer.params.weight_decay", "optimizer.weight_decay"},
    {"optimizer.params.eps", "optimizer.eps"},
    // Megatron-LM
    {"lr", "optimizer.lr"},
    {"min-lr", "optimizer.min_lr"},
    {"weight-decay", "optimizer.weight_decay"},
    {"adam-eps", "optimizer.eps"},
    {"clip-grad", "optimizer.grad_clip"},
    {"lr-decay-style", "optimizer.schedule"},
    {"lr-warmup-iters", "optimizer.warmup_steps"},
    {"lr-warmup-fraction", "optimizer.warmup_ratio"},
    {"train-iters", "train.steps"},
    {"save-interval", "output.checkpoint_every"},
    {"eval-interval", "train.eval_every"},
};

/// Pairs of keys that are optimizer.betas.
struct BetaKeys {
  std::string_view first, second;
};
constexpr BetaKeys kBetaKeys[] = {
    {"adam_beta1", "adam_beta2"}, {"optimizer.beta1", "optimizer.beta2"}, {"adam-beta1", "adam-beta2"}};

const FileKey* find(const std::vector<FileKey>& keys, std::string_view name) {
  for (const FileKey& k : keys)
    if (k.key == name && k.use == KeyUse::kWithoutEffect) return &k;
  return nullptr;
}

/// The value without the quotes of a text; nullopt where another file, or the framework, decides it.
std::optional<std::string> value_of(const FileKey& k) {
  std::string v = k.value;
  if (v.size() > 1 && v.front() == '"' && v.back() == '"') v = v.substr(1, v.size() - 2);
  if (v.empty() || v == "auto" || v == "null" || v == "none") return std::nullopt;
  // transformers takes the ratio where there are 0 steps, and the epochs where there are -1.
  if ((k.key == "warmup_steps" && v == "0") || (k.key == "max_steps" && v.starts_with('-')))
    return std::nullopt;
  return v;
}

}  // namespace

std::vector<runfile::Override> training_settings(const std::vector<FileKey>& keys) {
  std::vector<runfile::Override> out;
  for (const auto& [theirs, ours] : kTrainingKeys)
    if (const FileKey* k = find(keys, theirs))
      if (const auto value = value_of(*k)) out.push_back({std::string(ours), *value, k->key, k->where});
  for (const auto& [first, second] : kBetaKeys) {
    const FileKey *a = find(keys, first), *b = find(keys, second);
    if (!a || !b) continue;
    // With both positions: neither key is left over.
    for (const FileKey* k : {a, b})
      out.push_back({"optimizer.betas", fmt::format("[{}, {}]", a->value, b->value), k->key, k->where});
  }
  return out;
}

}  // namespace trainhost::framework_files
