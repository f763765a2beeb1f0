// Recognises files by name and by their first bytes; opens nothing.
#include "core/checkpoint/other_formats.hpp"

#include <algorithm>
#include <cctype>
#include <string_view>

namespace trainhost::checkpoint {

bool has_pickle_extension(const std::filesystem::path& file) {
  std::string ext = file.extension().string();
  std::transform(ext.begin(), ext.end(), ext.begin(), [](unsigned char c) { return std::tolower(c); });
  for (std::string_view bad : {".bin", ".pt", ".pth", ".pkl", ".pickle", ".ckpt"})
    if (ext == bad) return true;
  return false;
}

std::string pickle_hint(const std::string& name) {
  return "reading a pickle can execute code; if you trust the file, convert it: "
         "safetensors.torch.save_file(torch.load(FILE, weights_only=True), '" +
         name + "')";
}

std::string identify_other_format(std::span<const std::byte> head) {
  std::string_view s(reinterpret_cast<const char*>(head.data()), head.size());
  using namespace std::string_view_literals;
  bool pickle = s.size() >= 2 && s[0] == '\x80' && s[1] >= 2 && s[1] <= 5;
  if (pickle || s.starts_with("PK\x03\x04"sv))
    return "the file looks like a PyTorch pickle; " + pickle_hint();
  if (s.starts_with("GGUF")) return "the file is GGUF; use the original safetensors of the model";
  if (s.starts_with("version ")) return "the file is a Git LFS pointer: run 'git lfs pull'";
  if (s.starts_with("<")) return "the file is a web page: the download failed";
  if (s.starts_with("{"))
    return "the file is JSON; an index of shards must be named model.safetensors.index.json";
  if (s.starts_with("\x1f\x8b"sv)) return "the file is compressed with gzip: decompress it";
  return {};
}

}  // namespace trainhost::checkpoint
