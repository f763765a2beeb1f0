// What a replay skips to save time, against a full one, in the cases of tests/golden/oracle: a second step
// that copies the first, layers that repeat, and a calculation that ends above its limit.
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <map>
#include <tuple>

#include "core/frameworks/trace/evaluate.hpp"
#include "tests/core/frameworks/oracle_cases.hpp"
#include "tests/core/frameworks/same_steps.hpp"

using namespace trainhost;
using namespace trainhost::frameworks;
using Json = nlohmann::json;

BOOST_AUTO_TEST_SUITE(oracle_shortcuts)

BOOST_AUTO_TEST_CASE(a_copied_second_step_has_the_events_of_a_computed_one) {
  std::vector<Json> records = test::oracle_records();
  for (const char* folder : {"fsdp",
                             "accelerate",
                             "quantized",
                             "int8",
                             "factory",
                             "reentrant",
                             "liger",
                             "liger-gemma",
                             "cut",
                             "smollm3",
                             "kindred",
                             "qwen3-moe",
                             "trl",
                             "axolotl",
                             "torchtitan",
                             "torchtitan-experts",
                             "torchtitan-2024",
                             "torchtune",
                             "torchtune-moved",
                             "litgpt",
                             "dpo",
                             "sharded-dpo",
                             "fused",
                             "sharded-fused",
                             "zero-experts",
                             "deepspeed",
                             "deepspeed-offload"})
    for (Json& r : test::oracle_records(folder)) records.push_back(std::move(r));
  for (const Json& r : records) {
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

// The stored cases have up to four layers, which are not repeated. A third of them is enough here.
BOOST_AUTO_TEST_CASE(repeated_layers_have_the_events_of_computed_ones) {
  std::size_t cases = 0;
  for (const char* folder : {"",
                             "quantized",
                             "int8",
                             "reentrant",
                             "liger",
                             "liger-gemma",
                             "cut",
                             "trl",
                             "axolotl",
                             "torchtitan",
                             "torchtitan-experts",
                             "torchtitan-qwen3",
                             "torchtitan-2024",
                             "torchtune",
                             "torchtune-moved",
                             "litgpt",
                             "litgpt-full",
                             "litgpt-wide",
                             "fsdp",
                             "accelerate",
                             "accelerate-lora",
                             "fsdp1",
                             "fsdp1-lora",
                             "sharded-gpt",
                             "dpo",
                             "sharded-dpo",
                             "fused",
                             "sharded-fused",
                             "zero-experts",
                             "deepspeed",
                             "deepspeed3",
                             "deepspeed3-lora",
                             "deepspeed-offload"})
    for (const Json& r : test::oracle_records(folder)) {
      model::Architecture a = test::architecture_of(r.at("case"));
      if (r.at("n").get<int>() % 3) continue;
      // Of layers of two kinds 15 in turn, of which the last is behind the last pair.
      const bool equal = a.layers.back() == a.layers.front();
      model::LayerRun first = a.layers.front(), second = a.layers.back();
      first.count = second.count = 1;
      a.layers.clear();
      while (a.layers.size() < (equal ? 7 : 15)) a.layers.push_back(a.layers.size() % 2 ? second : first);
      StepSettings s = test::settings_of(r.at("case"));
      const TrainingStep copied = training_step(a, s);
      s.repeats_layers = false;
      const TrainingStep computed = training_step(a, s);
      BOOST_TEST(test::same_steps(copied, computed),
                 folder << " case " << r.at("n") << ": " << r.at("case").dump());
      // Where the units of experts are gathered early, some layers differ from each other. A reference beside
      // sharded layers is computed in full.
      const bool reference = r.at("case").contains("dpo") && (s.fsdp.ranks || s.zero.stage);
      if (s.expert == 1 && !reference) BOOST_TEST(copied.repeated, folder << " case " << r.at("n"));
      s.repeats_layers = true;
      BOOST_TEST(CalculatedStep(a, s).peak_bytes() == find_peak(computed.trace).bytes,
                 folder << " case " << r.at("n"));
      ++cases;
    }
  BOOST_TEST(cases >= 250u);
}

// Logits that a loop keeps until the next micro-batch has its own.
BOOST_AUTO_TEST_CASE(shortcuts_have_the_events_of_full_replays_where_a_loop_keeps_its_logits) {
  std::size_t cases = 0;
  for (const Json& r : test::oracle_records()) {
    if (r.at("n").get<int>() % 9) continue;
    model::Architecture a = test::architecture_of(r.at("case"));
    a.layers.resize(1), a.layers.front().count = 7;
    StepSettings s = test::settings_of(r.at("case"));
    s.kept_logits = KeptLogits::kLoop;
    s.f32_outputs = cases % 2 == 0;
    const TrainingStep copied = training_step(a, s);
    s.repeats_layers = s.copies_step = false;
    BOOST_TEST(test::same_steps(copied, training_step(a, s)), "case " << r.at("n"));
    ++cases;
  }
  BOOST_TEST(cases >= 50u);
}

// Callers that ask only whether a run fits need no bytes of one that does not.
BOOST_AUTO_TEST_CASE(a_calculation_ends_where_more_is_allocated_than_its_limit) {
  std::size_t cases = 0;
  for (const char* folder : {"", "reentrant", "torchtitan", "torchtune", "litgpt", "fsdp", "fsdp1",
                             "deepspeed", "deepspeed3", "deepspeed-offload"})
    for (const Json& r : test::oracle_records(folder)) {
      if (r.at("n").get<int>() % 3) continue;
      const model::Architecture a = test::architecture_of(r.at("case"));
      const StepSettings s = test::settings_of(r.at("case"));
      BOOST_TEST_CONTEXT(folder << " case " << r.at("n")) {
        const Trace t = training_step(a, s).trace;
        const std::uint64_t peak = find_peak(t).bytes;
        CalculatedStep fits(a, s, peak);
        BOOST_TEST(fits.complete());
        BOOST_TEST(fits.peak_bytes() == peak);
        BOOST_TEST(std::move(fits).take().trace.events.size() == t.events.size());
        for (const std::uint64_t limit : {peak - 1, peak / 2, peak / 8, std::uint64_t{1}}) {
          const CalculatedStep above(a, s, limit);
          // The peak may be in the second step, which is not calculated where it copies the first.
          if (limit < peak - 1) BOOST_TEST(!above.complete());
          BOOST_TEST(above.peak_bytes() > limit);
          BOOST_TEST(above.peak_bytes() <= peak);
        }
      }
      ++cases;
    }
  BOOST_TEST(cases >= 100u);
}

BOOST_AUTO_TEST_CASE(a_deep_model_may_end_early) {
  const Json r = test::oracle_records().front();
  model::Architecture a = test::architecture_of(r.at("case"));
  a.layers.resize(1);
  a.layers.front().count = 4096;
  StepSettings s = test::settings_of(r.at("case"));
  s.repeats_layers = false;
  for (const bool checkpoint : {false, true}) {
    s.checkpoint = checkpoint;
    const std::uint64_t weights = [&] {
      const Trace t = training_step(a, s).trace;
      return peaks_of_phases(t).front();  // of loading
    }();
    for (const double more : {1.1, 1.5}) {
      const CalculatedStep above(a, s, static_cast<std::uint64_t>(more * double(weights)));
      BOOST_TEST(!above.complete());
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()
