// The manifest of a plugin: TOML in the section .trainhost of the library or in a file NAME.toml next to it.
// The text is untrusted: size, characters and nesting are checked before the TOML parser sees it. Read by
// elf_file.hpp and file_validation.hpp; compared with the loaded tables in plugin_library.cpp.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace trainhost::plugin {

inline constexpr std::uint64_t kMaxManifestBytes = 64 * 1024;

struct Manifest {
  std::string id, version, kind, summary;  // kind: "estimator" | "trainer" | "communicator"
  std::string abi;                         // "1.0", the interface version that it requires; "" = not given
  std::string device;                      // device type: "cpu", "cuda"; "" = not given
  std::vector<std::string> interfaces;     // interface ids for which get() returns a table
  std::vector<std::string> families, modes, dtypes, options;
  std::vector<std::string>
      frameworks;                // of an estimator: whose training steps it describes; empty: trainhost's
  std::vector<std::string> cpu;  // processor features, spelled as in /proc/cpuinfo
  std::vector<std::string>
      libraries;  // key `requires`: sonames that it opens itself, in addition to linked ones
  int priority = 0;
  bool operator==(const Manifest&) const = default;
};

/// Throws Rejection (stage manifest): too_big, not_text, not_toml, missing_key, bad_value, abi. Only id,
/// version and kind are required. Unknown keys are ignored, because a newer SDK may define them.
Manifest parse_manifest(const std::string& toml);

}  // namespace trainhost::plugin
