// See runner.hpp. Invariant of the plan: a check comes after its prerequisites, so each check is settled
// (passed, failed, skipped) exactly once, from front to back. The verdict of a check that did not pass in a
// shared child comes from a child of its own.
#include "core/plugin_validator/runner.hpp"
#include "core/base/json_value.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <cstdlib>
#include <map>

#include "core/base/text.hpp"
#include "core/plugin/field_lines.hpp"
#include "core/plugin/file_validation.hpp"
#include "core/plugin/rejection.hpp"
#include "core/plugin_validator/current_case.hpp"
#include "core/plugin_validator/select_checks.hpp"
#include "core/process/child.hpp"

namespace trainhost::plugin_validator {
namespace {

using Verdicts = std::map<std::string, Verdict>;

/// The record of one child: a verdict for each check that it finished, and the check that was running when
/// it ended.
struct ChildReport {
  Verdicts verdicts;
  std::string running;       // "" if no check was running
  std::string current_case;  // of the running check; "" if it has none
  ChildResult child;
};

// An unknown name cannot come from our worker, so it counts as a failure.
Outcome outcome_of(const std::string& name) {
  for (Outcome o : {Outcome::kPass, Outcome::kFail, Outcome::kSkip, Outcome::kCrash, Outcome::kTimeout})
    if (name == name_of(o)) return o;
  return Outcome::kFail;
}

// The record may end anywhere: the child can crash while a check runs. Lines of another form are skipped.
ChildReport parse(ChildResult child) {
  ChildReport report;
  for (const std::string_view line : plugin::lines_of(child.record)) {
    const std::vector<std::string> f = plugin::split_fields(line);
    if (f[0] == "begins" && f.size() == 2) report.running = f[1];
    if (f[0] == "ends" && f.size() == 5) {
      report.verdicts[f[1]] = {outcome_of(f[2]), f[3], std::strtod(f[4].c_str(), nullptr)};
      report.running = "";
    }
  }
  report.child = std::move(child);
  return report;
}

class Runner {
 public:
  explicit Runner(const Settings& s) : s_(s) {}

  /// Gives every check of `plan` a verdict.
  void run(std::vector<const Check*> plan, const std::function<void(const Check&)>& settled) {
    // Each round settles at least the first check of the plan, so the loop ends.
    while (!plan.empty()) {
      const Check& c = *plan.front();
      if (const std::string missing = unmet(c); !missing.empty()) {
        // A prerequisite that was not selected or skipped: "was skipped"; else "did not pass".
        const Outcome why = verdicts_.count(missing) ? verdicts_[missing].outcome : Outcome::kSkip;
        settle(c, {Outcome::kSkip, fmt::format("needs {}, which {}", missing,
                                               why == Outcome::kSkip ? "was skipped" : "did not pass")});
      } else if (c.own_process) {
        settle(c, alone(c));
      } else {
        run_together(plan);
      }
      // A shared child settles several checks, not necessarily adjacent ones.
      assert(verdicts_.count(c.id));  // so the loop ends
      while (!plan.empty() && verdicts_.count(plan.front()->id)) {
        if (settled) settled(*plan.front());
        plan.erase(plan.begin());
      }
    }
  }
  const Verdict& verdict(const std::string& id) const { return verdicts_.at(id); }

 private:
  std::string unmet(const Check& c) const {
    // A check without a verdict has not run, and cannot be relied on.
    for (const std::string& id : c.needs)
      if (const auto it = verdicts_.find(id); it == verdicts_.end() || it->second.outcome != Outcome::kPass)
        return id;
    return "";
  }
  void settle(const Check& c, Verdict v) { verdicts_[c.id] = std::move(v); }

  /// Runs the first checks of `plan` that may share a child: those of one level without own_process.
  void run_together(const std::vector<const Check*>& plan) {
    std::vector<const Check*> some;
    for (const Check* c : plan) {
      if (c->level != plan.front()->level) break;
      if (!c->own_process) some.push_back(c);
    }
    // All in one process: starting one and loading the library takes longer than most checks.
    const ChildReport report = in_child(some);
    // Passed checks are final at once; the others need a second look.
    for (const Check* c : some) {
      const auto it = report.verdicts.find(c->id);
      if (it != report.verdicts.end() && it->second.outcome == Outcome::kPass) settle(*c, it->second);
    }
    for (const Check* c : some) {  // in order: needs of later ones may change
      if (verdicts_.count(c->id)) continue;
      const auto it = report.verdicts.find(c->id);
      // Alone: an earlier check in the same process may have caused the failure.
      if (c->id == report.running || (it != report.verdicts.end() && it->second.outcome == Outcome::kFail))
        settle(*c, alone(*c));
      if (it != report.verdicts.end() && it->second.outcome == Outcome::kSkip && unmet(*c).empty())
        settle(*c, it->second);
      if (c->id == report.running) {
        Verdict& v = verdicts_[c->id];
        // It passes alone but ended the shared process: the combination is the fault, and is reported.
        if (v.outcome == Outcome::kPass) v = ended(report, "after earlier checks in the same process, ", *c);
        return;  // the checks after it continue in a new child
      }
    }
    const Check& first = *plan.front();  // avoid an endless loop if the child cannot start
    if (!verdicts_.count(first.id)) settle(first, alone(first));
  }

  /// No verdict in the record means that the process ended during the check.
  Verdict alone(const Check& c) {
    const ChildReport report = in_child({&c});
    if (const auto it = report.verdicts.find(c.id); it != report.verdicts.end()) return it->second;
    return ended(report, "", c);
  }

  Verdict ended(const ChildReport& report, std::string when, const Check& c) const {
    const ChildResult& r = report.child;
    if (!report.current_case.empty()) when += fmt::format("at {}, ", report.current_case);
    ChildLimits limits;
    // describe() prints a limit; here the time that the child really had.
    limits.seconds = r.seconds;
    if (r.end == ChildEnd::kLate)
      return {Outcome::kTimeout,
              fmt::format("{}it did not finish within {:g} s", when,
                          s_.deadline + extra_seconds(c, s_.fuzz_seconds)),
              r.seconds};
    return {Outcome::kCrash, fmt::format("{}the process {} during this check", when, describe(r, limits)),
            r.seconds};
  }

  ChildReport in_child(const std::vector<const Check*>& some) {
    // The file of the current case outlives the child: a crashed process cannot report any more.
    const CaseFile cases;
    std::vector<std::string> ids = {"checks"}, passed = {"passed"};
    for (const Check* c : some) ids.push_back(c->id);
    for (const auto& [id, v] : verdicts_)
      if (v.outcome == Outcome::kPass) passed.push_back(id);
    ChildRequest request;
    request.program = s_.program;
    request.arguments = s_.worker_arguments;
    for (const std::vector<std::string>& fields : {{"file", s_.file.string()},
                                                   {"seed", std::to_string(s_.seed)},
                                                   {"deadline", fmt::format("{}", s_.deadline)},
                                                   {"fuzz_seconds", fmt::format("{}", s_.fuzz_seconds)},
                                                   {"case_file", cases.name()},
                                                   {"reference_estimator", s_.reference_estimator.string()},
                                                   passed,
                                                   ids})
      request.input += plugin::join_fields(fields) + "\n";
    // The worker ends itself when a check times out; this limit is for a worker that cannot.
    // The sum of all limits, since each check has its own, and 2 s for start and loading.
    request.limits.seconds = s_.deadline * static_cast<double>(some.size()) + 2;
    for (const Check* c : some) request.limits.seconds += extra_seconds(*c, s_.fuzz_seconds);
    ChildReport report = parse(run_child(request));
    report.current_case = cases.text();
    return report;
  }

  const Settings& s_;
  // By id; checks of earlier children included.
  Verdicts verdicts_;
};

}  // namespace

std::size_t Report::count(Outcome o) const {
  return static_cast<std::size_t>(
      std::count_if(results.begin(), results.end(), [o](const Result& r) { return r.verdict.outcome == o; }));
}

bool Report::all_passed() const {
  return count(Outcome::kFail) + count(Outcome::kCrash) + count(Outcome::kTimeout) == 0;
}

Report run_checks(const Settings& s, const std::function<void(const Result&)>& seen) {
  Report r;
  r.file = s.file;
  r.seed = s.seed;
  plugin::Trust trust;
  plugin::ValidatedFile passed;
  // The manifest decides which checks apply; a file without a valid one gets the common checks only.
  try {
    plugin::validate_file(s.file, trust, passed);
  } catch (const plugin::Rejection&) {  // level 1 says why
  }
  r.id = passed.manifest.id, r.kind = passed.manifest.kind, r.version = passed.manifest.version;
  const Selection chosen = select(s.level, s.only, s.skip, r.kind);
  Runner runner(s);
  runner.run(chosen.plan, [&](const Check& c) {
    if (!chosen.asked.count(c.id)) return;
    r.results.push_back({&c, runner.verdict(c.id)});
    if (seen) seen(r.results.back());
  });
  return r;
}

}  // namespace trainhost::plugin_validator
