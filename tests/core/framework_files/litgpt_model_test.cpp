// The model of `litgpt pretrain`: its name, or the fields of model_config.
#include <boost/test/unit_test.hpp>

#include "tests/core/framework_files/settings_of.hpp"

using namespace trainhost;
using namespace trainhost::testing;
using runfile::KeyUse;

namespace {

const std::string kTrain =
    "out_dir: out\nprecision: bf16-mixed\ntrain:\n  global_batch_size: 512\n  micro_batch_size: 128\n";
const std::string kModel =
    "model_name: stories15M\nmodel_config:\n  name: stories15M\n  hf_config: {}\n  block_size: 256\n"
    "  n_layer: 6\n  n_head: 6\n  n_query_groups: 3\n  n_embd: 288\n  head_size: 48\n"
    "  intermediate_size: 768\n  rotary_percentage: 1.0\n  parallel_residual: false\n  bias: false\n";
const std::string kLlama = "  norm_class_name: RMSNorm\n  mlp_class_name: LLaMAMLP\n";

}  // namespace

BOOST_AUTO_TEST_SUITE(litgpt_model)

BOOST_AUTO_TEST_CASE(fields_of_a_llama_are_those_of_a_run_file) {
  const std::string text =
      kModel + kLlama + "  padded_vocab_size: 32000\n" + kTrain + "  tie_embeddings: true\n";
  const auto s = read_text("pretrain.yaml", text);
  const Settings given = by_key(s);
  for (const auto& [key, expected] : Settings{{"model.model_type", "llama"},
                                              {"model.num_hidden_layers", "6"},
                                              {"model.hidden_size", "288"},
                                              {"model.num_attention_heads", "6"},
                                              {"model.num_key_value_heads", "3"},
                                              {"model.head_dim", "48"},
                                              {"model.intermediate_size", "768"},
                                              {"model.vocab_size", "32000"},
                                              {"model.max_position_embeddings", "256"},
                                              {"model.tie_word_embeddings", "true"},
                                              {"model.preset", ""},
                                              {"data.seq_len", "256"},
                                              {"plan.execution", "compile"},
                                              {"train.micro_batch", "128"},
                                              {"train.grad_accum", "4"}})
    BOOST_TEST(value(given, key) == expected, key << " = " << value(given, key));
  for (const runfile::FileKey& k : s.keys)
    BOOST_TEST((k.use == KeyUse::kUsed || k.use == KeyUse::kWithoutEffect), k.key << ": " << k.note);
  // max_seq_length replaces the length of the model; a vocabulary is padded to 512.
  const auto other = settings("pretrain.yaml",
                              kModel + kLlama + "  vocab_size: 1000\n" + kTrain + "  max_seq_length: 128\n");
  BOOST_TEST(value(other, "data.seq_len") == "128");
  BOOST_TEST(value(other, "model.vocab_size") == "1024");
  BOOST_TEST(value(other, "model.tie_word_embeddings") == "false");
}

BOOST_AUTO_TEST_CASE(another_model_asks_for_its_config) {
  for (const std::string& more : {std::string("  mlp_class_name: GptNeoxMLP\n  norm_class_name: LayerNorm\n"),
                                  kLlama + "  lm_head_bias: true\n", std::string()})
    BOOST_TEST(error_of("pretrain.yaml", kModel + more + "  padded_vocab_size: 512\n" + kTrain)
                       .find("describes a model that run files have no fields for") != std::string::npos,
               more);
  // Biases and parallel residuals are on where they are left out.
  for (const std::string line : {"  bias: false\n", "  parallel_residual: false\n"}) {
    std::string model = kModel;
    model.erase(model.find(line), line.size());
    BOOST_TEST(error_of("pretrain.yaml", model + kLlama + "  padded_vocab_size: 512\n" + kTrain)
                       .find("describes a model that run files have no fields for") != std::string::npos,
               line);
  }
  BOOST_TEST(
      error_of("pretrain.yaml", kModel + kLlama + kTrain).find("no file gives the size of the vocabulary") !=
      std::string::npos);
  // A name alone is that of a preset.
  const std::string named = "model_name: tiny-llama-1.1b\n" + kTrain + "  tie_embeddings: true\n";
  BOOST_TEST(value(settings("pretrain.yaml", named, {{"data.seq_len", "2048"}}), "model.preset") != "");
  BOOST_TEST((fate("pretrain.yaml", named, "train.tie_embeddings", {{"data.seq_len", "2048"}}).first ==
              KeyUse::kUsed));
}

BOOST_AUTO_TEST_SUITE_END()
