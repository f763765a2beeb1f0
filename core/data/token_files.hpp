// Token ids from files, read where they lie: text by bytes, raw ids (.bin), llm.c's .bin with its header.
// Also joins files into one text and cuts parts out of one. Nothing is held in memory but names and sizes.
#pragma once
#include <memory>
#include <utility>
#include <vector>

#include "core/data/data_files.hpp"
#include "core/data/dataset.hpp"

namespace trainhost::data {

enum class TokenForm { kBytes, kUint16, kUint32, kLlmcUint16, kLlmcUint32 };
std::string_view name(TokenForm f);  // "text by bytes", "raw uint16", "llm.c uint16", ...

/// Where a file's ids lie. An id takes `width` bytes, little-endian.
struct TokenLayout {
  TokenForm form = TokenForm::kBytes;
  std::uint32_t width = 1;
  std::uint64_t first_byte = 0, count = 0;
};

/// llm.c's header: 256 int32 (1024 bytes), of which the first three are magic, version and number of tokens.
inline constexpr std::int32_t kLlmcMagic16 = 20240520,
                              kLlmcMagic32 = 20240801;  // version 1: uint16, version 7: uint32
inline constexpr std::uint64_t kLlmcHeaderBytes = 1024;

/// Layout of a .bin file: by llm.c's magic number, else raw. `dtype` is "uint16", "uint32" or "" (uint32
/// where vocab > 65536). Errors: Error(kUsage) naming the file: empty, a size that is no whole number of ids,
/// a header whose version is unknown or whose count differs from the file's size, a dtype that the header
/// contradicts.
TokenLayout bin_layout(const InputFile& file, const std::string& dtype, std::uint64_t vocab);

/// The ids of one file; an id that is not below `vocab` is an Error naming file, byte offset and id when it
/// is read.
std::unique_ptr<Tokens> file_tokens(InputFile file, const TokenLayout& layout, std::uint64_t vocab);

/// One text after another. A single part is returned as it is.
std::unique_ptr<Tokens> joined(std::vector<std::unique_ptr<Tokens>> parts);

/// The first size - n tokens and the last n.
std::pair<std::unique_ptr<Tokens>, std::unique_ptr<Tokens>> split_last(std::unique_ptr<Tokens> all,
                                                                       std::uint64_t n);

/// Writes ids as a .bin; uint16 unless `wide`. With a header in llm.c's form, its count lets a reader notice
/// a cut file; without one the file is raw. Errors: Error(kFailed) for the disk, Error(kUsage) for an id that
/// uint16 cannot hold.
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
