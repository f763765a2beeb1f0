// trainhost search: the best parallel layouts of a model on N devices. Reads no training data and queries no
// device.
#include <fmt/format.h>

#include <set>

#include "core/checkpoint/output_file.hpp"
#include "core/planning/search_layouts.hpp"
#include "core/report/plan_report.hpp"
#include "core/report/terminal.hpp"
#include "core/training/batches.hpp"
#include "tools/trainhost/result_stream.hpp"
#include "tools/trainhost/run_setup.hpp"

namespace trainhost::cli {
namespace {

/// The keys that the search will choose, so that loading the run does not reject combinations with them:
/// `--set parallel.expert=8` alone is valid here, because the search finds the data-parallel ranks for it.
/// None without --devices: then the run file itself states the number of ranks and must be a valid run.
std::set<std::string> keys_to_search(const planning::SearchRequest& request) {
  std::set<std::string> keys;
  if (!request.devices) return keys;
  for (const char* key : planning::kSearchedKeys)
    if (!request.fixed.count(key)) keys.insert(key);
  return keys;
}

}  // namespace

Exit run(const SearchArguments& a) {
  constexpr const char *kCsv = "--csv layouts.csv", *kHtml = "--html search.html";
  planning::SearchRequest request;
  request.devices = a.devices;
  request.global_batch = a.global_batch;
  request.top = a.top;
  request.threads = a.threads;
  request.every = a.every;
  for (const runfile::Override& o : overrides(a.common)) request.fixed.insert(o.key);
  if (!a.csv.empty()) checkpoint::require_writable("--csv", a.csv, kCsv);
  if (!a.html.empty()) checkpoint::require_writable("--html", a.html, kHtml);
  runfile::RunConfig c = load_config(a.common, target_overrides(a.target), keys_to_search(request));
  planning::SearchResult v = planning::search_layouts(c, request);
  v.file_keys = c.file_keys;
  v.command = command_line();
  if (!a.csv.empty()) checkpoint::write_output("--csv", a.csv, report::search_csv(v), kCsv);
  if (!a.html.empty()) checkpoint::write_output("--html", a.html, report::search_html(v), kHtml);
  if (a.common.json)
    fmt::print(result_stream(), "{}\n", report::search_json(v));
  else if (!a.common.quiet)
    fmt::print("{}", report::search_table(v, report::terminal_of(1)));
  return v.best.empty() ? Exit::kDoesNotFit : Exit::kDone;
}

}  // namespace trainhost::cli
