// See model_folder.hpp. The names are those that transformers writes and llama.cpp's conversion reads.
#include "core/training/model_folder.hpp"

#include "core/checkpoint/durable.hpp"

namespace trainhost::training {
namespace fs = std::filesystem;

std::map<std::string, std::string> files_beside_weights(const fs::path& folder) {
  constexpr std::uint64_t kMost = 512u << 20;
  static constexpr const char* kNames[] = {
      "generation_config.json",  "tokenizer.json",    "tokenizer.model",
      "tokenizer_config.json",   "vocab.json",        "merges.txt",
      "special_tokens_map.json", "added_tokens.json", "chat_template.jinja"};
  std::map<std::string, std::string> out;
  std::error_code ec;
  if (folder.empty()) return out;
  for (const char* name : kNames)
    if (fs::is_regular_file(folder / name, ec)) out[name] = checkpoint::read_whole(folder / name, kMost);
  return out;
}

}  // namespace trainhost::training
