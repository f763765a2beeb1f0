// The page of runs: report.html (one run that has ended), `compare` (several), and with `live` the page of
// `train --live` and `watch`, which is the same page while the runs go on.
#pragma once
#include <string>
#include <vector>

#include "core/report/html_chart.hpp"
#include "core/report/html_page.hpp"
#include "core/report/run_table.hpp"

namespace trainhost::report {

/// The curves of the runs, in the order in which the page shows them. Charts without values are left out.
std::vector<html::LineChart> run_charts(const RunRecords& runs);

/// Points of each curve for a page of `runs` runs that is to stay below 300 KB.
std::size_t points_of_page(std::size_t runs);

/// The whole page. `live`: it asks its server for updates; `more`: further charts. `command`: the
/// command line that created it.
html::Page run_page(const RunRecords& runs, const std::string& command, bool live = false,
                    const std::vector<html::LineChart>& more = {});
/// run_page() as a file.
std::string run_html(const RunRecords& runs, const std::string& command, bool live = false,
                     const std::vector<html::LineChart>& more = {});
/// What has changed on a live page, as the JSON text that the script reads: {"title", "ended", "charts",
/// "parts": {id: HTML}}.
std::string run_update(const RunRecords& runs, const std::vector<html::LineChart>& more);

}  // namespace trainhost::report
