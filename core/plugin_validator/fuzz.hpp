// Models and runs drawn from a seed: sensible ones, odd ones and impossible ones. A case is one number, so
// that whoever sees a failure repeats it with that number alone. Pure but for the clock that ends a run of
// cases.
#pragma once
#include <chrono>
#include <functional>
#include <string>

#include "core/plugin_validator/watched_plugin.hpp"

namespace trainhost::plugin_validator {

/// A run to plan or to estimate: every field now and then zero, huge or a word that does not exist. `like`:
/// for the family.
Sample drawn_sample(const Sample& like, std::uint64_t case_seed);

/// A run that a trainer may be asked to carry out: consistent, some thousand parameters, dimensions odd and
/// even, down to 1.
Sample drawn_training(const Sample& like, std::uint64_t case_seed);

/// "case 42 (2 layers, hidden 32, ...)": what `--seed 42` makes its first case.
std::string described(const Sample& s, std::uint64_t case_seed);

/// Runs f(case_seed) for `cases` cases from the bench's seed on, or as long as `--fuzz` says. A promise that
/// is broken is named with its case and with how to repeat it.
void each_case(Bench& b, int cases, const std::function<void(std::uint64_t case_seed)>& f);

}  // namespace trainhost::plugin_validator
