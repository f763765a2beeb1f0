// Keys of other frameworks that decide how a run trains, but not its memory: plans list them as without
// effect, `trainhost init --from` carries them over.
#pragma once
#include <vector>

#include "core/runfile/run_config.hpp"

namespace trainhost::framework_files {

/// The settings of a run file that keys without effect on memory state, with their positions. Their values
/// are not checked.
std::vector<runfile::Override> training_settings(const std::vector<runfile::FileKey>& keys);

}  // namespace trainhost::framework_files
