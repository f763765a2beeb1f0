// train.freeze and train.only: patterns of parameter names, from Settings to RunSpec::trainable. Every
// pattern must match a parameter: one that matches nothing is a spelling mistake, and would train what the
// user wants to freeze.
#include <fmt/format.h>

#include <algorithm>

#include "core/base/text.hpp"
#include "core/model/adapters.hpp"
#include "core/model/trainable.hpp"
#include "core/runfile/planned_settings.hpp"

namespace trainhost::runfile {
namespace {

const std::string& nearest_tensor(const std::string& pattern, const std::vector<TensorInfo>& all) {
  return std::ranges::min_element(all, {},
                                  [&](const TensorInfo& t) { return glob_distance(pattern, t.name); })
      ->name;
}

/// Appends one rule per pattern of `key`, each of which has to match a parameter.
void add_rules(const Settings& s, const char* key, char sign, const ModelSpec& m,
               const std::vector<TensorInfo>& all, std::string& rules) {
  for (const Value& v : s.list(key)) {
    s.rule([&] {
      const bool matches =
          std::ranges::any_of(all, [&](const TensorInfo& t) { return matches_glob(v.text, t.name); });
      if (!matches && m.tied && matches_glob(v.text, "lm_head.weight"))
        throw usage_error(
            fmt::format("{}: '{}' matches no parameter: the LM head of this model is its embedding", key,
                        escaped(v.text, 200)),
            "model.embed_tokens.weight is the parameter of both", s.where(key));
      if (!matches)
        throw usage_error(fmt::format("{}: '{}' matches no parameter of the model; the nearest is {}", key,
                                      escaped(v.text, 200), nearest_tensor(v.text, all)),
                          "* matches any text: \"model.layers.0.*\"", s.where(key));
    });
    rules += (rules.empty() ? "" : "\n") + std::string(1, sign) + v.text;
  }
}

/// lora.modules_to_save, or that of model.adapter: rules in c.run.trainable, by set_lora().
void require_modules_to_save(const Settings& s, const RunConfig& c) {
  if (c.run.trainable.empty()) return;
  const Where where = s.where(s.given("lora.modules_to_save") ? "lora.modules_to_save" : "model.adapter");
  if (!trainable_family(c.model.family))
    throw usage_error(fmt::format("lora.modules_to_save needs the modules of the model, and those of the "
                                  "family '{}' are not known by name",
                                  escaped(c.model.family, 80)),
                      "remove the key", where);
  try {
    require_trainable_modules(c.model, c.run);
  } catch (const Error& e) {
    throw usage_error(e.what(), e.hint(), where);
  }
}

}  // namespace

void set_trainable(const Settings& s, RunConfig& c) {
  const bool only = s.given("train.only"), freeze = s.given("train.freeze");
  if (!only && !freeze) return require_modules_to_save(s, c);
  const char* key = freeze ? "train.freeze" : "train.only";
  if (!trainable_family(c.model.family))
    throw usage_error(
        fmt::format("{} needs the parameters of the model, and those of the family '{}' are not "
                    "known by name",
                    key, escaped(c.model.family, 80)),
        "remove the key", s.where(key));
  const std::vector<TensorInfo> all = tensors(c.model);
  std::string& rules = c.run.trainable;
  rules = only ? "-*" : "";
  const bool valid = s.rule([&] {
    add_rules(s, "train.only", '+', c.model, all, rules);
    add_rules(s, "train.freeze", '-', c.model, all, rules);
  });
  if (!valid || rules.empty()) return;
  if (const std::optional<SplitProduct> split = find_split_product(c.model, c.run))
    throw usage_error(
        fmt::format("{}: {} is trained and {} is frozen, but a trainer computes their gradients "
                    "together",
                    key, split->trained, split->frozen),
        "freeze or train both", s.where(key));
  if (std::ranges::none_of(all, [&](const TensorInfo& t) { return is_trained(c.run, t.name); }))
    throw usage_error(fmt::format("{} leaves no parameter to train", key), "", s.where(key));
}

}  // namespace trainhost::runfile
