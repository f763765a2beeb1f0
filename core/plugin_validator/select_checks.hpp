// Selects the checks to run from command-line arguments. Pure.
#pragma once
#include <set>
#include <string>
#include <vector>

#include "core/plugin_validator/validator_check.hpp"

namespace trainhost::plugin_validator {

struct Selection {
  std::vector<const Check*> plan;  // in the order of the table: requested checks and their prerequisites
  std::set<std::string> asked;
};

/// Checks up to `level`, or those that `only` names whatever their level, less those that `skip` names; by id
/// ("E-014") or level ("3"). kind: of the plugin, "" when not known: then the common ones alone. Throws
/// usage_error with the nearest id for a word that is neither.
Selection select(int level, const std::vector<std::string>& only, const std::vector<std::string>& skip,
                 const std::string& kind);

}  // namespace trainhost::plugin_validator
