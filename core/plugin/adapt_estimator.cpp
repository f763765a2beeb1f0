// See adapt.hpp. The adapter of estimators, and error handling that all adapters share.
#include <fmt/format.h>

#include <cstring>
#include <new>
#include <optional>

#include "core/abi/convert_structs.hpp"
#include "core/abi/error_guard.hpp"
#include "core/abi/report_transfer.hpp"
#include "core/base/text.hpp"
#include "core/plugin/adapt.hpp"
#include "core/plugin/known_fields.hpp"
#include "trainhost/estimator.h"

namespace trainhost::plugin {
namespace {

/// Estimators have no instance and no state; the same adapter is used for every estimate of a command.
class EstimatorAdapter : public Estimator {
 public:
  EstimatorAdapter(std::shared_ptr<Library> library, const th_estimator& table)
      : library_(std::move(library)), table_(table) {}

  const std::string& id() const override { return library_->id(); }

  /// A score outside [0, 1000] is limited instead of rejected: it only orders estimators.
  int match(const ModelSpec& m, const RunSpec& r) const override {
    std::optional<CallArguments> arguments;
    try {
      arguments.emplace(*library_, m, r);
    } catch (const PluginError& e) {  // a run with fields that the plugin does not know does not match
      library_->warn_once(e.what());
      return 0;
    }
    int32_t score = 0;
    call_plugin(*library_, "match", [&](th_error*) {
      return score = table_.match(arguments->model.get(), arguments->run.get()), TH_OK;
    });
    return score < 0 ? 0 : score > 1000 ? 1000 : score;
  }

  /// `traits` may be null: without a trainer, an estimator plans for a device in general.
  MemoryReport estimate(const ModelSpec& m, const RunSpec& r, const TrainerTraits* traits) const override {
    CallArguments arguments(*library_, m, r);
    auto of_trainer = library_->fit_argument(traits ? abi::to_c(*traits) : th_profile{});
    // Nodes are checked while they arrive; take_report() checks what needs all of them.
    ReportReceiver receiver(*library_);
    abi::Collector& collector = receiver.collector;
    try {
      call_plugin(*library_, "estimate", [&](th_error* e) {
        return table_.estimate(library_->host(), arguments.model.get(), arguments.run.get(),
                               traits ? of_trainer.get() : nullptr, collector.sink(), collector.summary(), e);
      });
    } catch (const PluginError&) {
      if (collector.problem().empty() && !collector.out_of_memory())
        throw;  // otherwise the rejected node is the more useful message
    }
    return take_report(id(), "estimate", collector);
  }

 private:
  std::shared_ptr<Library> library_;
  th_estimator table_;
};

}  // namespace

/// Both functions are mandatory; the table is copied, so a plugin cannot change it later.
std::unique_ptr<Estimator> adapt_estimator(std::shared_ptr<Library> library) {
  const void* raw = library->interface(TH_ESTIMATOR_ID);
  if (!raw)
    throw Rejection("abi", "no_interface",
                    fmt::format("it is of kind estimator but does not provide {}", TH_ESTIMATOR_ID),
                    "return its table from get(), or change the kind in the manifest");
  auto table =
      copy_known_fields<th_estimator>(raw, TH_SIZE_UP_TO(th_estimator, estimate), TH_ESTIMATOR_ID " table");
  require_slot(reinterpret_cast<const void*>(table.match), TH_ESTIMATOR_ID, "match");
  require_slot(reinterpret_cast<const void*>(table.estimate), TH_ESTIMATOR_ID, "estimate");
  return std::make_unique<EstimatorAdapter>(std::move(library), table);
}

/// Shared by estimators and trainers: both send reports through the same sink.
MemoryReport take_report(const std::string& plugin_id, const char* call, abi::Collector& collector) {
  if (collector.out_of_memory()) throw std::bad_alloc();  // of the host, not of the plugin
  MemoryReport report = collector.take(plugin_id);
  if (!collector.problem().empty())
    throw PluginError(
        Exit::kFailed, "internal",
        fmt::format("plugin {} sent an invalid report from {}(): {}", plugin_id, call, collector.problem()),
        "a bug in the plugin: report it to its author", 0);
  return report;
}

/// Exit codes are part of the command line's interface; statuses are part of the plugin interface.
Exit exit_of(th_status s) {
  switch (s) {
    case TH_E_ARG:
    case TH_E_UNSUPPORTED:
      return Exit::kUsage;
    case TH_E_UNAVAILABLE:
      return Exit::kNoBackend;
    case TH_E_DEVICE_OOM:
    case TH_E_HOST_OOM:
      return Exit::kDoesNotFit;
    case TH_E_CANCELLED:
      return Exit::kStopped;
    default:
      return Exit::kFailed;
  }
}

/// A status that is no constant of the interface is a bug of the plugin and is reported as such, with the
/// number. The message of a plugin is never trusted to exist.
void require_ok(const std::string& plugin_id, const char* call, th_status s, const th_error& error) {
  if (s == TH_OK) return;
  std::string status(abi::status_name(s));
  if (status == "undocumented")
    throw PluginError(
        Exit::kFailed, "internal",
        fmt::format("plugin {} returned the undocumented code {} from {}()", plugin_id, s, call),
        "a bug in the plugin: report it to its author", 0);
  const abi::ErrorText text = abi::read_error(error);
  const std::string message =
      text.message.empty()
          ? fmt::format("{1}() of plugin {0} failed without a message: {2}", plugin_id, call, status)
          : text.message;
  throw PluginError(exit_of(s), status, abi::prefix(text.native) + message, text.hint, text.bytes_needed,
                    {text.native.domain, text.native.code})
      .from_plugin(plugin_id);
}

}  // namespace trainhost::plugin
