// The estimator of PyTorch for adapters over weights that bitsandbytes has quantized to 8 bits (LLM.int8()).
#include <boost/test/unit_test.hpp>

#include "core/model/presets.hpp"
#include "tests/plugins/estimators/pytorch_runs.hpp"
#include "tests/plugins/estimators/report_notes.hpp"

using namespace trainhost;
using namespace trainhost::test;

namespace {

using Options = std::map<std::string, std::string>;

RunSpec int8_run() {
  RunSpec r = mixed_precision();
  r.mode = RunMode::kLora;
  r.memory.frozen = DType::kI8;
  r.lora_rank = 8, r.lora_targets = frameworks::kLoraQ;
  return r;
}

const Options kTransformers = {{"framework", "transformers"}};

/// Blocks of the matrices of the layers, one byte per element and 4 bytes per row, and of what is not
/// quantized.
std::uint64_t weights_of_llama_8b(std::uint64_t bytes_of_others) {
  std::uint64_t layer = 0;
  for (const auto& [outputs, inputs] : {std::pair{4096u, 4096u},
                                        {1024u, 4096u},
                                        {1024u, 4096u},
                                        {4096u, 4096u},
                                        {14336u, 4096u},
                                        {14336u, 4096u},
                                        {4096u, 14336u}})
    layer += std::uint64_t{outputs} * inputs + 4 * outputs;
  layer += 2 * 4 * 8 * 4096;  // the adapter of q, in f32
  return 32 * layer + bytes_of_others * (2 * 128256ull * 4096 + 65 * 4096);
}

}  // namespace

BOOST_AUTO_TEST_SUITE(int8_runs)

BOOST_AUTO_TEST_CASE(the_settings_of_a_run_over_8_bit_weights_allocate_what_pytorch_counts) {
  BOOST_TEST(compare_peaks(oracle_records("int8")) >= 40u);
  BOOST_TEST(compare_peaks(oracle_records("int8-liger")) >= 10u);
}

BOOST_AUTO_TEST_CASE(weights_are_those_that_bitsandbytes_stores_in_8_bits) {
  const RunSpec r = int8_run();
  const auto weights = [&](const char* framework) {
    return estimate(r, {{"framework", framework}}).component_bytes(Component::kWeights);
  };
  BOOST_TEST(weights("transformers") == weights_of_llama_8b(4));
  BOOST_TEST(weights("llama-factory") == weights_of_llama_8b(2));
  BOOST_TEST(weights("axolotl") == weights_of_llama_8b(2));
}

// The node of a product has its input as an attribute, which checkpoints that are not reentrant do not drop:
// of each layer the inputs of q, k and v, of the output projection, of gate and up, and of the last product.
BOOST_AUTO_TEST_CASE(recomputed_layers_keep_the_inputs_of_their_products) {
  RunSpec r = int8_run();
  r.recompute = Recompute::kFull, r.master = DType::kNone;
  const auto kept = [&](const char* reentrant) {
    Options options = kTransformers;
    options["checkpoint_reentrant"] = reentrant, options["int8_outliers"] = "0";
    return bytes_of(estimate(r, options), frameworks::Purpose::kActivations);
  };
  const std::uint64_t inputs = 2ull * 2048 * (3 * 4096 + 14336);
  BOOST_TEST(kept("false") >= kept("true") + 31 * inputs);
  BOOST_TEST(has_note(estimate(r, kTransformers), "keep their inputs although the layers are recomputed"));
  BOOST_TEST(!has_note(estimate(r, {{"framework", "axolotl"}}), "keep their inputs"));
}

BOOST_AUTO_TEST_CASE(the_number_of_outliers_is_a_setting) {
  RunSpec r = int8_run();
  const auto total = [&](const char* outliers) {
    Options options = kTransformers;
    if (*outliers) options["int8_outliers"] = outliers;
    return estimate(r, options).tier_bytes(Tier::kDevice);
  };
  // Under autocast a product with outliers is in bf16, one without them in the type of its input, here f32.
  BOOST_TEST(total("0") > total(""));
  r.master = DType::kNone;
  BOOST_TEST(total("") < total("100"));
  BOOST_TEST(has_note(estimate(r, kTransformers), "0.1 % of them are planned"));
  BOOST_TEST(has_note(estimate(r, {{"framework", "transformers"}, {"int8_outliers", "100"}}),
                      "100 columns of each input of a product have outliers"));
  RunSpec other = int8_run();
  other.memory.frozen = DType::kBF16;
  check_refused(other, {{"framework", "transformers"}, {"int8_outliers", "3"}},
                "plan.int8_outliers of this run");
}

BOOST_AUTO_TEST_CASE(several_ranks_have_buckets_for_the_adapters_over_8_bits) {
  RunSpec r = int8_run();
  r.parallel.data = 8;
  BOOST_TEST(estimate(r, kTransformers).component_bytes(Component::kCommunication) ==
             full_blocks(4u * 32 * 8 * (4096 + 4096)));
}

BOOST_AUTO_TEST_CASE(other_runs_in_8_bits_are_refused_with_the_reason) {
  const RunSpec r = int8_run();
  RunSpec sharded = r;
  sharded.parallel.data = 8, sharded.parallel.zero = 3;
  check_refused(sharded, kTransformers, "lora.base = \"int8\" with sharded weights");
  check_refused(r, {{"framework", "deepspeed"}}, "quantized base weights under DeepSpeed");
  check_refused(r, {{"framework", "axolotl"}, {"cross_entropy", "cut"}}, "with Cut Cross Entropy");
  check_refused(r, {{"framework", "axolotl"}, {"adapter_kernels", "mlp"}}, "over a base in 8 bits");
  BOOST_TEST(!has_note(estimate(r, {{"framework", "axolotl"}}), "kernels of axolotl"));
  check_refused(r, kTransformers, "a model with experts", *model::find_planned_preset("mixtral-8x7b-v0.1"));
}

BOOST_AUTO_TEST_SUITE_END()
