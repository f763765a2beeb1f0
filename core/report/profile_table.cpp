// Renders a profile for a terminal: operations by time, memory at four points of a step, the peak by layer
// and component.
#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <map>
#include <numeric>

#include "core/base/text.hpp"
#include "core/report/profile_report.hpp"
#include "core/report/terminal.hpp"
#include "core/report/text_table.hpp"

namespace trainhost::report {
namespace {

/// 0 where the whole is 0, so that an empty profile prints zeros instead of nan.
double share(std::uint64_t part, std::uint64_t whole) {
  return whole ? static_cast<double>(part) / static_cast<double>(whole) : 0;
}
std::string percent(std::uint64_t part, std::uint64_t whole) {
  return fmt::format("{:.1f} %", 100 * share(part, whole));
}
/// Units per nanosecond, which equals G-units per second.
std::string giga_per_second(std::uint64_t amount, std::uint64_t ns) {
  return amount && ns ? fmt::format("{:.1f}", share(amount, ns)) : "";
}

/// By time, largest first; norms and elementwise operations are added up in one row, as none of them has a
/// rate that the reader could improve on its own. Ties keep their order.
std::vector<training::OpKindRow> rows_by_time(const training::ProfileResult& v) {
  std::vector<training::OpKindRow> out;
  training::OpKindRow small{.kind = "norms and elementwise"};
  for (const training::OpKindRow& k : v.kinds) {
    if (!k.elementwise) {
      out.push_back(k);
      continue;
    }
    small.calls += k.calls, small.ns += k.ns, small.bytes += k.bytes;
  }
  if (small.calls) out.push_back(small);
  std::stable_sort(out.begin(), out.end(),
                   [](const training::OpKindRow& a, const training::OpKindRow& b) { return a.ns > b.ns; });
  return out;
}

/// "all_reduce, start", "wait for ranks".
std::string kind_text(const training::OpKindRow& k) {
  if (!k.communication) return k.kind;
  if (k.kind == "wait") return "wait for ranks";
  return k.kind == "sum_scalars" ? "sum of scalars of ranks" : k.kind + ", start";
}

/// How long each rank computes and waits, and what it sends; of many ranks those that compute longest. A rank
/// that is slower than the others waits the least.
std::string ranks_table(const std::vector<training::RankTime>& ranks, Fit fit) {
  constexpr std::size_t kMost = 16;
  std::vector<std::size_t> order(ranks.size());
  std::iota(order.begin(), order.end(), 0);
  if (ranks.size() > kMost) {
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return ranks[a].compute_ms > ranks[b].compute_ms; });
    order.resize(kMost);
  }
  Table table("nrrrr");
  table.row({"ranks, per step", "compute, ms", "wait, ms", "share", "sent"});
  const std::size_t slowest = training::slowest_rank(ranks);
  for (const std::size_t r : order) {
    const training::RankTime& t = ranks[r];
    const double step_ms = t.compute_ms + t.wait_ms;
    table.row({fmt::format("rank {}{}", r, r == slowest ? " (slowest)" : ""),
               fmt::format("{:.3f}", t.compute_ms), fmt::format("{:.3f}", t.wait_ms),
               fmt::format("{:.1f} %", step_ms > 0 ? 100 * t.wait_ms / step_ms : 0),
               format_bytes(static_cast<std::uint64_t>(t.bytes))});
  }
  fit.drop = {3, 4};
  std::string text = table.str(fit);
  if (ranks.size() > order.size())
    text += fmt::format("  the {} slowest of {} ranks\n", order.size(), ranks.size());
  return text;
}

/// Times are averages per step, rates are over the whole time of the kind. FLOP/s and bytes/s follow from
/// operation counts, not from hardware counters.
std::string kinds_table(const training::ProfileResult& v, const Fit& fit) {
  Table table("nrrrrr");
  table.row({"operation", "calls", "ms per step", "share", "GFLOP/s", "GB/s"});
  const auto ms = [&](std::uint64_t ns) {
    return fmt::format("{:.3f}", static_cast<double>(ns) * 1e-6 / static_cast<double>(v.steps));
  };
  training::OpKindRow all;
  for (const training::OpKindRow& k : rows_by_time(v)) {
    // What ranks send travels between the start and the wait, so neither has a rate.
    table.row({kind_text(k), format_count(k.calls / v.steps), ms(k.ns), percent(k.ns, v.step_ns),
               giga_per_second(k.flops, k.ns), k.communication ? "" : giga_per_second(k.bytes, k.ns)});
    all.calls += k.calls, all.flops += k.flops, all.bytes += k.communication ? 0 : k.bytes;
  }
  // Launch overhead, waiting and the host's own work; without this row the shares would not add up to 100 %.
  table.row({"between operations", "", ms(v.between_ns()), percent(v.between_ns(), v.step_ns), "", ""});
  table.rule();
  table.row({"one step", format_count(all.calls / v.steps), ms(v.step_ns), "",
             giga_per_second(all.flops, v.step_ns), giga_per_second(all.bytes, v.step_ns)});
  return table.str(fit);
}

std::string_view phase_text(std::string_view phase) {
  if (phase == "before_forward") return "before forward";
  if (phase == "after_forward") return "after forward";
  if (phase == "after_backward") return "after backward";
  return phase == "after_update" ? "after update" : phase;
}

/// Planned bytes at four points of a step, beside two measurements: bytes in use by the ledger, and VmRSS.
/// Resident memory of the first step is lower than that of the last where pages are touched late.
std::string phases_table(const training::ProfileResult& v, Fit fit) {
  Table table("nrrrrr");
  table.row({"memory during a step", "planned live", "share", "in use", "resident, first step", "last step"});
  for (const training::PhaseRow& m : v.phases)
    table.row({std::string(phase_text(m.phase)), m.planned_bytes ? format_bytes(m.planned_bytes) : "-",
               m.planned_bytes ? percent(m.planned_bytes, m.held_bytes) : "", format_bytes(m.held_bytes),
               format_bytes(m.resident_first_bytes), format_bytes(m.resident_bytes)});
  fit.drop = {4, 2, 5};
  return table.str(fit);
}

using Cells = std::map<Component, std::uint64_t>;

/// Layer -1 holds what belongs to no layer: embedding, head, loss.
std::string layers_name(std::int32_t first, std::int32_t last) {
  if (first < 0) return "outside layers";
  return first == last ? fmt::format("layer {}", first) : fmt::format("layers {}-{}, each", first, last);
}

/// Rows: layers; consecutive layers with equal bytes are one row. Columns: components that occur.
/// `sums` has the components that occur at all, so it fixes the columns; `total` is the peak in tensor bytes.
std::string peak_table(const training::ProfileResult& v, Fit fit) {
  std::map<std::int32_t, Cells> layers;
  Cells sums;
  std::uint64_t total = 0;
  for (const training::PeakEntry& c : v.peak)
    layers[c.layer][c.component] += c.bytes, sums[c.component] += c.bytes, total += c.bytes;
  Table table("n" + std::string(sums.size() + 3, 'r'));
  // `ms` is empty for rows without time of their own.
  const auto add = [&](const std::string& head, const Cells& cells, const std::string& ms) {
    std::vector<std::string> row = {head};
    std::uint64_t all = 0;
    for (const auto& [c, sum] : sums) {
      const auto at = cells.find(c);
      row.push_back(at == cells.end() || at->second == 0 ? "" : format_bytes(at->second));
      if (at != cells.end()) all += at->second;
    }
    row.insert(row.end(), {format_bytes(all), percent(all, total), ms});
    table.row(std::move(row));
  };
  std::vector<std::string> head = {"planned peak"};
  for (const auto& [c, sum] : sums) {
    std::string text(name(c));
    std::replace(text.begin(), text.end(), '_', ' ');
    head.push_back(text);
  }
  head.insert(head.end(), {"all", "share", "ms per step"});
  table.row(std::move(head));
  // Runs of equal layers. Map order is layer order; rows outside layers (-1) are never merged with others.
  // The time of a merged row is the average over its n layers.
  for (auto at = layers.begin(); at != layers.end();) {
    auto last = at;
    std::uint64_t ns = 0, n = 0;
    for (auto next = at; next != layers.end() && next->second == at->second && (next == at || at->first >= 0);
         ++next) {
      last = next, ++n;
      if (next->first >= 0 && static_cast<std::size_t>(next->first) < v.layer_ns.size())
        ns += v.layer_ns[static_cast<std::size_t>(next->first)];
    }
    add(layers_name(at->first, last->first), at->second,
        ns ? fmt::format("{:.3f}", static_cast<double>(ns) * 1e-6 / static_cast<double>(n * v.steps)) : "");
    assert(n > 0 && last->first >= at->first);
    at = std::next(last);
  }
  table.rule();
  std::vector<std::string> shares = {"share"};
  for (const auto& [c, sum] : sums) shares.push_back(percent(sum, total));
  shares.insert(shares.end(), {"", "", ""});
  add("all", sums, "");
  table.row(std::move(shares));
  // The time, components from the right, then the share.
  const std::size_t all = sums.size() + 1;
  fit.drop = {all + 2};
  for (std::size_t column = all - 1; column > 0; --column) fit.drop.push_back(column);
  fit.drop.push_back(all + 1);
  return table.str(fit);
}

}  // namespace

std::string profile_table(const training::ProfileResult& v, const Terminal& t) {
  if (v.steps == 0) return "profile: no step was executed\n";
  std::vector<std::string> dropped;
  const Fit fit{.width = line_width(t), .drop = {1, 5, 4}, .dropped = &dropped};
  const auto line = [&](const std::string& text) { return wrapped(text, line_width(t), "    ") + "\n"; };
  std::string out =
      styled(t, Style::kBold,
             fmt::format("profile of {} step{}{}", format_count(v.steps), v.steps == 1 ? "" : "s",
                         v.without_first ? ", without the first" : "")) +
      "\n";
  out += kinds_table(v, fit) + "\n";
  if (!v.ranks.empty()) out += ranks_table(v.ranks, fit) + "\n";
  out += phases_table(v, fit) + "\n";
  if (!v.peak.empty()) {
    std::uint64_t tensors = 0;
    // The ledger also counts the host's buffers, which belong to no operation; they are named apart so that
    // both sums can be checked.
    for (const training::PeakEntry& c : v.peak) tensors += c.bytes;
    out += peak_table(v, fit) +
           line(fmt::format("  peak at {}", v.peak_at) +
                (v.used_bytes > tensors
                     ? fmt::format("; plus {} of host buffers", format_bytes(v.used_bytes - tensors))
                     : ""));
  } else
    out += line("  no peak by layer: the trainer does not use the host's memory plan");
  out += dropped_columns_note(dropped, fit.see, fit.width);
  // The plan may exceed the measurement, for example when evaluation never ran; the difference is then 0.
  const double ratio = v.fragmentation();
  const std::string_view severity = training::fragmentation_severity(ratio);
  out += line(fmt::format("  fragmentation {:.2f} % of {} allocated ({} bytes): {}", 100 * ratio,
                          format_bytes(v.allocated_bytes),
                          format_count(v.allocated_bytes - std::min(v.allocated_bytes, v.used_bytes)),
                          styled(t, severity == "normal" ? Style::kGood : Style::kBad, severity)));
  if (!v.trace.empty())
    // Steps are counted from 1; 0 means that the requested range was never reached.
    out += line(v.traced_first ? fmt::format("  trace of steps {} to {} in {}: open it in ui.perfetto.dev",
                                             v.traced_first, v.traced_last, escaped(v.trace, 4096))
                               : fmt::format("  {} contains no step", escaped(v.trace, 4096)));
  return out;
}

}  // namespace trainhost::report
