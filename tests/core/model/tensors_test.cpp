// core/model/tensors: the closed form compared with the enumeration; tensor names of Hugging Face
// checkpoints.
#include <boost/test/unit_test.hpp>
#include <set>

#include "core/model/presets.hpp"
#include "core/model/tensors.hpp"

using namespace trainhost;

namespace {

struct Sums {
  std::uint64_t total = 0, embedding = 0, layer0 = 0, final_norm = 0, head = 0;
};

Sums enumerate(const ModelSpec& m) {
  Sums s;
  for (const TensorInfo& t : tensors(m)) {
    s.total += t.elements();
    if (t.role == TensorRole::kEmbed) s.embedding += t.elements();
    if (t.role == TensorRole::kFinalNorm) s.final_norm += t.elements();
    if (t.role == TensorRole::kHead) s.head += t.elements();
    if (t.layer == 0) s.layer0 += t.elements();
  }
  return s;
}

bool same(const ParameterCounts& c, const Sums& s) {
  return c.total == s.total && c.embedding == s.embedding && c.per_layer == s.layer0 &&
         c.final_norm == s.final_norm && c.head == s.head;
}

/// Every combination of the five flags.
void set_flags(ModelSpec& m, unsigned bits) {
  m.tied = bits & 1, m.qkv_bias = bits & 2, m.o_bias = bits & 4, m.mlp_bias = bits & 8, m.qk_norm = bits & 16;
}

std::vector<std::string> names(const ModelSpec& m) {
  std::vector<std::string> out;
  for (const TensorInfo& t : tensors(m)) out.push_back(t.name);
  return out;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(tensors_and_counts)

BOOST_AUTO_TEST_CASE(the_closed_form_equals_the_enumeration_for_every_small_shape) {
  // V, H, L, A, K, I, D each from 1 to 4, and every combination of the flags.
  std::size_t shapes = 0, wrong = 0;
  for (unsigned code = 0; code < 1u << 14; ++code) {
    const auto digit = [&](int i) { return 1 + (code >> (2 * i) & 3); };
    ModelSpec m;
    m.vocab = digit(0), m.hidden = digit(1), m.layers = digit(2), m.heads = digit(3), m.kv_heads = digit(4);
    m.intermediate = digit(5), m.head_dim = digit(6);
    if (m.heads % m.kv_heads) continue;
    for (unsigned flags = 0; flags < 32; ++flags, ++shapes) {
      set_flags(m, flags);
      wrong += !same(count_parameters(m), enumerate(m));
    }
  }
  BOOST_TEST(wrong == 0u);
  BOOST_TEST(shapes == 4u * 4 * 4 * 8 * 4 * 4 * 32);  // (A, K) has 8 pairs
}

BOOST_AUTO_TEST_CASE(names_and_order_are_those_of_hugging_face) {
  ModelSpec m = builtin_model();
  m.layers = 1;
  set_flags(m, 2 | 4 | 8 | 16);
  const std::vector<std::string> expected{"model.embed_tokens.weight",
                                          "model.layers.0.input_layernorm.weight",
                                          "model.layers.0.self_attn.q_proj.weight",
                                          "model.layers.0.self_attn.k_proj.weight",
                                          "model.layers.0.self_attn.v_proj.weight",
                                          "model.layers.0.self_attn.q_proj.bias",
                                          "model.layers.0.self_attn.k_proj.bias",
                                          "model.layers.0.self_attn.v_proj.bias",
                                          "model.layers.0.self_attn.q_norm.weight",
                                          "model.layers.0.self_attn.k_norm.weight",
                                          "model.layers.0.self_attn.o_proj.weight",
                                          "model.layers.0.self_attn.o_proj.bias",
                                          "model.layers.0.post_attention_layernorm.weight",
                                          "model.layers.0.mlp.gate_proj.weight",
                                          "model.layers.0.mlp.up_proj.weight",
                                          "model.layers.0.mlp.gate_proj.bias",
                                          "model.layers.0.mlp.up_proj.bias",
                                          "model.layers.0.mlp.down_proj.weight",
                                          "model.layers.0.mlp.down_proj.bias",
                                          "model.norm.weight",
                                          "lm_head.weight"};
  BOOST_TEST(names(m) == expected, boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(roles_follow_the_order_of_the_enum_within_a_layer) {
  ModelSpec m = builtin_model();
  set_flags(m, 2 | 4 | 8 | 16);
  TensorInfo last;
  for (const TensorInfo& t : tensors(m)) {
    if (t.layer >= 0 && t.layer == last.layer) BOOST_TEST((last.role < t.role), t.name);
    last = t;
  }
}

BOOST_AUTO_TEST_CASE(weights_are_rows_out_by_columns_in) {
  const ModelSpec& m = *find_model_preset("llama-3-8b");
  for (const TensorInfo& t : tensors(m)) {
    if (t.role == TensorRole::kK) BOOST_TEST((t.dim == std::array<std::uint64_t, 2>{1024, 4096}));
    if (t.role == TensorRole::kDown) BOOST_TEST((t.dim == std::array<std::uint64_t, 2>{4096, 14336}));
    if (t.rank == 1) BOOST_TEST(t.dim[1] == 1u);
  }
}

BOOST_AUTO_TEST_CASE(no_name_occurs_twice) {
  const auto all = names(*find_model_preset("qwen2.5-7b"));
  BOOST_TEST(std::set<std::string>(all.begin(), all.end()).size() == all.size());
}

BOOST_AUTO_TEST_SUITE_END()
