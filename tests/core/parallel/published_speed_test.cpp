// Step times of the model compared with published speeds: prints the deviation of each run and bounds it.
// docs/scaling.md has the table.
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <cstdio>

#include "core/parallel/rank_memory.hpp"
#include "tests/core/parallel/published_speeds.hpp"

using namespace trainhost;
using test::SpeedRun;

namespace {

double devices(const RunSpec& r) {
  return double(r.parallel.tensor) * r.parallel.pipeline * r.parallel.context * r.parallel.data;
}

double predicted_tokens_s(const SpeedRun& s) {
  const parallel::TimeModel model(s.model, s.run, s.machine);
  double seconds = model.step(s.run).step;
  if (s.half_recomputed) {
    RunSpec all = s.run;
    all.recompute = Recompute::kFull;
    seconds = (seconds + model.step(all).step) / 2;
  }
  const double tokens = double(s.run.accumulate) * s.run.micro_batch * s.run.parallel.data * s.run.seq_len;
  return tokens / seconds / devices(s.run);
}

/// Prints the table of docs/scaling.md; deviations in percent.
std::vector<double> deviations(const char* source, const std::vector<SpeedRun>& runs) {
  std::vector<double> all;
  std::printf("%s\n| run | published | predicted | deviation |\n", source);
  for (const SpeedRun& s : runs) {
    parallel::validate(s.model, s.run);
    const double ours = predicted_tokens_s(s);
    all.push_back(100 * (ours / s.tokens_s - 1));
    std::printf("| %s | %.*f | %.*f | %+.1f %% |\n", s.what.c_str(), s.tokens_s < 1000, s.tokens_s,
                s.tokens_s < 1000, ours, all.back());
  }
  return all;
}

void within(const std::vector<double>& deviation, double least, double most) {
  for (double d : deviation) BOOST_TEST((d > least && d < most), d << " %");
}

}  // namespace

BOOST_AUTO_TEST_SUITE(published_speed)

BOOST_AUTO_TEST_CASE(nvidia_recipes_in_bf16_agree_within_four_percent) {
  within(deviations("NeMo 24.09, H100, bf16", test::recipe_runs(DType::kBF16)), -4, 4);
}

BOOST_AUTO_TEST_CASE(nvidia_recipes_in_fp8_agree_within_ten_percent) {
  within(deviations("NeMo 24.09, H100, fp8", test::recipe_runs(DType::kF8)), -10, 10);
  within(deviations("Megatron-Bridge, H100, fp8", test::bridge_runs()), -12, 2);
}

BOOST_AUTO_TEST_CASE(torchtitan_runs_agree_within_eleven_percent) {
  within(deviations("torchtitan, H100 at 500 W", test::titan_runs()), -6, 11);
}

BOOST_AUTO_TEST_CASE(llama_3_405b_agrees_within_twelve_percent) {
  within(deviations("Llama 3, H100, bf16", test::llama3_runs()), 0, 12);
}

BOOST_AUTO_TEST_CASE(megatron_runs_on_a100_agree_within_fourteen_percent) {
  within(deviations("Megatron-LM, A100, bf16", test::a100_runs()), -14, 8);
}

// What the model is for: the order of layouts. Each pair differs in one setting.
BOOST_AUTO_TEST_CASE(published_gains_of_one_setting_have_the_right_sign_and_size) {
  const std::vector<SpeedRun> bf16 = test::recipe_runs(DType::kBF16), fp8 = test::recipe_runs(DType::kF8),
                              titan = test::titan_runs(), a100 = test::a100_runs();
  const auto gain = [&](const char* what, const SpeedRun& from, const SpeedRun& to, double tolerance) {
    const double published = to.tokens_s / from.tokens_s,
                 ours = predicted_tokens_s(to) / predicted_tokens_s(from);
    std::printf("%-32s published %.3f, predicted %.3f\n", what, published, ours);
    BOOST_TEST(std::abs(ours - published) < tolerance * std::abs(published - 1), what);
  };
  gain("fp8 instead of bf16, 8b", bf16.front(), fp8.front(), 0.3);
  gain("fp8 instead of bf16, 405b", bf16[11], fp8[11], 0.3);
  gain("interleaved stages, 405b", titan[6], titan[7], 0.3);
  gain("selective recompute, 175b", a100[3], a100[2], 0.5);
  gain("selective recompute, 1t", a100[7], a100[6], 0.5);
}

BOOST_AUTO_TEST_SUITE_END()
