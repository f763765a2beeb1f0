// Converts the tables of the run file, except [model], to the fields of RunConfig. Needs c.file and c.model,
// since the default of output.dir follows the file and a line of [memory.estimators] is chosen by the model's
// family.
#pragma once
#include <filesystem>

#include "core/runfile/run_config.hpp"
#include "core/runfile/settings.hpp"

namespace trainhost::runfile {

/// `base`: the folder that relative paths refer to. Throws Error(kUsage) for files, devices and words that do
/// not exist.
void set_tables(const Settings& s, const std::filesystem::path& base, RunConfig& c);

}  // namespace trainhost::runfile
