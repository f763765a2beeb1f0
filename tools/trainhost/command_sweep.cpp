// trainhost sweep: memory against one key of the run file. Reads no training data.
#include <fmt/format.h>

#include "core/checkpoint/output_file.hpp"
#include "core/report/picture.hpp"
#include "core/report/plan_report.hpp"
#include "core/report/terminal.hpp"
#include "tools/trainhost/planned_results.hpp"
#include "tools/trainhost/result_stream.hpp"

namespace trainhost::cli {

Exit run(const SweepArguments& a) {
  constexpr const char *kHtml = "--html sweep.html", *kCsv = "--csv sweep.csv";
  if (a.over.empty())
    throw usage_error("trainhost sweep needs --over KEY=VALUES",
                      "for example --over data.seq_len=512..16384");
  if (!a.html.empty()) checkpoint::require_writable("--html", a.html, kHtml);
  if (!a.csv.empty()) checkpoint::require_writable("--csv", a.csv, kCsv);
  const report::PictureFiles picture{a.picture.svg, a.picture.png};
  picture.require_writable();
  const planning::SweepResult v = sweep_of(a);
  if (!a.csv.empty()) checkpoint::write_output("--csv", a.csv, report::sweep_csv(v), kCsv);
  if (!a.html.empty()) checkpoint::write_output("--html", a.html, report::sweep_html(v), kHtml);
  picture.write(report::sweep_page(v));
  if (a.common.json)
    fmt::print(result_stream(), "{}\n", report::sweep_json(v));
  else if (!a.common.quiet)
    fmt::print("{}", report::sweep_table(v, report::terminal_of(1)));
  return Exit::kDone;
}

}  // namespace trainhost::cli
