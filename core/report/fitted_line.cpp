// See fitted_line.hpp. Fields are chosen with their brief texts and the least widths of charts; what remains
// is spent on full texts, the most important first, then on charts up to their usual widths, on further
// fields, and on charts.
#include "core/report/fitted_line.hpp"

#include <algorithm>
#include <numeric>

#include "core/report/text_table.hpp"

namespace trainhost::report {
namespace {

/// Columns between two fields; one on a narrow terminal.
unsigned gap_of(unsigned columns) { return columns < 50 ? 1 : 2; }

unsigned width_of(const std::string& text) { return static_cast<unsigned>(display_width(text)); }

/// The first `columns` characters of a text that does not fit.
std::string cut(const std::string& text, unsigned columns) {
  std::string out;
  unsigned used = 0;
  for (const char c : text) {
    const bool begins = (static_cast<unsigned char>(c) & 0xC0) != 0x80;
    if (begins && ++used > columns) break;
    out += c;
  }
  return out;
}

}  // namespace

void FittedLine::add(int importance, std::string full, std::string brief, Style style) {
  if (brief.empty()) brief = full;
  fields_.push_back({importance, std::move(full), std::move(brief), nullptr, {}, style});
}

void FittedLine::add_chart(int importance, Widths widths, std::function<std::string(unsigned)> draw,
                           Style style) {
  fields_.push_back({importance, "", "", std::move(draw), widths, style});
}

FittedLine::Text FittedLine::fit(const Terminal& t, unsigned columns, Padding& padding) const {
  std::vector<std::size_t> order(fields_.size());  // by importance, the most important first
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [this](std::size_t a, std::size_t b) {
    return fields_[a].importance > fields_[b].importance;
  });
  if (padding.columns != columns) padding = {columns, {}, {}};
  padding.full.resize(fields_.size()), padding.brief.resize(fields_.size());
  std::vector<unsigned> widths(fields_.size());  // 0: left out
  std::vector<bool> full(fields_.size());
  unsigned used = 0;
  const auto show = [&](std::size_t i, unsigned width) {
    const unsigned gap = used ? gap_of(columns) : 0;
    if (width > 0 && used + gap + width <= columns) widths[i] = width, used += gap + width;
  };
  // One column each in turn, so that charts grow together.
  const auto grow = [&](unsigned Widths::*limit) {
    for (bool grows = true; grows;) {
      grows = false;
      for (const std::size_t i : order)
        if (widths[i] && fields_[i].draw && widths[i] < fields_[i].widths.*limit && used < columns)
          ++widths[i], ++used, grows = true;
    }
  };
  for (const std::size_t i : order) {
    const Field& f = fields_[i];
    padding.full[i] = std::max(padding.full[i], width_of(f.full));
    padding.brief[i] = std::max(padding.brief[i], width_of(f.brief));
    if (f.importance >= 0) show(i, f.draw ? f.widths.least : padding.brief[i]);
  }
  for (const std::size_t i : order) {
    if (!widths[i] || fields_[i].draw || used - widths[i] + padding.full[i] > columns) continue;
    used += padding.full[i] - widths[i];
    widths[i] = padding.full[i], full[i] = true;
  }
  grow(&Widths::usual);
  for (const std::size_t i : order)
    if (fields_[i].importance < 0) show(i, padding.full[i]), full[i] = true;
  grow(&Widths::most);
  Text out;
  for (std::size_t i = 0; i < fields_.size(); ++i) {
    if (!widths[i]) continue;
    const Field& f = fields_[i];
    const std::string text = f.draw ? f.draw(widths[i]) : full[i] ? f.full : f.brief;
    if (text.empty()) continue;
    out.text += std::string(out.text.empty() ? 0 : gap_of(columns), ' ') + styled(t, f.style, text) +
                std::string(widths[i] - std::min(widths[i], width_of(text)), ' ');
  }
  out.text.erase(out.text.find_last_not_of(' ') + 1);
  out.columns = used;
  // Not even the most important field fits: a part of it is better than nothing.
  if (used == 0 && !order.empty() && !fields_[order[0]].draw)
    out.text = cut(fields_[order[0]].brief, columns), out.columns = width_of(out.text);
  return out;
}

}  // namespace trainhost::report
