// Converts Settings to RunConfig, one function per table. [model]: model_settings.cpp; tables that only
// planners read: planned_settings.cpp. The values were checked before; this file only looks up files and
// devices. Every key was checked against its schema row, so .value() and indices into lists of fixed length
// cannot fail here.
#include "core/runfile/run_config.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>

#include "core/base/plural.hpp"
#include "core/base/text.hpp"
#include "core/base/types.hpp"
#include "core/model/architecture.hpp"
#include "core/model/presets.hpp"
#include "core/model/run_rules.hpp"
#include "core/runfile/combinations.hpp"
#include "core/runfile/model_settings.hpp"
#include "core/runfile/named_values.hpp"
#include "core/runfile/paths.hpp"
#include "core/runfile/planned_settings.hpp"
#include "core/runfile/resolve_settings.hpp"
#include "core/runfile/usual_run.hpp"

namespace fs = std::filesystem;

namespace trainhost::runfile {
namespace {

/// A glob is expanded now, so that plan and training use the same list, in sorted order.
/// `per_entry`: gets the number of files of each entry.
std::vector<fs::path> files_of(const Settings& s, const char* key, const fs::path& base,
                               std::vector<std::size_t>* per_entry = nullptr) {
  std::vector<fs::path> out;
  for (const Value& v : s.list(key))
    s.rule([&] {
      const std::size_t before = out.size();
      for (fs::path& p : expand_files(v.text, base, key, s.where(key))) out.push_back(std::move(p));
      if (per_entry) per_entry->push_back(out.size() - before);
    });
  return out;
}

/// data.tokenizer = "auto": beside the weights, or beside model.config.
fs::path tokenizer_of_model(const RunConfig& c, const Where& where) {
  const fs::path folder = c.weights ? c.weights->parent_path() : c.model_folder;
  if (folder.empty())
    throw usage_error(
        "data.tokenizer = \"auto\" requires model.config or model.weights, whose folder has the tokenizer",
        "set data.tokenizer to the path of a tokenizer.json or a SentencePiece .model", where);
  if (const auto file = readable_tokenizer_beside(folder)) return *file;
  throw usage_error(
      fmt::format("data.tokenizer = \"auto\": '{}' has no tokenizer.json and no tokenizer.model",
                  escaped(folder.string(), 4096)),
      "set data.tokenizer to the path of one", where);
}

void set_tokenizer(const Settings& s, const fs::path& base, RunConfig& c) {
  c.data.tokenizer = s.text("data.tokenizer");
  if (c.data.tokenizer == "auto") {
    s.depends_on("model");
    c.data.tokenizer = tokenizer_of_model(c, s.where("data.tokenizer")).string();
  } else if (c.data.tokenizer != "bytes") {
    const fs::path path = resolve_path(c.data.tokenizer, base);
    require_file(path, "data.tokenizer", s.where("data.tokenizer"));
    c.data.tokenizer = path.string();
  } else if (s.given("model.path") && !s.given("data.tokenizer")) {
    if (const auto file = readable_tokenizer_beside(c.model_folder)) c.data.tokenizer = file->string();
  }
}

void set_data(const Settings& s, const fs::path& base, RunConfig& c) {
  const bool mixed = s.given("data.weights");
  if (mixed)
    for (const Value& v : s.list("data.weights")) c.data.weights.push_back(v.number);
  c.data.train = files_of(s, "data.train", base, mixed ? &c.data.entry_files : nullptr);
  c.data.valid = files_of(s, "data.valid", base);
  c.data.valid_fraction = s.number("data.valid_fraction");
  s.rule([&] { set_tokenizer(s, base, c); });
  c.data.order = s.text("data.order") == "sequential" ? Order::kSequential : Order::kShuffled;
  c.data.dtype = s.text("data.dtype");
  c.data.chat_template = s.text("data.chat_template");
  c.data.loss_on_all = s.text("data.loss_on") == "all";
  c.data.skip_broken = s.text("data.on_error") == "skip";
  c.data.special_tokens = s.flag("data.special_tokens");
  if (s.given("data.packing")) c.data.packing = s.flag("data.packing");
  for (const char* key :
       {"text", "prompt", "completion", "instruction", "input", "output", "messages", "role", "content"})
    c.data.keys[key] = s.text(std::string("data.keys.") + key);
}

/// RunSpec's defaults are those of fp32. Narrower precisions keep f32 master weights and moments; tf32 only
/// changes the arithmetic.
void set_precision(const std::string& precision, RunSpec& r) {
  if (precision == "tf32") r.compute = DType::kTF32;
  if (precision == "bf16") r.weight = r.compute = DType::kBF16, r.master = DType::kF32;
  if (precision == "fp16") r.weight = r.compute = DType::kF16, r.master = DType::kF32;
  if (precision == "fp8") r.weight = r.compute = DType::kF8, r.master = DType::kF32;
}

void set_train(const Settings& s, RunConfig& c) {
  c.backend = s.text("train.backend");
  c.precision = s.text("train.precision");
  c.steps = u64(s, "train.steps");
  c.epochs = s.given("train.epochs") ? s.number("train.epochs") : 0;
  c.eval_every = u64(s, "train.eval_every");
  c.eval_epochs = s.given("train.eval_epochs") ? s.number("train.eval_epochs") : 0;
  c.early_stopping = u64(s, "train.early_stopping");
  c.early_stopping_min_delta = s.number("train.early_stopping_min_delta");
  c.threads = u32(s, "train.threads");
  c.run.micro_batch = u32(s, "train.micro_batch");
  c.run.seq_len = u32(s, "data.seq_len");
  c.run.accumulate = u32(s, "train.grad_accum");
  c.run.seed = u64(s, "train.seed");
  c.run.memory.recompute_every = u32(s, "train.recompute_every");
  c.run.recompute = recompute_from(s.text("train.recompute")).value();
  set_precision(c.precision, c.run);
}

/// train.global_batch as gradient accumulation steps of each rank.
void set_global_batch(const Settings& s, RunConfig& c) {
  c.communicator = s.text("parallel.communicator");
  c.communicator_timeout = u32(s, "parallel.timeout");
  if (!s.given("train.global_batch")) return;
  const std::uint64_t batch = u64(s, "train.global_batch"), ranks = c.run.parallel.data;
  if (s.given("train.grad_accum"))
    throw usage_error("train.global_batch and train.grad_accum are both given", "remove one of them",
                      s.where("train.grad_accum"));
  const std::uint64_t together = ranks * c.run.micro_batch,
                      nearest = std::max(together, (batch + together / 2) / together * together);
  if (batch < together)
    throw usage_error(
        fmt::format("train.global_batch = {} has fewer micro-batches of {} than there are ranks, {}", batch,
                    plural(c.run.micro_batch, "sequence"), ranks),
        fmt::format("set train.global_batch = {}, a smaller train.micro_batch, or fewer ranks", together),
        s.where("train.global_batch"));
  if (batch % together)
    throw usage_error(
        ranks == 1
            ? fmt::format("train.global_batch = {} is not a multiple of train.micro_batch = {}", batch,
                          c.run.micro_batch)
            : fmt::format(
                  "train.global_batch = {} is not a multiple of parallel.data x train.micro_batch = {} x {}",
                  batch, ranks, c.run.micro_batch),
        fmt::format("set train.global_batch = {}", nearest), s.where("train.global_batch"));
  c.run.accumulate = static_cast<std::uint32_t>(batch / together);
}

Policy policy_from(const std::string& word) {
  return word == "stop"       ? Policy::kStop
         : word == "skip"     ? Policy::kSkip
         : word == "rollback" ? Policy::kRollback
                              : Policy::kIgnore;
}

void set_safety(const Settings& s, RunConfig& c) {
  c.safety.on_nonfinite = policy_from(s.text("train.on_nonfinite"));
  c.safety.on_spike = policy_from(s.text("train.on_spike"));
  c.safety.spike_threshold = s.number("train.spike_threshold");
  c.safety.spike_window = u32(s, "train.spike_window");
  c.safety.verify_every = u64(s, "train.verify_every");
}

/// min_lr and warmup_steps without a value depend on other keys, see combinations.cpp.
void set_optimizer(const Settings& s, RunConfig& c) {
  const std::string schedule = s.text("optimizer.schedule");
  c.optimizer.lr = s.number("optimizer.lr");
  c.optimizer.min_lr = min_lr(s);
  c.optimizer.warmup_steps = warmup_steps(s);
  c.optimizer.schedule = schedule == "constant" ? Schedule::kConstant
                         : schedule == "linear" ? Schedule::kLinear
                         : schedule == "wsd"    ? Schedule::kWsd
                                                : Schedule::kCosine;
  const std::string decay = s.text("optimizer.decay");
  c.optimizer.decay = decay == "cosine"   ? Decay::kCosine
                      : decay == "1-sqrt" ? Decay::kOneMinusSqrt
                                          : Decay::kLinear;
  c.optimizer.decay_steps = decay_steps(s);
  if (s.given("optimizer.warmup_ratio")) c.optimizer.warmup_ratio = s.number("optimizer.warmup_ratio");
  if (s.given("optimizer.decay_ratio")) c.optimizer.decay_ratio = s.number("optimizer.decay_ratio");
  const auto betas = s.list("optimizer.betas");
  assert(betas.size() == 2);
  c.run.optimizer = optimizer_from(s.text("optimizer.name")).value();
  c.run.beta1 = betas[0].number;
  c.run.beta2 = betas[1].number;
  c.run.eps = s.number("optimizer.eps");
  c.run.weight_decay = s.number("optimizer.weight_decay");
  c.run.clip_norm = s.number("optimizer.grad_clip");
}

/// The line of [memory.estimators] for the model's family, or for "*".
void set_family_estimators(const Settings& s, RunConfig& c) {
  const auto& rules = s.family_estimators();
  for (const auto& rule : rules)
    s.rule([&] {
      s.depends_on("model");
      const std::string& family = rule.first;
      if (family == "*" || family == c.model.family || model::known_family(family)) return;
      std::vector<std::string> known(model::known_families().begin(), model::known_families().end());
      throw usage_error(fmt::format("memory.estimators: unknown model family '{}'{}", escaped(family, 60),
                                    did_you_mean(family, known)),
                        R"("*" is for every family without a line of its own)", rule.second.where);
    });
  if (rules.empty() || s.overridden("memory.estimator")) return;
  if (s.given("memory.estimator"))
    throw usage_error("memory.estimator and [memory.estimators] are both given",
                      R"(in the table, "*" is for every family without a line of its own)",
                      s.where("memory.estimator"));
  auto rule = rules.find(c.model.family);
  if (rule == rules.end()) rule = rules.find("*");
  if (rule == rules.end()) return;
  c.estimators.clear();
  for (const Value& v :
       rule->second.kind == Value::Kind::kList ? rule->second.items : std::vector{rule->second})
    c.estimators.push_back(v.text);
  c.estimator_rule = "memory.estimators." + (rule->first == "*" ? "\"*\"" : rule->first);
  c.estimator_rule_at = rule->second.where;
}

/// 0 in RunSpec means that no budget is known; c.budget keeps the difference between unset and given.
void set_memory(const Settings& s, RunConfig& c) {
  c.device = s.text("memory.device");
  c.budget = s.size("memory.budget");
  c.host_budget = s.size("memory.host_budget");
  c.run.device_budget = c.budget.value_or(0);
  c.run.host_budget = c.host_budget.value_or(0);
  c.estimators.clear();
  for (const Value& v : s.list("memory.estimator")) c.estimators.push_back(v.text);
  if (s.given("memory.estimator")) c.estimator_rule = "memory.estimator";
  set_family_estimators(s, c);
}

/// runs/NAME in the current directory, not in the folder of the run file, which may be shared or read-only.
/// NAME is the file's name, or its folder's if the file is called run.toml; without a run file that of the
/// folder of model.path.
fs::path default_output(const fs::path& file, const fs::path& model_path) {
  if (file.empty()) {
    const fs::path model =
        model_path.has_filename() ? model_path.filename() : model_path.parent_path().filename();
    return fs::current_path() / "runs" / (model.empty() ? fs::path("builtin") : model);
  }
  const std::string stem = file.stem().string(), folder = file.parent_path().filename().string();
  return fs::current_path() / "runs" / (stem == "run" && !folder.empty() ? folder : stem);
}

/// Not created here: planning must not write anything.
void set_output(const Settings& s, const fs::path& base, RunConfig& c) {
  c.output.dir = s.given("output.dir")
                     ? resolve_path(s.text("output.dir"), base)
                     : default_output(c.file, s.given("model.path") ? c.model_folder : fs::path());
  c.output.cache = c.output.dir / "cache";
  c.output.checkpoint_every = u64(s, "output.checkpoint_every");
  c.output.keep = u64(s, "output.keep");
  c.output.checkpoint_minutes = s.number("train.checkpoint_minutes");
  c.output.model_best = s.given("output.model") ? s.text("output.model") == "best" : c.early_stopping > 0;
  c.output.keep_best = s.flag("output.keep_best") || c.output.model_best || c.early_stopping > 0;
  c.output.report = s.flag("output.report");
  c.output.sample_every = u64(s, "output.sample_every");
  c.output.async_checkpoints = s.flag("output.async_checkpoints");
  c.output.tensorboard = s.flag("output.tensorboard");
  if (s.given("output.dtype"))
    c.output.dtype = type_of_run_file_name(s.text("output.dtype")).value();
  else if (s.given("model.path"))
    c.output.dtype = model_config_dtype(c.model).value_or(DType::kF32);
}

/// Values of options stay text: only the plugin knows their types.
void set_plugins(const Settings& s, const fs::path& base, RunConfig& c) {
  for (const Value& v : s.list("plugins.path"))
    s.rule([&] {
      const fs::path path = resolve_path(v.text, base);
      require_folder(path, "plugins.path", s.where("plugins.path"));
      c.plugin_path.push_back(path);
    });
  if (s.given("plugins.order")) {
    c.backend_order.clear();
    for (const Value& v : s.list("plugins.order")) c.backend_order.push_back(v.text);
    c.backend_order_at = s.where("plugins.order");
  }
  for (const Value& v : s.list("plugins.allow")) c.plugin_allow.push_back(sha256_digits(v.text));
  for (const auto& [name, v] : s.plugin_values()) {
    const auto dot = name.find('.');
    const std::string text = v.kind == Value::Kind::kText ? v.text : written(v);
    c.plugin_options[name.substr(0, dot)][name.substr(dot + 1)] = text;
    c.plugin_option_lines[name] = {v.where.line, v.where.column};
  }
  // The cuda trainer's plan depends on the number of multiprocessors, also where the device is not present.
  if (const DevicePreset* d = find_device_preset(c.device); d && d->multiprocessors != 0)
    c.plugin_options["cuda"].emplace("multiprocessors", std::to_string(d->multiprocessors));
}

}  // namespace

/// Order: rules for several keys, model, then one table after the other. The model comes first, because rules
/// about layers need it; find_conflicts() comes last, because it reads the complete RunSpec.
RunConfig resolve_settings(Settings s, const fs::path& file, const fs::path& base,
                           const std::set<std::string>& open, bool usual) {
  validate_combinations(s);
  RunConfig c;
  c.file = file;
  const bool model = s.rule([&] {
    adopt_model_of_adapter(s, base);
    set_model(s, base, c);
  });
  if (!model) s.mark_invalid("model");
  c.assumed = assume_usual_run(s, usual, c.model);
  if (!c.assumed.empty()) validate_combinations(s);  // for the assumed values
  if (model) s.rule([&] { validate_against_layers(s, c.model.layers, open); });
  s.rule([&] { set_data(s, base, c); });
  bool complete = s.rule([&] { set_train(s, c); });
  s.rule([&] { set_safety(s, c); });
  complete &= s.rule([&] { set_optimizer(s, c); });
  s.rule([&] { set_memory(s, c); });
  complete &= s.rule([&] { set_parallel(s, c); });
  complete &= s.rule([&] { set_global_batch(s, c); });
  complete &= s.rule([&] { set_plan(s, c); });
  complete &= s.rule([&] { set_lora(s, base, c); });
  if (model) complete &= s.rule([&] { set_trainable(s, c); });
  s.rule([&] { set_output(s, base, c); });
  s.rule([&] { set_plugins(s, base, c); });
  s.rule([&] { set_framework(s, c); });
  c.safe = s.flag("plan.safe");
  const bool known = model && !open.contains("parallel.expert") && c.run.parallel.expert > 1 &&
                     model::known_family(c.model.family);
  const std::uint64_t experts = known ? experts_of(model::from_model(c.model)) : 0;
  std::set<std::string> unchecked = open;
  if (known && experts == 0) {
    // Before find_conflicts(), whose hint names numbers of ranks.
    s.rule([&] {
      throw usage_error(
          fmt::format("parallel.expert = {}, but {} has no experts; use 1", c.run.parallel.expert,
                      c.model.name.empty() ? "this model" : escaped(c.model.name, 80)),
          {}, s.where("parallel.expert"));
    });
    unchecked.insert("parallel.expert");
  }
  if (complete)
    for (const Conflict& conflict : find_conflicts(c.run, unchecked, experts))
      s.rule([&] { throw usage_error(conflict.sentence, conflict.hint, s.where(conflict.key)); });
  for (const auto& [key, v] : s.values()) c.given[key] = v.where;
  for (const RunConfig::Assumed& a : c.assumed) c.given.erase(a.key);
  if (!c.estimator_rule_at.file.empty()) c.given["memory.estimator"] = c.estimator_rule_at;
  c.resolved = [settings = std::make_shared<const Settings>(std::move(s)), base] {
    return resolved_text(*settings, base);
  };
  return c;
}

}  // namespace trainhost::runfile
