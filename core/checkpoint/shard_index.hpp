// model.safetensors.index.json: which shard holds which tensor (rule 18). The index and its shards are
// hostile; a shard's name never leads out of the index's directory. Next: weight_source.cpp.
#pragma once
#include <filesystem>
#include <map>
#include <string>

namespace trainhost::checkpoint {

inline constexpr std::uint64_t kMaxIndexBytes = 16u << 20;

/// Tensor name -> shard file name, as the index states it. Throws Error(kUsage).
std::map<std::string, std::string> read_index(const std::filesystem::path& index);

/// The path of a shard that `index` names, after its name was judged: a plain .safetensors name, and in the
/// end (behind symbolic links) a file of the index's own directory.
std::filesystem::path shard_path(const std::filesystem::path& index, const std::string& name);

}  // namespace trainhost::checkpoint
