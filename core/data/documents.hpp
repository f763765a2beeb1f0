// Records as documents: token ids, and which of them are trained. Where one document ends and the next begins
// in a sequence: sequence_file.hpp. The text of records and chat templates: core/records.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/data/data_files.hpp"
#include "core/data/dataset.hpp"

namespace trainhost::data {

struct Document {
  std::vector<std::int32_t> ids;
  std::vector<std::uint8_t> trained;  // one per id
  /// True for a plain text, which is divided where it is longer than a sequence. Others are truncated: a part
  /// without its question cannot be learned.
  bool divisible = false;
};

/// True if the name of the file says that it has records.
bool is_record_file(const std::filesystem::path& path);
/// Throws usage_error with the way to convert it for a table in a format that is not read: .parquet, .arrow,
/// .feather.
void refuse_tables(const std::filesystem::path& path);

/// A sequential reader of the file for records::open_records(). `file` must outlive it.
records::ReadBytes reader_of(const InputFile& file, OnRead on_read = {});

/// Makes documents. The parts of a record are encoded as one text, so the ids are those of transformers for
/// the same text; an id with text of two parts is trained if one of them is.
class DocumentEncoder {
 public:
  /// `tokenizer` must outlive this. Errors: those of finding the chat template, if it is named by
  /// RecordOptions::chat_template; one that is missing with "auto" is an error of the first conversation.
  DocumentEncoder(const Tokenizer& tokenizer, const RecordOptions& options);

  Document encode(const records::Record& record);
  /// The parts of a record as they are tokenized: a special token that the vocabulary lacks is text.
  std::vector<records::Part> parts(const records::Record& record);
  /// The chat template, null if none was found. Records without conversations need none.
  const records::ChatTemplate* chat_template() const { return template_ ? &*template_ : nullptr; }
  /// Special tokens of the template that the vocabulary lacks, among those that were rendered.
  const std::set<std::string>& missing_tokens() const { return missing_; }

 private:
  const Tokenizer& tokenizer_;
  records::LossOn loss_on_;
  bool special_tokens_;  // in plain texts
  std::optional<records::ChatTemplate> template_;
  std::string searched_;  // where a template was looked for
  std::set<std::string> missing_;
};

/// Reads every record of the files in order. `take`: as in records::read_records(), with its text. Errors:
/// those of files and records; usage_error if there is no record at all. `on_read` counts the bytes of all
/// files.
void read_record_files(const std::vector<std::filesystem::path>& files, const RecordOptions& options,
                       records::RecordCounts& counts,
                       const std::function<void(records::Record&, const Where&)>& take,
                       const OnRead& on_read = {});

}  // namespace trainhost::data
