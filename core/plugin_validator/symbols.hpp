// Exported symbols and search paths of a library, read from the file without running its code. Every offset
// is checked against the file size. Call it only for files that passed file validation.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

namespace trainhost::plugin_validator {

struct Exports {
  struct Symbol {
    std::string name;
    bool function = false, unique = false;  // unique: STB_GNU_UNIQUE
  };
  std::vector<Symbol> symbols;            // defined, not local, not hidden
  std::vector<std::string> search_paths;  // DT_RPATH and DT_RUNPATH, split at ':'
};

/// Throws CheckFailed if a table is outside the file.
Exports read_exports(const std::filesystem::path& file);

}  // namespace trainhost::plugin_validator
