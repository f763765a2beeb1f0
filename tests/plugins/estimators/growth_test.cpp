// Properties of every estimator: more sequences, tokens or layers never need less; the entries of a tier sum
// to its total; equal inputs give equal results. Random models and runs, through the plugin interface.
#include <optional>
#include <string_view>

#include "tests/support/properties.hpp"
#include "tests/support/shipped.hpp"

using namespace trainhost;
namespace tp = trainhost::plugin;

namespace {

struct Case {
  ModelSpec model;
  RunSpec run;
  TrainerTraits traits;
};

Case draw_case(const test::Draw& draw) {
  const auto upto = [&](std::uint64_t n) { return static_cast<std::uint32_t>(draw(0, n)); };
  Case c;
  ModelSpec& m = c.model;
  m.family = "llama";
  m.kv_heads = 1 + upto(3), m.heads = m.kv_heads * (1 + upto(3)), m.head_dim = 8 * (1 + upto(8));
  m.hidden = m.heads * m.head_dim, m.layers = 1 + upto(11), m.intermediate = 16 * (1 + upto(90));
  m.vocab = 100 + upto(3000), m.tied = upto(1) == 1;
  c.run.micro_batch = 1 + upto(6), c.run.seq_len = 16 * (1 + upto(30));
  c.run.optimizer = static_cast<Optimizer>(1 + upto(2));
  c.run.recompute = static_cast<Recompute>(1 + upto(2));
  c.traits.trainer = "test";
  c.traits.alignment = 256, c.traits.threads = 2, c.traits.head_chunk_tokens = 64;
  return c;
}

/// nullopt: the estimator rejects the run.
std::optional<MemoryReport> asked(const char* id, const Case& c) {
  tp::Estimator& e = test::shipped().estimator(id);
  if (e.match(c.model, c.run) == 0) return std::nullopt;
  try {
    return e.estimate(c.model, c.run, &c.traits);
  } catch (const tp::PluginError& refused) {
    test::require(refused.status() == "unsupported", std::string(id) + ": " + refused.what());
    return std::nullopt;
  }
}

/// Allowed decrease: an exact total is an arena with gaps, and a larger run may have smaller gaps.
std::uint64_t gaps(const MemoryReport& r) { return r.component_bytes(Component::kFragmentation); }

std::uint64_t answered = 0;

/// `a`: the answer for the smaller case.
void never_less(const char* id, const std::optional<MemoryReport>& a, const Case& large, const char* what) {
  const auto b = asked(id, large);
  if (!a || !b) return;
  ++answered;
  test::require(b->total_bytes() + gaps(*a) >= a->total_bytes(),
                std::string(id) + ": with more " + what + " " + std::to_string(b->total_bytes()) +
                    " bytes instead of " + std::to_string(a->total_bytes()));
}

const char* const kAll[] = {"llama",           "transformer", "contract", "calculon",
                            "memory-equation", "vram-note",   "pytorch"};

/// A replay takes milliseconds: one case in four. `n`: of the property.
bool tested(const char* id, std::uint64_t& n) { return std::string_view(id) != "pytorch" || n++ % 4 == 0; }

}  // namespace

BOOST_AUTO_TEST_SUITE(estimators_grow)

BOOST_AUTO_TEST_CASE(more_never_needs_less) {
  for (const char* id : kAll) {
    answered = 0;
    std::uint64_t n = 0;
    test::property(id, [&](const test::Draw& draw) {
      const Case c = draw_case(draw);
      if (!tested(id, n)) return;
      const auto less = asked(id, c);
      Case more = c;
      more.run.micro_batch += static_cast<std::uint32_t>(draw(1, 3));
      never_less(id, less, more, "sequences");
      more = c, more.run.seq_len += 16 * static_cast<std::uint32_t>(draw(1, 8));
      never_less(id, less, more, "tokens");
      more = c, more.model.layers += static_cast<std::uint32_t>(draw(1, 3));
      never_less(id, less, more, "layers");
    });
    BOOST_TEST(answered > 500u, id << " answered " << answered);
  }
}

BOOST_AUTO_TEST_CASE(entries_sum_to_totals_and_results_are_reproducible) {
  for (const char* id : kAll) {
    std::uint64_t number = 0;
    test::property(id, [&](const test::Draw& draw) {
      const Case c = draw_case(draw);
      if (!tested(id, number)) return;
      const auto r = asked(id, c), again = asked(id, c);
      if (!r) return;
      std::uint64_t tiers = 0, entries = 0;
      for (const TierPeak& t : r->tiers) tiers += t.bytes;
      for (const MemoryEntry& n : r->entries) entries += n.at_peak();
      test::require(r->total_bytes() == again->total_bytes() && r->entries.size() == again->entries.size(),
                    std::string(id) + ": another answer");
      if (!r->tiers.empty())
        test::require(tiers == entries && tiers == r->total_bytes(),
                      std::string(id) + ": entries of " + std::to_string(entries) + " bytes in tiers of " +
                          std::to_string(tiers));
    });
  }
}

BOOST_AUTO_TEST_SUITE_END()
