// Adapters that implement the host's abstract classes with the C tables of a loaded plugin. They own a
// reference to the library, so a session may outlive the registry. They check everything that comes back and
// turn status codes into PluginError.
#pragma once
#include <memory>
#include <string>

#include "core/abi/convert_structs.hpp"
#include "core/abi/report_transfer.hpp"
#include "core/plugin/communicator.hpp"
#include "core/plugin/plugin.hpp"
#include "core/plugin/plugin_library.hpp"
#include "trainhost/status.h"

namespace trainhost::plugin {

/// Throw Rejection (abi/no_interface, abi/truncated, abi/slot) if the library does not provide a complete
/// interface.
std::unique_ptr<Estimator> adapt_estimator(std::shared_ptr<Library> library);
std::unique_ptr<Trainer> adapt_trainer(std::shared_ptr<Library> library);
std::unique_ptr<CommunicatorPlugin> adapt_communicator(std::shared_ptr<Library> library);

/// Throws Rejection (abi/interfaces) if get() returns null for an interface that the manifest lists.
void validate_interfaces(const Library& library);

/// Argument and unsupported: kUsage; unavailable: kNoBackend; out of memory: kDoesNotFit; cancelled:
/// kStopped; else kFailed.
Exit exit_of(th_status s);

/// The collected report; throws PluginError("internal") that names `call` if the report violates the rules
/// of memory.h.
MemoryReport take_report(const std::string& plugin_id, const char* call, abi::Collector& collector);

/// Throws PluginError for a status other than TH_OK, with the plugin's message, or with `call` and the
/// status if it gave none.
void require_ok(const std::string& plugin_id, const char* call, th_status s, const th_error& error);

/// Model and run of a call as C structs of the plugin's minor version; throws like Library::fit_argument().
/// Borrows both arguments.
struct CallArguments {
  CallArguments(const Library& library, const ModelSpec& m, const RunSpec& r)
      : model(library.fit_argument(abi::to_c(m))), run(library.fit_argument(abi::to_c(r))) {}
  abi::ZeroPadded<th_model> model;
  abi::ZeroPadded<th_run> run;
};

/// The sink of a report, shrunk to the plugin's minor version.
struct ReportReceiver {
  explicit ReportReceiver(const Library& library) {
    library.view().shrink(collector.padded_sink());
    library.view().shrink(collector.padded_summary());
  }
  abi::Collector collector;
};

/// Calls into a plugin, f(th_error*) -> th_status. An exception that leaves the plugin becomes a
/// PluginError; the floating-point mode is restored afterwards.
template <class F>
void call_plugin(const Library& library, const char* call, F&& f) {
  auto result = library.make_result<th_error>();
  FpMode mode;
  th_status s;
  try {
    s = f(result.get());
  } catch (...) {
    library.restore_fp_mode(mode, call);
    throw PluginError(Exit::kFailed, "internal",
                      std::string(call) + "() of plugin " + library.id() + " threw an exception", "", 0);
  }
  library.restore_fp_mode(mode, call);
  require_ok(library.id(), call, s, result.value);
}

}  // namespace trainhost::plugin
