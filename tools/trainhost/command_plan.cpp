// trainhost plan: the memory of a run and whether it fits. Reads no training data and queries no device
// except the free memory that serves as the default budget.
#include <fmt/format.h>

#include <cstdint>
#include <cstdlib>
#ifdef __GLIBC__
#include <malloc.h>
#include <sys/mman.h>
#include <unistd.h>
#endif

#include "core/checkpoint/output_file.hpp"
#include "core/report/picture.hpp"
#include "core/report/plan_report.hpp"
#include "core/report/terminal.hpp"
#include "tools/trainhost/planned_results.hpp"
#include "tools/trainhost/result_stream.hpp"
#include "tools/trainhost/run_setup.hpp"
#include "tools/trainhost/web_page.hpp"

namespace trainhost::cli {

/// A plan frees and allocates lists of some MiB for each change that it tries. The process keeps freed
/// memory, so that its pages are mapped once, and asks for large pages. Without either the plan is only
/// slower.
static void keep_freed_memory() {
#ifdef __GLIBC__
  constexpr int kMost = 64 << 20, kGrowth = 32 << 20;
  mallopt(M_MMAP_THRESHOLD, kMost / 2);
  mallopt(M_TRIM_THRESHOLD, kMost);
  mallopt(M_TOP_PAD, kGrowth);
  // The heap grows by kGrowth here. volatile: the pair of calls is not optimized away.
  void* volatile block = std::malloc(kGrowth / 32);
  std::free(block);
  constexpr std::uintptr_t kLargePage = 2 << 20;
  const auto end = reinterpret_cast<std::uintptr_t>(::sbrk(0)) / kLargePage * kLargePage;
  ::madvise(reinterpret_cast<void*>(end - kGrowth + kLargePage), kGrowth - kLargePage, MADV_HUGEPAGE);
#endif
}

Exit run(const PlanArguments& a) {
  keep_freed_memory();
  // Before any computation: a plan with all limits can take seconds, and would be lost.
  constexpr const char *kHtml = "--html plan.html", *kCsv = "--csv plan.csv";
  if (!a.html.empty()) checkpoint::require_writable("--html", a.html, kHtml);
  if (!a.csv.empty()) checkpoint::require_writable("--csv", a.csv, kCsv);
  constexpr const char* kSnapshot = "--memory-snapshot step.pickle";
  if (!a.memory_snapshot.empty())
    checkpoint::require_writable("--memory-snapshot", a.memory_snapshot, kSnapshot);
  if (a.print_run) {
    const runfile::RunConfig c = load_config(a.common, target_overrides(a.common, a.target));
    fmt::print("{}", runfile::without_defaults(c.resolved()));
    return Exit::kDone;
  }
  if (!a.web.empty()) {
    show_planner_page(a);
    return Exit::kDone;
  }
  const report::PictureFiles picture{a.picture.svg, a.picture.png};
  picture.require_writable();
  const planning::PlanResult v = plan_of(a);
  if (!a.html.empty()) checkpoint::write_output("--html", a.html, report::plan_html(v), kHtml);
  picture.write(report::plan_page(v));
  if (!a.csv.empty()) checkpoint::write_output("--csv", a.csv, report::plan_csv(v), kCsv);
  if (v.snapshot)
    checkpoint::write_output("--memory-snapshot", a.memory_snapshot,
                             report::memory_snapshot_pickle(*v.snapshot), kSnapshot);
  const report::Terminal terminal = report::terminal_of(1);
  if (a.common.json)
    fmt::print(result_stream(), "{}\n", report::plan_json(v));
  else if (!a.common.quiet)
    fmt::print("{}{}", report::memory_table(v, terminal),
               a.explain ? report::explain_table(v, terminal) : "");
  return v.estimates.front().fits ? Exit::kDone : Exit::kDoesNotFit;
}

}  // namespace trainhost::cli
