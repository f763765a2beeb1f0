// Reads model.safetensors.index.json, which maps tensors to shards (rule 18). The index is untrusted: the
// name of a shard never refers to a file outside the directory of the index. Used by weight_source.cpp.
#pragma once
#include <filesystem>
#include <map>
#include <string>

namespace trainhost::checkpoint {

inline constexpr std::uint64_t kMaxIndexBytes = 16u << 20;

/// Tensor name -> shard file name, as the index states it. Throws Error(kUsage).
std::map<std::string, std::string> read_index(const std::filesystem::path& index);

/// The path of a shard in the directory of `index`. Throws Error(kUsage) if it is a symbolic link to another
/// directory.
std::filesystem::path shard_path(const std::filesystem::path& index, const std::string& name);

}  // namespace trainhost::checkpoint
