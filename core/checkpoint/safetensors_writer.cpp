// SafetensorsWriter: writes the header, then the data as they arrive, and hashes both (rule 23). The header
// is checked with the reader's rules before anything is written, so every published file can be read.
#include <fmt/format.h>

#include <array>
#include <cassert>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/base/checked.hpp"
#include "core/base/text.hpp"
#include "core/checkpoint/dtypes.hpp"
#include "core/checkpoint/durable.hpp"
#include "core/checkpoint/hash.hpp"
#include "core/checkpoint/safetensors_header.hpp"

namespace trainhost::checkpoint {
namespace fs = std::filesystem;
namespace {

constexpr std::size_t kBuffer = 256 << 10;  // small pieces are collected; larger ones are written directly
constexpr std::uint64_t kDataAlignment =
    64;  // alignment of the first data byte, for readers that map the file

std::string quoted(const std::string& s) {
  if (!valid_utf8(s)) throw run_error(fmt::format("the name '{}' is not UTF-8", escaped(s)));
  return nlohmann::json(s).dump();
}

/// Header length, header and padding. Sets `data_bytes` to the size of the data that must follow.
std::string header_of(const std::vector<TensorEntry>& tensors,
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
    std::uint64_t end = checked_add(at, bytes.value_or(0), "a model's weights");
    std::string shape;
    for (const char* sep = ""; std::uint64_t d : t.shape)
      shape += fmt::format("{}{}", std::exchange(sep, ","), d);
    text += fmt::format("{}{}:{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}}", comma(),
                        quoted(t.name), t.dtype, shape, at, end);
    at = end;
  }
  text += "}";
  text.resize(align_up(text.size() + 8, kDataAlignment) - 8, ' ');
  if (text.size() > kMaxHeaderBytes)
    throw run_error(fmt::format("{}: the header exceeds the limit of the format", escaped(file)));
  parse_header(text, at, file);
  data_bytes = at;
  std::uint64_t n = text.size();
  std::string length(8, '\0');
  std::memcpy(length.data(), &n, 8);
  return length + text;
}

}  // namespace

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

  /// Reads the file back and compares its hash with that of the written bytes.
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

SafetensorsWriter::SafetensorsWriter(const fs::path& target, const std::vector<TensorEntry>& tensors,
                                     const std::map<std::string, std::string>& metadata)
    : impl_(std::make_unique<Impl>()) {
  impl_->target = target;
  std::string head = header_of(tensors, metadata, target.string(), impl_->remaining);
  impl_->total = head.size() + impl_->remaining;
  impl_->temp = temp_beside(target);
  impl_->buffer.reserve(kBuffer);
  impl_->fd = create_new(impl_->temp);
  try {
    impl_->put(std::as_bytes(std::span(head)));
  } catch (...) {
    sys().unlink(impl_->temp.c_str());
    throw;
  }
}

SafetensorsWriter::~SafetensorsWriter() {
  if (!impl_->temp.empty()) sys().unlink(impl_->temp.c_str());
}

void SafetensorsWriter::write(std::span<const std::byte> data) {
  if (data.size() > impl_->remaining)
    throw run_error(fmt::format("{}: {} bytes more than the declared tensors have",
                                escaped(impl_->target.string()), data.size() - impl_->remaining));
  impl_->remaining -= data.size();
  if (impl_->buffer.size() + data.size() > kBuffer) impl_->flush();
  if (data.size() > kBuffer) return impl_->put(data);
  impl_->buffer.insert(impl_->buffer.end(), data.begin(), data.end());
}

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
