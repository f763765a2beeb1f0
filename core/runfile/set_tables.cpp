// See set_tables.hpp. One function per table. Every key was checked against its schema row, so .value() and
// indices into lists of fixed length cannot fail here; this file only looks up files, device names and words.
#include "core/runfile/set_tables.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>

#include "core/base/text.hpp"
#include "core/base/types.hpp"
#include "core/model/architecture.hpp"
#include "core/model/presets.hpp"
#include "core/runfile/combinations.hpp"
#include "core/runfile/paths.hpp"
#include "core/runfile/schema.hpp"
#include "core/runfile/suggest.hpp"

namespace fs = std::filesystem;

namespace trainhost::runfile {
namespace {

/// A glob is expanded now, so that plan and training use the same list, in sorted order.
std::vector<fs::path> files_of(const Settings& s, const char* key, const fs::path& base) {
  std::vector<fs::path> out;
  for (const Value& v : s.list(key))
    for (fs::path& p : expand_files(v.text, base, key, s.where(key))) out.push_back(std::move(p));
  return out;
}

void set_data(const Settings& s, const fs::path& base, RunConfig& c) {
  c.data.train = files_of(s, "data.train", base);
  c.data.valid = files_of(s, "data.valid", base);
  c.data.valid_fraction = s.number("data.valid_fraction");
  c.data.tokenizer = s.text("data.tokenizer");
  if (c.data.tokenizer != "bytes") {
    const fs::path path = resolve_path(c.data.tokenizer, base);
    require_file(path, "data.tokenizer", s.where("data.tokenizer"));
    c.data.tokenizer = path.string();
  }
  c.data.order = s.text("data.order") == "sequential" ? Order::kSequential : Order::kShuffled;
  c.data.dtype = s.text("data.dtype");
}

/// RunSpec's defaults are those of fp32. Narrower precisions keep f32 master weights and moments; tf32 only
/// changes the arithmetic.
void set_precision(const std::string& precision, RunSpec& r) {
  if (precision == "tf32") r.compute = DType::kTF32;
  if (precision == "bf16") r.weight = r.compute = DType::kBF16, r.master = DType::kF32;
  if (precision == "fp16") r.weight = r.compute = DType::kF16, r.master = DType::kF32;
  if (precision == "fp8") r.weight = r.compute = DType::kF8, r.master = DType::kF32;
}

/// The schema lists exactly the words that type_of_word() knows.
DType parse_type(const std::string& name) { return type_of_run_file_name(name).value(); }

std::uint32_t u32(const Settings& s, const char* key) { return static_cast<std::uint32_t>(s.integer(key)); }
std::uint64_t u64(const Settings& s, const char* key) { return static_cast<std::uint64_t>(s.integer(key)); }

void set_train(const Settings& s, RunConfig& c) {
  c.backend = s.text("train.backend");
  c.precision = s.text("train.precision");
  c.steps = u64(s, "train.steps");
  c.eval_every = u64(s, "train.eval_every");
  c.threads = u32(s, "train.threads");
  c.run.micro_batch = u32(s, "train.micro_batch");
  c.run.seq_len = u32(s, "data.seq_len");
  c.run.accumulate = u32(s, "train.grad_accum");
  c.run.seed = u64(s, "train.seed");
  c.run.memory.recompute_every = u32(s, "train.recompute_every");
  c.run.recompute = recompute_from(s.text("train.recompute")).value();
  set_precision(c.precision, c.run);
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
                                                : Schedule::kCosine;
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
  for (const auto& [family, value] : rules)
    if (family != "*" && family != c.model.family && !model::known_family(family)) {
      std::vector<std::string> known(model::known_families().begin(), model::known_families().end());
      throw usage_error(fmt::format("memory.estimators: unknown model family '{}'{}", escaped(family, 60),
                                    did_you_mean(family, known)),
                        R"("*" is for every family without a line of its own)", value.where);
    }
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
  if (!c.device.empty() && !find_device_preset(c.device)) {
    throw usage_error(fmt::format("memory.device = \"{}\": unknown device{}", escaped(c.device, 80),
                                  suggest_device(c.device)),
                      "`trainhost devices` lists the known devices; memory.budget accepts any size",
                      s.where("memory.device"));
  }
  c.budget = s.size("memory.budget");
  c.host_budget = s.size("memory.host_budget");
  c.run.device_budget = c.budget.value_or(0);
  c.run.host_budget = c.host_budget.value_or(0);
  c.estimators.clear();
  for (const Value& v : s.list("memory.estimator")) c.estimators.push_back(v.text);
  if (s.given("memory.estimator")) c.estimator_rule = "memory.estimator";
  set_family_estimators(s, c);
}

/// Whether the sizes fit each other and the model is checked in core/model and core/parallel, which know
/// both.
void set_parallel(const Settings& s, RunConfig& c) {
  c.run.parallel.data = u32(s, "parallel.data");
  c.run.parallel.tensor = u32(s, "parallel.tensor");
  c.run.parallel.pipeline = u32(s, "parallel.pipeline");
  c.run.parallel.zero = u32(s, "parallel.zero");
  MemoryPolicy& memory = c.run.memory;
  c.run.parallel.sequence = s.flag("parallel.sequence");
  c.run.parallel.context = u32(s, "parallel.context");
  c.run.parallel.expert = u32(s, "parallel.expert");
  c.run.parallel.virtual_stages = u32(s, "parallel.interleave");
  memory.vocab_multiple = u32(s, "parallel.vocab_multiple");
}

Tier parse_tier(const Settings& s, const char* key) { return tier_of_offload_name(s.text(key)).value(); }

/// Keys of [plan] replace what train.precision and the optimizer imply, so this follows set_train(). Only
/// given keys replace anything: the defaults depend on other keys.
void set_plan(const Settings& s, RunConfig& c) {
  RunSpec& r = c.run;
  MemoryPolicy& memory = r.memory;
  if (s.text("plan.mode") == "inference") r.mode = RunMode::kInference;
  if (s.given("plan.weights")) {
    r.weight = parse_type(s.text("plan.weights"));
    r.master = r.weight == DType::kF32 || r.mode == RunMode::kInference ? DType::kNone : DType::kF32;
  }
  if (s.given("plan.gradients")) r.grad = parse_type(s.text("plan.gradients"));
  if (s.given("plan.master")) r.master = parse_type(s.text("plan.master"));
  if (s.given("plan.moments")) r.moment = parse_type(s.text("plan.moments"));
  if (s.text("plan.attention") == "materialised") memory.attention = AttentionMemory::kMaterialised;
  if (s.text("plan.cross_entropy") == "plain" || s.text("plan.cross_entropy") == "chunked")
    memory.cross_entropy = CrossEntropy::kPlain;
  if (s.text("plan.cross_entropy") == "in-place") memory.cross_entropy = CrossEntropy::kInPlace;
  memory.weights_in = parse_tier(s, "plan.offload_weights");
  memory.optimizer_in = parse_tier(s, "plan.offload_optimizer");
  memory.activations_in = parse_tier(s, "plan.offload_activations");
  // Quantized weights do not make the cache narrower: inference software keeps it in 16 bits.
  if (s.given("plan.kv_cache"))
    memory.kv_cache = parse_type(s.text("plan.kv_cache"));
  else if (r.mode == RunMode::kInference && bits_of(r.weight) < 16)
    memory.kv_cache = DType::kBF16;
  memory.kv_page = u32(s, "plan.kv_page");
}

/// The presence of [lora] switches to adapters. Rank 8 and alpha 16 are the defaults of the PEFT library.
void set_lora(const Settings& s, RunConfig& c) {
  if (!s.table_given("lora")) return;
  const auto names = lora_target_names();
  c.run.mode = RunMode::kLora;
  c.run.lora_rank = s.given("lora.rank") ? u32(s, "lora.rank") : 8;
  c.run.lora_alpha = s.given("lora.alpha") ? s.number("lora.alpha") : 16;
  MemoryPolicy& memory = c.run.memory;
  if (s.given("lora.base")) memory.frozen = parse_type(s.text("lora.base"));
  // QLoRA is LoRA over 4-bit weights; the mode follows from the type, so it has no key of its own.
  if (memory.frozen == DType::kNF4) c.run.mode = RunMode::kQlora;
  memory.double_quantized = s.flag("lora.double_quant");
  memory.dora = s.flag("lora.dora");
  std::vector<std::string> targets{"q_proj", "v_proj"};
  if (s.given("lora.targets")) {
    targets.clear();
    for (const Value& v : s.list("lora.targets")) targets.push_back(v.text);
  }
  for (const std::string& target : targets) {
    if (target == "all-linear") {  // as peft names every matrix of a layer
      c.run.lora_targets |= (1u << names.size()) - 1;
      continue;
    }
    const auto found = std::find(names.begin(), names.end(), target);
    if (found == names.end())
      throw usage_error(
          fmt::format("lora.targets: unknown matrix '{}'{}", escaped(target, 80), suggest_target(target)),
          fmt::format("expected \"all-linear\", or one or more of {}", fmt::join(names, ", ")),
          s.where("lora.targets"));
    c.run.lora_targets |= 1u << (found - names.begin());
  }
}

/// runs/NAME in the current directory, not in the folder of the run file, which may be shared or read-only.
/// NAME is the file's name, or its folder's if the file is called run.toml.
fs::path default_output(const fs::path& file) {
  if (file.empty()) return fs::current_path() / "runs" / "builtin";
  const std::string stem = file.stem().string(), folder = file.parent_path().filename().string();
  return fs::current_path() / "runs" / (stem == "run" && !folder.empty() ? folder : stem);
}

/// Not created here: planning must not write anything.
void set_output(const Settings& s, const fs::path& base, RunConfig& c) {
  c.output.dir = s.given("output.dir") ? resolve_path(s.text("output.dir"), base) : default_output(c.file);
  c.output.cache = c.output.dir / "cache";
  c.output.checkpoint_every = u64(s, "output.checkpoint_every");
  c.output.keep = u64(s, "output.keep");
  c.output.checkpoint_minutes = s.number("train.checkpoint_minutes");
  c.output.keep_best = s.flag("output.keep_best");
  c.output.async_checkpoints = s.flag("output.async_checkpoints");
}

/// The digest as sha256sum prints it, in lower case. The prefix "sha256:" is optional.
std::string parse_sha256(const std::string& text, const Where& where) {
  std::string digest = text.starts_with("sha256:") ? text.substr(7) : text;
  for (char& ch : digest) ch = static_cast<char>(ch >= 'A' && ch <= 'F' ? ch - 'A' + 'a' : ch);
  if (digest.size() != 64 || digest.find_first_not_of("0123456789abcdef") != digest.npos)
    throw usage_error(fmt::format("plugins.allow: '{}' is not a SHA-256 digest", escaped(digest, 80)),
                      "expected 64 hex digits, as printed by `sha256sum FILE`", where);
  return digest;
}

/// "auto" in its own order would mean nothing; a backend listed twice would be probed twice.
std::vector<std::string> backend_order(const Settings& s) {
  std::vector<std::string> order;
  for (const Value& v : s.list("plugins.order")) {
    if (v.text == "auto" || v.text.empty() || std::find(order.begin(), order.end(), v.text) != order.end())
      throw usage_error(
          fmt::format("plugins.order: '{}' {}", escaped(v.text, 80),
                      v.text == "auto" || v.text.empty() ? "is not a backend name" : "is listed twice"),
          "list each backend once, for example [\"cuda\", \"cpu\"]", s.where("plugins.order"));
    order.push_back(v.text);
  }
  return order;
}

/// Values of options stay text: only the plugin knows their types.
void set_plugins(const Settings& s, const fs::path& base, RunConfig& c) {
  for (const Value& v : s.list("plugins.path")) {
    const fs::path path = resolve_path(v.text, base);
    require_folder(path, "plugins.path", s.where("plugins.path"));
    c.plugin_path.push_back(path);
  }
  if (s.given("plugins.order"))
    c.backend_order = backend_order(s), c.backend_order_at = s.where("plugins.order");
  for (const Value& v : s.list("plugins.allow"))
    c.plugin_allow.push_back(parse_sha256(v.text, s.where("plugins.allow")));
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

/// Keys of [plan] that only the estimator of a framework reads. It gets them as options, named by what
/// follows "plan.". `only`: the framework that has the setting; "": several have it.
struct FrameworkKey {
  const char *key, *only = "";
};
constexpr FrameworkKey kFrameworkKeys[] = {{"plan.framework_version"},
                                           {"plan.execution"},
                                           {"plan.optimizer_implementation"},
                                           {"plan.optimizer_in_backward"},
                                           {"plan.optimizer_paged"},
                                           {"plan.allocator"},
                                           {"plan.runtime"},
                                           {"plan.fsdp_version"},
                                           {"plan.no_sync"},
                                           {"plan.ddp_bucket"},
                                           {"plan.gradient_as_bucket_view"},
                                           {"plan.reduce_bucket", "deepspeed"},
                                           {"plan.overlap_reduce", "deepspeed"},
                                           {"plan.prefetch_bucket", "deepspeed"},
                                           {"plan.persistence_threshold", "deepspeed"},
                                           {"plan.max_live", "deepspeed"},
                                           {"plan.reuse_distance", "deepspeed"}};

/// The default cross-entropy of a framework.
CrossEntropy default_cross_entropy(std::string_view framework) {
  if (framework == "megatron") return CrossEntropy::kInPlace;
  if (framework == "torchtune" || framework == "unsloth") return CrossEntropy::kFused;  // in chunks of tokens
  return CrossEntropy::kPlain;
}

void set_framework(const Settings& s, RunConfig& c) {
  c.framework = s.given("plan.framework") ? s.text("plan.framework") : "";
  if (c.framework == "trainhost") c.framework.clear();
  std::map<std::string, std::string> options;
  for (const auto& [key, only] : kFrameworkKeys) {
    if (!s.given(key)) continue;
    if (c.framework.empty())
      throw usage_error(fmt::format("{} is a setting of a framework, but plan.framework is not given", key),
                        "example: --for pytorch", s.where(key));
    const std::string name = std::string(key).substr(5);
    if (*only && c.framework != only)
      throw usage_error(
          fmt::format("{} is a setting of {}, but plan.framework is {}", key, only, c.framework),
          fmt::format("leave it out, or plan with --for {}", only), s.where(key));
    const Type type = find_key(key)->type;
    options[name] = type == Type::kSize      ? std::to_string(s.size(key).value())
                    : type == Type::kInteger ? std::to_string(s.integer(key))
                    : type == Type::kBool    ? (s.flag(key) ? "true" : "false")
                                             : s.text(key);
  }
  if (c.framework.empty()) return;
  options["framework"] = c.framework;
  // In RunSpec too, where a default cannot be told from a value that was given.
  if (s.given("plan.cross_entropy"))
    options["cross_entropy"] = s.text("plan.cross_entropy");
  else
    c.run.memory.cross_entropy = default_cross_entropy(c.framework);
  c.plugin_options[""] = std::move(options);  // plugin::kFrameworkOptions
}
}  // namespace

std::span<const std::string> lora_target_names() {
  static const std::vector<std::string> names{"q_proj",    "k_proj",  "v_proj",   "o_proj",
                                              "gate_proj", "up_proj", "down_proj"};
  return names;
}

/// The order matters: [plan] and [lora] replace what train.precision implies, and a framework replaces the
/// default of plan.cross_entropy.
void set_tables(const Settings& s, const fs::path& base, RunConfig& c) {
  set_data(s, base, c);
  set_train(s, c);
  set_safety(s, c);
  set_optimizer(s, c);
  set_memory(s, c);
  set_parallel(s, c);
  set_plan(s, c);
  set_lora(s, c);
  set_output(s, base, c);
  set_plugins(s, base, c);
  set_framework(s, c);
  c.safe = s.flag("plan.safe");
}

}  // namespace trainhost::runfile
