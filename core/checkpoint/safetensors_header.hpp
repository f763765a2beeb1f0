// Parses and checks the header of a safetensors file: rules 4 to 14, 16 and 17 of README.md. Reads no file:
// safetensors_file.cpp passes the bytes, and safetensors_writer.cpp checks its own header before it writes.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/checkpoint/safetensors.hpp"

namespace trainhost::checkpoint {

inline constexpr std::uint64_t kMaxHeaderBytes = 100'000'000, kMaxTensors = 1'000'000, kMaxNameBytes = 4096,
                               kMaxMetadataBytes = 1'000'000;
inline constexpr std::size_t kMaxRank = 8;
inline constexpr unsigned kMaxHeaderDepth = 4;

struct Header {
  std::vector<TensorEntry> tensors;  // sorted by offset
  std::map<std::string, std::string> metadata;
};

/// `text`: the N bytes after the length; `data_bytes`: number of bytes after them; `file`: name in messages.
/// begin and end of the entries count from the start of the file. Throws RejectedFile with the byte.
Header parse_header(std::string_view text, std::uint64_t data_bytes, const std::string& file);

/// Bytes of `count` elements of `bits` bits; nullopt if they do not fill whole bytes. Throws on overflow.
std::optional<std::uint64_t> bytes_of(std::uint64_t count, std::uint32_t bits);

/// RejectedFile "FILE: WHAT (byte B)".
[[noreturn]] void reject_file(const std::string& file, int rule, std::optional<std::uint64_t> byte,
                              const std::string& what, const std::string& hint = {});

/// Header length, header and padding of a file with these tensors (name, dtype, shape), in their order. Sets
/// `data_bytes` to the size of the data that must follow. Throws run_error for what the reader would reject.
std::string safetensors_head(const std::vector<TensorEntry>& tensors,
                             const std::map<std::string, std::string>& metadata, const std::string& file,
                             std::uint64_t& data_bytes);

}  // namespace trainhost::checkpoint
