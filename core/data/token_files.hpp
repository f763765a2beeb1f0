// Reads token ids from files on demand: text by bytes, raw ids (.bin), llm.c's .bin with header. Concatenates
// files and splits texts. Only names and sizes are kept in memory.
#pragma once
#include <memory>
#include <utility>
#include <vector>

#include "core/data/data_files.hpp"
#include "core/data/dataset.hpp"

namespace trainhost::data {

enum class TokenForm { kBytes, kUint16, kUint32, kLlmcUint16, kLlmcUint32 };
std::string_view name(TokenForm f);  // "text by bytes", "raw uint16", "llm.c uint16", ...

/// The ids of a file: `count` little-endian ids of `width` bytes from `first_byte`.
struct TokenFormat {
  TokenForm form = TokenForm::kBytes;
  std::uint32_t width = 1;
  std::uint64_t first_byte = 0, count = 0;
};

/// Header of llm.c: 256 int32 (1024 bytes); the first three are magic number, version and number of tokens.
inline constexpr std::int32_t kLlmcMagic16 = 20240520,
                              kLlmcMagic32 = 20240801;  // version 1: uint16, version 7: uint32
inline constexpr std::uint64_t kLlmcHeaderBytes = 1024;

/// Format of a .bin file: llm.c's if it starts with that magic number, otherwise raw. `dtype`: "uint16",
/// "uint32" or "" (uint32 if vocab > 65536, otherwise uint16). Errors: Error(kUsage) with the file if its
/// size is not a multiple of the id size, the header has an unknown version or a wrong count, or `dtype`
/// contradicts the header.
TokenFormat bin_format(const InputFile& file, const std::string& dtype, std::uint64_t vocab);

/// The ids of one file. Reading an id >= `vocab` throws Error with file, byte offset and id.
std::unique_ptr<Tokens> file_tokens(InputFile file, const TokenFormat& format, std::uint64_t vocab);

/// Concatenates texts. A single part is returned unchanged.
std::unique_ptr<Tokens> joined(std::vector<std::unique_ptr<Tokens>> parts);

/// Splits a text into the first size - n tokens and the last n.
std::pair<std::unique_ptr<Tokens>, std::unique_ptr<Tokens>> split_last(std::unique_ptr<Tokens> all,
                                                                       std::uint64_t n);

/// Writes ids to a .bin file: uint32 if `wide`, otherwise uint16. `header`: write llm.c's header, whose count
/// reveals a truncated file; without it the file is raw. Errors: Error(kFailed) if writing fails,
/// Error(kUsage) for an id that does not fit uint16.
class TokenWriter {
 public:
  TokenWriter(const std::filesystem::path& path, bool wide, bool header);
  void append(std::span<const std::int32_t> ids);
  void commit();
  std::uint64_t count() const { return count_; }

 private:
  OutputFile file_;
  bool wide_, header_;
  std::uint64_t count_ = 0;
};

}  // namespace trainhost::data
