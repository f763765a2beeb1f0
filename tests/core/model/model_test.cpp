// core/model/model_spec: validation of a ModelSpec.
#include <boost/test/unit_test.hpp>
#include <functional>

#include "core/base/error.hpp"
#include "core/model/presets.hpp"

using namespace trainhost;

namespace {

/// Error message for the built-in model after `change`; "" if it is valid.
std::string rejection(const std::function<void(ModelSpec&)>& change) {
  ModelSpec m = builtin_model();
  change(m);
  try {
    validate(m);
  } catch (const Error& e) {
    return e.code() == Exit::kUsage ? e.what() : "wrong exit code";
  }
  return "";
}

}  // namespace

BOOST_AUTO_TEST_SUITE(model_spec)

BOOST_AUTO_TEST_CASE(only_the_four_families_are_trainable) {
  for (const char* f : {"llama", "mistral", "qwen2", "qwen3"}) BOOST_TEST(trainable_family(f));
  for (const char* f : {"", "gpt2", "Llama", "gemma2", "qwen3_moe"}) BOOST_TEST(!trainable_family(f));
}

BOOST_AUTO_TEST_CASE(an_invalid_dimension_fails_with_its_hugging_face_name) {
  BOOST_TEST(rejection([](ModelSpec&) {}) == "");
  BOOST_TEST(rejection([](ModelSpec& m) { m.vocab = 0; }) == "vocab_size = 0: expected a positive number");
  BOOST_TEST(rejection([](ModelSpec& m) { m.layers = 0; }) ==
             "num_hidden_layers = 0: expected a positive number");
  BOOST_TEST(rejection([](ModelSpec& m) { m.intermediate = 0; }) ==
             "intermediate_size = 0: expected a positive number");
  BOOST_TEST(rejection([](ModelSpec& m) { m.kv_heads = 2; }) ==
             "num_attention_heads = 3 is not a multiple of num_key_value_heads = 2");
  BOOST_TEST(rejection([](ModelSpec& m) { m.kv_heads = 6; }) ==
             "num_attention_heads = 3 is not a multiple of num_key_value_heads = 6");
  BOOST_TEST(rejection([](ModelSpec& m) { m.head_dim = 33; }) ==
             "head_dim = 33 is odd: rotary embeddings rotate pairs of dimensions");
  BOOST_TEST(rejection([](ModelSpec& m) { m.norm_eps = 0; }).starts_with("rms_norm_eps = "));
  BOOST_TEST(rejection([](ModelSpec& m) { m.rope_theta = -1; }).starts_with("rope_theta = "));
  BOOST_TEST(rejection([](ModelSpec& m) { m.initializer_range = -0.1; }).starts_with("initializer_range = "));
  BOOST_TEST(rejection([](ModelSpec& m) {
               m.rope = {RopeKind::kLinear, 0};
             }).starts_with("rope_scaling.factor = "));
  BOOST_TEST(rejection([](ModelSpec& m) {
               m.rope = {RopeKind::kLlama3, 8, 4, 1, 8192};
             }).find("high_freq_factor must be greater") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(oversized_dimensions_fail_and_never_wrap) {
  BOOST_TEST(rejection([](ModelSpec& m) { m.vocab = 1ull << 33; }).find("too large") != std::string::npos);
  BOOST_TEST(rejection([](ModelSpec& m) { m.layers = 1u << 31; }).find("too large") != std::string::npos);
  BOOST_TEST(rejection([](ModelSpec& m) { m.layers = 4096; }) == "");
  BOOST_TEST(rejection([](ModelSpec& m) { m.layers = 4097; }) ==
             "num_hidden_layers = 4097 is too large: expected at most 4096");
  BOOST_TEST(rejection([](ModelSpec& m) { m.hidden = m.intermediate = INT32_MAX; }).find("too large") !=
             std::string::npos);
  BOOST_TEST(rejection([](ModelSpec& m) {
               m.heads = m.kv_heads = 1u << 31, m.head_dim = 1u << 31;
             }).find("too large") != std::string::npos);
  BOOST_TEST(rejection([](ModelSpec& m) {
               m.heads = m.kv_heads = UINT32_MAX, m.head_dim = UINT32_MAX - 1;
             }).find("too large") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(windows_start_at_first_window_layer) {
  ModelSpec m = builtin_model();
  m.sliding_window = 16, m.first_window_layer = 2;
  BOOST_TEST(m.window(1) == 0u);
  BOOST_TEST(m.window(2) == 16u);
}

BOOST_AUTO_TEST_SUITE_END()
