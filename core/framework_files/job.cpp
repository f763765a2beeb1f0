// See job.hpp.
#include "core/framework_files/job.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "core/base/text.hpp"

namespace trainhost::framework_files {

using runfile::Entry;
using runfile::KeyUse;
using runfile::Value;

namespace {

std::string place(const Where& w) { return w.line ? fmt::format("{}:{}", w.file, w.line) : w.file; }

/// A rule matches its own key, or any key with its beginning if it ends in "*".
bool matches(std::string_view rule, std::string_view key) {
  return rule.ends_with('*') ? key.starts_with(rule.substr(0, rule.size() - 1)) : rule == key;
}

std::string nearest_key(std::span<const Rule> rules, const std::string& key) {
  std::vector<std::string> known;
  for (const Rule& r : rules)
    if (!r.key.ends_with('*')) known.emplace_back(r.key);
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

std::string listed(std::string_view choices) {
  std::string out;
  while (!choices.empty()) {
    const std::size_t end = std::min(choices.find('|'), choices.size());
    out += (out.empty() ? "" : ", ") + std::string(choices.substr(0, choices.find('=')));
    choices.remove_prefix(std::min(end + 1, choices.size()));
  }
  return out;
}

/// A value that another file, or the framework, decides. Own functions of a rule know what "auto" means for
/// them.
bool is_auto(const Rule& r, const Value& v) {
  return v.kind == Value::Kind::kText && v.text == "auto" && r.use != Use::kCustom && r.use != Use::kChoice;
}

/// A key that is switched off has nothing to model.
bool is_off(const Value& v) {
  return (v.kind == Value::Kind::kBool && !v.boolean) || (v.kind == Value::Kind::kInteger && v.integer == 0);
}

KeyUse apply(const Rule& r, const Entry& e, Job& job) {
  switch (r.use) {
    case Use::kNoEffect:
      return KeyUse::kWithoutEffect;
    case Use::kNotModelled:
      return is_off(e.value) ? KeyUse::kWithoutEffect : KeyUse::kNotModelled;
    case Use::kCopy:
      job.set(r.run_key, text_of(e), e);
      break;
    case Use::kWhenTrue:
    case Use::kWhenFalse:
      if (flag_of(e) == (r.use == Use::kWhenTrue)) job.set(r.run_key, r.argument, e);
      break;
    case Use::kChoice: {
      std::string ours;
      if (!choose(r.argument, text_of(e), ours)) reject_value(e, "one of " + listed(r.argument));
      if (!ours.empty()) job.set(r.run_key, ours, e);
      break;
    }
    case Use::kCustom:
      r.apply(job, e);
      break;
  }
  return KeyUse::kUsed;
}

}  // namespace

void Job::set(const std::string& run_key, std::string value, const Entry& from) {
  const auto old = settings_.find(run_key);
  if (old != settings_.end() && !old->second.by_default && old->second.value != value)
    throw usage_error(
        fmt::format("{} means {} = {}, but {} in {} means {}", from.key, run_key, escaped(value, 60),
                    old->second.key, place(old->second.where), escaped(old->second.value, 60)),
        "make both equal, or remove one of them", from.value.where);
  settings_[run_key] = {std::move(value), from.key, from.value.where, false};
}

void Job::set_default(const std::string& run_key, std::string value, const std::string& source) {
  settings_.try_emplace(run_key, Given{std::move(value), source, {}, true});
}

void Job::set_default(const std::string& run_key, std::string value, const Given& from) {
  const Given source = from;  // may be an element of settings_
  settings_.try_emplace(run_key, Given{std::move(value), source.key, source.where, true});
}

void Job::replace(const runfile::Override& option) {
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
      fmt::format("{} = {}: expected {}", escaped(e.key, 80), runfile::written(e.value), expected), {},
      e.value.where);
}

std::string text_of(const Entry& e) {
  using Kind = Value::Kind;
  const Value& v = e.value;
  if (v.kind == Kind::kText && v.text.find('$') != v.text.npos)
    reject_value(e, "a value; the file does not say what the variable is");
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
  if (v.kind == Value::Kind::kNull) return false;
  if (v.kind == Value::Kind::kInteger && (v.integer == 0 || v.integer == 1)) return v.integer == 1;
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

void apply_rules(std::span<const Rule> rules, const std::vector<Entry>& entries, Job& job) {
  for (const Entry& e : entries) {
    runfile::FileKey key{e.key, runfile::written(e.value), e.key_where, KeyUse::kWithoutEffect, ""};
    const auto rule = std::ranges::find_if(rules, [&](const Rule& r) { return matches(r.key, e.key); });
    if (rule == rules.end()) {
      key.use = KeyUse::kNotUnderstood;
      if (const std::string near = nearest_key(rules, e.key); !near.empty())
        key.note = "did you mean " + near + "?";
    } else if (e.value.kind != Value::Kind::kNull) {
      const bool left_open =
          is_auto(*rule, e.value) && rule->use != Use::kNoEffect && rule->use != Use::kNotModelled;
      key.use = left_open ? KeyUse::kUsed : apply(*rule, e, job);
      if (key.use == KeyUse::kNotModelled) key.note = rule->argument;
    }
    job.keys.push_back(std::move(key));
  }
}

void set_autocast(Job& job, const std::string& type, const Entry& from) {
  job.set("train.precision", type, from);
  job.set("plan.weights", "fp32", from);
  job.set("plan.master", "none", from);
}

void set_pure(Job& job, const std::string& type, const Entry& from) {
  job.set("train.precision", type, from);
  for (const char* key : {"plan.weights", "plan.gradients", "plan.moments"}) job.set(key, type, from);
  job.set("plan.master", "none", from);
}

void set_lora_targets(Job& job, const Entry& from) {
  std::string list;
  for (const std::string& t : texts_of(from)) list += (list.empty() ? "[\"" : ", \"") + t + "\"";
  if (!list.empty()) job.set("lora.targets", list + "]", from);
}

void set_hugging_face_optimizer(Job& job, const Entry& from) {
  // name, optimizer.name, plan.optimizer_implementation
  static constexpr struct {
    const char *theirs, *name, *implementation;
  } kNames[] = {{"adamw_torch", "adamw", "foreach"},
                {"adamw_torch_fused", "adamw", "fused"},
                {"adamw_hf", "adamw", "for-loop"},
                {"adamw_apex_fused", "adamw", "fused"},
                {"adamw_anyprecision", "adamw", "for-loop"},
                {"paged_adamw_32bit", "adamw", ""},
                {"paged_adamw", "adamw", ""},
                {"adamw_bnb_8bit", "adamw-8bit", ""},
                {"adamw_8bit", "adamw-8bit", ""},
                {"paged_adamw_8bit", "adamw-8bit", ""},
                {"adamw_torch_8bit", "adamw-8bit", ""},
                {"lion_32bit", "lion", ""},
                {"paged_lion_32bit", "lion", ""},
                {"adafactor", "adafactor", ""},
                {"sgd", "sgd", "foreach"},
                {"muon", "muon", ""}};
  const std::string name = text_of(from);
  std::vector<std::string> known;
  for (const auto& n : kNames) {
    known.push_back(n.theirs);
    if (name != n.theirs) continue;
    job.set("optimizer.name", n.name, from);
    if (*n.implementation) job.set("plan.optimizer_implementation", n.implementation, from);
    return;
  }
  reject_value(from, "an optimizer that plans know: " + fmt::format("{}", fmt::join(known, ", ")) +
                         did_you_mean(name, known));
}

}  // namespace trainhost::framework_files
