// See record_reader.hpp. Rows of CSV: csv_records.cpp.
#include "core/records/record_reader.hpp"

#include <algorithm>
#include <memory>
#include <optional>

#include "core/base/json_remedy.hpp"
#include "core/base/json_value.hpp"
#include "core/base/text.hpp"
#include "core/records/csv_records.hpp"
#include "core/records/record_json.hpp"

namespace trainhost::records {
namespace {

constexpr std::uint64_t kSearchedAfterError = 100'000;  // records

bool is_space(int c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }

/// JSON Lines, or the elements of one array. The text of a record is collected first and parsed then, so that
/// only one record is in memory and a broken one does not hide where the next begins.
class JsonRecords final : public RecordReader {
 public:
  JsonRecords(ReadBytes read, std::string file) : text_(std::move(read)), file_(std::move(file)) {}

  Where where() const override { return {file_, static_cast<std::uint32_t>(line_), 0}; }

  bool next(const ParseObject& parse) override {
    if (!begun_) begin();
    if (!(is_array_ ? next_element() : next_line())) return false;
    JsonPositions positions(record_, file_);
    try {
      if (record_.size() > kMaxRecordBytes)
        throw JsonError(0, "the record has more than " + format_bytes(kMaxRecordBytes));
      parse(parse_json(record_));
    } catch (const JsonError& e) {
      Where where = positions.where(std::min<std::uint64_t>(e.at, record_.size()));
      where.line += static_cast<std::uint32_t>(line_ - 1);
      // An element may begin in the middle of a line, so the column of its first line is unknown.
      if (is_array_ && where.line == line_) where.column = 0;
      // The file ends in the middle of its last record.
      const bool truncated = text_.peek() == TextStream::kEnd && is_truncated_json(record_, e);
      throw RecordError(e.what(), truncated ? "the file is truncated: copy it again" : "", where);
    }
    return true;
  }

 private:
  void begin() {
    begun_ = true;
    skip_space();
    is_array_ = text_.peek() == '[';
    if (is_array_) text_.skip();
  }

  void skip_space() {
    while (is_space(text_.peek())) text_.skip();
  }

  /// Empty lines are no records.
  bool next_line() {
    do {
      record_.clear();
      line_ = text_.line_number();
      if (!text_.line(record_, kMaxRecordBytes)) return false;
    } while (std::all_of(record_.begin(), record_.end(), is_space));
    return true;
  }

  /// An element ends at a comma or the closing bracket outside of strings, objects and arrays. After an
  /// element that never ends, the file has ended too.
  bool next_element() {
    record_.clear();
    skip_space();
    line_ = text_.line_number();
    const int first = text_.peek();
    if (closed_ || first == TextStream::kEnd || (first == ']' && !after_comma_)) return end_array(first);
    unsigned depth = 0;
    bool in_string = false;
    for (int c; (c = text_.peek()) != TextStream::kEnd; text_.skip()) {
      if (!in_string && depth == 0 && (c == ',' || c == ']')) break;
      if (record_.size() <= kMaxRecordBytes) record_ += static_cast<char>(c);
      if (in_string) {
        if (c == '"') in_string = false;
        if (c == '\\') {
          text_.skip();
          if (text_.peek() == TextStream::kEnd) break;
          if (record_.size() <= kMaxRecordBytes) record_ += static_cast<char>(text_.peek());
        }
      } else if (c == '"') {
        in_string = true;
      } else if (c == '{' || c == '[') {
        ++depth;
      } else if (c == '}' || c == ']') {
        depth -= depth > 0;
      }
    }
    after_comma_ = text_.peek() == ',';
    if (after_comma_) text_.skip();
    return true;
  }

  bool end_array(int c) {
    if (closed_) return false;
    closed_ = true;
    if (c == TextStream::kEnd) throw RecordError("the array is not closed: ']' is missing", "", where());
    text_.skip();
    skip_space();
    if (text_.peek() != TextStream::kEnd)
      throw RecordError("text after the end of the array", "write one array, or one record per line",
                        where());
    return false;
  }

  TextStream text_;
  std::string file_, record_;
  std::uint64_t line_ = 1;
  bool begun_ = false, is_array_ = false, after_comma_ = false, closed_ = false;
};

std::string extension_of(const std::string& file_name) {
  const std::size_t dot = file_name.rfind('.');
  std::string extension = dot == std::string::npos ? "" : file_name.substr(dot);
  for (char& c : extension) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
  return extension;
}

void add_broken(RecordCounts& counts, const RecordError& e, const Where& record) {
  const Where& where = e.where().file.empty() ? record : e.where();
  const std::string first = RecordError(e.what(), e.hint(), where).full(),
                    text = RecordError(e.what(), e.hint(), {}).full();
  if (++counts.broken <= RecordCounts::kListed) counts.first_broken.push_back(first);
  const auto known = std::ranges::find_if(
      counts.kinds, [&](const BrokenRecords& k) { return k.file == where.file && k.text == text; });
  if (known == counts.kinds.end()) {
    if (counts.kinds.size() < RecordCounts::kListed) counts.kinds.push_back({where.file, text, first, {}, 1});
    return;
  }
  ++known->count;
  const bool repeated = !known->lines.empty() && known->lines.back() == where.line;
  if (known->lines.size() + 1 < RecordCounts::kListed && !repeated) known->lines.push_back(where.line);
}

/// "; also lines 4, 7 and 1,204 more"; "" for a single record.
std::string further_lines(const BrokenRecords& kind) {
  if (kind.count == 1) return "";
  const std::uint64_t more = kind.count - 1 - kind.lines.size();
  std::string text = kind.count == 2 ? "; also line " : "; also lines ";
  for (std::size_t i = 0; i < kind.lines.size(); ++i) {
    const bool last = more == 0 && i + 1 == kind.lines.size();
    text += (i == 0 ? "" : last ? " and " : ", ") + format_count(kind.lines[i]);
  }
  return more ? text + " and " + format_count(more) + " more" : text;
}

/// Throws for the broken records of a file, a single one like any other mistake: in one line, with its
/// position in front. `at_end`: there are no others.
[[noreturn]] void refuse_broken(const RecordCounts& counts, const std::optional<RecordError>& first,
                                bool at_end) {
  constexpr const char* kSkip = ": --set data.on_error=skip, or --on-error skip of `trainhost eval`";
  if (!at_end)
    throw usage_error("at least " + counts.message(), std::string("correct them, or leave them out") + kSkip);
  if (counts.broken > 1)
    throw usage_error(counts.message(), std::string("correct them, or leave them out") + kSkip);
  throw usage_error(
      first->what(),
      (first->hint().empty() ? "correct it, or leave it out" : first->hint() + "; or leave the record out") +
          kSkip,
      first->where());
}

}  // namespace

bool has_records(const std::string& file_name) {
  const std::string e = extension_of(file_name);
  return e == ".jsonl" || e == ".ndjson" || e == ".json" || e == ".csv" || e == ".tsv";
}

RecordFormat format_of(const std::string& file_name) {
  const std::string e = extension_of(file_name);
  return e == ".csv" ? RecordFormat::kCsv : e == ".tsv" ? RecordFormat::kTsv : RecordFormat::kJson;
}

std::unique_ptr<RecordReader> open_records(ReadBytes read, RecordFormat format, std::string file) {
  if (format == RecordFormat::kJson) return std::make_unique<JsonRecords>(std::move(read), std::move(file));
  return open_csv(std::move(read), format == RecordFormat::kTsv ? '\t' : ',', std::move(file));
}

std::string RecordCounts::message() const {
  std::string text = format_count(broken) + (broken == 1 ? " broken record:" : " broken records:");
  std::uint64_t listed = 0;
  for (const BrokenRecords& kind : kinds)
    text += "\n  " + kind.first + further_lines(kind), listed += kind.count;
  if (broken > listed) text += "\n  and " + format_count(broken - listed) + " with other messages";
  return text;
}

void read_objects(RecordReader& reader, OnError on_error, RecordCounts& counts, const ParseObject& parse,
                  const std::function<void(const Where&)>& take) {
  const bool stops = on_error == OnError::kStop;
  std::optional<RecordError> first;
  bool at_end = false;
  for (std::uint64_t after_error = 0; after_error < kSearchedAfterError;) {
    const bool searching = stops && counts.broken > 0;
    after_error += searching;
    try {
      if (at_end = !reader.next(parse); at_end) break;
      if (!searching) take(reader.where());
      ++counts.read;
    } catch (const RecordError& e) {
      if (!first) first.emplace(e.what(), e.hint(), e.where().file.empty() ? reader.where() : e.where());
      add_broken(counts, e, reader.where());
    }
  }
  if (stops && counts.broken > 0) refuse_broken(counts, first, at_end);
}

void read_records(RecordReader& reader, const RecordKeys& keys, OnError on_error, RecordCounts& counts,
                  const std::function<void(Record&, const Where&)>& take) {
  Record record;
  read_objects(
      reader, on_error, counts, [&](const JsonValue& object) { record = record_of(object, keys); },
      [&](const Where& where) { take(record, where); });
}

}  // namespace trainhost::records
