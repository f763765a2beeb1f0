// Writes complete files of tensors: those of a checkpoint, in f32, and the model/ directory of a finished
// run. The values come from a function, so nothing here depends on a trainer. Uses SafetensorsWriter.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/checkpoint/tensor_parts_file.hpp"
#include "core/model/tensors.hpp"

namespace trainhost::checkpoint {

/// Receives elements [first, first + values.size()) of tensor `name`; `values` is valid only during the call.
using TensorSink =
    std::function<void(std::string_view name, std::uint64_t first, std::span<const float> values)>;
/// Passes every tensor once to the sink, in the order of declaration, each from its first to its last
/// element.
using TensorSource = std::function<void(const TensorSink&)>;

/// The metadata of a file of tensors, with which transformers and PEFT accept it.
using TensorMetadata = std::map<std::string, std::string>;
inline const TensorMetadata kPyTorchFormat = {{"format", "pt"}};

/// Writes `target` atomically; returns its XXH3-128. Throws run_error if `source` violates the order or ends
/// early, or if a value is NaN or infinite.
std::string write_tensors(const std::filesystem::path& target, const std::vector<TensorInfo>& tensors,
                          const TensorSource& source, const TensorMetadata& metadata = kPyTorchFormat);

/// The names of the files of a folder that write_model_dir() writes, and how the tensors are stored. Above
/// `shard_bytes` of data they are in several files, NAME-00001-of-00003.safetensors, with an index
/// NAME.safetensors.index.json, as transformers writes them; a tensor is never split.
struct ModelFiles {
  std::string config = "config.json", tensors = "model.safetensors";
  TensorMetadata metadata = kPyTorchFormat;
  std::string dtype = "F32";  // or BF16, F16: values are rounded to nearest even
  std::uint64_t shard_bytes = 5'000'000'000;
};

/// Writes a Hugging Face model directory: config.json, model.safetensors (or the names in `files`, of an
/// adapter) and the small files of `others` (name -> content), completely or not at all. Replaces an existing
/// directory in one step and keeps its other files, but no weights of an earlier model. Throws run_error as
/// write_tensors() does, and for a value that is too large for `files.dtype`.
void write_model_dir(const std::filesystem::path& dir, std::string_view config_json,
                     const std::vector<TensorInfo>& tensors, const TensorSource& source,
                     const std::map<std::string, std::string>& others = {}, const ModelFiles& files = {});

/// The parts of write_model_dir(), for ranks that write a model together, in this order. The file system must
/// let several processes write different bytes of one file at the same time, as POSIX says.
///
/// By one rank: creates the staged directory with the files of the tensors, of their final size, and returns
/// it.
std::filesystem::path stage_model_dir(const std::filesystem::path& dir,
                                      const std::vector<TensorInfo>& tensors,
                                      const std::map<std::string, std::string>& others,
                                      const ModelFiles& files);
/// By every rank: writes what `source` sends to the staged files, synced, read back and compared. Memory:
/// buffers of fixed size, whatever the tensors.
void write_model_part(const std::filesystem::path& staged, const std::vector<TensorInfo>& tensors,
                      const PartSource& source, const ModelFiles& files);
/// By one rank, after all have written.
void publish_model_dir(const std::filesystem::path& staged, const std::filesystem::path& dir,
                       std::string_view config_json, const std::vector<TensorInfo>& tensors,
                       const std::map<std::string, std::string>& others, const ModelFiles& files);
/// By one rank, after a failure: removes the staged directory.
void discard_model_dir(const std::filesystem::path& dir, const std::map<std::string, std::string>& others,
                       const ModelFiles& files) noexcept;
/// The files of the tensors: one, or several above files.shard_bytes.
std::vector<std::string> model_file_names(const std::vector<TensorInfo>& tensors, const ModelFiles& files);

}  // namespace trainhost::checkpoint
