// See text_stream.hpp.
#include "core/records/text_stream.hpp"

#include <algorithm>

namespace trainhost::records {

bool TextStream::fill() {
  at_ = 0;
  end_ = read_(std::span(buffer_));
  if (begun_) return end_ > 0;
  begun_ = true;
  // A byte order mark, which spreadsheets write, is no part of the text. A read may return less than it has.
  static constexpr std::string_view kMark = "\xEF\xBB\xBF";
  for (std::size_t n = end_; n > 0 && end_ < kMark.size(); end_ += n)
    n = read_(std::span(buffer_).subspan(end_));
  if (std::string_view(buffer_).substr(0, end_).starts_with(kMark)) at_ = kMark.size();
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
