// Calculon's search space of GPT-3 175B on 4096 processors, enumerated like its optimal-execution command
// (batch 4096, two networks, a second tier, fused activations): 7,126,368 executions. Everything in them that
// changes the memory of a rank is in the space here, except interleaving where the micro-batches do not fill
// whole rounds of the pipeline.
#include <boost/test/unit_test.hpp>
#include <set>
#include <tuple>

#include "core/parallel/layout_space.hpp"
#include "tests/core/parallel/measured_runs.hpp"

using namespace trainhost;
using namespace trainhost::parallel;

namespace {

constexpr std::uint32_t kDevices = 4096, kBatch = 4096, kLayers = 96, kHeads = 96, kHidden = 12288,
                        kSeq = 2048;

std::vector<std::uint32_t> factors(std::uint32_t n) {
  std::vector<std::uint32_t> out;
  for (std::uint32_t i = 1; i <= n; ++i)
    if (n % i == 0) out.push_back(i);
  return out;
}

/// tensor, pipeline, data, interleave, micro-batch, recompute, ZeRO, sequence, offload of weights,
/// optimizer state, activations.
using Point = std::tuple<std::uint32_t, std::uint32_t, std::uint32_t, std::uint32_t, std::uint32_t, Recompute,
                         std::uint32_t, bool, bool, bool, bool>;

struct Calculon {
  std::uint64_t executions = 0;  // many differ only in time: networks, overlaps, kind of all-reduce
  std::set<Point> points;
};

/// Executions of one tensor, pipeline, data and interleave.
void add(Calculon& c, std::uint32_t t, std::uint32_t p, std::uint32_t d, std::uint32_t v) {
  const std::uint64_t networks = (t > 1 ? 2u : 1u) * (p > 1 ? 2u : 1u) * (d > 1 ? 2u : 1u);
  const std::uint64_t overlaps = (t > 1 ? 3u : 1u) * (d > 1 ? 2u : 1u);
  for (const Recompute recompute : {Recompute::kFull, Recompute::kSelective, Recompute::kNone})
    for (std::uint32_t zero = 0; zero <= (d > 1 ? 1u : 0u); ++zero)
      for (const int exchange : {0, 1, 2}) {  // all-reduce; reduce-scatter and all-gather; sequence parallel
        const std::uint64_t redo = exchange == 2 && recompute != Recompute::kFull ? 2 : 1;
        for (unsigned away = 0; away < 8; ++away) {
          if ((away & 4) && recompute == Recompute::kFull) continue;
          for (const std::uint32_t b : factors(kBatch / d)) {
            if (std::uint64_t{b} * kSeq % t) continue;
            c.executions += networks * overlaps * redo;
            c.points.insert(
                {t, p, d, v, b, recompute, zero, exchange == 2 && t > 1, away & 1, away & 2, away & 4});
          }
        }
      }
}

Calculon calculon() {
  Calculon c;
  for (const std::uint32_t t : factors(kDevices)) {
    if (kHidden % t || kHeads % t) continue;
    for (const std::uint32_t p : factors(std::min(kDevices / t, kLayers))) {
      if (kDevices % (t * p) || kLayers % p) continue;
      for (const std::uint32_t v : p == 1 ? std::vector<std::uint32_t>{1} : factors(kLayers / p))
        add(c, t, p, kDevices / t / p, v);
    }
  }
  return c;
}

std::set<Point> ours() {
  model::Architecture a = test::dense(kHidden, 4 * kHidden, kHeads, kHeads, 51200, kLayers, true);
  SearchSpace space;
  space.base.seq_len = kSeq, space.devices = kDevices, space.global_batch = kBatch;
  space.axes.context = {1};
  space.axes.recompute = {{Recompute::kNone, 1}, {Recompute::kSelective, 1}, {Recompute::kFull, 1}};
  space.axes.zero = {0, 1};
  std::set<Point> out;
  for (const MicroBatchSettings& s : micro_batch_settings(a, space))
    for (const PipelineSettings& d : pipeline_settings(a, space, s))
      for (const StateSettings& k : state_settings(space, d.data > 1))
        out.insert({s.tensor, d.pipeline, d.data, d.interleave, s.micro_batch, s.recompute.kind, k.zero,
                    s.sequence, k.weights != Tier::kDevice, k.optimizer != Tier::kDevice,
                    k.activations != Tier::kDevice});
  return out;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(calculon_space)

BOOST_AUTO_TEST_CASE(calculon_executions_map_to_layouts_of_the_space) {
  const Calculon theirs = calculon();
  const std::set<Point> space = ours();
  BOOST_TEST(theirs.executions == 7'126'368u);
  std::uint64_t uneven = 0, missing = 0;
  for (const Point& x : theirs.points) {
    const auto [t, p, d, v, b, recompute, zero, sequence, w, o, act] = x;
    if (v > 1 && kBatch / d / b % p)
      ++uneven;
    else if (!space.contains(x))
      ++missing;
  }
  BOOST_TEST(missing == 0u);
  BOOST_TEST_MESSAGE("distinct in memory " << theirs.points.size() << ", of them uneven rounds " << uneven
                                           << "; ours " << space.size());
  BOOST_TEST(theirs.points.size() > uneven);
}

BOOST_AUTO_TEST_SUITE_END()
