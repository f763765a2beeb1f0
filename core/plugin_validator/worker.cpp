// See worker.hpp. A record line is JSON: {"id", "begins"} or {"id", "outcome", "reason", "seconds"}.
#include "core/plugin_validator/worker.hpp"

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

/// Lines of the record, and the clock of the check that runs: one lock, so that a verdict and its lateness
/// cannot cross.
class Teller {
 public:
  Teller(double deadline, const std::string& case_file) : deadline_(deadline) {
    note_.open(case_file);
    std::thread([this] { watch(); }).detach();
  }

  void begins(const std::string& id, double patience) {
    std::lock_guard lock(mutex_);
    at_ = id, since_ = Clock::now(), patience_ = patience;
    note_.note("");
    line({{"id", id}, {"begins", true}});
  }
  /// What the running check tries now: for the sentence when that ends the process.
  void at_case(const std::string& what) {
    std::lock_guard lock(mutex_);
    case_ = what;
    note_.note(what);
  }
  void ends(const std::string& id, Outcome o, const std::string& reason) {
    std::lock_guard lock(mutex_);
    line({{"id", id}, {"outcome", word(o)}, {"reason", reason}, {"seconds", seconds()}});
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
      if (at_.empty() || seconds() < deadline_ + patience_) continue;
      const std::string when = case_.empty() ? "" : fmt::format(", at {}", case_);
      line({{"id", at_},
            {"outcome", "timeout"},
            {"seconds", seconds()},
            {"reason", fmt::format("it was not done after {:g} s{}", deadline_ + patience_, when)}});
      record_.done();
    }
  }
  ChildRecord record_;
  CaseNote note_;
  double deadline_, patience_ = 0;
  std::mutex mutex_;
  std::string at_, case_;
  Clock::time_point since_;
};

struct Ending {
  Outcome outcome = Outcome::kPass;
  std::string reason;
};

Ending run_one(const Check& c, Bench& b) try {
  c.run(b);
  return {Outcome::kPass, b.take_figure()};
} catch (const Broken& e) {
  return {Outcome::kFail, e.what()};
} catch (const NotHere& e) {
  return {Outcome::kSkip, e.what()};
} catch (const std::exception& e) {
  return {Outcome::kFail, std::string("an exception left the plugin: ") + e.what()};
} catch (...) {
  return {Outcome::kFail, "an exception that is no std::exception left the plugin"};
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
  static Teller teller(request.value("deadline", 10.0), request.value("case_file", ""));
  static Bench bench(request.value("file", ""), request.value("seed", std::uint64_t{1}));
  Surroundings& around = bench.around();
  around.reference_trainer = request.value("reference_trainer", "");
  around.reference_estimator = request.value("reference_estimator", "");
  around.fuzz_seconds = request.value("fuzz", 0.0);
  around.at_case = [](const std::string& what) { teller.at_case(what); };
  std::set<std::string> passed;
  for (const Json& id : request["passed"]) passed.insert(id.get<std::string>());
  for (const Json& id : request["checks"]) {
    const Check* c = find(id.get<std::string>());
    if (!c || !met(*c, passed)) continue;  // the parent says what it lacks
    teller.begins(c->id, patience(*c, around.fuzz_seconds));
    const Ending e = run_one(*c, bench);
    bench.host().cancel_from_now_on(false);
    bench.host().clear_options();
    bench.host().fail_alloc(0);
    bench.host().ledger().set_limit(UINT64_MAX);
    bench.take_figure();
    if (e.outcome == Outcome::kPass) passed.insert(c->id);
    teller.ends(c->id, e.outcome, e.reason);
  }
  teller.done();
}

}  // namespace trainhost::plugin_validator
