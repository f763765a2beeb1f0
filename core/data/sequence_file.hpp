// Sequences of a fixed length on disk, made from documents: each has token ids, the mask of the loss and the
// starts of documents. So a training sample is one positioned read, and nothing is kept in memory.
#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <vector>

#include "core/data/data_files.hpp"
#include "core/data/dataset.hpp"
#include "core/data/documents.hpp"

namespace trainhost::data {

/// What became of the documents. Tokens are counted after truncation.
struct SequenceCounts {
  std::uint64_t sequences = 0, documents = 0, tokens = 0;
  std::uint64_t counted = 0;                          // targets in the loss
  std::uint64_t truncated = 0, truncated_tokens = 0;  // documents, and the tokens that were cut off
  std::uint64_t untrained = 0;                        // documents left out, because no target is counted
  std::uint64_t padding = 0;                          // positions without a document
  std::uint64_t broken = 0;                           // records that were left out: data.on_error = "skip"
};

/// Places documents into sequences of seq_len + 1 tokens: a document of at most that many tokens has all its
/// targets in one sequence, and its last token is a target only. A longer text is divided into pieces that
/// overlap by one token; any other longer document is truncated at its end. packing: a document goes to the
/// fullest of at most 64 incomplete sequences that has space for it (best fit); the fullest one is written
/// when none has. Otherwise every document has a sequence of its own.
class SequenceWriter {
 public:
  /// `wide`: ids of 32 bits, else of 16 bits.
  SequenceWriter(const std::filesystem::path& path, std::uint32_t seq_len, bool wide, bool packing);
  void add(const Document& document);
  /// Writes the incomplete sequences and the header, and makes the file durable. `broken`: for
  /// SequenceCounts.
  SequenceCounts commit(std::uint64_t broken = 0);

 private:
  struct Sequence {
    std::vector<std::int32_t> ids;
    std::vector<std::uint8_t> flags;
  };
  void place(std::span<const std::int32_t> ids, std::span<const std::uint8_t> trained);
  void write(Sequence& s);

  OutputFile file_;
  std::size_t slots_;  // seq_len + 1
  std::size_t most_open_;
  bool wide_, packing_;
  std::vector<Sequence> open_;
  SequenceCounts counts_;
};

/// Opens a file of SequenceWriter; `counts` gets what commit() returned. Errors: Error(kUsage) if it is no
/// such file, has another sequence length or is incomplete; reading an id >= `vocab` throws with file and
/// byte.
std::unique_ptr<Samples> open_sequences(InputFile file, std::uint32_t seq_len, std::uint64_t vocab,
                                        SequenceCounts& counts);

}  // namespace trainhost::data
