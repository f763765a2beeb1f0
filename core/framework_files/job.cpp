// See job.hpp: how a rule is found for a key and applied, how settings of several files meet, and typed
// values of entries. It knows no framework; what follows from several settings together is decided in
// read_files.cpp.
#include "core/framework_files/job.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <charconv>
#include <utility>

#include "core/base/misspelling.hpp"
#include "core/base/text.hpp"

namespace trainhost::framework_files {

using runfile::Entry;
using runfile::KeyUse;
using runfile::Value;

namespace {

std::string place(const Where& w) { return w.line ? fmt::format("{}:{}", w.file, w.line) : w.file; }

/// A rule matches its own key, or any key with its beginning if it ends in "*". "table.*" matches an empty
/// table too.
bool matches(std::string_view rule, std::string_view key, bool empty) {
  if (!rule.ends_with('*')) return rule == key;
  rule.remove_suffix(1);
  return key.starts_with(rule) || (empty && rule.ends_with('.') && key == rule.substr(0, rule.size() - 1));
}

/// Calls use(word) for each word of a text separated by spaces, until it returns true.
template <class Function>
bool any_word(std::string_view text, Function use) {
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(' '), text.size());
    if (end > 0 && use(text.substr(0, end))) return true;
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return false;
}

/// Calls use(word, key without its table) for each word of `sets` whose table has the key, until it returns
/// true.
template <class Function>
bool any_word_of(std::initializer_list<RuleSet> sets, std::string_view key, Function use) {
  return std::ranges::any_of(sets, [&](const RuleSet& set) {
    if (!key.starts_with(set.table)) return false;
    const std::string_view rest = key.substr(set.table.size());
    const auto with_rest = [&](std::string_view word) { return use(word, rest); };
    return std::ranges::any_of(set.rules, [&](const Rule& r) { return with_rest(r.key); }) ||
           any_word(set.without_effect, with_rest);
  });
}

/// Whether a key that a pattern matches is another key misspelt: "no-rope-fuson" is meant to be
/// "no-rope-fusion", not one of "no-*".
bool is_misspelt(std::initializer_list<RuleSet> sets, std::string_view key) {
  using Word = std::string_view;
  // "datasets*" names the key "datasets" too.
  const auto is = [](Word word, Word rest) {
    return word == rest || (word.ends_with('*') && word.substr(0, word.size() - 1) == rest);
  };
  const auto is_near = [](Word word, Word rest) {
    return !word.ends_with('*') && std::ranges::count(word, '.') == std::ranges::count(rest, '.') &&
           is_misspelling(rest, word);
  };
  return !any_word_of(sets, key, is) && any_word_of(sets, key, is_near);
}

/// The first rule of `sets` for an entry; null if no set knows its key, or if it matches a pattern alone and
/// is_misspelt(). Sets overlap on purpose: LLaMA-Factory and TRL give keys of TrainingArguments a meaning of
/// their own, so their sets come first.
const Rule* rule_of(std::initializer_list<RuleSet> sets, const Entry& e) {
  static constexpr Rule kWithoutEffect{"", Use::kNoEffect};
  const bool empty = e.value.kind == Value::Kind::kNull;
  for (const RuleSet& set : sets) {
    if (!e.key.starts_with(set.table)) continue;
    const std::string_view key = std::string_view(e.key).substr(set.table.size());
    for (const Rule& r : set.rules)
      if (matches(r.key, key, empty)) return r.key == key || !is_misspelt(sets, e.key) ? &r : nullptr;
    std::string_view found;
    if (any_word(set.without_effect,
                 [&](std::string_view word) { return found = word, matches(word, key, empty); }))
      return found == key || !is_misspelt(sets, e.key) ? &kWithoutEffect : nullptr;
  }
  return nullptr;
}

/// The known key that a misspelt one is most like, for the hint; "" if none is near.
std::string nearest_key(std::initializer_list<RuleSet> sets, const std::string& key) {
  std::vector<std::string> known;
  for (const RuleSet& set : sets) {
    const auto add = [&](std::string_view word) {
      if (!word.ends_with('*') && !word.starts_with('@'))
        known.push_back(std::string(set.table) + std::string(word));
      return false;
    };
    for (const Rule& r : set.rules) add(r.key);
    any_word(set.without_effect, add);
  }
  return nearest(key, known).value_or("");
}

/// The part of `choices` behind "word="; false if it is not listed.
bool choose(std::string_view choices, std::string_view word, std::string& ours) {
  while (!choices.empty()) {
    const std::size_t end = std::min(choices.find('|'), choices.size());
    const std::string_view choice = choices.substr(0, end);
    const std::size_t equals = choice.find('=');
    if (choice.substr(0, equals) == word) return ours = choice.substr(equals + 1), true;
    choices.remove_prefix(std::min(end + 1, choices.size()));
  }
  return false;
}

/// "a" and "b" of "a=1|b=".
std::vector<std::string> words_of(std::string_view choices) {
  std::vector<std::string> out;
  while (!choices.empty()) {
    const std::size_t end = std::min(choices.find('|'), choices.size());
    out.emplace_back(choices.substr(0, choices.find('=')));
    choices.remove_prefix(std::min(end + 1, choices.size()));
  }
  return out;
}

/// A value that another file, or the framework, decides. Own functions of a rule know what "auto" means for
/// them.
bool is_auto(const Rule& r, const Value& v) {
  return v.kind == Value::Kind::kText && v.text == "auto" && r.use != Use::kCustom && r.use != Use::kChoice;
}

/// A key that is switched off, or has one of the values in `ordinary`, has nothing to model.
bool is_off(const Value& v, std::string_view ordinary) {
  using Kind = Value::Kind;
  std::string ours;
  switch (v.kind) {
    case Kind::kBool:
      return !v.boolean || choose(ordinary, "true", ours);
    case Kind::kInteger:
    case Kind::kNumber:
      return v.number == 0 || choose(ordinary, v.text, ours);
    case Kind::kList:
      return v.items.empty();
    case Kind::kText:
      return v.text.empty() || v.text == "none" || choose(ordinary, v.text, ours);
    default:
      return false;
  }
}

/// A variable that no file sets, or the output of a command.
bool is_unknown(const Value& v) {
  // An expression of Python.
  if (v.kind == Value::Kind::kOther && v.text.starts_with('`')) return true;
  if (v.kind != Value::Kind::kText) return false;
  // "$" at the end of a text is the end of a pattern: "(q|v)_proj$".
  for (std::size_t at = 0; (at = v.text.find_first_of("$`", at)) != v.text.npos; ++at)
    if (v.text[at] == '`' || (at + 1 < v.text.size() && v.text[at + 1] != ')' && v.text[at + 1] != '|'))
      return true;
  return false;
}

/// The run-file key with which the command line can replace the value of a file's key; "": none.
std::string replaceable_by(std::string_view run_key) {
  if (run_key == kRanks || run_key == kNodes || run_key == kPerNode) return "parallel.data";
  if (run_key == kGlobalBatch) return "train.grad_accum";
  if (run_key == kModel) return "model.preset";
  if (run_key == "@unsloth_length" || run_key == "@unsloth_trainer_length") return "data.seq_len";
  if (run_key == "@unsloth_4bit" || run_key == "@unsloth_8bit") return "lora.base";
  if (run_key == "@unsloth_checkpoint") return "train.recompute";
  if (run_key == kExpertTensor) return "plan.expert_tensor";
  if (run_key == "@megatron.layers_per_stage") return "parallel.interleave";
  if (run_key == "@megatron.recompute_layers") return "train.recompute_every";
  return run_key.starts_with('@') ? "" : std::string(run_key);
}

/// Whether the value describes the model alone, which --model replaces.
bool is_of_model(std::string_view run_key) {
  constexpr std::string_view kMegatron[] = {
      "experts",     "experts_per_token", "expert_width", "shared_width",  "query_groups", "sparse_layers",
      "q_lora_rank", "kv_lora_rank",      "qk_head_dim",  "rope_head_dim", "v_head_dim",   "positions"};
  constexpr std::string_view kPrefix = "@megatron.";
  return run_key.starts_with("model.") ||
         (run_key.starts_with(kPrefix) &&
          std::ranges::find(kMegatron, run_key.substr(kPrefix.size())) != std::end(kMegatron));
}

bool is_given(std::string_view run_key, const Job& job) {
  const std::string option = replaceable_by(run_key);
  return (!option.empty() && job.is_option(option)) ||
         (is_of_model(run_key) && (job.is_option("model.preset") || job.is_option("model.config")));
}

/// Remembers a value that is not known, unless an option of the command line, or a config.json among the
/// files for the model, replaces it.
void note_unknown(const Rule& r, const Entry& e, Job& job) {
  const std::string key = replaceable_by(r.run_key);
  if (is_given(r.run_key, job)) return;
  if (r.run_key == std::string_view(kModel) && job.find(kConfigFile)) return;
  job.unknown.push_back({e.shown(), runfile::written(e.value), e.value.where,
                         key == "model.preset" ? "--model=MODEL"
                         : key.empty()         ? ""
                                               : fmt::format("--set {}=VALUE", key)});
}

constexpr const char* kReplaced = "an option of the command line replaces it";

/// Whether a plan needs to know the value.
bool matters(const Rule& r) {
  return r.use != Use::kNoEffect && r.use != Use::kNotModelled && r.use != Use::kNeedsMore;
}

KeyUse apply(const Rule& r, const Entry& e, Job& job) {
  if (r.run_key == std::string_view(kMethod) && is_unknown(e.value)) {
    job.not_modelled = "its value is not known: perhaps another training method, with a second model";
    job.needs_more = true;
    return KeyUse::kUsed;
  }
  // An expression of a script whose arguments another file gives.
  if (e.value.kind == Value::Kind::kOther && e.value.text.starts_with("(`") && matters(r)) {
    job.not_modelled = "the script computes it; planned as the other files say";
    return KeyUse::kUsed;
  }
  // The vocabulary is asked for where neither an argument nor the tokenizer gives it; the others change
  // little.
  constexpr std::string_view kOptional[] = {"@megatron.tokenizer", "@megatron.tokenizer_name",
                                            "@megatron.dispatcher", "model.max_position_embeddings"};
  if (is_unknown(e.value) && std::ranges::find(kOptional, r.run_key) != std::end(kOptional)) {
    job.not_modelled = "its value is not known";
    return KeyUse::kUsed;
  }
  if (matters(r) && is_unknown(e.value)) {
    note_unknown(r, e, job);
    return KeyUse::kUsed;
  }
  switch (r.use) {
    case Use::kNoEffect:
      return KeyUse::kWithoutEffect;
    case Use::kNotModelled:
    case Use::kNeedsMore:
      return is_off(e.value, r.run_key) ? KeyUse::kWithoutEffect : KeyUse::kNotModelled;
    case Use::kCopy:  // the type is checked where the run file is, with the same position
      job.set(r.run_key, text_of(e), e);
      break;
    case Use::kWhenTrue:
    case Use::kWhenFalse:
      if (flag_of(e) == (r.use == Use::kWhenTrue)) job.set(r.run_key, r.argument, e);
      break;
    case Use::kChoice: {
      std::string ours;
      // YAML has several words for true: True, yes, on.
      const bool flag = e.value.kind == Value::Kind::kBool;
      const std::string theirs = !flag ? text_of(e) : e.value.boolean ? "true" : "false";
      if (!choose(r.argument, theirs, ours)) {
        if (r.run_key == std::string_view("optimizer.name"))
          return reject_optimizer(job, e, words_of(r.argument)), KeyUse::kUsed;
        if (is_given(r.run_key, job)) {
          job.not_modelled = kReplaced;
          break;
        }
        const std::vector<std::string> known = words_of(r.argument);
        reject_value(e, fmt::format("one of {}{}", fmt::join(known, ", "), did_you_mean(theirs, known)));
      }
      if (!ours.empty()) job.set(r.run_key, ours, e);
      break;
    }
    case Use::kCustom:
      assert(r.apply);
      r.apply(job, e);
      break;
  }
  return KeyUse::kUsed;
}

}  // namespace

void Job::set(const std::string& run_key, std::string value, const Entry& from) {
  // Two files, or two keys with one meaning, may agree; the framework's own defaults give way silently.
  const auto old = settings_.find(run_key);
  if (old != settings_.end() && !old->second.by_default && old->second.value != value) {
    if (is_given(run_key, *this)) return;  // an option decides
    const std::string option = replaceable_by(run_key);
    const std::string decide = is_of_model(run_key) ? "; or give --model=MODEL"
                               : option.empty()     ? ""
                                                    : fmt::format("; or give --set {}=VALUE", option);
    // Settings between rules ("@model") have names and values of their own.
    if (run_key.starts_with('@'))
      throw usage_error(fmt::format("{} = {} contradicts {} in {}", from.shown(),
                                    runfile::written(from.value), old->second.key, place(old->second.where)),
                        "make both equal, or remove one of them" + decide, from.value.where);
    throw usage_error(
        fmt::format("{} means {} = {}, but {} in {} means {}", from.shown(), run_key, escaped(value, 60),
                    old->second.key, place(old->second.where), escaped(old->second.value, 60)),
        "make both equal, or remove one of them" + decide, from.value.where);
  }
  settings_[run_key] = {std::move(value), from.shown(), from.value.where, false};
}

void Job::set_default(const std::string& run_key, std::string value, const std::string& source) {
  // The first default stays: callers set those that follow from the file before those of the framework.
  settings_.try_emplace(run_key, Given{std::move(value), source, {}, true});
}

void Job::set_default(const std::string& run_key, std::string value, const Given& from) {
  const Given source = from;  // may be an element of settings_
  settings_.try_emplace(run_key, Given{std::move(value), source.key, source.where, true});
}

void Job::set_default(const std::string& run_key, std::string value, const Entry& from) {
  set_default(run_key, std::move(value), Given{"", from.shown(), from.value.where});
}

void Job::replace(const runfile::Override& option) {
  // No position: messages then name the option.
  settings_[option.key] = {
      option.value, option.option.empty() ? "--set " + option.key : option.option, {}, false};
}

const Given* Job::find(const std::string& run_key) const {
  const auto found = settings_.find(run_key);
  return found == settings_.end() ? nullptr : &found->second;
}

std::uint64_t count_of(const Given& g) {
  std::uint64_t n = 0;
  const char* end = g.value.data() + g.value.size();
  const auto [rest, failed] = std::from_chars(g.value.data(), end, n);
  if (failed == std::errc{} && rest == end && n > 0) return n;
  throw usage_error(fmt::format("{} = {}: expected a whole number above 0", g.key, escaped(g.value, 60)), {},
                    g.where);
}

void reject_value(const Entry& e, const std::string& expected) {
  throw usage_error(
      fmt::format("{} = {}: expected {}", escaped(e.shown(), 80), runfile::written(e.value), expected), {},
      e.value.where);
}

void reject_optimizer(Job& job, const Entry& e, const std::vector<std::string>& known) {
  if (job.is_option("optimizer.name")) {
    job.not_modelled = kReplaced;
    return;
  }
  throw usage_error(
      fmt::format("{} = {}: expected an optimizer that can be planned{}", escaped(e.shown(), 80),
                  runfile::written(e.value), did_you_mean(text_of(e), known)),
      fmt::format(
          "one of {}; or --set optimizer.name=adamw for one with two states per weight, lion with one",
          fmt::join(known, ", ")),
      e.value.where);
}

void reject_name(const Entry& e, const std::string& what, const std::vector<std::string>& known) {
  throw usage_error(fmt::format("{} = {}: expected {}{}", escaped(e.shown(), 80), runfile::written(e.value),
                                what, did_you_mean(text_of(e), known)),
                    fmt::format("one of {}", fmt::join(known, ", ")), e.value.where);
}

std::string text_of(const Entry& e) {
  using Kind = Value::Kind;
  const Value& v = e.value;
  // Plain scalars of YAML keep their text, whatever their type; those of TOML have none.
  if (v.kind != Kind::kList && !v.text.empty()) return v.text;
  if (v.kind == Kind::kBool) return v.boolean ? "true" : "false";
  if (v.kind == Kind::kInteger) return std::to_string(v.integer);
  if (v.kind == Kind::kNumber) return fmt::format("{}", v.number);
  reject_value(e, "one value");
}

std::uint64_t whole_of(const Entry& e) {
  const Value& v = e.value;
  if (v.kind == Value::Kind::kInteger && v.integer >= 0) return static_cast<std::uint64_t>(v.integer);
  reject_value(e, "a whole number");
}

bool flag_of(const Entry& e) {
  const Value& v = e.value;
  if (v.kind == Value::Kind::kBool) return v.boolean;
  // `key:` without a value is off, as None is in Python.
  if (v.kind == Value::Kind::kNull) return false;
  if (v.kind == Value::Kind::kInteger && (v.integer == 0 || v.integer == 1)) return v.integer == 1;
  if (v.kind == Value::Kind::kText && (v.text == "true" || v.text == "True")) return true;
  if (v.kind == Value::Kind::kText && (v.text == "false" || v.text == "False")) return false;
  reject_value(e, "true or false");
}

std::vector<std::string> texts_of(const Entry& e) {
  using Kind = Value::Kind;
  if (e.value.kind == Kind::kNull) return {};
  std::vector<std::string> out;
  if (e.value.kind != Kind::kList) {
    // "q_proj,v_proj": the spelling on a command line.
    std::string all = text_of(e);
    for (std::size_t at = 0, end; at <= all.size(); at = end + 1) {
      end = std::min(all.find(',', at), all.size());
      const std::size_t begin = all.find_first_not_of(' ', at);
      if (begin < end) out.push_back(all.substr(begin, end - begin));
    }
    return out;
  }
  for (const Value& v : e.value.items) {
    if (v.kind != Kind::kText) reject_value(e, "a list of names");
    out.push_back(v.text);
  }
  return out;
}

void apply_rules(std::initializer_list<RuleSet> sets, const std::vector<Entry>& entries, Job& job) {
  for (const Entry& e : entries) {
    if (e.key.starts_with("@@")) continue;  // no key of the file (mark_of())
    runfile::FileKey key{e.shown(), runfile::written(e.value), e.key_where, KeyUse::kWithoutEffect, ""};
    const Rule* rule = rule_of(sets, e);
    if (!rule) {
      key.use = KeyUse::kNotUnderstood;
      if (std::string near = nearest_key(sets, e.key); !near.empty()) {
        // As the file writes its keys: "--num-processes", or "--num_layers" of Megatron's num-layers.
        const bool dashes = e.spelling.find('_') == e.spelling.npos;
        // Keys of calls have the name of a table in front, which is not in the script.
        if (const std::size_t table = e.key.size() - std::min(e.key.size(), e.spelling.size());
            !e.spelling.empty() && e.key.ends_with(e.spelling) && near.starts_with(e.key.substr(0, table)))
          near.erase(0, table);
        const bool words = e.spelling.find_first_of("-_") != e.spelling.npos;
        if (words) std::replace(near.begin(), near.end(), dashes ? '_' : '-', dashes ? '-' : '_');
        key.note = "did you mean " + near + "?";
      }
    } else if (e.value.kind != Value::Kind::kNull) {
      // A null value sets nothing. "auto" counts as used: the key is understood, another file gives its
      // value.
      const bool left_open = is_auto(*rule, e.value) && matters(*rule);
      if (left_open && *rule->run_key)
        job.left_open.insert_or_assign(rule->run_key, Given{"auto", e.shown(), e.value.where});
      key.use = left_open ? KeyUse::kUsed : apply(*rule, e, job);
      if (key.use == KeyUse::kNotModelled) key.note = rule->argument;
      key.needs_more = key.use == KeyUse::kNotModelled && rule->use == Use::kNeedsMore;
      // A rule of its own may find out that it models a value in part only.
      if (!job.not_modelled.empty()) {
        key.use = KeyUse::kNotModelled;
        key.note = std::exchange(job.not_modelled, "");
        key.needs_more = std::exchange(job.needs_more, false);
      }
    }
    job.keys.push_back(std::move(key));
  }
}

void set_autocast(Job& job, const std::string& type, const Entry& from) {
  job.set("train.precision", type, from);
  // Weights stay in f32; autocast makes narrow copies per operator, so there are no master weights.
  job.set("plan.weights", "fp32", from);
  job.set("plan.master", "none", from);
}

void set_pure(Job& job, const std::string& type, const Entry& from) {
  job.set("train.precision", type, from);
  // Nothing in f32: no master weights either.
  for (const char* key : {"plan.weights", "plan.gradients", "plan.moments"}) job.set(key, type, from);
  job.set("plan.master", "none", from);
}

void set_fsdp_offload(Job& job, const Entry& from) {
  job.set("plan.offload_weights", "cpu", from);
  job.set("plan.offload_optimizer", "cpu", from);
  job.set("plan.offload_gradients", "cpu", from);
}

}  // namespace trainhost::framework_files
