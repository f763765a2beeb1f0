// Manual pages: what roff would interpret stays text, and Markdown keeps its structure.
#include "core/report/man_page.hpp"

#include <boost/test/unit_test.hpp>

using namespace trainhost::report;

BOOST_AUTO_TEST_SUITE(man_pages)

BOOST_AUTO_TEST_CASE(text_is_not_read_as_requests) {
  ManPage page("trainhost-plan", 1, "plan", "0.1");
  page.paragraph(".so /etc/passwd");
  page.paragraph("'tis a \\fBpath");
  page.entry(".hidden", "");
  page.verbatim(".de X\n\n  --flag");
  BOOST_TEST(page.text() ==
             ".TH TRAINHOST\\-PLAN 1 \"\" \"trainhost 0.1\"\n.SH NAME\ntrainhost\\-plan \\- plan\n"
             ".PP\n\\&.so /etc/passwd\n.PP\n\\(aqtis a \\efBpath\n.TP\n\\fB.hidden\\fR\n\\&\n"
             ".PP\n.nf\n.RS 4\n\\&.de X\n\\&\n  \\-\\-flag\n.RE\n.fi\n");
}

BOOST_AUTO_TEST_CASE(markdown_keeps_its_structure) {
  ManPage page("x", 7, "y", "1");
  const std::size_t head = page.text().size();
  append_markdown(
      page,
      "# Title\n\n<!-- a\ncomment -->\nFirst `code`,\nsecond line, [a link](file.md) and **strong** text.\n\n"
      "## Part\n- one\n  more\n- two\n12. twelve\n\n### Below\n```sh\n# not a heading\n```\n"
      "| key | type | meaning |\n|---|---|---|\n| `a.b` | choice | x \\| y |\n| c | | |\n");
  BOOST_TEST(page.text().substr(head) ==
             ".PP\nFirst \\fBcode\\fR, second line, a link and \\fBstrong\\fR text.\n.SH \"Part\"\n"
             ".IP \\(bu 4\none more\n.IP \\(bu 4\ntwo\n.IP 12. 4\ntwelve\n.SS \"Below\"\n"
             ".PP\n.nf\n.RS 4\n# not a heading\n.RE\n.fi\n"
             ".TP\n\\fBa.b\\fR\nx | y (type choice)\n.TP\n\\fBc\\fR\n\\&\n");
}

BOOST_AUTO_TEST_CASE(marks_without_an_end_stay_text) {
  ManPage page("x", 7, "y", "1");
  const std::size_t head = page.text().size();
  page.paragraph("a ` b ** c [ d ](e");
  BOOST_TEST(page.text().substr(head) == ".PP\na ` b ** c [ d ](e\n");
}

BOOST_AUTO_TEST_SUITE_END()
