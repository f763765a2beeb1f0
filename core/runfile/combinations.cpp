// See combinations.hpp. A default never conflicts with a value that the user gave: it is derived from that
// value instead (min_lr from lr, warmup_steps from train.steps).
#include "core/runfile/combinations.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/checked.hpp"
#include "core/base/plural.hpp"
#include "core/runfile/paths.hpp"
#include "core/runfile/run_config.hpp"

namespace trainhost::runfile {
namespace {

[[noreturn]] void reject_combination(const Settings& s, const std::string& key, const std::string& message,
                                     const std::string& hint = {}) {
  throw usage_error(message, hint, s.where(key));
}

/// The rule that two keys are not given together. The second key is the position of the error: it is the one
/// that was added.
void validate_exclusive(const Settings& s, const std::string& a, const std::string& b, const char* why) {
  s.rule([&] {
    if (s.given(a) && s.given(b))
      reject_combination(s, b, fmt::format("{} and {} cannot be combined: {}", a, b, why),
                         "remove one of them");
  });
}

/// A model is given in one of three ways; a mixture would leave open which field comes from where.
void validate_model(const Settings& s) {
  const char* why = "each of them defines the whole model";
  validate_exclusive(s, "model.config", "model.preset", why);
  validate_exclusive(s, "model.path", "model.config", why);
  validate_exclusive(s, "model.path", "model.preset", why);
  validate_exclusive(s, "model.path", "model.weights", "the folder contains the weights");
  for (const std::string& field : inline_fields(s)) {
    validate_exclusive(s, "model.path", "model." + field, "its config.json defines all fields");
    // The text of a config.json may leave the vocabulary open.
    if (field != "vocab_size" || !s.given("model.config") || !is_config_text(s.text("model.config")))
      validate_exclusive(s, "model.config", "model." + field, "the config file defines all fields");
    validate_exclusive(s, "model.preset", "model." + field, "the preset defines all fields");
  }
}

bool is_token_file(const std::string& name) { return name.ends_with(".bin"); }

/// Keys about text files are an error without data.train, not ignored: the built-in text would be trained
/// instead of the user's.
void validate_data(const Settings& s) {
  if (s.number("data.valid_fraction") > 0)
    validate_exclusive(s, "data.valid", "data.valid_fraction", "both define the validation text");
  s.rule([&] {
    if (!s.given("data.train") && s.given("data.valid"))
      reject_combination(s, "data.valid",
                         "data.valid requires data.train: the built-in text has its own validation text");
  });
  s.rule([&] {
    if (!s.given("data.train") && s.number("data.valid_fraction") > 0)
      reject_combination(
          s, "data.valid_fraction",
          "data.valid_fraction requires data.train: the built-in text has its own validation text");
  });
  s.rule([&] {
    if (!s.given("data.train") && s.text("data.tokenizer") != "bytes")
      reject_combination(s, "data.tokenizer",
                         "data.tokenizer requires data.train: the built-in text is tokenized by bytes");
  });
  s.rule([&] {
    const auto files = s.list("data.train"), weights = s.list("data.weights");
    if (!weights.empty() && weights.size() != files.size())
      reject_combination(s, "data.weights",
                         fmt::format("data.weights has {}, but data.train has {}",
                                     plural(weights.size(), "number"), plural(files.size(), "entry")),
                         "one weight for each entry of data.train; a glob is one entry");
  });
  s.rule([&] {
    const auto files = s.list("data.train");
    if (s.given("data.dtype") &&
        std::none_of(files.begin(), files.end(), [](const Value& v) { return is_token_file(v.text); }))
      reject_combination(s, "data.dtype",
                         "data.dtype applies only to .bin token files, and data.train has none");
  });
}

/// The steps of warm-up and decay fit in those of the run.
void validate_phases(const Settings& s, bool wsd) {
  const auto steps = static_cast<std::uint64_t>(s.integer("train.steps"));
  if (s.given("train.epochs")) return;  // the number of steps follows from the data
  // --set train.steps may shorten a run to less than its warm-up; the run then ends during warm-up.
  const bool cut_short = s.overridden("train.steps") && !s.overridden("optimizer.warmup_steps");
  if (warmup_steps(s) > steps && !cut_short)
    reject_combination(
        s, "optimizer.warmup_steps",
        fmt::format("optimizer.warmup_steps = {} is more than train.steps = {}", warmup_steps(s), steps));
  // Rounding up may add one step to each part.
  const bool ratios = !s.given("optimizer.warmup_steps") && !s.given("optimizer.decay_steps");
  if (wsd && !cut_short && !ratios && warmup_steps(s) + decay_steps(s) > steps)
    reject_combination(s,
                       s.given("optimizer.decay_steps") ? "optimizer.decay_steps" : "optimizer.warmup_steps",
                       fmt::format("{} of warm-up and {} of decay are more than train.steps = {}",
                                   plural(warmup_steps(s), "step"), plural(decay_steps(s), "step"), steps));
}

void validate_optimizer(const Settings& s) {
  s.rule([&] {
    const double lr = s.number("optimizer.lr"), final_lr = min_lr(s);
    if (final_lr > lr)
      reject_combination(s, "optimizer.min_lr",
                         fmt::format("optimizer.min_lr = {} is greater than optimizer.lr = {}", final_lr, lr),
                         "min_lr is the learning rate at the end of the schedule");
  });
  validate_exclusive(s, "train.steps", "train.epochs", "both say how long to train");
  validate_exclusive(s, "optimizer.warmup_steps", "optimizer.warmup_ratio",
                     "both are the length of the warm-up");
  validate_exclusive(s, "optimizer.decay_steps", "optimizer.decay_ratio", "both are the length of the decay");
  const bool wsd = s.text("optimizer.schedule") == "wsd";
  for (const char* key : {"optimizer.decay", "optimizer.decay_steps", "optimizer.decay_ratio"})
    s.rule([&] {
      s.depends_on("optimizer.schedule");
      if (s.given(key) && !wsd)
        reject_combination(
            s, key,
            fmt::format("{} requires optimizer.schedule = \"wsd\": the other schedules have no "
                        "decay phase of their own",
                        key),
            "remove the key, or set optimizer.schedule = \"wsd\"");
    });
  s.rule([&] {
    if (wsd && s.given("optimizer.warmup_ratio") && s.given("optimizer.decay_ratio") &&
        s.number("optimizer.warmup_ratio") + s.number("optimizer.decay_ratio") > 1)
      reject_combination(
          s, "optimizer.decay_ratio",
          fmt::format("optimizer.warmup_ratio = {} and optimizer.decay_ratio = {} are together more "
                      "than the run",
                      s.number("optimizer.warmup_ratio"), s.number("optimizer.decay_ratio")));
  });
  s.rule([&] { validate_phases(s, wsd); });
}

/// Early stopping without evaluations would never stop.
void validate_evaluation(const Settings& s) {
  validate_exclusive(s, "train.eval_every", "train.eval_epochs", "both say how often to evaluate");
  s.rule([&] {
    const bool evaluates = s.integer("train.eval_every") > 0 || s.given("train.eval_epochs");
    const std::int64_t patience = s.integer("train.early_stopping");
    if (patience > 0 && !evaluates)
      reject_combination(
          s, "train.early_stopping",
          fmt::format("train.early_stopping = {} counts evaluations, but the run has none before "
                      "its end",
                      patience),
          "set train.eval_every = N steps, or train.eval_epochs");
  });
  s.rule([&] {
    if (s.integer("train.early_stopping") == 0 && s.number("train.early_stopping_min_delta") > 0)
      reject_combination(s, "train.early_stopping_min_delta",
                         "train.early_stopping_min_delta requires train.early_stopping",
                         "set train.early_stopping = N evaluations, for example 3");
  });
}

/// Throws if the product of `keys` exceeds 63 bits, at the given key with the largest value. `what` names the
/// product in the message. Products are formed here once, so that no later code has to check them again.
void validate_product(const Settings& s, const std::vector<std::string>& keys, const char* what) {
  std::uint64_t product = 1;
  std::string factors, largest_key = keys.front();
  bool overflow = false;
  for (const std::string& key : keys) {
    const auto n = static_cast<std::uint64_t>(s.integer(key));
    overflow = overflow || __builtin_mul_overflow(product, n, &product) || product > kMaxBytes;
    factors += fmt::format("{}{} = {}", factors.empty() ? "" : " x ", key, n);
    if (s.given(key) && (!s.given(largest_key) || s.integer(key) > s.integer(largest_key))) largest_key = key;
  }
  if (overflow)
    reject_combination(s, largest_key, fmt::format("{}: the number of {} exceeds 63 bits", factors, what),
                       fmt::format("reduce {}", largest_key));
}

/// Tokens of a micro-batch are counted in 32 bits by the kernels.
void validate_sizes(const Settings& s) {
  s.rule([&] {
    const auto n = [&](const char* key) { return static_cast<std::uint64_t>(s.integer(key)); };
    const std::uint64_t tokens = checked_mul(n("train.micro_batch"), n("data.seq_len"));
    if (tokens > INT32_MAX)
      reject_combination(
          s, s.given("train.micro_batch") ? "train.micro_batch" : "data.seq_len",
          fmt::format("train.micro_batch x data.seq_len = {} tokens is too large: expected at most {}",
                      tokens, INT32_MAX));
  });
  s.rule([&] {
    validate_product(s, {"train.micro_batch", "data.seq_len", "train.grad_accum", "train.steps"},
                     "tokens in the run");
  });
  s.rule([&] {
    validate_product(s, {"parallel.data", "parallel.tensor", "parallel.pipeline", "parallel.context"},
                     "ranks");
  });
}

/// Keys that have no meaning for inference. Conflicts within a RunSpec: core/model/run_rules.hpp.
void validate_inference(const Settings& s) {
  if (s.text("plan.mode") != "inference") return;
  s.rule([&] {
    if (adapts(s))
      reject_combination(
          s, "plan.mode",
          fmt::format("plan.mode = \"inference\" and {} cannot be combined: inference trains no adapters",
                      s.given("model.adapter") ? "model.adapter" : "[lora]"),
          "remove one of them; merged adapters need no extra memory");
  });
  for (const char* key : {"plan.gradients", "plan.master", "plan.moments"})
    s.rule([&] {
      if (s.given(key) && s.text(key) != "none")
        reject_combination(s, key, fmt::format("{} requires plan.mode = \"train\"", key), "remove the key");
    });
}

/// The largest divisor of `n` that is at most `limit`.
std::uint64_t largest_divisor(std::uint64_t n, std::uint64_t limit) {
  for (std::uint64_t d = std::min(limit, n); d > 1; --d)
    if (n % d == 0) return d;
  return 1;
}

/// The first estimator decides, so "auto" beside names would be ambiguous.
void validate_estimators(const std::string& key, const std::vector<Value>& names, const Where& where) {
  for (const Value& v : names)
    if (names.size() > 1 && (v.text == "auto" || v.text == "all"))
      throw usage_error(fmt::format("{}: '{}' cannot be combined with other estimators", key, v.text), {},
                        where);
}

}  // namespace

bool adapts(const Settings& s) { return s.table_given("lora") || s.given("model.adapter"); }

double min_lr(const Settings& s) {
  return s.given("optimizer.min_lr") ? s.number("optimizer.min_lr") : s.number("optimizer.lr") / 100;
}

namespace {

/// KEY_steps, or KEY_ratio of train.steps, or `otherwise`.
std::uint64_t steps_or_ratio(const Settings& s, const std::string& key, std::uint64_t otherwise) {
  if (s.given(key + "_steps")) return static_cast<std::uint64_t>(s.integer(key + "_steps"));
  if (!s.given(key + "_ratio")) return otherwise;
  return part_of_steps(s.number(key + "_ratio"), static_cast<std::uint64_t>(s.integer("train.steps")));
}

}  // namespace

std::uint64_t warmup_steps(const Settings& s) {
  const auto steps = static_cast<std::uint64_t>(s.integer("train.steps"));
  return steps_or_ratio(s, "optimizer.warmup", default_warmup_steps(steps));
}

std::uint64_t decay_steps(const Settings& s) {
  const auto steps = static_cast<std::uint64_t>(s.integer("train.steps"));
  return steps_or_ratio(s, "optimizer.decay", part_of_steps(kDefaultDecayRatio, steps));
}

std::vector<std::string> inline_fields(const Settings& s) {
  std::vector<std::string> out;
  for (const auto& [key, value] : s.values())
    if (key.starts_with("model.") && key != "model.path" && key != "model.config" && key != "model.preset" &&
        key != "model.weights" && key != "model.adapter")
      out.push_back(key.substr(6));
  return out;
}

/// `open`: keys that a search varies; a rule about them is checked per layout instead.
void validate_against_layers(const Settings& s, std::uint64_t layers, const std::set<std::string>& open) {
  const auto n = [&](const char* key) { return static_cast<std::uint64_t>(s.integer(key)); };
  if (layers == 0) return;  // the dimensions of an unknown model family are not known
  s.rule([&] {
    if (n("train.recompute_every") > layers && !open.count("train.recompute_every"))
      reject_combination(
          s, "train.recompute_every",
          fmt::format("train.recompute_every = {} is more than the {} layers of the model",
                      n("train.recompute_every"), layers),
          fmt::format("set train.recompute_every = {} to recompute all layers together", layers));
  });
  const std::uint64_t stages_per_rank = n("parallel.interleave"), ranks = n("parallel.pipeline");
  if (stages_per_rank == 1 || layers % (stages_per_rank * ranks) == 0 || open.count("parallel.interleave") ||
      open.count("parallel.pipeline"))
    return;
  // Its stages may have different numbers of layers.
  if (s.given("plan.framework") && s.text("plan.framework") == "torchtitan") return;
  const std::string hint =
      layers % ranks
          ? fmt::format("set parallel.interleave = 1: {} cannot be divided among {}", plural(layers, "layer"),
                        plural(ranks, "rank"))
          : fmt::format("set parallel.interleave = {}", largest_divisor(layers / ranks, stages_per_rank));
  reject_combination(s, "parallel.interleave",
                     fmt::format("parallel.interleave = {} with parallel.pipeline = {}: {} layers are not "
                                 "divisible by {} virtual stages",
                                 stages_per_rank, ranks, layers, stages_per_rank * ranks),
                     hint);
}

/// From simple to derived: a rule may rely on those above it.
void validate_combinations(const Settings& s) {
  validate_model(s);
  validate_data(s);
  validate_optimizer(s);
  validate_evaluation(s);
  validate_sizes(s);
  validate_inference(s);
  s.rule([&] {
    validate_estimators("memory.estimator", s.list("memory.estimator"), s.where("memory.estimator"));
  });
  for (const auto& rule : s.family_estimators())
    s.rule([&] {
      validate_estimators("memory.estimators." + rule.first, rule.second.items, rule.second.where);
    });
}

}  // namespace trainhost::runfile
