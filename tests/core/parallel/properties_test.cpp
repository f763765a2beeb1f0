// Properties of every layout: more work never needs less memory, more ranks never need more per rank, sums
// and report agree, no size wraps. Memory here is a rank's total without communication buffers and the gaps
// caused by them, which more ranks add.
#include <boost/test/unit_test.hpp>

#include "core/base/error.hpp"
#include "core/parallel/saturating_size.hpp"
#include "tests/core/parallel/random_layouts.hpp"

using namespace trainhost;
using parallel::Numbers;
using test::Case;
using test::Draw;
using test::property;
using test::require;

namespace {

/// Total of the stage that needs most: device or all tiers.
std::uint64_t need(const model::Architecture& a, const RunSpec& r, bool device_alone) {
  std::uint64_t worst = 0;
  for (std::uint32_t stage = 0; stage < r.parallel.pipeline; ++stage) {
    const Numbers n = parallel::stage_numbers(a, r, stage);
    std::uint64_t sum = 0;
    for (std::size_t t = 1; t < parallel::kTiers; ++t)
      for (std::size_t c = 1; c < parallel::kComponents; ++c) {
        if (device_alone && t != std::size_t(Tier::kDevice)) continue;
        if (c != std::size_t(Component::kCommunication) && c != std::size_t(Component::kFragmentation))
          sum += n.bytes[t][c];
      }
    worst = std::max(worst, sum);
  }
  return worst;
}

void never_less(const Case& less, const Case& more, const char* what) {
  for (bool device : {true, false})
    require(need(more.a, more.r, device) >= need(less.a, less.r, device),
            std::string(what) + (device ? " on the device: " : " in all: ") +
                std::to_string(need(less.a, less.r, device)) + " became " +
                std::to_string(need(more.a, more.r, device)));
}

bool accepted(const Case& c) {
  try {
    parallel::validate(c.a, c.r);
    return true;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace

BOOST_AUTO_TEST_SUITE(properties)

BOOST_AUTO_TEST_CASE(sums_and_report_agree) {
  property("entries add up to the sums, by tier and component", [](const Draw& draw) {
    const Case c = test::random_case(draw);
    const auto stage = static_cast<std::uint32_t>(draw(0, c.r.parallel.pipeline - 1));
    const Numbers n = parallel::stage_numbers(c.a, c.r, stage);
    const MemoryReport report = parallel::stage_report(c.a, c.r, stage);
    for (std::size_t t = 1; t < parallel::kTiers; ++t)
      for (std::size_t k = 1; k < parallel::kComponents; ++k)
        require(report.component_bytes(Tier(t), Component(k)) == n.bytes[t][k],
                std::string(name(Tier(t))) + " " + std::string(name(Component(k))) + ": " +
                    std::to_string(n.bytes[t][k]));
    for (const TierPeak& p : report.tiers) require(p.bytes == n.tier(p.tier), "a tier's total");
    require(report.total_bytes() == n.total(), "the total");
    for (const MemoryEntry& entry : report.entries)
      require(!entry.name.empty() && !entry.formula.empty(), "an entry without name or formula");
  });
}

BOOST_AUTO_TEST_CASE(more_work_never_needs_less) {
  property("more sequences, tokens or layers", [](const Draw& draw) {
    const Case c = test::random_case(draw);
    Case more = c;
    more.r.micro_batch += static_cast<std::uint32_t>(draw(1, 4));
    never_less(c, more, "micro-batch");
    more = c, more.r.seq_len *= static_cast<std::uint32_t>(draw(2, 4));
    never_less(c, more, "sequence");
    // Only whole rounds of an interleaved pipeline: in a partial round the passes of a chunk come sooner, and
    // if chunks differ, the larger one may have fewer micro-batches in flight.
    const std::uint32_t round = c.r.parallel.virtual_stages > 1 ? c.r.parallel.pipeline : 1;
    Case fewer = c;
    fewer.r.accumulate = (c.r.accumulate + round - 1) / round * round;
    more = fewer, more.r.accumulate += round * static_cast<std::uint32_t>(draw(1, 9));
    never_less(fewer, more, "accumulation");
    // Layers move between stages: where kinds or policies differ, a recomputed layer may move to a stage
    // with more free memory.
    more = c;
    if (c.r.parallel.pipeline > 1 && (c.a.layers.size() > 1 || c.r.recompute == Recompute::kLayers)) return;
    more.a.layers.back().count +=
        c.r.parallel.pipeline * c.r.parallel.virtual_stages * static_cast<std::uint32_t>(draw(1, 3));
    never_less(c, more, "layers");
  });
}

BOOST_AUTO_TEST_CASE(more_ranks_never_need_more_per_rank) {
  property("twice the ranks of one kind, or the next stage of ZeRO", [](const Draw& draw) {
    Case c = test::random_case(draw);
    // Small tensors stay in f32 under 8-bit Adam: splitting one below 4096 elements makes its state larger.
    if (c.r.optimizer == Optimizer::kAdamW8bit) c.r.optimizer = Optimizer::kAdamW;
    const auto halved = [&](const char* what, auto&& change) {
      Case more = c;
      change(more.r);
      if (accepted(more)) never_less(more, c, what);
    };
    halved("tensor", [](RunSpec& r) { r.parallel.tensor *= 2; });
    halved("context", [](RunSpec& r) { r.parallel.context *= 2; });
    halved("data", [](RunSpec& r) { r.parallel.data *= 2; });
    halved("zero", [](RunSpec& r) { r.parallel.zero += 1; });
    halved("sequence parallel", [](RunSpec& r) { r.parallel.sequence = true; });
    // With the same data ranks, so that each keeps its part of the batch.
    halved("expert", [](RunSpec& r) { r.parallel.expert *= 2; });
    const std::uint32_t stages = 2 * c.r.parallel.pipeline;
    if (c.a.layers.size() > 1 || c.a.layer_count() % stages || c.r.parallel.virtual_stages > 1) return;
    if (c.r.recompute == Recompute::kLayers || c.r.memory.recompute_every > 1)
      return;  // the halves of a stage differ
    halved("pipeline", [](RunSpec& r) { r.parallel.pipeline *= 2; });
  });
}

BOOST_AUTO_TEST_CASE(the_worst_stage_needs_most_of_all_stages) {
  property("what worst_stage() skips is not worse", [](const Draw& draw) {
    const Case c = test::random_case(draw);
    std::uint64_t most = 0;
    for (std::uint32_t stage = 0; stage < c.r.parallel.pipeline; ++stage)
      most = std::max(most, parallel::stage_numbers(c.a, c.r, stage).tier(Tier::kDevice));
    require(parallel::stage_numbers(c.a, c.r, parallel::worst_stage(c.a, c.r)).tier(Tier::kDevice) == most,
            "a worse stage was skipped");
  });
}

BOOST_AUTO_TEST_CASE(sizes_never_wrap) {
  property("sums, products and shares are those of 128 bits, or too large", [](const Draw& draw) {
    using Wide = unsigned __int128;
    const auto number = [&] { return draw(0, UINT64_MAX - 1) >> draw(0, 63); };
    const std::uint64_t a = number(), b = number(), n = std::max<std::uint64_t>(number(), 1);
    const auto same = [](parallel::Size s, Wide w) {
      return w > kMaxBytes ? s.too_large() && s.value() == kMaxBytes
                           : !s.too_large() && s.value() == std::uint64_t(w);
    };
    require(same(parallel::Size(a), a), "a size");
    if (a > kMaxBytes || b > kMaxBytes) return;
    require(same(parallel::Size(a) + b, Wide(a) + b), "a sum");
    require(same(parallel::Size(a) * b, Wide(a) * b), "a product");
    require(same(share(parallel::Size(a), n), (Wide(a) + n - 1) / n), "a share");
    require((share(parallel::Size(kMaxBytes) * 2, n) + 1).too_large(), "what was too large stays so");
  });
}

BOOST_AUTO_TEST_CASE(overflowing_layouts_compare_as_largest_and_fail_in_reports) {
  property("saturated numbers, or a sentence", [](const Draw& draw) {
    Case c = test::random_case(draw);
    c.r.micro_batch = UINT32_MAX, c.r.seq_len = 0xFFFFFF00u, c.r.accumulate = UINT32_MAX,
    c.r.parallel.context = 1;
    c.r.parallel.expert = 1, c.r.memory.activations_in = Tier::kDevice;
    parallel::validate(c.a, c.r);
    if (parallel::stage_numbers(c.a, c.r, 0).total() < kMaxBytes) return;
    try {
      parallel::stage_report(c.a, c.r, 0);
    } catch (const Error& e) {
      return require(std::string(e.what()).find("too large") != std::string::npos, e.what());
    }
    require(false, "no error for " + std::to_string(parallel::stage_numbers(c.a, c.r, 0).total()));
  });
}

BOOST_AUTO_TEST_SUITE_END()
