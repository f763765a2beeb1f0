// What somebody may have meant by a device or a matrix that is not here: the nearest name, or ours for
// another program's. Words alone: decides nothing. Keys have theirs in schema.hpp.
#pragma once
#include <string>

namespace trainhost::runfile {

/// "; did you mean 'h100-80gb'?", ready to be appended; "cpu" and "gpu" are told which option means them. ""
/// where nothing is near.
std::string suggest_device(const std::string& name);

/// The same for [lora] targets: "query" is q_proj here, "c_attn" three of them.
std::string suggest_target(const std::string& name);

}  // namespace trainhost::runfile
