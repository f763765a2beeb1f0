// What a library exports and where it looks for others, read from the file without running code of it. Every
// offset is checked against the file's size; call it only for files that passed the gate.
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

/// Throws Broken when the tables do not lie inside the file.
Exports read_exports(const std::filesystem::path& file);

}  // namespace trainhost::plugin_validator
