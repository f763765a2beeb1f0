// See adapt.hpp. The estimator's adapter, and what every adapter shares: errors.
#include <fmt/format.h>

#include <cstring>
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

class EstimatorAdapter : public Estimator {
 public:
  EstimatorAdapter(std::shared_ptr<Library> library, const th_estimator& table)
      : library_(std::move(library)), table_(table) {}

  const std::string& id() const override { return library_->id(); }

  int match(const ModelSpec& m, const RunSpec& r) const override {
    std::optional<AskedAbout> about;
    try {
      about.emplace(*library_, m, r);
    } catch (const PluginError& e) {  // a run that it cannot see is none of its
      library_->warn_once(e.what());
      return 0;
    }
    int32_t score = 0;
    call_plugin(*library_, "match",
                [&](th_error*) { return score = table_.match(about->model.get(), about->run.get()), TH_OK; });
    return score < 0 ? 0 : score > 1000 ? 1000 : score;
  }

  MemoryReport estimate(const ModelSpec& m, const RunSpec& r, const TrainerTraits* traits) const override {
    AskedAbout about(*library_, m, r);
    auto of_trainer = library_->ask(traits ? abi::to_c(*traits) : th_profile{});
    Answered into(*library_);
    abi::Collector& collector = into.collector;
    try {
      call_plugin(*library_, "estimate", [&](th_error* e) {
        return table_.estimate(library_->host(), about.model.get(), about.run.get(),
                               traits ? of_trainer.get() : nullptr, collector.sink(), collector.summary(), e);
      });
    } catch (const PluginError&) {
      if (collector.problem().empty()) throw;  // otherwise the refused node is the better story
    }
    return take_report(id(), "estimate", collector);
  }

 private:
  std::shared_ptr<Library> library_;
  th_estimator table_;
};

}  // namespace

std::unique_ptr<Estimator> adapt_estimator(std::shared_ptr<Library> library) {
  const void* raw = library->interface(TH_ESTIMATOR_ID);
  if (!raw)
    throw Refused("abi", "no_interface",
                  fmt::format("says that it is an estimator and does not offer {}", TH_ESTIMATOR_ID),
                  "return its table from get(), or change kind in the manifest");
  auto table = known_part<th_estimator>(raw, TH_UP_TO(th_estimator, estimate), TH_ESTIMATOR_ID " table");
  need_slot(reinterpret_cast<const void*>(table.match), TH_ESTIMATOR_ID, "match");
  need_slot(reinterpret_cast<const void*>(table.estimate), TH_ESTIMATOR_ID, "estimate");
  return std::make_unique<EstimatorAdapter>(std::move(library), table);
}

MemoryReport take_report(const std::string& plugin_id, const char* call, abi::Collector& collector) {
  MemoryReport report = collector.take(plugin_id);
  if (!collector.problem().empty())
    throw PluginError(
        Exit::kFailed, "internal",
        fmt::format("plugin {} gave a broken report from {}(): {}", plugin_id, call, collector.problem()),
        "a bug of the plugin", 0);
  return report;
}

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

void require_ok(const std::string& plugin_id, const char* call, th_status s, const th_error& error) {
  if (s == TH_OK) return;
  std::string status(abi::status_name(s));
  if (status == "undocumented")
    throw PluginError(
        Exit::kFailed, "internal",
        fmt::format("plugin {} returned the undocumented code {} from {}()", plugin_id, s, call),
        "a bug of the plugin", 0);
  const abi::Told told = abi::told(error);
  const std::string message =
      told.message.empty()
          ? fmt::format("plugin {} failed in {}() without a message: {}", plugin_id, call, status)
          : told.message;
  throw PluginError(exit_of(s), status, abi::prefix(told.native) + message, told.hint, told.bytes_needed,
                    {told.native.domain, told.native.code})
      .of(plugin_id);
}

}  // namespace trainhost::plugin
