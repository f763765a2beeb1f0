// See paths.hpp. Uses the non-throwing file system calls only: a file may disappear between two calls. A
// check here is for the message; the code that opens the file checks again.
#include "core/runfile/paths.hpp"

#include <fmt/format.h>
#include <glob.h>

#include <algorithm>
#include <fstream>
#include <span>

#include "core/base/directory.hpp"
#include "core/base/text.hpp"
#include "core/model/tensors.hpp"

namespace fs = std::filesystem;

namespace trainhost::runfile {
namespace {

constexpr std::size_t kMaxNames = 10000;  // names of one folder that are compared for a suggestion
constexpr const char* kNoGguf = "GGUF is not read: use the folder of the model that it was made from";

/// Sorted, since the order of a directory is arbitrary and a suggestion must not vary.
std::vector<std::string> names_in(const fs::path& folder) {
  std::error_code ec;
  std::vector<std::string> names = names_in_directory(folder, ec, kMaxNames);
  std::sort(names.begin(), names.end());
  return names;
}

/// "; did you mean 'x'?" for the first component of the path that does not exist. A misspelt folder is the
/// more useful suggestion: the missing file below it is only a consequence.
std::string suggest_path(const fs::path& path) {
  std::error_code ec;
  fs::path existing;
  for (const fs::path& part : path) {
    if (fs::exists(existing / part, ec)) {
      existing /= part;
      continue;
    }
    const auto name = nearest(part.string(), names_in(existing));
    return name ? fmt::format("; did you mean '{}'?",
                              escaped(part == path.filename() ? *name : (existing / *name).string()))
                : "";
  }
  return "";
}

/// Paths come from the user and may contain control characters.
std::string shown(const fs::path& path) { return escaped(path.string(), 400); }

/// "model.path: " before a message. Empty where the place of the error is an option or a positional argument
/// of its own ("--model", "MODEL"), which names the value already. A position in a file has a line.
std::string key_prefix(const std::string& what, const Where& where) {
  const bool option = where.file.starts_with("--") && !where.file.starts_with("--set"),
             positional = where.file == "MODEL" || where.file == "DATA";
  return where.line == 0 && (option || positional) ? "" : what + ": ";
}

[[noreturn]] void reject_missing(const fs::path& path, const std::string& what, const Where& where,
                                 const std::string& hint = {}) {
  throw usage_error(
      fmt::format("{}'{}' does not exist{}", key_prefix(what, where), shown(path), suggest_path(path)), hint,
      where);
}

/// The extension of the first file in the folder that is read as data, for a glob; ".txt" if there is none.
std::string data_extension_in(const fs::path& folder) {
  static constexpr const char* kData[] = {".jsonl", ".ndjson", ".json", ".csv", ".tsv", ".txt", ".bin"};
  for (const std::string& name : names_in(folder))
    for (const char* extension : kData)
      if (name.ends_with(extension)) return extension;
  return ".txt";
}

bool path_exists(const fs::path& p) {
  std::error_code ec;
  return fs::exists(p, ec);
}
bool is_folder(const fs::path& p) {
  std::error_code ec;
  return fs::is_directory(p, ec);
}
bool is_file(const fs::path& p) {
  std::error_code ec;
  return fs::is_regular_file(p, ec);
}

/// glob() with sorting by the locale's rules would give another order of training data on another machine;
/// the sort by bytes does not. Links to folders and pipes are left out.
std::vector<fs::path> glob_matches(const fs::path& pattern) {
  glob_t found{};
  std::vector<fs::path> out;
  if (::glob(pattern.c_str(), 0, nullptr, &found) == 0)
    for (std::size_t i = 0; i < found.gl_pathc; ++i)
      if (is_file(found.gl_pathv[i])) out.emplace_back(found.gl_pathv[i]);
  ::globfree(&found);
  std::sort(out.begin(), out.end(),
            [](const fs::path& a, const fs::path& b) { return a.native() < b.native(); });
  return out;
}

}  // namespace

/// lexically_normal() removes "." and ".." without asking the file system, so it works for missing files.
fs::path resolve_path(const std::string& text, const fs::path& base) {
  const fs::path path(text);
  return fs::absolute(path.is_absolute() ? path : base / path).lexically_normal();
}

void require_file(const fs::path& path, const std::string& what, const Where& where) {
  if (is_file(path)) return;
  if (!path_exists(path)) reject_missing(path, what, where);
  if (is_folder(path))
    throw usage_error(
        fmt::format("{}'{}' is a folder: expected a file", key_prefix(what, where), shown(path)), {}, where);
  throw usage_error(fmt::format("{}'{}' is not a regular file", key_prefix(what, where), shown(path)), {},
                    where);
}

void require_folder(const fs::path& path, const std::string& what, const Where& where,
                    const std::string& hint) {
  if (is_folder(path)) return;
  if (!path_exists(path)) reject_missing(path, what, where, hint);
  throw usage_error(fmt::format("{}'{}' is not a folder", key_prefix(what, where), shown(path)),
                    path.extension() == ".gguf" ? kNoGguf : "", where);
}

bool is_hub_name(const std::string& text, const fs::path& base) {
  std::error_code ec;
  return std::count(text.begin(), text.end(), '/') == 1 && !text.starts_with('.') && !text.starts_with('/') &&
         !text.ends_with('/') && !text.ends_with(".json") &&
         !fs::exists(resolve_path(text, base).parent_path(), ec);
}

std::vector<fs::path> expand_files(const std::string& text, const fs::path& base, const std::string& what,
                                   const Where& where) {
  const fs::path path = resolve_path(text, base);
  // A file whose name contains a bracket is found by its name before it is tried as a pattern.
  const bool pattern = text.find_first_of("*?[") != text.npos;
  if (!pattern || path_exists(path)) {
    if (is_folder(path)) {
      const std::string extension = data_extension_in(path);
      throw usage_error(fmt::format("{}'{}' is a folder: expected a file, a list or a glob",
                                    key_prefix(what, where), shown(path)),
                        fmt::format("use '{}/*{}' for the {} files in it", escaped(text), extension,
                                    extension == ".txt" ? "text" : extension),
                        where);
    }
    require_file(path, what, where);
    return {path};
  }
  auto matches = glob_matches(path);
  if (matches.empty())
    throw usage_error(fmt::format("{}no file matches '{}'", key_prefix(what, where), shown(path)), {}, where);
  return matches;
}

static std::optional<fs::path> first_file(const fs::path& folder, std::span<const char* const> names) {
  if (!folder.empty())
    for (const char* name : names)
      if (is_file(folder / name)) return folder / name;
  return std::nullopt;
}

std::string hint_on_folder_without_config(const fs::path& folder) {
  for (const std::string& name : names_in(folder)) {
    if (name.ends_with(".gguf")) return kNoGguf;
    if (name == "params.json" || name.ends_with(".pth"))
      return "these are the files of Meta's own layout: download the same model in the layout of Hugging "
             "Face";
  }
  return "a folder in the layout of Hugging Face has config.json, *.safetensors and tokenizer files";
}

std::optional<fs::path> weights_beside(const fs::path& folder) { return first_file(folder, kWeightFiles); }

std::optional<fs::path> tokenizer_beside(const fs::path& folder) {
  static constexpr const char* kNames[] = {"tokenizer.json", "tokenizer.model", "vocab.json",
                                           "tekken.json",    "spiece.model",    "sentencepiece.bpe.model",
                                           "vocab.txt",      "merges.txt",      "tokenizer_config.json",
                                           "qwen.tiktoken",  "tiktoken.model",  "spm.model"};
  return first_file(folder, kNames);
}

std::optional<fs::path> readable_tokenizer_beside(const fs::path& folder) {
  static constexpr const char* kNames[] = {"tokenizer.json", "tokenizer.model"};
  return first_file(folder, kNames);
}

namespace {
/// The command that writes model.safetensors beside the pickles of a folder.
std::string pickle_conversion(const fs::path& folder) {
  return fmt::format(
      "python3 -c \"from transformers import AutoModelForCausalLM as M; "
      "M.from_pretrained('{0}', dtype='auto').save_pretrained('{0}')\"",
      shown(folder));
}
}  // namespace

fs::path weights_file(const fs::path& path, const Where& where, const std::string& what) {
  if (is_folder(path)) {
    if (const auto found = weights_beside(path)) return *found;
    const auto has = [names = names_in(path)](const char* extension) {
      return std::any_of(names.begin(), names.end(),
                         [&](const std::string& n) { return n.ends_with(extension); });
    };
    throw usage_error(
        fmt::format("{}'{}' contains neither model.safetensors nor model.safetensors.index.json",
                    key_prefix(what, where), shown(path)),
        has(".safetensors")
            ? std::string("copy model.safetensors.index.json, which names the shards, as well")
        : has(".bin") || has(".pth")
            ? "its weights are a pickle: convert them to safetensors: " + pickle_conversion(path)
        : has(".gguf") ? kNoGguf
                       : "copy or download the weights",
        where);
  }
  const std::string extension = path.extension().string();
  if (extension == ".bin" || extension == ".pt" || extension == ".pth" || extension == ".ckpt")
    throw usage_error(fmt::format("{}'{}' is a pickle file, which can execute code when it is read",
                                  key_prefix(what, where), shown(path)),
                      "convert it to safetensors first", where);
  require_file(path, what, where);
  if (extension != ".safetensors" && !path.filename().string().ends_with(".safetensors.index.json"))
    throw usage_error(fmt::format("{}'{}' is not a .safetensors file or a .safetensors.index.json",
                                  key_prefix(what, where), shown(path)),
                      {}, where);
  return path;
}

/// Read in blocks up to max_bytes, not by the size from stat(): files such as those of /proc state a size of
/// 0.
std::string read_text_file(const fs::path& path, std::uint64_t max_bytes, const std::string& what,
                           const Where& where) {
  require_file(path, what, where);
  std::ifstream in(path, std::ios::binary);
  std::string text;
  char block[1 << 16];
  // One byte more than max_bytes may be read, which tells a file that is too long.
  while (in && text.size() <= max_bytes) {
    in.read(block, sizeof block);
    text.append(block, static_cast<std::size_t>(in.gcount()));
  }
  if (in.bad() || (!in.eof() && in.fail()))
    throw usage_error(fmt::format("{}'{}' cannot be read", key_prefix(what, where), shown(path)), {}, where);
  if (text.size() > max_bytes)
    throw usage_error(fmt::format("{}'{}' is larger than {}", key_prefix(what, where), shown(path),
                                  format_bytes(max_bytes)),
                      {}, where);
  return text;
}

}  // namespace trainhost::runfile
