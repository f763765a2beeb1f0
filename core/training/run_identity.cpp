// See run_identity.hpp.
#include "core/training/run_identity.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <sstream>

#include "core/base/plural.hpp"
#include "core/base/text.hpp"
#include "core/model/adapters.hpp"

namespace trainhost::training {
namespace {

namespace fs = std::filesystem;

constexpr const char* kContentKey = "data.content";

/// "key = value" lines; lines of another form are ignored.
std::map<std::string, std::string> lines_of(const std::string& text) {
  std::map<std::string, std::string> out;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);)
    if (auto at = line.find(" = "); at != std::string::npos) out[line.substr(0, at)] = line.substr(at + 3);
  return out;
}

/// The value of a key of resume_identity() as the run file has it.
std::string value_of(const std::string& key, const std::string& value) {
  static constexpr const char* kSchedules[] = {"constant", "cosine", "linear",
                                               "wsd"};  // in the order of Schedule
  if (key == "optimizer.schedule" && value.size() == 1 && value[0] >= '0' && value[0] <= '3')
    return kSchedules[value[0] - '0'];
  return value;
}

/// A run may be continued with another train.steps. Returns what changes with it; "" if it is the same. A
/// warm-up that follows from train.steps stays as it was.
std::string change_steps(const std::map<std::string, std::string>& saved, std::uint64_t step,
                         runfile::RunConfig& c) {
  const auto before = saved.find("train.steps");
  if (before == saved.end() || before->second == std::to_string(c.steps)) return {};
  if (c.steps < step)
    throw usage_error(fmt::format("the checkpoint is of step {}, but train.steps = {}", step, c.steps),
                      "set train.steps to at least the step of the checkpoint");
  const auto warmup = saved.find("optimizer.warmup_steps");
  if (warmup != saved.end() && !c.given.count("optimizer.warmup_steps"))
    c.optimizer.warmup_steps = std::strtoull(warmup->second.c_str(), nullptr, 10);
  std::string text = fmt::format("train.steps was {} and is {}", before->second, c.steps);
  if (c.optimizer.schedule != runfile::Schedule::kConstant)
    text += fmt::format(": from step {} on the learning rate follows the schedule of {}", step + 1,
                        plural(c.steps, "step"));
  return text;
}

/// Only keys that both texts have are compared: a later version may add keys, and an old checkpoint must stay
/// usable. Names of files count only if a text has no hash of their content.
void require_same_identity(const std::map<std::string, std::string>& a, const std::string& current) {
  std::map<std::string, std::string> b = lines_of(current);
  b.erase("train.steps");  // see change_steps()
  if (a.count(kContentKey) && b.count(kContentKey))
    for (const char* name : {"data.train", "data.tokenizer"}) b.erase(name);
  std::string differs;
  for (const auto& [key, value] : b)
    if (auto it = a.find(key); it != a.end() && it->second != value)
      differs += (differs.empty() ? "" : "; ") +
                 (key == kContentKey ? std::string("data.train or data.tokenizer has another content")
                                     : fmt::format("{} was {}, is {}", key, value_of(key, it->second),
                                                   value_of(key, value)));
  if (!differs.empty())
    throw usage_error(
        "the checkpoint was written by a run with other settings: " + differs,
        "set these keys as they were, also those whose default has changed, or train into another "
        "output.dir");
}

}  // namespace

/// Every key that changes a bit of the trained weights. Missing one here would let a resumed run differ
/// silently, so a new key of the run file that affects training is added here, too.
std::string resume_identity(const runfile::RunConfig& c, const std::string& data_content) {
  const RunSpec& r = c.run;
  const ModelSpec& m = c.model;
  std::string out;
  auto add = [&](const char* key, auto value) { out += fmt::format("{} = {}\n", key, value); };
  add("model.family", m.family);
  add("model.vocab_size", m.vocab);
  add("model.hidden_size", m.hidden);
  add("model.num_hidden_layers", m.layers);
  add("model.num_attention_heads", m.heads);
  add("model.num_key_value_heads", m.kv_heads);
  add("model.head_dim", m.head_dim);
  add("model.intermediate_size", m.intermediate);
  add("model.tie_word_embeddings", m.tied);
  add("model.sliding_window", m.sliding_window);
  add("model.rms_norm_eps", m.norm_eps);
  add("model.rope_theta", m.rope_theta);
  const RopeScaling& rope = m.rope;
  add("model.rope_scaling",
      rope.kind == RopeKind::kDefault
          ? "none"
          : fmt::format("{} factor {} low {} high {} original {}",
                        rope.kind == RopeKind::kLinear ? "linear" : "llama3", rope.factor,
                        rope.low_freq_factor, rope.high_freq_factor, rope.original_max_positions));
  add("model.attention_bias", fmt::format("qkv {} o {}", m.qkv_bias, m.o_bias));
  add("model.mlp_bias", m.mlp_bias);
  add("model.qk_norm", m.qk_norm);
  add("model.first_window_layer", m.first_window_layer);
  // File names without folders: moving the data must not make a checkpoint useless.
  std::string files;
  for (const fs::path& p : c.data.train) files += (files.empty() ? "" : ",") + p.filename().string();
  add("data.train", files.empty() ? "stories" : files);
  add("data.tokenizer", fs::path(c.data.tokenizer).filename().string());
  if (!data_content.empty()) add(kContentKey, data_content);
  add("data.dtype", c.data.dtype);
  add("data.order", c.data.order == runfile::Order::kShuffled ? "shuffled" : "sequential");
  add("data.valid_fraction", c.data.valid_fraction);
  add("data.seq_len", r.seq_len);
  add("train.precision", c.precision);
  add("train.micro_batch", r.micro_batch);
  // Of all ranks: a run may go on with another number of them, if a step has the same sequences.
  add("train.grad_accum", std::uint64_t{r.accumulate} * (r.parallel.data_rank ? r.parallel.data : 1));
  add("train.steps", c.steps);
  add("train.seed", r.seed);
  std::string rules = r.trainable;
  std::ranges::replace(rules, '\n', ' ');
  add("train.trainable", rules.empty() ? "all" : rules);
  add("train.adapters", trains_adapters(r) ? "lora" : "none");
  if (trains_adapters(r)) {
    add("lora.rank", r.lora_rank);
    add("lora.alpha", c.lora.alpha);
    add("lora.rslora", c.lora.rslora);
    add("lora.dora", r.memory.dora);
    add("lora.dropout", r.memory.lora_dropout);
    if (ties_adapter(r)) add("lora.ensure_weight_tying", true);
    add("lora.targets", fmt::format("{}", fmt::join(runfile::names_of_targets(r.lora_targets), ",")));
    std::string rules_of_adapters = r.lora_rules;
    std::ranges::replace(rules_of_adapters, '\n', ',');
    if (!rules_of_adapters.empty()) add("lora.rules", rules_of_adapters);
    add("lora.base", r.mode == RunMode::kQlora ? "nf4" : name(r.weight));
    add("lora.double_quant", r.memory.double_quantized);
  }
  add("optimizer.name", name(r.optimizer));
  add("optimizer.lr", c.optimizer.lr);
  add("optimizer.min_lr", c.optimizer.min_lr);
  add("optimizer.schedule", static_cast<int>(c.optimizer.schedule));
  add("optimizer.warmup_steps", c.optimizer.warmup_steps);
  if (c.optimizer.schedule == runfile::Schedule::kWsd) {
    add("optimizer.decay", static_cast<int>(c.optimizer.decay));
    // A part of the steps changes with train.steps, and may: a run goes on from before its decay.
    if (c.given.count("optimizer.decay_steps"))
      add("optimizer.decay_steps", c.optimizer.decay_steps);
    else
      add("optimizer.decay_ratio", c.optimizer.decay_ratio.value_or(runfile::kDefaultDecayRatio));
  }
  add("optimizer.betas", fmt::format("[{}, {}]", r.beta1, r.beta2));
  add("optimizer.eps", r.eps);
  add("optimizer.weight_decay", r.weight_decay);
  add("optimizer.grad_clip", r.clip_norm);
  return out;
}

std::string compare_with_identity(const std::string& saved, std::uint64_t step,
                                  const std::string& data_content, runfile::RunConfig& c) {
  const std::map<std::string, std::string> before = lines_of(saved);
  std::string change = change_steps(before, step, c);
  require_same_identity(before, resume_identity(c, data_content));
  return change;
}

}  // namespace trainhost::training
