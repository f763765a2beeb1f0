// The manifest's text as a Manifest. The text is hostile: it is checked for size, characters and nesting
// before the TOML parser sees it. Where the text comes from: elf_file.hpp.
#pragma once
#include <string>

#include "core/plugin/registry.hpp"

namespace trainhost::plugin {

/// Throws Refused (stage manifest): too_big, not_text, not_toml, missing_key, bad_value. Unknown keys are
/// ignored: a newer SDK may know them.
Manifest parse_manifest(const std::string& toml);

}  // namespace trainhost::plugin
