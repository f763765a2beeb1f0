// The estimator of PyTorch for runs with Cut Cross Entropy, as axolotl's plugin applies it.
#include <boost/test/unit_test.hpp>

#include "core/model/presets.hpp"
#include "tests/plugins/estimators/pytorch_runs.hpp"
#include "tests/plugins/estimators/report_notes.hpp"

using namespace trainhost;
using namespace trainhost::test;
using frameworks::Purpose;
using nlohmann::json;

namespace {

using Options = std::map<std::string, std::string>;

Options cut(const std::string& framework) { return {{"framework", framework}, {"cross_entropy", "cut"}}; }

}  // namespace

BOOST_AUTO_TEST_SUITE(cut_loss_runs)

BOOST_AUTO_TEST_CASE(the_settings_of_a_run_with_cut_cross_entropy_allocate_what_pytorch_counts) {
  BOOST_TEST(compare_peaks(oracle_records("cut")) == 32u);
}

BOOST_AUTO_TEST_CASE(no_logits_exist_but_numbers_for_each_token_and_each_word) {
  RunSpec r = mixed_precision();
  r.master = DType::kNone;  // everything in bf16
  const std::uint64_t tokens = 2048, vocabulary = 128256;
  const MemoryReport report = estimate(r, cut("axolotl"));
  BOOST_TEST(has_note(report, "Cut Cross Entropy (fork of axolotl, June 2026): no logits are materialised."));
  BOOST_TEST(has_note(report, "no fused or compiled kernels but those of Cut Cross Entropy"));
  // In the forward pass two f32 numbers and a row number per token, and an average logit per word; in the
  // backward pass also the hidden states' gradient [tokens, H], and the order of the words.
  BOOST_TEST(bytes_of(report, Purpose::kLogits) <=
             16 * tokens + 24 * vocabulary + 2 * tokens * 4096 + (2u << 20));
  r.master = DType::kF32;
  check_refused(r, cut("transformers"), "Cut Cross Entropy with a head in f32");
}

BOOST_AUTO_TEST_CASE(other_runs_with_cut_cross_entropy_are_refused_with_the_reason) {
  RunSpec r = mixed_precision();
  r.master = DType::kNone;
  check_refused(r, cut("deepspeed"), "it is replayed without sharding only");
  check_refused(r, cut("transformers"), "in the family 'gpt2'", *model::find_planned_preset("gpt2"));
  r.parallel.data = 8, r.parallel.zero = 3;
  check_refused(r, cut("transformers"), "Cut Cross Entropy with sharded weights");
}

BOOST_AUTO_TEST_SUITE_END()
