// Renders a plan as tables for a terminal: components by memory tier, total compared with the budget, notes,
// suggested changes and limits.
#include <fmt/format.h>

#include <algorithm>

#include "core/base/text.hpp"
#include "core/report/changes_table.hpp"
#include "core/report/comparison.hpp"
#include "core/report/file_keys.hpp"
#include "core/report/plan_report.hpp"
#include "core/report/terminal.hpp"
#include "core/report/text_table.hpp"
#include "core/report/unjudged_text.hpp"

namespace trainhost::report {
namespace {

/// Symbols of docs/memory-model.md: L layers, H hidden size, A heads, K key and value heads, D head
/// dimension, I intermediate size, V vocabulary. The name comes from a file, so the line is escaped.
/// A space at which wrapped() divides no line: between a symbol and its value.
constexpr char kTogether = '\x1f';

std::string model_line(const planning::PlanResult& v, const Terminal& t) {
  const ModelSpec& m = v.model;
  std::string line = fmt::format("{}  {}", m.name.empty() ? m.family : m.name, m.family);
  if (v.parameters_known) line += fmt::format(", {} parameters", format_count(v.parameters.total));
  if (v.active_parameters) line += fmt::format(", {} active", format_count(v.active_parameters));
  if (v.trained_parameters.value_or(0))
    line += fmt::format(", {} trained", format_count(*v.trained_parameters));
  line = escaped(line, 300) + fmt::format("  (L{0}{1}, H{0}{2}, A{0}{3}, K{0}{4}, D{0}{5}, I{0}{6}, V{0}{7})",
                                          kTogether, m.layers, m.hidden, m.heads, m.kv_heads, m.head_dim,
                                          m.intermediate, m.vocab);
  line = wrapped(line, line_width(t), "    ");
  std::replace(line.begin(), line.end(), kTogether, ' ');
  return line;
}

/// "--for pytorch or fsdp2 plans the others, with --lora or --qlora adapters (...)".
std::string how_to_plan_the_others(const planning::PlanResult& v) {
  std::vector<std::string> names;
  std::string adapters;
  for (const planning::FrameworkAnswer& a : v.framework_answers) {
    if (std::ranges::find(names, a.framework) == names.end()) names.push_back(a.framework);
    if (a.settings.find("all-linear") != a.settings.npos)
      adapters = ", with --lora or --qlora adapters (and --set train.recompute=full)";
    else if (!a.settings.empty())
      adapters = ", adapters with --set for each of " + a.settings;
  }
  return fmt::format("--for {} plans the others{}", fmt::join(names, " or "), adapters);
}

/// The first estimate, and the same run in a framework: one row each.
std::string framework_table(const planning::PlanResult& v, const Terminal& t) {
  if (!v.no_framework_answer.empty())
    return wrapped("  PyTorch: " + escaped(v.no_framework_answer, 400), line_width(t), "    ") + "\n";
  if (v.framework_answers.empty() || v.estimates.empty()) return "";
  const planning::Estimate& own = v.estimates.front();
  Table table("lrll");
  table.row({"planned as", "compute memory", "kind", "verdict"});
  table.rule();
  // An approximation is of a run that no trainer here executes.
  const std::string own_trainer = own.report.claim != Claim::kExact ? "estimator " + own.report.source
                                  : v.mode.empty()                  ? "trainhost"
                                                   : fmt::format("trainhost, {} {}", v.backend, v.mode);
  table.row({own_trainer, format_bytes(own.compute_bytes), display_name(own.report.claim),
             verdict_text(v.verdict(own), own.compute_bytes, v.budget_bytes)});
  for (const planning::FrameworkAnswer& a : v.framework_answers)
    table.row({a.text, format_bytes(a.estimate.compute_bytes), display_name(a.estimate.report.claim),
               verdict_text(a.verdict(), a.estimate.compute_bytes, a.budget_bytes)});
  return table.str({.width = line_width(t), .drop = {2}}) +
         wrapped(fmt::format("  The first row in detail; {}:", how_to_plan_the_others(v)), line_width(t),
                 "    ") +
         "\n";
}

std::string note_line(const std::string& text, const Terminal& t) {
  return wrapped("  note: " + text, line_width(t), "    ") + "\n";
}

/// One row per component, in the order of the enumerators. Bytes at the peak of the tier, not maxima: the
/// rows then add up to the total (docs/memory-model.md, "Where the peak is computed").
void add_tier(Table& table, const planning::Estimate& e, Tier tier) {
  std::uint64_t total = e.report.tier_bytes(tier);
  for (const auto& [c, sum] : component_bytes_of(e.report, tier)) {
    if (sum.bytes == 0) continue;
    double share = total ? static_cast<double>(sum.bytes) / static_cast<double>(total) : 0;
    table.row({display_name(c), format_bytes(sum.bytes), format_count(sum.bytes),
               fmt::format("{:.1f} %", 100 * share), bar(share, kBarWidth)});
  }
}

std::string compared_with(std::uint64_t bytes, std::uint64_t budget, const std::string& source,
                          const Terminal& t) {
  const std::string where = fmt::format("{} ({})", format_bytes(budget), source);
  if (bytes <= budget) return fmt::format("{} in {}", styled(t, Style::kGood, "fits"), where);
  return fmt::format("{} in {}: {} over the budget", styled(t, Style::kBad, "does not fit"), where,
                     format_bytes(bytes - budget));
}

/// All tiers of one estimate, then the comparison with the budgets. The compute tier has its own budget;
/// pinned and host memory together have the host budget, which exists only if the compute tier is a device.
std::string estimate_table(const planning::PlanResult& v, const planning::Estimate& e, const Terminal& t) {
  const auto line = [&](const std::string& text) { return wrapped(text, line_width(t), "    ") + "\n"; };
  std::string out;
  std::vector<std::string> dropped;
  for (Tier tier : kAllTiers) {
    std::uint64_t bytes = e.report.tier_bytes(tier);
    if (bytes == 0) continue;
    Table table("nrrrl");
    add_tier(table, e, tier);
    table.rule();
    std::string peak_phase;
    for (const TierPeak& p : e.report.tiers)
      if (p.tier == tier) peak_phase = fmt::format("peak in {}", name(p.peak_at));
    table.row({total_label(tier), format_bytes(bytes), format_count(bytes), display_name(e.report.claim),
               peak_phase});
    out += table.str({.width = line_width(t),
                      .drop = {4, 3, 2},
                      .headings = {"component", "size", "bytes", "share", ""},
                      .dropped = &dropped});
  }
  out += dropped_columns_note(dropped, "--json", line_width(t));
  if (v.rank > 0)
    out += line(fmt::format("  per process: of rank {} of {}{}", v.rank - 1, v.ranks,
                            v.rank == 1 ? ", which needs most" : ""));
  else if (v.ranks > 1)
    out += line(
        fmt::format("  per device: the one of {} devices that needs most memory", format_count(v.ranks)));
  // One line, so that "fits" is never read without the memory that nothing is known about.
  const std::string unjudged = unjudged_text(v.unjudged_host(e), e.disk_bytes);
  if (v.budget_known)
    out += line(std::string("  ") + (e.host_bytes + e.disk_bytes == 0 ? "" : "device memory ") +
                compared_with(e.compute_bytes, v.budget_bytes, v.budget_source, t) +
                (unjudged.empty() ? "" : "; " + unjudged));
  else
    out +=
        line("  budget " + v.budget_source + "; set --device=NAME or --budget=SIZE to see whether it fits") +
        (unjudged.empty() ? "" : line("  " + unjudged));
  if (const std::string more = needs_more_text(v.file_keys); !more.empty()) out += line("  " + more);
  if (v.unjudged_host(e)) out += line(std::string("  ") + kHostBudgetHint);
  if (v.host_budget_known())
    out += line("  host memory " + compared_with(e.host_bytes, v.host_budget_bytes, v.host_budget_source, t));
  return out;
}

}  // namespace

std::string memory_table(const planning::PlanResult& v, const Terminal& t) {
  std::string out = styled(t, Style::kBold, model_line(v, t)) + "\n";
  if (!v.run_line.empty())
    out += wrapped("  " + v.run_line + (v.mode.empty() ? "" : ", " + v.backend + " " + v.mode), line_width(t),
                   "    ") +
           "\n";
  if (!v.assumed.empty())
    out += wrapped(fmt::format("  assumed: {}", fmt::join(v.assumed, ", ")), line_width(t), "    ") + "\n";
  out += framework_table(v, t);
  for (const planning::Estimate& e : v.estimates) {
    // The exact estimator is the normal case; its name is printed only where another one could be meant.
    if (v.estimates.size() > 1 || e.report.source != "llama")
      out += styled(t, Style::kAccent,
                    wrapped(fmt::format("estimator {} ({})", e.report.source, display_name(e.report.claim)),
                            line_width(t), "  ")) +
             "\n";
    out += estimate_table(v, e, t);
    for (const std::string& n : e.report.notes) out += note_line(n, t);
  }
  if (v.estimator_rule.starts_with("memory."))
    out += note_line("the estimator was chosen by " + v.estimator_rule, t);
  if (v.estimates.size() > 1)
    out += styled(t, Style::kAccent, "comparison of the estimates") + "\n" + comparison_table(v, t);
  for (const std::string& n : v.notes) out += note_line(n, t);
  return out + file_keys_text(v.file_keys, t) + changes_table(v, t) + limits_table(v, t);
}

}  // namespace trainhost::report
