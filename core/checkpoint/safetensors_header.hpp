// The header of a safetensors file, judged: rules 4 to 14, 16 and 17 of README.md. Works on text alone and
// touches no file; safetensors_file.cpp brings the bytes, safetensors_writer.cpp passes its own header
// through here before it writes.
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
  std::vector<TensorEntry> tensors;  // by offset
  std::map<std::string, std::string> metadata;
};

/// `text` is the N bytes after the length; `data_bytes` is what the file holds after them. `file` is for
/// messages. The entries' begin and end count from the file's start. Throws Error(kUsage) with the rule and
/// the place.
Header parse_header(std::string_view text, std::uint64_t data_bytes, const std::string& file);

/// Bytes of `count` elements of a type, when they fill whole bytes; throws "too large", or nullopt when they
/// do not.
std::optional<std::uint64_t> bytes_of(std::uint64_t count, std::uint32_t bits);

/// usage_error "FILE: WHAT (safetensors rule R, byte B)".
[[noreturn]] void refuse(const std::string& file, int rule, std::optional<std::uint64_t> byte,
                         const std::string& what, const std::string& hint = {});

}  // namespace trainhost::checkpoint
