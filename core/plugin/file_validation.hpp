// Validation of a plugin file before the dynamic linker sees it: kind, owners and modes, ELF structure,
// manifest, and whether this machine has what it requires. Runs no code of the file and never blocks. Linux
// only (file_validation_linux.cpp). Parts: trust.hpp, elf_file.hpp, plugin_manifest.hpp, links.hpp.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>

#include "core/plugin/plugin_manifest.hpp"
#include "core/plugin/trust.hpp"

namespace trainhost::plugin {

/// Identity of one version of a file. All zero: no file.
struct FileId {
  std::uint64_t device = 0, inode = 0, size = 0;
  std::int64_t mtime_s = 0, mtime_ns = 0;
  bool same_file(const FileId& o) const { return device == o.device && inode == o.inode; }
  bool operator==(const FileId&) const = default;
};

struct ValidatedFile {
  FileId id, sidecar;  // of the library, and of NAME.toml next to it
  Manifest manifest;   // filled before the machine is checked, so that a rejected file has an id
};

/// Fills `passed` as far as validation gets. Throws Rejection: validation/{not_found, not_regular,
/// unreadable, changed}, manifest/{absent, differs}, and those of trust.hpp, elf_file.hpp,
/// plugin_manifest.hpp and links.hpp. `file` must be canonical.
void validate_file(const std::filesystem::path& file, Trust& trust, ValidatedFile& passed);

/// The current identity of the file; throws Rejection (validation/not_found).
FileId identify(const std::filesystem::path& file);

/// NAME.toml for NAME.so, and its current identity: all zero if it does not exist.
std::filesystem::path sidecar_of(const std::filesystem::path& file);
FileId identify_sidecar(const std::filesystem::path& file);

/// SHA-256 of the content in hex. Throws Rejection: validation/changed if the file is no longer `id`,
/// validation/unreadable.
std::string content_hash(const std::filesystem::path& file, const FileId& id);

}  // namespace trainhost::plugin
