// Paths that a run file names: made absolute, expanded, and checked to be there. Looks at names and kinds of
// files only; whoever reads a file opens it.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "core/base/error.hpp"

namespace trainhost::runfile {

/// `text` relative to `base`, absolute and without "." and "..".
std::filesystem::path resolve_path(const std::string& text, const std::filesystem::path& base);

/// Throws usage_error naming `what` (a key) and the nearest existing name unless `path` is a regular file.
void require_file(const std::filesystem::path& path, const std::string& what, const Where& where);
void require_folder(const std::filesystem::path& path, const std::string& what, const Where& where);

/// The files that `text` means: itself, or the matches of a glob, sorted by bytes. At least one, all regular
/// files.
std::vector<std::filesystem::path> expand_files(const std::string& text, const std::filesystem::path& base,
                                                const std::string& what, const Where& where);

/// The safetensors file or index behind model.weights: a file, or a folder that holds one of the usual names.
std::filesystem::path weights_file(const std::filesystem::path& path, const Where& where);

/// Whole contents of a regular file of at most `most` bytes; throws usage_error naming the file.
std::string read_text_file(const std::filesystem::path& path, std::uint64_t most, const std::string& what,
                           const Where& where);

}  // namespace trainhost::runfile
