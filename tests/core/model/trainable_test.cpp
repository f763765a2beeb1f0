// The rules by which a run freezes weights: patterns, their order, products whose gradients belong together.
#include <boost/test/unit_test.hpp>

#include <random>

#include "core/model/adapters.hpp"
#include "core/model/presets.hpp"
#include "core/model/trainable.hpp"
#include "tests/support/text_patterns.hpp"

namespace trainhost {
namespace {

RunSpec rules(const std::string& text) {
  RunSpec r;
  r.trainable = text;
  return r;
}

BOOST_AUTO_TEST_SUITE(trainable)

BOOST_AUTO_TEST_CASE(patterns_match_as_the_regular_expression_of_the_same_meaning) {
  std::mt19937 g(1);
  const auto text = [&](const char* alphabet, std::size_t letters, std::size_t longest) {
    std::string s(g() % (longest + 1), ' ');
    for (char& c : s) c = alphabet[g() % letters];
    return s;
  };
  std::size_t matched = 0;
  for (int i = 0; i < 4000; ++i) {
    const std::string pattern = text("ab*?", 4, 6), name = text("ab", 2, 7);
    std::string regex;
    for (const char c : pattern) regex += c == '*' ? std::string(".*") : c == '?' ? "." : std::string(1, c);
    const bool expected = !trainhost::test::match_pattern(name, regex).empty();
    BOOST_TEST(matches_glob(pattern, name) == expected, pattern << " and " << name);
    BOOST_TEST((glob_distance(pattern, name) == 0) == expected, pattern << " and " << name);
    matched += expected;
  }
  BOOST_TEST(matched > 400u);
  BOOST_TEST(glob_distance("model.layer.0.*", "model.layers.0.mlp.up_proj.weight") == 1u);
}

BOOST_AUTO_TEST_CASE(the_last_rule_that_matches_decides) {
  BOOST_TEST(is_trained(rules(""), "x"));
  BOOST_TEST(!is_trained(rules("-a*"), "ab"));
  BOOST_TEST(is_trained(rules("-a*"), "b"));
  BOOST_TEST(is_trained(rules("-*\n+a*"), "ab"));
  BOOST_TEST(!is_trained(rules("-*\n+a*\n-ab"), "ab"));
  BOOST_TEST(!is_trained(rules("-*\n+a*\n-ab"), "b"));
}

BOOST_AUTO_TEST_CASE(trained_tensors_are_counted_and_their_products_are_whole) {
  ModelSpec m = *find_model_preset("llama-3-8b");
  m.layers = 2, m.mlp_bias = m.qkv_bias = true;
  const RunSpec r = rules("-model.layers.0.*\n-model.embed_tokens*");
  std::uint64_t sum = 0;
  for (const TensorInfo& t : trained_tensors(m, r)) {
    BOOST_TEST(!t.name.starts_with("model.layers.0."), t.name);
    sum += t.elements();
  }
  const ParameterCounts all = count_parameters(m);
  BOOST_TEST(sum == all.total - all.embedding - all.per_layer);
  BOOST_TEST(count_trained_parameters(m, r) == sum);
  BOOST_TEST(count_saved_parameters(m, r) == all.total);
  BOOST_TEST(!find_split_product(m, r));

  const auto split = find_split_product(m, rules("-model.layers.1.self_attn.k_proj.weight"));
  BOOST_REQUIRE(split);
  BOOST_TEST(split->frozen == "model.layers.1.self_attn.k_proj.weight");
  BOOST_TEST(split->trained == "model.layers.1.self_attn.q_proj.weight");
  BOOST_TEST(find_split_product(m, rules("-*.gate_proj.weight")).has_value());
  BOOST_TEST(find_split_product(m, rules("-*.down_proj.weight")).has_value());  // without its bias
  BOOST_TEST(!find_split_product(m, rules("-*.down_proj*")));
  BOOST_TEST(!find_split_product(m, rules("-*.bias")));
  BOOST_TEST(find_split_product(m, rules("-*\n+*.bias")).has_value());
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace trainhost
