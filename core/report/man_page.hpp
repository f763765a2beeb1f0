// Manual pages in the format of man(7). Text passes as it is: what roff would take for a request or an escape
// is escaped. `trainhost man-pages` writes the pages of the packages.
#pragma once
#include <string>
#include <string_view>

namespace trainhost::report {

/// A page that is written from top to bottom. All text is Markdown of one paragraph: `code` and **strong**
/// text are printed bold, of a [link](target) the text remains.
class ManPage {
 public:
  /// name: "trainhost-plan". section: 1 commands, 5 files, 7 everything else. summary: one phrase. version:
  /// of the program.
  ManPage(std::string_view name, int section, std::string_view summary, std::string_view version);

  void heading(std::string_view title);
  void subheading(std::string_view title);
  void paragraph(std::string_view text);
  /// A term, for example an option, and its meaning. The term is not Markdown.
  void entry(std::string_view term, std::string_view meaning);
  void item(std::string_view mark, std::string_view text);  // of a list
  void verbatim(std::string_view lines);                    // examples

  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

/// Appends a document in Markdown without its title: headings, paragraphs, lists, code and tables. Each row
/// of a table becomes an entry: its first cell is the term, its last cell the meaning, and cells between them
/// are named by their columns.
void append_markdown(ManPage& page, std::string_view markdown);

}  // namespace trainhost::report
