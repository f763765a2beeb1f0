// Inside of the tokenizers: how SentencePiece is reached, and texts turned into token files piece by piece.
// Callers outside core/data use make_tokenizer() of dataset.hpp and the tools of data_tools.hpp.
#pragma once
#include <filesystem>
#include <functional>
#include <memory>

#include "core/data/data_files.hpp"
#include "core/data/dataset.hpp"

namespace trainhost::data {

/// A SentencePiece model. Where the library was absent at build time the sibling answers: Error(kUsage) that
/// says so.
std::unique_ptr<Tokenizer> load_sentencepiece(const std::filesystem::path& model);

/// Text goes through a tokenizer in pieces of about this size, so that no text is held whole. A piece ends
/// after the last newline in its second half; without one, at a UTF-8 boundary. Each piece is encoded by
/// itself: where a piece begins, a tokenizer that marks the start of a text marks it again.
inline constexpr std::size_t kEncodePiece = std::size_t{1} << 20;

/// Calls `take` with the ids of every piece of the file. Errors: those of the file; Error(kUsage) naming file
/// and byte offset when a SentencePiece tokenizer meets a piece that is not UTF-8.
void encode_file(const InputFile& file, const Tokenizer& tokenizer,
                 const std::function<void(std::span<const std::int32_t>)>& take,
                 std::size_t piece_bytes = kEncodePiece);

/// What the dtype rule says for that many ids.
inline bool needs_uint32(std::uint64_t vocab) { return vocab > 65536; }

}  // namespace trainhost::data
