// Reads and writes safetensors files under the 25 rules of core/checkpoint/README.md. Files are untrusted: no
// number of a header is used as a size before it was checked against the file. Reads use pread, never mmap.
#pragma once
#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/base/error.hpp"
#include "core/base/types.hpp"
#include "core/model/tensor_parts.hpp"
#include "core/model/tensors.hpp"

namespace trainhost::checkpoint {

struct TensorEntry {
  std::string name, dtype;  // "F32", "BF16", ...
  std::vector<std::uint64_t> shape;
  std::uint64_t begin = 0, end = 0;  // byte range in the file
  std::uint64_t elements() const;
};

/// A file that violates one of the 25 rules. The message states what is wrong, and not the rule's number.
struct RejectedFile : Error {
  RejectedFile(int violated, std::string message, std::string hint)
      : Error(Exit::kUsage, std::move(message), std::move(hint)), rule(violated) {}
  int rule;
};

/// One open file. Throws RejectedFile with the file, and the byte or tensor.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::filesystem::path& file);
  ~SafetensorsFile();
  SafetensorsFile(SafetensorsFile&&) noexcept;
  const std::filesystem::path& path() const;
  const std::vector<TensorEntry>& tensors() const;  // sorted by offset
  const std::map<std::string, std::string>& metadata() const;
  /// Reads bytes [first, first + out.size()) of the tensor's data.
  void read(const TensorEntry& t, std::uint64_t first, std::span<std::byte> out) const;
  /// Throws if the size, mtime or inode changed since the file was opened.
  void verify_unchanged() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// The weights of a model: a .safetensors file, a model.safetensors.index.json with its shards, or a
/// directory that contains one of them. In place of a file that does not exist, those that the ranks of a run
/// have written (tensor_parts_file.hpp).
class WeightSource {
 public:
  explicit WeightSource(const std::filesystem::path& file_or_dir);
  /// Throws Error(kUsage) that lists missing and extra tensors and wrong shapes. A stored copy of a tied LM
  /// head is accepted if its shape is that of the embedding, and reported by ignored().
  void require(const std::vector<TensorInfo>& wanted, bool tied);
  /// Tensors that require() ignored, with the reason, for the user.
  const std::vector<std::string>& ignored() const { return ignored_; }
  /// The open files.
  const std::vector<SafetensorsFile>& files() const { return files_; }
  /// Streams tensor `t` as f32 in pieces of at most scratch.size() elements: f(first_element, values). Throws
  /// Error(kUsage) with file, tensor and element if it has non-finite values; a piece that has some, and what
  /// follows it, is not passed to f.
  template <class F>
  void stream(const TensorInfo& t, std::span<float> scratch, F&& f) {
    std::uint64_t n = t.elements();
    if (scratch.empty()) throw usage_error("no scratch buffer to read '" + t.name + "'");
    for (std::uint64_t first = 0; first < n; first += scratch.size()) {
      auto piece = scratch.first(std::min<std::uint64_t>(scratch.size(), n - first));
      read_f32(t, first, piece);
      if (nonfinite_ == 0) f(first, std::span<const float>(piece));
    }
    finish(t);
  }

  /// Elements [first, first + count) of a part of a tensor, in one of the open files.
  struct Part {
    std::size_t file, entry;
    TensorPart at;
    std::uint64_t first, count;
  };

 private:
  static constexpr std::size_t kParts = SIZE_MAX;
  struct Location {
    std::size_t file, entry;  // file = kParts: entry is an index into in_parts_
  };
  struct InParts {
    TensorEntry whole;  // of no file: begin and end are 0
    std::vector<Part> parts;
  };
  void open_one(const std::filesystem::path& file);
  void open_index(const std::filesystem::path& file);
  void open_rank_files(const std::vector<std::filesystem::path>& files);
  void read_parts(const InParts& tensor, std::uint64_t first, std::span<float> out);
  const TensorEntry& entry(const Location& p) const {
    return p.file == kParts ? in_parts_[p.entry].whole : files_[p.file].tensors()[p.entry];
  }
  const Location& location_of(const TensorInfo& t) const;
  void read_f32(const TensorInfo& t, std::uint64_t first, std::span<float> out);
  void finish(const TensorInfo& t);

  std::filesystem::path source_;  // as given by the user, for messages
  std::vector<SafetensorsFile> files_;
  std::map<std::string, Location> locations_;  // by tensor name
  std::vector<InParts> in_parts_;
  std::vector<float> bounce_;  // of read_parts()
  std::vector<std::string> ignored_;
  std::uint64_t nonfinite_ = 0, first_nonfinite_ = 0;  // of the tensor being streamed
};

/// Writes one file. The tensors are declared first (name, dtype, shape; the writer chooses the offsets), then
/// their data are written in that order, in pieces of any size. Writes a temporary file, syncs it, reads it
/// back and compares hashes, renames it and syncs the directory. After any error the old file is unchanged.
class SafetensorsWriter {
 public:
  SafetensorsWriter(const std::filesystem::path& target, const std::vector<TensorEntry>& tensors,
                    const std::map<std::string, std::string>& metadata);
  ~SafetensorsWriter();  // removes the temporary file if finish() was not called
  void write(std::span<const std::byte> data);
  /// Publishes the file; returns the XXH3-128 of its content as 32 hex digits.
  std::string finish();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace trainhost::checkpoint
