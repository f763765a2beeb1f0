// core/runfile: reading config.json like transformers, and errors in it.
#include <boost/test/unit_test.hpp>

#include "core/base/error.hpp"
#include "core/model/presets.hpp"
#include "core/runfile/run_config.hpp"
#include "tests/core/runfile/folder.hpp"

using namespace trainhost;
using trainhost::runfile::parse_model_config;
using trainhost::testing::small_config;

namespace {

ModelSpec model(const std::string& more = "", const std::string& family = "llama") {
  return parse_model_config(small_config(more, family), "mine/config.json");
}

/// The full error message, "" if the config is accepted.
std::string rejection(const std::string& json) {
  try {
    parse_model_config(json, "config.json");
  } catch (const Error& e) {
    return (e.code() == Exit::kUsage ? "" : "wrong exit code: ") + e.full();
  }
  return "";
}

std::string rejection_with(const std::string& more, const std::string& family = "llama") {
  return rejection(small_config(more, family));
}

/// The small config with one line of it replaced.
std::string changed(const std::string& line, const std::string& by) {
  std::string json = small_config();
  return json.replace(json.find(line), line.size(), by);
}

}  // namespace

BOOST_AUTO_TEST_SUITE(model_config)

BOOST_AUTO_TEST_CASE(absent_fields_take_the_defaults_of_their_family) {
  const ModelSpec llama = model();
  BOOST_TEST((llama.head_dim == 16 && llama.norm_eps == 1e-6 && llama.rope_theta == 10000 &&
              llama.max_positions == 2048));
  BOOST_TEST((!llama.tied && !llama.qkv_bias && !llama.o_bias && !llama.mlp_bias && !llama.qk_norm &&
              llama.sliding_window == 0));
  BOOST_TEST(llama.name == "mine");
  const ModelSpec mistral = model("", "mistral");
  BOOST_TEST((mistral.sliding_window == 4096 && mistral.max_positions == 131072 && !mistral.qkv_bias));
  const ModelSpec qwen2 = model("", "qwen2");
  BOOST_TEST((qwen2.qkv_bias && !qwen2.o_bias && qwen2.sliding_window == 0 && qwen2.max_positions == 32768));
  const ModelSpec qwen3 = model("", "qwen3");
  BOOST_TEST((qwen3.qk_norm && !qwen3.qkv_bias && qwen3.head_dim == 128));
}

BOOST_AUTO_TEST_CASE(null_means_what_it_means_in_transformers) {
  BOOST_TEST(model("\"sliding_window\": null", "mistral").sliding_window == 0u);
  BOOST_TEST(model("\"head_dim\": null").head_dim == 16u);
  BOOST_TEST((model("\"rope_scaling\": null").rope.kind == RopeKind::kDefault));
  const std::string no_kv =
      R"({"model_type": "mistral", "vocab_size": 8, "hidden_size": 64, "num_hidden_layers": 1, "num_attention_heads": 16, "intermediate_size": 8)";
  BOOST_TEST(parse_model_config(no_kv + "}", "c").kv_heads == 8u);
  BOOST_TEST(parse_model_config(no_kv + ", \"num_key_value_heads\": null}", "c").kv_heads == 16u);
}

BOOST_AUTO_TEST_CASE(biases_depend_on_the_family_as_in_transformers) {
  const ModelSpec llama = model("\"attention_bias\": true, \"mlp_bias\": true");
  BOOST_TEST((llama.qkv_bias && llama.o_bias && llama.mlp_bias));
  const ModelSpec qwen3 = model("\"attention_bias\": true", "qwen3");
  BOOST_TEST((qwen3.qkv_bias && qwen3.o_bias && qwen3.qk_norm));
}

BOOST_AUTO_TEST_CASE(windows_follow_their_flags_layers_and_lists) {
  const ModelSpec on =
      model("\"use_sliding_window\": true, \"sliding_window\": 8, \"max_window_layers\": 1", "qwen2");
  BOOST_TEST((on.window(0) == 0 && on.window(1) == 8));
  BOOST_TEST(model("\"use_sliding_window\": false, \"sliding_window\": 8", "qwen2").sliding_window == 0u);
  BOOST_TEST(model("\"use_sliding_window\": true, \"sliding_window\": 8, \"max_window_layers\": 2", "qwen3")
                 .sliding_window == 0u);
  const ModelSpec listed = model(
      R"("use_sliding_window": true, "sliding_window": 8, "layer_types": ["full_attention", "sliding_attention"])",
      "qwen3");
  BOOST_TEST((listed.window(0) == 0 && listed.window(1) == 8));
  BOOST_TEST(model(R"("layer_types": ["full_attention", "full_attention"])", "qwen3").sliding_window == 0u);
}

BOOST_AUTO_TEST_CASE(rope_is_read_from_its_old_and_new_fields) {
  const ModelSpec old = model(R"("rope_theta": 500000, "rope_scaling": {"type": "linear", "factor": 2})");
  BOOST_TEST((old.rope_theta == 500000 && old.rope.kind == RopeKind::kLinear && old.rope.factor == 2));
  const ModelSpec recent =
      model(R"("rope_parameters": {"rope_theta": 5e5, "rope_type": "llama3", "factor": 8.0,
      "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192})");
  BOOST_TEST((recent.rope_theta == 500000 && recent.rope.kind == RopeKind::kLlama3 &&
              recent.rope.original_max_positions == 8192));
  BOOST_TEST(
      (model(R"("rope_parameters": {"rope_theta": 5e5, "rope_type": "default"})").rope == RopeScaling{}));
}

BOOST_AUTO_TEST_CASE(the_family_comes_from_the_architecture_where_model_type_is_missing) {
  const std::string rest =
      R"("vocab_size": 8, "hidden_size": 64, "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 8, "num_key_value_heads": 4})";
  BOOST_TEST(parse_model_config("{\"architectures\": [\"Qwen2ForCausalLM\"], " + rest, "c").family ==
             "qwen2");
  BOOST_TEST(
      rejection("{" + rest) ==
      "config.json: model_type is missing (add the model family, for example \"model_type\": \"llama\")");
}

BOOST_AUTO_TEST_CASE(arithmetic_that_only_a_framework_has_is_accepted_for_its_plan) {
  for (const char* more :
       {R"("hidden_act": "gelu")", R"("attention_dropout": 0.1)",
        R"("quantization_config": {"quant_method": "bitsandbytes", "load_in_4bit": true})",
        R"("rope_scaling": {"type": "yarn", "factor": 4})", R"("partial_rotary_factor": 0.5)"}) {
    BOOST_TEST(!rejection_with(more).empty(), more);
    const ModelSpec m = parse_model_config(small_config(more, "qwen2"), "c.json", true);
    const ModelSpec plain = parse_model_config(small_config("", "qwen2"), "c.json", true);
    BOOST_TEST((m.vocab == plain.vocab && m.layers == plain.layers && m.rope == plain.rope), more);
  }
  BOOST_CHECK_THROW(parse_model_config(small_config(R"("hidden_size": -1)", "qwen2"), "c.json", true), Error);
}

BOOST_AUTO_TEST_CASE(other_families_are_returned_with_their_known_dimensions) {
  const ModelSpec gpt2 = parse_model_config(
      R"({"model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_head": 12, "vocab_size": 50257, "n_positions": 1024})",
      "c");
  BOOST_TEST((gpt2.family == "gpt2" && gpt2.hidden == 768 && gpt2.layers == 12 && gpt2.heads == 12 &&
              gpt2.head_dim == 64));
  BOOST_TEST(gpt2.config_json.find("n_embd") != std::string::npos);
  BOOST_TEST(rejection(R"({"model_type": "who_knows", "hidden_size": "many"})") == "");
  BOOST_TEST(rejection("{\"model_type\": \"gemma2\",\n \"vocab_size\": 9,\n \"hidden_size\": 0}") ==
             "config.json:3:2: hidden_size = 0: expected a whole number from 1 to 2147483647");
}

BOOST_AUTO_TEST_CASE(a_written_config_is_read_as_the_same_model) {
  for (const ModelSpec& m : model_presets()) {
    ModelSpec again = parse_model_config(runfile::model_config_json(m), "c.json");
    again.name = m.name, again.config_json.clear();
    BOOST_TEST((again == m), m.name);
  }
}

BOOST_AUTO_TEST_CASE(a_written_config_names_the_class_of_transformers) {
  for (const auto& [family, name] : {std::pair{"llama", "LlamaForCausalLM"},
                                     {"mistral", "MistralForCausalLM"},
                                     {"qwen2", "Qwen2ForCausalLM"},
                                     {"qwen3", "Qwen3ForCausalLM"}})
    BOOST_TEST(runfile::model_config_json(model("", family)).find(name) != std::string::npos, family);
}

BOOST_AUTO_TEST_CASE(token_ids_are_copied_to_the_written_config) {
  const std::string out = runfile::model_config_json(model("\"bos_token_id\": 1, \"eos_token_id\": [2, 3]"));
  BOOST_TEST(out.find("\"bos_token_id\": 1") != out.npos);
  BOOST_TEST(out.find("\"eos_token_id\": [") != out.npos);
  BOOST_TEST(out.find("\"architectures\"") != out.npos);
  BOOST_TEST(out.find("\"torch_dtype\": \"float32\"") != out.npos);
}

// clang-format off
BOOST_AUTO_TEST_CASE(malformed_json_is_rejected_at_its_position) {
  BOOST_TEST(rejection("") == "config.json:1:1: not valid JSON: expected a value, found the end of the text (the file is truncated: copy it again)");
  BOOST_TEST(rejection("<!DOCTYPE html>").ends_with(
      "(the file is a web page: download the file itself, for example with `hf download`)"));
  BOOST_TEST(rejection("version https://git-lfs.github.com/spec/v1\n").ends_with("run 'git lfs pull')"));
  BOOST_TEST(rejection("{") == "config.json:1:2: not valid JSON: expected a string, found the end of the text (the file is truncated: copy it again)");
  BOOST_TEST(rejection("[1]") == "config.json:1:1: expected a JSON object with the model's fields");
  BOOST_TEST(rejection("{\"a\": 1,}") == "config.json:1:9: not valid JSON: expected a string, found '}' (remove the comma before '}': JSON has "
             "none behind the last value)");
  BOOST_TEST(rejection("{\n \"a\": 1\n \"b\": 2}") == "config.json:3:2: not valid JSON: expected ',' or '}', found '\"b'");
  BOOST_TEST(rejection("{\"a\": 01}") == "config.json:1:7: not valid JSON: malformed number");
  BOOST_TEST(rejection("{} x") == "config.json:1:4: not valid JSON: 'x' after the end of the value");
  BOOST_TEST(rejection("{\"a\": \"\xFF\"}") == "config.json:1:8: not valid JSON: not valid UTF-8");
  BOOST_TEST(rejection("{'a': 1}") == "config.json:1:2: not valid JSON: expected a string, found ''a''");
}
// clang-format on

// clang-format off
BOOST_AUTO_TEST_CASE(invalid_models_are_rejected_at_the_field) {
  BOOST_TEST(rejection_with(R"("hidden_size": 8)") ==
             R"(config.json:9:1: 'hidden_size' is given twice)");
  BOOST_TEST(rejection_with(R"("rope_scaling": {"factor": 1, "factor": 2})") ==
             R"(config.json:9:31: 'rope_scaling.factor' is given twice)");
  BOOST_TEST(rejection_with(R"("head_dim": "big")") ==
             R"(config.json:9:1: head_dim = "big": expected a whole number, got a string)");
  BOOST_TEST(rejection_with(R"("head_dim": 16.0)") ==
             R"(config.json:9:1: head_dim = 16: expected a whole number, got a number with fraction or exponent)");
  BOOST_TEST(rejection_with(R"("head_dim": -4)") ==
             R"(config.json:9:1: head_dim = -4: expected a whole number from 1 to 2147483647)");
  BOOST_TEST(rejection_with(R"("head_dim": 4294967300)") ==
             R"(config.json:9:1: head_dim = 4294967300: expected a whole number from 1 to 2147483647)");
  BOOST_TEST(rejection_with(R"("head_dim": 18446744073709551615)") ==
             R"(config.json:9:1: head_dim = 1.8446744073709552e+19: expected a whole number, got a number with fraction or exponent)");
  BOOST_TEST(rejection_with(R"("head_dim": 15)") ==
             R"(config.json:9:1: head_dim = 15 is odd: rotary embeddings rotate pairs of dimensions (set head_dim to an even number))");
  BOOST_TEST(rejection_with(R"("head_dim": 0)") ==
             R"(config.json:9:1: head_dim = 0: expected a whole number from 1 to 2147483647)");
  BOOST_TEST(rejection_with(R"("rms_norm_eps": true)") ==
             R"(config.json:9:1: rms_norm_eps = true: expected a number, got true or false)");
  BOOST_TEST(rejection_with(R"("rms_norm_eps": 0)") ==
             R"(config.json:9:1: rms_norm_eps = 0: expected a positive number)");
  BOOST_TEST(rejection_with(R"("tie_word_embeddings": 1)") ==
             R"(config.json:9:1: tie_word_embeddings = 1: expected true or false, got a whole number)");
  BOOST_TEST(rejection_with(R"("hidden_act": "gelu")") ==
             R"(config.json:9:1: hidden_act = "gelu" is not supported: expected silu (`trainhost plan --for NAME` plans it for a framework that trains it))");
  BOOST_TEST(rejection_with(R"("attention_dropout": 0.1)") ==
             R"(config.json:9:1: attention_dropout is not supported: expected 0 (`trainhost plan --for NAME` plans it for a framework that trains it))");
  BOOST_TEST(rejection_with(R"("quantization_config": {"bits": 4})") ==
             R"(config.json:9:1: quantization_config is not supported: expected unquantized weights (use the model that it was made from, which `trainhost finetune --qlora` quantizes itself; `trainhost plan --for NAME` plans it for a framework that trains it))");
  BOOST_TEST(rejection_with(R"("rope_scaling": {"type": "yarn", "factor": 4})", "qwen2") ==
             R"(config.json:9:18: rope_scaling.type = "yarn": rope scaling yarn is not supported (supported: default, linear, llama3; `trainhost plan --for NAME` plans it for a framework that trains it))");
  BOOST_TEST(rejection_with(R"("rope_scaling": {"rope_type": "lama3"})") ==
             R"(config.json:9:18: rope_scaling.rope_type = "lama3": rope scaling lama3 is not supported; did you mean 'llama3'? (supported: default, linear, llama3; `trainhost plan --for NAME` plans it for a framework that trains it))");
  BOOST_TEST(rejection_with(R"("rope_scaling": {"factor": 4})") ==
             R"(config.json:9:1: rope_scaling has no rope_type (expected default, linear or llama3))");
  BOOST_TEST(rejection_with(R"("rope_scaling": 4)") ==
             R"(config.json:9:1: rope_scaling = 4: expected an object, got a whole number)");
  BOOST_TEST(rejection_with(R"("rope_scaling": {"rope_type": "llama3", "factor": 8})") ==
             R"(config.json:9:1: rope_scaling.low_freq_factor is missing: rope scaling llama3 requires it)");
  BOOST_TEST(rejection_with(R"("rope_scaling": {"rope_type": "llama3", "factor": 8, "low_freq_factor": 4, "high_freq_factor": 1, "original_max_position_embeddings": 8192})") ==
             R"(config.json:9:76: rope_scaling.high_freq_factor must be greater than rope_scaling.low_freq_factor)");
  BOOST_TEST(rejection_with(R"("partial_rotary_factor": 0.5)") ==
             R"(config.json:9:1: partial_rotary_factor is not supported: rotary embeddings apply to the whole head (`trainhost plan --for NAME` plans it for a framework that trains it))");
  BOOST_TEST(rejection_with(R"("sliding_window": 0)", "mistral") ==
             R"(config.json:9:1: sliding_window = 0: expected a positive number, or null for none)");
  BOOST_TEST(rejection_with(R"("sliding_window": 8)") ==
             R"(config.json:9:1: sliding_window is not a field of llama (use model_type = "mistral" for a sliding window))");
  BOOST_TEST(rejection_with(R"("attention_bias": true)", "mistral") ==
             R"(config.json:9:1: attention_bias = true: mistral has no biases)");
  BOOST_TEST(rejection_with(R"("attention_bias": false)", "qwen2") ==
             R"(config.json:9:1: attention_bias = false: qwen2 always has biases on q, k and v (use llama or qwen3 for a model without biases))");
  BOOST_TEST(rejection_with(R"("mlp_bias": true)", "qwen3") ==
             R"(config.json:9:1: mlp_bias = true: qwen3 has no biases in its MLP)");
  BOOST_TEST(rejection_with(R"("use_sliding_window": true, "sliding_window": 8, "layer_types": ["sliding_attention", "full_attention"])", "qwen3") ==
             R"(config.json:9:50: layer_types is not supported: expected full_attention, then sliding_attention to the end)");
  BOOST_TEST(rejection_with(R"("layer_types": ["full_attention"])", "qwen3") ==
             R"(config.json:9:1: layer_types has 1 entry: expected num_hidden_layers = 2)");
  BOOST_TEST(rejection_with(R"("layer_types": "full_attention")", "qwen3") ==
             R"(config.json:9:1: layer_types = "full_attention": expected a list, got a string)");
  BOOST_TEST(rejection_with(R"("sliding_window": null, "layer_types": ["full_attention", "sliding_attention"])", "mistral") ==
             R"(config.json:9:25: layer_types has sliding_attention without a sliding_window)");
  BOOST_TEST(rejection_with(R"("rope_scaling": {"rope_type": 4})") ==
             R"(config.json:9:18: rope_scaling.rope_type = 4: expected a string, got a whole number)");
  BOOST_TEST(rejection_with(R"("rope_theta": -1)") ==
             R"(config.json:9:1: rope_theta = -1: expected a positive number)");
  BOOST_TEST(rejection_with(R"("initializer_range": -1)") ==
             R"(config.json:9:1: initializer_range = -1: expected a number >= 0)");
  BOOST_TEST(rejection_with(R"("rope_theta": 1e999)") ==
             R"(config.json:9:15: not valid JSON: number out of range)");
}
// clang-format on

// clang-format off
BOOST_AUTO_TEST_CASE(invalid_dimensions_are_rejected_at_the_field) {
  BOOST_TEST(rejection(changed("\"num_key_value_heads\": 2", "\"num_key_value_heads\": 3")) ==
             R"(config.json:6:1: num_attention_heads = 4 is not a multiple of num_key_value_heads = 3 (each KV head serves the same number of query heads))");
  BOOST_TEST(rejection(changed("\"num_hidden_layers\": 2", "\"num_hidden_layers\": 0")) ==
             R"(config.json:5:1: num_hidden_layers = 0: expected a whole number from 1 to 2147483647)");
  BOOST_TEST(rejection(changed("\"hidden_size\": 64", "\"hidden_size\": 66")) ==
             R"(config.json:4:1: hidden_size = 66 is not a multiple of num_attention_heads = 4 (set head_dim, or choose a multiple))");
  BOOST_TEST(rejection(changed("\"vocab_size\": 320,\n", "")) ==
             R"(config.json: vocab_size is missing (it is required for every model))");
  BOOST_TEST(rejection(changed("\"num_attention_heads\": 4", "\"num_attention_heads\": 0")) ==
             R"(config.json:6:1: num_attention_heads = 0: expected a whole number from 1 to 2147483647)");
  std::string large = changed("\"hidden_size\": 64", "\"hidden_size\": 2147483640");
  large.replace(large.find("172"), 3, "2147483639,\n\"max_position_embeddings\": 2147483647,\n\"bos_token_id\": 2147483647");
  BOOST_TEST(rejection(large) ==
             R"(config.json:4:1: the parameter count is too large: it does not fit in 63 bits; the largest numbers in it are hidden_size = 2147483640, intermediate_size = 2147483639, vocab_size = 320, num_attention_heads = 4 (the largest size is 9223372036854775807))");
  BOOST_TEST(rejection(changed("\"model_type\": \"llama\"", "\"model_type\": 5")) ==
             R"(config.json:2:1: model_type = 5: expected a string, got a whole number)");
}
// clang-format on

BOOST_AUTO_TEST_SUITE_END()
