// See table.hpp.
#include "core/report/table.hpp"

#include <algorithm>
#include <array>
#include <cmath>

namespace trainhost::report {

std::size_t display_width(const std::string& text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

void Table::row(std::vector<std::string> cells) {
  cells.resize(alignment_.size());
  rows_.push_back(std::move(cells));
}

void Table::rule() { rows_.emplace_back(); }

std::string Table::str(const std::string& indent) const {
  std::vector<std::size_t> width(alignment_.size(), 0);
  for (const auto& r : rows_)
    for (std::size_t c = 0; c < r.size(); ++c) width[c] = std::max(width[c], display_width(r[c]));
  std::size_t total = 0;
  for (std::size_t w : width) total += w;
  total += 2 * (width.size() - 1);

  std::string out;
  for (const auto& r : rows_) {
    std::string line = indent;
    if (r.empty()) {
      for (std::size_t i = 0; i < total; ++i) line += "─";
    } else {
      for (std::size_t c = 0; c < r.size(); ++c) {
        std::string pad(width[c] - display_width(r[c]), ' ');
        if (c) line += "  ";
        line += alignment_[c] == 'r' ? pad + r[c] : r[c] + pad;
      }
      line.erase(line.find_last_not_of(' ') + 1);
    }
    out += line + "\n";
  }
  return out;
}

std::string bar(double share, unsigned width) {
  static constexpr std::array<const char*, 8> kPart = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  double eighths = std::clamp(share, 0.0, 1.0) * width * 8;
  auto n = static_cast<unsigned>(std::lround(eighths));
  std::string out;
  for (unsigned i = 0; i < n / 8; ++i) out += "█";
  return out + kPart[n % 8];
}

std::string wrapped(const std::string& text, std::size_t width, const std::string& indent) {
  if (width == 0 || display_width(text) <= width) return text;
  std::string out, line;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t word = std::min(text.find_first_not_of(' ', at), text.size()), end = std::min(text.find(' ', word), text.size());
    const bool fits = line.empty() || line == indent || display_width(line) + display_width(text.substr(at, end - at)) <= width;
    if (!fits) out += line + "\n", line = indent;
    line += text.substr(!fits ? word : at, end - (!fits ? word : at));
    at = end;
  }
  return out + line;
}

}  // namespace trainhost::report
