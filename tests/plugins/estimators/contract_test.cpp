// The contract estimator: closed form compared with the worked numbers of its source and with enumeration;
// notes.
#include <boost/test/unit_test.hpp>

#include "core/base/error.hpp"
#include "core/model/tensors.hpp"
#include "plugins/estimators/contract/closed_form.hpp"
#include "tests/plugins/estimators/report_notes.hpp"

using namespace trainhost;
using trainhost::test::has_note;

namespace {

ModelSpec model(std::uint64_t V, std::uint32_t H, std::uint32_t L, std::uint32_t A, std::uint32_t K,
                std::uint32_t I, std::uint32_t D = 0) {
  ModelSpec m;
  m.vocab = V, m.hidden = H, m.layers = L, m.heads = A, m.kv_heads = K, m.intermediate = I;
  m.head_dim = D ? D : H / A;
  return m;
}

const ModelSpec kLlama2_7b = model(32000, 4096, 32, 32, 32, 11008),
                kLlama3_8b = model(128256, 4096, 32, 32, 8, 14336),
                kLlama31_70b = model(128256, 8192, 80, 64, 8, 28672),
                kTinyLlama = model(32000, 2048, 22, 32, 4, 5632),
                kMistral7b = model(32000, 4096, 32, 32, 8, 14336),
                k350m = model(32768, 1024, 24, 16, 4, 4096);

ModelSpec qwen25() {
  ModelSpec m = model(151936, 896, 24, 14, 2, 4864);
  m.family = "qwen2", m.tied = true, m.qkv_bias = true;
  return m;
}

RunSpec run(std::uint32_t S) {
  RunSpec r;
  r.seq_len = S;
  return r;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(contract_)

BOOST_AUTO_TEST_CASE(parameters_equal_those_printed_by_the_source) {
  BOOST_TEST(contract::parameters(kLlama2_7b) == 6607343616u);
  BOOST_TEST(contract::parameters(kLlama3_8b) == 7504924672u);
  BOOST_TEST(contract::parameters(kLlama31_70b) == 69503033344u);
  BOOST_TEST(contract::parameters(kTinyLlama) == 1034512384u);
  BOOST_TEST(contract::parameters(kMistral7b) == 7110660096u);
  BOOST_TEST(contract::parameters(qwen25()) == 494005120u);
  BOOST_TEST(contract::parameters(model(256000, 3584, 42, 16, 8, 14336, 256)) == 9010193920u);  // gemma2-9b
  BOOST_TEST(contract::parameters(model(256000, 4608, 46, 32, 16, 36864, 128)) ==
             27552287232u);  // gemma2-27b
  BOOST_TEST(contract::parameters(k350m) == 398509056u);
}

BOOST_AUTO_TEST_CASE(the_true_counts_are_the_published_ones) {
  BOOST_TEST(count_parameters(kLlama2_7b).total == 6738415616u);
  BOOST_TEST(count_parameters(kLlama3_8b).total == 8030261248u);
  BOOST_TEST(count_parameters(kTinyLlama).total == 1100048384u);
  BOOST_TEST(count_parameters(qwen25()).total == 494032768u);
  BOOST_TEST(count_parameters(k350m).total == 432063488u);
}

BOOST_AUTO_TEST_CASE(activations_and_the_ten_tensors_have_their_formulas) {
  BOOST_TEST(contract::activation_bytes(kLlama2_7b, run(2048)) == 10737418240u);
  BOOST_TEST(contract::ten_tensor_bytes(kLlama2_7b, run(2048)) == 30467424256u);
  BOOST_TEST(contract::activation_bytes(kLlama3_8b, run(8192)) == 42949672960u);
  BOOST_TEST(contract::ten_tensor_bytes(kLlama3_8b, run(8192)) == 328564998144u);
  BOOST_TEST(contract::activation_bytes(kTinyLlama, run(2048)) == 3690987520u);
  BOOST_TEST(contract::ten_tensor_bytes(kTinyLlama, run(2048)) == 15778971648u);
}

BOOST_AUTO_TEST_CASE(the_total_of_the_sources_own_350m_model) {
  MemoryReport r = contract::estimate(k350m, run(1024), Tier::kHost);
  BOOST_TEST(r.total_bytes() == 7919648768u);
  BOOST_TEST((r.claim == Claim::kUpperBound));
  BOOST_TEST(r.component_bytes(Component::kWeights) == 398509056u * 4ull);
  BOOST_TEST(r.component_bytes(Component::kGradients) == 398509056u * 4ull);
  BOOST_TEST(r.component_bytes(Component::kOptimizerState) == 398509056u * 8ull);
  BOOST_TEST(r.component_bytes(Component::kActivations) == 1006632960u);
  BOOST_TEST(r.component_bytes(Component::kRuntime) == 536870912u);
  BOOST_TEST(r.entries[0].formula == "P*4 = 398509056*4");
  BOOST_TEST(r.entries[3].formula == "L*S*H*10*4 = 24*1024*1024*10*4");
}

BOOST_AUTO_TEST_CASE(mixed_precision_stores_six_bytes_per_weight) {
  RunSpec r = run(1024);
  r.weight = r.compute = DType::kBF16;
  r.master = DType::kF32;
  MemoryReport report = contract::estimate(k350m, r, Tier::kDevice);
  BOOST_TEST(report.component_bytes(Component::kWeights) +
                 report.component_bytes(Component::kMasterWeights) ==
             398509056u * 6ull);
  BOOST_TEST(report.component_bytes(Component::kGradients) == 398509056u * 4ull);
  BOOST_TEST(report.tier_bytes(Tier::kHost) == 0u);
}

BOOST_AUTO_TEST_CASE(the_closed_form_equals_the_enumerated_tensors_of_small_models) {
  int models = 0;
  for (std::uint32_t V = 1; V <= 4; ++V)
    for (std::uint32_t H = 1; H <= 4; ++H)
      for (std::uint32_t L = 1; L <= 4; ++L)
        for (std::uint32_t A = 1; A <= 4; ++A)
          for (std::uint32_t K = 1; K <= A; ++K)
            for (std::uint32_t I = 1; I <= 4; ++I) {
              if (H % A != 0 || A % K != 0) continue;
              ModelSpec m = model(V, H, L, A, K, I);
              m.tied = true;
              std::uint64_t sum = 0;
              for (const TensorInfo& t : tensors(m)) sum += t.elements();
              BOOST_REQUIRE_EQUAL(contract::parameters(m), sum);
              ++models;
            }
  BOOST_TEST(models == 832);
}

BOOST_AUTO_TEST_CASE(every_broken_assumption_has_a_note_with_the_true_value) {
  MemoryReport llama = contract::estimate(kLlama2_7b, run(2048), Tier::kHost);
  BOOST_TEST(has_note(llama, "untied LM head: V*H = 131,072,000 parameters"));
  BOOST_TEST(
      has_note(llama, "True parameter count: 6,738,415,616; the formula gives 6,607,343,616 (-1.95 %)"));
  BOOST_TEST(has_note(llama, "True weights 26,953,662,464 bytes"));
  BOOST_TEST(
      has_note(llama, "the ten named tensors take 30,467,424,256 bytes per sequence, 2.84 times the bound"));
  BOOST_TEST(has_note(llama, "S*V*4 = 262,144,000 bytes"));
  BOOST_TEST(has_note(llama, "uses no device"));
  BOOST_TEST((llama.entries[0].claim == Claim::kApproximation));
  BOOST_TEST(llama.entries[0].hi == 26953662464u);

  BOOST_TEST(
      has_note(contract::estimate(qwen25(), run(8), Tier::kHost), "biases of q, k and v: 27,648 parameters"));

  ModelSpec m = model(64, 32, 2, 4, 2, 48, 16);
  m.tied = m.o_bias = m.mlp_bias = m.qk_norm = true;
  RunSpec r = run(8);
  r.micro_batch = 3, r.recompute = Recompute::kFull, r.optimizer = Optimizer::kSgdMomentum,
  r.parallel.data = 2;
  MemoryReport odd = contract::estimate(m, r, Tier::kDevice);
  BOOST_TEST(has_note(odd, "assumes head_dim = H/A = 8; this model has 16"));
  BOOST_TEST(has_note(odd, "bias of the attention output: 64 parameters"));
  BOOST_TEST(has_note(odd, "biases of gate, up and down: 256 parameters"));
  BOOST_TEST(has_note(odd, "norms of q and k: 64 parameters"));
  BOOST_TEST(has_note(odd, "3 sequences per micro-batch compare with 61,440 bytes"));
  BOOST_TEST(has_note(odd, "this run uses 'full'"));
  BOOST_TEST(has_note(odd, "SGD with momentum has one"));
  BOOST_TEST(has_note(odd, "sharding is not included"));
  BOOST_TEST(!has_note(odd, "untied"));
  BOOST_TEST(!has_note(odd, "uses no device"));
}

BOOST_AUTO_TEST_CASE(a_model_that_keeps_the_assumptions_has_exact_weights) {
  ModelSpec m = model(256, 64, 2, 4, 2, 64);
  m.tied = true;
  MemoryReport r = contract::estimate(m, run(1), Tier::kHost);
  BOOST_TEST((r.entries[0].claim == Claim::kExact));
  BOOST_TEST(!has_note(r, "True parameter count"));
}

BOOST_AUTO_TEST_CASE(sizes_above_63_bits_are_too_large) {
  BOOST_CHECK_THROW(
      contract::estimate(model(1u << 31, 1u << 31, 1u << 16, 1, 1, 1u << 31), run(1), Tier::kHost), Error);
}

BOOST_AUTO_TEST_SUITE_END()
