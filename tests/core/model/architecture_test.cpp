// core/model: parameter counts in closed form compared with the listed tensors of every small decoder;
// reading of configs; errors of invalid configs.
#include <boost/test/unit_test.hpp>
#include <functional>

#include "core/model/architecture.hpp"
#include "tests/support/architecture_tensors.hpp"

using namespace trainhost;
using namespace trainhost::model;

namespace {

std::uint64_t sum_of(const Architecture& a, bool active = false) {
  std::uint64_t sum = 0;
  for (const TensorShape& t : tensor_shapes(a)) {
    const bool routed = t.name.find("experts.each") != t.name.npos;
    std::uint64_t copies = t.copies;
    if (routed && active) copies = a.layers.front().layer.experts.active;
    sum += t.rows * t.cols * copies;
  }
  return sum;
}

void check(const Architecture& a) {
  const Counts n = count(a);
  const std::uint64_t sum = sum_of(a), used = sum_of(a, true);
  if (n.total != sum || n.active != used)  // BOOST_TEST per case would dominate the run time
    BOOST_TEST_ERROR("closed form " << n.total << ", tensors " << sum << "; active " << n.active
                                    << ", tensors " << used);
}

/// A config of a family with the common fields and `more`.
std::string config(const std::string& family, const std::string& more = "") {
  return R"({"model_type": ")" + family + R"(", "vocab_size": 10, "hidden_size": 8, "num_hidden_layers": 6,
    "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 12)" +
         more + "}";
}

Architecture read(const std::string& family, const std::string& more = "") {
  return from_config(config(family, more), "test");
}

std::string rejected(const std::string& json) {
  try {
    from_config(json, "test");
  } catch (const Error& e) {
    BOOST_TEST(static_cast<int>(e.code()) == static_cast<int>(Exit::kUsage));
    return e.what();
  }
  return "";
}

std::vector<std::uint32_t> windows(const Architecture& a) {
  std::vector<std::uint32_t> out;
  for (const LayerRun& r : a.layers) out.insert(out.end(), r.count, r.layer.attention.window);
  return out;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(closed_form)

BOOST_AUTO_TEST_CASE(count_equals_the_tensors_of_every_small_dense_decoder) {
  const NormKind norms[] = {NormKind::kRms, NormKind::kLayer, NormKind::kScaleOnly, NormKind::kNone};
  std::size_t cases = 0;
  for (std::uint32_t bits = 0; bits < 1u << 11; ++bits)
    for (NormKind norm : norms)
      for (std::uint32_t kv : {1u, 2u, 4u}) {
        const auto on = [&](int i) { return (bits >> i & 1) != 0; };
        Architecture a;
        a.vocab = 7, a.hidden = 5, a.embedding_width = on(0) ? 3 : 5;
        a.tied = on(1), a.head_bias = on(2), a.learned_positions = on(3) ? 11 : 0;
        a.embedding_norm = on(4) ? norm : NormKind::kNone;
        a.final_norm = norm;
        Layer l;
        l.attention.heads = 4, l.attention.kv_heads = kv, l.attention.head_dim = 3;
        l.attention.q_bias = on(5), l.attention.k_bias = l.attention.v_bias = on(6),
        l.attention.o_bias = on(7);
        l.attention.qk_norm = on(8) ? norm : NormKind::kNone;
        l.attention.qk_norm_per_head = on(9), l.attention.sinks = on(3);
        l.mlp = {.gated = on(10), .up_bias = on(5), .down_bias = on(6), .width = 1 + kv};
        l.norm = norm, l.norms = 1 + bits % 4;
        a.layers = {{l, 1 + bits % 3}};
        check(a);
        ++cases;
      }
  BOOST_TEST(cases == (1u << 11) * 12);
}

BOOST_AUTO_TEST_CASE(count_equals_the_tensors_of_every_small_moe_and_mla_decoder) {
  for (std::uint32_t bits = 0; bits < 1u << 8; ++bits)
    for (std::uint32_t experts : {0u, 1u, 2u, 5u})
      for (std::uint32_t rank : {0u, 1u, 3u})
        for (std::uint32_t h : {1u, 4u}) {
          const auto on = [&](int i) { return (bits >> i & 1) != 0; };
          Architecture a;
          a.vocab = 3, a.hidden = a.embedding_width = h, a.tied = on(0);
          Layer l;
          l.attention.latent = on(1);
          l.attention.heads = 2, l.attention.kv_heads = 2, l.attention.head_dim = 3;
          l.attention.q_lora_rank = rank, l.attention.kv_lora_rank = rank + 1;
          l.attention.rope_head_dim = 2, l.attention.nope_head_dim = 1 + rank, l.attention.v_head_dim = 3;
          l.attention.q_bias = l.attention.k_bias = l.attention.o_bias = on(2);
          l.experts.count = experts, l.experts.active = (experts + 1) / 2;
          l.experts.each = {.gated = on(3), .up_bias = on(4), .down_bias = on(4), .width = 2};
          l.experts.shared = {.width = on(5) ? 3u : 0u};
          l.experts.router_bias = on(6), l.experts.shared_gate = on(7);
          Layer dense = l;
          dense.experts = {};
          dense.mlp = {.width = 5};
          a.layers = {{l, 2}, {dense, 1}};
          check(a);
        }
  BOOST_TEST(true);
}

BOOST_AUTO_TEST_CASE(sizes_above_63_bits_fail_and_never_wrap) {
  Architecture a;
  a.vocab = INT32_MAX, a.hidden = a.embedding_width = INT32_MAX;
  Layer l;
  l.attention.heads = l.attention.kv_heads = 1 << 16, l.attention.head_dim = 1 << 16;
  a.layers = {{l, 1}};
  BOOST_CHECK_THROW(count(a), Error);
}

BOOST_AUTO_TEST_SUITE_END()
BOOST_AUTO_TEST_SUITE(readers)

BOOST_AUTO_TEST_CASE(windows_follow_the_rule_of_their_family) {
  using W = std::vector<std::uint32_t>;
  BOOST_TEST((windows(read("gemma2", R"(, "sliding_window": 3)")) == W{3, 0, 3, 0, 3, 0}));
  BOOST_TEST((windows(read("gemma3_text", R"(, "sliding_window": 3, "sliding_window_pattern": 3)")) ==
              W{3, 3, 0, 3, 3, 0}));
  BOOST_TEST((windows(read("mistral", R"(, "sliding_window": null)")) == W(6, 0)));
  BOOST_TEST((windows(read("qwen2",
                           R"(, "sliding_window": 5, "use_sliding_window": true, "max_window_layers": 4)")) ==
              W{0, 0, 0, 0, 5, 5}));
  BOOST_TEST(
      (windows(
           read("qwen3", R"(, "sliding_window": 5, "use_sliding_window": false, "max_window_layers": 4)")) ==
       W(6, 0)));
  BOOST_TEST(
      (windows(read("gemma2", R"(, "sliding_window": 3, "layer_types": ["full_attention", "sliding_attention",
    "full_attention", "full_attention", "full_attention", "full_attention"])")) == W{0, 3, 0, 0, 0, 0}));
}

BOOST_AUTO_TEST_CASE(both_falcon_architectures_have_their_heads_and_norms) {
  const Architecture seven = read("falcon"),
                     newer = read("falcon", R"(, "new_decoder_architecture": true, "num_kv_heads": 2)"),
                     apart = read("falcon", R"(, "parallel_attn": false, "multi_query": false)");
  const auto layer = [](const Architecture& a) { return a.layers.front().layer; };
  BOOST_TEST(layer(seven).attention.kv_heads == 1u);
  BOOST_TEST(layer(seven).norms == 1u);
  BOOST_TEST(layer(newer).attention.kv_heads == 2u);
  BOOST_TEST(layer(newer).norms == 2u);
  BOOST_TEST(layer(apart).attention.kv_heads == 4u);
  BOOST_TEST(layer(apart).norms == 2u);
}

BOOST_AUTO_TEST_CASE(experts_are_in_the_layers_that_the_family_rule_selects) {
  const std::string moe =
      R"(, "moe_intermediate_size": 2, "n_routed_experts": 4, "num_experts_per_tok": 2, "n_shared_experts": 3)";
  const Architecture a = read("deepseek", moe + R"(, "first_k_dense_replace": 2, "moe_layer_freq": 2)");
  std::string pattern;
  for (const LayerRun& r : a.layers) pattern += std::string(r.count, r.layer.experts.count ? 'E' : 'd');
  BOOST_TEST(pattern == "ddEdEd");
  BOOST_TEST(a.layers[1].layer.experts.shared.width == 6u);
  const std::string qwen = R"(, "moe_intermediate_size": 2, "num_experts": 4, "num_experts_per_tok": 2)";
  const Architecture q = read("qwen3_moe", qwen + R"(, "decoder_sparse_step": 2, "mlp_only_layers": [3])");
  pattern.clear();
  for (const LayerRun& r : q.layers) pattern += std::string(r.count, r.layer.experts.count ? 'E' : 'd');
  BOOST_TEST(pattern == "dEdddE");
}

BOOST_AUTO_TEST_CASE(a_narrow_word_embedding_of_opt_is_projected_up_and_down) {
  const Architecture a = read(
      "opt",
      R"(, "ffn_dim": 12, "word_embed_proj_dim": 4, "do_layer_norm_before": false, "max_position_embeddings": 16)");
  const Counts n = count(a);
  BOOST_TEST(n.embedding == 10u * 4 + 4 * 8 + 18 * 8);
  BOOST_TEST(n.head == 4u * 8);
  BOOST_TEST(n.final_norm == 0u);
}

BOOST_AUTO_TEST_CASE(the_decoder_of_a_multimodal_model_is_read_from_text_config) {
  const std::string inner = config("gemma3_text", R"(, "sliding_window": 3)");
  Architecture a = from_config(
      R"({"model_type": "gemma3", "text_config": )" + inner + R"(, "vision_config": {"x": 1}})", "test");
  BOOST_TEST(a.notes.size() == 1u);
  BOOST_TEST(count(a).total == count(from_config(inner, "test")).total);
}

BOOST_AUTO_TEST_CASE(a_config_with_only_its_class_has_the_family_of_the_class) {
  BOOST_TEST(family_of_class("GPTNeoXForCausalLM") == "gpt_neox");
  BOOST_TEST(family_of_class("GPT2LMHeadModel") == "gpt2");
  BOOST_TEST(family_of_class("DeepseekV3ForCausalLM") == "deepseek_v3");
  BOOST_TEST(family_of_class("MambaForCausalLM") == "mamba");
}

BOOST_AUTO_TEST_CASE(an_unknown_field_gets_a_note_unless_it_is_off) {
  const Architecture a = read(
      "mixtral", R"(, "num_local_experts": 2, "num_experts_per_tok": 1, "adapter_rank": 4, "extra_bias": true,
    "other_bias": false, "nothing": null, "hidden_act": "silu", "attention_dropout": 0.5)");
  BOOST_REQUIRE(a.notes.size() == 2u);
  BOOST_TEST(a.notes[0].find("adapter_rank = 4") != std::string::npos);
  BOOST_TEST(a.notes[1].find("extra_bias = true") != std::string::npos);
  const Architecture m = read("mpt", R"(, "attn_config": {"alibi": true, "memory_tokens": 8})");
  BOOST_TEST(m.notes.back().find("attn_config.memory_tokens = 8") != std::string::npos);
}

BOOST_AUTO_TEST_SUITE_END()
BOOST_AUTO_TEST_SUITE(rejections)

BOOST_AUTO_TEST_CASE(a_missing_or_invalid_field_is_named_with_its_value) {
  BOOST_TEST(rejected(R"({"model_type": "gemma2", "vocab_size": 10})") == "hidden_size is missing");
  BOOST_TEST(rejected(config("gemma2", R"(, "head_dim": 0)")) ==
             "head_dim = 0: expected a whole number from 1 to 2147483647");
  BOOST_TEST(rejected(config("gemma2", R"(, "head_dim": "8")")) ==
             "head_dim = \"8\": expected a whole number from 1 to 2147483647");
  BOOST_TEST(rejected(config("gemma2", R"(, "head_dim": -8)")) ==
             "head_dim = -8: expected a whole number from 1 to 2147483647");
  BOOST_TEST(rejected(config("mixtral")) == "num_local_experts is missing");
  BOOST_TEST(rejected(config("mixtral", R"(, "num_local_experts": 2, "num_experts_per_tok": 3)")) ==
             "num_experts_per_tok = 3 is more than num_local_experts = 2");
  BOOST_TEST(rejected(config("gemma2", R"(, "layer_types": ["full_attention"])")) ==
             "layer_types has 1 entry: expected num_hidden_layers = 6");
  BOOST_TEST(rejected(config("gpt2", R"(, "tie_word_embeddings": 1)")) ==
             "tie_word_embeddings = 1: expected true or false");
  BOOST_TEST(rejected("[]") == "config.json: expected a JSON object with the model's fields");
  BOOST_TEST(rejected("{}") == "model_type is missing");
  BOOST_TEST(rejected(R"({"model_type": "gpt2", "vocab_size": 9, "n_embd": 6, "n_layer": 1, "n_head": 4})") ==
             "n_head = 4 does not divide n_embd = 6");
  BOOST_TEST(
      rejected(R"({"model_type": "mpt", "vocab_size": 9, "d_model": 6, "n_layers": 5000, "n_heads": 3})") ==
      "n_layers = 5000 is too large: expected at most 4096");
  BOOST_TEST(
      rejected(
          R"({"model_type": "gpt2", "vocab_size": 2147483647, "n_embd": 2147483647, "n_layer": 65536, "n_head": 1})") !=
      "");
}

BOOST_AUTO_TEST_CASE(an_unknown_family_error_names_the_nearest_family_and_how_to_add_it) {
  BOOST_TEST(rejected(R"({"model_type": "gemma4"})") ==
             "the model family 'gemma4' is unknown; did you mean 'gemma'?");
  const Error e = unknown_family("mamba");
  BOOST_TEST(std::string(e.what()).find("'mamba' is unknown") != std::string::npos);
  BOOST_TEST(e.hint().find("trainhost plugins new NAME --kind=estimator") != std::string::npos);
  BOOST_TEST(e.hint().find("sdk/README.md") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(an_outline_of_an_unknown_family_has_the_fields_of_its_config) {
  const ModelSpec m = outline_of_unknown("mamba", R"({"d_model": 64, "n_layer": 3, "vocab_size": "many"})");
  BOOST_TEST(m.hidden == 64u);
  BOOST_TEST(m.layers == 3u);
  BOOST_TEST(m.vocab == 0u);
}

BOOST_AUTO_TEST_SUITE_END()
