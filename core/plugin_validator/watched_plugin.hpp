// The plugin under test: its file, manifest, library in this process, the checking host, and calls whose
// arguments are all guarded. One object exists per child process and may serve several checks; breaches that
// one check recorded are visible to the next.
#pragma once
#include <deque>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "core/plugin/registry.hpp"
#include "core/plugin_validator/breach_record.hpp"
#include "core/plugin_validator/checking_host.hpp"
#include "core/plugin_validator/guarded_memory.hpp"
#include "core/plugin_validator/loaded_library.hpp"
#include "core/plugin_validator/samples.hpp"
#include "core/plugin_validator/sinks.hpp"
#include "core/plugin_validator/validator_check.hpp"
#include "trainhost/communicator.h"

namespace trainhost::plugin_validator {

/// How a call into the plugin ended.
struct CallResult {
  th_status status = TH_OK;
  std::string message, hint;
  th_status error_code = TH_OK;  // the code in the th_error itself
  bool ok() const { return status == TH_OK; }
  /// "TH_E_ARG (no model)", for messages.
  std::string text() const;
};

/// The arguments of estimate() and plan(); plan() has no profile.
struct ReportArguments {
  const th_model* model = nullptr;
  const th_run* run = nullptr;
  const th_profile* profile = nullptr;
  th_mem_sink* sink = nullptr;
  th_mem_summary* summary = nullptr;
  th_error* error = nullptr;
};

struct ReportResult : CallResult {
  ReceivedReport report;
  int calls_after_failure = 0;
};

/// The name of the constant, or the number if it is undocumented.
std::string status_text(th_status s);
bool documented(th_status s);

/// A code after which the host can try the next candidate or report the run: TH_E_ARG or TH_E_UNSUPPORTED.
inline bool is_valid_rejection(th_status s) { return s == TH_E_ARG || s == TH_E_UNSUPPORTED; }

/// Changes to the ordinary arguments of a call.
struct CallVariation {
  const th_profile* profile = nullptr;
  bool no_error = false;                 // a null th_error
  std::size_t fail_from = 0;             // the sink fails from this node on, counted from 1; 0: never ...
  th_status fail_with = TH_E_CANCELLED;  // ... with this code
  std::uint32_t later_minor_bytes = 0;   // structs are longer than this build knows by this many bytes ...
  unsigned char later_minor_fill = 0;    // ... each with this value
  std::function<void()> meanwhile = {};  // called by the sink after each of the first nodes
};

/// Settings from the parent process.
struct Environment {
  std::filesystem::path reference_estimator;  // empty: not available
  double fuzz_seconds = 0;                    // 0: a fixed number of cases
  std::function<void(const std::string&)>
      announce_case;  // called before each case, so that a crash can be attributed
};

class WatchedPlugin {
 public:
  WatchedPlugin(std::filesystem::path file, std::uint64_t seed);
  ~WatchedPlugin();

  const std::filesystem::path& file() const { return file_; }
  /// The manifest as the host reads it. Throws CheckFailed.
  const plugin::Manifest& manifest();
  std::uint64_t seed() const { return seed_; }
  Environment& environment() { return environment_; }
  /// Sets a measurement that the report prints if the check passes.
  void note_measurement(std::string text) { measurement_ = std::move(text); }
  std::string take_measurement() { return std::exchange(measurement_, {}); }

  /// The library, mapped at the first use. Throws CheckFailed.
  LoadedLibrary& library();
  /// Maps it so that unmap_library() unmaps it; false if it cannot be loaded. For checks of unloading.
  bool map_until_closed() { return library_.map(file_, Mapping::kUntilClosed).empty(); }
  void unmap_library() { library_.unmap(); }
  CheckingHost& host() { return host_; }
  BreachRecord& record() { return record_; }
  Sample sample() { return small_sample(manifest().families); }

  /// Runs f(th_error*) as one call into the plugin: callbacks are allowed; the error is guarded, and
  /// poisoned afterwards.
  CallResult call(const std::function<th_status(th_error*)>& f, bool no_error = false);

  CallResult start();
  void stop();

  // The plugin must have been started (Started) before the calls below.

  /// estimate() of an estimator, plan() of a trainer.
  ReportResult report(const Sample& s, const CallVariation& v = {});
  /// "estimate()" or "plan()".
  const char* report_function() { return is_trainer() ? "plan()" : "estimate()"; }
  /// The plugin's function, called directly.
  th_status call_report_function(const ReportArguments& a);
  /// report() through `f`, which may change the arguments that it passes to call_report_function().
  ReportResult report_call(const Sample& s, const CallVariation& v,
                           const std::function<th_status(ReportArguments)>& f);
  /// Discards the report and stores nothing, for checks that measure the memory of this process.
  th_status report_and_discard(const Sample& s);
  bool is_trainer() { return manifest().kind == "trainer"; }
  bool is_communicator() { return manifest().kind == "communicator"; }
  /// The interface that its kind promises.
  const char* interface_id() {
    return is_trainer() ? TH_TRAINER_ID : is_communicator() ? TH_COMMUNICATOR_ID : TH_ESTIMATOR_ID;
  }
  // Estimators.
  int match(const Sample& s);
  // Trainers.
  CallResult probe(std::uint32_t* devices);
  CallResult profile(const Sample& s, th_profile& out);
  /// Throws CheckSkipped with the plugin's message if probe() finds no device.
  void require_device();

  /// Uses the plugin as a host does, once per process. Breaches are in record(). In level5_contract.cpp.
  void use_normally();
  /// Checks arguments of earlier calls for late writes.
  void check_late_writes();

  /// A tensor sink that exists as long as this object.
  TensorSink& tensor_sink();

 private:
  void read_error(Guarded<th_error>& e, CallResult& a);
  void check_late_write(const Guarded<th_error>& e);
  std::filesystem::path file_;
  std::uint64_t seed_;
  BreachRecord record_;
  CheckingHost host_;
  LoadedLibrary library_;
  std::optional<plugin::Manifest> manifest_;
  std::mutex mutex_;
  std::deque<std::unique_ptr<Guarded<th_error>>>
      errors_;  // of the last calls; late writes change their poison bytes
  std::deque<ReportSink> report_sinks_;
  std::deque<TensorSink> tensor_sinks_;
  bool used_normally_ = false;
  Environment environment_;
  std::string measurement_;
};

/// Calls start() now and stop() in the destructor. Throws CheckFailed, or CheckSkipped if start() returns
/// TH_E_UNAVAILABLE.
class Started {
 public:
  explicit Started(WatchedPlugin& plugin);
  ~Started() { plugin_.stop(); }
  Started(const Started&) = delete;

 private:
  WatchedPlugin& plugin_;
};

}  // namespace trainhost::plugin_validator
