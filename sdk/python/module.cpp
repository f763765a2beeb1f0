// trainhost._core: the host as a library of a Python process. A request becomes the arguments of a command
// (tools/trainhost/arguments.hpp); the result is the JSON that the command prints with --json, and its table.
// The package makes dataclasses of it. One call at a time: it releases the interpreter lock and takes a lock
// of the process, because plugins are loaded once per process.
#include <nanobind/nanobind.h>
#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <mutex>

#include "core/plugin/registry.hpp"
#include "core/report/plan_report.hpp"
#include "core/runfile/schema.hpp"
#include "sdk/python/python_estimator.hpp"
#include "tools/trainhost/planned_results.hpp"

namespace nb = nanobind;

namespace trainhost::python {
namespace {

/// What plan, sweep and search are asked; the attributes have the names of the options.
struct Request {
  std::string model, run_file, backend, device, budget, host_budget, framework, estimators, over;
  std::vector<std::string> from_files, settings, plugin_path;
  bool safe = false, limits = false, every = false;
  std::uint32_t devices = 0;
  std::uint64_t global_batch = 0, top = 10, threads = 0;

  /// Quiet: nothing is printed but errors of plugins.
  cli::CommonArguments common(const PythonEstimators& estimators_of_process) const {
    cli::CommonArguments a;
    a.run_file = run_file, a.from = from_files, a.settings = settings, a.plugin_path = plugin_path;
    a.model = model, a.backend = backend, a.json = true, a.quiet = true, a.plans_only = true;
    a.own_estimators = estimators_of_process.all();
    return a;
  }
  cli::TargetArguments target() const {
    return {
        .device = device, .budget = budget, .host_budget = host_budget, .framework = framework, .safe = safe};
  }
};

using Result = std::pair<std::string, std::string>;  // JSON, table

constexpr report::Terminal kText{.width = 120, .width_known = true};

/// Recursive: a function that is an estimator may plan too.
std::recursive_mutex& lock_of_process() {
  static std::recursive_mutex lock;
  return lock;
}

/// Raises the exception of the package for a failure: its arguments are those of _errors.make_error().
[[noreturn]] void raise(const char* kind, const std::string& message, const Error& e) {
  const nb::object made = nb::module_::import_("trainhost._errors")
                              .attr("make_error")(kind, message, e.hint(), e.where().file, e.where().line,
                                                  e.where().column, static_cast<int>(e.code()));
  PyErr_SetObject(made.type().ptr(), made.ptr());
  throw nb::python_error();
}

const char* kind_of(const Error& e) {
  return e.code() == Exit::kUsage ? "usage" : e.code() == Exit::kNoBackend ? "backend" : "error";
}

/// Calls f without the interpreter lock; turns its failure into an exception of Python. An exception that a
/// function raised is one of the call, also where the planner went on without the answer (a point of a
/// sweep).
template <class F>
Result call(const nb::list& functions, F f) {
  PythonEstimators estimators(functions);
  try {
    Result result;
    {
      const nb::gil_scoped_release released;
      const std::lock_guard<std::recursive_mutex> one(lock_of_process());
      result = f(estimators);
    }
    estimators.rethrow();
    return result;
  } catch (const plugin::PluginError& e) {
    estimators.rethrow();
    raise("plugin", e.message_with_plugin(), e);
  } catch (const Error& e) {
    estimators.rethrow();
    raise(kind_of(e), e.what(), e);
  } catch (const std::filesystem::filesystem_error& e) {
    raise("error", e.what(), run_error(""));
  }
}

Result plan(const Request& q, const nb::list& functions) {
  return call(functions, [&q](const PythonEstimators& estimators) {
    cli::PlanArguments a;
    a.common = q.common(estimators), a.target = q.target(), a.target.devices = q.devices;
    a.estimators = q.estimators, a.limits = q.limits;
    const planning::PlanResult v = cli::plan_of(a);
    return Result{report::plan_json(v, -1), report::memory_table(v, kText)};
  });
}

Result sweep(const Request& q, const nb::list& functions) {
  return call(functions, [&q](const PythonEstimators& estimators) {
    cli::SweepArguments a;
    a.common = q.common(estimators), a.target = q.target(), a.target.devices = q.devices;
    a.over = q.over, a.estimators = q.estimators;
    const planning::SweepResult v = cli::sweep_of(a);
    return Result{report::sweep_json(v), report::sweep_table(v, kText)};
  });
}

Result search(const Request& q, const nb::list& functions) {
  return call(functions, [&q](const PythonEstimators& estimators) {
    cli::SearchArguments a;
    a.common = q.common(estimators), a.target = q.target();
    a.devices = q.devices, a.global_batch = q.global_batch;
    a.top = q.top, a.threads = q.threads, a.every = q.every;
    const planning::SearchResult v = cli::search_of(a);
    return Result{report::search_json(v), report::search_table(v, kText)};
  });
}

std::vector<std::string> run_file_keys() {
  std::vector<std::string> out;
  for (const runfile::Key& k : runfile::schema()) out.emplace_back(k.name);
  return out;
}

}  // namespace
}  // namespace trainhost::python

NB_MODULE(_core, m) {
  using namespace trainhost::python;
  nb::set_leak_warnings(false);  // functions that are estimators live until the process ends
  nb::class_<Request>(m, "Request")
      .def(nb::init<>())
      .def_rw("model", &Request::model)
      .def_rw("run_file", &Request::run_file)
      .def_rw("from_files", &Request::from_files)
      .def_rw("settings", &Request::settings)
      .def_rw("plugin_path", &Request::plugin_path)
      .def_rw("backend", &Request::backend)
      .def_rw("device", &Request::device)
      .def_rw("budget", &Request::budget)
      .def_rw("host_budget", &Request::host_budget)
      .def_rw("framework", &Request::framework)
      .def_rw("estimators", &Request::estimators)
      .def_rw("safe", &Request::safe)
      .def_rw("limits", &Request::limits)
      .def_rw("over", &Request::over)
      .def_rw("devices", &Request::devices)
      .def_rw("global_batch", &Request::global_batch)
      .def_rw("top", &Request::top)
      .def_rw("threads", &Request::threads)
      .def_rw("every", &Request::every);
  m.def("plan", &plan, nb::arg("request"), nb::arg("estimators"));
  m.def("sweep", &sweep, nb::arg("request"), nb::arg("estimators"));
  m.def("search", &search, nb::arg("request"), nb::arg("estimators"));
  m.def("set_program", &trainhost::plugin::set_program_file, nb::arg("file"));
  m.def("run_file_keys", &run_file_keys);
  m.def("components", &names_of_components);
  m.def("tiers", &names_of_tiers);
  m.def("kinds", &names_of_claims);
  m.attr("version") = TRAINHOST_VERSION;
}
