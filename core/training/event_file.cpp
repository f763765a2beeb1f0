// See event_file.hpp. Source: tensorflow/core/lib/io/record_writer and tensorboard/compat/proto/event.proto.
#include "core/training/event_file.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <span>
#include <utility>

#include "core/base/directory.hpp"

namespace trainhost::training {
namespace {

namespace fs = std::filesystem;
constexpr std::string_view kEventFilePrefix = "events.out.tfevents.";
// Fields of Event.
constexpr std::uint32_t kWallTime = 1, kStep = 2, kFileVersion = 3;

double seconds_since_epoch() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

/// TensorBoard sorts the files of a folder by name. A new file gets a later time than those that are there,
/// even if the clock was set back or both are of one second.
std::uint64_t time_of_name(const fs::path& folder) {
  auto time = static_cast<std::uint64_t>(std::max(0.0, seconds_since_epoch()));
  std::error_code ec;
  for (const std::string& name : names_in_directory(folder, ec)) {
    if (!name.starts_with(kEventFilePrefix)) continue;
    std::uint64_t other = 0;
    std::from_chars(name.data() + kEventFilePrefix.size(), name.data() + name.size(), other);
    if (other < 9'999'999'999) time = std::max(time, other + 1);
  }
  return time;
}

}  // namespace

std::uint32_t crc32c(std::string_view bytes) {
  static constexpr auto kTable = [] {
    std::array<std::uint32_t, 256> table{};
    for (std::uint32_t i = 0; i < 256; ++i) {
      std::uint32_t c = i;
      for (int bit = 0; bit < 8; ++bit) c = c >> 1 ^ (c & 1 ? 0x82f63b78u : 0u);  // reflected 0x1edc6f41
      table[i] = c;
    }
    return table;
  }();
  std::uint32_t c = ~0u;
  for (const char b : bytes) c = c >> 8 ^ kTable[(c ^ static_cast<unsigned char>(b)) & 0xff];
  return ~c;
}

std::string tf_record(std::string_view bytes) {
  const auto append_checksum = [](std::string& out, std::string_view of) {
    const std::uint32_t c = crc32c(of);
    append_little_endian(out, static_cast<std::uint32_t>((c >> 15 | c << 17) + 0xa282ead8u), 4);
  };
  std::string out;
  out.reserve(bytes.size() + 16);
  append_little_endian(out, bytes.size(), 8);
  append_checksum(out, std::string_view(out).substr(0, 8));
  out += bytes;
  append_checksum(out, bytes);
  return out;
}

EventFile::EventFile(const fs::path& folder) {
  checkpoint::make_directories(folder);
  std::array<char, 256> host{};
  if (::gethostname(host.data(), host.size() - 1) != 0) host = {"host"};
  path_ = folder / fmt::format("{}{:010}.{}.{}.0", kEventFilePrefix, time_of_name(folder), host.data(), ::getpid());
  file_ = checkpoint::create_new(path_);
  ProtobufMessage version;
  version.f64(kWallTime, seconds_since_epoch()).text(kFileVersion, "brain.Event:2");
  pending_ = tf_record(version.bytes());
  flush();
}

void EventFile::add(std::uint64_t step, std::uint32_t field, const ProtobufMessage& content) {
  ProtobufMessage event;
  event.f64(kWallTime, seconds_since_epoch()).integer(kStep, step).message(field, content);
  pending_ += tf_record(event.bytes());
}

void EventFile::flush() {
  const std::string bytes = std::exchange(pending_, {});
  checkpoint::write_all(file_.get(), std::as_bytes(std::span(bytes)), path_);
}

}  // namespace trainhost::training
