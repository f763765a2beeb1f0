// A page that stands alone: skeleton, escaping, tables and lists of the HTML reports. No network, no file
// beside it; every word is there without its script, which adds tooltips, exact bytes and sorting. Knows no
// view: plan_html, sweep_html and search_html fill it. Whatever came from outside goes through text() on its
// way in.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/types.hpp"

namespace trainhost::report::html {

/// Safe between tags and inside a quoted attribute: control bytes as \xNN, cut at `max` bytes, & < > " ' as
/// entities.
std::string text(std::string_view outside, std::size_t max = 400);

/// "12.4 GiB" that carries its exact value: <data value="13314398617" title="...">.
std::string bytes(std::uint64_t n);
/// "1,234,567", to the right of its cell by class.
std::string count(std::uint64_t n);
/// "61.2 of 74.5 GiB": one unit where both have the same. Plain text.
std::string part_of(std::uint64_t part, std::uint64_t whole);

/// "optimizer state": a name of the JSON with spaces.
std::string spaced(std::string_view name);
std::string words(Component c);
std::string words(Claim c);
/// CSS class of the n-th colour; components have theirs by their number, so that a colour means the same on
/// every page.
std::string colour(std::size_t n);
std::string colour(Component c);

/// Rows of ready-made cells. Ends where `max_bytes` of HTML or `max_rows` are reached and says how many rows
/// are missing.
class HtmlTable {
 public:
  /// One letter a column: 'l' left, 'r' right (numbers); headings are plain text.
  HtmlTable(std::string alignment, std::vector<std::string> headings);
  HtmlTable& caption(std::string_view plain);
  /// data-NAME="value" on the table, for readers of the page by program.
  HtmlTable& mark(std::string_view name, std::string_view value);
  /// `attributes` of the row, ready-made: "class=\"sum\"".
  void row(const std::vector<std::string>& cells, const std::string& attributes = {});
  std::size_t rows() const { return rows_.size(); }
  std::string str(std::size_t max_rows = 200, std::size_t max_bytes = 60'000) const;

 private:
  std::string alignment_, caption_, marks_;
  std::vector<std::string> headings_, rows_;
};

/// <ul> of plain sentences; "" where there are none.
std::string list(const std::vector<std::string>& sentences, std::size_t most = 40);
/// Swatches with names: {class, plain name}.
std::string legend(const std::vector<std::pair<std::string, std::string>>& entries);
/// A chart with its legend; `svg` is ready-made.
std::string figure(const std::string& svg, const std::string& legend_html,
                   std::string_view plain_caption = {});
/// Folded away; opened by print.
std::string details(std::string_view plain_summary, const std::string& inner);

enum class Tone { kNeutral, kGood, kBad };

struct Page {
  std::string kind;   // "plan": data-kind of the body
  std::string title;  // plain, as everything here: the model
  std::string subtitle;
  Tone tone = Tone::kNeutral;
  std::string answer;    // one sentence
  std::string detail;    // what stands below it
  std::string command;   // that made the page; "" = not known
  std::string sections;  // ready-made
  void section(std::string_view heading, const std::string& html);
  std::string str() const;
};

}  // namespace trainhost::report::html
