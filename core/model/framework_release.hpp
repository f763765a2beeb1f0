// Releases of other frameworks (plan.framework_version), as far as more than one module depends on them. What
// the modules of each release allocate: core/frameworks.
#pragma once
#include <string_view>

namespace trainhost {

/// Whether the run is planned for transformers 4: models are loaded in f32 by default, and experts are linear
/// layers. version: plan.framework_version, "" if it is not given, which means the newest release.
inline bool is_transformers_4(std::string_view framework, std::string_view version) {
  return framework == "transformers" && version.starts_with("4.");
}

}  // namespace trainhost
