// Safetensors in and out, under the 25 rules of core/checkpoint/README.md. Files are hostile until proved
// otherwise; nothing from a header is used as a size before it was checked against the file. pread only,
// never mmap.
#pragma once
#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/base/error.hpp"
#include "core/base/types.hpp"
#include "core/model/tensors.hpp"

namespace trainhost::checkpoint {

struct TensorEntry {
  std::string name, dtype;  // "F32", "BF16", ...
  std::vector<std::uint64_t> shape;
  std::uint64_t begin = 0, end = 0;  // bytes from the file's start
  std::uint64_t elements() const;
};

/// One open file. Throws Error(kUsage) naming the file, the rule broken and the byte or tensor.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::filesystem::path& file);
  ~SafetensorsFile();
  SafetensorsFile(SafetensorsFile&&) noexcept;
  const std::filesystem::path& path() const;
  const std::vector<TensorEntry>& tensors() const;  // by offset
  const std::map<std::string, std::string>& metadata() const;
  /// Bytes [first, first + out.size()) of the tensor's data.
  void read(const TensorEntry& t, std::uint64_t first, std::span<std::byte> out) const;
  /// Throws when size, mtime or inode changed since it was opened.
  void verify_unchanged() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// A model's weights: one .safetensors file or a model.safetensors.index.json with its shards, or a directory
/// holding one.
class WeightSource {
 public:
  explicit WeightSource(const std::filesystem::path& file_or_dir);
  /// Throws Error(kUsage) listing every missing, extra and mis-shaped tensor (a tied head stored twice is
  /// accepted when equal in shape and reported by `ignored`).
  void require(const std::vector<TensorInfo>& wanted, bool tied);
  /// Tensors that require() passed over, and why; for the user.
  const std::vector<std::string>& ignored() const { return ignored_; }
  /// The files that were opened.
  const std::vector<SafetensorsFile>& files() const { return files_; }
  /// Streams tensor `t` as f32 (from F32, F16, BF16, F64) in pieces of at most scratch.size() elements.
  /// f(first_element, values). Counts non-finite values; throws Error(kUsage) naming the tensor when there
  /// are any.
  template <class F>
  void stream(const TensorInfo& t, std::span<float> scratch, F&& f) {
    std::uint64_t n = t.elements();
    if (scratch.empty()) throw usage_error("no scratch space to read '" + t.name + "' through");
    for (std::uint64_t first = 0; first < n; first += scratch.size()) {
      auto piece = scratch.first(std::min<std::uint64_t>(scratch.size(), n - first));
      read_f32(t, first, piece);
      f(first, std::span<const float>(piece));
    }
    finish(t);
  }

 private:
  struct Place {
    std::size_t file, entry;
  };
  void open_one(const std::filesystem::path& file);
  void open_index(const std::filesystem::path& file);
  const TensorEntry& entry(const Place& p) const { return files_[p.file].tensors()[p.entry]; }
  const Place& place_of(const TensorInfo& t) const;
  void read_f32(const TensorInfo& t, std::uint64_t first, std::span<float> out);
  void finish(const TensorInfo& t);

  std::filesystem::path source_;  // as given: what messages name
  std::vector<SafetensorsFile> files_;
  std::map<std::string, Place> where_;
  std::vector<std::string> ignored_;
  std::uint64_t nonfinite_ = 0, first_nonfinite_ = 0;  // of the tensor that streams now
};

/// Writes one file: all tensors declared first (name, dtype, shape; the offsets are ours to choose), then
/// their data in that order, in pieces of any size. Temp file beside the target, fsync, read back and
/// compared by hash, rename, fsync of the directory; short writes are continued; any error leaves the old
/// file as it was.
class SafetensorsWriter {
 public:
  SafetensorsWriter(const std::filesystem::path& target, const std::vector<TensorEntry>& tensors,
                    const std::map<std::string, std::string>& metadata);
  ~SafetensorsWriter();  // not finished: the temp file is removed
  void write(std::span<const std::byte> data);
  /// Publishes; returns the XXH3-128 of the whole file as 32 hex digits.
  std::string finish();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace trainhost::checkpoint
