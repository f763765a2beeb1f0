// trainhost compare: compares the results and settings of runs, which it reads from their folders.
#include <fmt/format.h>

#include "core/checkpoint/output_file.hpp"
#include "core/report/picture.hpp"
#include "core/report/run_page.hpp"
#include "core/report/terminal.hpp"
#include "tools/trainhost/result_stream.hpp"
#include "tools/trainhost/run_setup.hpp"

namespace trainhost::cli {

Exit run(const CompareArguments& a) {
  constexpr const char* kHtml = "--html compare.html";
  constexpr std::size_t kMost = 32;
  if (a.runs.size() > kMost)
    throw usage_error(fmt::format("{} runs are given; at most {} can be compared", a.runs.size(), kMost),
                      "compare them in groups");
  if (!a.html.empty()) checkpoint::require_writable("--html", a.html, kHtml);
  const report::PictureFiles picture{a.picture.svg, a.picture.png};
  picture.require_writable();
  report::RunRecords runs;
  for (const std::string& folder : a.runs) {
    runs.push_back(std::make_unique<report::RunRecord>(folder, report::points_of_page(a.runs.size())));
    runs.back()->require_run();
  }
  if (!a.html.empty())
    checkpoint::write_output("--html", a.html, report::run_html(runs, command_line()), kHtml);
  picture.write(report::run_page(runs, command_line()));
  if (a.common.json)
    fmt::print(result_stream(), "{}\n", report::compare_json(runs));
  else if (!a.common.quiet)
    fmt::print("{}", report::compare_table(runs, report::terminal_of(1)));
  return Exit::kDone;
}

}  // namespace trainhost::cli
