// Report of a stage: a sink of rank_breakdown.hpp that builds entries with formulas. Entries with the same
// name (several chunks or kinds of layers) are merged: bytes added, formulas joined by " + ". Also one note
// per stage. Unlike rank_totals.cpp it may allocate and throw: it runs once per plan, not once per layout.
// Both get their bytes from the same list, so a report cannot differ from the search.
#include <cassert>

#include "core/base/error.hpp"
#include "core/base/text.hpp"
#include "core/parallel/rank_breakdown.hpp"
#include "core/parallel/rank_memory.hpp"

namespace trainhost::parallel {
namespace {

constexpr std::size_t kLongFormula = 400;   // characters; about four lines in a terminal
constexpr std::uint32_t kStageLines = 256;  // a report has at most a thousand notes

struct ReportSink {
  // One entry per kind of activation, not one for all (state_entries.hpp).
  static constexpr bool kPerTensor = true;
  std::vector<MemoryEntry> entries;

  template <class Name, class Formula>
  // Name and formula are functions, so that the sinks of the search never build text.
  void add(const Entry& f, Name&& name, Formula&& formula) {
    // A saturated size is an error here; the search only needs it to be largest.
    if (f.bytes.too_large()) throw_too_large(("the size of " + name()).c_str());
    MemoryEntry n;
    n.tier = f.tier, n.component = f.component, n.claim = f.claim, n.phases = f.phases;
    n.bytes = f.bytes.value(), n.bytes_at_peak = f.at_peak ? n.bytes : 0, n.has_at_peak = true;
    n.name = name(), n.formula = formula();
    // Linear search: at most about a hundred names per stage.
    for (MemoryEntry& known : entries)
      if (known.name == n.name && known.tier == n.tier && known.component == n.component)
        return join(known, n);
    // Ids count from 1; parent = 0 is the root.
    n.id = static_cast<std::uint32_t>(entries.size() + 1);
    bounds(n);
    entries.push_back(std::move(n));
  }

 private:
  static void join(MemoryEntry& into, const MemoryEntry& n) {
    into.bytes = checked_add(into.bytes, n.bytes, "a component's bytes");
    into.bytes_at_peak = checked_add(into.bytes_at_peak, n.bytes_at_peak, "a component's bytes");
    if (into.formula.size() + n.formula.size() < kLongFormula)
      into.formula += " + " + n.formula;
    else if (!into.formula.ends_with(" + ..."))
      into.formula += " + ...";
    bounds(into);
  }
  /// Bounds of approximations: +- 25 %, more than the error of every measured run in README.md; constants and
  /// gaps: up to a factor of two, because they depend on driver and allocator.
  static void bounds(MemoryEntry& n) {
    const bool exact = n.claim == Claim::kExact,
               rough = n.component == Component::kRuntime || n.component == Component::kFragmentation;
    assert(n.bytes <= kMaxBytes);  // so the sum below cannot overflow
    const std::uint64_t slack = exact ? 0 : rough ? n.bytes : n.bytes / 4;
    n.lo = n.bytes - slack, n.hi = std::min(kMaxBytes, n.bytes + slack);
  }
};

std::string stage_line(const model::Architecture& a, const LayerKinds& kinds, const RunSpec& r,
                       std::uint32_t stage) {
  const Numbers n = stage_numbers(a, kinds, r, stage);
  const Stage s(a, kinds, r, stage);
  // The chunks of an interleaved stage have different numbers of micro-batches in flight; the largest is
  // shown.
  std::uint64_t layers = 0, in_flight = 0;
  s.segments([&](const Segment& g) { layers += g.count, in_flight = std::max(in_flight, g.in_flight); });
  std::string line = "Stage " + std::to_string(stage) + ": " + format_bytes(n.tier(Tier::kDevice)) +
                     " on the device, " + std::to_string(layers) + (layers == 1 ? " layer" : " layers");
  if (!infers(r))
    line += ", " + std::to_string(in_flight) +
            (in_flight == 1 ? " micro-batch in flight" : " micro-batches in flight");
  if (s.first()) line += ", embedding";
  if (s.last()) line += a.tied && !s.first() ? ", head (a copy of the embedding)" : ", head";
  return line + ".";
}

}  // namespace

// Bytes per tier are those of the peak; entries that exist only elsewhere have 0 there.
MemoryReport stage_report(const model::Architecture& a, const RunSpec& r, std::uint32_t stage) {
  ReportSink sink;
  list_entries(a, LayerKinds(a), r, stage, sink);
  MemoryReport report;
  report.claim = Claim::kApproximation;
  report.entries = std::move(sink.entries);
  for (Tier t : kAllTiers) {
    std::uint64_t sum = 0;
    for (const MemoryEntry& n : report.entries)
      if (n.tier == t) sum = checked_add(sum, n.bytes_at_peak, "the memory of one rank");
    if (sum) report.tiers.push_back({t, sum, infers(r) ? kGenerate : kBackward});
  }
  return report;
}

MemoryReport report(const model::Architecture& a, const RunSpec& r) {
  // Kinds are found once: their number, not the number of layers, bounds the work per stage.
  const LayerKinds kinds(a);
  const std::uint32_t worst = worst_stage(a, kinds, r);
  MemoryReport out = stage_report(a, r, worst);
  if (r.parallel.pipeline == 1) return out;
  out.notes.push_back("The estimate is for stage " + std::to_string(worst) + " of " +
                      std::to_string(r.parallel.pipeline) + ", which needs most memory.");
  out.notes.push_back(stage_line(a, kinds, r, worst));
  // Each line costs a breakdown of its stage.
  const std::uint32_t shown = std::min(r.parallel.pipeline, kStageLines);
  for (std::uint32_t stage = 0; stage < shown; ++stage)
    if (stage != worst) out.notes.push_back(stage_line(a, kinds, r, stage));
  if (shown < r.parallel.pipeline)
    out.notes.push_back("Stages from " + std::to_string(shown) + " on are not listed.");
  return out;
}

}  // namespace trainhost::parallel
