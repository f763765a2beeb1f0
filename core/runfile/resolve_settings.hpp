// From the settings of a run file to a RunConfig (run_config.cpp); called by load_run.cpp.
#pragma once
#include <filesystem>
#include <set>
#include <string>

#include "core/runfile/run_config.hpp"
#include "core/runfile/settings.hpp"

namespace trainhost::runfile {

/// Applies all rules and looks up files, presets and devices. `file`: absolute, "" = none. `base`: the folder
/// that relative paths refer to. `open`: keys that a search varies. `usual`: the run is only named by its
/// model. Where `s` collects errors and has any, the result is incomplete.
RunConfig resolve_settings(Settings s, const std::filesystem::path& file, const std::filesystem::path& base,
                           const std::set<std::string>& open, bool usual = false);

}  // namespace trainhost::runfile
