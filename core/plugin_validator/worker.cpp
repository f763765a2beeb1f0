// The child process of runner.hpp. Request and record are lines of fields (core/plugin/field_lines.hpp). A
// line of the record is "begins ID" or "ends ID OUTCOME REASON SECONDS". Each line is sent at once: what was
// written before a crash is what the parent knows.
#include "core/plugin_validator/runner.hpp"

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <mutex>
#include <set>
#include <thread>

#include "core/base/text.hpp"
#include "core/plugin/field_lines.hpp"
#include "core/plugin_validator/current_case.hpp"
#include "core/plugin_validator/validator_check.hpp"
#include "core/plugin_validator/watched_plugin.hpp"
#include "core/process/child_side.hpp"

namespace trainhost::plugin_validator {
namespace {

using Clock = std::chrono::steady_clock;

/// Writes the record and watches the time of the running check. One lock, so that a verdict and a timeout
/// cannot both be written. The thread is detached: it ends with the process, also while a check hangs.
/// cannot both be written.
class VerdictWriter {
 public:
  VerdictWriter(double deadline, const std::string& case_file) : deadline_(deadline) {
    note_.open(case_file);
    std::thread([this] { watch(); }).detach();
  }

  void begins(const std::string& id, double extra_seconds) {
    std::lock_guard lock(mutex_);
    running_ = id, since_ = Clock::now(), extra_seconds_ = extra_seconds;
    // A case of the check before must not be taken for one of this.
    note_.note("");
    write({"begins", id});
  }
  /// Stores the current case of the running check, for the message if the process ends.
  void announce_case(const std::string& what) {
    std::lock_guard lock(mutex_);
    case_ = what;
    // In shared memory with the parent (CaseFile), so that it survives a crash.
    note_.note(what);
  }
  void ends(const std::string& id, Outcome o, const std::string& reason) {
    std::lock_guard lock(mutex_);
    write({"ends", id, name_of(o), reason, fmt::format("{}", seconds())});
    running_.clear(), case_.clear();
  }
  [[noreturn]] void done() { record_.done(); }

 private:
  double seconds() const { return std::chrono::duration<double>(Clock::now() - since_).count(); }
  void write(const std::vector<std::string>& fields) { record_.write(plugin::join_fields(fields) + "\n"); }
  void watch() {
    while (true) {
      // 10 ms: short compared with the shortest deadline, 50 ms.
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      std::lock_guard lock(mutex_);
      if (running_.empty() || seconds() < deadline_ + extra_seconds_) continue;
      const std::string when = case_.empty() ? "" : fmt::format(", at {}", case_);
      write({"ends", running_, name_of(Outcome::kTimeout),
             fmt::format("it did not finish within {:g} s{}", deadline_ + extra_seconds_, when),
             fmt::format("{}", seconds())});
      // Ends the process from this thread; the check may never return.
      record_.done();
    }
  }
  ChildRecord record_;
  CaseNote note_;
  double deadline_, extra_seconds_ = 0;
  std::mutex mutex_;
  std::string running_, case_;
  Clock::time_point since_;
};

struct RunResult {
  Outcome outcome = Outcome::kPass;
  std::string reason;
};

/// Exceptions of other types than the first two come from the plugin, which must not let them cross the C
/// interface.
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

struct Request {
  std::string file, case_file;
  std::uint64_t seed = 1;
  double deadline = 10;
  Environment environment;
  std::vector<std::string> passed, checks;  // ids
};

// Unknown keys are ignored. The values come from our own parent, so they are not checked again.
Request read_request() {
  Request r;
  const std::string text = read_child_input();
  for (const std::string_view line : plugin::lines_of(text)) {
    std::vector<std::string> f = plugin::split_fields(line);
    const std::string key = f[0], value = f.size() > 1 ? f[1] : "";
    f.erase(f.begin());
    if (key == "file") r.file = value;
    if (key == "seed") r.seed = std::strtoull(value.c_str(), nullptr, 10);
    if (key == "deadline") r.deadline = std::strtod(value.c_str(), nullptr);
    if (key == "fuzz_seconds") r.environment.fuzz_seconds = std::strtod(value.c_str(), nullptr);
    if (key == "case_file") r.case_file = value;
    if (key == "reference_estimator") r.environment.reference_estimator = value;
    if (key == "passed") r.passed = f;
    if (key == "checks") r.checks = f;
  }
  return r;
}

}  // namespace

void run_worker() {
  const Request request = read_request();
  // Static: threads of the plugin may use them until the process ends.
  static VerdictWriter writer(request.deadline, request.case_file);
  static WatchedPlugin plugin(request.file, request.seed);
  Environment& environment = plugin.environment();
  environment = request.environment;
  environment.announce_case = [](const std::string& what) { writer.announce_case(what); };
  // Grows with each check that passes here, so later checks of this child can rely on it.
  std::set<std::string> passed(request.passed.begin(), request.passed.end());
  for (const std::string& id : request.checks) {
    const Check* c = find(id);
    if (!c || !met(*c, passed)) continue;  // the parent reports the missing prerequisite
    writer.begins(c->id, extra_seconds(*c, environment.fuzz_seconds));
    const RunResult e = run_one(*c, plugin);
    // Settings of the checking host return to their defaults, whatever the check has left.
    plugin.host().cancel_from_now_on(false);
    plugin.host().clear_options();
    plugin.host().fail_alloc(0);
    plugin.host().ledger().set_limit(UINT64_MAX);
    // A measurement of a failed check must not appear at the next one.
    plugin.take_measurement();
    if (e.outcome == Outcome::kPass) passed.insert(c->id);
    writer.ends(c->id, e.outcome, e.reason);
  }
  writer.done();
}

}  // namespace trainhost::plugin_validator
