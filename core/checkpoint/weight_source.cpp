// Opens weights and streams them as f32. require.cpp checks that they match the model.
#include <fmt/format.h>

#include <array>
#include <cassert>
#include <cstring>
#include <system_error>
#include <utility>

#include "core/base/directory.hpp"
#include "core/base/text.hpp"
#include "core/checkpoint/dtypes.hpp"
#include "core/checkpoint/other_formats.hpp"
#include "core/checkpoint/safetensors.hpp"
#include "core/checkpoint/safetensors_header.hpp"
#include "core/checkpoint/shard_index.hpp"
#include "core/checkpoint/tensor_parts_file.hpp"
#include "core/model/tensors.hpp"

namespace trainhost::checkpoint {
namespace fs = std::filesystem;
namespace {

/// The weights in a directory: a model, a sharded model, or a checkpoint of trainhost, in this order. A
/// directory with only pickles gets the message about pickles instead of "no weights found".
fs::path find_weights(const fs::path& dir) {
  std::error_code ec;
  for (const char* name : kWeightFiles)
    if (fs::exists(dir / name, ec)) return dir / name;
  const fs::path of_checkpoint = dir / "weights.safetensors";
  if (fs::exists(of_checkpoint, ec) || !rank_files_of(of_checkpoint).empty()) return of_checkpoint;
  for (const std::string& name : names_in_directory(dir, ec))
    if (has_pickle_extension(dir / name))
      reject_file((dir / name).string(), 24, std::nullopt,
                  "the weights in this directory are a pickle, which is not supported", pickle_hint());
  throw usage_error(fmt::format("{} contains neither model.safetensors nor model.safetensors.index.json",
                                escaped(dir.string(), 4096)));
}

}  // namespace

WeightSource::WeightSource(const fs::path& file_or_dir) : source_(file_or_dir) {
  std::error_code ec;
  fs::path file = fs::is_directory(file_or_dir, ec) ? find_weights(file_or_dir) : file_or_dir;
  if (has_pickle_extension(file))
    reject_file(file.string(), 24, std::nullopt, "the extension is that of a pickle, which is not supported",
                pickle_hint());
  if (file.extension() == ".json") {
    open_index(file);
  } else if (const std::vector<fs::path> of_ranks =
                 fs::exists(file, ec) ? std::vector<fs::path>() : rank_files_of(file);
             !of_ranks.empty()) {
    open_rank_files(of_ranks);
  } else {
    open_one(file);
  }
}

/// Names are unique within a file (rule 6), so no emplace fails.
void WeightSource::open_one(const fs::path& file) {
  std::error_code ec;
  const fs::path pickle = fs::path(file).replace_extension(".bin");
  if (!fs::exists(file, ec) && fs::exists(pickle, ec))
    reject_file(pickle.string(), 24, std::nullopt, "a pickle is not supported",
                pickle_hint(file.filename().string()));
  files_.emplace_back(file);
  const auto& all = files_.back().tensors();
  for (std::size_t i = 0; i < all.size(); ++i) locations_.emplace(all[i].name, Location{0, i});
}

/// Rule 18. Two passes over the same relation: every tensor of every shard must be listed for that shard, and
/// every listed tensor must be in its shard. An extra tensor is an error as well: it is the usual sign of
/// shards from two different models.
void WeightSource::open_index(const fs::path& index) {
  const std::string name = index.string();
  const auto stated = read_index(index);
  std::map<std::string, std::size_t> shards;  // file name -> position in files_
  for (const auto& [tensor, shard] : stated)
    if (shards.emplace(shard, files_.size()).second) files_.emplace_back(shard_path(index, shard));
  assert(shards.size() == files_.size());

  for (const auto& [shard, f] : shards) {
    const auto& all = files_[f].tensors();
    for (std::size_t i = 0; i < all.size(); ++i) {
      auto it = stated.find(all[i].name);
      if (it == stated.end())
        reject_file(
            name, 18, std::nullopt,
            fmt::format("{} contains '{}', which the index does not list", shard, escaped(all[i].name)));
      if (it->second != shard)
        reject_file(name, 18, std::nullopt,
                    fmt::format("'{}' is in {}, but the index lists it in {}", escaped(all[i].name), shard,
                                it->second));
      locations_.emplace(all[i].name, Location{f, i});
    }
    assert(f < files_.size());
  }
  for (const auto& [tensor, shard] : stated)
    if (!locations_.contains(tensor))
      reject_file(name, 18, std::nullopt,
                  fmt::format("'{}' is not in {}, where the index lists it", escaped(tensor), shard));
}

/// require() has already checked that every tensor of the model exists; this is for callers that skip it.
const WeightSource::Location& WeightSource::location_of(const TensorInfo& t) const {
  auto it = locations_.find(t.name);
  if (it == locations_.end())
    throw usage_error(fmt::format("{} has no tensor '{}'", escaped(source_.string()), t.name));
  return it->second;
}

/// Converts into `out` itself where the stored type is narrower: the 16-bit values are read into the upper
/// half of the buffer and converted in ascending order. `first` and out.size() count elements. first == 0
/// starts a tensor, so the count of non-finite values starts again.
void WeightSource::read_f32(const TensorInfo& t, std::uint64_t first, std::span<float> out) {
  if (first == 0) nonfinite_ = first_nonfinite_ = 0;
  const Location& location = location_of(t);
  const TensorEntry& e = entry(location);
  std::span<std::byte> bytes = std::as_writable_bytes(out);
  if (location.file == kParts) {
    read_parts(in_parts_[location.entry], first, out);
  } else if (const SafetensorsFile& file = files_[location.file]; e.dtype == "F32") {
    file.read(e, 4 * first, bytes);
  } else if (e.dtype == "F16" || e.dtype == "BF16") {
    file.read(e, 2 * first, bytes.last(2 * out.size()));
    widen_in_place(out, e.dtype == "BF16");
  } else if (e.dtype == "F64") {
    // 4 KiB on the stack: F64 is wider than the caller's buffer and cannot be converted in place.
    std::array<double, 512> doubles;
    for (std::size_t i = 0; i < out.size(); i += doubles.size()) {
      auto piece = std::span(doubles).first(std::min(doubles.size(), out.size() - i));
      file.read(e, 8 * (first + i), std::as_writable_bytes(piece));
      for (std::size_t k = 0; k < piece.size(); ++k) out[i + k] = static_cast<float>(piece[k]);
    }
  } else {
    throw usage_error(fmt::format("{}: tensor '{}' of type {} cannot be converted to f32",
                                  escaped(source_.string()), t.name, e.dtype));
  }
  NonFinite bad = count_nonfinite(out);
  // Position within the tensor, not within the piece.
  if (bad.count > 0 && nonfinite_ == 0) first_nonfinite_ = first + bad.first;
  nonfinite_ += bad.count;
}

/// After the last piece of a tensor. The file is examined again (rule 21), because another program may have
/// written it meanwhile; the count of non-finite values (rule 20) is reported once per tensor.
void WeightSource::finish(const TensorInfo& t) {
  const Location& location = location_of(t);
  if (location.file == kParts)
    for (const Part& p : in_parts_[location.entry].parts) files_[p.file].verify_unchanged();
  else
    files_[location.file].verify_unchanged();
  const SafetensorsFile& file =
      files_[location.file == kParts ? in_parts_[location.entry].parts[0].file : location.file];
  const std::uint64_t bad = std::exchange(nonfinite_, 0);
  if (bad > 0)
    reject_file(
        file.path().string(), 20, std::nullopt,
        fmt::format(
            "tensor '{}' has {} value{} that {} NaN, infinite or too large for f32, the first at element {}",
            escaped(t.name), bad, bad == 1 ? "" : "s", bad == 1 ? "is" : "are", first_nonfinite_));
}

}  // namespace trainhost::checkpoint
