// Files that the ranks of a run write at the same time, each its part of every tensor:
// NAME-rank-2-of-4.safetensors in place of NAME.safetensors. A file is a safetensors file of vectors, the
// elements that a rank has; its metadata say, by the name of the tensor, where they are in it: "16x32 rows
// 0+16 columns 8+8 first 64". WeightSource reads all files of NAME as one.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/checkpoint/store.hpp"
#include "core/model/tensor_parts.hpp"
#include "core/model/tensors.hpp"

namespace trainhost::checkpoint {

/// Receives elements [first, first + values.size()), row-major in `part`, of a part of a tensor; `values` is
/// valid only during the call.
using PartSink = std::function<void(const TensorInfo& whole, const TensorPart& part, std::uint64_t first,
                                    std::span<const float> values)>;
/// Passes what a rank has of the tensors to the sink: one range of each tensor at most, in pieces in order.
using PartSource = std::function<void(const PartSink&)>;

/// "weights.safetensors" of rank 2 of 4: "weights-rank-2-of-4.safetensors".
std::string name_of_rank_file(std::string_view name, std::uint32_t rank, std::uint32_t ranks);
/// The files of all ranks in place of `file`, in the order of the ranks; empty if there are none. Throws
/// usage_error if one is missing, or there are files of two numbers of ranks.
std::vector<std::filesystem::path> rank_files_of(const std::filesystem::path& file);

/// Where a vector of such a file is in its tensor.
struct StoredPart {
  // Dimensions of the tensor, which are part.rows x part.cols; of a vector their product ("16x4 flat").
  std::uint32_t rank = 1;
  TensorPart part;
  std::uint64_t first = 0;  // element of the part
};
std::string text_of(const StoredPart& p);
/// nullopt for a text that is no such, or for a part outside its tensor.
std::optional<StoredPart> parse_stored_part(std::string_view text);

/// Writes `target`, which does not exist, with what `source` sends of `tensors`, and returns its record.
/// Synced, read back and compared; the caller syncs the directory. Memory: two buffers of fixed size,
/// whatever the tensors. Throws run_error, also for a value that is NaN or infinite; the file stays then.
FileRecord write_rank_file(const std::filesystem::path& target, const std::vector<TensorInfo>& tensors,
                           const PartSource& source);

}  // namespace trainhost::checkpoint
