// Building blocks of the HTML reports: page skeleton, escaping, tables, lists. A page is one self-contained
// file without network access; it is complete without its script, which adds tooltips, exact bytes and
// sorting. plan_html, sweep_html and search_html fill it. All text from outside must pass through text().
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/types.hpp"

namespace trainhost::report::html {

/// escaped_markup(): safe between tags and inside a quoted attribute.
std::string text(std::string_view untrusted, std::size_t max = 400);

/// "12.4 GiB" that carries its exact value: <data value="13314398617" title="...">.
std::string bytes(std::uint64_t n);
/// "1,234,567" with its exact value.
std::string count(std::uint64_t n);
/// "61.2 of 74.5 GiB": the unit is written once where both have the same. Plain text.
std::string part_of(std::uint64_t part, std::uint64_t whole);

/// CSS class of the n-th colour. A component always has the same colour.
std::string colour(std::size_t n);
std::string colour(Component c);

/// A table of cells that are HTML. Ends at `max_bytes` of HTML or `max_rows`, with a note about omitted rows.
class HtmlTable {
 public:
  /// One letter per column: 'l' left, 'r' right (numbers); headings are plain text.
  HtmlTable(std::string alignment, std::vector<std::string> headings);
  HtmlTable& caption(std::string_view plain);
  /// data-NAME="value" on the table, for programs that read the page.
  HtmlTable& mark(std::string_view name, std::string_view value);
  /// `attributes` of the row as HTML: "class=\"sum\"".
  void row(const std::vector<std::string>& cells, const std::string& attributes = {});
  std::size_t rows() const { return rows_.size(); }
  std::string str(std::size_t max_rows = 200, std::size_t max_bytes = 60'000) const;

 private:
  std::string alignment_, caption_, marks_;
  std::vector<std::string> headings_, rows_;
};

/// <ul> of plain texts; "" where there are none.
std::string list(const std::vector<std::string>& sentences, std::size_t most = 40);
/// Swatches with names: {class, plain name}.
std::string legend(const std::vector<std::pair<std::string, std::string>>& entries);
/// A chart with its legend; `svg` and `legend_html` are HTML.
std::string figure(const std::string& svg, const std::string& legend_html,
                   std::string_view plain_caption = {});
/// Collapsed; printing opens it.
std::string details(std::string_view plain_summary, const std::string& inner);

enum class Tone { kNeutral, kGood, kBad };

struct Page {
  std::string kind;   // "plan": data-kind of the body
  std::string title;  // plain text, like all members except `sections`; the model
  std::string subtitle;
  Tone tone = Tone::kNeutral;
  std::string answer;    // one sentence
  std::string detail;    // shown below the answer
  std::string command;   // command line that created the page; "" = not known
  std::string sections;  // HTML
  std::string data;      // JSON that the script draws: {"charts": [...]}; "" = none
  bool live = false;     // the script replaces parts of the page with what the server of the page sends
  /// `id`: of the element around `html`, whose content a live page replaces. Without it nothing is added
  /// where `html` is empty.
  void section(std::string_view heading, const std::string& html, std::string_view id = {});
  std::string answer_html() const;  // answer and detail
  std::string str() const;
};

}  // namespace trainhost::report::html
