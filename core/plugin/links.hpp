// Whether the dynamic linker will find the libraries that a plugin requires, by the rules of ld.so(8) but
// without loading anything; whether the directories that it names for them are safe; and whether the
// processor has the required features. Called by file_validation_linux.cpp.
#pragma once
#include <filesystem>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/plugin/elf_file.hpp"
#include "core/plugin/plugin_manifest.hpp"

namespace trainhost::plugin {

/// Throws Rejection (validation/run_path): an element of RPATH or RUNPATH that is empty or relative (it would
/// mean the working directory), or a directory to which other users can add files; the sticky bit does not
/// help.
void validate_run_path(const std::string& run_path, const std::filesystem::path& file);

/// Throws Rejection (validation/missing_library) with the first soname that is not found in RPATH or RUNPATH,
/// LD_LIBRARY_PATH, the libraries of this process, the linker's cache, or the system directories.
void validate_libraries(const ElfFile& elf, const Manifest& manifest, const std::filesystem::path& file);

/// Throws Rejection (validation/cpu_feature) with the first feature that this processor does not have.
void validate_cpu(const std::vector<std::string>& features);

/// The sonames in /etc/ld.so.cache, given its bytes, each shorter than 256 bytes. Empty unless the layout is
/// "glibc-ld.so.cache1.1", alone or after an older part. The bytes are not trusted.
std::set<std::string> sonames_in_cache(std::string_view bytes);

}  // namespace trainhost::plugin
