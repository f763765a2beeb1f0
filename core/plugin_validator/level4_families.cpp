// Level 4: models of families that the manifest does not list. A plugin that answers for every family takes
// models from plugins that know them.
#include <algorithm>
#include <functional>

#include "core/plugin_validator/levels.hpp"
#include "core/plugin_validator/watched_plugin.hpp"

namespace trainhost::plugin_validator {
namespace {

void check_unknown_family(WatchedPlugin& plugin) {
  Started started(plugin);
  Sample s = plugin.sample();
  s.model.family = "no-such-family";
  // The config must agree with the family, or a plugin could find the old one in it.
  write_config(s.model);
  if (plugin.match(s) > 0) throw CheckSkipped("its match() accepts any family");
  const ReportResult a = plugin.report(s);
  // A report passes here: E-020 judges it.
  expect(a.ok() || a.status == TH_E_UNSUPPORTED || !documented(a.status),
         "estimate() of a family that its match() does not accept returned {}; TH_E_UNSUPPORTED was expected",
         a.text());
}

/// True if the manifest promises reports for every family.
bool lists_every_family(WatchedPlugin& plugin) {
  const std::vector<std::string>& f = plugin.manifest().families;
  return f.empty() || std::find(f.begin(), f.end(), "*") != f.end();
}

/// Models of families that the manifest does not list: an unknown one and one that exists.
void for_each_foreign_family(WatchedPlugin& plugin, const std::function<void(const Sample&)>& visit) {
  const std::vector<std::string>& listed = plugin.manifest().families;
  for (const char* family : {"no-such-family", "llama", "gpt2"}) {
    if (std::find(listed.begin(), listed.end(), family) != listed.end()) continue;
    Sample s = plugin.sample();
    s.model.family = family;
    write_config(s.model);
    visit(s);
  }
}

// An estimator for any family must not promise exactness for an unknown one: then its match() says
// nothing.
void check_match_of_foreign_family(WatchedPlugin& plugin) {
  Started started(plugin);
  const bool every = lists_every_family(plugin);
  for_each_foreign_family(plugin, [&](const Sample& s) {
    if (plugin.match(s) == 0) return;
    expect(every, "match() of a {} model returned {}; its manifest does not list that family, 0 was expected",
           s.model.family, plugin.match(s));
    if (s.model.family != "no-such-family") return;
    const ReportResult a = plugin.report(s);
    expect(!a.ok() || a.report.summary.claim != TH_EXACT,
           "estimate() of an unknown family claims to be exact; the tensors of that family are unknown");
  });
}

void check_report_of_foreign_family(WatchedPlugin& plugin) {
  if (lists_every_family(plugin)) throw CheckSkipped("its manifest lists every family");
  Started started(plugin);
  for_each_foreign_family(plugin, [&](const Sample& s) {
    const ReportResult a = plugin.report(s);
    // Other codes: E-006 reports them.
    expect(!a.ok(),
           "{} of a {} model returned a report; its manifest does not list that family, TH_E_UNSUPPORTED was "
           "expected",
           plugin.report_function(), s.model.family);
  });
}

}  // namespace

std::vector<Check> family_checks() {
  return {
      {"E-006",
       4,
       "An unknown family is rejected with TH_E_UNSUPPORTED",
       "After TH_E_UNSUPPORTED the host tries the next candidate. After any other code it stops and "
       "reports the run as failed. Fix: return TH_E_UNSUPPORTED wherever the model or the run is valid "
       "but not covered.",
       {"C-049", "C-029"},
       check_unknown_family},
      {"E-019",
       4,
       "match() accepts only families that the manifest lists",
       "A match for every family takes models from estimators that know them. Where the manifest lists "
       "every family (\"*\"), an estimate of an unknown one must not claim to be exact. Fix: compare "
       "th_model.family with the families of your manifest in match(), and return 0 for the others.",
       {"E-002"},
       check_match_of_foreign_family},
      {"E-020",
       4,
       "estimate() rejects families that the manifest does not list",
       "A user can name an estimator in the run file, so estimate() is called without match(). A report "
       "for a model that the estimator does not know is a number without meaning. Fix: return "
       "TH_E_UNSUPPORTED from estimate() if your match() returns 0.",
       {"E-019"},
       check_report_of_foreign_family},
      {"T-031",
       4,
       "plan() rejects families that the manifest does not list",
       "A trainer that accepts a family that it does not know trains another model than the config "
       "describes. Fix: compare th_model.family with the families of your manifest, and return "
       "TH_E_UNSUPPORTED.",
       {"C-049", "C-029"},
       check_report_of_foreign_family},
  };
}

}  // namespace trainhost::plugin_validator
