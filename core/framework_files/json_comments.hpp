// Comments in JSON, as Hjson has them: DeepSpeed reads its configuration with a parser of it.
#pragma once
#include <string>

namespace trainhost::framework_files {

/// Replaces comments (`#`, `//`, `/* */`) by spaces, so that positions stay those of the text.
std::string without_comments(const std::string& text);

}  // namespace trainhost::framework_files
