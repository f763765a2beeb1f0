// [lora] and model.adapter: which matrices get an adapter, and of which size. New adapters are those of the
// run file; with model.adapter its folder defines them, and keys that are given must agree.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "core/base/text.hpp"
#include "core/model/adapter_rules.hpp"
#include "core/model/adapters.hpp"
#include "core/model/trainable.hpp"
#include "core/runfile/adapter_config.hpp"
#include "core/runfile/combinations.hpp"
#include "core/runfile/paths.hpp"
#include "core/runfile/planned_settings.hpp"
#include "core/runfile/schema.hpp"

namespace trainhost::runfile {
namespace {

/// True for names of matrices: "model.layers.0.mlp.up_proj", "layers.1?.*", "down_proj".
bool matches_module(const std::string& pattern, const std::string& module) {
  return matches_glob(pattern, module) || matches_glob("*." + pattern, module);
}

/// An entry of lora.targets.
struct Target {
  std::uint32_t kinds = 0;  // bits of lora_targets
  std::string pattern;      // instead of the above
};

Target target_of(const std::string& text) {
  const auto names = lora_target_names();
  Target t;
  if (is_module_pattern(text)) return t.pattern = text, t;
  if (text == "lm_head") return t.kinds = kTargetHead, t;
  if (text == "embed_tokens") return t.kinds = kTargetEmbedding, t;
  if (text == "all-linear")
    return t.kinds = (1u << names.size()) - 1, t;  // as peft names every matrix of a layer
  // Known names only: validate_names().
  t.kinds = 1u << (std::ranges::find(names, text) - names.begin());
  return t;
}

std::vector<Target> targets_of(const Settings& s) {
  std::vector<Target> targets;
  if (!s.given("lora.targets")) return {target_of("q_proj"), target_of("v_proj")};
  for (const Value& v : s.list("lora.targets")) targets.push_back(target_of(v.text));
  return targets;
}

/// lora.rank_pattern or lora.alpha_pattern.
template <class T>
using Patterns = std::vector<std::pair<std::string, T>>;

std::string_view without_spaces(std::string_view text) {
  const std::size_t first = text.find_first_not_of(' ');
  return first == text.npos ? std::string_view() : text.substr(first, text.find_last_not_of(' ') - first + 1);
}

template <class T>
Patterns<T> patterns_of(const Settings& s, const char* key, T most) {
  Patterns<T> out;
  if (!s.given(key)) return out;
  for (const Value& v : s.list(key)) {
    const std::size_t equals = v.text.rfind('=');
    const std::string_view text = v.text;
    const std::string pattern(without_spaces(text.substr(0, std::min(equals, text.size())))),
        number(without_spaces(equals == text.npos ? "" : text.substr(equals + 1)));
    T value{};
    const auto read = std::from_chars(number.data(), number.data() + number.size(), value);
    if (pattern.empty() || number.empty() || read.ec != std::errc() ||
        read.ptr != number.data() + number.size() || !(value > 0 && value <= most))
      throw usage_error(fmt::format("{}: '{}' is not a pattern with a number from {} to {}", key,
                                    escaped(v.text, 200), std::is_integral_v<T> ? "1" : "above 0", most),
                        fmt::format("example: {} = [\"*.down_proj = 32\"]", key), s.where(key));
    out.emplace_back(pattern, value);
  }
  return out;
}

/// Whether an entry of lora.targets names a matrix. Wildcards are for matrices of the layers.
bool is_target(const Target& t, const AdaptableMatrix& x) {
  if (t.kinds & x.target) return true;
  if (t.pattern.empty() ||
      ((x.target & kTargetsOutsideLayers) && t.pattern.find_first_of("*?") != t.pattern.npos))
    return false;
  return matches_module(t.pattern, x.module);
}

/// A pattern that matches only the LM head or the embedding names no target: each is listed by its name.
void require_target(const Settings& s, const Target& t, const std::vector<AdaptableMatrix>& all) {
  if (std::ranges::any_of(all, [&](const AdaptableMatrix& x) { return is_target(t, x); })) return;
  throw usage_error(
      fmt::format("'{}' in lora.targets matches no matrix of the layers", escaped(t.pattern, 200)),
      "name the others: \"lm_head\", \"embed_tokens\"", s.where("lora.targets"));
}

/// True for runs of trainhost's trainers, which adapt matrices outside the layers. Of others planners are
/// told (MemoryPolicy).
bool trains_outside_layers(const Settings& s, const RunConfig& c) {
  return trainable_family(c.model.family) &&
         (!s.given("plan.framework") || s.text("plan.framework") == "trainhost");
}

/// Planners of other frameworks know adapters outside the layers with the rank of the run only.
void require_rank_of_run(const Settings& s, const RunConfig& c, const char* module) {
  const std::uint32_t rank = size_of_adapter(c.run, module).rank;
  if (rank == c.run.lora_rank) return;
  const char* key = c.adapter ? "model.adapter" : "lora.rank_pattern";
  throw usage_error(
      fmt::format("the adapter of {} has rank {}, but --for {} plans it with that of the run only, {}",
                  module, rank, escaped(s.text("plan.framework"), 80), c.run.lora_rank),
      c.adapter ? "plan with --for trainhost" : "remove its rank, or plan with --for trainhost",
      s.where(key));
}

/// Of a run of another framework: adapters of matrices outside the layers as planners know them, without bits
/// of lora_targets and lines of lora_rules, which are those of a step program and of replays.
void leave_outside_layers_to_planners(const Settings& s, RunConfig& c) {
  if (trains_outside_layers(s, c)) return;
  c.run.memory.adapts_head = c.run.lora_targets & kTargetHead;
  c.run.memory.adapts_embedding = c.run.lora_targets & kTargetEmbedding;
  if (trainable_family(c.model.family)) {
    if (c.run.memory.adapts_head) require_rank_of_run(s, c, "lm_head");
    if (c.run.memory.adapts_embedding) require_rank_of_run(s, c, "model.embed_tokens");
  }
  c.run.lora_targets &= ~kTargetsOutsideLayers;
  std::string rules;
  for (std::string_view rest = c.run.lora_rules; !rest.empty();) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
    if (!line.starts_with("lm_head ") && !line.starts_with("model.embed_tokens "))
      rules.append(rules.empty() ? "" : "\n").append(line);
  }
  c.run.lora_rules = std::move(rules);
}

/// A pattern that matches no matrix is a spelling mistake.
void require_match(const Settings& s, const char* key, const std::string& pattern,
                   const std::vector<AdaptableMatrix>& all) {
  if (std::ranges::any_of(all, [&](const AdaptableMatrix& x) { return matches_module(pattern, x.module); }))
    return;
  // By the last part of the name first: "layers.0.q_prj" means a q_proj.
  const auto last_part = [](const std::string& name) { return name.substr(name.rfind('.') + 1); };
  const auto nearest = std::ranges::min_element(all, {}, [&](const AdaptableMatrix& x) {
    return std::pair(glob_distance(last_part(pattern), last_part(x.module)),
                     glob_distance("*" + pattern, x.module));
  });
  throw usage_error(fmt::format("'{}' in {} matches no matrix of the model; the nearest is {}",
                                escaped(pattern, 200), key, nearest->module),
                    "* matches any text: \"layers.0.*\"", s.where(key));
}

/// Frameworks whose adapters are those of peft, each with a rank of its own.
bool adapts_by_peft(const Settings& s) {
  const std::string& f = s.text("plan.framework");
  return f == "pytorch" || f == "transformers" || f == "axolotl" || f == "llama-factory";
}

/// Adapters that are not alike in all layers need the names of the matrices, and a step program or a replay.
void require_known_matrices(const Settings& s, const RunConfig& c, const char* key) {
  if (!trainable_family(c.model.family))
    throw usage_error(
        fmt::format("{} with patterns needs the matrices of the model, and those of the family '{}' are "
                    "not known by name",
                    key, escaped(c.model.family, 80)),
        "name whole kinds of matrices: lora.targets = [\"q_proj\", \"v_proj\"]", s.where(key));
  if (s.given("plan.framework") && s.text("plan.framework") != "trainhost" && !adapts_by_peft(s))
    throw usage_error(
        fmt::format("{} with patterns cannot be planned for {}", key, escaped(s.text("plan.framework"), 80)),
        "remove the patterns, or plan with --for transformers", s.where(key));
}

/// lora_targets and lora_rules of the keys of [lora].
void set_new_adapters(const Settings& s, RunConfig& c) {
  const std::vector<Target> targets = targets_of(s);
  const auto ranks = patterns_of<std::uint32_t>(s, "lora.rank_pattern", 65536);
  const auto alphas = patterns_of<double>(s, "lora.alpha_pattern", 1e6);
  const char* key = !ranks.empty() ? "lora.rank_pattern" : !alphas.empty() ? "lora.alpha_pattern" : nullptr;
  for (const Target& t : targets) {
    c.run.lora_targets |= t.kinds;
    if (!t.pattern.empty()) key = "lora.targets";
  }
  if (!key) return leave_outside_layers_to_planners(s, c);
  require_known_matrices(s, c, key);
  const std::vector<AdaptableMatrix> all = adaptable_matrices(c.model);
  for (const Target& t : targets)
    if (!t.pattern.empty()) require_match(s, "lora.targets", t.pattern, all), require_target(s, t, all);
  for (const auto& [pattern, rank] : ranks) require_match(s, "lora.rank_pattern", pattern, all);
  for (const auto& [pattern, alpha] : alphas) require_match(s, "lora.alpha_pattern", pattern, all);
  const auto value_of = [](const auto& patterns, const std::string& module, auto otherwise) {
    for (const auto& [pattern, value] : patterns)
      if (matches_module(pattern, module)) return value;
    return otherwise;
  };
  set_adapters(
      c.model,
      [&](const AdaptableMatrix& x) -> AdapterSize {
        if (std::ranges::none_of(targets, [&](const Target& t) { return is_target(t, x); })) return {};
        const std::uint32_t rank = value_of(ranks, x.module, c.run.lora_rank);
        const double alpha = value_of(alphas, x.module, c.lora.alpha);
        return {rank, c.lora.rslora ? alpha * std::sqrt(rank) : alpha};
      },
      c.run);
  leave_outside_layers_to_planners(s, c);
}

/// Those of an adapter folder.
void set_adapters_of(const AdapterConfig& from, const ModelSpec& m, RunSpec& r) {
  r.lora_rank = from.rank;
  r.lora_alpha = from.rslora ? from.alpha * std::sqrt(from.rank) : from.alpha;
  if (!trainable_family(m.family)) {  // planned, by kinds of matrices
    for (std::size_t i = 0; i < lora_target_names().size(); ++i)
      if (from.adapts("layers.0." + lora_target_names()[i])) r.lora_targets |= 1u << i;
    return;
  }
  set_adapters(
      m,
      [&](const AdaptableMatrix& x) {
        return from.adapts(x.module) ? from.size_of(x.module) : AdapterSize{};
      },
      r);
}

/// ensure_weight_tying: the embedding has the adapter of both.
void tie_adapter(const Settings& s, RunConfig& c) {
  const char* const key = "lora.ensure_weight_tying";
  if (s.given("plan.framework") && s.text("plan.framework") != "trainhost") {
    if (s.given(key) && s.flag(key))
      throw usage_error(
          fmt::format("{} cannot be planned for {}", key, escaped(s.text("plan.framework"), 80)),
          "remove the key: adapters of both are planned with \"lm_head\" and \"embed_tokens\" in "
          "lora.targets",
          s.where(key));
    return;
  }
  if (!c.model.tied)
    throw usage_error(fmt::format("{} = true, but embedding and LM head of the model are two tensors", key),
                      "remove the key: each has an adapter of its own", s.where(key));
  // A module of lora.modules_to_save is trained once without the key, too.
  if (!(c.run.lora_targets & kTargetsOutsideLayers)) {
    if (trains_tied_embedding(c.model, c.run)) return;
    throw usage_error(fmt::format("{} = true, but neither embedding nor LM head has an adapter", key),
                      "add \"embed_tokens\" to lora.targets", s.where(key));
  }
  // One adapter has one rank, and files of adapters would have to give it to both modules.
  for (const char* module : {"lm_head ", "model.embed_tokens "})
    if (("\n" + c.run.lora_rules).find(std::string("\n") + module) != std::string::npos)
      throw usage_error(
          fmt::format(
              "{} = true, but lora.rank_pattern or lora.alpha_pattern gives embedding or LM head a size "
              "of its own",
              key),
          "remove that pattern: the adapter of both has lora.rank and lora.alpha", s.where(key));
  c.run.lora_targets = (c.run.lora_targets & ~kTargetHead) | kTargetEmbedding | kTiedAdapter;
}

/// The kinds of matrices of lora_targets, and whether some of them are adapted in another way.
std::string describe_targets(const RunSpec& r) {
  return fmt::format("{}{}", fmt::join(names_of_targets(r.lora_targets), ", "),
                     r.lora_rules.empty() ? "" : " with patterns");
}

/// Rules: the keys of [lora] agree with the adapter that the run starts from.
void require_settings_of_adapter(const Settings& s, const RunConfig& c, const AdapterConfig& from) {
  const auto differs = [&](const char* key, const std::string& given, const std::string& of_adapter) {
    s.rule([&] {
      s.depends_on(key);
      throw usage_error(fmt::format("{} = {}, but the adapter in {} has {}", key, given,
                                    escaped(c.adapter->string(), 4096), of_adapter),
                        "remove the key: model.adapter defines it", s.where(key));
    });
  };
  if (s.given("lora.rank") && u32(s, "lora.rank") != from.rank)
    differs("lora.rank", std::to_string(u32(s, "lora.rank")), std::to_string(from.rank));
  if (c.lora.alpha != from.alpha)
    differs("lora.alpha", fmt::format("{}", c.lora.alpha), fmt::format("{}", from.alpha));
  if (c.lora.rslora != from.rslora)
    differs("lora.rslora", fmt::format("{}", c.lora.rslora), fmt::format("{}", from.rslora));
  if (ties_adapter(c.run) != (from.tied && c.model.tied && from.adapts_outside_layers()))
    differs("lora.ensure_weight_tying", fmt::format("{}", ties_adapter(c.run)), fmt::format("{}", from.tied));
  if (c.run.memory.dora != from.dora)
    differs("lora.dora", fmt::format("{}", c.run.memory.dora), fmt::format("{}", from.dora));
  if (c.run.trainable != rules_of_modules(from.modules_to_save))
    differs("lora.modules_to_save", toml_value(s.values().at("lora.modules_to_save")),
            from.modules_to_save.empty() ? "none" : fmt::format("{}", fmt::join(from.modules_to_save, ", ")));
  RunConfig given = c;
  given.run.lora_rules.clear(), given.run.lora_targets = 0;
  const char* key = s.given("lora.targets")         ? "lora.targets"
                    : s.given("lora.rank_pattern")  ? "lora.rank_pattern"
                    : s.given("lora.alpha_pattern") ? "lora.alpha_pattern"
                                                    : nullptr;
  if (!key) return;
  set_new_adapters(s, given);
  if (ties_adapter(c.run)) tie_adapter(s, given);
  if (given.run.lora_targets != c.run.lora_targets || given.run.lora_rules != c.run.lora_rules)
    differs(key, toml_value(s.values().at(key)), describe_targets(c.run));
}

/// lora.modules_to_save of a framework, as its planners know it: trained copies of embedding and LM head.
void set_planned_modules(const Settings& s, const std::vector<std::string>& modules, RunConfig& c) {
  for (const std::string& module : modules) {
    const bool head = module == "lm_head";
    if (!head && module != "embed_tokens" && module != "model.embed_tokens") {
      const char* key = s.given("lora.modules_to_save") ? "lora.modules_to_save" : "model.adapter";
      throw usage_error(fmt::format("'{}' in lora.modules_to_save cannot be planned for {}",
                                    escaped(module, 200), escaped(s.text("plan.framework"), 80)),
                        "lm_head and embed_tokens can; leave it out, or plan with --for trainhost",
                        s.where(key));
    }
    (head ? c.run.memory.saves_head : c.run.memory.saves_embedding) = true;
  }
  c.run.trainable.clear();
}

}  // namespace

/// [lora] starts new adapters: rank 8 and alpha 16 are the defaults of the PEFT library. With model.adapter,
/// rank, alpha, rslora, dora, targets and modules_to_save are those of its folder.
void set_lora(const Settings& s, const std::filesystem::path& base, RunConfig& c) {
  if (!adapts(s)) return;
  std::optional<AdapterConfig> from;
  if (s.given("model.adapter")) {
    c.adapter = resolve_path(s.text("model.adapter"), base);
    require_folder(*c.adapter, "model.adapter", s.where("model.adapter"));
    c.adapter = adapter_folder(*c.adapter).value_or(*c.adapter);  // of a run: adapter/ in it
    from = read_adapter_config(*c.adapter / "adapter_config.json");
  }
  c.run.mode = RunMode::kLora;
  c.run.lora_rank = from ? from->rank : s.given("lora.rank") ? u32(s, "lora.rank") : 8;
  c.lora.alpha = s.given("lora.alpha") ? s.number("lora.alpha") : from ? from->alpha : 16;
  c.lora.rslora = s.given("lora.rslora") || !from ? s.flag("lora.rslora") : from->rslora;
  // Trainers scale by lora_alpha / lora_rank.
  c.run.lora_alpha = c.lora.rslora ? c.lora.alpha * std::sqrt(c.run.lora_rank) : c.lora.alpha;
  MemoryPolicy& memory = c.run.memory;
  if (s.given("lora.base")) memory.frozen = type_of_run_file_name(s.text("lora.base")).value();
  if (memory.frozen == c.run.weight) memory.frozen = DType::kNone;  // what follows from train.precision
  // QLoRA is LoRA over 4-bit weights; the mode follows from the type, so it has no key of its own.
  if (memory.frozen == DType::kNF4) c.run.mode = RunMode::kQlora;
  memory.double_quantized = s.flag("lora.double_quant");
  memory.dora = s.given("lora.dora") || !from ? s.flag("lora.dora") : from->dora;
  memory.lora_dropout = s.given("lora.dropout") ? s.number("lora.dropout") : from ? from->dropout : 0;
  if (!from)
    set_new_adapters(s, c);
  else
    set_adapters_of(*from, c.model, c.run), leave_outside_layers_to_planners(s, c);
  std::vector<std::string> modules = from ? from->modules_to_save : std::vector<std::string>();
  if (s.given("lora.modules_to_save")) {
    modules.clear();
    for (const Value& v : s.list("lora.modules_to_save")) modules.push_back(v.text);
  }
  c.run.trainable = rules_of_modules(modules);
  // PEFT ties nothing in a model of two tensors.
  const bool tied_before = from && from->tied && c.model.tied && from->adapts_outside_layers();
  if (s.given("lora.ensure_weight_tying") ? s.flag("lora.ensure_weight_tying") : tied_before)
    tie_adapter(s, c);
  if (from) require_settings_of_adapter(s, c, *from);
  if (s.given("plan.framework") && s.text("plan.framework") != "trainhost")
    set_planned_modules(s, modules, c);
  const char* key = s.given("lora.rank_pattern") ? "lora.rank_pattern"
                    : from                       ? "model.adapter"
                                                 : "lora.targets";
  if (from && c.run.lora_targets == 0 && !memory.adapts_head && !memory.adapts_embedding)
    throw usage_error(
        fmt::format("the adapter in {} has no matrix of the model", escaped(c.adapter->string(), 4096)),
        "its target_modules are those of another architecture", s.where(key));
  // One rank per product is a rule of this program's trainers; peft adapts each matrix by itself.
  if (trainable_family(c.model.family) && !(s.given("plan.framework") && adapts_by_peft(s))) try {
      require_valid_adapters(c.model, c.run);
    } catch (const Error& e) {
      throw usage_error(e.what(), e.hint(), s.where(key));
    }
}

std::span<const std::string> lora_target_names() {
  static const std::vector<std::string> names{"q_proj",    "k_proj",  "v_proj",   "o_proj",
                                              "gate_proj", "up_proj", "down_proj"};
  return names;
}

std::vector<std::string> names_of_targets(std::uint32_t lora_targets) {
  std::vector<std::string> all(lora_target_names().begin(), lora_target_names().end()), names;
  all.insert(all.end(), {"lm_head", "embed_tokens"});
  for (std::size_t i = 0; i < all.size(); ++i)
    if (lora_targets >> i & 1) names.push_back(all[i]);
  return names;
}

bool is_module_pattern(const std::string& target) { return target.find_first_of("*?.") != target.npos; }

}  // namespace trainhost::runfile
