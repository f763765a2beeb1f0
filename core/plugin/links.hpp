// Whether the libraries that a plugin is linked to will be found, by the rules of the dynamic linker and
// without asking it: asking means loading. And whether the places that it names for them are safe. See
// ld.so(8); file_validation.hpp calls.
#pragma once
#include <filesystem>

#include "core/plugin/elf_file.hpp"
#include "core/plugin/plugin_manifest.hpp"

namespace trainhost::plugin {

/// Throws Refused (gate/run_path): an element of RPATH or RUNPATH that is empty or relative (it would mean
/// the working directory), or that others may write to, a sticky folder included: they could add a library
/// there.
void check_run_path(const std::string& run_path, const std::filesystem::path& file);

/// Throws Refused (gate/missing_library) naming the first soname that is found nowhere: RPATH or RUNPATH,
/// LD_LIBRARY_PATH, what this process has loaded, the linker's cache, the system's folders.
void check_libraries(const ElfFile& elf, const Manifest& manifest, const std::filesystem::path& file);

/// Throws Refused (gate/cpu_feature) naming the first feature that this machine's processor lacks.
void check_cpu(const std::vector<std::string>& features);

}  // namespace trainhost::plugin
