// The estimator of PyTorch for runs with the kernels of Liger (use_liger_kernel).
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

Options liger(const std::string& framework, Options others = {}) {
  others.insert({{"framework", framework}, {"cross_entropy", "liger"}});
  return others;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(liger_runs)

BOOST_AUTO_TEST_CASE(the_settings_of_a_run_with_kernels_of_liger_allocate_what_pytorch_counts) {
  std::vector<json> records = oracle_records("liger");
  std::ranges::move(oracle_records("liger-gemma"), std::back_inserter(records));
  std::ranges::move(oracle_records("liger-mixtral"), std::back_inserter(records));
  BOOST_TEST(compare_peaks(records) >= 68u);
}

BOOST_AUTO_TEST_CASE(the_logits_of_a_chunk_exist_and_the_gradient_of_the_hidden_states_is_kept) {
  RunSpec r = mixed_precision();
  r.master = DType::kNone;  // everything in bf16
  const std::uint64_t tokens = 2048, vocabulary = 128256, width = 4096;
  // tokens / ceil(vocabulary / width) = 64, a power of two. One loss in f32 and one mask per token. The
  // gradient of the head is that of a weight.
  const std::uint64_t chunk = 64 * vocabulary * 2, gradient = tokens * width * 2;
  const std::uint64_t rows = full_blocks(4 * tokens) + full_blocks(tokens),
                      labels = full_blocks(8 * (tokens + 1));
  const MemoryReport report = estimate(r, liger("transformers"));
  BOOST_TEST(
      has_note(report, "Liger 0.8: head and loss in chunks of tokens; kernels rope, rms_norm, swiglu."));
  BOOST_TEST(bytes_of(report, Purpose::kLogits) == chunk + gradient + rows + labels);
  BOOST_TEST(report.component_bytes(Component::kGradients) == 2u * 8'030'261'248);
}

BOOST_AUTO_TEST_CASE(kernels_are_those_that_the_framework_switches_on) {
  RunSpec r = mixed_precision();
  const auto activations = [&](const Options& options) {
    return bytes_of(estimate(r, options), Purpose::kActivations);
  };
  const std::uint64_t all = activations(liger("transformers"));
  const std::uint64_t loss_only = activations(liger("transformers", {{"liger_kernels", "none"}}));
  BOOST_TEST(all < loss_only);
  BOOST_TEST(activations(liger("llama-factory")) == all);
  BOOST_TEST(activations(liger("transformers", {{"liger_kernels", "rope,rms_norm,swiglu"}})) == all);
  // axolotl has one key for each.
  BOOST_TEST(activations(liger("axolotl")) == loss_only);
  BOOST_TEST(activations(liger("axolotl", {{"liger_kernels", "swiglu,rms_norm,rope"}})) == all);
  BOOST_TEST(has_note(estimate(r, liger("axolotl")), "no kernels in the layers (plan.liger_kernels)"));
  // SwiGLU keeps neither silu(gate) nor, in bf16, anything but gate and up: 2 bytes less per element of
  // silu(gate).
  BOOST_TEST(loss_only - activations(liger("transformers", {{"liger_kernels", "swiglu"}})) ==
             32ull * 2048 * 14336 * 2);
}

// In full training the shards of accelerate are f32, and each unit is gathered with the head as its last.
BOOST_AUTO_TEST_CASE(sharded_runs_with_kernels_of_liger_materialise_no_logits) {
  RunSpec r = mixed_precision();
  r.parallel.data = 8, r.parallel.zero = 3;
  for (const char* version : {"1", "2"}) {
    const auto logits = [&](const char* loss) {
      return bytes_of(
          estimate(r, {{"framework", "transformers"}, {"cross_entropy", loss}, {"fsdp_version", version}}),
          Purpose::kLogits);
    };
    BOOST_TEST(logits("liger") < logits("plain"),
               version << ": " << logits("liger") << ' ' << logits("plain"));
  }
  const auto under_deepspeed = [&](const char* loss) {
    return bytes_of(estimate(r, {{"framework", "deepspeed"}, {"cross_entropy", loss}}), Purpose::kLogits);
  };
  BOOST_TEST(under_deepspeed("liger") * 10 < under_deepspeed("plain"));
  BOOST_TEST(has_note(estimate(r, liger("deepspeed")), "Liger 0.8: head and loss in chunks of tokens"));
  r.mode = RunMode::kLora, r.lora_rank = 8, r.lora_targets = frameworks::kLoraQ;
  BOOST_TEST(under_deepspeed("liger") * 10 < under_deepspeed("plain"));
}

BOOST_AUTO_TEST_CASE(mixtral_has_a_function_of_liger_for_its_experts) {
  RunSpec r = mixed_precision();
  const ModelSpec mixtral = *model::find_planned_preset("mixtral-8x7b-v0.1");
  BOOST_TEST(bytes_of(estimate(r, liger("transformers"), mixtral), Purpose::kActivations) <
             bytes_of(estimate(r, liger("transformers", {{"liger_kernels", "none"}}), mixtral),
                      Purpose::kActivations));
  r.parallel.data = 8, r.parallel.zero = 3;
  BOOST_TEST(has_note(estimate(r, liger("transformers"), mixtral), "head and loss in chunks of tokens"));
  check_refused(r, liger("deepspeed"), "kernels of Liger in Mixtral under DeepSpeed", mixtral);
  r.mode = RunMode::kLora, r.lora_rank = 8, r.lora_targets = frameworks::kLoraQ;
  check_refused(r, liger("transformers", {{"fsdp_version", "1"}}),
                "kernels of Liger in Mixtral with sharded adapters", mixtral);
}

BOOST_AUTO_TEST_CASE(other_runs_with_kernels_of_liger_are_refused_with_the_reason) {
  RunSpec r = mixed_precision();
  check_refused(r, liger("transformers"), "in the family 'smollm3'",
                *model::find_planned_preset("smollm3-3b"));
  check_refused(r, liger("fsdp2"), "on one device, and as accelerate or DeepSpeed shards models");
  r.parallel.data = 8, r.parallel.zero = 3;
  r.mode = RunMode::kLora, r.lora_rank = 8, r.lora_targets = frameworks::kLoraQ;
  check_refused(r, liger("transformers"),
                "with adapters under FSDP2: its loss reads the head outside of its unit");
  r = mixed_precision();
  const auto wrong = [&](const Options& options, const std::string& what) {
    BOOST_CHECK_EXCEPTION(estimate(r, options), plugin::PluginError, [&](const plugin::PluginError& e) {
      return std::string(e.what()).find(what) != std::string::npos;
    });
  };
  wrong(liger("transformers", {{"liger_kernels", "rope,rmsnorm"}}), "'rmsnorm' is none of its kernels");
  wrong({{"framework", "torchtune"}, {"liger_kernels", "rope"}}, "plan.liger_kernels of torchtune");
}

BOOST_AUTO_TEST_SUITE_END()
