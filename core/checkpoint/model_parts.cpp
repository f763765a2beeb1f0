// write_model_part(): a rank writes its elements at their offsets in the files of a model.
#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <map>

#include "core/base/error.hpp"
#include "core/base/text.hpp"
#include "core/checkpoint/durable.hpp"
#include "core/checkpoint/safetensors.hpp"
#include "core/checkpoint/stored_values.hpp"
#include "core/checkpoint/tensor_files.hpp"
#include "core/checkpoint/xxh3.hpp"

namespace trainhost::checkpoint {
namespace fs = std::filesystem;
namespace {

Fd open_for_writing(const fs::path& file) {
  int fd;
  do fd = sys().open(file.c_str(), O_WRONLY | O_CLOEXEC, 0);
  while (fd < 0 && errno == EINTR);
  if (fd < 0) throw_errno("open", file, errno);
  return Fd(fd);
}

class ModelPart {
 public:
  ModelPart(const fs::path& staged, const std::vector<std::string>& names, const ModelFiles& files)
      : stored_(files.dtype) {
    for (const std::string& name : names) {
      File& f =
          files_.emplace_back(File{SafetensorsFile(staged / name), open_for_writing(staged / name), {}});
      for (const TensorEntry& t : f.layout.tensors()) of_tensor_[t.name] = {files_.size() - 1, &t};
    }
  }

  void take(const TensorInfo& whole, const TensorPart& part, std::uint64_t first,
            std::span<const float> values) {
    const auto found = of_tensor_.find(whole.name);
    if (found == of_tensor_.end() || found->second.entry->elements() != part.rows * part.cols ||
        first > part.elements() || values.size() > part.elements() - first)
      throw run_error(fmt::format("the trainer saved '{}', elements {} to {}, which the model does not have",
                                  escaped(whole.name), first, first + values.size()));
    File& f = files_[found->second.file];
    const std::string name = escaped(f.layout.path().string(), 4096);
    each_run(part, first, values.size(), [&](std::uint64_t at, std::uint64_t in_whole, std::uint64_t n) {
      const std::span<const std::byte> bytes =
          stored_.of(name, whole.name, in_whole, values.subspan(at - first, n));
      f.hash.update(bytes);
      write_at(f.fd.get(), found->second.entry->begin + in_whole * stored_.bytes_of_value(), bytes,
               f.layout.path());
    });
    ranges_.push_back({&found->second, part, first, values.size()});
  }

  /// Reads in the order in which it was written, and compares.
  void finish() {
    std::vector<std::byte> buffer;
    std::vector<Xxh3> now(files_.size());
    for (File& f : files_) sync_and_close(std::move(f.fd), f.layout.path());
    for (const Range& r : ranges_) {
      const SafetensorsFile& file = files_[r.tensor->file].layout;
      each_run(r.part, r.first, r.count, [&](std::uint64_t, std::uint64_t in_whole, std::uint64_t n) {
        buffer.resize(n * stored_.bytes_of_value());
        file.read(*r.tensor->entry, in_whole * stored_.bytes_of_value(), buffer);
        now[r.tensor->file].update(buffer);
      });
    }
    for (std::size_t i = 0; i < files_.size(); ++i)
      if (now[i].hex() != files_[i].hash.hex())
        throw run_error(fmt::format("{} is damaged after writing: reading it back gives different data",
                                    escaped(files_[i].layout.path().string(), 4096)));
  }

 private:
  struct File {
    SafetensorsFile layout;
    Fd fd;
    Xxh3 hash;
  };
  struct Location {
    std::size_t file;
    const TensorEntry* entry;
  };
  struct Range {
    const Location* tensor;
    TensorPart part;
    std::uint64_t first, count;
  };

  template <class F>
  static void each_run(const TensorPart& part, std::uint64_t first, std::uint64_t count, F&& f) {
    part.for_runs(first, count, [&](std::uint64_t at, std::uint64_t whole, std::uint64_t n) {
      for (std::uint64_t done = 0; done < n; done += StoredValues::kMost)
        f(at + done, whole + done, std::min<std::uint64_t>(StoredValues::kMost, n - done));
    });
  }

  std::vector<File> files_;
  std::map<std::string, Location> of_tensor_;
  std::vector<Range> ranges_;
  StoredValues stored_;
};

}  // namespace

void write_model_part(const fs::path& staged, const std::vector<TensorInfo>& tensors,
                      const PartSource& source, const ModelFiles& files) {
  ModelPart part(staged, model_file_names(tensors, files), files);
  source([&](const TensorInfo& whole, const TensorPart& p, std::uint64_t first,
             std::span<const float> values) { part.take(whole, p, first, values); });
  part.finish();
}

}  // namespace trainhost::checkpoint
