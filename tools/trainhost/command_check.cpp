// trainhost check: all errors of a run file in one pass (core/runfile: check_run()), and what in it names no
// installed plugin. Printed like the errors of a compiler, or as JSON.
#include <fmt/format.h>

#include "core/base/json_value.hpp"
#include "core/base/plural.hpp"
#include "core/base/text.hpp"
#include "core/planning/choose_backend.hpp"
#include "tools/trainhost/result_stream.hpp"
#include "tools/trainhost/run_setup.hpp"

namespace trainhost::cli {
namespace {

using runfile::CheckedRun;
using runfile::RunFileError;

/// Errors of other parts of the program have the absolute path of the run file.
Error with_typed_name(const Error& e, const CheckedRun& checked, const std::string& typed) {
  Where where = e.where();
  if (where.file == checked.run.file) where.file = typed;
  return Error(e.code(), e.what(), e.hint(), where);
}

void add_plugin_errors(const CommonArguments& a, CheckedRun& checked) {
  // Scanned without the names that are judged here.
  runfile::RunConfig plain = checked.run;
  plain.plugin_options.clear();
  plain.backend_order = runfile::RunConfig{}.backend_order;
  const auto registry = make_registry(a, &plain);
  for (const Error& e : planning::plugin_name_errors(checked.run, *registry)) {
    std::string key = std::string(e.what()).substr(0, std::string_view(e.what()).find(": "));
    if (!checked.run.given.count(key) && !key.starts_with("plugin.")) key.clear();
    checked.errors.push_back({with_typed_name(e, checked, a.run_file), key});
  }
  runfile::sort_errors(checked.errors);
}

/// Why the run can be planned, but not trained; "" if it can be trained.
std::string not_trained(const CheckedRun& checked, const std::string& typed) {
  try {
    runfile::reject_unsupported(checked.run);
    runfile::require_weights(checked.run);
  } catch (const Error& e) {
    return with_typed_name(e, checked, typed).full();
  }
  return "";
}

void print_json(const CommonArguments& a, const CheckedRun& checked, const std::string& note) {
  JsonValue errors = JsonValue::array();
  for (const RunFileError& e : checked.errors)
    errors.push_back({{"file", e.error.where().file},
                      {"line", e.error.where().line},
                      {"column", e.error.where().column},
                      {"key", e.key},
                      {"nearest_key", e.nearest_key},
                      {"message", e.error.what()},
                      {"hint", e.error.hint()}});
  JsonValue out = {{"file", a.run_file}, {"errors", std::move(errors)}, {"not_trained", note}};
  fmt::print(result_stream(), "{}\n", out.dump(2));
}

}  // namespace

Exit run(const CheckArguments& a) {
  CheckedRun checked = runfile::check_run(a.common.run_file, overrides(a.common));
  const bool readable = !checked.run.file.empty();
  if (readable) add_plugin_errors(a.common, checked);
  const bool valid = checked.errors.empty();
  const std::string note = valid ? not_trained(checked, a.common.run_file) : "";
  if (a.common.json) {
    print_json(a.common, checked, note);
  } else {
    for (const RunFileError& e : checked.errors) fmt::print("{}\n", e.error.full());
    if (!note.empty() && !a.common.quiet) fmt::print("{}\n", note);
    if (!a.common.quiet)
      fmt::print("{}: {}\n", escaped(a.common.run_file),
                 valid ? "ok" : plural(checked.errors.size(), "error"));
  }
  return valid ? Exit::kDone : Exit::kUsage;
}

}  // namespace trainhost::cli
