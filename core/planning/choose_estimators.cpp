// See choose_estimators.hpp. Estimators are plugins: each is loaded when it is asked for the first time, and
// a broken one must not prevent a plan by another.
#include "core/planning/choose_estimators.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "core/base/text.hpp"
#include "core/model/architecture.hpp"
#include "core/runfile/suggest.hpp"

namespace trainhost::planning {
namespace {

constexpr int kBestMatch = 1000;  // highest value that match() returns

/// No estimator matches: the model family is unknown, or no estimator plans this kind of run.
Error no_estimator(const runfile::RunConfig& c, const std::vector<std::string>& estimators) {
  if (!model::known_family(c.model.family)) {
    const Error e = model::unknown_family(c.model.family);
    const auto given = c.given.find("model.config");
    return Error(e.code(), e.what(), e.hint(), given == c.given.end() ? Where() : given->second);
  }
  if (!c.run.trainable.empty())
    for (const char* key : {"lora.modules_to_save", "train.only", "train.freeze"})
      if (const auto given = c.given.find(key); given != c.given.end())
        return usage_error(
            fmt::format("no installed estimator {} plans {}",
                        c.framework.empty() ? "of trainhost" : "of " + escaped(c.framework, 80), key),
            c.framework.empty()
                ? "leave it out"
                : "leave it out for a plan without these gradients, or plan with --for trainhost",
            given->second);
  return usage_error(
      fmt::format("no installed estimator plans this kind of run of the model family '{}'", c.model.family),
      fmt::format("installed estimators: {}; see trainhost plugins list", fmt::join(estimators, ", ")));
}

using Failed = std::vector<FailedEstimator>;

void add_failed(Failed& failed, const std::string& id, const std::string& error) {
  if (std::ranges::find(failed, id, &FailedEstimator::estimator) == failed.end())
    failed.push_back({id, error});
}

constexpr const char* kOwnTrainers = "trainhost";  // in a manifest's list of frameworks

/// True where only the step program knows what is trained: other estimators count every gradient. The replay
/// of a framework's step has adapters that differ.
bool needs_program(const runfile::RunConfig& c) {
  return !c.run.trainable.empty() || (!c.run.lora_rules.empty() && c.framework.empty());
}

/// False for adapters that no step program trains, by settings that th_run does not have: its estimator
/// cannot know them.
bool has_program(const runfile::RunConfig& c) {
  const MemoryPolicy& memory = c.run.memory;
  return !memory.adapts_head && !memory.adapts_embedding && !memory.saves_head && !memory.saves_embedding;
}

}  // namespace

int match_of(plugin::Registry& registry, const std::string& id, const runfile::RunConfig& c,
             std::vector<FailedEstimator>* failed) {
  if (!describes_framework(registry, id, c)) return 0;
  if (!has_program(c) && id == kProgramEstimator) return 0;
  if (needs_program(c) && id != kProgramEstimator) return 0;
  try {
    return registry.estimator(id).match(c.model, c.run);
  } catch (const plugin::PluginError& e) {
    if (failed) add_failed(*failed, id, e.what());
    return 0;
  }
}

namespace {

/// Adds the estimators whose files were rejected before they could be asked, for example by a trial load.
void add_rejected(const plugin::Registry& registry, Failed& failed) {
  for (const plugin::Candidate& k : registry.candidates())
    if (k.status == plugin::Status::kRejected && k.manifest.kind == "estimator" && k.code != "duplicate_id")
      add_failed(failed, k.manifest.id,
                 fmt::format("the plugin {} was rejected: {} ({}/{})", escaped(k.file.string(), 4096),
                             k.reason, k.stage, k.code));
}

/// An estimator that was named is asked as well: one for another family, or another framework, would answer
/// for the wrong run. Errors of loading it are reported by find_estimator(), which knows the position in the
/// run file.
void require_match(plugin::Registry& registry, const std::string& id, const runfile::RunConfig& c,
                   const std::vector<std::string>& installed) {
  try {
    if (registry.estimator(id).match(c.model, c.run) > 0 && describes_framework(registry, id, c) &&
        (has_program(c) || id != kProgramEstimator) && (!needs_program(c) || id == kProgramEstimator))
      return;
  } catch (const Error&) {
    return;
  }
  const Where named_at = c.given.count("memory.estimator") ? c.given.at("memory.estimator") : Where{};
  if (!describes_framework(registry, id, c)) {
    const std::vector<std::string>& described = registry.find(id)->manifest.frameworks;
    throw usage_error(
        fmt::format("the estimator '{}' does not describe training steps of {}", escaped(id, 80),
                    c.framework.empty() ? kOwnTrainers : escaped(c.framework, 80)),
        described.empty() ? "it describes those of trainhost"
                          : fmt::format("it describes those of {}: --for {}", fmt::join(described, ", "),
                                        described.front()),
        named_at);
  }
  std::vector<std::string> others;
  for (const std::string& other : installed)
    if (other != id && match_of(registry, other, c) > 0) others.push_back(other);
  throw usage_error(fmt::format("the estimator '{}' does not plan this run of the model family '{}'",
                                escaped(id, 80), escaped(c.model.family, 80)),
                    others.empty() ? "no installed estimator plans it"
                                   : fmt::format("estimators that do: {}", fmt::join(others, ", ")),
                    named_at);
}

/// "" if none matches. Stops at a perfect match, so that the others are not even loaded.
std::string best_match(plugin::Registry& registry, const std::vector<std::string>& ids,
                       const runfile::RunConfig& c, Failed& failed) {
  int best = 0;
  std::string best_id;
  // Equal matches: the first by id, which is the order of `ids`.
  for (const std::string& id : ids) {
    if (const int match = match_of(registry, id, c, &failed); match > best) best = match, best_id = id;
    if (best == kBestMatch) break;
  }
  return best_id;
}

}  // namespace

bool describes_framework(const plugin::Registry& registry, const std::string& id,
                         const runfile::RunConfig& c) {
  const plugin::Candidate* found = registry.find(id);
  if (!found) return true;
  const std::vector<std::string>& described = found->manifest.frameworks;
  if (described.empty()) return c.framework.empty();
  return std::ranges::find(described, c.framework.empty() ? kOwnTrainers : c.framework) != described.end();
}

void require_framework(const plugin::Registry& registry, const runfile::RunConfig& c) {
  if (c.framework.empty()) return;
  std::set<std::string> described{kOwnTrainers};
  for (const std::string& id : registry.ids("estimator"))
    if (const plugin::Candidate* found = registry.find(id))
      described.insert(found->manifest.frameworks.begin(), found->manifest.frameworks.end());
  if (described.count(c.framework)) return;
  const std::vector<std::string> names(described.begin(), described.end());
  throw usage_error(fmt::format("plan.framework = \"{}\": no installed estimator describes it{}",
                                escaped(c.framework, 80), runfile::suggest_framework(c.framework, names)),
                    fmt::format("described: {}", fmt::join(names, ", ")),
                    c.given.count("plan.framework") ? c.given.at("plan.framework") : Where{});
}

ChosenEstimators choose_estimators(const runfile::RunConfig& c, plugin::Registry& registry,
                                   const PlanRequest& request) {
  // The command line replaces the list of the run file.
  const std::vector<std::string>& wanted = request.estimators.empty() ? c.estimators : request.estimators;
  const std::vector<std::string> installed = registry.ids("estimator");
  require_framework(registry, c);
  ChosenEstimators chosen;
  for (const std::string& name : wanted) {
    if (name != "auto" && name != "all") {
      require_match(registry, name, c, installed);
      chosen.ids.push_back(name);
      continue;
    }
    const std::string best = best_match(registry, installed, c, chosen.failed);
    if (!best.empty()) chosen.ids.push_back(best);
    // "all": the best first, then the others in the order of their ids.
    if (name == "all") {
      for (const std::string& id : installed)
        if (id != best && match_of(registry, id, c, &chosen.failed) > 0) chosen.ids.push_back(id);
      add_rejected(registry, chosen.failed);
    }
    // After a name that was given explicitly, "all" may add nothing.
    if (chosen.ids.empty() || (name == "auto" && best.empty())) throw no_estimator(c, installed);
  }
  return chosen;
}

plugin::Estimator& find_estimator(plugin::Registry& registry, const std::string& id, const Where& where) {
  try {
    return registry.estimator(id);
  } catch (const plugin::PluginError& e) {
    // Only a rejected file is the user's problem to fix; other errors keep their code.
    if (e.status() != "rejected") throw;
    throw usage_error(
        fmt::format("the estimator '{}': {}", escaped(id, 80), e.what()),
        e.hint().empty() ? fmt::format("installed estimators: {}", fmt::join(registry.ids("estimator"), ", "))
                         : e.hint(),
        where);
    // Adds the position in the run file.
  } catch (const Error& e) {
    throw Error(e.code(), e.what(), e.hint(), where);
  }
}

// For -v: why an estimator was chosen or not.
std::string estimator_trace(const runfile::RunConfig& c, plugin::Registry& registry) {
  std::string out;
  for (const std::string& id : registry.ids("estimator")) {
    const int match = match_of(registry, id, c);
    if (std::ranges::any_of(registry.candidates(), [&](const plugin::Candidate& k) {
          return k.manifest.id == id && k.status == plugin::Status::kRejected;
        }))
      continue;  // listed below
    out += match > 0 ? fmt::format("estimator {}: match {} of {}\n", id, match, kBestMatch)
                     : fmt::format("estimator {}: does not apply\n", id);
  }
  for (const plugin::Candidate& k : registry.candidates())
    if (k.status == plugin::Status::kRejected && k.manifest.kind != "trainer")
      out += fmt::format("{}: rejected, {}/{}: {}\n", escaped(k.file.string(), 4096), k.stage, k.code,
                         escaped(k.reason, 1000));
  return out;
}

}  // namespace trainhost::planning
