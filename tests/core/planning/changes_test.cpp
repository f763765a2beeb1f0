// The searches behind limits and crossovers, compared with linear scans; the axis syntax of sweep --over; the
// candidates for changes.
#include <boost/test/unit_test.hpp>
#include <random>
#include <set>

#include "core/base/error.hpp"
#include "core/model/presets.hpp"
#include "core/planning/find_limits.hpp"
#include "core/planning/propose_changes.hpp"
#include "core/planning/replan.hpp"
#include "core/planning/sweep.hpp"
#include "core/planning/transfer_costs.hpp"

using namespace trainhost;

namespace {

planning::Estimate estimate_with_bytes(std::uint64_t bytes, std::uint64_t budget) {
  planning::Estimate e;
  e.compute_bytes = e.total_bytes = bytes;
  e.fits = bytes <= budget;
  return e;
}

planning::Estimate estimate_with_entries(std::vector<std::pair<std::string, std::uint64_t>> entries,
                                         Component c = Component::kActivations) {
  planning::Estimate e;
  for (const auto& [name, bytes] : entries) {
    MemoryEntry n;
    n.tier = Tier::kDevice, n.component = c, n.name = name, n.bytes = n.bytes_at_peak = bytes,
    n.has_at_peak = true;
    e.report.entries.push_back(n);
    e.compute_bytes += bytes;
  }
  return e;
}

std::string error_of(const std::string& over) {
  try {
    planning::parse_axis(over);
  } catch (const Error& e) {
    BOOST_TEST(static_cast<int>(e.code()) == 2);
    return e.what();
  }
  return "";
}

std::vector<std::string> labels(const std::string& over) {
  std::vector<std::string> out;
  for (const planning::AxisValue& v : planning::parse_axis(over).values) out.push_back(v.label);
  return out;
}

using Strings = std::vector<std::string>;

}  // namespace

BOOST_AUTO_TEST_SUITE(answers)

// Combinations of changes contain the same settings in several orders.
BOOST_AUTO_TEST_CASE(settings_that_were_planned_in_another_order_are_not_planned_again) {
  int loaded = 0;
  const planning::RunSource source{[&](const planning::Settings&) -> runfile::RunConfig {
                                     ++loaded;
                                     throw usage_error("not a valid run");
                                   },
                                   {}};
  plugin::Registry registry({}, {});
  planning::Replanner replan(source, registry, {}, {}, "");
  const planning::Settings tensor = {{"parallel.tensor", "8"}, {"train.recompute", "full"}};
  const planning::Settings recomputed = {{"train.recompute", "full"}, {"parallel.tensor", "8"}};
  BOOST_TEST(!replan.plan(tensor));
  BOOST_TEST(!replan.plan(recomputed));
  BOOST_TEST(!replan.plan(recomputed, false, false));
  BOOST_TEST(loaded == 1);
  BOOST_TEST(!replan.plan(recomputed, true));  // for another device
  BOOST_TEST(loaded == 2);
  const planning::Settings fewer = {{"train.recompute", "full"}, {"parallel.tensor", "4"}};
  BOOST_TEST(!replan.plan(fewer));
  BOOST_TEST(loaded == 3);
}

BOOST_AUTO_TEST_CASE(largest_that_fits_equals_a_linear_scan_on_random_curves) {
  std::mt19937_64 random(5);
  for (int round = 0; round < 400; ++round) {
    const std::uint64_t most = 1 + random() % 3000, base = random() % 10000, line = random() % 300,
                        square = round % 2 ? random() % 5 : 0, steps = 1 + random() % 40,
                        budget = random() % 4000000;
    const auto bytes = [&](std::uint64_t x) { return base + line * x + square * x * x + x / steps * 17; };
    std::uint64_t scan = 0, asked = 0;
    while (scan < most && bytes(scan + 1) <= budget) ++scan;
    const planning::LargestFit m = planning::largest_that_fits(most, budget, [&](std::uint64_t x) {
      BOOST_REQUIRE((x >= 1 && x <= most));
      ++asked;
      return std::optional(estimate_with_bytes(bytes(x), budget));
    });
    BOOST_TEST(m.value == scan);
    BOOST_TEST(m.at.has_value() == (scan > 0));
    if (scan > 0) BOOST_TEST(m.at->compute_bytes == bytes(scan));
    if (scan < most) BOOST_TEST(m.beyond.value().compute_bytes == bytes(scan + 1));
    BOOST_TEST(asked < 50u);
  }
}

BOOST_AUTO_TEST_CASE(an_invalid_run_counts_as_not_fitting) {
  const planning::LargestFit m =
      planning::largest_that_fits(100, 1000, [&](std::uint64_t x) -> std::optional<planning::Estimate> {
        if (x > 7) return std::nullopt;
        return estimate_with_bytes(x, 1000);
      });
  BOOST_TEST(m.value == 7u);
  BOOST_TEST(!m.beyond.has_value());
}

BOOST_AUTO_TEST_CASE(exceeding_component_is_the_largest_entry_that_grew) {
  const planning::Estimate fits = estimate_with_entries({{"weights", 900}, {"gate_up", 100}, {"x", 50}});
  const planning::Estimate beyond = estimate_with_entries({{"weights", 900}, {"gate_up", 200}, {"x", 150}});
  BOOST_TEST(planning::exceeding_component(&fits, beyond, Tier::kDevice) == "activations: gate_up, 200 B");
  BOOST_TEST(planning::exceeding_component(nullptr, beyond, Tier::kDevice) == "activations: weights, 900 B");
}

BOOST_AUTO_TEST_CASE(bisection_finds_where_a_fact_changes) {
  for (std::uint64_t edge : {3u, 4u, 1000u, 16384u})
    BOOST_TEST(planning::bisect(2, 16384, [&](std::uint64_t x) { return x >= edge; }) == edge);
  BOOST_TEST(planning::bisect(2, 100, [](std::uint64_t x) { return x < 40; }) == 40u);
}

BOOST_AUTO_TEST_CASE(only_facts_that_change_between_two_points_are_crossovers) {
  const auto a = estimate_with_entries({{"linear", 10}, {"scores", 5}}),
             b = estimate_with_entries({{"linear", 20}, {"scores", 40}});
  const std::vector<planning::Predicate> facts = planning::changed_facts(a, b, false);
  BOOST_REQUIRE(facts.size() == 2u);
  BOOST_TEST(facts[0].sentence == "linear no longer exceeds all other activations together");
  BOOST_TEST(facts[1].sentence == "scores exceeds all other activations together");
  BOOST_TEST(planning::changed_facts(a, a, true).empty());
}

BOOST_AUTO_TEST_CASE(ranges_double_add_multiply_or_list) {
  BOOST_TEST(labels("data.seq_len=512..4096") == (Strings{"512", "1024", "2048", "4096"}));
  BOOST_TEST(labels("data.seq_len=512..3000") == (Strings{"512", "1024", "2048", "3000"}));
  BOOST_TEST(labels("data.seq_len=10..40+15") == (Strings{"10", "25", "40"}));
  BOOST_TEST(labels("train.micro_batch=1..81*3") == (Strings{"1", "3", "9", "27", "81"}));
  BOOST_TEST(labels("train.micro_batch=4..4") == (Strings{"4"}));
  BOOST_TEST(labels("parallel.zero=0..3+1") == (Strings{"0", "1", "2", "3"}));
  BOOST_TEST(labels("train.recompute=none,selective,full") == (Strings{"none", "selective", "full"}));
  BOOST_TEST(labels("memory.budget=8GiB..32GiB") == (Strings{"8GiB", "16GiB", "32GiB"}));
  const planning::Axis a = planning::parse_axis("data.seq_len=5,7");
  BOOST_TEST((a.unit == "tokens" && a.whole_numbers && a.values[1].x == 7));
  BOOST_TEST(planning::parse_axis("train.recompute=none,full").values[1].x == 1);
}

BOOST_AUTO_TEST_CASE(invalid_axes_are_rejected_with_a_reason) {
  const auto has = [](const std::string& text, const char* part) {
    return text.find(part) != std::string::npos;
  };
  BOOST_TEST(has(error_of("data.seqlen=1..4"), "did you mean 'data.seq_len'?"), error_of("data.seqlen=1..4"));
  BOOST_TEST(has(error_of("data.seq_len"), "KEY=VALUES"));
  BOOST_TEST(has(error_of("data.seq_len=4096..512"), "is descending; write 512..4096"));
  BOOST_TEST(has(error_of("data.seq_len=1..2..3"), "is not a range"));
  BOOST_TEST(has(error_of("data.seq_len=..8"), "is not a range"));
  BOOST_TEST(has(error_of("data.seq_len=8.."), "is not a range"));
  BOOST_TEST(has(error_of("data.seq_len=1..8+0"), "is endless"));
  BOOST_TEST(has(error_of("data.seq_len=1..8*1"), "is endless"));
  BOOST_TEST(has(error_of("data.seq_len=0..8"), "cannot double or multiply 0"));
  BOOST_TEST(has(error_of("data.seq_len=1..99999999999"), "expected a whole number from 1 to 16777216"));
  BOOST_TEST(has(error_of("data.seq_len=1..16777216+1"), "more than 1000 values"));
  BOOST_TEST(has(error_of("data.seq_len=two,three"), "'two' is not a valid value"));
  BOOST_TEST(has(error_of("data.seq_len=512,,1024"), "an empty value"));
  BOOST_TEST(has(error_of("train.recompute=none,ful"), "did you mean 'full'?"));
  BOOST_TEST(has(error_of("train.recompute=none..full"), "list its values"));
}

BOOST_AUTO_TEST_CASE(settings_are_formatted_in_run_file_syntax) {
  BOOST_TEST(
      planning::format_as_run_file(
          {{"train.micro_batch", "2"}, {"train.recompute", "full"}, {"plugin.cuda.mode", "streamed"}}) ==
      "train.micro_batch = 2, train.recompute = \"full\", plugin.cuda.mode = \"streamed\"");
}

BOOST_AUTO_TEST_CASE(candidates_keep_the_tokens_per_step_and_have_valid_values) {
  runfile::RunConfig c = runfile::load_run(
      {}, {{"train.micro_batch", "12"}, {"train.grad_accum", "3"}, {"memory.device", "h100-80gb"}});
  planning::ChangeContext s{c, Tier::kDevice, "", 80000000000, 1000000, 1000000};
  s.dense = true;  // a model without experts
  std::size_t micro = 0, all = 0;
  for (const planning::CandidateSeries& f : planning::propose_changes(s))
    for (const planning::CandidateChange& r : f.changes) {
      ++all;
      const runfile::RunConfig changed = runfile::load_run({}, [&] {
        planning::Settings with = {{"train.micro_batch", "12"}, {"train.grad_accum", "3"}};
        with.insert(with.end(), r.settings.begin(), r.settings.end());
        return with;
      }());
      BOOST_TEST((!r.sentence.empty() && !r.cost_text.empty()));
      if (r.settings.front().key != "train.micro_batch") continue;
      ++micro;
      BOOST_TEST(changed.run.tokens_per_step() == 36u * 128u);
    }
  BOOST_TEST(micro == 5u);  // 6, 4, 3, 2, 1
  BOOST_TEST(all > 40u);
}

BOOST_AUTO_TEST_CASE(tensor_ranks_are_proposed_within_the_same_devices) {
  const auto proposed = [](std::vector<runfile::Override> settings) {
    settings.push_back({"model.preset", "llama-3-8b"});
    settings.push_back({"memory.device", "h100-80gb"});
    const runfile::RunConfig c = runfile::load_run({}, settings);
    Strings out;
    for (const planning::CandidateSeries& f :
         planning::propose_changes({c, Tier::kDevice, "", 80'000'000'000, 1000000, 1000000}))
      for (const planning::CandidateChange& r : f.changes) {
        if (f.price == planning::Price::kHardware || r.settings.front().key != "parallel.tensor") continue;
        out.push_back(planning::format_as_run_file(r.settings));
        std::vector<runfile::Override> with = settings;
        with.insert(with.end(), r.settings.begin(), r.settings.end());
        const runfile::RunConfig changed = runfile::load_run({}, with);
        BOOST_TEST(planning::devices_of(changed.run) == planning::devices_of(c.run));
        if (c.run.mode != RunMode::kInference)
          BOOST_TEST(changed.run.tokens_per_step() * changed.run.parallel.data ==
                     c.run.tokens_per_step() * c.run.parallel.data);
      }
    return out;
  };
  BOOST_TEST(
      proposed({{"parallel.data", "4"}, {"train.grad_accum", "3"}}) ==
          (Strings{
              "parallel.tensor = 2, parallel.sequence = true, parallel.data = 2, train.grad_accum = 6",
              "parallel.tensor = 4, parallel.sequence = true, parallel.data = 1, train.grad_accum = 12"}),
      boost::test_tools::per_element());
  // At most eight ranks, one node; an odd number of data ranks cannot be halved.
  BOOST_TEST(proposed({{"parallel.data", "4"}, {"parallel.tensor", "4"}, {"parallel.sequence", "true"}}) ==
                 (Strings{"parallel.tensor = 8, parallel.data = 2, train.grad_accum = 2"}),
             boost::test_tools::per_element());
  BOOST_TEST(proposed({{"parallel.data", "3"}}).empty());
  BOOST_TEST(proposed({}).empty());
  BOOST_TEST(proposed({{"parallel.data", "2"}, {"plan.mode", "inference"}}) ==
                 (Strings{"parallel.tensor = 2, parallel.data = 1"}),
             boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(other_devices_are_of_the_same_vendor) {
  const auto vendors = [](const char* device) {
    const runfile::RunConfig c = runfile::load_run({}, {{"memory.device", device}});
    std::set<std::string> out;
    for (const planning::CandidateSeries& f :
         planning::propose_changes({c, Tier::kDevice, "", 20'000'000'000, 1000000, 1000000}))
      for (const planning::CandidateChange& r : f.changes)
        if (r.other_device) out.insert(find_device_preset(r.settings.back().value)->vendor);
    return out;
  };
  BOOST_TEST(vendors("a100-40gb") == std::set<std::string>{"NVIDIA"}, boost::test_tools::per_element());
  BOOST_TEST(vendors("mi300x-192gb") == std::set<std::string>{"AMD"}, boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(a_run_that_trains_adapters_gets_smaller_adapters_and_narrower_weights) {
  const runfile::RunConfig c =
      runfile::load_run({}, {{"memory.device", "a100-40gb"}, {"lora.rank", "64"}, {"lora.base", "bf16"}});
  Strings settings;
  for (const planning::CandidateSeries& f :
       planning::propose_changes({c, Tier::kDevice, "", 20'000'000'000, 1000000, 1000000}))
    for (const planning::CandidateChange& r : f.changes)
      if (r.settings.front().key.starts_with("lora."))
        settings.push_back(planning::format_as_run_file(r.settings));
  BOOST_TEST(settings == (Strings{"lora.rank = 32", "lora.rank = 16", "lora.rank = 8", "lora.rank = 4",
                                  "lora.base = \"nf4\", lora.double_quant = true"}),
             boost::test_tools::per_element());
}

// Whatever estimator answers: the closed form would plan adapters of any framework.
BOOST_AUTO_TEST_CASE(adapters_are_proposed_for_frameworks_that_train_them) {
  const auto proposes = [](const char* framework) {
    const runfile::RunConfig c =
        runfile::load_run({}, {{"memory.device", "a100-40gb"}, {"plan.framework", framework}});
    for (const planning::CandidateSeries& f :
         planning::propose_changes({c, Tier::kDevice, "", 80'000'000'000, 1000000, 1000000}))
      for (const planning::CandidateChange& r : f.changes)
        if (r.settings.front().key.starts_with("lora.")) return true;
    return false;
  };
  for (const char* framework :
       {"pytorch", "transformers", "fsdp2", "deepspeed", "torchtune", "litgpt", "axolotl"})
    BOOST_TEST(proposes(framework), framework);
  for (const char* framework : {"megatron", "torchtitan"}) BOOST_TEST(!proposes(framework), framework);
}

BOOST_AUTO_TEST_CASE(device_counts_are_relative_to_the_original_run) {
  runfile::RunConfig c = runfile::load_run({}, {{"memory.device", "h100-80gb"}});
  c.run.parallel.tensor = 8;
  planning::ChangeContext s{c, Tier::kDevice, "", 80000000000, 1000000, 1000000};
  s.devices = 1;  // of the original run; the TP ranks come from a prefix
  std::size_t counted = 0;
  for (const planning::CandidateSeries& f : planning::propose_changes(s))
    for (const planning::CandidateChange& r : f.changes)
      if (r.cost_text.find("devices instead of") != std::string::npos) {
        ++counted;
        BOOST_TEST(r.cost_text.ends_with("instead of 1"), r.cost_text);
      }
  BOOST_TEST(counted > 5u);
}

BOOST_AUTO_TEST_CASE(offload_cost_includes_experts_that_a_token_does_not_use) {
  const runfile::RunConfig c = runfile::load_run({}, {{"memory.device", "h100-80gb"}});
  planning::ChangeContext dense{c, Tier::kDevice, "", 80000000000, 1000000, 1000000}, sparse = dense;
  sparse.all_parameters = 8000000;
  BOOST_TEST(planning::weight_offload_cost(sparse) == 8 * planning::weight_offload_cost(dense),
             boost::test_tools::tolerance(1e-9));
  BOOST_TEST(planning::optimizer_offload_cost(sparse) == 8 * planning::optimizer_offload_cost(dense),
             boost::test_tools::tolerance(1e-9));
  // In inference, weights are read per token: 32 GB/s from the host instead of 3350 GB/s from device memory.
  const runfile::RunConfig generates = runfile::load_run(
      {}, {{"memory.device", "h100-80gb"}, {"plan.mode", "inference"}, {"train.micro_batch", "1"}});
  const planning::ChangeContext g{generates, Tier::kDevice, "", 80000000000, 1000000, 0};
  BOOST_TEST(planning::weight_offload_cost(g) > 40);
}

BOOST_AUTO_TEST_SUITE_END()
