// Encoding a text file in pieces, so that no text is in memory completely. The tokenizers: core/tokenizer.
#pragma once
#include <cstdint>
#include <functional>
#include <span>

#include "core/data/data_files.hpp"
#include "core/tokenizer/tokenizer.hpp"

namespace trainhost::data {

/// Texts are read in pieces of about this many bytes. The tokenizer decides where a piece can end.
inline constexpr std::size_t kEncodePiece = std::size_t{1} << 20;
/// A piece becomes longer, up to this, as long as the tokenizer finds no place to end it.
inline constexpr std::size_t kLongestPiece = std::size_t{256} << 20;

/// Calls `take` with the ids of every piece of the file. `names`: what names of special tokens are. Errors:
/// those of InputFile; Error(kUsage) with file and byte offset if the tokenizer is not bytes and a piece is
/// not UTF-8, or if kLongestPiece bytes have no place to end a piece.
void encode_file(const InputFile& file, const tokenizer::Tokenizer& tokenizer, tokenizer::Names names,
                 const std::function<void(std::span<const std::int32_t>)>& take,
                 std::size_t piece_bytes = kEncodePiece, const OnRead& on_read = {});

/// True if ids of this vocabulary do not fit uint16.
inline bool needs_uint32(std::uint64_t vocab) { return vocab > 65536; }

}  // namespace trainhost::data
