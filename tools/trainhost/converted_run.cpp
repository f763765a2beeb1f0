// See converted_run.hpp. The files are read as for a plan (core/framework_files). Settings of the framework's
// own step ([plan]) are left out, because trainhost trains with its own; those that only change how a run
// trains are added.
#include "tools/trainhost/converted_run.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/text.hpp"
#include "core/framework_files/read_files.hpp"
#include "core/framework_files/training_keys.hpp"
#include "tools/trainhost/run_setup.hpp"

namespace trainhost::cli {
namespace {

using runfile::FileKey;
using runfile::KeyUse;
using runfile::Override;

bool same_place(const Where& a, const Where& b) {
  return a.line != 0 && a.file == b.file && a.line == b.line && a.column == b.column;
}

runfile::RunConfig load(const CommonArguments& a, const std::vector<Override>& settings) {
  return a.model.empty() ? runfile::load_run({}, settings) : runfile::run_for_model(a.model, settings);
}

/// Loads the run with `files`, `training` and the options of the command line. A setting of `training` that
/// is not valid is moved to `dropped`, with the reason.
runfile::RunConfig load_what_is_valid(const CommonArguments& a, const std::vector<Override>& files,
                                      std::vector<Override>& training,
                                      std::vector<std::pair<Override, std::string>>& dropped) {
  for (;;) {
    std::vector<Override> all = files;
    all.insert(all.end(), training.begin(), training.end());
    const std::vector<Override> options = overrides(a);
    all.insert(all.end(), options.begin(), options.end());
    try {
      return load(a, all);
    } catch (const Error& e) {
      const auto wrong =
          std::ranges::find_if(training, [&](const Override& o) { return same_place(o.where, e.where()); });
      if (wrong == training.end()) throw;
      // The comment begins with the key of the file, which the message repeats.
      std::string_view why = e.what();
      if (const std::string key = wrong->option + " means "; why.starts_with(key))
        why.remove_prefix(key.size());
      dropped.emplace_back(*wrong, why);
      training.erase(wrong);
    }
  }
}

std::string place(const Where& w) {
  return w.line ? fmt::format("{}:{} ", escaped(w.file, 200), w.line) : "";
}

const char* reason(const FileKey& k) {
  switch (k.use) {
    case KeyUse::kUsed:
      return "";
    case KeyUse::kWithoutEffect:
      return "not carried over";
    case KeyUse::kNotModelled:
      return "no such setting here";
    case KeyUse::kNotUnderstood:
      return "not understood";
  }
  return "";
}

}  // namespace

std::string converted_run(const CommonArguments& a, std::string& note) {
  std::vector<Override> given = overrides(a);
  if (!a.model.empty()) given.push_back({"model.preset", a.model, "--model"});
  framework_files::FileSettings files = framework_files::read_files(a.from, given);
  std::vector<Override> carried, own_step;
  for (Override& o : files.settings)
    (o.key.starts_with("plan.") ? own_step : carried).push_back(std::move(o));
  std::vector<Override> training = framework_files::training_settings(files.keys);
  std::vector<std::pair<Override, std::string>> dropped;
  const runfile::RunConfig c = load_what_is_valid(a, carried, training, dropped);
  try {
    runfile::reject_unsupported(c);
  } catch (const Error& e) {
    note = e.full();
  }

  std::string out = "# Converted from ";
  for (std::size_t i = 0; i < a.from.size(); ++i) out += (i ? ", " : "") + escaped(a.from[i], 200);
  out += " by trainhost init. Training text: set data.train.\n";
  if (!c.weights)
    out +=
        "# The weights are random; to train those of a folder further, set model.path in place of the "
        "model.\n";
  out += "\n" + runfile::without_defaults(c.resolved());
  std::string rest;
  const auto is_training = [&](const FileKey& k) {
    return std::ranges::any_of(training, [&](const Override& o) { return same_place(o.where, k.where); }) ||
           std::ranges::any_of(dropped, [&](const auto& d) { return same_place(d.first.where, k.where); });
  };
  for (const FileKey& k : files.keys)
    if (k.use != KeyUse::kUsed && k.value != "null" && !is_training(k))
      rest += fmt::format("# {}{} = {}: {}{}\n", place(k.where), escaped(k.key, 80), k.value, reason(k),
                          k.note.empty() ? "" : " (" + k.note + ")");
  for (const auto& [o, why] : dropped)
    rest += fmt::format("# {}{} = {}: {}\n", place(o.where), escaped(o.option, 80), escaped(o.value, 80),
                        escaped(why, 400));
  for (const Override& o : own_step)
    rest += fmt::format("# {}{} = {}: of the framework's own step\n", place(o.where), o.key,
                        escaped(o.value, 80));
  if (!rest.empty())
    out += "\n# What the files say besides. `trainhost plan --from` plans the framework's own step.\n" + rest;
  return out;
}

}  // namespace trainhost::cli
