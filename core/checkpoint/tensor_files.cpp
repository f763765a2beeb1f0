// Writes files of tensors and model directories. A model directory is staged under a temporary name in the
// same parent directory and published by one rename, so a reader sees the old model or the new one, never a
// mixture of config and weights.
#include "core/checkpoint/tensor_files.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <optional>
#include <system_error>
#include <utility>

#include "core/base/checked.hpp"
#include "core/base/directory.hpp"
#include "core/base/error.hpp"
#include "core/base/json_value.hpp"
#include "core/base/text.hpp"
#include "core/checkpoint/dtypes.hpp"
#include "core/checkpoint/durable.hpp"
#include "core/checkpoint/safetensors.hpp"
#include "core/checkpoint/safetensors_header.hpp"
#include "core/checkpoint/store.hpp"
#include "core/checkpoint/stored_values.hpp"

namespace trainhost::checkpoint {
namespace fs = std::filesystem;
namespace {

/// One file of a model: tensors [first, last) of it.
struct Shard {
  std::string name;
  std::size_t first = 0, last = 0;
};

std::uint64_t stored_bytes(const TensorInfo& t, std::string_view dtype) {
  return checked_mul(t.elements(), dtype_bits(dtype) / 8);
}

/// In the order of the tensors, each file as full as its limit allows.
std::vector<Shard> shards_of(const std::vector<TensorInfo>& tensors, const ModelFiles& files) {
  std::vector<Shard> out(1);
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const std::uint64_t more = stored_bytes(tensors[i], files.dtype);
    if (bytes > 0 && more > files.shard_bytes - std::min(bytes, files.shard_bytes)) {
      out.push_back({{}, i, i});
      bytes = 0;
    }
    bytes = checked_add(bytes, more);
    out.back().last = i + 1;
  }
  const fs::path whole(files.tensors);
  for (std::size_t i = 0; i < out.size(); ++i)
    out[i].name = out.size() == 1 ? files.tensors
                                  : fmt::format("{}-{:05}-of-{:05}{}", whole.stem().string(), i + 1,
                                                out.size(), whole.extension().string());
  return out;
}

std::vector<TensorEntry> entries_of(const std::vector<TensorInfo>& tensors, const Shard& s,
                                    const std::string& dtype) {
  std::vector<TensorEntry> entries;
  for (std::size_t i = s.first; i < s.last; ++i) {
    const TensorInfo& t = tensors[i];
    TensorEntry& e = entries.emplace_back();
    e.name = t.name;
    e.dtype = dtype;
    e.shape.assign(t.dim.begin(), t.dim.begin() + t.rank);
  }
  return entries;
}

/// The index of a model in several files, as transformers reads it.
std::string index_json(const std::vector<TensorInfo>& tensors, const std::vector<Shard>& shards,
                       std::string_view dtype) {
  std::uint64_t bytes = 0;
  JsonValue names = JsonValue::object();
  for (const Shard& s : shards)
    for (std::size_t i = s.first; i < s.last; ++i) {
      bytes = checked_add(bytes, stored_bytes(tensors[i], dtype));
      names[tensors[i].name] = s.name;
    }
  JsonValue out = JsonValue::object();
  out["metadata"] = {{"total_size", bytes}};
  out["weight_map"] = std::move(names);
  return out.dump(2) + "\n";
}

/// Whether a file holds weights, or their index, by the names that write_model_dir() gives.
bool is_weight_file(std::string_view name) {
  return name.ends_with(".safetensors") || name.ends_with(".safetensors.index.json");
}

/// Writes tensors to one file after the other as their values arrive. Requires the elements of all tensors in
/// order and without gaps, in pieces of any size: the writer cannot seek. A source that violates this is a
/// bug of a trainer plugin, and the file is not published. Nor is a file with values that the reader would
/// reject (rule 20): a checkpoint that cannot be loaded would replace good ones.
class TensorStream {
 public:
  TensorStream(fs::path folder, const std::vector<TensorInfo>& tensors, const std::vector<Shard>& shards,
               const ModelFiles& files)
      : folder_(std::move(folder)), tensors_(tensors), shards_(shards), files_(files), stored_(files.dtype) {
    open();
    skip_complete();
  }

  void take(std::string_view name, std::uint64_t first, std::span<const float> values) {
    if (values.empty()) return;
    const bool next = at_ < tensors_.size() && name == tensors_[at_].name && first == done_;
    if (!next || values.size() > tensors_[at_].elements() - done_)
      throw run_error(fmt::format("{}: got '{}' from element {}, expected '{}' from element {}", target(),
                                  escaped(name), first,
                                  at_ < tensors_.size() ? tensors_[at_].name : "nothing", done_));
    assert(done_ < tensors_[at_].elements());
    const std::size_t piece = files_.dtype == "F32" ? values.size() : StoredValues::kMost;
    for (std::size_t at = 0; at < values.size(); at += piece)
      writer_->write(
          stored_.of(target(), name, first + at, values.subspan(at, std::min(piece, values.size() - at))));
    done_ += values.size();
    skip_complete();
  }

  /// The XXH3-128 of the last file.
  std::string finish() {
    assert(shard_ + 1 == shards_.size());
    return writer_->finish();
  }

 private:
  void open() {
    const Shard& s = shards_[shard_];
    writer_.emplace(folder_ / s.name, entries_of(tensors_, s, files_.dtype), files_.metadata);
  }

  /// To the next tensor with elements that are to come; a tensor without elements gets no call of the source.
  void skip_complete() {
    while (at_ < tensors_.size() && done_ == tensors_[at_].elements()) {
      ++at_, done_ = 0;
      if (at_ == shards_[shard_].last && shard_ + 1 < shards_.size()) {
        writer_->finish();
        ++shard_;
        open();
      }
    }
  }

  std::string target() const { return escaped((folder_ / shards_[shard_].name).string(), 4096); }

  fs::path folder_;
  const std::vector<TensorInfo>& tensors_;
  const std::vector<Shard>& shards_;
  const ModelFiles& files_;
  std::optional<SafetensorsWriter> writer_;
  std::size_t shard_ = 0, at_ = 0;  // the open file; index of the next tensor
  std::uint64_t done_ = 0;          // its elements that are already written
  StoredValues stored_;
};

/// Returns the XXH3-128 of the last file.
std::string stream_tensors(const fs::path& folder, const std::vector<TensorInfo>& tensors,
                           const std::vector<Shard>& shards, const ModelFiles& files,
                           const TensorSource& source) {
  TensorStream stream(folder, tensors, shards, files);
  source([&](std::string_view name, std::uint64_t first, std::span<const float> values) {
    stream.take(name, first, values);
  });
  return stream.finish();
}

/// Moves files that only the old model directory has (tokenizer files, notes) to the new one, but no weights:
/// beside those of the new model they would be read instead of them, or be taken for a part of it. A kill in
/// between leaves the rest in the old directory under its temporary name; nothing is lost.
void move_other_files(const fs::path& old, const fs::path& dir) {
  std::error_code ec;
  // A dangling link in the new directory counts as existing.
  std::vector<fs::path> other_files;
  for (const std::string& name : names_in_directory(old, ec))
    if (!is_weight_file(name) && file_type_of(dir / name) == fs::file_type::not_found)
      other_files.push_back(old / name);
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
    std::vector<fs::path> ours = {p / written.config};
    for (const auto& [name, text] : others) ours.push_back(p / name);
    for (const std::string& name : names_in_directory(p, ec))
      if (is_temp_name(name) || is_weight_file(name)) ours.push_back(p / name);
    for (const fs::path& file : ours) sys().unlink(file.c_str());
    sys().rmdir(p.c_str());
  }
}

}  // namespace

std::string write_tensors(const fs::path& target, const std::vector<TensorInfo>& tensors,
                          const TensorSource& source, const TensorMetadata& metadata) {
  ModelFiles files;
  files.metadata = metadata;
  return stream_tensors(target.parent_path(), tensors, {{target.filename().string(), 0, tensors.size()}},
                        files, source);
}

namespace {

fs::path without_slash(const fs::path& dir) { return dir.has_filename() ? dir : dir.parent_path(); }

/// The staged directory, empty.
fs::path create_staged(const fs::path& dir, const std::map<std::string, std::string>& others,
                       const ModelFiles& files) {
  make_directories(dir.parent_path());
  remove_leftovers(dir, others, files);
  fs::path staged = temp_beside(dir);
  make_directory(staged);
  return staged;
}

void remove_after_failure(const fs::path& dir, const std::map<std::string, std::string>& others,
                          const ModelFiles& files) noexcept try {
  remove_leftovers(dir, others, files);
} catch (...) {  // the first failure is reported
}

}  // namespace

fs::path stage_model_dir(const fs::path& target, const std::vector<TensorInfo>& tensors,
                         const std::map<std::string, std::string>& others, const ModelFiles& files) {
  const fs::path dir = without_slash(target);
  try {
    fs::path staged = create_staged(dir, others, files);
    for (const Shard& s : shards_of(tensors, files)) {
      const fs::path file = staged / s.name;
      std::uint64_t data_bytes = 0;
      const std::string head =
          safetensors_head(entries_of(tensors, s, files.dtype), files.metadata, file.string(), data_bytes);
      Fd fd = create_new(file);
      allocate(fd.get(), head.size() + data_bytes, file);
      write_at(fd.get(), 0, std::as_bytes(std::span(head)), file);
      sync_and_close(std::move(fd), file);
    }
    return staged;
  } catch (...) {
    remove_after_failure(dir, others, files);
    throw;
  }
}

std::vector<std::string> model_file_names(const std::vector<TensorInfo>& tensors, const ModelFiles& files) {
  std::vector<std::string> names;
  for (const Shard& s : shards_of(tensors, files)) names.push_back(s.name);
  return names;
}

void publish_model_dir(const fs::path& staged, const fs::path& target, std::string_view config_json,
                       const std::vector<TensorInfo>& tensors,
                       const std::map<std::string, std::string>& others, const ModelFiles& files) {
  const fs::path dir = without_slash(target);
  const std::vector<Shard> shards = shards_of(tensors, files);
  if (shards.size() > 1)
    write_file_atomically(staged / (files.tensors + ".index.json"), index_json(tensors, shards, files.dtype));
  for (const auto& [name, text] : others) write_file_atomically(staged / name, text);
  // The config is written last: its directory sync makes all files of the staged directory durable.
  write_file_atomically(staged / files.config, config_json);
  const bool replaced = publish_directory(staged, dir);
  // The new directory is complete and published; what follows only cleans up.
  sync_directory(dir.parent_path());
  if (replaced) move_other_files(staged, dir);
  remove_leftovers(dir, others, files);
}

void discard_model_dir(const fs::path& target, const std::map<std::string, std::string>& others,
                       const ModelFiles& files) noexcept {
  remove_after_failure(without_slash(target), others, files);
}

void write_model_dir(const fs::path& target, std::string_view config_json,
                     const std::vector<TensorInfo>& tensors, const TensorSource& source,
                     const std::map<std::string, std::string>& others, const ModelFiles& files) {
  try {
    const fs::path staged = create_staged(without_slash(target), others, files);
    stream_tensors(staged, tensors, shards_of(tensors, files), files, source);
    publish_model_dir(staged, target, config_json, tensors, others, files);
  } catch (...) {
    discard_model_dir(target, others, files);
    throw;
  }
}

}  // namespace trainhost::checkpoint
