// See html_page.hpp.
#include "core/report/html_page.hpp"

#include <fmt/format.h>

#include "core/base/text.hpp"
#include "core/report/html_style.hpp"

namespace trainhost::report::html {
namespace {

std::string_view tone_class(Tone t) {
  return t == Tone::kGood ? "good" : t == Tone::kBad ? "bad" : "neutral";
}

}  // namespace

std::string text(std::string_view untrusted, std::size_t max) { return escaped_markup(untrusted, max); }

/// The script switches all class "b" elements between the rounded text and the exact value, so the exact
/// number must be in `value`, not only in the title.
std::string bytes(std::uint64_t n) {
  return fmt::format("<data class=\"b\" value=\"{}\" title=\"{} bytes\">{}</data>", n, format_count(n),
                     format_bytes(n));
}

std::string count(std::uint64_t n) { return fmt::format("<data value=\"{}\">{}</data>", n, format_count(n)); }

std::string part_of(std::uint64_t part, std::uint64_t whole) {
  std::string a = format_bytes(part), b = format_bytes(whole);
  const std::string unit = b.substr(b.find(' '));
  if (a.ends_with(unit)) a.resize(a.size() - unit.size());
  return a + " of " + b;
}

std::string colour(std::size_t n) { return fmt::format("k{}", n % kColours); }
static_assert(static_cast<std::size_t>(Component::kRuntime) == kColours, "no two components share a colour");
/// Component enumerators begin at 1, colours at 0.
std::string colour(Component c) { return colour(static_cast<std::size_t>(c) - 1); }

HtmlTable::HtmlTable(std::string alignment, std::vector<std::string> headings)
    : alignment_(std::move(alignment)), headings_(std::move(headings)) {}

HtmlTable& HtmlTable::caption(std::string_view plain) {
  caption_ = text(plain);
  return *this;
}

/// `name` is a literal of this module; only `value` may come from outside.
HtmlTable& HtmlTable::mark(std::string_view name, std::string_view value) {
  marks_ += fmt::format(" data-{}=\"{}\"", name, text(value));
  return *this;
}

void HtmlTable::row(const std::vector<std::string>& cells, const std::string& attributes) {
  std::string out = attributes.empty() ? "<tr>" : "<tr " + attributes + ">";
  for (std::size_t c = 0; c < cells.size(); ++c) {
    const bool right = c < alignment_.size() && alignment_[c] == 'r';
    out += fmt::format("<td{}>{}</td>", right ? " class=\"r\"" : "", cells[c]);
  }
  rows_.push_back(out + "</tr>\n");
}

/// Rows are kept as finished HTML, so the limit in bytes is exact. The limit exists because a search has
/// thousands of rows, and browsers lay out a table of several megabytes only slowly.
std::string HtmlTable::str(std::size_t max_rows, std::size_t max_bytes) const {
  std::string out = "<div class=\"scroll\"><table" + marks_ + ">\n";
  if (!caption_.empty()) out += "<caption>" + caption_ + "</caption>\n";
  out += "<thead><tr>";
  for (std::size_t c = 0; c < headings_.size(); ++c)
    out +=
        fmt::format("<th scope=\"col\"{}>{}</th>",
                    c < alignment_.size() && alignment_[c] == 'r' ? " class=\"r\"" : "", text(headings_[c]));
  out += "</tr></thead>\n<tbody>\n";
  // The table ends before the first row that would exceed either limit. A row is never cut: the page stays
  // valid HTML.
  std::size_t shown = 0;
  for (; shown < rows_.size() && shown < max_rows && out.size() + rows_[shown].size() <= max_bytes; ++shown)
    out += rows_[shown];
  out += "</tbody></table></div>\n";
  if (const std::size_t omitted = rows_.size() - shown)
    out += fmt::format(
        "<p class=\"more\" data-left-out=\"{}\">{} more row{} omitted; --csv and --json have all "
        "rows.</p>\n",
        omitted, format_count(omitted), omitted == 1 ? " is" : "s are");
  return out;
}

std::string list(const std::vector<std::string>& sentences, std::size_t most) {
  if (sentences.empty()) return {};
  std::string out = "<ul>\n";
  for (std::size_t i = 0; i < sentences.size() && i < most; ++i)
    out += "<li>" + text(sentences[i], 600) + "</li>\n";
  if (sentences.size() > most) out += fmt::format("<li>… and {} more</li>\n", sentences.size() - most);
  return out + "</ul>\n";
}

std::string legend(const std::vector<std::pair<std::string, std::string>>& entries) {
  if (entries.empty()) return {};
  std::string out = "<ul class=\"legend\">";
  for (const auto& [css, plain] : entries)
    out += fmt::format("<li data-c=\"{}\"><i class=\"{}\"></i>{}</li>", css, css, text(plain));
  return out + "</ul>\n";
}

/// The scroll container keeps a wide chart or table from widening the page on a narrow screen.
std::string figure(const std::string& svg, const std::string& legend_html, std::string_view plain_caption) {
  std::string out = "<figure>\n" + legend_html + "<div class=\"scroll\">" + svg + "</div>\n";
  if (!plain_caption.empty()) out += "<figcaption>" + text(plain_caption) + "</figcaption>\n";
  return out + "</figure>\n";
}

std::string details(std::string_view plain_summary, const std::string& inner) {
  return "<details><summary>" + text(plain_summary) + "</summary>\n" + inner + "</details>\n";
}

/// A section without content is omitted with its heading, so callers need not test for it.
void Page::section(std::string_view heading, const std::string& html, std::string_view id) {
  if (html.empty() && id.empty()) return;
  const std::string head = "<h2>" + text(heading) + "</h2>\n";
  sections += id.empty() ? "<section>\n" + head + html + "</section>\n"
                         : fmt::format("<section>\n{}<div id=\"{}\">{}</div></section>\n", head, id, html);
}

std::string Page::answer_html() const {
  std::string out = fmt::format("<p class=\"answer {}\">{}</p>\n", tone_class(tone), text(answer, 800));
  if (!detail.empty()) out += "<p class=\"sub\">" + text(detail, 800) + "</p>\n";
  return out;
}

namespace {

/// JSON within a script element: "<" could end it.
std::string embedded(const std::string& json) {
  std::string out;
  for (const char c : json)
    if (c == '<')
      out += "\\u003c";
    else
      out += c;
  return out;
}

}  // namespace

/// The content security policy allows inline styles and exactly one script, by hash, and no request
/// except, on a live page, to the server of the page. Images are those that the script makes.
/// If text from a plugin or a run file ever reached the page unescaped, a browser would still not execute it
/// nor load anything.
std::string Page::str() const {
  std::string out = fmt::format(
      "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; "
      "script-src 'sha256-{}'; img-src data:; {}base-uri 'none'; form-action 'none'\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<meta name=\"color-scheme\" content=\"light dark\">\n<meta name=\"generator\" content=\"trainhost\">\n"
      "<title>{}: {}</title>\n<style>{}</style>\n</head>\n<body data-kind=\"{}\"{}>\n<main>\n",
      kScriptHash, live ? "connect-src 'self'; " : "", text(title), text(answer), style(), text(kind),
      live ? " data-live" : "");
  out += fmt::format("<header>\n<p class=\"brand\">trainhost {}</p>\n<h1>{}</h1>\n", text(kind), text(title));
  if (!subtitle.empty()) out += "<p class=\"sub\">" + text(subtitle, 800) + "</p>\n";
  out += live ? "<div id=\"answer\">" + answer_html() +
                    "</div>\n<p id=\"link\" class=\"sub\" role=\"status\"></p>\n"
              : answer_html();
  out += "<button type=\"button\" id=\"exact\" aria-pressed=\"false\">Exact bytes</button>\n</header>\n";
  // Tables and charts come before the command line, and the script is last: the page is complete when the
  // script runs.
  out += sections + "<footer>\n";
  if (!command.empty()) out += "<p>Created by</p>\n<pre><code>" + text(command, 4000) + "</code></pre>\n";
  out +=
      "<p>Sizes are binary (1 GiB = 1,073,741,824 bytes). This page needs no network and no other "
      "file.</p>\n</footer>\n</main>\n";
  if (!data.empty()) out += "<script type=\"application/json\" id=\"data\">" + embedded(data) + "</script>\n";
  out += fmt::format("<div id=\"tip\" role=\"status\" hidden></div>\n<script>{}</script>\n</body>\n</html>\n",
                     kScript);
  return out;
}

}  // namespace trainhost::report::html
