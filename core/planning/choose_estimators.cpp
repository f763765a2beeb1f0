// See choose_estimators.hpp. Estimators are plugins: each is loaded when it is asked for the first time, and
// a broken one must not prevent a plan by another.
#include "core/planning/choose_estimators.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "core/base/text.hpp"
#include "core/model/architecture.hpp"

namespace trainhost::planning {
namespace {

constexpr int kBestMatch = 1000;  // highest value that match() returns

/// No estimator matches: the model family is unknown, or no estimator plans this kind of run.
[[noreturn]] void throw_no_estimator(const runfile::RunConfig& c,
                                     const std::vector<std::string>& estimators) {
  if (!model::known_family(c.model.family)) throw model::unknown_family(c.model.family);
  if (!c.framework.empty())
    throw plugin::PluginError(Exit::kUsage, "unsupported",
                              fmt::format("no installed estimator describes a training step of {} for the "
                                          "model family '{}'",
                                          escaped(c.framework, 80), escaped(c.model.family, 80)),
                              "see trainhost plugins list", 0);
  throw usage_error(
      fmt::format("no installed estimator plans this kind of run of the model family '{}'", c.model.family),
      fmt::format("installed estimators: {}; see trainhost plugins list", fmt::join(estimators, ", ")));
}

/// Whether the estimator describes the training steps that are planned: those of plan.framework, or of
/// trainhost's own trainers.
bool describes_framework(const plugin::Registry& registry, const std::string& id,
                         const runfile::RunConfig& c) {
  const plugin::Candidate* found = registry.find(id);
  if (!found) return true;
  const std::vector<std::string>& described = found->manifest.frameworks;
  return c.framework.empty() ? described.empty()
                             : std::ranges::find(described, c.framework) != described.end();
}

}  // namespace

int match_of(plugin::Registry& registry, const std::string& id, const runfile::RunConfig& c) {
  if (!describes_framework(registry, id, c)) return 0;
  try {
    return registry.estimator(id).match(c.model, c.run);
  } catch (const plugin::PluginError&) {
    return 0;  // rejected when it is loaded, which must not stop the others
  }
}

namespace {

/// Throws usage_error where no installed estimator describes plan.framework.
void require_framework(const plugin::Registry& registry, const std::vector<std::string>& installed,
                       const runfile::RunConfig& c) {
  if (c.framework.empty()) return;
  std::set<std::string> described{"trainhost"};
  for (const std::string& id : installed)
    if (const plugin::Candidate* found = registry.find(id))
      described.insert(found->manifest.frameworks.begin(), found->manifest.frameworks.end());
  if (described.count(c.framework)) return;
  const std::vector<std::string> names(described.begin(), described.end());
  throw usage_error(fmt::format("plan.framework = \"{}\": no installed estimator describes it{}",
                                escaped(c.framework, 80), did_you_mean(c.framework, names)),
                    fmt::format("described: {}", fmt::join(names, ", ")),
                    c.given.count("plan.framework") ? c.given.at("plan.framework") : Where{});
}

/// An estimator that was named is asked as well: one for another family would answer for the wrong model.
/// Errors of loading it are reported by find_estimator(), which knows the position in the run file.
void require_match(plugin::Registry& registry, const std::string& id, const runfile::RunConfig& c,
                   const std::vector<std::string>& installed) {
  try {
    if (registry.estimator(id).match(c.model, c.run) > 0) return;
  } catch (const Error&) {
    return;
  }
  std::vector<std::string> others;
  for (const std::string& other : installed)
    if (other != id && match_of(registry, other, c) > 0) others.push_back(other);
  throw usage_error(fmt::format("the estimator '{}' does not plan this run of the model family '{}'",
                                escaped(id, 80), escaped(c.model.family, 80)),
                    others.empty() ? "no installed estimator plans it"
                                   : fmt::format("estimators that do: {}", fmt::join(others, ", ")),
                    c.given.count("memory.estimator") ? c.given.at("memory.estimator") : Where{});
}

/// "" if none matches. Stops at a perfect match, so that the others are not even loaded.
std::string best_match(plugin::Registry& registry, const std::vector<std::string>& ids,
                       const runfile::RunConfig& c) {
  int best = 0;
  std::string best_id;
  // Equal matches: the first by id, which is the order of `ids`.
  for (const std::string& id : ids) {
    if (const int match = match_of(registry, id, c); match > best) best = match, best_id = id;
    if (best == kBestMatch) break;
  }
  return best_id;
}

}  // namespace

std::vector<std::string> choose_estimators(const runfile::RunConfig& c, plugin::Registry& registry,
                                           const PlanRequest& request) {
  // The command line replaces the list of the run file.
  const std::vector<std::string>& wanted = request.estimators.empty() ? c.estimators : request.estimators;
  const std::vector<std::string> installed = registry.ids("estimator");
  require_framework(registry, installed, c);
  std::vector<std::string> chosen;
  for (const std::string& name : wanted) {
    if (name != "auto" && name != "all") {
      require_match(registry, name, c, installed);
      chosen.push_back(name);
      continue;
    }
    const std::string best = best_match(registry, installed, c);
    if (!best.empty()) chosen.push_back(best);
    // "all": the best first, then the others in the order of their ids.
    if (name == "all")
      for (const std::string& id : installed)
        if (id != best && match_of(registry, id, c) > 0) chosen.push_back(id);
    // After a name that was given explicitly, "all" may add nothing.
    if (chosen.empty() || (name == "auto" && best.empty())) throw_no_estimator(c, installed);
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
