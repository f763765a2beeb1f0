// The child process of runner.hpp. A record line is JSON: {"id", "begins"} or {"id", "outcome", "reason",
// "seconds"}.
#include "core/plugin_validator/runner.hpp"

#include <atomic>
#include <chrono>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "core/base/text.hpp"
#include "core/plugin_validator/current_case.hpp"
#include "core/plugin_validator/validator_check.hpp"
#include "core/plugin_validator/watched_plugin.hpp"
#include "core/process/child_side.hpp"

namespace trainhost::plugin_validator {
namespace {

using Json = nlohmann::json;
using Clock = std::chrono::steady_clock;

/// Writes the record and watches the time of the running check. One lock, so that a verdict and a timeout
/// cannot both be written.
class VerdictWriter {
 public:
  VerdictWriter(double deadline, const std::string& case_file) : deadline_(deadline) {
    note_.open(case_file);
    std::thread([this] { watch(); }).detach();
  }

  void begins(const std::string& id, double extra_seconds) {
    std::lock_guard lock(mutex_);
    at_ = id, since_ = Clock::now(), extra_seconds_ = extra_seconds;
    note_.note("");
    line({{"id", id}, {"begins", true}});
  }
  /// Stores the current case of the running check, for the message if the process ends.
  void announce_case(const std::string& what) {
    std::lock_guard lock(mutex_);
    case_ = what;
    note_.note(what);
  }
  void ends(const std::string& id, Outcome o, const std::string& reason) {
    std::lock_guard lock(mutex_);
    line({{"id", id}, {"outcome", name_of(o)}, {"reason", reason}, {"seconds", seconds()}});
    at_.clear(), case_.clear();
  }
  [[noreturn]] void done() { record_.done(); }

 private:
  double seconds() const { return std::chrono::duration<double>(Clock::now() - since_).count(); }
  void line(const Json& j) { record_.write(j.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n"); }
  void watch() {
    while (true) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      std::lock_guard lock(mutex_);
      if (at_.empty() || seconds() < deadline_ + extra_seconds_) continue;
      const std::string when = case_.empty() ? "" : fmt::format(", at {}", case_);
      line({{"id", at_},
            {"outcome", "timeout"},
            {"seconds", seconds()},
            {"reason", fmt::format("it did not finish within {:g} s{}", deadline_ + extra_seconds_, when)}});
      record_.done();
    }
  }
  ChildRecord record_;
  CaseNote note_;
  double deadline_, extra_seconds_ = 0;
  std::mutex mutex_;
  std::string at_, case_;
  Clock::time_point since_;
};

struct RunResult {
  Outcome outcome = Outcome::kPass;
  std::string reason;
};

RunResult run_one(const Check& c, WatchedPlugin& plugin) try {
  c.run(plugin);
  return {Outcome::kPass, plugin.take_measurement()};
} catch (const CheckFailed& e) {
  return {Outcome::kFail, e.what()};
} catch (const CheckSkipped& e) {
  return {Outcome::kSkip, e.what()};
} catch (const std::exception& e) {
  return {Outcome::kFail, std::string("the plugin threw an exception: ") + e.what()};
} catch (...) {
  return {Outcome::kFail, "the plugin threw an exception that is not a std::exception"};
}

bool met(const Check& c, const std::set<std::string>& passed) {
  for (const std::string& id : c.needs)
    if (!passed.count(id)) return false;
  return true;
}

}  // namespace

void run_worker() {
  const Json request = Json::parse(read_child_input(), nullptr, false);
  if (!request.is_object()) ::_Exit(2);
  static VerdictWriter writer(request.value("deadline", 10.0), request.value("case_file", ""));
  static WatchedPlugin plugin(request.value("file", ""), request.value("seed", std::uint64_t{1}));
  Environment& environment = plugin.environment();
  environment.reference_trainer = request.value("reference_trainer", "");
  environment.reference_estimator = request.value("reference_estimator", "");
  environment.fuzz_seconds = request.value("fuzz", 0.0);
  environment.announce_case = [](const std::string& what) { writer.announce_case(what); };
  std::set<std::string> passed;
  for (const Json& id : request["passed"]) passed.insert(id.get<std::string>());
  for (const Json& id : request["checks"]) {
    const Check* c = find(id.get<std::string>());
    if (!c || !met(*c, passed)) continue;  // the parent reports the missing prerequisite
    writer.begins(c->id, extra_seconds(*c, environment.fuzz_seconds));
    const RunResult e = run_one(*c, plugin);
    plugin.host().cancel_from_now_on(false);
    plugin.host().clear_options();
    plugin.host().fail_alloc(0);
    plugin.host().ledger().set_limit(UINT64_MAX);
    plugin.take_measurement();
    if (e.outcome == Outcome::kPass) passed.insert(c->id);
    writer.ends(c->id, e.outcome, e.reason);
  }
  writer.done();
}

}  // namespace trainhost::plugin_validator
