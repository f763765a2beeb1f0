// Internal interface of the tokenizers: loading SentencePiece, and encoding a file in pieces. Other modules
// use make_tokenizer() of dataset.hpp and the functions of data_tools.hpp.
#pragma once
#include <filesystem>
#include <functional>
#include <memory>

#include "core/data/data_files.hpp"
#include "core/data/dataset.hpp"

namespace trainhost::data {

/// Loads a SentencePiece model. Errors: Error(kUsage), also if the library was missing at build time.
std::unique_ptr<Tokenizer> load_sentencepiece(const std::filesystem::path& model);

/// Texts are encoded in pieces of about this many bytes, so that no text is in memory completely. A piece
/// ends after the last newline in its second half; without one, at a UTF-8 boundary. Each piece is encoded
/// separately, so a tokenizer that marks the start of a text marks the start of every piece.
inline constexpr std::size_t kEncodePiece = std::size_t{1} << 20;

/// Calls `take` with the ids of every piece of the file. Errors: those of InputFile; Error(kUsage) with file
/// and byte offset if the tokenizer is SentencePiece and a piece is not UTF-8.
void encode_file(const InputFile& file, const Tokenizer& tokenizer,
                 const std::function<void(std::span<const std::int32_t>)>& take,
                 std::size_t piece_bytes = kEncodePiece);

/// True if ids of this vocabulary do not fit uint16.
inline bool needs_uint32(std::uint64_t vocab) { return vocab > 65536; }

}  // namespace trainhost::data
