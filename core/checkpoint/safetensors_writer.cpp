// SafetensorsWriter: writes the header, then the data as they arrive, and hashes both (rule 23). The header
// is checked with the reader's rules before anything is written, so every published file can be read.
#include <fmt/format.h>

#include <array>
#include <cassert>
#include <cstring>
#include <utility>

#include "core/base/checked.hpp"
#include "core/base/json_value.hpp"
#include "core/base/text.hpp"
#include "core/checkpoint/dtypes.hpp"
#include "core/checkpoint/durable.hpp"
#include "core/checkpoint/safetensors_header.hpp"
#include "core/checkpoint/xxh3.hpp"

namespace trainhost::checkpoint {
namespace fs = std::filesystem;
namespace {

constexpr std::size_t kBuffer = 256 << 10;  // small pieces are collected; larger ones are written directly
constexpr std::uint64_t kDataAlignment =
    64;  // alignment of the first data byte, for readers that map the file

/// JSON text of a name. Invalid UTF-8 is rejected: a name with replacement characters would not be found
/// again.
std::string quoted(const std::string& s) {
  if (!valid_utf8(s)) throw run_error(fmt::format("the name '{}' is not UTF-8", escaped(s)));
  return json_string(s);
}

}  // namespace

std::string safetensors_head(const std::vector<TensorEntry>& tensors,
                             const std::map<std::string, std::string>& metadata, const std::string& file,
                             std::uint64_t& data_bytes) {
  std::string text = "{";
  auto comma = [&] { return text.size() > 1 ? "," : ""; };
  if (!metadata.empty()) {
    text += "\"__metadata__\":{";
    for (const char* sep = ""; const auto& [k, v] : metadata)
      text += fmt::format("{}{}:{}", std::exchange(sep, ","), quoted(k), quoted(v));
    text += "}";
  }
  std::uint64_t at = 0;
  for (const TensorEntry& t : tensors) {
    auto bytes = bytes_of(t.elements(), dtype_bits(t.dtype));
    // value_or(0): an unknown or unaligned type is rejected by parse_header() below, with the message of its
    // rule.
    std::uint64_t end = checked_add(at, bytes.value_or(0), "a model's weights");
    std::string shape;
    for (const char* sep = ""; std::uint64_t d : t.shape)
      shape += fmt::format("{}{}", std::exchange(sep, ","), d);
    text += fmt::format("{}{}:{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}}", comma(),
                        quoted(t.name), t.dtype, shape, at, end);
    at = end;
  }
  text += "}";
  // The format pads with spaces. 8 bytes of length plus header end at a multiple of kDataAlignment.
  text.resize(align_up(text.size() + 8, kDataAlignment) - 8, ' ');
  if (text.size() > kMaxHeaderBytes)
    throw run_error(fmt::format("{}: the header exceeds the limit of the format", escaped(file)));
  // The reader's own check: a name that cannot be read back is rejected before a byte is written.
  parse_header(text, at, file);
  data_bytes = at;
  std::uint64_t n = text.size();
  assert((text.size() + 8) % kDataAlignment == 0);
  std::string length(8, '\0');
  std::memcpy(length.data(), &n, 8);
  return length + text;
}

/// State of a file being written. `hash` covers exactly the bytes passed to write_all(), in file order.
/// Destroying the object without finish() removes the temporary file.
struct SafetensorsWriter::Impl {
  fs::path target, temp;
  Fd fd;
  Xxh3 hash;
  std::vector<std::byte> buffer;
  std::uint64_t total = 0, remaining = 0;  // bytes of the file; data bytes not yet written

  void put(std::span<const std::byte> data) {
    hash.update(data);
    write_all(fd.get(), data, temp);
  }

  void flush() {
    put(buffer);
    buffer.clear();
  }

  /// Reads the file back and compares its hash with that of the written bytes. This finds errors of the file
  /// system and of memory on the way to the disk cache; it cannot find errors of the disk itself, because the
  /// pages may still be cached. Uses `buffer` for reading, which is empty after flush().
  void verify(const std::string& expected) {
    struct stat info;
    Fd in = open_regular(temp, info);
    hash.reset();
    buffer.resize(kBuffer);
    bool whole = static_cast<std::uint64_t>(info.st_size) == total;
    for (std::uint64_t at = 0; whole && at < total;) {
      auto piece = std::span(buffer).first(std::min<std::uint64_t>(kBuffer, total - at));
      whole = read_at(in.get(), at, piece, temp);
      hash.update(piece);
      at += piece.size();
    }
    if (!whole || hash.hex() != expected)
      throw run_error(fmt::format("{} is damaged after writing: reading it back gives different data",
                                  escaped(temp.string())));
  }
};

/// The header is complete before the file is created, so an invalid list of tensors leaves nothing behind.
SafetensorsWriter::SafetensorsWriter(const fs::path& target, const std::vector<TensorEntry>& tensors,
                                     const std::map<std::string, std::string>& metadata)
    : impl_(std::make_unique<Impl>()) {
  impl_->target = target;
  std::string head = safetensors_head(tensors, metadata, target.string(), impl_->remaining);
  // Checked in safetensors_head(): the sum of data bytes does not overflow, and a header has at most 10^8
  // bytes.
  impl_->total = head.size() + impl_->remaining;
  impl_->temp = temp_beside(target);
  impl_->buffer.reserve(kBuffer);
  impl_->fd = create_new(impl_->temp);
  try {
    impl_->put(std::as_bytes(std::span(head)));
  } catch (...) {
    // A constructor that throws has no destructor call, so the temporary file is removed here.
    sys().unlink(impl_->temp.c_str());
    throw;
  }
}

SafetensorsWriter::~SafetensorsWriter() {
  if (!impl_->temp.empty()) sys().unlink(impl_->temp.c_str());
}

/// Small pieces are collected, so that a tensor streamed row by row does not cost a system call per row. Data
/// are hashed when they are written, not when they arrive: one pass over cached bytes.
void SafetensorsWriter::write(std::span<const std::byte> data) {
  if (data.size() > impl_->remaining)
    throw run_error(fmt::format("{}: {} bytes more than the declared tensors have",
                                escaped(impl_->target.string()), data.size() - impl_->remaining));
  impl_->remaining -= data.size();
  if (impl_->buffer.size() + data.size() > kBuffer) impl_->flush();
  if (data.size() > kBuffer) return impl_->put(data);
  impl_->buffer.insert(impl_->buffer.end(), data.begin(), data.end());
  assert(impl_->buffer.size() <= kBuffer);
}

/// Hash, fsync, read back, rename, fsync of the directory: the order of rule 23. `temp` is cleared after the
/// rename, because the destructor removes the file of that name.
std::string SafetensorsWriter::finish() {
  if (impl_->remaining != 0)
    throw run_error(fmt::format("{}: {} bytes of the declared tensors were not written",
                                escaped(impl_->target.string()), impl_->remaining));
  impl_->flush();
  assert(impl_->buffer.empty());
  std::string hash = impl_->hash.hex();
  sync_and_close(std::move(impl_->fd), impl_->temp);
  impl_->verify(hash);
  rename_path(impl_->temp, impl_->target);
  impl_->temp.clear();
  sync_directory(impl_->target.parent_path());
  return hash;
}

}  // namespace trainhost::checkpoint
