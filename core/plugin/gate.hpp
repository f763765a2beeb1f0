// The cheap gate before the dynamic linker: looks at a file as such and reads its manifest; runs no code of
// it and never blocks on it. One implementation file per operating system (gate_linux.cpp).
#pragma once
#include <cstdint>
#include <filesystem>

#include "core/plugin/registry.hpp"

namespace trainhost::plugin {

/// What identifies the very file that was looked at.
struct FileId {
  std::uint64_t device = 0, inode = 0, size = 0;
  std::int64_t mtime_s = 0, mtime_ns = 0;
  bool same_file(const FileId& o) const { return device == o.device && inode == o.inode; }
  bool operator==(const FileId&) const = default;
};

struct Passed {
  FileId id;
  Manifest manifest;
};

/// Throws Refused: not_found, not_regular, unreadable, world_writable, world_writable_directory, and whatever
/// elf_file.hpp and manifest.hpp find. `file` is absolute.
Passed pass_gate(const std::filesystem::path& file);

/// The file as it is now; throws Refused (gate/not_found).
FileId identify(const std::filesystem::path& file);

}  // namespace trainhost::plugin
