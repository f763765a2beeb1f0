// One open safetensors file: rules 1 to 3, 15, 21 and 24; safetensors_header.cpp checks the header. No size
// from the file is used before it was compared with the file's length.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "core/base/text.hpp"
#include "core/checkpoint/dtypes.hpp"
#include "core/checkpoint/durable.hpp"
#include "core/checkpoint/other_formats.hpp"
#include "core/checkpoint/safetensors_header.hpp"

namespace trainhost::checkpoint {
namespace fs = std::filesystem;

struct SafetensorsFile::Impl {
  fs::path path;
  Fd fd;
  // As it was when opened: later checks compare with it.
  struct stat info;
  Header header;

  std::string name() const { return path.string(); }

  [[noreturn]] void fail_changed(const char* what) const {
    reject_file(name(), 21, std::nullopt, fmt::format("{} while it was open", what),
                "another program is writing it");
  }
};

SafetensorsFile::SafetensorsFile(const fs::path& file) : impl_(std::make_unique<Impl>()) {
  impl_->path = file;
  // A FIFO or a device would block or never end.
  impl_->fd = open_regular(file, impl_->info);
  const std::string name = impl_->name();
  auto size = static_cast<std::uint64_t>(impl_->info.st_size);
  // Rule 1: the first 8 bytes are the length of the header. A shorter file is read as far as it goes, to
  // recognize its format.
  std::array<std::byte, 8> first{};
  std::span<std::byte> head = std::span(first).first(std::min<std::uint64_t>(8, size));
  if (!read_at(impl_->fd.get(), 0, head, file)) impl_->fail_changed("it was truncated");
  const std::string hint = identify_other_format(head);

  if (size < 8)
    reject_file(name, 1, size, fmt::format("the file has {} bytes, fewer than a header length", size), hint);
  std::uint64_t n = 0;
  // Little-endian, like this machine (dtypes.cpp).
  std::memcpy(&n, first.data(), 8);
  // Before any allocation of n bytes.
  if (n > kMaxHeaderBytes)
    reject_file(
        name, 2, 0, fmt::format("the header has {} bytes, the limit is {}", n, kMaxHeaderBytes),
        hint.empty() ? "this is not a safetensors file, or it is damaged: copy or download it again" : hint);
  if (n > size - 8)
    reject_file(name, 3, 0,
                fmt::format("the header has {} bytes, but only {} follow its length", n, size - 8),
                hint.empty() ? "the file is truncated: copy it again" : hint);

  std::string text(n, '\0');
  if (!read_at(impl_->fd.get(), 8, std::as_writable_bytes(std::span(text)), file))
    impl_->fail_changed("it was truncated");
  // The data begin after the header; every offset is checked against their size here.
  impl_->header = parse_header(text, size - 8 - n, name);
}

SafetensorsFile::~SafetensorsFile() = default;
SafetensorsFile::SafetensorsFile(SafetensorsFile&&) noexcept = default;

const fs::path& SafetensorsFile::path() const { return impl_->path; }
const std::vector<TensorEntry>& SafetensorsFile::tensors() const { return impl_->header.tensors; }
const std::map<std::string, std::string>& SafetensorsFile::metadata() const { return impl_->header.metadata; }

void SafetensorsFile::read(const TensorEntry& t, std::uint64_t first, std::span<std::byte> out) const {
  const std::uint64_t size = t.end - t.begin;
  // A second time, because the entry may come from a caller; written without sums that could overflow.
  if (t.end > static_cast<std::uint64_t>(impl_->info.st_size) || first > size || out.size() > size - first)
    throw usage_error(fmt::format("{}: cannot read bytes {} to {} of tensor '{}', which has {}",
                                  escaped(impl_->name()), first, first + out.size(), escaped(t.name), size));
  // 4- and 6-bit types: a part could begin inside a byte.
  if (dtype_bits(t.dtype) % 8 != 0 && out.size() != size)
    reject_file(impl_->name(), 17, std::nullopt,
                fmt::format("tensor '{}' of type {} can only be read completely", escaped(t.name), t.dtype));
  if (!read_at(impl_->fd.get(), t.begin + first, out, impl_->path)) impl_->fail_changed("it was truncated");
}

// Rule 21. Called after the last read: a copy of a file that changed meanwhile mixes two models.
void SafetensorsFile::verify_unchanged() const {
  struct stat now, there;
  const struct stat& was = impl_->info;
  if (::fstat(impl_->fd.get(), &now) != 0) throw_errno("examine", impl_->path, errno);
  if (now.st_size != was.st_size) impl_->fail_changed("its size changed");
  if (now.st_mtim.tv_sec != was.st_mtim.tv_sec || now.st_mtim.tv_nsec != was.st_mtim.tv_nsec)
    impl_->fail_changed("it was written to");
  // The path too: rename() puts another file there and leaves ours open.
  if (::stat(impl_->path.c_str(), &there) != 0) impl_->fail_changed("it was removed");
  if (there.st_ino != was.st_ino || there.st_dev != was.st_dev) impl_->fail_changed("it was replaced");
}

}  // namespace trainhost::checkpoint
