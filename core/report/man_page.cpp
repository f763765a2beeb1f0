// See man_page.hpp. The subset of man(7) is the one that man-db and mandoc print alike.
#include "core/report/man_page.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <sstream>
#include <vector>

namespace trainhost::report {
namespace {

/// '-' would become a hyphen, which a terminal cannot search for; a backslash begins an escape.
std::string roff(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\')
      out += "\\e";
    else if (c == '-')
      out += "\\-";
    else if (c == '\'')
      out += "\\(aq";
    else
      out += c;
  }
  return out;
}

/// A '.' at the beginning of a line would be a request.
std::string line(std::string text) {
  if (text.starts_with('.')) text.insert(0, "\\&");
  return text + "\n";
}

std::string bold(std::string_view text) { return "\\fB" + roff(text) + "\\fR"; }

/// One paragraph of Markdown in one line of roff.
std::string inline_text(std::string_view text) {
  std::string out;
  const auto until = [&](std::size_t from, std::string_view mark) { return text.find(mark, from); };
  for (std::size_t i = 0; i < text.size();) {
    if (text[i] == '`') {
      if (const auto end = until(i + 1, "`"); end != text.npos) {
        out += bold(text.substr(i + 1, end - i - 1));
        i = end + 1;
        continue;
      }
    } else if (text.substr(i).starts_with("**")) {
      if (const auto end = until(i + 2, "**"); end != text.npos) {
        out += bold(text.substr(i + 2, end - i - 2));
        i = end + 2;
        continue;
      }
    } else if (text[i] == '[') {
      const auto middle = until(i, "](");
      const auto end = middle == text.npos ? middle : until(middle, ")");
      if (end != text.npos && text.substr(i, middle - i).find('\n') == text.npos) {
        out += inline_text(text.substr(i + 1, middle - i - 1));
        i = end + 1;
        continue;
      }
    }
    out += text[i] == '\n' ? std::string(" ") : roff(text.substr(i, 1));
    ++i;
  }
  return out;
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

/// "1." or "-", and 0 characters if the line begins no item of a list.
std::size_t list_mark(std::string_view text) {
  if (text.starts_with("- ")) return 1;
  std::size_t digits = 0;
  while (digits < text.size() && std::isdigit(static_cast<unsigned char>(text[digits]))) ++digits;
  return digits && text.substr(digits).starts_with(". ") ? digits + 1 : 0;
}

/// "| a | b \| c |" as {"a", "b | c"}.
std::vector<std::string> cells(std::string_view row) {
  std::vector<std::string> out(1);
  for (std::size_t i = 1; i < row.size(); ++i) {
    if (row[i] == '\\' && i + 1 < row.size() && row[i + 1] == '|')
      out.back() += row[++i];
    else if (row[i] == '|')
      out.emplace_back();
    else
      out.back() += row[i];
  }
  out.pop_back();  // after the last bar
  for (std::string& c : out) c = trimmed(c);
  return out;
}

void append_table(ManPage& page, const std::vector<std::string>& rows) {
  const std::vector<std::string> columns = cells(rows.front());
  for (std::size_t r = 2; r < rows.size(); ++r) {  // below the line |---|---|
    const std::vector<std::string> row = cells(rows[r]);
    if (row.empty()) continue;
    std::string meaning = row.size() > 1 ? row.back() : "";
    std::string between;
    for (std::size_t c = 1; c + 1 < row.size() && c < columns.size(); ++c)
      if (!row[c].empty()) between += fmt::format("{}{} {}", between.empty() ? "" : ", ", columns[c], row[c]);
    if (!between.empty()) meaning += fmt::format(" ({})", between);
    std::string term;
    std::copy_if(row[0].begin(), row[0].end(), std::back_inserter(term), [](char c) { return c != '`'; });
    page.entry(term, meaning);
  }
}

}  // namespace

ManPage::ManPage(std::string_view name, int section, std::string_view summary, std::string_view version) {
  std::string upper(name);
  std::transform(upper.begin(), upper.end(), upper.begin(), [](unsigned char c) { return std::toupper(c); });
  text_ = fmt::format(".TH {} {} \"\" \"trainhost {}\"\n.SH NAME\n{} \\- {}\n", roff(upper), section,
                      roff(version), roff(name), inline_text(summary));
}

void ManPage::heading(std::string_view title) { text_ += fmt::format(".SH \"{}\"\n", inline_text(title)); }
void ManPage::subheading(std::string_view title) { text_ += fmt::format(".SS \"{}\"\n", inline_text(title)); }
void ManPage::paragraph(std::string_view text) { text_ += ".PP\n" + line(inline_text(text)); }
void ManPage::entry(std::string_view term, std::string_view meaning) {
  text_ += ".TP\n" + line(bold(term)) + (meaning.empty() ? "\\&\n" : line(inline_text(meaning)));
}
void ManPage::item(std::string_view mark, std::string_view text) {
  text_ +=
      fmt::format(".IP {} 4\n", mark == "-" ? std::string("\\(bu") : roff(mark)) + line(inline_text(text));
}
void ManPage::verbatim(std::string_view lines) {
  text_ += ".PP\n.nf\n.RS 4\n";
  std::istringstream in{std::string(lines)};
  for (std::string l; std::getline(in, l);) text_ += l.empty() ? "\\&\n" : line(roff(l));
  text_ += ".RE\n.fi\n";
}

void append_markdown(ManPage& page, std::string_view markdown) {
  std::istringstream in{std::string(markdown)};
  std::vector<std::string> lines;
  for (std::string l; std::getline(in, l);) lines.push_back(std::move(l));
  const auto begins_block = [](std::string_view l) {
    return l.empty() || l.starts_with('#') || l.starts_with("```") || l.starts_with('|') ||
           l.starts_with("<!--") || list_mark(l) > 0;
  };
  for (std::size_t i = 0; i < lines.size();) {
    const std::string& l = lines[i];
    if (l.empty() || l.starts_with("# ")) {
      ++i;
    } else if (l.starts_with("<!--")) {
      while (i < lines.size() && lines[i].find("-->") == std::string::npos) ++i;
      ++i;
    } else if (l.starts_with("## ")) {
      page.heading(std::string_view(lines[i++]).substr(3));
    } else if (l.starts_with('#')) {
      page.subheading(trimmed(std::string_view(l).substr(l.find_first_not_of('#'))));
      ++i;
    } else if (l.starts_with("```")) {
      std::string code;
      for (++i; i < lines.size() && !lines[i].starts_with("```"); ++i) code += lines[i] + "\n";
      ++i;
      page.verbatim(code);
    } else if (l.starts_with('|')) {
      std::vector<std::string> rows;
      for (; i < lines.size() && lines[i].starts_with('|'); ++i) rows.push_back(lines[i]);
      append_table(page, rows);
    } else {  // a paragraph, or an item of a list: until a block begins
      const std::size_t mark = list_mark(l);
      std::string text(trimmed(std::string_view(l).substr(mark)));
      for (++i; i < lines.size() && !begins_block(lines[i]); ++i)
        text += " " + std::string(trimmed(lines[i]));
      if (mark)
        page.item(std::string_view(l).substr(0, mark), text);
      else
        page.paragraph(text);
    }
  }
}

}  // namespace trainhost::report
