// The planned presets, one or more per family: they have the published parameter counts and equal the
// architectures of the published configs, if these are next to the source tree.
#include <boost/test/unit_test.hpp>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "core/model/architecture.hpp"
#include "core/model/presets.hpp"
#include "core/model/tensors.hpp"
#include "tests/support/files.hpp"

using namespace trainhost;
namespace fs = std::filesystem;

namespace {

// Published totals, or recomputed ones where no exact total is published (baichuan2, falcon, mpt).
// DeepSeek-V3: with its 14,848 router correction biases, without the multi-token prediction module.
// DeepSeek-V2 and V2-Lite: computed from their published configs term by term below; their model cards have
// 236B and 15.7B. cohere, cohere2, glm, glm4, glm4_moe, glm4_moe_lite, gpt_oss, mistral4, olmo3, seed_oss and
// smollm3: the trained weights that transformers 5.24 creates from the same config, without the correction bias
// of routers, which is a buffer there. The same of the families of tests/interop/model_families.py, whose command is
// `model_families.py BUILD --presets`; Kimi K2 with its correction biases, as in the files of its weights.
// Published are 25.2 and 30.7 billion of Gemma 4 26B-A4B and 31B, 31.6 of Nemotron 3 Nano, 8.89 of Nemotron
// Nano 9B v2 and 41.9 of Phi-3.5-MoE; the files of Kimi K2 have 1,026,470,731,056 elements with 62,498,608
// scales of blocks and rotary frequencies.
struct Published {
  const char *preset, *config;  // "": there is no config to compare with
  std::uint64_t total;
};
constexpr Published kPublished[] = {
    {"aya-23-8b", "", 8'028'033'024},
    {"baichuan2-13b", "", 13'896'668'160},
    {"baichuan2-7b", "Baichuan2-7B-Chat.json", 7'505'973'248},
    {"cerebras-gpt-1.3b", "", 1'315'723'264},
    {"cerebras-gpt-111m", "", 111'050'496},
    {"command-r-35b", "", 34'980'831'232},
    {"command-r7b", "", 8'028'033'024},
    {"deepseek-moe-16b", "deepseek-moe-16b-base.json", 16'375'728'128},
    {"deepseek-v2", "", 235'741'434'880},
    {"deepseek-v2-lite", "", 15'706'484'224},
    {"deepseek-v3", "DeepSeek-V3.json", 671'026'419'200},
    {"distilgpt2", "", 81'912'576},
    {"ernie-4.5-0.3b", "", 360'748'032},
    {"ernie-4.5-21b-a3b", "", 21'825'436'160},
    {"falcon-40b", "", 41'303'293'952},
    {"falcon-7b", "falcon-7b.json", 6'921'720'704},
    {"gemma-2-27b", "", 27'227'128'320},
    {"gemma-2-2b", "gemma-2-2b.json", 2'614'341'888},
    {"gemma-2-9b", "gemma-2-9b.json", 9'241'705'984},
    {"gemma-2b", "gemma-2b.json", 2'506'172'416},
    {"gemma-3-12b", "", 11'766'034'176},
    {"gemma-3-1b", "gemma-3-1b-it.json", 999'885'952},
    {"gemma-3-270m", "", 268'098'176},
    {"gemma-3-27b", "", 27'009'346'304},
    {"gemma-3-4b", "", 3'880'263'168},
    {"gemma-4-26b-a4b", "", 25'233'141'760},
    {"gemma-4-31b", "", 30'697'345'280},
    {"gemma-4-e2b", "", 4'628'569'344},
    {"gemma-4-e4b", "", 7'463'013'376},
    {"gemma-7b", "", 8'537'680'896},
    {"glm-4-32b-0414", "", 32'566'081'536},
    {"glm-4-9b", "", 9'399'951'360},
    {"glm-4-9b-0414", "", 9'400'279'040},
    {"glm-4.5", "", 352'797'814'784},
    {"glm-4.5-air", "", 106'852'245'504},
    {"glm-4.7-flash", "", 29'943'390'976},
    {"gpt-neox-20b", "gpt-neox-20b.json", 20'554'567'680},
    {"gpt-oss-120b", "", 116'829'156'672},
    {"gpt-oss-20b", "", 20'914'757'184},
    {"gpt2", "gpt2.json", 124'439'808},
    {"gpt2-large", "", 774'030'080},
    {"gpt2-medium", "gpt2-medium.json", 354'823'168},
    {"gpt2-xl", "gpt2-xl.json", 1'557'611'200},
    {"granite-3.1-1b-a400m", "", 1'334'628'352},
    {"granite-3.1-2b", "", 2'533'531'648},
    {"granite-3.1-3b-a800m", "", 3'298'793'472},
    {"granite-3.1-8b", "", 8'170'848'256},
    {"granite-3.3-2b", "", 2'533'539'840},
    {"granite-3.3-8b", "granite-3.3-8b-instruct.json", 8'170'864'640},
    {"granite-4.0-h-1b", "", 1'461'538'368},
    {"granite-4.0-h-tiny", "", 6'939'037'248},
    {"hunyuan-7b", "", 7'504'568'320},
    {"hunyuan-a13b", "", 80'393'183'232},
    {"internlm2-20b", "", 19'861'149'696},
    {"internlm2-7b", "internlm2-7b.json", 7'737'708'544},
    {"kimi-k2", "", 1'026'408'232'448},
    {"kimi-linear-48b-a3b", "", 49'122'675'072},
    {"lfm2-1.2b", "", 1'170'340'608},
    {"lfm2-350m", "", 354'483'968},
    {"lfm2-700m", "", 742'489'344},
    {"lfm2-8b-a1b", "", 8'339'929'856},
    {"llama-4-maverick", "", 400'711'848'960},
    {"llama-4-scout", "", 107'769'861'120},
    {"minimax-m2", "", 228'689'748'992},
    {"ministral-3-14b", "", 13'506'073'600},
    {"ministral-3-3b", "", 3'429'006'336},
    {"ministral-3-8b", "", 8'489'553'920},
    {"minitron-4b", "", 4'190'509'056},
    {"minitron-8b", "", 8'271'699'968},
    {"mistral-small-4-119b", "", 118'972'826'624},
    {"mixtral-8x22b-v0.1", "", 140'620'634'112},
    {"mixtral-8x7b-v0.1", "Mixtral-8x7B-v0.1.json", 46'702'792'704},
    {"mpt-7b", "mpt-7b.json", 6'649'286'656},
    {"nemotron-3-nano-30b-a3b", "", 31'577'937'344},
    {"nemotron-3-super-120b-a12b", "", 120'668'687'360},
    {"nemotron-nano-9b-v2", "", 8'888'227'328},
    {"olmo-1b", "", 1'176'764'416},
    {"olmo-2-13b", "", 13'716'198'400},
    {"olmo-2-1b", "", 1'484'916'736},
    {"olmo-2-32b", "", 32'234'279'936},
    {"olmo-2-7b", "OLMo-2-1124-7B.json", 7'298'617'344},
    {"olmo-3-32b", "", 32'233'522'176},
    {"olmo-3-7b", "", 7'298'011'136},
    {"olmo-7b", "OLMo-7B-hf.json", 6'888'095'744},
    {"opt-1.3b", "opt-1.3b.json", 1'315'758'080},
    {"opt-125m", "", 125'239'296},
    {"opt-13b", "", 12'853'473'280},
    {"opt-2.7b", "", 2'651'596'800},
    {"opt-30b", "", 29'974'540'288},
    {"opt-350m", "", 331'196'416},
    {"opt-6.7b", "", 6'658'473'984},
    {"opt-66b", "", 65'719'701'504},
    {"phi-1.5", "", 1'418'270'720},
    {"phi-2", "phi-2.json", 2'779'683'840},
    {"phi-3-medium", "", 13'960'238'080},
    {"phi-3-mini-4k", "Phi-3-mini-4k-instruct.json", 3'821'079'552},
    {"phi-3.5-mini", "", 3'821'079'552},
    {"phi-3.5-moe", "", 41'873'153'344},
    {"phi-4", "", 14'659'507'200},
    {"phi-4-mini", "", 3'836'021'760},
    {"pythia-1.4b", "", 1'414'647'808},
    {"pythia-12b", "", 11'846'072'320},
    {"pythia-14m", "", 14'067'712},
    {"pythia-160m", "pythia-160m.json", 162'322'944},
    {"pythia-1b", "", 1'011'781'632},
    {"pythia-2.8b", "", 2'775'208'960},
    {"pythia-31m", "", 30'494'720},
    {"pythia-410m", "", 405'334'016},
    {"pythia-6.9b", "", 6'857'302'016},
    {"pythia-70m", "", 70'426'624},
    {"qwen1.5-moe-a2.7b", "Qwen1.5-MoE-A2.7B-Chat.json", 14'315'784'192},
    {"qwen2-57b-a14b", "", 57'408'658'944},
    {"qwen3-235b-a22b", "Qwen3-235B-A22B.json", 235'093'634'560},
    {"qwen3-30b-a3b", "", 30'532'122'624},
    {"qwen3-next-80b-a3b", "", 79'674'391'296},
    {"qwen3.5-0.8b", "", 752'393'024},
    {"qwen3.5-27b", "", 26'895'998'464},
    {"qwen3.5-35b-a3b", "", 34'660'610'688},
    {"qwen3.5-397b-a17b", "", 396'346'350'336},
    {"qwen3.5-4b", "", 4'205'751'296},
    {"qwen3.5-9b", "", 8'953'803'264},
    {"redpajama-incite-3b", "", 2'775'864'320},
    {"redpajama-incite-7b", "", 6'857'302'016},
    {"seed-oss-36b", "", 36'151'104'512},
    {"smollm3-3b", "", 3'075'098'624},
    {"stablelm-2-1.6b", "", 1'644'515'328},
    {"stablelm-3b-4e1t", "stablelm-3b-4e1t.json", 2'795'443'200},
    {"stablelm-base-alpha-3b", "", 3'637'321'728},
    {"stablelm-base-alpha-7b", "", 7'868'755'968},
    {"starcoder2-15b", "", 15'957'889'024},
    {"starcoder2-3b", "", 3'030'371'328},
    {"starcoder2-7b", "starcoder2-7b.json", 7'173'923'840},
};

using trainhost::test::read_file;

}  // namespace

BOOST_AUTO_TEST_SUITE(retyped_models)

BOOST_AUTO_TEST_CASE(every_preset_has_its_published_parameters) {
  BOOST_TEST(model::planned_presets().size() == std::size(kPublished));
  for (const Published& p : kPublished) {
    const ModelSpec* m = model::find_planned_preset(p.preset);
    BOOST_REQUIRE_MESSAGE(m, p.preset);
    BOOST_TEST(model::count(model::from_model(*m)).total == p.total, p.preset);
  }
}

BOOST_AUTO_TEST_CASE(a_preset_equals_the_architecture_of_its_config) {
  const fs::path configs = fs::path(TRAINHOST_SOURCE_DIR) / ".." / "shared" / "data" / "hf_configs";
  for (const Published& p : kPublished) {
    if (!*p.config) continue;
    if (!fs::exists(configs / p.config)) {
      BOOST_TEST_MESSAGE("skipped: there is no " << p.config);
      continue;
    }
    model::Architecture theirs = model::from_config(read_file(configs / p.config), p.preset);
    const model::Architecture ours = model::from_model(*model::find_planned_preset(p.preset));
    std::erase_if(theirs.notes, [](const std::string& n) { return n.starts_with("quantization_config"); });
    BOOST_TEST((ours == theirs), p.preset);
  }
  BOOST_TEST(true);
}

// No exact total of DeepSeek-V2 and V2-Lite is published except through file sizes. The terms here are
// independent of core/model: attention as five products and two norms, an MLP as three products.
BOOST_AUTO_TEST_CASE(deepseek_v2_totals_follow_from_the_published_dimensions) {
  const auto total = [](std::uint64_t H, std::uint64_t layers, std::uint64_t heads, std::uint64_t q_lora,
                        std::uint64_t dense, std::uint64_t width, std::uint64_t experts) {
    const std::uint64_t vocab = 102400, kv_lora = 512, rope = 64, nope = 128, v = 128, shared = 2,
                        q = heads * (nope + rope);
    const std::uint64_t queries = q_lora ? H * q_lora + q_lora + q_lora * q : H * q;
    const std::uint64_t keys = H * (kv_lora + rope) + kv_lora + kv_lora * heads * (nope + v);
    const std::uint64_t routed = H * experts + (experts + shared) * 3 * H * width;
    return 2 * vocab * H + H + layers * (queries + keys + heads * v * H + 2 * H) + 3 * H * dense +
           (layers - 1) * routed;
  };
  BOOST_TEST(total(5120, 60, 128, 1536, 12288, 1536, 160) == 235'741'434'880u);
  BOOST_TEST(total(2048, 27, 16, 0, 10944, 1408, 64) == 15'706'484'224u);
}

BOOST_AUTO_TEST_CASE(every_known_family_has_a_preset_or_is_trainable) {
  // Read by the function of another family, or from its text_config: architecture_test.cpp and
  // tests/interop/model_families.py.
  std::set<std::string_view> seen{"gemma3",        "gemma4_text",       "granitemoeshared", "kimi_k25",
                                  "llama4_text",   "mistral3",          "mistral4",         "ministral",
                                  "qwen3_5_text",  "qwen3_5_moe_text",  "qwen2_vl_text",    "qwen2_5_vl_text",
                                  "qwen3_vl_text", "qwen3_vl_moe_text", "qwen2_vl",         "qwen2_5_vl",
                                  "qwen3_vl",      "qwen3_vl_moe",      "lfm2_vl"};
  for (const ModelSpec& m : model::planned_presets()) seen.insert(m.family);
  for (const ModelSpec& m : model_presets()) seen.insert(m.family);
  for (std::string_view family : model::known_families()) BOOST_TEST(seen.contains(family), family);
}

BOOST_AUTO_TEST_CASE(the_readmes_state_the_number_of_known_families) {
  const std::string number = std::to_string(model::known_families().size()) + " families";
  for (const char* name : {"README.md", "plugins/README.md"}) {
    const std::string text = test::read_file(fs::path(TRAINHOST_SOURCE_DIR) / name);
    BOOST_TEST(text.find(number) != std::string::npos, name << " does not say " << number);
  }
}

// The configs of LFM2 1.2B and Kimi Linear 48B on the Hub have other names than their classes.
BOOST_AUTO_TEST_CASE(configs_of_the_hub_of_lfm2_and_kimi_linear_are_read_without_notes) {
  const auto total = [](const std::string& config) {
    const model::Architecture a = model::from_config(config, "config.json");
    BOOST_TEST(a.notes.empty(), (a.notes.empty() ? "" : a.notes.front()));
    return model::count(a).total;
  };
  const std::string lfm2 = R"("hidden_size": 2048, "num_hidden_layers": 16, "num_attention_heads": 32,
      "num_key_value_heads": 8, "vocab_size": 65536, "block_dim": 2048, "block_ff_dim": 12288,
      "block_auto_adjust_ff_dim": true, "block_ffn_dim_multiplier": 1.0, "block_multiple_of": 256, "conv_L_cache": 3,
      "conv_bias": false, "layer_types": ["conv", "conv", "full_attention", "conv", "conv", "full_attention", "conv",
      "conv", "full_attention", "conv", "full_attention", "conv", "full_attention", "conv", "full_attention", "conv"],
      "max_position_embeddings": 128000, "norm_eps": 1e-05, "rope_theta": 1000000.0, "tie_embedding": true)";
  BOOST_TEST(total(R"({"model_type": "lfm2", )" + lfm2 + "}") == 1'170'340'608u);
  BOOST_TEST(total(R"({"model_type": "lfm2", "block_auto_adjust_ff_dim": false, )" +
                   lfm2.substr(0, lfm2.find("\"block_auto")) + lfm2.substr(lfm2.find("\"block_ffn")) + "}") ==
             1'170'340'608u + 16ull * 3 * 4096 * 2048);
  BOOST_TEST(total(R"({"model_type": "kimi_linear", "hidden_size": 2304, "intermediate_size": 9216,
      "num_hidden_layers": 27, "num_attention_heads": 32, "num_key_value_heads": 32, "head_dim": 72,
      "kv_lora_rank": 512, "q_lora_rank": null, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
      "vocab_size": 163840, "num_experts": 256, "num_experts_per_token": 8, "num_shared_experts": 1,
      "moe_intermediate_size": 1024, "first_k_dense_replace": 1, "moe_layer_freq": 1, "mla_use_nope": true,
      "linear_attn_config": {"full_attn_layers": [4, 8, 12, 16, 20, 24, 27], "head_dim": 128,
      "kda_layers": [1, 2, 3, 5, 6, 7, 9, 10, 11, 13, 14, 15, 17, 18, 19, 21, 22, 23, 25, 26], "num_heads": 32,
      "short_conv_kernel_size": 4}, "moe_renormalize": true, "moe_router_activation_func": "sigmoid",
      "num_expert_group": 1, "topk_group": 1, "model_max_length": 1048576, "routed_scaling_factor": 2.446,
      "tie_word_embeddings": false})") == 49'122'675'072u);
}

// The text models are Qwen2.5 7B, Qwen3 4B and Qwen3 30B-A3B.
BOOST_AUTO_TEST_CASE(decoders_of_qwen_with_vision_have_the_published_parameters) {
  const auto total = [](const std::string& config) {
    const model::Architecture a = model::from_config(config, "config.json");
    BOOST_TEST(a.notes.size() == 1u, config);
    BOOST_TEST(a.notes.front().starts_with("vision_config"), config);
    return model::count(a).total;
  };
  const std::string qwen2 =
      R"("vocab_size": 152064, "hidden_size": 3584, "num_hidden_layers": 28, "num_attention_heads": 28,
         "num_key_value_heads": 4, "intermediate_size": 18944, "use_sliding_window": false,
         "rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]})";
  const std::string vision =
      R"(, "vision_config": {"depth": 32}, "image_token_id": 1, "vision_start_token_id": 2)";
  for (const std::string family : {"qwen2_vl", "qwen2_5_vl"}) {
    const std::string type = "{\"model_type\": \"" + family + "\", \"tie_word_embeddings\": false";
    BOOST_TEST(total(type + ", " + qwen2 + vision + "}") == 7'615'616'512u);
    const std::string text = ", \"text_config\": {\"model_type\": \"" + family + "_text\", " + qwen2 + "}";
    BOOST_TEST(total(type + text + vision + "}") == 7'615'616'512u);
  }
  BOOST_TEST(total(R"({"model_type": "qwen3_vl", "tie_word_embeddings": true, "text_config": {
      "model_type": "qwen3_vl_text", "vocab_size": 151936, "hidden_size": 2560, "num_hidden_layers": 36,
      "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 9728})" +
                   vision + "}") == 4'022'468'096u);
  BOOST_TEST(total(R"({"model_type": "qwen3_vl_moe", "tie_word_embeddings": false, "text_config": {
      "model_type": "qwen3_vl_moe_text", "vocab_size": 151936, "hidden_size": 2048, "num_hidden_layers": 48,
      "num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128, "intermediate_size": 6144,
      "moe_intermediate_size": 768, "num_experts": 128, "num_experts_per_tok": 8, "decoder_sparse_step": 1,
      "mlp_only_layers": []})" +
                   vision + "}") == 30'532'122'624u);
}

// Attention and experts by the formulas of the published dimensions, alone and below the config of a model
// with vision.
BOOST_AUTO_TEST_CASE(the_decoder_of_mistral_4_has_latent_attention_and_experts) {
  const std::string fields =
      R"("model_type": "mistral4", "vocab_size": 131072, "hidden_size": 4096, "num_hidden_layers": 36,
         "num_attention_heads": 32, "num_key_value_heads": 32, "intermediate_size": 12288,
         "moe_intermediate_size": 2048, "n_routed_experts": 128, "n_shared_experts": 1, "num_experts_per_tok": 4,
         "first_k_dense_replace": 0, "kv_lora_rank": 256, "qk_rope_head_dim": 64, "qk_nope_head_dim": 64,
         "v_head_dim": 128, "tie_word_embeddings": false)";
  const std::uint64_t H = 4096, q = 1024, kv = 256, heads = 32;
  const std::uint64_t attention =
      H * q + q + q * heads * 128 + H * (kv + 64) + kv + kv * heads * (64 + 128) + heads * 128 * H;
  const std::uint64_t layer = attention + 2 * H + H * 128 + (128 + 1) * 3 * H * 2048;
  const std::uint64_t total = 2 * 131072 * H + H + 36 * layer;
  const auto count = [](const std::string& config) {
    return model::count(model::from_config(config, "config.json")).total;
  };
  BOOST_TEST(count("{" + fields + "}") == total);
  BOOST_TEST(count("{\"model_type\": \"mistral3\", \"vision_config\": {}, \"text_config\": {" + fields +
                   "}}") == total);
}

BOOST_AUTO_TEST_CASE(names_are_sorted_and_unique) {
  std::set<std::string> seen;
  std::string last;
  for (const ModelSpec& m : model::planned_presets()) {
    BOOST_TEST((last < m.name), m.name);
    last = m.name;
    BOOST_TEST(find_model_preset(m.name) == nullptr, m.name);
    BOOST_TEST(model::find_planned_preset(m.name) == &m);
    BOOST_TEST(!trainable_family(m.family), m.name);
    const model::Architecture a = model::from_model(m);
    BOOST_TEST(m.layers == a.layer_count());
    BOOST_TEST(m.vocab == a.vocab);
  }
  BOOST_TEST(model::find_planned_preset("gpt-5") == nullptr);
}

BOOST_AUTO_TEST_CASE(a_trainable_preset_counts_as_the_step_program_does) {
  for (const ModelSpec& m : model_presets()) {
    const model::Counts n = model::count(model::from_model(m));
    const ParameterCounts p = count_parameters(m);
    BOOST_TEST(n.total == p.total, m.name);
    BOOST_TEST(n.embedding == p.embedding, m.name);
    BOOST_TEST(n.first_layer == p.per_layer, m.name);
    BOOST_TEST(n.head == p.head, m.name);
    BOOST_TEST(n.final_norm == p.final_norm, m.name);
  }
}

BOOST_AUTO_TEST_SUITE_END()
