// See runner.hpp.
#include "core/plugin_validator/runner.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "core/base/text.hpp"
#include "core/plugin/file_validation.hpp"
#include "core/plugin/rejection.hpp"
#include "core/plugin_validator/current_case.hpp"
#include "core/plugin_validator/select_checks.hpp"
#include "core/process/child.hpp"

namespace trainhost::plugin_validator {
namespace {

using Json = nlohmann::json;
using Verdicts = std::map<std::string, Verdict>;

/// What one child had to say: a verdict for each check that it finished, and the one it was at when it ended.
struct Told {
  Verdicts verdicts;
  std::string at;     // "": it came to its end
  std::string tried;  // the case that `at` was at; "" when it has none
  ChildResult child;
};

Outcome outcome_of(const std::string& w) {
  for (Outcome o : {Outcome::kPass, Outcome::kFail, Outcome::kSkip, Outcome::kCrash, Outcome::kTimeout})
    if (w == word(o)) return o;
  return Outcome::kFail;
}

Told parse(ChildResult child) {
  Told told;
  std::istringstream lines(child.record);
  for (std::string line; std::getline(lines, line);) {
    const Json j = Json::parse(line, nullptr, false);
    if (!j.is_object() || !j.contains("id")) continue;  // the plugin wrote there: what is ours still counts
    const std::string id = j.value("id", "");
    if (j.contains("begins")) {
      told.at = id;
    } else {
      told.verdicts[id] = {outcome_of(j.value("outcome", "fail")), j.value("reason", ""),
                           j.value("seconds", 0.0)};
      told.at = "";
    }
  }
  told.child = std::move(child);
  return told;
}

class Runner {
 public:
  explicit Runner(const Settings& s) : s_(s) {}

  /// Gives every check of `plan` a verdict.
  void run(std::vector<const Check*> plan, const std::function<void(const Check&)>& settled) {
    while (!plan.empty()) {
      const Check& c = *plan.front();
      if (const std::string missing = unmet(c); !missing.empty()) {
        const Outcome why = verdicts_.count(missing) ? verdicts_[missing].outcome : Outcome::kSkip;
        settle(c, {Outcome::kSkip, fmt::format("needs {}, which {}", missing,
                                               why == Outcome::kSkip ? "was skipped" : "did not pass")});
      } else if (c.alone) {
        settle(c, alone(c));
      } else {
        run_together(plan);
      }
      while (!plan.empty() && verdicts_.count(plan.front()->id)) {
        if (settled) settled(*plan.front());
        plan.erase(plan.begin());
      }
    }
  }
  const Verdict& verdict(const std::string& id) const { return verdicts_.at(id); }

 private:
  std::string unmet(const Check& c) const {
    for (const std::string& id : c.needs)
      if (const auto it = verdicts_.find(id); it == verdicts_.end() || it->second.outcome != Outcome::kPass)
        return id;
    return "";
  }
  void settle(const Check& c, Verdict v) { verdicts_[c.id] = std::move(v); }

  /// The first checks of `plan` that may share a child: of one level, none that wants a process of its own.
  void run_together(const std::vector<const Check*>& plan) {
    std::vector<const Check*> some;
    for (const Check* c : plan) {
      if (c->level != plan.front()->level) break;
      if (!c->alone) some.push_back(c);
    }
    const Told told = in_child(some);
    for (const Check* c : some) {
      const auto it = told.verdicts.find(c->id);
      if (it != told.verdicts.end() && it->second.outcome == Outcome::kPass) settle(*c, it->second);
    }
    for (const Check* c : some) {  // in order: needs of later ones may change
      if (verdicts_.count(c->id)) continue;
      const auto it = told.verdicts.find(c->id);
      if (c->id == told.at || (it != told.verdicts.end() && it->second.outcome == Outcome::kFail))
        settle(*c, alone(*c));
      if (it != told.verdicts.end() && it->second.outcome == Outcome::kSkip && unmet(*c).empty())
        settle(*c, it->second);
      if (c->id == told.at) {
        Verdict& v = verdicts_[c->id];
        if (v.outcome == Outcome::kPass)
          v = ended(told, "after the checks before it had run in the same process, ", *c);
        return;  // those behind it go on in a fresh child
      }
    }
    const Check& first = *plan.front();  // a child that could not even begin must not be started for ever
    if (!verdicts_.count(first.id)) settle(first, alone(first));
  }

  Verdict alone(const Check& c) {
    const Told told = in_child({&c});
    if (const auto it = told.verdicts.find(c.id); it != told.verdicts.end()) return it->second;
    return ended(told, "", c);
  }

  Verdict ended(const Told& told, std::string when, const Check& c) const {
    const ChildResult& r = told.child;
    if (!told.tried.empty()) when += fmt::format("at {}, ", told.tried);
    ChildLimits limits;
    limits.seconds = r.seconds;
    if (r.end == ChildEnd::kLate)
      return {Outcome::kTimeout,
              fmt::format("{}it was not done after {:g} s", when, s_.deadline + patience(c, s_.fuzz_seconds)),
              r.seconds};
    return {Outcome::kCrash,
            fmt::format("{}the process {} inside it; a return was expected", when, describe(r, limits)),
            r.seconds};
  }

  Told in_child(const std::vector<const Check*>& some) {
    const CaseFile cases;
    Json ids = Json::array(), passed = Json::array();
    for (const Check* c : some) ids.push_back(c->id);
    for (const auto& [id, v] : verdicts_)
      if (v.outcome == Outcome::kPass) passed.push_back(id);
    ChildRequest request;
    request.program = s_.program;
    request.arguments = s_.words;
    request.input = Json{{"file", s_.file.string()},
                         {"seed", s_.seed},
                         {"deadline", s_.deadline},
                         {"checks", ids},
                         {"passed", passed},
                         {"fuzz", s_.fuzz_seconds},
                         {"case_file", cases.name()},
                         {"reference_trainer", s_.reference_trainer.string()},
                         {"reference_estimator", s_.reference_estimator.string()}}
                        .dump();
    // The worker ends itself when one check is late; this is for a worker that cannot.
    request.limits.seconds = s_.deadline * static_cast<double>(some.size()) + 2;
    for (const Check* c : some) request.limits.seconds += patience(*c, s_.fuzz_seconds);
    Told told = parse(run_child(request));
    told.tried = cases.text();
    return told;
  }

  const Settings& s_;
  Verdicts verdicts_;
};

}  // namespace

std::size_t Report::count(Outcome o) const {
  return static_cast<std::size_t>(
      std::count_if(results.begin(), results.end(), [o](const Result& r) { return r.verdict.outcome == o; }));
}

bool Report::kept() const {
  return count(Outcome::kFail) + count(Outcome::kCrash) + count(Outcome::kTimeout) == 0;
}

Report run_checks(const Settings& s, const std::function<void(const Result&)>& seen) {
  Report r;
  r.file = s.file;
  r.seed = s.seed;
  plugin::Trust trust;
  plugin::Passed passed;
  try {
    plugin::pass_gate(s.file, trust, passed);
  } catch (const plugin::Refused&) {  // level 1 says why
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
