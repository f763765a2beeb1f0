// Reads what a plugin file says about itself, without running code of it: kind, segments, what it is linked
// to, the .trainhost section. The file is hostile: every offset is checked against its size, everything is
// read with pread, nothing is mapped (a file cut short while it is mapped kills the process). Who decides
// what follows: file_validation.hpp.
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

/// The shared library behind `fd`, which holds `size` bytes. Throws Refused: stage gate for a file that the
/// dynamic linker must not see (not ELF, other class or machine, an executable, cut off, executable stack,
/// text relocations), stage manifest for a section that is double, too big, empty or outside the file.
ElfFile read_elf(int fd, std::uint64_t size);

}  // namespace trainhost::plugin
