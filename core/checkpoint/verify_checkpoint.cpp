// Computes and compares the hashes of a checkpoint's files. After a mismatch it hashes each tensor, to name
// the damaged one.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <span>
#include <vector>

#include "core/base/text.hpp"
#include "core/checkpoint/checkpoint_manifest.hpp"
#include "core/checkpoint/durable.hpp"
#include "core/checkpoint/safetensors.hpp"
#include "core/checkpoint/xxh3.hpp"

namespace trainhost::checkpoint {
namespace fs = std::filesystem;
namespace {

constexpr std::size_t kPiece = 1 << 20;

/// Hashes the file and each tensor in one pass. `tensors`: sorted by offset, may be empty.
FileRecord hash_file(const fs::path& file, std::span<const TensorEntry> tensors, const OnRead& on_read = {}) {
  struct stat info;
  Fd fd = open_regular(file, info);
  FileRecord r;
  r.name = file.filename().string();
  r.bytes = static_cast<std::uint64_t>(info.st_size);
  Xxh3 all, tensor;
  std::vector<std::byte> buffer(std::min<std::uint64_t>(kPiece, r.bytes));
  auto next = tensors.begin();  // the tensor being hashed, or the next one
  // Each iteration reads to the end of the buffer or to the next start or end of a tensor, so a piece belongs
  // to one tensor or to none. Tensors without elements end where they begin and are recorded by the inner
  // loop.
  for (std::uint64_t at = 0;;) {
    for (; next != tensors.end() && at == next->end; ++next, tensor.reset())
      r.tensors[next->name] = tensor.hex();
    if (at == r.bytes) break;
    std::uint64_t stop = next == tensors.end() ? r.bytes : at < next->begin ? next->begin : next->end;
    assert(at < stop);  // tensors are sorted by offset
    auto piece = std::span(buffer).first(std::min<std::uint64_t>(buffer.size(), stop - at));
    if (!read_at(fd.get(), at, piece, file))
      throw run_error(fmt::format("{} was truncated", escaped(file.string())));
    all.update(piece);
    if (next != tensors.end() && at >= next->begin) tensor.update(piece);
    at += piece.size();
    if (on_read) on_read(at);
  }
  r.xxh3 = all.hex();
  return r;
}

/// Describes a hash mismatch: names the damaged tensor, or the header if all tensors match. Only after a
/// mismatch is the header parsed and each tensor hashed.
std::string describe_mismatch(const fs::path& file, const FileRecord& recorded) {
  if (recorded.tensors.empty()) return fmt::format("{} does not match its hash", recorded.name);
  try {
    FileRecord now = record_of(file);
    for (const auto& [name, hash] : recorded.tensors)
      if (auto it = now.tensors.find(name); it == now.tensors.end() || it->second != hash)
        return fmt::format("{} does not match its hash: tensor '{}' is damaged", recorded.name, name);
    return fmt::format("{} does not match its hash: its header is damaged", recorded.name);
  } catch (const Error& e) {
    return fmt::format("{} does not match its hash: {}", recorded.name, e.what());
  }
}

}  // namespace

std::string damage_of_file(const fs::path& dir, const FileRecord& recorded, const OnRead& on_read) {
  const fs::path file = dir / recorded.name;
  struct stat info;
  {
    Fd fd = open_regular(file, info);
  }
  // The length first: it is the most useful message, and it costs no read.
  auto bytes = static_cast<std::uint64_t>(info.st_size);
  if (bytes < recorded.bytes)
    return fmt::format("{} is {} bytes short", recorded.name, recorded.bytes - bytes);
  if (bytes > recorded.bytes)
    return fmt::format("{} has {} bytes too many", recorded.name, bytes - recorded.bytes);
  if (hash_file(file, {}, on_read).xxh3 != recorded.xxh3) return describe_mismatch(file, recorded);
  return {};
}

FileRecord record_of(const fs::path& file) {
  if (file.extension() != ".safetensors") return hash_file(file, {});
  SafetensorsFile opened(file);
  return hash_file(file, opened.tensors());
}

std::string damage_of(const fs::path& dir, Manifest& m, const PhaseSink& progress) {
  try {
    m = parse_manifest(read_whole(dir / kManifestName, kMaxManifestBytes));
    std::uint64_t total = 0, before = 0;
    for (const FileRecord& f : m.files) total += f.bytes;
    const std::string phase = "verifying checkpoint " + dir.filename().string();
    const auto read = [&](std::uint64_t bytes) {
      if (progress) progress(phase, before + bytes, total);
    };
    for (const FileRecord& f : m.files) {
      if (std::string what = damage_of_file(dir, f, read); !what.empty()) return what;
      before += f.bytes;
    }
    return {};
  } catch (const std::exception& e) {  // also file system errors: an unreadable checkpoint counts as damaged
    return e.what();
  }
}

}  // namespace trainhost::checkpoint
