// See named_files.hpp.
#include "core/framework_files/named_files.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <string>
#include <string_view>

#include "core/base/error.hpp"
#include "core/base/text.hpp"

namespace fs = std::filesystem;

namespace trainhost::framework_files {
namespace {

using runfile::Entry;
using runfile::Value;

/// The path that a file gives for the JSON of DeepSpeed; null if it gives none.
const Entry* deepspeed_path(const File& f) {
  const auto found = std::ranges::find_if(f.entries, [](const Entry& e) {
    return (e.key == "deepspeed" || e.key == "deepspeed_config.deepspeed_config_file" ||
            e.key == "deepspeed_config_file" || e.key == "deepspeed_config" ||
            e.key == "dist_config.config_file") &&
           e.value.kind == Value::Kind::kText && !e.value.text.empty() && e.value.text != "none";
  });
  return found == f.entries.end() ? nullptr : &*found;
}

/// The file of a kind ("deepspeed") that a key names. Its path is relative to the file with the key, to the
/// current directory, or to a folder above the file: configurations name others from the root of their
/// project.
File read_named_file(const File& from, const Entry& named, const std::string& kind) {
  const fs::path path = named.value.text;
  std::error_code ec;
  const fs::path folder = fs::absolute(from.path, ec).parent_path();
  std::vector<fs::path> candidates{folder / path, path};
  if (path.is_relative())
    for (fs::path above = folder; above.has_relative_path(); above = above.parent_path())
      candidates.push_back(above.parent_path() / path);
  for (const fs::path& candidate : candidates)
    if (fs::is_regular_file(candidate, ec)) {
      const fs::path shown = candidate.lexically_proximate(fs::current_path(ec));
      return read_file(kind + ":" +
                       (from.path.starts_with('/') ? candidate.lexically_normal() : shown).string());
    }
  const bool known = path.string().find('$') == std::string::npos;
  const std::string above = fs::path(from.path).parent_path().string();
  throw usage_error(
      known ? fmt::format("{} = {}: no such file in {}, a folder above it or the current directory",
                          named.shown(), runfile::written(named.value),
                          escaped(above.empty() ? "." : above, 200))
            : fmt::format("{} = {}: the file does not say what this is", named.shown(),
                          runfile::written(named.value)),
      kind == "transformers"
          ? fmt::format("correct the path, or write the keys of that file below {}", named.shown())
          : fmt::format("give the file too: --from {} {}:FILE; or remove the key", escaped(from.path, 200),
                        kind),
      named.value.where);
}

/// TrainingArguments may name a file with the keys of `fsdp_config`: they are read as if they were below it.
void add_fsdp_config(std::vector<File>& files) {
  for (File& f : files) {
    const auto named = std::ranges::find_if(f.entries, [](const Entry& e) {
      return e.key == "fsdp_config" && e.value.kind == Value::Kind::kText && !e.value.text.empty();
    });
    const bool trainer = f.kind->read == read_training_arguments || f.kind->read == read_training_script;
    if (!trainer || named == f.entries.end()) continue;
    File config = read_named_file(f, *named, "transformers");
    for (Entry& e : config.entries) e.key.insert(0, "fsdp_config.");
    std::ranges::move(config.entries, std::back_inserter(f.entries));
  }
}

/// The YAML of `accelerate launch --config_file`, unless the command line gives one.
void add_accelerate(std::vector<File>& files) {
  if (std::ranges::any_of(files, [](const File& f) { return f.kind->read == read_accelerate; })) return;
  std::vector<File> more;
  for (const File& f : files) {
    const bool script = f.kind->read == read_training_script || f.kind->read == read_llama_factory_script ||
                        f.kind->read == read_swift;
    const auto named = std::ranges::find_if(f.entries, [](const Entry& e) {
      return e.key == "config_file" && e.value.kind == Value::Kind::kText;
    });
    if (script && named != f.entries.end()) more.push_back(read_named_file(f, *named, "accelerate"));
  }
  std::ranges::move(more, std::back_inserter(files));
}

/// A table `deepspeed:` inside a file, as a file of its own.
File deepspeed_table(File& from) {
  File out{from.path, &kind_of(read_deepspeed), {}};
  constexpr std::string_view kTable = "deepspeed.";
  std::erase_if(from.entries, [&](const Entry& e) {
    if (!e.key.starts_with(kTable)) return false;
    out.entries.push_back(e);
    out.entries.back().key.erase(0, kTable.size());
    return true;
  });
  return out;
}

/// Reads what a file says about DeepSpeed, in it or in another file, unless the command line gives a file.
void add_deepspeed(std::vector<File>& files) {
  const bool given = std::ranges::any_of(files, [](const File& f) { return f.kind->read == read_deepspeed; });
  std::vector<File> more;
  for (File& f : files) {
    if (f.kind->read == read_deepspeed) continue;
    if (File table = deepspeed_table(f); !table.entries.empty()) more.push_back(std::move(table));
    const Entry* path = deepspeed_path(f);
    if (path && !given) more.push_back(read_named_file(f, *path, "deepspeed"));
  }
  std::ranges::move(more, std::back_inserter(files));
}

}  // namespace

void add_named_files(std::vector<File>& files) {
  add_accelerate(files);
  add_deepspeed(files);
  add_fsdp_config(files);
}

}  // namespace trainhost::framework_files
