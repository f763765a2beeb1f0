// What a plugin says about itself without running: its manifest, TOML in the section .trainhost of the
// library or in a file NAME.toml beside it. The text is hostile: it is checked for size, characters and
// nesting before the TOML parser sees it. Where the text comes from: elf_file.hpp, file_validation.hpp;
// whether it is true: compare.cpp.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace trainhost::plugin {

inline constexpr std::uint64_t kMaxManifestBytes = 64 * 1024;

struct Manifest {
  std::string id, version, kind, summary;  // kind: "estimator" | "trainer"
  std::string abi;                         // "1.0", the interface that it was written for; "" = not said
  std::string device;                      // what it runs on: "cpu", "cuda"; "" = not said
  std::vector<std::string> interfaces;     // ids that its get() answers to
  std::vector<std::string> families, modes, dtypes, options;
  std::vector<std::string> cpu;  // processor features, as /proc/cpuinfo spells them
  std::vector<std::string>
      libraries;  // key `requires`: sonames that it opens itself, beyond those it is linked to
  int priority = 0;
  bool operator==(const Manifest&) const = default;
};

/// Throws Refused (stage manifest): too_big, not_text, not_toml, missing_key, bad_value, abi. Only id,
/// version and kind are needed. Unknown keys are ignored: a newer SDK may know them.
Manifest parse_manifest(const std::string& toml);

}  // namespace trainhost::plugin
