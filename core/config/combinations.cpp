// See combinations.hpp. A default never contradicts what the user wrote: where it could, it follows the other
// key.
#include "core/config/combinations.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/checked.hpp"

namespace trainhost::config {
namespace {

[[noreturn]] void clash(const Settings& s, const std::string& key, const std::string& message,
                        const std::string& hint = {}) {
  throw usage_error(message, hint, s.where(key));
}

/// Both keys were given, and both cannot hold.
void exclude(const Settings& s, const std::string& a, const std::string& b, const char* why) {
  if (s.given(a) && s.given(b))
    clash(s, b, fmt::format("{} and {} contradict each other: {}", a, b, why), "remove one of them");
}

void check_model(const Settings& s) {
  const char* why = "each of them is a whole model";
  exclude(s, "model.config", "model.preset", why);
  for (const std::string& field : inline_fields(s)) {
    exclude(s, "model.config", "model." + field, "the config file has all fields");
    exclude(s, "model.preset", "model." + field, "the preset has all fields");
  }
}

bool is_token_file(const std::string& name) { return name.ends_with(".bin"); }

void check_data(const Settings& s) {
  const bool train = s.given("data.train");
  if (s.number("data.valid_fraction") > 0)
    exclude(s, "data.valid", "data.valid_fraction", "both say what is held out");
  if (!train && s.given("data.valid"))
    clash(s, "data.valid", "data.valid needs data.train: the built-in text brings its own held-out part");
  if (!train && s.number("data.valid_fraction") > 0)
    clash(s, "data.valid_fraction",
          "data.valid_fraction needs data.train: the built-in text brings its own held-out part");
  if (!train && s.text("data.tokenizer") != "bytes")
    clash(s, "data.tokenizer", "data.tokenizer needs data.train: the built-in text is read by bytes");
  const auto files = s.list("data.train");
  if (s.given("data.dtype") &&
      std::none_of(files.begin(), files.end(), [](const Value& v) { return is_token_file(v.text); }))
    clash(s, "data.dtype", "data.dtype is for token files, and data.train names no .bin");
}

void check_optimizer(const Settings& s) {
  const double lr = s.number("optimizer.lr"), low = min_lr(s);
  if (low > lr)
    clash(s, "optimizer.min_lr",
          fmt::format("optimizer.min_lr = {} is greater than optimizer.lr = {}", low, lr),
          "the schedule goes down, not up");
  const auto steps = static_cast<std::uint64_t>(s.integer("train.steps"));
  // A run that is cut short from the command line stays a valid run: it ends within its warm-up.
  const bool cut_short = s.overridden("train.steps") && !s.overridden("optimizer.warmup_steps");
  if (warmup_steps(s) > steps && !cut_short)
    clash(s, "optimizer.warmup_steps",
          fmt::format("optimizer.warmup_steps = {} is more than train.steps = {}", warmup_steps(s), steps));
}

void check_sizes(const Settings& s) {
  const auto n = [&](const char* key) { return static_cast<std::uint64_t>(s.integer(key)); };
  const std::uint64_t tokens = checked_mul(n("train.micro_batch"), n("data.seq_len"));
  if (tokens > INT32_MAX)
    clash(s, s.given("train.micro_batch") ? "train.micro_batch" : "data.seq_len",
          fmt::format("train.micro_batch x data.seq_len = {} tokens is too large: expected at most {}",
                      tokens, INT32_MAX));
  checked_mul(tokens, n("train.grad_accum"), n("train.steps"));
  checked_mul(n("parallel.data"), n("parallel.tensor"), n("parallel.pipeline"), n("parallel.context"));
}

/// What is written and has no meaning; what a run says against itself, however it came about: core/model/layout_rules.hpp.
void check_inference(const Settings& s) {
  if (s.text("plan.mode") != "inference") return;
  for (const char* key : {"plan.gradients", "plan.master", "plan.moments"})
    if (s.given(key) && s.text(key) != "none")
      clash(s, key, fmt::format("{}: there is none in plan.mode = \"inference\"", key));
}

void check_estimators(const Settings& s) {
  const auto names = s.list("memory.estimator");
  for (const Value& v : names)
    if (names.size() > 1 && (v.text == "auto" || v.text == "all"))
      clash(s, "memory.estimator", fmt::format("memory.estimator: '{}' stands alone, not in a list", v.text));
}

}  // namespace

double min_lr(const Settings& s) {
  return s.given("optimizer.min_lr") ? s.number("optimizer.min_lr") : s.number("optimizer.lr") / 100;
}

std::uint64_t warmup_steps(const Settings& s) {
  constexpr std::uint64_t kUsual = 300;
  if (s.given("optimizer.warmup_steps"))
    return static_cast<std::uint64_t>(s.integer("optimizer.warmup_steps"));
  return std::min(kUsual, static_cast<std::uint64_t>(s.integer("train.steps")) / 10);
}

std::vector<std::string> inline_fields(const Settings& s) {
  std::vector<std::string> out;
  for (const auto& [key, value] : s.values())
    if (key.starts_with("model.") && key != "model.config" && key != "model.preset" && key != "model.weights")
      out.push_back(key.substr(6));
  return out;
}

void check_combinations(const Settings& s) {
  check_model(s);
  check_data(s);
  check_optimizer(s);
  check_sizes(s);
  check_inference(s);
  check_estimators(s);
}

}  // namespace trainhost::config
