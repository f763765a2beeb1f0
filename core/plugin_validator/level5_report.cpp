// Level 5 for the memory reports of estimators and trainers: the rules of memory.h, and monotonicity: a
// larger run never needs less memory. Each check asks for its own report, so that it can run alone; reports
// of the same run are equal (C-077).
#include "core/base/text.hpp"
#include "core/plugin_validator/levels.hpp"
#include "core/plugin_validator/watched_plugin.hpp"

namespace trainhost::plugin_validator {
namespace {

// Fails instead of skipping: C-070 has shown that this run is supported.
ReceivedReport report_of_sample(WatchedPlugin& plugin) {
  Started started(plugin);
  const ReportResult a = plugin.report(plugin.sample());
  expect(a.ok(), "{} of a small {} model returned {}; TH_OK was expected", plugin.report_function(),
         plugin.sample().model.family, a.text());
  return a.report;
}

void check_report_has_entries(WatchedPlugin& plugin) {
  const ReceivedReport r = report_of_sample(plugin);
  expect(!r.nodes.empty(), "{} succeeded without a single node; at least one was expected",
         plugin.report_function());
  // 0 bytes for a model with weights is no estimate.
  expect(sum_of_entries(r) > 0, "{} reports 0 bytes", plugin.report_function());
}

void check_ids_and_parents(WatchedPlugin& plugin) {
  const ReceivedReport r = report_of_sample(plugin);
  for (std::size_t i = 0; i < r.nodes.size(); ++i) {
    // Ids are 1..n in the order of the calls, so a parent is smaller than its child and no cycle is possible.
    const th_mem& m = r.nodes[i].mem;
    expect(m.id == i + 1, "node {} has id {}; ids count from 1 in the order of the calls", i + 1, m.id);
    expect(m.parent < m.id, "node {} has parent {}, which was not sent before it", m.id, m.parent);
  }
}

void check_report_length(WatchedPlugin& plugin) {
  const ReceivedReport r = report_of_sample(plugin);
  // 10,000 for two layers is far above any real report and far below an endless loop, which the sink ends.
  expect(!r.too_many && r.nodes.size() < 10'000,
         "{} sent {}{} nodes for a model of 2 layers; fewer than 10,000 were expected",
         plugin.report_function(), r.nodes.size(), r.too_many ? " and more" : "");
  expect(r.notes.size() <= 1000, "{} sent {} notes; at most 1000 were expected", plugin.report_function(),
         r.notes.size());
}

// Values are compared with the range of this minor version: a plugin cannot use later ones unasked.
void check_enum_values(WatchedPlugin& plugin) {
  // The message names the first node that breaks a rule; one is enough to find the error.
  for (const ReceivedNode& n : report_of_sample(plugin).nodes) {
    const th_mem& m = n.mem;
    // The fields from bytes_at_peak on are optional.
    expect(m.struct_size >= offsetof(th_mem, bytes_at_peak), "node {} has struct_size {}; {} was expected",
           m.id, m.struct_size, sizeof(th_mem));
    expect(m.tier >= TH_TIER_DEVICE && m.tier <= TH_TIER_DISK, "node {} has the unknown tier {}", m.id,
           m.tier);
    expect(m.component >= TH_MEM_WEIGHTS && m.component <= TH_MEM_RUNTIME,
           "node {} has the unknown component {}", m.id, m.component);
    expect(m.claim >= TH_EXACT && m.claim <= TH_APPROXIMATION, "node {} has the unknown claim {}", m.id,
           m.claim);
    expect(m.phases < 2 * TH_PH_GENERATE, "node {} has undefined phases {:#x}", m.id, m.phases);
    expect((m.flags & ~TH_MEM_HAS_AT_PEAK) == 0, "node {} has undefined flags {:#x}", m.id, m.flags);
  }
}

void check_bounds_of_claims(WatchedPlugin& plugin) {
  for (const ReceivedNode& n : report_of_sample(plugin).nodes) {
    const th_mem& m = n.mem;
    // lo = hi = 0 means that the plugin gives no bounds; an approximation must give them.
    const bool unset = m.lo == 0 && m.hi == 0;
    if (m.claim == TH_EXACT)
      expect(unset || (m.lo == m.bytes && m.hi == m.bytes),
             "node {} is exact with lo {}, bytes {} and hi {}; they must be equal", m.id, m.lo, m.bytes,
             m.hi);
    if (m.claim == TH_UPPER_BOUND)
      expect(unset || (m.hi == m.bytes && m.lo <= m.bytes),
             "node {} is an upper bound with bytes {} and hi {}; they must be equal", m.id, m.bytes, m.hi);
    if (m.claim == TH_APPROXIMATION)
      expect((!unset || m.bytes == 0) && m.lo <= m.bytes && m.bytes <= m.hi,
             "node {} is an approximation with bytes {} outside [{}, {}]", m.id, m.bytes, m.lo, m.hi);
  }
}

void check_overflow(WatchedPlugin& plugin) {
  // Also for the small sample: a negative number stored as unsigned is found here.
  for (const ReceivedNode& n : report_of_sample(plugin).nodes)
    expect(n.mem.bytes >> 63 == 0 && n.mem.hi >> 63 == 0, "node {} has a size of 2^63 bytes or more",
           n.mem.id);
  Started started(plugin);
  // Dimensions whose product exceeds 2^63 while each is valid by itself.
  Sample huge = plugin.sample();
  huge.model.hidden = 1u << 31, huge.model.layers = 4096, huge.model.vocab = 1ull << 60;
  huge.model.head_dim = 1u << 29, huge.model.intermediate = 1u << 31;
  write_config(huge.model);
  const ReportResult a = plugin.report(huge);
  if (a.ok())
    for (const ReceivedNode& n : a.report.nodes)
      expect(n.mem.bytes >> 63 == 0,
             "{} of a model beyond 63 bits has a node {} of 2^63 bytes or more; a rejection was expected",
             plugin.report_function(), n.mem.id);
  // 9.2e18 is just below 2^63: a saturated sum passes, a wrapped one does not.
  expect(
      !a.ok() || sum_of_entries(a.report) > 9.2e18,
      "{} of a model whose weights do not fit 63 bits returned TH_OK and {:.3g} bytes: a product overflowed",
      plugin.report_function(), sum_of_entries(a.report));
}

// Inner nodes are sums of their children and must not be added again; entries_of() has the leaves only.
void check_entries_sum_to_peak(WatchedPlugin& plugin) {
  const ReceivedReport r = report_of_sample(plugin);
  const std::vector<th_mem> entries = entries_of(r);
  for (std::uint32_t tier = TH_TIER_DEVICE; tier <= TH_TIER_DISK; ++tier) {
    std::uint64_t sum_at_peak = 0, sum = 0;
    bool all_have_peak = true, any = false;
    for (const th_mem& m : entries) {
      if (m.tier != tier) continue;
      any = true;
      // At the peak a buffer has at most its full size.
      const bool has_peak = m.flags & TH_MEM_HAS_AT_PEAK;
      expect(!has_peak || m.bytes_at_peak <= m.bytes,
             "node {} has {} bytes at the peak, but only {} bytes in all", m.id, m.bytes_at_peak, m.bytes);
      all_have_peak = all_have_peak && has_peak;
      sum_at_peak += m.bytes_at_peak, sum += m.bytes;
    }
    const std::uint64_t stated = r.summary.tier_peak[tier];
    // A tier without a figure makes no claim.
    if (stated == 0) continue;
    expect(any, "the summary gives tier {} a peak of {} bytes, but no entry has that tier", tier, stated);
    expect(!all_have_peak || sum_at_peak == stated,
           "the entries of tier {} sum to {} bytes at the peak; the summary has {}", tier, sum_at_peak,
           stated);
    // Without bytes_at_peak the entries are only an upper bound of the peak.
    expect(all_have_peak || stated <= sum,
           "the summary gives tier {} a peak of {} bytes; its entries sum to only {}", tier, stated, sum);
  }
}

void check_claim_of_total(WatchedPlugin& plugin) {
  const ReceivedReport r = report_of_sample(plugin);
  // The total may be less certain than its parts, never more.
  expect(r.summary.claim <= TH_APPROXIMATION, "the summary has the unknown claim {}", r.summary.claim);
  if (r.summary.claim != TH_EXACT) return;
  for (const th_mem& m : entries_of(r))
    expect(m.claim == TH_EXACT, "the summary claims to be exact, but node {} is an approximation or a bound",
           m.id);
}

void check_names_and_formulas(WatchedPlugin& plugin) {
  const ReceivedReport r = report_of_sample(plugin);
  for (const ReceivedNode& n : r.nodes) {
    // Names are the key by which users find an entry; a formula is optional.
    expect(n.name && !n.name->empty(), "node {} has no name", n.mem.id);
    expect(valid_utf8(*n.name), "the name of node {} is not UTF-8", n.mem.id);
    expect(n.name->size() <= 2000, "the name of node {} is longer than 2000 bytes", n.mem.id);
    expect(!n.formula || valid_utf8(*n.formula), "the formula of node {} is not UTF-8", n.mem.id);
  }
}

void check_notes(WatchedPlugin& plugin) {
  // Notes are printed as they are, one per line, so they must not contain a line feed or an escape sequence.
  for (const auto& note : report_of_sample(plugin).notes) {
    expect(note && !note->empty(), "a note is empty or null; a sentence was expected");
    expect(valid_utf8(*note), "a note is not UTF-8");
    expect(note->size() <= 2000, "a note has {} bytes; at most 2000 are allowed", note->size());
    for (char c : *note)
      expect(static_cast<unsigned char>(c) >= 0x20 && c != 0x7f, "a note contains control characters");
  }
}

// Formulas are for people and are not compared.
void check_report_repeats(WatchedPlugin& plugin) {
  Started started(plugin);
  const ReportResult a = plugin.report(plugin.sample()), c = plugin.report(plugin.sample());
  expect(a.report.nodes.size() == c.report.nodes.size(), "{} sent {} nodes, then {} for the same arguments",
         plugin.report_function(), a.report.nodes.size(), c.report.nodes.size());
  // Equal lengths were checked before.
  for (std::size_t i = 0; i < a.report.nodes.size(); ++i)
    expect(a.report.nodes[i].mem.bytes == c.report.nodes[i].mem.bytes &&
               a.report.nodes[i].name == c.report.nodes[i].name,
           "{} sent node {} with {} bytes, then {} for the same arguments", plugin.report_function(), i + 1,
           a.report.nodes[i].mem.bytes, c.report.nodes[i].mem.bytes);
  // The digest stands for everything that this program does not store.
  expect(a.report.summary.digest == c.report.summary.digest, "{} returned two digests for the same arguments",
         plugin.report_function());
}

/// The peaks of the summary, or the sum of the entries if the summary has none. A double: differences of
/// interest are far above its rounding.
double total(const ReceivedReport& r) {
  double sum = 0;
  for (std::uint32_t t = TH_TIER_DEVICE; t <= TH_TIER_DISK; ++t)
    sum += static_cast<double>(r.summary.tier_peak[t]);
  return sum > 0 ? sum : sum_of_entries(r);
}

template <class Change>
void expect_bytes_never_decrease(WatchedPlugin& plugin, const char* what, Change change) {
  Started started(plugin);
  double before = 0;
  // Factors of two: rounding to pages and alignment cannot hide a term that shrinks.
  for (std::uint32_t n : {1u, 2u, 4u, 8u}) {
    Sample s = plugin.sample();
    change(s, n);
    write_config(s.model);
    const ReportResult a = plugin.report(s);
    expect(a.ok(), "{} with {} {} returned {}", plugin.report_function(), n, what, a.text());
    expect(total(a.report) >= before,
           "{} reports {:.0f} bytes for {} {}, but {:.0f} for half as many; at least that was expected",
           plugin.report_function(), total(a.report), n, what, before);
    before = total(a.report);
  }
}

}  // namespace

// The same table serves estimators and trainers: an estimator reports by estimate(), a trainer by plan().
// Prerequisites: values are summed by tier and component (C-076, C-078) only after ids and values are known
// to be valid (C-071, C-073), and reports of different runs are compared (C-081 to C-083) only if those of
// one run are equal (C-077).
std::vector<Check> report_checks() {
  return {
      {"C-070",
       5,
       "It reports the memory of an ordinary run",
       "The smallest supported task: a small model of a family in its manifest, one device, f32, AdamW. "
       "Fix: read the message: the plugin rejects a run that every plugin of its kind must support, or "
       "reports no bytes.",
       {"C-049", "C-029"},
       check_report_has_entries},
      {"C-071",
       5,
       "Nodes are numbered from 1 and follow their parents",
       "The host builds the tree while nodes arrive. It rejects an id of 0, a gap in the ids, a cycle, "
       "and a parent that comes later. Fix: send a parent before its children, and number nodes in the "
       "order in which you send them.",
       {"C-070"},
       check_ids_and_parents},
      {"C-072",
       5,
       "The memory breakdown has a reasonable length",
       "One node per tensor and operation of each layer is fine; a million nodes for two layers indicates "
       "an endless loop. Fix: add the entries of equal buffers to one node.",
       {"C-049", "C-029"},
       check_report_length},
      {"C-073",
       5,
       "Tiers, components, claims and phases are values of the interface",
       "The host sums nodes by tier and by component. A node with an undefined value would be missing "
       "from every sum. Fix: use the constants of trainhost/memory.h.",
       {"C-070"},
       check_enum_values},
      {"C-074",
       5,
       "The bounds of each node agree with its claim",
       "Exact requires lo = bytes = hi; an upper bound requires hi = bytes; an approximation requires lo "
       "<= bytes <= hi. The host rejects reports that contradict themselves. Fix: set lo and hi to bytes "
       "for an exact node, and hi to bytes for an upper bound.",
       {"C-073"},
       check_bounds_of_claims},
      {"C-075",
       5,
       "Sizes do not overflow",
       "A product of four 32-bit dimensions easily exceeds 64 bits; after overflow an impossible model "
       "seems to fit. Fix: use checked multiplication and reject the model.",
       {"C-070"},
       check_overflow},
      {"C-076",
       5,
       "The entries of a tier sum to its peak",
       "Users read the entries, but the peak decides whether a run fits. The two must agree. Fix: set "
       "bytes_at_peak of each entry to what it holds at the peak, and tier_peak to the sum.",
       {"C-071", "C-073"},
       check_entries_sum_to_peak},
      {"C-077",
       5,
       "Equal arguments give equal memory breakdowns",
       "Plans are compared, cached and searched. They must not depend on time, addresses or random "
       "numbers. Fix: compute the report and its digest from the arguments alone.",
       {"C-070"},
       check_report_repeats},
      {"C-078",
       5,
       "The total is not more certain than its parts",
       "If one entry is an approximation, the total cannot be exact. Fix: claim for the summary the "
       "weakest claim of the entries.",
       {"C-071", "C-073"},
       check_claim_of_total},
      {"C-079",
       5,
       "Names are present, and names and formulas are UTF-8",
       "They are printed in tables, JSON and HTML. Fix: set name to a UTF-8 text in every node.",
       {"C-070"},
       check_names_and_formulas},
      {"C-080",
       5,
       "Notes are clean sentences",
       "Notes tell the user what the number does not include. Control characters would reach the "
       "terminal. Fix: remove control characters from notes; one sentence per note.",
       {"C-070"},
       check_notes},
      {"C-081",
       5,
       "A larger micro-batch never needs less memory",
       "Users reduce the batch to make a run fit. That must never increase the reported memory. Fix: "
       "compute activations in proportion to the micro-batch; round up, never down.",
       {"C-071", "C-077"},
       [](WatchedPlugin& plugin) {
         expect_bytes_never_decrease(plugin, "sequences",
                                     [](Sample& s, std::uint32_t n) { s.run.micro_batch = n; });
       }},
      {"C-082",
       5,
       "A longer sequence never needs less memory",
       "Searches for the longest sequence that fits rely on this. Fix: compute activations in proportion "
       "to the sequence; round up, never down.",
       {"C-071", "C-077"},
       [](WatchedPlugin& plugin) {
         expect_bytes_never_decrease(plugin, "x 8 tokens",
                                     [](Sample& s, std::uint32_t n) { s.run.seq_len = 8 * n; });
       }},
      {"C-083",
       5,
       "More layers never need less memory",
       "A deeper model has more weights, gradients and optimizer moments. Fix: multiply weights, "
       "gradients and moments by the number of layers.",
       {"C-071", "C-077"},
       [](WatchedPlugin& plugin) {
         expect_bytes_never_decrease(plugin, "layers",
                                     [](Sample& s, std::uint32_t n) { s.model.layers = n; });
       }},
  };
}

}  // namespace trainhost::plugin_validator
