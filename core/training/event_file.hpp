// The file format of TensorBoard: records (TFRecord) with masked CRC-32C checksums, each of which holds one
// message Event. tensorboard.hpp decides what is in the messages.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "core/checkpoint/durable.hpp"
#include "core/training/protobuf_writer.hpp"

namespace trainhost::training {

/// CRC-32C (Castagnoli), as RFC 3720 defines it.
std::uint32_t crc32c(std::string_view bytes);

/// A record: length (8 bytes, little-endian), its checksum, the bytes, their checksum. Checksums are masked
/// as TFRecord wants it: rotated right by 15 bits, plus 0xa282ead8.
std::string tf_record(std::string_view bytes);

class EventFile {
 public:
  /// Creates the folder and a new file in it that TensorBoard reads after all others there:
  /// events.out.tfevents.SECONDS.HOST.PID.0. Throws Error if the system refuses.
  explicit EventFile(const std::filesystem::path& folder);

  /// Adds an event with the time of the call. `content`: a field of Event besides wall_time and step.
  void add(std::uint64_t step, std::uint32_t field, const ProtobufMessage& content);
  /// Writes what was added since the last call. Throws Error; then nothing is kept for another try.
  void flush();
  /// Bytes that flush() would write.
  std::uint64_t unwritten_bytes() const { return pending_.size(); }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  checkpoint::Fd file_;
  std::string pending_;
};

}  // namespace trainhost::training
