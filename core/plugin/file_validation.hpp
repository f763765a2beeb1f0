// The cheap gate before the dynamic linker: looks at a file as such, reads its manifest, and asks whether
// this machine has what it needs; runs no code of it and never blocks on it. One implementation file per
// operating system (file_validation_linux.cpp). Its parts: trust.hpp, elf_file.hpp, plugin_manifest.hpp,
// links.hpp.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>

#include "core/plugin/plugin_manifest.hpp"
#include "core/plugin/trust.hpp"

namespace trainhost::plugin {

/// What identifies the very file that was looked at. All zero: there is none.
struct FileId {
  std::uint64_t device = 0, inode = 0, size = 0;
  std::int64_t mtime_s = 0, mtime_ns = 0;
  bool same_file(const FileId& o) const { return device == o.device && inode == o.inode; }
  bool operator==(const FileId&) const = default;
};

struct Passed {
  FileId id, sidecar;  // of the library, and of NAME.toml beside it
  Manifest manifest;   // filled before the machine is asked, so that a refusal has a name
};

/// Fills `passed` as far as it comes. Throws Refused: not_found, not_regular, unreadable, changed, what
/// trust.hpp, elf_file.hpp, plugin_manifest.hpp and links.hpp find; manifest/{absent, differs}. `file` is
/// canonical.
void pass_gate(const std::filesystem::path& file, Trust& trust, Passed& passed);

/// The file as it is now; throws Refused (gate/not_found).
FileId identify(const std::filesystem::path& file);

/// NAME.toml for NAME.so, and what it is now: all zero when it is not there.
std::filesystem::path sidecar_of(const std::filesystem::path& file);
FileId identify_sidecar(const std::filesystem::path& file);

/// SHA-256 of the content in hex. Throws Refused: gate/changed when the file is no longer `id`,
/// gate/unreadable.
std::string content_hash(const std::filesystem::path& file, const FileId& id);

}  // namespace trainhost::plugin
