// Resolves, expands and checks the paths of a run file. Except read_text_file(), nothing here opens a file.
#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "core/base/error.hpp"

namespace trainhost::runfile {

/// `text` relative to `base`, absolute and without "." and "..".
std::filesystem::path resolve_path(const std::string& text, const std::filesystem::path& base);

/// Throws usage_error unless `path` is a regular file (a folder). `what`: the key in the message, which
/// suggests a similar existing name. `hint`: for a folder that does not exist.
void require_file(const std::filesystem::path& path, const std::string& what, const Where& where);
void require_folder(const std::filesystem::path& path, const std::string& what, const Where& where,
                    const std::string& hint = {});

/// What a folder without config.json has instead, and what to do. Reads the names of the folder.
std::string hint_on_folder_without_config(const std::filesystem::path& folder);

/// The file `text`, or all files that match the glob `text`, sorted by bytes. Returns at least one file, only
/// regular files; throws usage_error otherwise.
std::vector<std::filesystem::path> expand_files(const std::string& text, const std::filesystem::path& base,
                                                const std::string& what, const Where& where);

/// The safetensors file or index for model.weights, or for the key `what`. `path` is that file or a folder
/// that contains model.safetensors.index.json or model.safetensors.
std::filesystem::path weights_file(const std::filesystem::path& path, const Where& where,
                                   const std::string& what = "model.weights");

/// True if a value of model.config is the text of a config.json, which begins with "{", and no path.
inline bool is_config_text(const std::string& value) { return value.starts_with('{'); }

/// True if `text` looks like "Qwen/Qwen2.5-7B", the name of a model on the Hugging Face Hub, and no such
/// folder is below `base`.
bool is_hub_name(const std::string& text, const std::filesystem::path& base);

/// The tokenizer of a model in a folder: tokenizer.json, or else tokenizer.model; nullopt if there is none.
std::optional<std::filesystem::path> readable_tokenizer_beside(const std::filesystem::path& folder);

/// The contents of a regular file. Throws usage_error if it cannot be read or is larger than `max_bytes`.
std::string read_text_file(const std::filesystem::path& path, std::uint64_t max_bytes,
                           const std::string& what, const Where& where);

}  // namespace trainhost::runfile
