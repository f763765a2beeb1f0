// See csv_records.hpp. A field may be quoted; then it may contain separators, ends of lines, and quotation
// marks, which are doubled. A row becomes a JSON object of texts, so that the rules of both formats are the
// same.
#include "core/records/csv_records.hpp"

#include <algorithm>
#include <cassert>

#include "core/base/plural.hpp"
#include "core/base/text.hpp"

namespace trainhost::records {
namespace {

class CsvRecords final : public RecordReader {
 public:
  CsvRecords(ReadBytes read, char separator, std::string file)
      : text_(std::move(read)), separator_(separator), file_(std::move(file)) {}

  Where where() const override { return {file_, static_cast<std::uint32_t>(line_), 0}; }

  bool next(const ParseObject& parse) override {
    if (!has_header_ && !read_header()) return false;
    do {
      if (!read_row()) return false;
    } while (fields_.size() == 1 && fields_[0].empty());  // an empty line
    if (fields_.size() != header_.size())
      fail("the row has " + plural(fields_.size(), "field") + ", but the header has " +
               std::to_string(header_.size()),
           "a field that contains a separator, a quotation mark or an end of line must be quoted");
    JsonValue object = JsonValue::object();
    for (std::size_t i = 0; i < header_.size(); ++i) object[header_[i]] = fields_[i];
    try {
      parse(object);
    } catch (const JsonError& e) {
      fail(e.what());
    }
    return true;
  }

 private:
  [[noreturn]] void fail(const std::string& what, const std::string& hint = "") const {
    throw RecordError(what, hint, where());
  }

  bool read_header() {
    if (!read_row()) return false;
    has_header_ = true;
    header_ = fields_;
    for (std::size_t i = 0; i < header_.size(); ++i)
      if (std::find(header_.begin(), header_.begin() + static_cast<std::ptrdiff_t>(i), header_[i]) !=
          header_.begin() + static_cast<std::ptrdiff_t>(i))
        fail("two columns are named '" + escaped(header_[i], 60) + "'");
    return true;
  }

  /// Reads one row into fields_; false at the end of the file. The whole row is consumed before an error is
  /// thrown, so that the next row can be read.
  bool read_row() {
    fields_.clear();
    line_ = text_.line_number();
    if (text_.peek() == TextStream::kEnd) return false;
    std::string error;
    bytes_ = 0;
    do read_field(error);
    while (take(separator_));
    take('\r');
    if (!take('\n') && text_.peek() != TextStream::kEnd) {
      if (error.empty()) error = "text after a quoted field, or a carriage return inside of an unquoted one";
      std::string rest;
      text_.line(rest, 0);
    }
    if (error.empty() && bytes_ > kMaxRecordBytes)
      error = "the row has more than " + format_bytes(kMaxRecordBytes);
    for (const std::string& f : fields_)
      if (error.empty() && !valid_utf8(f)) error = "the row is not valid UTF-8";
    if (!error.empty()) fail(error);
    return true;
  }

  void read_field(std::string& error) {
    std::string& field = fields_.emplace_back();
    if (!take('"')) {
      for (int c; (c = text_.peek()) != TextStream::kEnd && c != separator_ && c != '\n' && c != '\r';)
        append(field, c);
      return;
    }
    while (true) {
      const int c = text_.peek();
      if (c == TextStream::kEnd) {
        error = "a quoted field is not closed before the end of the file";
        return;
      }
      if (c != '"') {
        append(field, c);
      } else {
        text_.skip();
        if (text_.peek() != '"') return;
        append(field, '"');
      }
    }
  }

  void append(std::string& field, int c) {
    if (++bytes_ <= kMaxRecordBytes) field += static_cast<char>(c);
    text_.skip();
  }

  bool take(char c) {
    const bool present = text_.peek() == static_cast<unsigned char>(c);
    if (present) text_.skip();
    return present;
  }

  TextStream text_;
  char separator_;
  std::string file_;
  std::vector<std::string> header_, fields_;
  bool has_header_ = false;
  std::size_t bytes_ = 0;  // of the current row
  std::uint64_t line_ = 1;
};

}  // namespace

std::unique_ptr<RecordReader> open_csv(ReadBytes read, char separator, std::string file) {
  return std::make_unique<CsvRecords>(std::move(read), separator, std::move(file));
}

}  // namespace trainhost::records
