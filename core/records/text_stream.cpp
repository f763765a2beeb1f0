// See text_stream.hpp.
#include "core/records/text_stream.hpp"

#include <algorithm>

namespace trainhost::records {

bool TextStream::fill() {
  at_ = 0;
  end_ = read_(std::span(buffer_));
  // A byte order mark, which spreadsheets write, is no part of the text.
  if (!begun_ && end_ >= 3 && std::string_view(buffer_).starts_with("\xEF\xBB\xBF")) at_ = 3;
  begun_ = true;
  return at_ < end_ || (end_ > 0 && fill());
}

bool TextStream::line(std::string& line, std::size_t limit) {
  if (peek() == kEnd) return false;
  do {
    const std::string_view rest(buffer_.data() + at_, end_ - at_);
    const std::size_t n = std::min(rest.find('\n'), rest.size());
    line.append(rest.substr(0, std::min(n, limit + 1 - std::min(line.size(), limit + 1))));
    at_ += n;
    if (at_ < end_) {  // the end of the line is in the buffer
      skip();
      break;
    }
  } while (fill());
  return true;
}

}  // namespace trainhost::records
