// The magic numbers and names behind pickle.hpp. Nothing is opened here.
#include "core/checkpoint/pickle.hpp"

#include <algorithm>
#include <cctype>
#include <string_view>

namespace trainhost::checkpoint {

bool named_like_a_pickle(const std::filesystem::path& file) {
  std::string ext = file.extension().string();
  std::transform(ext.begin(), ext.end(), ext.begin(), [](unsigned char c) { return std::tolower(c); });
  for (std::string_view bad : {".bin", ".pt", ".pth", ".pkl", ".pickle", ".ckpt"})
    if (ext == bad) return true;
  return false;
}

std::string pickle_hint() {
  return "a pickle runs code when it is read, so it never is; convert it where you trust it: "
         "safetensors.torch.save_file(torch.load(FILE, weights_only=True), 'model.safetensors')";
}

std::string what_else_it_is(std::span<const std::byte> head) {
  std::string_view s(reinterpret_cast<const char*>(head.data()), head.size());
  using namespace std::string_view_literals;
  bool pickle = s.size() >= 2 && s[0] == '\x80' && s[1] >= 2 && s[1] <= 5;
  if (pickle || s.starts_with("PK\x03\x04"sv)) return "it looks like a PyTorch pickle; " + pickle_hint();
  if (s.starts_with("GGUF")) return "it is a GGUF file; give the original safetensors of the model";
  if (s.starts_with("version ")) return "it is a Git LFS pointer, not the file itself: run 'git lfs pull'";
  if (s.starts_with("<")) return "it is a web page, not weights: the download went wrong";
  if (s.starts_with("{")) return "it is JSON; an index of shards is named model.safetensors.index.json";
  if (s.starts_with("\x1f\x8b"sv)) return "it is compressed with gzip";
  return {};
}

}  // namespace trainhost::checkpoint
