// The replay of a training step against what PyTorch itself measured (tests/golden/oracle).
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <map>
#include <tuple>

#include "core/frameworks/evaluate.hpp"
#include "tests/core/frameworks/oracle_cases.hpp"

using namespace trainhost;
using namespace trainhost::frameworks;
using Json = nlohmann::json;

namespace {

constexpr double kSavedBound = 0.001, kPeakBound = 0.001;

double deviation(std::uint64_t ours, std::uint64_t measured) {
  return (double(ours) - double(measured)) / double(std::max<std::uint64_t>(measured, 1));
}

/// "1 forward" -> bytes, as the records name the phases.
std::map<std::string, std::uint64_t> phase_peaks(const Trace& trace) {
  std::map<std::string, std::uint64_t> peaks;
  const std::vector<std::uint64_t> each = peaks_of_phases(trace, 1);
  for (std::size_t i = 0; i < each.size(); ++i) {
    const TracePhase& p = trace.phases[i];
    if (p.step == 0) continue;
    const char* name = p.phase == kForward ? " forward" : p.phase == kBackward ? " backward" : " optimizer";
    std::uint64_t& peak = peaks[std::to_string(p.step) + name];
    peak = std::max(peak, each[i]);
  }
  return peaks;
}

struct Worst {
  std::size_t cases = 0;
  double saved = 0, peak = 0;
};

}  // namespace

BOOST_AUTO_TEST_SUITE(oracle)

BOOST_AUTO_TEST_CASE(the_replay_agrees_with_pytorch_in_every_stored_case) {
  std::map<std::string, Worst> by_family;
  for (const Json& r : test::oracle_records()) {
    const Json& c = r.at("case");
    const TrainingStep step = training_step(test::architecture_of(c), test::settings_of(c));
    Worst& worst = by_family[c.at("family")];
    ++worst.cases;
    BOOST_TEST_CONTEXT("case " << r.at("n") << ": " << c.dump()) {
      const std::vector<std::uint64_t> measured = r.at("layers");
      BOOST_REQUIRE_EQUAL(step.saved_bytes.size(), measured.size() + 1);
      std::vector<std::pair<std::uint64_t, std::uint64_t>> saved{{step.saved_bytes[0], r.at("outside")}};
      for (std::size_t i = 0; i < measured.size(); ++i)
        saved.push_back({step.saved_bytes[i + 1], measured[i]});
      for (const auto& [ours, theirs] : saved) {
        const double d = deviation(ours, theirs);
        BOOST_TEST(std::abs(d) <= kSavedBound, "saved " << ours << " instead of " << theirs);
        worst.saved = std::max(worst.saved, std::abs(d));
      }
      std::uint64_t our_peak = 0, peak = 0;
      for (const auto& [phase, bytes] : phase_peaks(step.trace)) {
        our_peak = std::max(our_peak, bytes);
        peak = std::max(peak, r.at("peaks").at(phase).at("total").get<std::uint64_t>());
      }
      const double d = deviation(our_peak, peak);
      BOOST_TEST(std::abs(d) <= kPeakBound, "peak " << our_peak << " instead of " << peak);
      worst.peak = std::max(worst.peak, std::abs(d));
    }
  }
  BOOST_TEST(by_family.size() == 9u);
  for (const auto& [family, w] : by_family)
    BOOST_TEST_MESSAGE(family << ": " << w.cases << " cases, saved within " << 100 * w.saved
                              << " %, peak within " << 100 * w.peak << " %");
}

BOOST_AUTO_TEST_CASE(a_copied_second_step_has_the_events_of_a_computed_one) {
  for (const Json& r : test::oracle_records()) {
    StepSettings s = test::settings_of(r.at("case"));
    const auto events = [&](bool copies) {
      s.copies_step = copies;
      const Trace t = training_step(test::architecture_of(r.at("case")), s).trace;
      std::vector<std::tuple<std::uint64_t, Purpose, bool>> out;
      for (const TraceEvent& e : t.events)
        out.emplace_back(t.storages[e.storage].bytes, t.storages[e.storage].purpose, e.allocation);
      std::vector<std::tuple<std::uint64_t, Phase, std::uint32_t, std::uint32_t>> phases;
      for (const TracePhase& p : t.phases) phases.emplace_back(p.event, p.phase, p.step, p.micro_batch);
      return std::pair(out, phases);
    };
    BOOST_TEST((events(true) == events(false)), "case " << r.at("n"));
  }
}

BOOST_AUTO_TEST_SUITE_END()
