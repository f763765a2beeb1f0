// Level 5 for what estimators and trainers say about memory: one tree of leaves, judged by the rules of
// memory.h, and by what holds for every training run: more of it never takes less.
#include <map>
#include <set>

#include "core/base/text.hpp"
#include "core/plugin_validator/levels.hpp"
#include "core/plugin_validator/refusals.hpp"
#include "core/plugin_validator/watched_plugin.hpp"

namespace trainhost::plugin_validator {
namespace {

const char* call_of(Bench& b) { return b.is_trainer() ? "plan()" : "estimate()"; }

SeenReport ordinary(Bench& b) {
  Started started(b);
  const ReportAnswer a = b.report(b.sample());
  expect(a.ok(), "{} of a small {} model returned {}; TH_OK was expected", call_of(b),
         b.sample().model.family, a.text());
  return a.report;
}

void reports(Bench& b) {
  const SeenReport r = ordinary(b);
  expect(!r.nodes.empty(), "{} succeeded without a single node; at least one was expected", call_of(b));
  expect(sum_of_leaves(r) > 0, "{} says that training takes 0 bytes", call_of(b));
}

void ids_and_parents(Bench& b) {
  const SeenReport r = ordinary(b);
  for (std::size_t i = 0; i < r.nodes.size(); ++i) {
    const th_mem& m = r.nodes[i].mem;
    expect(m.id == i + 1, "node {} has id {}; ids count from 1 in the order of the calls", i + 1, m.id);
    expect(m.parent < m.id, "node {} has parent {}, which was not emitted before it", m.id, m.parent);
  }
}

void not_too_many(Bench& b) {
  const SeenReport r = ordinary(b);
  expect(!r.too_many && r.nodes.size() < 10'000,
         "{} gave {}{} nodes for a model of 2 layers; fewer than 10,000 were expected", call_of(b),
         r.nodes.size(), r.too_many ? " and more" : "");
  expect(r.notes.size() <= 1000, "{} gave {} notes; 1000 are the most", call_of(b), r.notes.size());
}

void known_words(Bench& b) {
  for (const SeenNode& n : ordinary(b).nodes) {
    const th_mem& m = n.mem;
    expect(m.struct_size >= offsetof(th_mem, bytes_at_peak), "node {} has struct_size {}; {} was expected",
           m.id, m.struct_size, sizeof(th_mem));
    expect(m.tier >= TH_TIER_DEVICE && m.tier <= TH_TIER_DISK, "node {} has the unknown tier {}", m.id,
           m.tier);
    expect(m.component >= TH_MEM_WEIGHTS && m.component <= TH_MEM_RUNTIME,
           "node {} has the unknown component {}", m.id, m.component);
    expect(m.claim >= TH_EXACT && m.claim <= TH_APPROXIMATION, "node {} has the unknown claim {}", m.id,
           m.claim);
    expect(m.phases < 2 * TH_PH_GENERATE, "node {} has phases {:#x} that no header has", m.id, m.phases);
    expect((m.flags & ~TH_MEM_HAS_AT_PEAK) == 0, "node {} has flags {:#x} that no header has", m.id, m.flags);
  }
}

void claims_hold(Bench& b) {
  for (const SeenNode& n : ordinary(b).nodes) {
    const th_mem& m = n.mem;
    const bool unset = m.lo == 0 && m.hi == 0;
    if (m.claim == TH_EXACT)
      expect(unset || (m.lo == m.bytes && m.hi == m.bytes),
             "node {} is exact with lo {}, bytes {} and hi {}; they must be "
             "equal",
             m.id, m.lo, m.bytes, m.hi);
    if (m.claim == TH_UPPER_BOUND)
      expect(unset || (m.hi == m.bytes && m.lo <= m.bytes),
             "node {} is an upper bound with bytes {} and hi {}; they must be "
             "equal",
             m.id, m.bytes, m.hi);
    if (m.claim == TH_APPROXIMATION)
      expect((!unset || m.bytes == 0) && m.lo <= m.bytes && m.bytes <= m.hi,
             "node {} is an approximation with bytes {} outside [{}, {}]", m.id, m.bytes, m.lo, m.hi);
  }
}

void sizes_below_63_bits(Bench& b) {
  for (const SeenNode& n : ordinary(b).nodes)
    expect(n.mem.bytes >> 63 == 0 && n.mem.hi >> 63 == 0, "node {} has a size of 2^63 bytes or more",
           n.mem.id);
  Started started(b);
  Sample huge = b.sample();
  huge.model.hidden = 1u << 31, huge.model.layers = 4096, huge.model.vocab = 1ull << 60;
  huge.model.head_dim = 1u << 29, huge.model.intermediate = 1u << 31;
  write_config(huge.model);
  const ReportAnswer a = b.report(huge);
  if (a.ok())
    for (const SeenNode& n : a.report.nodes)
      expect(n.mem.bytes >> 63 == 0,
             "{} of a model beyond 63 bits gave node {} 2^63 bytes or more; a refusal was expected",
             call_of(b), n.mem.id);
  expect(!a.ok() || sum_of_leaves(a.report) > 9.2e18,
         "{} of a model whose weights do not fit 63 bits returned TH_OK and {:.3g} bytes: a product wrapped "
         "around",
         call_of(b), sum_of_leaves(a.report));
}

void shares_sum_to_the_peak(Bench& b) {
  const SeenReport r = ordinary(b);
  std::set<std::uint32_t> parents;
  for (const SeenNode& n : r.nodes) parents.insert(n.mem.parent);
  for (std::uint32_t tier = TH_TIER_DEVICE; tier <= TH_TIER_DISK; ++tier) {
    std::uint64_t shares = 0, sum = 0;
    bool all = true, any = false;
    for (const SeenNode& n : r.nodes) {
      if (n.mem.tier != tier || parents.count(n.mem.id)) continue;
      any = true;
      const bool has = n.mem.flags & TH_MEM_HAS_AT_PEAK;
      expect(!has || n.mem.bytes_at_peak <= n.mem.bytes, "node {} takes {} bytes at the peak and {} at most",
             n.mem.id, n.mem.bytes_at_peak, n.mem.bytes);
      all = all && has;
      shares += n.mem.bytes_at_peak, sum += n.mem.bytes;
    }
    const std::uint64_t stated = r.summary.tier_peak[tier];
    if (stated == 0) continue;
    expect(any, "the summary gives tier {} a peak of {} bytes, and no leaf is in it", tier, stated);
    expect(!all || shares == stated, "the leaves of tier {} take {} bytes at the peak; the summary says {}",
           tier, shares, stated);
    expect(all || stated <= sum,
           "the summary gives tier {} a peak of {} bytes; its leaves can take {} at most", tier, stated, sum);
  }
}

void whole_no_surer_than_parts(Bench& b) {
  const SeenReport r = ordinary(b);
  expect(r.summary.claim <= TH_APPROXIMATION, "the summary has the unknown claim {}", r.summary.claim);
  if (r.summary.claim != TH_EXACT) return;
  std::set<std::uint32_t> parents;
  for (const SeenNode& n : r.nodes) parents.insert(n.mem.parent);
  for (const SeenNode& n : r.nodes)
    expect(parents.count(n.mem.id) || n.mem.claim == TH_EXACT,
           "the summary claims to be exact, and node {} is an approximation or a bound", n.mem.id);
}

void texts_are_clean(Bench& b) {
  const SeenReport r = ordinary(b);
  for (const SeenNode& n : r.nodes) {
    expect(n.name && !n.name->empty(), "node {} has no name", n.mem.id);
    expect(valid_utf8(*n.name), "the name of node {} is not UTF-8", n.mem.id);
    expect(n.name->size() <= 2000, "the name of node {} is longer than 2000 bytes", n.mem.id);
    expect(!n.formula || valid_utf8(*n.formula), "the formula of node {} is not UTF-8", n.mem.id);
  }
}

void notes_are_sentences(Bench& b) {
  for (const auto& note : ordinary(b).notes) {
    expect(note && !note->empty(), "a note is empty or null; a sentence was expected");
    expect(valid_utf8(*note), "a note is not UTF-8");
    expect(note->size() <= 2000, "a note has {} bytes; 2000 are read", note->size());
    for (char c : *note)
      expect(static_cast<unsigned char>(c) >= 0x20 && c != 0x7f, "a note holds control characters");
  }
}

void same_each_time(Bench& b) {
  Started started(b);
  const ReportAnswer a = b.report(b.sample()), c = b.report(b.sample());
  expect(a.report.nodes.size() == c.report.nodes.size(), "{} gave {} nodes, and {} for the same arguments",
         call_of(b), a.report.nodes.size(), c.report.nodes.size());
  for (std::size_t i = 0; i < a.report.nodes.size(); ++i)
    expect(a.report.nodes[i].mem.bytes == c.report.nodes[i].mem.bytes &&
               a.report.nodes[i].name == c.report.nodes[i].name,
           "{} gave node {} {} bytes, and {} for the same arguments", call_of(b), i + 1,
           a.report.nodes[i].mem.bytes, c.report.nodes[i].mem.bytes);
  expect(a.report.summary.digest == c.report.summary.digest, "{} gave two digests for the same arguments",
         call_of(b));
}

/// What the whole takes: the summary's peaks, or the sum of the leaves where it gives none.
double total(const SeenReport& r) {
  double sum = 0;
  for (std::uint32_t t = TH_TIER_DEVICE; t <= TH_TIER_DISK; ++t)
    sum += static_cast<double>(r.summary.tier_peak[t]);
  return sum > 0 ? sum : sum_of_leaves(r);
}

template <class Change>
void never_falls(Bench& b, const char* what, Change change) {
  Started started(b);
  double before = 0;
  for (std::uint32_t n : {1u, 2u, 4u, 8u}) {
    Sample s = b.sample();
    change(s, n);
    write_config(s.model);
    const ReportAnswer a = b.report(s);
    expect(a.ok(), "{} with {} {} returned {}", call_of(b), n, what, a.text());
    expect(total(a.report) >= before,
           "{} says {:.0f} bytes for {} {} and {:.0f} for half of them; more was expected", call_of(b),
           total(a.report), n, what, before);
    before = total(a.report);
  }
}

}  // namespace

std::vector<Check> report_checks() {
  return {
      {"C-070",
       5,
       "It gives an account of an ordinary run",
       "The smallest thing that it is for: a small model of its own family, one device, f32, AdamW.",
       {"C-049", "C-029"},
       reports},
      {"C-071",
       5,
       "Nodes are numbered from 1 and come after their parents",
       "The host builds the tree while it arrives. An id of 0, a gap, a cycle or a parent that comes later "
       "is refused.",
       {"C-070"},
       ids_and_parents},
      {"C-072",
       5,
       "The account has a readable length",
       "A node for each tensor and operation of each layer is fine; a million nodes for two layers is a "
       "loop.",
       {"C-049", "C-029"},
       not_too_many},
      {"C-073",
       5,
       "Tiers, components, claims and phases are ones that exist",
       "Sums are made by tier and component. A node that belongs to none is in no sum.",
       {"C-070"},
       known_words},
      {"C-074",
       5,
       "Claims hold their own bounds",
       "Exact means lo = bytes = hi; an upper bound is never passed; an approximation lies between its "
       "bounds. Reports "
       "that contradict themselves are refused.",
       {"C-073"},
       claims_hold},
      {"C-075",
       5,
       "Sizes do not wrap around",
       "A product of four 32-bit dimensions leaves 64 bits easily, and then a model of an exabyte fits into "
       "a laptop. Use "
       "checked products and refuse.",
       {"C-070"},
       sizes_below_63_bits},
      {"C-076",
       5,
       "The leaves add up to the tier's peak",
       "The table that users see is the leaves; the figure that decides is the peak. They must be the same "
       "story.",
       {"C-071", "C-073"},
       shares_sum_to_the_peak},
      {"C-077",
       5,
       "The same arguments give the same account",
       "Plans are compared, cached and searched through. Time, addresses and random numbers have no place in "
       "them.",
       {"C-070"},
       same_each_time},
      {"C-078",
       5,
       "The whole is no surer than its parts",
       "One guessed leaf makes the total a guess.",
       {"C-071", "C-073"},
       whole_no_surer_than_parts},
      {"C-079",
       5,
       "Names and formulas are UTF-8 and there",
       "They are printed in tables, in JSON and in HTML.",
       {"C-070"},
       texts_are_clean},
      {"C-080",
       5,
       "Notes are clean sentences",
       "Notes tell the user what the number leaves out. Control characters would reach the terminal.",
       {"C-070"},
       notes_are_sentences},
      {"C-081",
       5,
       "A larger micro-batch never takes less",
       "Users halve the batch to make a run fit. It must never make things worse.",
       {"C-071", "C-077"},
       [](Bench& b) {
         never_falls(b, "sequences", [](Sample& s, std::uint32_t n) { s.run.micro_batch = n; });
       }},
      {"C-082",
       5,
       "A longer sequence never takes less",
       "The same promise along the sequence: searches for the longest that fits rely on it.",
       {"C-071", "C-077"},
       [](Bench& b) {
         never_falls(b, "x 8 tokens", [](Sample& s, std::uint32_t n) { s.run.seq_len = 8 * n; });
       }},
      {"C-083",
       5,
       "More layers never take less",
       "A deeper model has more weights, gradients and moments.",
       {"C-071", "C-077"},
       [](Bench& b) { never_falls(b, "layers", [](Sample& s, std::uint32_t n) { s.model.layers = n; }); }},
  };
}

}  // namespace trainhost::plugin_validator
