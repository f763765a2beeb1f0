// [model] of a run file: which model a run has. Its fields as a config.json has them: model_fields.hpp.
#pragma once
#include <filesystem>

#include "core/runfile/resolve_settings.hpp"
#include "core/runfile/run_config.hpp"

namespace trainhost::runfile {

/// Without a key that names a model, model.adapter names it: the folder that its config states, which PEFT
/// reads relative to the current directory.
void adopt_model_of_adapter(Settings& s, const std::filesystem::path& base);

/// Sets model, weights and folder of `c`. Exactly one of path, config, preset and inline fields;
/// combinations.cpp has rejected mixtures. model_is_builtin is true only if nothing was given: the built-in
/// model then adapts its vocabulary to a tokenizer.
void set_model(const Settings& s, const std::filesystem::path& base, RunConfig& c);

}  // namespace trainhost::runfile
