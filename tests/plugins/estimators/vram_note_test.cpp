// The VRAM note: the example of its source to three decimals, entries compared with terms, adapters compared
// with a count per matrix, notes. The printed lines of the source are in sources_test.cpp.
#include <boost/test/unit_test.hpp>
#include <random>

#include "core/base/error.hpp"
#include "core/model/tensors.hpp"
#include "plugins/estimators/vram-note/breakdown.hpp"
#include "tests/plugins/estimators/report_notes.hpp"

using namespace trainhost;
namespace vn = trainhost::vram_note;
using trainhost::test::has_note;

namespace {

ModelSpec gemma_2_27b() {
  ModelSpec m;
  m.family = "gemma2", m.vocab = 256000, m.hidden = 4608, m.layers = 46, m.heads = 32, m.kv_heads = 16,
  m.head_dim = 128, m.intermediate = 36864;
  m.tied = true;
  return m;
}
constexpr std::uint64_t kGemma = 27'227'128'320;

RunSpec run(RunMode mode, std::uint32_t seq = 8192) {
  RunSpec r;
  r.mode = mode, r.seq_len = seq;
  r.weight = r.grad = r.compute = DType::kBF16;
  return r;
}

/// The model with the values of the source.
vn::Settings as_stated() { return {.parameters = 27'000'000'000, .hidden = 4068, .vocab = 256128}; }

double in_gib(std::uint64_t bytes) { return double(bytes) / double(vn::kGiB); }

}  // namespace

BOOST_AUTO_TEST_SUITE(vram_note_)

BOOST_AUTO_TEST_CASE(gemma_2_27b_equals_the_example_of_the_source) {
  const MemoryReport training = vn::breakdown(gemma_2_27b(), run(RunMode::kLora), as_stated(), kGemma);
  BOOST_TEST(training.total_bytes() == 70846191104u);
  BOOST_CHECK_SMALL(in_gib(training.total_bytes()) - 65.981, 0.0005);
  const MemoryReport inference = vn::breakdown(gemma_2_27b(), run(RunMode::kInference), as_stated(), kGemma);
  BOOST_TEST(inference.total_bytes() == 63409789952u);
  BOOST_CHECK_SMALL(in_gib(inference.total_bytes()) - 59.055, 0.0005);
  BOOST_TEST((training.claim == Claim::kApproximation));
  BOOST_TEST(training.tier_bytes(Tier::kDevice) == training.total_bytes());
}

BOOST_AUTO_TEST_CASE(the_notes_have_the_true_values) {
  const MemoryReport training = vn::breakdown(gemma_2_27b(), run(RunMode::kLora), as_stated(), kGemma);
  BOOST_TEST(training.notes.front().starts_with(
      "Rule of thumb: 2 bytes per number (moments too), one hidden state per layer, 2 GiB for CUDA; "));
  BOOST_TEST(has_note(training, "the model has 27,227,128,320: weights 54,454,256,640 bytes (50.7 GiB)"));
  BOOST_TEST(has_note(training, "hidden size is 4608: activations 3,472,883,712 bytes (3.23 GiB)"));
  BOOST_TEST(has_note(training, "vocabulary is 256000"));
  BOOST_TEST(has_note(training, "4 bytes, twice: 16,777,216,000 bytes (15.6 GiB)"));
  BOOST_TEST(has_note(training, "in f32: 4,320,000,000 bytes"));
  BOOST_TEST(has_note(training, "540,000,000 parameters, 2 %"));
  const MemoryReport inference = vn::breakdown(gemma_2_27b(), run(RunMode::kInference), as_stated(), kGemma);
  BOOST_TEST(
      has_note(inference, "The KV cache is not counted: 2*L*K*D*B*S*2 = 3,087,007,744 bytes (2.88 GiB)"));
  BOOST_TEST(!has_note(inference, "moments"));
}

BOOST_AUTO_TEST_CASE(entries_equal_the_terms_of_the_equation) {
  std::mt19937 g(8);
  for (int i = 0; i < 200; ++i) {
    RunSpec r = run(static_cast<RunMode>(1 + g() % 4), 1 + g() % 9000);
    r.micro_batch = 1 + g() % 5, r.lora_rank = g() % 64, r.lora_targets = g() % 128;
    vn::Settings s;
    if (g() % 2) s.ratio = double(g() % 1000) / 1000;
    const vn::Inputs in = vn::inputs_of(gemma_2_27b(), r, s, kGemma);
    const vn::Parts p = r.mode == RunMode::kInference ? vn::inference(in) : vn::training(in);
    const MemoryReport report = vn::breakdown(gemma_2_27b(), r, s, kGemma);
    BOOST_REQUIRE_EQUAL(report.total_bytes(), p.total);
    BOOST_REQUIRE_EQUAL(report.component_bytes(Component::kOptimizerState),
                        p.first_moments + p.second_moments);
    BOOST_REQUIRE_EQUAL(report.component_bytes(Component::kLogits), p.outputs);
    for (const MemoryEntry& n : report.entries)
      BOOST_REQUIRE_MESSAGE(n.lo <= n.bytes && n.bytes <= n.hi && !n.formula.empty(), n.name);
  }
}

BOOST_AUTO_TEST_CASE(the_trained_share_follows_the_run) {
  const ModelSpec m = gemma_2_27b();
  BOOST_TEST(vn::inputs_of(m, run(RunMode::kFull), {}, kGemma).trainable == kGemma);
  BOOST_TEST(vn::inputs_of(m, run(RunMode::kLora), {}, 1000).trainable == 20u);
  BOOST_TEST(vn::inputs_of(m, run(RunMode::kFull), {.ratio = 0.5}, 1000).trainable == 500u);
  RunSpec described = run(RunMode::kQlora);
  described.lora_rank = 8, described.lora_targets = 0b101;  // q and v
  BOOST_TEST(vn::inputs_of(m, described, {}, kGemma).trainable == vn::adapter_parameters(m, described));
  BOOST_TEST(vn::inputs_of(m, described, {.ratio = 0.02}, 1000).trainable == 20u);
}

BOOST_AUTO_TEST_CASE(adapters_are_rank_times_rows_plus_columns_of_every_target) {
  ModelSpec m = gemma_2_27b();
  m.family = "llama", m.layers = 3;
  const std::vector<TensorRole> roles = {TensorRole::kQ,    TensorRole::kK,  TensorRole::kV,   TensorRole::kO,
                                         TensorRole::kGate, TensorRole::kUp, TensorRole::kDown};
  for (std::uint32_t targets = 0; targets < 128; ++targets) {
    RunSpec r = run(RunMode::kLora);
    r.lora_rank = 5, r.lora_targets = targets;
    std::uint64_t sum = 0;
    for (const TensorInfo& t : tensors(m))
      for (std::size_t bit = 0; bit < roles.size(); ++bit)
        if (t.role == roles[bit] && (targets >> bit & 1)) sum += 5 * (t.dim[0] + t.dim[1]);
    BOOST_REQUIRE_EQUAL(vn::adapter_parameters(m, r), sum);
  }
}

BOOST_AUTO_TEST_CASE(other_types_and_several_ranks_get_notes) {
  RunSpec r = run(RunMode::kFull);
  r.weight = DType::kF32, r.parallel.zero = 2, r.parallel.data = 8, r.optimizer = Optimizer::kLion;
  const MemoryReport report = vn::breakdown(gemma_2_27b(), r, {}, kGemma);
  BOOST_TEST(has_note(report, "the weights of this run are f32: 108,908,513,280 bytes"));
  BOOST_TEST(has_note(report, "nothing is sharded over ranks"));
  BOOST_TEST(has_note(report, "lion has other state"));
  r.mode = RunMode::kQlora, r.memory.frozen = DType::kNF4;
  BOOST_TEST(has_note(vn::breakdown(gemma_2_27b(), r, {}, kGemma),
                      "the weights of this run are nf4: 13,613,564,160 bytes"));
}

BOOST_AUTO_TEST_CASE(sizes_above_63_bits_are_too_large) {
  BOOST_CHECK_THROW(
      vn::breakdown(gemma_2_27b(), run(RunMode::kLora), {.parameters = std::uint64_t{1} << 62}, kGemma),
      Error);
  vn::Inputs in{.parameters = std::uint64_t{1} << 61};
  BOOST_CHECK_NO_THROW(vn::inference(in));
  in.parameters *= 2;
  BOOST_CHECK_THROW(vn::inference(in), Error);
  in = {.trainable = std::uint64_t{1} << 61};  // each line is below 2^63, their sum is not
  BOOST_CHECK_THROW(vn::training(in), Error);
}

BOOST_AUTO_TEST_SUITE_END()
