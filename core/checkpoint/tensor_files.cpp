// Writes files of tensors and model directories. A model directory is staged under a temporary name in the
// same parent directory and published by one rename, so a reader sees the old model or the new one, never a
// mixture of config and weights.
#include "core/checkpoint/tensor_files.hpp"

#include <fmt/format.h>

#include <cassert>
#include <system_error>

#include "core/base/directory.hpp"
#include "core/base/error.hpp"
#include "core/base/text.hpp"
#include "core/checkpoint/dtypes.hpp"
#include "core/checkpoint/durable.hpp"
#include "core/checkpoint/safetensors.hpp"
#include "core/checkpoint/store.hpp"

namespace trainhost::checkpoint {
namespace fs = std::filesystem;
namespace {

/// Always f32: weights are exported in the precision in which they were trained.
std::vector<TensorEntry> entries_of(const std::vector<TensorInfo>& tensors) {
  std::vector<TensorEntry> out;
  for (const TensorInfo& t : tensors) {
    TensorEntry& e = out.emplace_back();
    e.name = t.name;
    e.dtype = "F32";
    e.shape.assign(t.dim.begin(), t.dim.begin() + t.rank);
  }
  return out;
}

/// Moves files that only the old model directory has (tokenizer files, notes) to the new one. A kill in
/// between leaves the rest in the old directory under its temporary name; nothing is lost.
void move_other_files(const fs::path& old, const fs::path& dir) {
  std::error_code ec;
  // A dangling link in the new directory counts as existing.
  std::vector<fs::path> other_files;
  for (const std::string& name : names_in_directory(old, ec))
    if (file_type_of(dir / name) == fs::file_type::not_found) other_files.push_back(old / name);
  for (const fs::path& p : other_files) rename_path(p, dir / p.filename());
  if (!other_files.empty()) sync_directory(dir);
}

/// Removes staged directories of an attempt that was killed; of their files only those that such an attempt
/// writes. rmdir() fails if others remain, so a user's file that happens to be there survives.
void remove_leftovers(const fs::path& dir, const std::map<std::string, std::string>& others,
                      const ModelFiles& written) {
  fs::path parent = dir.has_parent_path() ? dir.parent_path() : fs::path(".");
  std::error_code ec;
  std::vector<fs::path> found;
  for (const std::string& name : names_in_directory(parent, ec))
    if (is_temp_name(name, dir.filename().string())) found.push_back(parent / name);
  for (const fs::path& p : found) {
    if (!fs::is_directory(fs::symlink_status(p, ec))) continue;
    std::vector<fs::path> ours = {p / written.config, p / written.tensors};
    for (const auto& [name, text] : others) ours.push_back(p / name);
    for (const std::string& name : names_in_directory(p, ec))
      if (is_temp_name(name)) ours.push_back(p / name);
    for (const fs::path& file : ours) sys().unlink(file.c_str());
    sys().rmdir(p.c_str());
  }
}

}  // namespace

/// Requires the elements of all tensors in order and without gaps, in pieces of any size: the writer cannot
/// seek. A source that violates this is a bug of a trainer plugin, and the file is not published. Nor is a
/// file with values that the reader would reject (rule 20): a checkpoint that cannot be loaded would replace
/// good ones.
std::string write_tensors(const fs::path& target, const std::vector<TensorInfo>& tensors,
                          const TensorSource& source, const TensorMetadata& metadata) {
  SafetensorsWriter writer(target, entries_of(tensors), metadata);
  std::size_t at = 0;      // index of the next tensor
  std::uint64_t done = 0;  // its elements that are already written
  // A tensor without elements gets no call of the source.
  auto skip_empty = [&] {
    while (at < tensors.size() && done == tensors[at].elements()) ++at, done = 0;
  };
  skip_empty();
  source([&](std::string_view name, std::uint64_t first, std::span<const float> values) {
    if (values.empty()) return;
    bool next = at < tensors.size() && name == tensors[at].name && first == done;
    if (!next || values.size() > tensors[at].elements() - done)
      throw run_error(fmt::format("{}: got '{}' from element {}, expected '{}' from element {}",
                                  escaped(target.string()), escaped(name), first,
                                  at < tensors.size() ? tensors[at].name : "nothing", done));
    assert(done < tensors[at].elements());
    if (const NonFinite bad = count_nonfinite(values); bad.count > 0)
      throw run_error(
          fmt::format("{} is not written: tensor '{}' has a value that is NaN or infinite at element {}",
                      escaped(target.string(), 4096), escaped(name), first + bad.first),
          "the state before is in the last checkpoint; try a smaller optimizer.lr");
    writer.write(std::as_bytes(values));
    done += values.size();
    skip_empty();
  });
  return writer.finish();
}

void write_model_dir(const fs::path& target, std::string_view config_json,
                     const std::vector<TensorInfo>& tensors, const TensorSource& source,
                     const std::map<std::string, std::string>& others, const ModelFiles& files) {
  const fs::path dir = target.has_filename() ? target : target.parent_path();  // "model/" is model
  const fs::path parent = dir.parent_path();
  make_directories(parent);
  remove_leftovers(dir, others, files);
  const fs::path staged = temp_beside(dir);
  try {
    // The config is written last: its directory sync makes all files of the staged directory durable.
    make_directory(staged);
    write_tensors(staged / files.tensors, tensors, source, files.metadata);
    for (const auto& [name, text] : others) write_file_atomically(staged / name, text);
    write_file_atomically(staged / files.config, config_json);  // also syncs the directory
    bool replaced = publish_directory(staged, dir);
    // The new directory is complete and published; what follows only cleans up.
    sync_directory(parent);
    if (replaced) move_other_files(staged, dir);
  } catch (...) {
    try {
      remove_leftovers(dir, others, files);
    } catch (...) {  // report the first failure
    }
    throw;
  }
  remove_leftovers(dir, others, files);
}

}  // namespace trainhost::checkpoint
