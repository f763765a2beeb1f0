// Rules between several keys of a run file. Each key by itself was checked before (validate_value.cpp).
#pragma once
#include <cstdint>
#include <set>
#include <string>

#include "core/runfile/settings.hpp"

namespace trainhost::runfile {

/// Runs the rules (Settings::rule). Their error names both keys, at the position of the second one.
void validate_combinations(const Settings& s);

/// The rules that the model's layers can be divided into equal virtual stages, and are at least as many as
/// recompute_every. Rules that read a key in `open` are not applied: a search still varies these keys.
void validate_against_layers(const Settings& s, std::uint64_t layers, const std::set<std::string>& open);

/// True if the run trains adapters: [lora] starts new ones, model.adapter goes on with those of a folder.
bool adapts(const Settings& s);

/// Values of optimizer.min_lr, optimizer.warmup_steps and optimizer.decay_steps, whose defaults depend on lr
/// and train.steps.
double min_lr(const Settings& s);
std::uint64_t warmup_steps(const Settings& s);
std::uint64_t decay_steps(const Settings& s);

/// The given inline model fields without "model.": "hidden_size", "rope_scaling.factor".
std::vector<std::string> inline_fields(const Settings& s);

}  // namespace trainhost::runfile
