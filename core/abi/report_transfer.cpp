// See report_transfer.hpp. A report is a sequence of nodes in which parents precede their children. The
// collector checks each node when it arrives, so a plugin gets the error at the call that caused it, and the
// checks that need all nodes in take().
#include "core/abi/report_transfer.hpp"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <string_view>
#include <vector>

#include "core/abi/enums.hpp"
#include "core/abi/error_guard.hpp"
#include "core/base/checked.hpp"
#include "core/base/text.hpp"

namespace trainhost::abi {
namespace {

// Limits of one report. A plugin in an endless loop of nodes fails after 10^6 of them instead of exhausting
// the memory of the host.
constexpr std::size_t kMaxNodes = 1'000'000 - 1, kMaxNotes = 1000, kMaxText = 2000;
constexpr std::size_t kMaxAllText = 64u << 20;  // names and formulas of one report, bytes

std::size_t index(Tier t) { return static_cast<std::size_t>(t); }

/// Untrusted text, limited in length; escaped unless it is printable UTF-8. Stored escaped, so that every
/// later use is safe without escaping again.
std::string text_from(const char* s) {
  if (!s) return {};
  std::string_view t(s, ::strnlen(s, kMaxText));
  bool plain = valid_utf8(t) &&
               std::none_of(t.begin(), t.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; });
  return plain ? std::string(t) : escaped(t, kMaxText);
}

th_mem to_c(const MemoryEntry& n) {
  th_mem c{};
  c.struct_size = sizeof c;
  c.id = n.id;
  c.parent = n.parent;
  c.tier = static_cast<std::uint32_t>(n.tier);
  c.component = static_cast<std::uint32_t>(n.component);
  c.claim = static_cast<std::uint32_t>(n.claim);
  c.phases = n.phases;
  c.flags = n.has_at_peak ? TH_MEM_HAS_AT_PEAK : 0u;
  c.bytes = n.bytes;
  c.lo = n.lo;
  c.hi = n.hi;
  c.bytes_at_peak = n.bytes_at_peak;
  c.name = n.name.c_str();
  c.formula = n.formula.empty() ? nullptr : n.formula.c_str();
  return c;
}

/// The summary may be of an older, shorter layout: every field is tested against struct_size before it is
/// written.
void write_summary(const MemoryReport& r, th_mem_summary* s) {
  if (!s) return;
  if (TH_HAS(s, th_mem_summary, claim)) s->claim = static_cast<std::uint32_t>(r.claim);
  if (TH_HAS(s, th_mem_summary, digest)) s->digest = r.digest;
  for (const TierPeak& p : r.tiers) {
    if (TH_HAS(s, th_mem_summary, tier_peak)) s->tier_peak[index(p.tier)] += p.bytes;
    if (TH_HAS(s, th_mem_summary, peak_phase))
      s->peak_phase[index(p.tier)] = p.peak_at == kAlways ? 0u : static_cast<std::uint32_t>(p.peak_at);
  }
}

/// Completes unset (zero) bounds of a claim. Returns what is wrong with them, or nullptr. Afterwards lo <=
/// bytes <= hi holds for every entry; an exact entry has equal bounds, an upper bound has hi == bytes.
const char* settle_bounds(MemoryEntry& n) {
  bool unset = n.lo == 0 && n.hi == 0;
  switch (n.claim) {
    case Claim::kExact:
      if (unset) n.lo = n.hi = n.bytes;
      return n.lo == n.bytes && n.hi == n.bytes ? nullptr : "is exact, but lo, bytes and hi differ";
    case Claim::kUpperBound:
      if (unset) n.hi = n.bytes;
      return n.hi == n.bytes && n.lo <= n.bytes ? nullptr : "is an upper bound, but hi is not bytes";
    case Claim::kApproximation:
      if (unset && n.bytes != 0) return "is an approximation without lo and hi";
      return n.lo <= n.bytes && n.bytes <= n.hi ? nullptr : "is an approximation with bytes outside [lo, hi]";
  }
  return "has no claim";
}

/// By id: whether another entry names this one as its parent. One pass, because parents come first.
/// Parents are headings: their bytes repeat those of their children and are in no sum.
std::vector<bool> find_parents(const MemoryReport& r) {
  std::vector<bool> is_parent(r.entries.size() + 1);
  for (const MemoryEntry& n : r.entries) {
    assert(n.parent < n.id && n.id < is_parent.size());
    is_parent[n.parent] = true;
  }
  return is_parent;
}

/// The phase in which the entries of a tier sum to the most bytes; kAlways if all phases are equal.
/// For a tier whose peak the plugin does not state. Sums of parts, so checked against overflow.
Phase peak_phase_of(const MemoryReport& r, Tier t, const std::vector<bool>& is_parent) {
  std::uint64_t most = 0, least = UINT64_MAX;
  Phase at = kForward;
  for (std::uint32_t p = 1; p <= kAllPhases; p <<= 1) {
    std::uint64_t sum = 0;
    for (const MemoryEntry& n : r.entries)
      if (n.tier == t && !is_parent[n.id] && (n.phases == 0 || (n.phases & p)))
        sum = checked_add(sum, n.bytes, "a tier's total");
    if (sum > most) most = sum, at = static_cast<Phase>(p);
    least = std::min(least, sum);
  }
  return least == most ? static_cast<Phase>(kAlways) : at;
}

/// What the entries of one tier, without headings, say about its total.
struct TierSum {
  std::uint64_t at_peak = 0;
  bool all_have_peak_bytes = true, any = false;
  bool some_are_temporary =
      false;  // an entry without bytes_at_peak is live in some phases only: the sum is an upper bound
  const MemoryEntry* largest = nullptr;  // the largest exact entry without bytes_at_peak
};
TierSum sum_entries(const MemoryReport& r, Tier t, const std::vector<bool>& is_parent) {
  TierSum sum;
  for (const MemoryEntry& n : r.entries) {
    if (n.tier != t || is_parent[n.id]) continue;
    if (n.claim == Claim::kExact && !n.has_at_peak && (!sum.largest || n.bytes > sum.largest->bytes))
      sum.largest = &n;
    sum.any = true;
    sum.all_have_peak_bytes &= n.has_at_peak;
    sum.some_are_temporary |= !n.has_at_peak && n.phases != 0 && n.phases != kAllPhases;
    sum.at_peak = checked_add(sum.at_peak, n.bytes_at_peak, "a tier's total");
  }
  return sum;
}

}  // namespace

/// Plugins call this: the sink belongs to the host and may be shorter than that of this build.
void send_report(const MemoryReport& report, th_mem_sink* sink, th_mem_summary* summary) {
  const auto require_ok = [](th_status s) {
    if (s != TH_OK) throw StatusError(s, "the host rejected the report");
  };
  if (!sink || !TH_HAS(sink, th_mem_sink, node) || !sink->node)
    throw StatusError(TH_E_ARG, "the report sink has no node()");
  for (const MemoryEntry& n : report.entries) {
    th_mem c = to_c(n);
    require_ok(sink->node(sink, &c));
  }
  if (TH_HAS(sink, th_mem_sink, note) && sink->note)
    for (const std::string& note : report.notes) require_ok(sink->note(sink, note.c_str()));
  write_summary(report, summary);
}

/// The sink holds a pointer to this object, which therefore is neither copied nor moved.
Collector::Collector() {
  sink_->self = this;
  sink_->node = &on_node;
  sink_->note = &on_note;
}

/// The first violation is the one to report; later ones are often its consequences.
th_status Collector::reject(const std::string& why) {
  if (problem_.empty()) problem_ = why;
  return TH_E_ARG;
}

/// Called by the plugin through the C interface, so no exception may leave it. After take() the sink is
/// closed: a plugin that kept the pointer gets TH_E_STATE.
th_status Collector::on_node(th_mem_sink* sink, const th_mem* node) {
  auto* self = static_cast<Collector*>(sink->self);
  if (!self->open_) return TH_E_STATE;
  if (!node) return self->reject("a null memory node");
  try {
    return self->add(*node);
  } catch (...) {
    self->out_of_memory_ = true;
    return TH_E_HOST_OOM;
  }
}

th_status Collector::on_note(th_mem_sink* sink, const char* sentence) {
  auto* self = static_cast<Collector*>(sink->self);
  if (!self->open_) return TH_E_STATE;
  try {
    if (self->report_.notes.size() >= kMaxNotes) return self->reject("more than 1000 notes");
    if (sentence) self->report_.notes.push_back(text_from(sentence));
    return TH_OK;
  } catch (...) {
    self->out_of_memory_ = true;
    return TH_E_HOST_OOM;
  }
}

/// The order of the checks: first whether the struct is long enough to read at all, then the limits of the
/// report, then identity and enums, then sizes. Nothing is stored before all of them have passed.
th_status Collector::add(const th_mem& c) {
  std::string which = "memory node " + std::to_string(report_.entries.size() + 1);
  if (!TH_HAS(&c, th_mem, hi))
    return reject(which + " is truncated: struct_size " + std::to_string(c.struct_size));
  if (report_.entries.size() >= kMaxNodes)
    return reject("10^6 or more memory nodes; combine repeated entries");
  // Ids count from 1 without gaps, so an id is also the index + 1 and needs no map.
  if (c.id != report_.entries.size() + 1)
    return reject(which + " has id " + std::to_string(c.id) + ": ids count from 1 in the order of the calls");
  if (c.parent >= c.id)
    return reject(which + " has parent " + std::to_string(c.parent) + ", which was not sent before it");
  if (c.tier == 0 || c.tier > kLastTier)
    return reject(which + " has the unknown tier " + std::to_string(c.tier));
  if (c.component == 0 || c.component > kLastComponent)
    return reject(which + " has the unknown component " + std::to_string(c.component));
  if (c.claim == 0 || c.claim > kLastClaim)
    return reject(which + " has the unknown claim " + std::to_string(c.claim));
  if (std::max({c.bytes, c.lo, c.hi}) > kMaxBytes) return reject(which + " has a size of 2^63 bytes or more");
  MemoryEntry n;
  n.id = c.id;
  n.parent = c.parent;
  n.tier = static_cast<Tier>(c.tier);
  n.component = static_cast<Component>(c.component);
  n.claim = static_cast<Claim>(c.claim);
  // Unknown phase bits come from a newer minor version and mean nothing here.
  n.phases = c.phases & kAllPhases;
  n.bytes = c.bytes;
  n.lo = c.lo;
  n.hi = c.hi;
  if (TH_HAS(&c, th_mem, bytes_at_peak) && (c.flags & TH_MEM_HAS_AT_PEAK)) {
    n.has_at_peak = true;
    n.bytes_at_peak = c.bytes_at_peak;
  }
  if (TH_HAS(&c, th_mem, name)) n.name = text_from(c.name);
  if (TH_HAS(&c, th_mem, formula)) n.formula = text_from(c.formula);
  if (n.bytes_at_peak > n.bytes) return reject(which + " has more bytes at the peak than bytes");
  if (const char* wrong = settle_bounds(n)) return reject(which + " " + wrong);
  if ((text_bytes_ += n.name.size() + n.formula.size()) > kMaxAllText)
    return reject("names and formulas exceed 64 MiB");
  assert(n.id == report_.entries.size() + 1 && n.parent < n.id);
  report_.entries.push_back(std::move(n));
  return TH_OK;
}

/// Compares the stated peak with the entries, or computes one. Stated but inconsistent totals are refused,
/// because tables would not add up.
void Collector::fill_tier(Tier t) {
  std::size_t i = index(t);
  const std::vector<bool> is_parent = find_parents(report_);
  const TierSum sum = sum_entries(report_, t, is_parent);
  std::uint64_t stated = summary_->tier_peak[i];
  if (stated == 0 && !sum.any) return;
  if (stated > kMaxBytes)
    return void(reject("the total of tier " + std::string(name(t)) + " is 2^63 bytes or more"));
  if (stated != 0 && sum.any && sum.all_have_peak_bytes && sum.at_peak != stated)
    return void(reject("the entries of tier " + std::string(name(t)) + " sum to " +
                       std::to_string(sum.at_peak) + " bytes at the peak, but its total is " +
                       std::to_string(stated)));
  // One exact entry alone cannot be larger than the peak of its tier.
  if (stated != 0 && sum.largest && sum.largest->bytes > stated)
    return void(reject("memory node " + std::to_string(sum.largest->id) + " takes " +
                       std::to_string(sum.largest->bytes) + " bytes, but the total of tier " +
                       std::string(name(t)) + " is " + std::to_string(stated)));
  std::uint32_t phase = summary_->peak_phase[i];
  bool known_phase = phase != 0 && phase <= kAllPhases && (phase & (phase - 1)) == 0;
  TierPeak peak{t, stated, known_phase ? static_cast<Phase>(phase) : peak_phase_of(report_, t, is_parent)};
  // Without a stated peak, entries that are live in some phases only are added up per phase. That is an upper
  // bound: the phases of two entries may overlap partly.
  if (stated == 0) {
    MemoryReport entries_only;
    entries_only.entries = report_.entries;
    peak.bytes = entries_only.tier_bytes(t);
    if (sum.some_are_temporary && report_.claim == Claim::kExact) report_.claim = Claim::kUpperBound;
  }
  report_.tiers.push_back(peak);
}

/// Rules for the claim: that of the summary if it states one; otherwise the least certain of the entries.
MemoryReport Collector::take(std::string source) {
  open_ = false;
  report_.source = std::move(source);
  report_.digest = summary_->digest;
  report_.claim = summary_->claim >= 1 && summary_->claim <= kLastClaim ? static_cast<Claim>(summary_->claim)
                                                                        : Claim::kExact;
  if (summary_->claim > kLastClaim)
    reject("the unknown claim " + std::to_string(summary_->claim) + " in the summary");
  for (const MemoryEntry& n : report_.entries)  // the total is at most as certain as its entries
    if (summary_->claim == 0) report_.claim = std::max(report_.claim, n.claim);
  // Slots of unknown tiers must be empty: bytes that no total contains would be lost silently.
  for (std::uint32_t t = 0; t < TH_TIER_SLOTS; ++t)
    if ((t == 0 || t > kLastTier) && summary_->tier_peak[t] != 0)
      reject("a total for the unknown tier " + std::to_string(t));
  try {
    for (Tier t : kAllTiers) fill_tier(t);
  } catch (const Error& e) {
    reject(e.what());
  }
  // A report with a violation is not used in part.
  if (!problem_.empty()) report_.entries.clear(), report_.tiers.clear();
  return std::move(report_);
}

}  // namespace trainhost::abi
