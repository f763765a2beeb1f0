// See combinations.hpp. A default never contradicts what the user wrote: where it could, it follows the other
// key.
#include "core/runfile/combinations.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/checked.hpp"

namespace trainhost::runfile {
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

/// The product of these keys is a number that is shown and computed with. Its place: the largest that was
/// given.
void counted(const Settings& s, const std::vector<std::string>& keys, const char* what) {
  std::uint64_t product = 1;
  std::string words, where = keys.front();
  bool beyond = false;
  for (const std::string& key : keys) {
    const auto n = static_cast<std::uint64_t>(s.integer(key));
    beyond = beyond || __builtin_mul_overflow(product, n, &product) || product > kMaxBytes;
    words += fmt::format("{}{} = {}", words.empty() ? "" : " x ", key, n);
    if (s.given(key) && (!s.given(where) || s.integer(key) > s.integer(where))) where = key;
  }
  if (beyond)
    clash(s, where, fmt::format("{}: so many {} are too many to count in 63 bits", words, what),
          fmt::format("lower {}", where));
}

void check_sizes(const Settings& s) {
  const auto n = [&](const char* key) { return static_cast<std::uint64_t>(s.integer(key)); };
  const std::uint64_t tokens = checked_mul(n("train.micro_batch"), n("data.seq_len"));
  if (tokens > INT32_MAX)
    clash(s, s.given("train.micro_batch") ? "train.micro_batch" : "data.seq_len",
          fmt::format("train.micro_batch x data.seq_len = {} tokens is too large: expected at most {}",
                      tokens, INT32_MAX));
  counted(s, {"train.micro_batch", "data.seq_len", "train.grad_accum", "train.steps"},
          "tokens of the whole run");
  counted(s, {"parallel.data", "parallel.tensor", "parallel.pipeline", "parallel.context"}, "ranks");
}

/// What is written and has no meaning; what a run says against itself, however it came about:
/// core/model/run_rules.hpp.
void check_inference(const Settings& s) {
  if (s.text("plan.mode") != "inference") return;
  if (s.table_given("lora"))
    clash(s, "plan.mode", "plan.mode = \"inference\" trains nothing, and [lora] trains adapters",
          "remove one of them; adapters that are merged take no memory of their own");
  for (const char* key : {"plan.gradients", "plan.master", "plan.moments"})
    if (s.given(key) && s.text(key) != "none")
      clash(s, key, fmt::format("{}: there is none in plan.mode = \"inference\"", key));
}

/// The largest divisor of `whole` that is at most `most`.
std::uint64_t divisor_up_to(std::uint64_t most, std::uint64_t whole) {
  for (std::uint64_t d = std::min(most, whole); d > 1; --d)
    if (whole % d == 0) return d;
  return 1;
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

void check_against_layers(const Settings& s, std::uint64_t layers, const std::set<std::string>& open) {
  const auto n = [&](const char* key) { return static_cast<std::uint64_t>(s.integer(key)); };
  if (layers == 0) return;  // a family that nobody here knows
  if (n("train.recompute_every") > layers && !open.count("train.recompute_every"))
    clash(s, "train.recompute_every",
          fmt::format("train.recompute_every = {} is more than the {} layers of the model; {} makes all of "
                      "them again together",
                      n("train.recompute_every"), layers, layers));
  const std::uint64_t chunks = n("parallel.interleave"), ranks = n("parallel.pipeline");
  if (chunks == 1 || layers % (chunks * ranks) == 0 || open.count("parallel.interleave") ||
      open.count("parallel.pipeline"))
    return;
  const std::string nearest =
      layers % ranks ? fmt::format("{} layers do not divide among {} ranks, so 1 does", layers, ranks)
                     : fmt::format("{} does", divisor_up_to(chunks, layers / ranks));
  clash(s, "parallel.interleave",
        fmt::format(
            "parallel.interleave = {} with parallel.pipeline = {} asks for {} equal chunks of {} layers; {}",
            chunks, ranks, chunks * ranks, layers, nearest));
}

void check_combinations(const Settings& s) {
  check_model(s);
  check_data(s);
  check_optimizer(s);
  check_sizes(s);
  check_inference(s);
  check_estimators(s);
}

}  // namespace trainhost::runfile
