// Reads the index of a sharded model. Only `weight_map` is used; of other members only the grammar is
// checked.
#include "core/checkpoint/shard_index.hpp"

#include <fmt/format.h>

#include <system_error>

#include "core/base/json_reader.hpp"
#include "core/base/text.hpp"
#include "core/checkpoint/durable.hpp"
#include "core/checkpoint/other_formats.hpp"
#include "core/checkpoint/safetensors_header.hpp"

namespace trainhost::checkpoint {
namespace fs = std::filesystem;
namespace {

// Depth 8: the published indexes have 2. 255 bytes: the limit of file systems.
constexpr unsigned kMaxIndexDepth = 8;
constexpr std::size_t kMaxFileName = 255;

/// The name is joined to the directory of the index. Plain names only: "..", absolute paths and
/// subdirectories would read files that the user did not name.
void validate_shard_name(const std::string& file, std::uint64_t at, const std::string& name) {
  auto fail = [&](const char* why, const std::string& hint = {}) {
    reject_file(file, 18, at, fmt::format("the shard name '{}' {}", escaped(name), why), hint);
  };
  if (name.find('/') != name.npos) fail("is not a plain file name");
  // A pickle executes code when it is loaded.
  if (has_pickle_extension(name)) fail("is that of a pickle", pickle_hint());
  if (!name.ends_with(".safetensors") || name.starts_with('.')) fail("does not end in .safetensors");
  for (unsigned char c : name)
    if (c < 0x20 || c == 0x7F) fail("contains a control character");
}

void read_map(JsonReader& json, const std::string& file, std::map<std::string, std::string>& out) {
  std::string tensor;
  for (json.open_object();;) {
    std::uint64_t at = json.at();
    if (!json.next_member(tensor, kMaxNameBytes)) return;
    std::uint64_t name_at = json.at();
    std::string name = json.string(kMaxFileName);
    validate_shard_name(file, name_at, name);
    // kMaxIndexBytes bounds the memory of this map: it has room for fewer entries than kMaxTensors.
    if (!out.emplace(tensor, std::move(name)).second)
      reject_file(file, 18, at, fmt::format("duplicate tensor '{}'", escaped(tensor)));
  }
}

}  // namespace

std::map<std::string, std::string> read_index(const fs::path& index) {
  const std::string file = index.string();
  const std::string text = read_whole(index, kMaxIndexBytes);
  std::map<std::string, std::string> out;
  bool has_map = false;
  try {
    JsonReader json(text, kMaxIndexDepth);
    std::string key;
    for (json.open_object(); json.next_member(key, kMaxNameBytes);) {
      if (key != "weight_map") {
        json.skip_value();
        continue;
      }
      // With two maps it would be undefined which tensors the model has.
      if (has_map) reject_file(file, 18, json.at(), "duplicate weight_map");
      has_map = true;
      read_map(json, file, out);
    }
    // Nothing may follow the object.
    json.finish('\0');
  } catch (const JsonError& f) {
    reject_file(file, 18, f.at, f.what());
  }
  if (!has_map)
    reject_file(file, 18, std::nullopt, "weight_map is missing",
                "an index of shards must be named model.safetensors.index.json");
  if (out.empty()) reject_file(file, 18, std::nullopt, "weight_map lists no tensor");
  return out;
}

/// The name is plain, but the file may be a link. canonical() resolves it, and the result must stay in the
/// directory of the index. Hugging Face caches use links to blobs in another directory, hence the hint.
fs::path shard_path(const fs::path& index, const std::string& name) {
  const fs::path dir = index.parent_path().empty() ? fs::path(".") : index.parent_path();
  const fs::path shard = dir / name;
  std::error_code ec;
  fs::path canonical_dir = fs::canonical(dir, ec);
  fs::path real = ec ? fs::path() : fs::canonical(shard, ec);
  if (ec)
    reject_file(index.string(), 18, std::nullopt,
                fmt::format("the shard {}: {}", escaped(name), ec.message()));
  if (real.parent_path() != canonical_dir)
    reject_file(index.string(), 18, std::nullopt,
                fmt::format("the shard {} is a symbolic link to {}, outside the directory", escaped(name),
                            escaped(real.string(), 4096)),
                "copy the model with 'cp -rL' first");
  return shard;
}

}  // namespace trainhost::checkpoint
