// trainhost search: the best parallel layouts of a model on N devices. Reads no training data and queries no
// device.
#include <fmt/format.h>

#include "core/checkpoint/output_file.hpp"
#include "core/report/picture.hpp"
#include "core/report/plan_report.hpp"
#include "core/report/terminal.hpp"
#include "tools/trainhost/planned_results.hpp"
#include "tools/trainhost/result_stream.hpp"

namespace trainhost::cli {

Exit run(const SearchArguments& a) {
  constexpr const char *kCsv = "--csv layouts.csv", *kHtml = "--html search.html";
  if (!a.csv.empty()) checkpoint::require_writable("--csv", a.csv, kCsv);
  if (!a.html.empty()) checkpoint::require_writable("--html", a.html, kHtml);
  const report::PictureFiles picture{a.picture.svg, a.picture.png};
  picture.require_writable();
  const planning::SearchResult v = search_of(a);
  if (!a.csv.empty()) checkpoint::write_output("--csv", a.csv, report::search_csv(v), kCsv);
  if (!a.html.empty()) checkpoint::write_output("--html", a.html, report::search_html(v), kHtml);
  picture.write(report::search_page(v));
  if (a.common.json)
    fmt::print(result_stream(), "{}\n", report::search_json(v));
  else if (!a.common.quiet)
    fmt::print("{}", report::search_table(v, report::terminal_of(1)));
  return v.best.empty() ? Exit::kDoesNotFit : Exit::kDone;
}

}  // namespace trainhost::cli
