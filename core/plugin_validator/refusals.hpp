// What an answer to a wrong or unusual call must look like, shared by the argument checks of estimators and
// trainers.
#pragma once
#include <functional>

#include "core/plugin_validator/watched_plugin.hpp"

namespace trainhost::plugin_validator {

/// The sample with one word that the interface does not have (optimizer 99, a type 77, ...): each once.
void for_unknown_words(const Sample& s,
                       const std::function<void(const Sample&, const std::string& what)>& visit);

/// The sample with dimensions that make no model: zeros, and products beyond 63 bits.
void for_degenerate(const Sample& s,
                    const std::function<void(const Sample&, const std::string& what)>& visit);

/// TH_OK, or a code by which a host can go on to the next candidate or tell the user: argument, unsupported.
inline bool refused_well(th_status s) { return s == TH_E_ARG || s == TH_E_UNSUPPORTED; }

/// A report as text: equal exactly when the reports are.
std::string printed(const SeenReport& r);

/// A small total, so that growth can be seen: all leaves added up, in double.
double sum_of_leaves(const SeenReport& r);

}  // namespace trainhost::plugin_validator
