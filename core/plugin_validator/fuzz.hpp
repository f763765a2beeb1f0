// Random models and runs: valid, unusual and invalid. A case is determined by one number, so a failure can
// be repeated with that number. Pure, except for the clock that ends a series of cases.
#pragma once
#include <chrono>
#include <functional>
#include <string>

#include "core/plugin_validator/watched_plugin.hpp"

namespace trainhost::plugin_validator {

/// A run to plan or to estimate; fields are sometimes zero, huge or undefined enum values. `like` supplies
/// the family.
Sample draw_sample(const Sample& like, std::uint64_t case_seed);

/// A consistent run that a trainer may have to train: some thousand parameters, odd and even dimensions
/// down to 1.
Sample draw_training_run(const Sample& like, std::uint64_t case_seed);

/// "case 42 (2 layers, hidden 32, ...)": what `--seed 42` makes its first case.
std::string describe_case(const Sample& s, std::uint64_t case_seed);

/// Runs f(case_seed) for `cases` cases, beginning with the seed of the run, or for the time of `--fuzz`. A
/// failure names the case and the option that repeats it.
void for_each_case(WatchedPlugin& plugin, int cases, const std::function<void(std::uint64_t case_seed)>& f);

}  // namespace trainhost::plugin_validator
