// Suggestions for an unknown device or an unknown matrix of [lora] targets: a similar name, or our name for
// what other programs call it. Suggestions for keys: schema.hpp.
#pragma once
#include <string>

namespace trainhost::runfile {

/// "; did you mean 'h100-80gb'?" or "". For "cpu", "gpu" and the like it names the option --backend.
std::string suggest_device(const std::string& name);

/// The same for [lora] targets: "query" suggests q_proj, "c_attn" suggests three matrices.
std::string suggest_target(const std::string& name);

}  // namespace trainhost::runfile
