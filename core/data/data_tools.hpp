// What `trainhost data` does: look into token files and texts, and turn texts into token files. Prints
// nothing. Opening data for a run is dataset.hpp's business.
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

/// A whole text looked at once.
struct Scan {
  std::uint64_t tokens = 0, distinct = 0;
  std::int32_t min_id = 0, max_id = 0;  // 0 when there are no tokens
  double entropy_nats = 0;    // of single ids: the loss of a model that knows only how frequent each id is
  std::vector<IdCount> top;   // most frequent first, ties by id
  std::uint64_t outside = 0;  // ids >= vocab
  std::optional<std::uint64_t> first_outside;  // its index in the text
};

/// Ids >= `vocab` are counted, not refused; 0 = no limit. Errors: those of tokens.read().
Scan scan(const Tokens& tokens, std::uint64_t vocab = 0, std::size_t top = 10);

struct InfoOptions {
  std::vector<std::filesystem::path> files;
  std::string tokenizer = "bytes";  // for texts
  std::string dtype;                // for .bin files
  std::uint64_t vocab = 0;          // 0 = unknown: nothing counts as outside
  std::size_t top = 10;
};

struct FileInfo {
  std::filesystem::path file;
  std::string form;            // "text by bytes", "text by SentencePiece bpe", "raw uint16", "llm.c uint16"
  std::uint64_t bytes = 0;     // of the file
  double bytes_per_token = 0;  // file bytes a token, without a header: what tokenizing saves
  Scan scan;
  std::optional<std::uint64_t> first_outside_byte;  // of .bin files and texts by bytes
};

/// One entry a file, in order. Errors: those of opening a source.
std::vector<FileInfo> info(const InfoOptions& o);

struct Tokenized {
  std::uint64_t text_bytes = 0, tokens = 0, file_bytes = 0;
  std::string dtype;  // "uint16" or "uint32"
};

/// Writes the ids of the texts, one after another, as a raw little-endian .bin; replaces `out` only when all
/// is written. `dtype`: "" = uint32 where the tokenizer has more than 65536 ids. Errors: a text that is
/// itself a .bin or is `out`, an `out` whose name does not end in .bin, and those of files and tokenizers.
Tokenized tokenize_to_bin(const std::vector<std::filesystem::path>& texts, const std::string& tokenizer,
                          const std::filesystem::path& out, const std::string& dtype = "");

}  // namespace trainhost::data
