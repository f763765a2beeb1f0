// Reads what a plugin file says about itself, without running code of it: kind, segments, the .trainhost
// section. The file is hostile: every offset is checked against its size, everything is read with pread,
// nothing is mapped (a file cut short while it is mapped kills the process). Who decides what follows:
// gate.hpp.
#pragma once
#include <cstdint>
#include <string>

namespace trainhost::plugin {

inline constexpr std::uint64_t kMaxManifestBytes = 64 * 1024;

/// The text of the .trainhost section of the shared library behind `fd`, which holds `size` bytes.
/// Throws Refused: stage gate for a file that the dynamic linker must not see (not ELF, other class or
/// machine, an executable, cut off, executable stack, text relocations), stage manifest for a section that is
/// absent, double, too big, empty or outside the file.
std::string read_manifest_section(int fd, std::uint64_t size);

}  // namespace trainhost::plugin
