// Adapters: the C tables of a loaded plugin as the host's abstract classes. They hold the library, so that a
// session may outlive the registry; they check what comes back and turn codes into PluginError.
#pragma once
#include <memory>
#include <string>

#include "core/abi/convert_structs.hpp"
#include "core/abi/report_transfer.hpp"
#include "core/plugin/plugin.hpp"
#include "core/plugin/plugin_library.hpp"
#include "trainhost/status.h"

namespace trainhost::plugin {

/// Throw Refused (stage abi: no_interface, truncated, slot) when the library does not offer a whole
/// interface.
std::unique_ptr<Estimator> adapt_estimator(std::shared_ptr<Library> library);
std::unique_ptr<Trainer> adapt_trainer(std::shared_ptr<Library> library);

/// Throws Refused (abi/interfaces) when its get() does not know an interface that its manifest lists.
void check_interfaces(const Library& library);

/// Argument and unsupported: kUsage; unavailable: kNoBackend; out of memory: kDoesNotFit; cancelled:
/// kStopped; else kFailed.
Exit exit_of(th_status s);

/// What the collector holds; throws PluginError("internal") naming `call` when the report broke the rules.
MemoryReport take_report(const std::string& plugin_id, const char* call, abi::Collector& collector);

/// Throws PluginError for a status other than TH_OK: the plugin's own words, or `call` and the code where it
/// has none.
void require_ok(const std::string& plugin_id, const char* call, th_status s, const th_error& error);

/// The model and the run of a call, as the plugin knows such structs; throws as Library::ask() does. Borrows
/// both.
struct AskedAbout {
  AskedAbout(const Library& library, const ModelSpec& m, const RunSpec& r)
      : model(library.ask(abi::to_c(m))), run(library.ask(abi::to_c(r))) {}
  abi::Room<th_model> model;
  abi::Room<th_run> run;
};

/// Where a report goes, as the plugin knows such structs.
struct Answered {
  explicit Answered(const Library& library) {
    library.view().fit(collector.sink_room());
    library.view().fit(collector.summary_room());
  }
  abi::Collector collector;
};

/// Runs a call into a plugin, f(th_error*) -> th_status. An exception that leaves the plugin is its bug, not
/// our end; the floating-point mode is ours again afterwards.
template <class F>
void call_plugin(const Library& library, const char* call, F&& f) {
  auto room = library.answer<th_error>();
  FpMode mode;
  th_status s;
  try {
    s = f(room.get());
  } catch (...) {
    library.keep_fp_mode(mode, call);
    throw PluginError(Exit::kFailed, "internal",
                      "an exception left " + std::string(call) + "() of plugin " + library.id(), "", 0);
  }
  library.keep_fp_mode(mode, call);
  require_ok(library.id(), call, s, room.value);
}

}  // namespace trainhost::plugin
