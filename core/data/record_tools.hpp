// The functions behind `trainhost data stats` and `trainhost data show`: lengths of records in tokens, and
// records as they are trained on. Prints nothing.
#pragma once
#include <array>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "core/data/dataset.hpp"

namespace trainhost::data {

struct RecordToolOptions {
  std::vector<std::filesystem::path> files;
  std::string tokenizer = "bytes";
  RecordOptions records;
  std::uint32_t seq_len = 0;  // for stats; 0: nothing is truncated
};

struct RecordStats {
  std::uint64_t documents = 0, tokens = 0;
  std::uint64_t counted = 0;  // targets in the loss, without truncation
  std::uint64_t shortest = 0, median = 0, p90 = 0, p99 = 0, longest = 0;  // tokens of a document
  std::array<std::uint64_t, 33> histogram{};  // [i]: documents of 2^(i-1) to 2^i - 1 tokens; [0]: of none
  std::uint64_t duplicates = 0;               // documents whose tokens are those of an earlier one
  std::uint64_t truncated = 0, truncated_tokens = 0;  // at seq_len + 1 tokens; texts are divided instead
  std::uint64_t untrained = 0;                        // no token is counted in the loss, after truncation
  records::RecordCounts counts;
  std::string chat_template;                // name; "" if there is none
  std::vector<std::string> missing_tokens;  // special tokens of the template that the vocabulary lacks
};

struct RecordStatsOfFiles {
  RecordStats all;                 // of all files together: duplicates may be in different files
  std::vector<RecordStats> files;  // in the order of the options; the broken records are listed in `all`
};

/// Statistics over all files. Memory: 12 bytes per document, and the same per document of the largest file.
/// Errors: those of open_source() for records; a file without records is one.
RecordStatsOfFiles record_stats(const RecordToolOptions& o);

struct LongestRecord {
  std::uint64_t tokens = 0, records = 0;  // of the longest document; read until the end, or until `enough`
};

/// The longest document of all files. Reading ends with the first one of at least `enough` tokens. Errors: as
/// above.
LongestRecord longest_record(const RecordToolOptions& o, std::uint64_t enough);

struct ShownRecord {
  Where where;
  std::vector<records::Part> parts;  // as tokenized
  std::uint64_t tokens = 0, counted = 0;
};

struct ShownRecords {
  std::vector<ShownRecord> records;
  records::RecordCounts counts;  // of what was read to find them; broken ones are not numbered
};
/// Up to `count` records from number `first` (from 1). Errors: as above.
ShownRecords show_records(const RecordToolOptions& o, std::uint64_t first, std::uint64_t count);

}  // namespace trainhost::data
