// Takes and compares the hashes of a checkpoint's files. A mismatch is looked into once more, to name the
// tensor.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>
#include <vector>

#include "core/base/text.hpp"
#include "core/checkpoint/checkpoint_manifest.hpp"
#include "core/checkpoint/durable.hpp"
#include "core/checkpoint/hash.hpp"
#include "core/checkpoint/safetensors.hpp"

namespace trainhost::checkpoint {
namespace fs = std::filesystem;
namespace {

constexpr std::size_t kPiece = 1 << 20;

/// One pass over the file; `layout` sorted by offset, may be empty.
FileRecord hash_file(const fs::path& file, std::span<const TensorEntry> layout) {
  struct stat info;
  Fd fd = open_regular(file, info);
  FileRecord r;
  r.name = file.filename().string();
  r.bytes = static_cast<std::uint64_t>(info.st_size);
  Xxh3 all, tensor;
  std::vector<std::byte> buffer(std::min<std::uint64_t>(kPiece, r.bytes));
  auto next = layout.begin();  // the tensor whose data are being hashed, or come next
  for (std::uint64_t at = 0;;) {
    for (; next != layout.end() && at == next->end; ++next, tensor.reset())
      r.tensors[next->name] = tensor.hex();
    if (at == r.bytes) break;
    std::uint64_t stop = next == layout.end() ? r.bytes : at < next->begin ? next->begin : next->end;
    auto piece = std::span(buffer).first(std::min<std::uint64_t>(buffer.size(), stop - at));
    if (!read_at(fd.get(), at, piece, file))
      throw run_error(fmt::format("{} became shorter", escaped(file.string())));
    all.update(piece);
    if (next != layout.end() && at >= next->begin) tensor.update(piece);
    at += piece.size();
  }
  r.xxh3 = all.hex();
  return r;
}

/// Why the hash of a whole file is another: which tensor, or the header.
std::string what_changed(const fs::path& file, const FileRecord& was) {
  if (was.tensors.empty()) return fmt::format("{} does not match its hash", was.name);
  try {
    FileRecord now = record_of(file);
    for (const auto& [name, hash] : was.tensors)
      if (auto it = now.tensors.find(name); it == now.tensors.end() || it->second != hash)
        return fmt::format("{} does not match its hash: tensor '{}' is damaged", was.name, name);
    return fmt::format("{} does not match its hash: its header is damaged", was.name);
  } catch (const Error& e) {
    return fmt::format("{} does not match its hash: {}", was.name, e.what());
  }
}

std::string damage_of_file(const fs::path& dir, const FileRecord& was) {
  const fs::path file = dir / was.name;
  struct stat info;
  {
    Fd fd = open_regular(file, info);
  }
  auto bytes = static_cast<std::uint64_t>(info.st_size);
  if (bytes < was.bytes) return fmt::format("{} is {} bytes short", was.name, was.bytes - bytes);
  if (bytes > was.bytes) return fmt::format("{} has {} bytes too many", was.name, bytes - was.bytes);
  if (hash_file(file, {}).xxh3 != was.xxh3) return what_changed(file, was);
  return {};
}

}  // namespace

FileRecord record_of(const fs::path& file) {
  if (file.extension() != ".safetensors") return hash_file(file, {});
  SafetensorsFile layout(file);
  return hash_file(file, layout.tensors());
}

std::string damage_of(const fs::path& dir, Manifest& m) {
  try {
    m = parse_manifest(read_whole(dir / kManifestName, kMaxManifestBytes));
    for (const FileRecord& f : m.files)
      if (std::string what = damage_of_file(dir, f); !what.empty()) return what;
    return {};
  } catch (const std::exception&
               e) {  // file system errors too: a checkpoint that cannot be read is not a good one
    return e.what();
  }
}

}  // namespace trainhost::checkpoint
