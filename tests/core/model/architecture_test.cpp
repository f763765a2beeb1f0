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

BOOST_AUTO_TEST_CASE(count_equals_the_tensors_of_every_small_decoder_with_linear_attention) {
  for (std::uint32_t bits = 0; bits < 1u << 10; ++bits)
    for (std::uint32_t keys : {1u, 2u}) {
      const auto on = [&](int i) { return (bits >> i & 1) != 0; };
      Architecture a;
      a.vocab = 7, a.hidden = a.embedding_width = 5;
      if (on(8)) a.per_layer_vocab = 11, a.per_layer_width = 3;
      Layer linear{.norms = 1};
      linear.linear = {.key_heads = keys,
                       .value_heads = 4,
                       .key_dim = 3,
                       .value_dim = 2,
                       .kernel = 2 + keys,
                       .gates = keys,
                       .head_weights = 1 + keys,
                       .norm_per_head = on(0),
                       .convolution_bias = on(1),
                       .in_bias = on(2),
                       .out_bias = on(3)};
      Layer attention{.norms = 5};
      attention.attention = {
          .heads = 4, .kv_heads = keys, .head_dim = 3, .q_bias = on(2), .k_bias = on(3), .v_bias = on(4)};
      attention.attention.qk_norm = on(5) ? NormKind::kUnscaled : NormKind::kRms;
      attention.attention.gated = on(6), attention.attention.v_is_k = on(7),
      attention.attention.reuses_kv = on(4);
      attention.per_layer_width = a.per_layer_width;
      attention.experts = {
          .count = 3, .active = 2, .each = {.width = 2}, .shared = {.width = 4}, .router_scale = on(9)};
      attention.experts.latent = on(0) ? 2 : 0, attention.experts.latent_bias = on(1);
      a.layers = {{attention, 1}, {linear, 2}};
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

/// One letter per layer: L linear attention, A attention, c a chunk, w a window, r keys and values of another
/// layer; then E experts, d a dense MLP.
std::string kinds(const Architecture& a) {
  std::string out;
  for (const LayerRun& r : a.layers)
    for (std::uint32_t i = 0; i < r.count; ++i) {
      const Layer& l = r.layer;
      if (l.linear.value_heads) out += 'L';
      if (l.attention.heads) out += l.attention.chunked ? 'c' : l.attention.window ? 'w' : 'A';
      if (l.attention.reuses_kv) out += 'r';
      if (l.experts.count) out += 'E';
      if (l.mlp.width) out += 'd';
      out += ' ';
    }
  return out;
}

BOOST_AUTO_TEST_CASE(layers_of_hybrid_families_have_the_kind_that_their_config_states) {
  const std::string moe =
      R"(, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 4, "shared_expert_intermediate_size": 8)";
  BOOST_TEST(kinds(read("qwen3_next", moe)) == "LE LE LE AE LE LE ");
  BOOST_TEST(kinds(read("qwen3_next", moe + R"(, "decoder_sparse_step": 2, "full_attention_interval": 3)")) ==
             "Ld LE Ad LE Ld AE ");
  BOOST_TEST(
      kinds(read("qwen3_5_text", R"(, "layer_types": ["full_attention", "linear_attention", "full_attention",
    "full_attention", "linear_attention", "linear_attention"])")) == "Ad Ld Ad Ad Ld Ld ");
  const std::string llama =
      R"(, "num_local_experts": 4, "num_experts_per_tok": 1, "intermediate_size_mlp": 16, "attention_chunk_size": 8)";
  const Architecture maverick = read("llama4_text", llama + R"(, "interleave_moe_layer_step": 2)");
  BOOST_TEST(kinds(maverick) == "cd cE cd AE cd cE ");
  BOOST_TEST(maverick.layers.front().layer.attention.window == 8u);
  BOOST_TEST(maverick.layers.front().layer.mlp.width == 16u);
  BOOST_TEST(
      kinds(read("llama4_text", llama + R"(, "moe_layers": [], "no_rope_layers": [0, 1, 1, 0, 0, 1])")) ==
      "Ad cd cd Ad Ad cd ");
  BOOST_TEST(kinds(read("nemotron_h", R"(, "hybrid_override_pattern": "M-*EM-", "n_routed_experts": 4,
    "num_experts_per_tok": 2, "moe_intermediate_size": 4, "moe_shared_expert_intermediate_size": 4)")) ==
             "L d A E L d ");
  BOOST_TEST(
      kinds(read("granitemoehybrid", R"(, "num_local_experts": 0, "mamba_n_heads": 2, "layers_block_type":
    ["mamba", "attention", "mamba", "mamba", "attention", "mamba"])")) == "Ld Ad Ld Ld Ad Ld ");
  BOOST_TEST(  // no layer has the sizes of Mamba 2 that do not fit
      kinds(read("granitemoehybrid", R"(, "num_local_experts": 0, "mamba_n_heads": 3, "layer_types":
    ["attention", "attention", "attention", "attention", "attention", "attention"])")) ==
      "Ad Ad Ad Ad Ad Ad ");
  BOOST_TEST(kinds(read("gemma4_text", R"(, "num_kv_shared_layers": 2, "hidden_size_per_layer_input": 0)")) ==
             "wd wd wd wd wrd Ard ");
}

BOOST_AUTO_TEST_CASE(full_attention_of_gemma_4_has_its_own_heads) {
  const std::string own = R"(, "num_attention_heads": 4, "head_dim": 4, "hidden_size_per_layer_input": 0)";
  const Architecture a = read("gemma4_text", own + R"(, "global_head_dim": 6, "attention_k_eq_v": true,
    "num_global_key_value_heads": 1)");
  const Attention &windowed = a.layers.front().layer.attention, &full = a.layers.back().layer.attention;
  BOOST_TEST(windowed.head_dim == 4u);
  BOOST_TEST(windowed.kv_heads == 2u);
  BOOST_TEST(!windowed.v_is_k);
  BOOST_TEST(full.head_dim == 6u);
  BOOST_TEST(full.kv_heads == 1u);
  BOOST_TEST(full.v_is_k);
  // As transformers saves it.
  const Architecture saved = read("gemma4_text", own + R"(, "attention_k_eq_v": true,
    "per_layer_config": {"5": {"head_dim": 6, "num_key_value_heads": 1}})");
  BOOST_TEST((saved == a));
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
  BOOST_TEST(rejected(config("nemotron_h", R"(, "hybrid_override_pattern": "MX")")) ==
             "hybrid_override_pattern has 'X': expected M (Mamba), * (attention), - (MLP) or E (experts)");
  BOOST_TEST(rejected(config("nemotron_h")) == "hybrid_override_pattern is missing");
  BOOST_TEST(rejected(config("nemotron_h", R"(, "hybrid_override_pattern": "--")")) ==
             "num_hidden_layers = 6, but hybrid_override_pattern has the kinds of 2");
  BOOST_TEST(rejected(config("nemotron_h", R"(, "hybrid_override_pattern": "MMMMMM", "n_groups": 3)")) ==
             "n_groups = 3 does not divide mamba_num_heads = 128");
  BOOST_TEST(rejected(config("qwen3_5_text", R"(, "layer_types": ["sliding_attention"])")) ==
             "layer_types has 1 entry: expected num_hidden_layers = 6");
  BOOST_TEST(rejected(config("qwen3_5_text",
                             R"(, "layer_types": ["conv", "conv", "conv", "conv", "conv", "conv"])")) ==
             "layer_types has \"conv\": expected one of linear_attention, full_attention");
  BOOST_TEST(rejected(config("qwen3_5_text", R"(, "linear_num_key_heads": 5)")) ==
             "linear_num_key_heads = 5 does not divide linear_num_value_heads = 32");
  BOOST_TEST(rejected(config("granitemoehybrid", R"(, "num_local_experts": 0, "mamba_n_heads": 3)")) ==
             "mamba_n_heads = 3 does not divide mamba_expand * hidden_size = 16");
  BOOST_TEST(rejected(config("gemma4_text", R"(, "num_kv_shared_layers": 6)")) ==
             "num_kv_shared_layers = 6: expected less than num_hidden_layers = 6");
  BOOST_TEST(rejected(config("lfm2", R"(, "block_ffn_dim_multiplier": 1e-9)")) ==
             "block_ffn_dim_multiplier gives a width of less than one");
  BOOST_TEST(rejected(R"({"model_type": "mistral3"})") == "text_config is missing");
  BOOST_TEST(rejected(R"({"model_type": "mistral3", "text_config": {"model_type": "mistral5"}})") ==
             "text_config.model_type = \"mistral5\": expected mistral, ministral3 or mistral4");
  BOOST_TEST(rejected(config("hunyuan_v1_moe", R"(, "num_experts": 4, "moe_topk": [1, 2])")) ==
             "moe_topk has 2 entries: expected num_hidden_layers = 6");
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
  BOOST_TEST(rejected(R"({"model_type": "gemma5"})") ==
             "the model family 'gemma5' is unknown; did you mean 'gemma'?");
  BOOST_TEST(
      rejected(R"({"model_type": "falcon_h1"})") ==
      "the model family 'falcon_h1' is not described: it has layers that compute attention and a state "
      "space model side by side");
  for (const char* family : {"deepseek_v32", "glm_moe_dsa"})
    BOOST_TEST(
        unknown_family(family).hint().starts_with("to plan it without its indexer, 0.1 % of the weights, set "
                                                  "\"model_type\": \"deepseek_v3\" in a copy of the file"),
        family);
  const Error e = unknown_family("mamba");
  BOOST_TEST(std::string(e.what()).find("'mamba' is not described") != std::string::npos);
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
