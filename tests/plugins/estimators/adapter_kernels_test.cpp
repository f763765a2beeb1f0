// The estimator of PyTorch for runs of axolotl whose adapters its kernels compute (lora_mlp_kernel,
// lora_qkv_kernel, lora_o_kernel).
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

constexpr std::uint32_t kAllTargets = 127;

RunSpec qlora() {
  RunSpec r = mixed_precision();
  r.mode = RunMode::kQlora;
  r.memory.frozen = DType::kNF4;
  r.lora_rank = 16, r.lora_targets = kAllTargets;
  return r;
}

Options kernels(const char* names) { return {{"framework", "axolotl"}, {"adapter_kernels", names}}; }

}  // namespace

BOOST_AUTO_TEST_SUITE(adapter_kernels)

BOOST_AUTO_TEST_CASE(the_settings_of_a_run_with_kernels_of_axolotl_allocate_what_pytorch_counts) {
  BOOST_TEST(compare_peaks(oracle_records("axolotl")) == 48u);
}

BOOST_AUTO_TEST_CASE(axolotl_switches_all_kernels_on_where_each_matrix_has_an_adapter) {
  RunSpec r = qlora();
  const auto activations = [&](const Options& options) {
    return bytes_of(estimate(r, options), Purpose::kActivations);
  };
  const std::uint64_t none = activations(kernels("none")), all = activations(kernels("mlp,qkv,o"));
  BOOST_TEST(all < none);
  BOOST_TEST(activations({{"framework", "axolotl"}}) == all);
  BOOST_TEST(has_note(estimate(r, {{"framework", "axolotl"}}),
                      "by kernels of axolotl: mlp, qkv, o (plan.adapter_kernels), which it switches on"));
  BOOST_TEST(
      has_note(estimate(r, kernels("o,mlp")), "by kernels of axolotl: mlp, o (plan.adapter_kernels)."));
  // Without an adapter of k there is no kernel for q, k and v.
  r.lora_targets = kAllTargets & ~static_cast<std::uint32_t>(frameworks::kLoraK);
  BOOST_TEST(activations(kernels("mlp,qkv,o")) == activations(kernels("mlp,o")));
  BOOST_TEST(!has_note(estimate(r, kernels("qkv")), "by kernels of axolotl"));
  // Runs without adapters have none.
  r = mixed_precision();
  BOOST_TEST(!has_note(estimate(r, {{"framework", "axolotl"}}), "kernels of axolotl"));
}

BOOST_AUTO_TEST_CASE(other_runs_are_planned_without_these_kernels_or_refused) {
  RunSpec r = qlora();
  r.weight = DType::kF32;  // norms too
  BOOST_TEST(has_note(estimate(r, {{"framework", "axolotl"}}), "Planned without the kernels of axolotl"));
  check_refused(r, kernels("mlp"), "with norms in f32 they were not compared");
  r = qlora();
  const ModelSpec phi = *model::find_planned_preset("phi-3-mini-4k");
  BOOST_TEST(has_note(estimate(r, {{"framework", "axolotl"}}, phi), "in the family 'phi3'"));
  check_refused(r, kernels("mlp"), "in the family 'phi3'", phi);
  const auto wrong = [&](const Options& options, const std::string& what) {
    BOOST_CHECK_EXCEPTION(estimate(r, options), plugin::PluginError, [&](const plugin::PluginError& e) {
      return std::string(e.what()).find(what) != std::string::npos;
    });
  };
  wrong(kernels("mlp,kv"), "'kv' is none of its kernels");
  wrong({{"framework", "transformers"}, {"adapter_kernels", "mlp"}}, "plan.adapter_kernels of transformers");
}

BOOST_AUTO_TEST_SUITE_END()
