// Pipeline stages of Megatron-LM with a given number of layers: which layers a stage has, what it keeps, and
// numbers that are refused.
#include <boost/test/unit_test.hpp>
#include <string>
#include <utility>
#include <vector>

#include "core/base/error.hpp"
#include "plugins/estimators/pytorch/report.hpp"
#include "tests/core/parallel/measured_runs.hpp"

using namespace trainhost;

BOOST_AUTO_TEST_SUITE(megatron_stages)

namespace {

frameworks::StepSettings settings_of_stages(const model::Architecture& a, const RunSpec& run) {
  pytorch::Options o;
  o.framework = pytorch::Framework::kMegatron;
  o.name = "megatron";
  std::vector<std::string> notes;
  return pytorch::step_settings(a, run, o, notes);
}

RunSpec with_stages(std::uint32_t stages, std::uint32_t first, std::uint32_t last) {
  RunSpec run = test::megatron({1, stages, 2}, 256);
  run.parallel.first_stage_layers = first, run.parallel.last_stage_layers = last;
  return run;
}

}  // namespace

BOOST_AUTO_TEST_CASE(stages_beside_those_with_a_given_number_have_equal_numbers_of_layers) {
  using Range = std::pair<std::uint32_t, std::uint32_t>;
  const auto ranges = [](std::uint32_t stages, std::uint32_t first, std::uint32_t last,
                         std::uint32_t layers) {
    frameworks::StageOfPipeline stage{stages};
    stage.first_layers = first, stage.last_layers = last;
    std::vector<Range> all;
    for (stage.index = 0; stage.index < stages; ++stage.index)
      all.push_back(frameworks::layers_of_stage(layers, stage));
    return all;
  };
  BOOST_TEST((ranges(4, 2, 1, 11) == std::vector<Range>{{0, 2}, {2, 6}, {6, 10}, {10, 11}}));
  BOOST_TEST((ranges(4, 0, 1, 10) == std::vector<Range>{{0, 3}, {3, 6}, {6, 9}, {9, 10}}));
  BOOST_TEST((ranges(3, 4, 0, 10) == std::vector<Range>{{0, 4}, {4, 7}, {7, 10}}));
  BOOST_TEST((ranges(2, 4, 6, 10) == std::vector<Range>{{0, 4}, {4, 10}}));
}

BOOST_AUTO_TEST_CASE(a_stage_has_the_weights_of_its_layers) {
  const model::Architecture a = test::dense(64, 96, 4, 2, 1024, 7);
  constexpr std::uint64_t kLayer = 2 * 64 * 64 + 2 * 64 * 32 + 3 * 64 * 96 + 2 * 64, kEmbedding = 1024 * 64;
  const auto weights = [&](std::uint32_t index) {
    frameworks::StepSettings s = settings_of_stages(a, with_stages(3, 2, 1));
    s.stage.index = index;
    std::uint64_t bytes = 0;
    const frameworks::Trace trace = frameworks::training_step(a, s).trace;
    for (const frameworks::TraceStorage& storage : trace.storages)
      if (std::string_view(trace.names[storage.tensor]) == "buffer of weights") bytes += storage.bytes;
    return bytes / 2;
  };
  BOOST_TEST(weights(0) == 2 * kLayer + kEmbedding);
  BOOST_TEST(weights(1) == 4 * kLayer);
  BOOST_TEST(weights(2) ==
             kLayer + kEmbedding + 64 + 64);  // the last norm; the end is padded to 128 elements
}

BOOST_AUTO_TEST_CASE(numbers_of_layers_that_megatron_core_does_not_divide_are_refused) {
  const model::Architecture a = test::dense(64, 96, 4, 2, 1024, 8);
  const auto refused = [&](const RunSpec& run, const char* words) {
    BOOST_CHECK_EXCEPTION(settings_of_stages(a, run), Error, [&](const Error& e) {
      return std::string(e.what()).find(words) != std::string::npos;
    });
  };
  BOOST_CHECK_NO_THROW(settings_of_stages(a, with_stages(3, 2, 0)));
  refused(with_stages(3, 3, 0), "plan.first_stage_layers = 3, plan.last_stage_layers = 0 of 8 layers");
  refused(with_stages(2, 3, 4), "plan.last_stage_layers = 4 of 8 layers in 2 stages");
  refused(with_stages(3, 0, 8), "plan.last_stage_layers = 8");
  RunSpec run = with_stages(2, 0, 3);
  run.parallel.virtual_stages = 2;
  refused(run, "parallel.interleave = 2 with plan.first_stage_layers");
}

BOOST_AUTO_TEST_SUITE_END()
