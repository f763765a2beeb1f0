// The functions behind `trainhost data`: statistics of token files and texts, and tokenizing texts. Prints
// nothing. Opening the data of a run: dataset.hpp.
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "core/data/dataset.hpp"

namespace trainhost::data {

struct IdCount {
  std::int32_t id = 0;
  std::uint64_t count = 0;
};

/// Statistics of a whole text.
struct Scan {
  std::uint64_t tokens = 0, distinct = 0;
  std::int32_t min_id = 0, max_id = 0;         // 0 if there are no tokens
  double entropy_nats = 0;                     // entropy of the id frequencies: the loss of a unigram model
  std::vector<IdCount> top;                    // most frequent first, ties by id
  std::uint64_t outside = 0;                   // number of ids >= vocab
  std::optional<std::uint64_t> first_outside;  // index of the first one
};

/// Computes statistics. Ids >= `vocab` are counted and are no error; 0 = no limit. Errors: those of
/// tokens.read().
Scan scan(const Tokens& tokens, std::uint64_t vocab = 0, std::size_t top = 10);

struct InfoOptions {
  std::vector<std::filesystem::path> files;
  std::string tokenizer = "bytes";  // for texts
  std::string dtype;                // for .bin files
  std::uint64_t vocab = 0;          // 0 = unknown: no id is outside
  std::size_t top = 10;
};

struct FileInfo {
  std::filesystem::path file;
  std::string form;            // "text by bytes", "text by SentencePiece bpe", "raw uint16", "llm.c uint16"
  std::uint64_t bytes = 0;     // of the file
  double bytes_per_token = 0;  // file bytes per token, without the header
  Scan scan;
  std::optional<std::uint64_t> first_outside_byte;  // set for .bin files and texts by bytes
};

/// Statistics per file, in order. Errors: those of open_source().
std::vector<FileInfo> info(const InfoOptions& o);

struct Tokenized {
  std::uint64_t text_bytes = 0, tokens = 0, file_bytes = 0;
  std::string dtype;               // "uint16" or "uint32"
  std::vector<std::string> notes;  // of the tokenizer
};

/// Writes the ids of the texts, concatenated, as a raw little-endian .bin; replaces `out` only after all ids
/// are written. any_text: also a file whose name says that it is no text. `dtype`: "" = uint32 if the
/// tokenizer has more than 65536 ids, otherwise uint16. Errors: a text that is a .bin or is `out`, an `out`
/// that does not end in .bin, and those of files and tokenizers.
Tokenized tokenize_to_bin(const std::vector<std::filesystem::path>& texts, const std::string& tokenizer,
                          const std::filesystem::path& out, const std::string& dtype = "",
                          bool any_text = false);

}  // namespace trainhost::data
