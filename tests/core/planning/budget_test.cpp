// Which memory budgets a run is compared with, and the message when one of them is too small.
#include <boost/test/unit_test.hpp>

#include "core/model/presets.hpp"
#include "core/planning/budget.hpp"
#include "core/process/host_info.hpp"

using namespace trainhost;

namespace {

/// A trainer that only reports device memory.
class Card : public plugin::Trainer {
 public:
  explicit Card(std::optional<plugin::DeviceMemory> m) : memory_(std::move(m)) {}
  const std::string& id() const override { return id_; }
  void probe() override {}
  TrainerTraits traits(const ModelSpec&, const RunSpec&) override { return {}; }
  MemoryReport plan(const ModelSpec&, const RunSpec&) override { return {}; }
  std::optional<std::uint64_t> profile_bytes(const ModelSpec&, const RunSpec&) override {
    return std::nullopt;
  }
  std::optional<plugin::DeviceMemory> device_memory() override {
    ++queries;
    return memory_;
  }
  std::unique_ptr<plugin::Session> create(const ModelSpec&, const RunSpec&) override { return nullptr; }
  int queries = 0;

 private:
  std::optional<plugin::DeviceMemory> memory_;
  std::string id_ = "card";
};

TrainerTraits on(Tier tier, std::uint64_t runtime = 0) {
  TrainerTraits traits;
  traits.tier = tier, traits.runtime_bytes = runtime;
  return traits;
}

MemoryReport report_of(std::uint64_t device, std::uint64_t pinned, std::uint64_t host) {
  MemoryReport r;
  r.tiers = {
      {Tier::kDevice, device, kForward}, {Tier::kPinned, pinned, kForward}, {Tier::kHost, host, kForward}};
  return r;
}

planning::Budgets budgets_of(std::uint64_t device, std::uint64_t host) {
  return {Tier::kDevice, {device, "memory.budget", true}, {host, "free host memory", true}};
}

}  // namespace

BOOST_AUTO_TEST_SUITE(budget)

BOOST_AUTO_TEST_CASE(the_run_file_precedes_the_preset_and_free_memory) {
  Card card(plugin::DeviceMemory{5000, 8000, "Card"});
  runfile::RunConfig c;
  planning::Budgets b = planning::find_budgets(c, on(Tier::kDevice), &card, false);
  BOOST_TEST(b.compute.bytes == 5000u);
  BOOST_TEST(b.compute.source == "free memory of Card");
  BOOST_TEST((b.host.known && b.host.bytes > 0 && b.host.source == "free host memory"));
  BOOST_TEST(card.queries == 1);
  b = planning::find_budgets(c, on(Tier::kDevice, 1024), &card, false);
  BOOST_TEST(b.compute.bytes == 5000u - 1024u);
  BOOST_TEST(b.compute.source == "free memory of Card, less 1.00 KiB for its runtime");
  BOOST_TEST(planning::find_budgets(c, on(Tier::kDevice, 9000), &card, false).compute.bytes == 0u);
  card.queries = 1;
  c.device = "h100-80gb";
  b = planning::find_budgets(c, on(Tier::kDevice), &card, true);
  BOOST_TEST(b.compute.bytes == find_device_preset("h100-80gb")->memory_bytes);
  BOOST_TEST(b.compute.source == "h100-80gb");
  BOOST_TEST(!b.host.known);  // of another machine
  c.budget = 100;
  c.host_budget = 200;
  b = planning::find_budgets(c, on(Tier::kDevice, 50), &card, true);
  BOOST_TEST((b.compute.bytes == 100u && b.compute.source == "memory.budget"));
  BOOST_TEST((b.host.known && b.host.bytes == 200u && b.host.source == "memory.host_budget"));
  BOOST_TEST(card.queries == 1);  // not queried again: memory.budget is set
}

BOOST_AUTO_TEST_CASE(a_host_run_has_one_budget) {
  Card card(plugin::DeviceMemory{5000, 8000, "Card"});
  runfile::RunConfig c;
  c.host_budget = 1;
  const planning::Budgets b = planning::find_budgets(c, on(Tier::kHost), &card, false);
  BOOST_TEST((b.compute.known && b.compute.source == "free memory"));
  BOOST_TEST(!b.host.known);
  BOOST_TEST(card.queries == 0);
  BOOST_TEST(planning::judge(report_of(0, 10, 20), {Tier::kHost, {30, "x", true}, {}}).fits);
  BOOST_TEST(!planning::judge(report_of(0, 10, 20), {Tier::kHost, {29, "x", true}, {}}).fits);
}

BOOST_AUTO_TEST_CASE(without_a_device_the_budget_is_unknown) {
  Card none(std::nullopt);
  const planning::Budgets b = planning::find_budgets({}, on(Tier::kDevice), &none, false);
  BOOST_TEST(!b.compute.known);
  BOOST_TEST(b.compute.source == "not known: the card backend finds no device here");
  BOOST_TEST(planning::judge(report_of(UINT64_C(1) << 60, 0, 0), b).fits);
}

BOOST_AUTO_TEST_CASE(an_unknown_preset_suggests_the_nearest_name) {
  runfile::RunConfig c;
  c.device = "h100-80gbb";
  BOOST_CHECK_EXCEPTION(
      planning::find_budgets(c, on(Tier::kDevice), nullptr, true), Error, [](const Error& e) {
        return e.code() == Exit::kUsage && std::string(e.what()).find("h100-80gb'") != std::string::npos;
      });
}

BOOST_AUTO_TEST_CASE(both_budgets_are_compared_to_the_byte) {
  BOOST_TEST(planning::judge(report_of(100, 20, 30), budgets_of(100, 50)).fits);
  BOOST_TEST(!planning::judge(report_of(101, 20, 30), budgets_of(100, 50)).fits);
  BOOST_TEST(!planning::judge(report_of(100, 21, 30), budgets_of(100, 50)).fits);
  BOOST_TEST(!planning::judge(report_of(100, 20, 31), budgets_of(100, 50)).fits);
}

BOOST_AUTO_TEST_CASE(a_safe_plan_is_judged_by_upper_bounds) {
  MemoryReport r = report_of(100, 0, 0);
  r.claim = Claim::kApproximation;
  r.entries.resize(1);
  r.entries[0].id = 1, r.entries[0].tier = Tier::kDevice, r.entries[0].claim = Claim::kApproximation;
  r.entries[0].bytes = r.entries[0].lo = 100, r.entries[0].hi = 110;
  planning::Budgets b = budgets_of(109, 0);
  BOOST_TEST(planning::judge(r, b).fits);
  b.safe = true;
  const planning::Estimate e = planning::judge(r, b);
  BOOST_TEST(!e.fits);
  BOOST_TEST(e.compute_bytes == 110u);
  BOOST_TEST(e.report.notes.front() == "Upper bounds (--safe): the estimate is 100 B, and its margin 10 B.");
  // Host memory is another tier.
  MemoryReport offloaded = report_of(100, 50, 0);
  offloaded.claim = Claim::kApproximation;
  offloaded.entries = r.entries;
  BOOST_TEST(planning::judge(offloaded, b).report.notes.front() ==
             "Upper bounds (--safe): the estimate is 100 B, and its margin 10 B.");
  r.entries[0].hi = 100;
  BOOST_TEST(planning::judge(r, b).fits);
  BOOST_TEST(planning::judge(r, b).report.notes.front() ==
             "--safe changes nothing: this estimator states no margin.");
  r.claim = Claim::kExact;
  BOOST_TEST(planning::judge(r, b).report.notes.empty());
}

BOOST_AUTO_TEST_CASE(a_verdict_covers_every_tier) {
  using planning::Verdict;
  const auto verdict = [](const MemoryReport& r, const planning::Budgets& b) {
    planning::PlanResult v;
    v.budget_known = b.compute.known, v.host_budget_source = b.host.source;
    return v.verdict(planning::judge(r, b));
  };
  const planning::Budgets known = budgets_of(100, 50);
  planning::Budgets other_machine = known, no_device = known;
  other_machine.host = {}, no_device.compute = {0, "not known", false};
  BOOST_TEST((verdict(report_of(100, 20, 30), known) == Verdict::kFits));
  BOOST_TEST((verdict(report_of(100, 0, 0), other_machine) == Verdict::kFits));
  BOOST_TEST((verdict(report_of(100, 1, 0), other_machine) == Verdict::kFitsDevice));
  BOOST_TEST((verdict(report_of(100, 0, 1), other_machine) == Verdict::kFitsDevice));
  BOOST_TEST((verdict(report_of(101, 0, 1), other_machine) == Verdict::kDoesNotFit));
  BOOST_TEST((verdict(report_of(1 << 30, 20, 30), no_device) == Verdict::kNotKnown));
  BOOST_TEST((verdict(report_of(1, 20, 31), no_device) == Verdict::kDoesNotFit));
  // There is no budget for disk space.
  MemoryReport offloaded = report_of(100, 20, 30);
  offloaded.tiers.push_back({Tier::kDisk, 7, kBackward});
  BOOST_TEST((verdict(offloaded, known) == Verdict::kFitsDevice));
  BOOST_TEST(planning::judge(offloaded, known).disk_bytes == 7u);
}

BOOST_AUTO_TEST_CASE(the_message_names_the_budget_and_the_missing_bytes) {
  const auto why = [](const MemoryReport& r, bool smallest = false) {
    const planning::Budgets b = budgets_of(2048, 1024);
    return planning::why_it_does_not_fit(planning::judge(r, b), b, smallest);
  };
  BOOST_TEST(why(report_of(2048, 512, 512)) == "");
  const std::string device =
      "the run needs 3.00 KiB, but memory.budget is 2.00 KiB: 1.00 KiB (1,024 bytes) short";
  const std::string host =
      "the run needs 1.50 KiB of host memory, but free host memory is 1.00 KiB: 512 B "
      "(512 bytes) short";
  BOOST_TEST(why(report_of(3072, 0, 0)) == device);
  BOOST_TEST(why(report_of(0, 512, 1024)) == host);
  BOOST_TEST(why(report_of(3072, 512, 1024)) == device + "; " + host);
  BOOST_TEST(why(report_of(3072, 0, 0), true).find("3.00 KiB with every layer recomputed, but") !=
             std::string::npos);
}

BOOST_AUTO_TEST_SUITE_END()
