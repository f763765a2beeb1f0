// Reads the records of a file one after the other: JSON Lines, a JSON array, CSV. A broken record is an error
// with its line, after which reading continues with the next one; what follows from it is decided by
// read_records().
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/base/error.hpp"
#include "core/base/json_value.hpp"
#include "core/records/record.hpp"
#include "core/records/text_stream.hpp"

namespace trainhost::records {

enum class RecordFormat { kJson, kCsv, kTsv };

/// True if a file of this name has records: .jsonl, .ndjson, .json, .csv, .tsv; the case of letters does not
/// matter.
bool has_records(const std::string& file_name);
RecordFormat format_of(const std::string& file_name);

/// A record, or the text of one, may have at most this many bytes.
inline constexpr std::size_t kMaxRecordBytes = std::size_t{64} << 20;

/// Receives the object of a record; throws JsonError at the value that is wrong.
using ParseObject = std::function<void(const JsonValue&)>;

class RecordReader {
 public:
  virtual ~RecordReader() = default;
  /// Passes the next record to `parse`; false at the end. Throws RecordError with file, line and column of a
  /// broken record; the next call continues after it.
  virtual bool next(const ParseObject& parse) = 0;
  /// The file, and the line in which the last record began, from 1.
  virtual Where where() const = 0;
};

/// `read` gives the bytes of the file; `file` is its name for messages. A file whose first character is '['
/// is one JSON array, any other JSON file is JSON Lines, whatever its name.
std::unique_ptr<RecordReader> open_records(ReadBytes read, RecordFormat format, std::string file);

enum class OnError { kStop, kSkip };

/// Broken records of a file with the same message.
struct BrokenRecords {
  std::string file, text;            // without the position
  std::string first;                 // "file:line:column: message" of the first one
  std::vector<std::uint32_t> lines;  // of the next ones, different, at most RecordCounts::kListed - 1
  std::uint64_t count = 0;
};

/// What was read, and the first broken records as "file:line:column: message".
struct RecordCounts {
  static constexpr std::size_t kListed = 10;
  std::uint64_t read = 0, broken = 0;
  std::vector<std::string> first_broken;
  std::vector<BrokenRecords> kinds;  // of the first kListed different messages
  /// "3 broken records:" and one line for each kind, with its line numbers.
  std::string message() const;
};

/// Passes every record to `parse`, then calls `take` with the line in which it begins. `take` may throw
/// RecordError for a record that it cannot use, which counts as broken; other errors end the reading. kStop:
/// throws usage_error that lists the broken records; to find them, up to 100,000 records after the first one
/// are read, without calling `take`. kSkip: broken records are counted and left out.
void read_objects(RecordReader& reader, OnError on_error, RecordCounts& counts, const ParseObject& parse,
                  const std::function<void(const Where&)>& take);
/// The same for records to train on.
void read_records(RecordReader& reader, const RecordKeys& keys, OnError on_error, RecordCounts& counts,
                  const std::function<void(Record&, const Where&)>& take);

}  // namespace trainhost::records
