// Reads kind, segments, required libraries and the .trainhost section of a plugin file without running its
// code. The file is untrusted: every offset is checked against its size, and it is read with pread and never
// mapped, because truncating a mapped file kills the process. Next: file_validation.hpp.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace trainhost::plugin {

struct ElfFile {
  std::optional<std::string> manifest;  // text of .trainhost; nullopt = no such section
  std::vector<std::string> needed;      // sonames (DT_NEEDED), in order
  std::string run_path;                 // DT_RUNPATH, else DT_RPATH: colon-separated, not expanded
};

/// The shared library of `size` bytes behind `fd`. Throws Rejection: stage validation for a file that must
/// not reach the dynamic linker (not ELF, other class or machine, executable, truncated, executable stack,
/// text relocations); stage manifest for a section that occurs twice, is too big, empty or outside the file.
ElfFile read_elf(int fd, std::uint64_t size);

}  // namespace trainhost::plugin
