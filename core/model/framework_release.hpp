// Releases of other frameworks (plan.framework_version), as far as more than one module depends on them. What
// the modules of each release allocate: core/frameworks.
#pragma once
#include <cstdint>
#include <optional>
#include <string_view>

namespace trainhost {

/// Whether the run is planned for transformers 4: models are loaded in f32 by default, and experts are linear
/// layers. version: plan.framework_version, "" if it is not given, which means the newest release.
inline bool is_transformers_4(std::string_view framework, std::string_view version) {
  return framework == "transformers" && version.starts_with("4.");
}

/// Whether sharded weights are flat parameters (FSDP1). fsdp_version: plan.fsdp_version; where it is not
/// given, the default of the release, which is 1 before transformers 5.
inline bool has_flat_parameters(std::string_view framework, std::string_view version,
                                std::optional<std::int64_t> fsdp_version) {
  return fsdp_version ? *fsdp_version == 1 : is_transformers_4(framework, version);
}

}  // namespace trainhost
