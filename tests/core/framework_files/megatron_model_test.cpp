// Models that arguments of Megatron-LM describe: which config.json they mean, and what is asked for.
#include <boost/test/unit_test.hpp>

#include "core/model/tensors.hpp"
#include "core/runfile/run_config.hpp"
#include "tests/core/framework_files/settings_of.hpp"

using namespace trainhost;
using namespace trainhost::testing;
using runfile::KeyUse;

namespace {

constexpr const char* kCommon =
    "--micro-batch-size 1 --seq-length 4096 --bf16 --normalization RMSNorm --swiglu --disable-bias-linear "
    "--untie-embeddings-and-output-weights --position-embedding-type rope --max-position-embeddings 4096 ";

/// The text of the config.json that the arguments mean; "" without one.
std::string config_of(const std::string& arguments) {
  return value(settings("t.sh", kCommon + arguments + "\n"), "model.config");
}

}  // namespace

BOOST_AUTO_TEST_SUITE(megatron_model)

BOOST_AUTO_TEST_CASE(experts_are_those_of_the_family_with_the_same_tensors) {
  const std::string sizes =
      "--num-layers 4 --hidden-size 512 --ffn-hidden-size 1024 --num-attention-heads 8 --vocab-size 1000 "
      "--group-query-attention --num-query-groups 2 --num-experts 8 ";
  BOOST_TEST(config_of(sizes).find("\"model_type\": \"mixtral\"") != std::string::npos, config_of(sizes));
  BOOST_TEST(config_of(sizes).find("\"num_local_experts\": 8, \"num_experts_per_tok\": 2, "
                                   "\"intermediate_size\": 1024") != std::string::npos);
  BOOST_TEST(config_of(sizes).find("\"num_key_value_heads\": 2") != std::string::npos);
  const std::string narrow = sizes + "--moe-ffn-hidden-size 256 --moe-router-topk 4 ";
  const auto type = [&](const std::string& more) {
    const std::string config = config_of(narrow + more);
    const std::size_t at = config.find("\"model_type\": \"");
    return at == config.npos ? config : config.substr(at + 15, config.find('"', at + 15) - at - 15);
  };
  BOOST_TEST(type("--qk-layernorm") == "qwen3_moe");
  BOOST_TEST(type("") == "mixtral");
  BOOST_TEST(type("--moe-shared-expert-intermediate-size 512") == "deepseek");
  BOOST_TEST(type("--moe-shared-expert-intermediate-size 500 --moe-shared-expert-gate --add-qkv-bias") ==
             "qwen2_moe");
  BOOST_TEST(type("--moe-layer-freq '([0]*1+[1]*3)'") == "deepseek");
  const std::string latent =
      "--multi-latent-attention --kv-lora-rank 512 --qk-head-dim 128 --qk-pos-emb-head-dim 64 --v-head-dim "
      "128 --qk-layernorm --moe-shared-expert-intermediate-size 512 ";
  BOOST_TEST(type(latent) == "deepseek_v3");
  BOOST_TEST(config_of(narrow + latent + "--moe-layer-freq '([0]+[1]*3)' --q-lora-rank 1536")
                 .find("\"n_shared_experts\": 2, \"first_k_dense_replace\": 1, \"topk_method\": "
                       "\"greedy\", \"q_lora_rank\": 1536") != std::string::npos);
  BOOST_TEST(type("--moe-layer-freq [0]*1+[1]*3") == "deepseek");
  BOOST_TEST(type("--moe-layer-freq '[0,1,1,1]'") == "deepseek");
  BOOST_TEST(type("--moe-layer-freq '([1]*2)*2'") == "mixtral");
  // Latent attention alone: the dense layers of DeepSeek V3.
  const std::string dense_sizes = sizes.substr(0, sizes.find("--num-experts"));
  BOOST_TEST(config_of(dense_sizes + "--multi-latent-attention --kv-lora-rank 512 --qk-layernorm")
                 .find("\"first_k_dense_replace\": 4") != std::string::npos);
  const auto error = [&](const std::string& more) {
    return error_of("t.sh", kCommon + narrow + more + "\n");
  };
  for (const auto& [more, expected] :
       Settings{{"--moe-layer-freq '([0]*1+[1]*26)'", "is for 27 layers, but there are 4"},
                {"--moe-layer-freq '[0]*1+[2]*3'", "expected a list of a 0 or 1 per layer"},
                {"--moe-layer-freq '([0]*1+[1]*3'", "expected a list of a 0 or 1 per layer"},
                {"--moe-layer-freq often", "moe-layer-freq = often: expected a whole number above 0"},
                {"--moe-layer-freq 2", "moe-layer-freq describes a model that run files have no fields for"},
                {"--multi-latent-attention --q-lora-rank low",
                 "q-lora-rank = low: expected a whole number above 0"}})
    BOOST_TEST(error(more).find(expected) != std::string::npos, error(more));
  BOOST_TEST(error_of("t.sh", kCommon + sizes + "--moe-router-topk 9\n")
                 .find("moe-router-topk = 9 is more than the 8 experts") != std::string::npos);
  BOOST_TEST(error_of("t.sh", kCommon + sizes + "--moe-router-topk two\n")
                 .find("moe-router-topk = two: expected a whole number above 0") != std::string::npos);
  BOOST_TEST(error_of("t.sh", kCommon + dense_sizes + "--num-experts many\n")
                 .find("num-experts = many: expected a whole number above 0") != std::string::npos);
  // Layers in another order, and an MLP that is not gated, are described by no family.
  for (const char* other : {"--moe-layer-freq 2", "--moe-layer-freq '([1]*3+[0]*1)'"})
    BOOST_TEST(error_of("t.sh", kCommon + narrow + other + "\n").find("describes a model that run files") !=
                   std::string::npos,
               other);
}

BOOST_AUTO_TEST_CASE(experts_are_divided_over_tensor_parallel_ranks_unless_an_argument_says_otherwise) {
  const std::string text =
      std::string(kCommon) +
      "--num-layers 4 --hidden-size 512 --ffn-hidden-size 1024 --num-attention-heads 8 --vocab-size 1000 "
      "--num-experts 8 --tensor-model-parallel-size 2 ";
  const auto own = [&](const std::string& more) {
    return value(settings("t.sh", text + more + "\n", {{"parallel.data", "4"}}), "plan.expert_tensor");
  };
  BOOST_TEST(own("") == "");
  BOOST_TEST(own("--expert-tensor-parallel-size 2") == "");
  BOOST_TEST(own("--expert-tensor-parallel-size 1") == "1");
  BOOST_TEST(own("--expert-model-parallel-size 4 --expert-tensor-parallel-size 1") == "1");
}

BOOST_AUTO_TEST_CASE(modules_of_selective_recomputation_and_fused_operators_are_read) {
  const std::string text =
      std::string(kCommon) +
      "--num-layers 4 --hidden-size 512 --ffn-hidden-size 1024 --num-attention-heads 8 --vocab-size 1000 "
      "--num-experts 8 ";
  const auto given = [&](const char* key, const std::string& more) {
    return value(settings("t.sh", text + more + "\n"), key);
  };
  const std::string selective = "--recompute-granularity selective ";
  BOOST_TEST(given("plan.recompute_modules", selective) == "");
  BOOST_TEST(given("plan.recompute_modules", selective + "--recompute-modules moe_act layernorm") ==
             "moe_act,layernorm");
  BOOST_TEST(given("plan.recompute_modules", selective + "--recompute-modules mlp") == "mlp");
  BOOST_TEST(given("plan.recompute_modules",
                   selective + "--recompute-modules mlp --moe-shared-expert-overlap") == "mlp");
  BOOST_TEST(error_of("t.sh", text + selective +
                                  "--recompute-modules mlp shared_experts --moe-shared-expert-overlap\n")
                 .find("Megatron Core refuses to recompute shared experts") != std::string::npos);
  // Without it, and with full recomputation, Megatron Core does not read them.
  BOOST_TEST(given("plan.recompute_modules", "--recompute-modules mlp") == "");
  BOOST_TEST(given("plan.recompute_modules", "--recompute-granularity full --recompute-modules mlp") == "");
  BOOST_TEST(given("plan.recompute_modules", "--moe-layer-recompute") == "core_attn,moe");
  BOOST_TEST(given("train.recompute", "--moe-layer-recompute") == "selective");
  const framework_files::FileSettings other =
      read_text("t.sh", text + selective + "--recompute-modules mlp mhc\n");
  BOOST_TEST(value(settings("t.sh", text + selective + "--recompute-modules mlp mhc\n"),
                   "plan.recompute_modules") == "mlp");
  BOOST_TEST(std::ranges::any_of(other.keys, [](const runfile::FileKey& k) {
    return k.key == "recompute-modules" && k.use == runfile::KeyUse::kNotModelled &&
           k.note.find("mhc") != std::string::npos;
  }));
  BOOST_TEST(given("plan.router_type", "") == "bf16");
  BOOST_TEST(given("plan.router_type", "--moe-router-dtype fp32") == "fp32");
  BOOST_TEST(given("plan.rope_fusion", "") == "");
  BOOST_TEST(given("plan.rope_fusion", "--no-rope-fusion") == "false");
  // One of three losses.
  BOOST_TEST(given("plan.cross_entropy", "--cross-entropy-loss-fusion") == "plain");
  BOOST_TEST(given("plan.compiled_loss", "--cross-entropy-loss-fusion") == "true");
  BOOST_TEST(given("plan.compiled_loss", "") == "");
  const std::string kernel = "--cross-entropy-loss-fusion --cross-entropy-fusion-impl te";
  BOOST_TEST(given("plan.cross_entropy", kernel) == "in-place");
  BOOST_TEST(given("plan.compiled_loss", kernel) == "");
}

BOOST_AUTO_TEST_CASE(an_mlp_of_two_matrices_is_that_of_gpt_2_or_with_rotary_embedding_of_starcoder2) {
  const std::string sizes =
      "--micro-batch-size 1 --seq-length 2048 --max-position-embeddings 2048 --bf16 --num-layers 2 "
      "--hidden-size 512 --num-attention-heads 8 --vocab-size 1000 ";
  const auto config = [&](const std::string& more) {
    return value(settings("t.sh", sizes + more + "\n"), "model.config");
  };
  BOOST_TEST(config("").find("\"gpt2\"") != std::string::npos);
  BOOST_TEST(config("").find("\"tie_word_embeddings\": true") != std::string::npos);
  BOOST_TEST(config("").find("\"intermediate_size\": 2048") != std::string::npos);
  BOOST_TEST(config("--position-embedding-type rope --group-query-attention --num-query-groups 4 "
                    "--disable-bias-linear")
                 .find("\"starcoder2\"") != std::string::npos);
  BOOST_TEST(config("--use-rotary-position-embeddings").find("\"use_bias\": true") != std::string::npos);
  // The text is read as a model, with the vocabulary beside it.
  std::vector<runfile::Override> given = read_text("t.sh", sizes + "\n").settings;
  const runfile::RunConfig c = runfile::load_run({}, given);
  BOOST_TEST(c.model.vocab == 1000u);
  BOOST_TEST(c.model.layers == 2u);
  BOOST_TEST(c.model.name == "t");
}

BOOST_AUTO_TEST_CASE(the_vocabulary_of_such_a_model_is_asked_for_and_may_be_given) {
  const std::string sizes =
      "--num-layers 4 --hidden-size 512 --ffn-hidden-size 1024 --num-attention-heads 8 --num-experts 8";
  const std::string text = kCommon + sizes + "\n";
  BOOST_TEST(error_of("t.sh", text).find("no file gives the size of the vocabulary") != std::string::npos);
  const auto s = settings("t.sh", text, {{"model.vocab_size", "1000", ""}});
  BOOST_TEST(value(s, "model.config") != "");
  BOOST_TEST(value(s, "model.vocab_size") == "");  // the caller has it already
  // A preset of the command line replaces it.
  BOOST_TEST(value(settings("t.sh", text, {{"model.preset", "mixtral-8x7b", ""}}), "model.config") == "");
}

// As the functional tests of Megatron-LM have them.
BOOST_AUTO_TEST_CASE(a_table_of_arguments_in_yaml_is_read) {
  const std::string arguments =
      "  --num-layers: 4\n  --hidden-size: 512\n  --num-attention-heads: 8\n  --micro-batch-size: 2\n"
      "  --seq-length: 128\n  --bf16: true\n  --vocab-size: 1000\n  --swiglu: true\n"
      "  --recompute-granularity: selective\n  --recompute-modules: \"[core_attn mlp]\"\n"
      "  --use-distributed-optimizer: false\n";
  const std::string text =
      "ENV_VARS:\n  PYTORCH_CUDA_ALLOC_CONF: expandable_segments:True\n  NCCL_DEBUG: INFO\n"
      "TEST_TYPE: regular\nMODEL_ARGS:\n" +
      arguments;
  const Settings s = settings("model_config.yaml", text);
  BOOST_TEST(value(s, "plan.framework") == "megatron");
  BOOST_TEST(s.at("model.num_hidden_layers") == "4 @6");
  BOOST_TEST(value(s, "train.micro_batch") == "2");
  BOOST_TEST(value(s, "parallel.zero") == "");
  BOOST_TEST(value(s, "plan.recompute_modules") == "core_attn,mlp");
  BOOST_TEST(value(s, "plan.allocator") == "expandable_segments:True");
  for (const runfile::FileKey& k : read_text("model_config.yaml", text).keys)
    BOOST_TEST((k.use != runfile::KeyUse::kNotUnderstood), k.key);
  BOOST_TEST(error_of("model_config.yaml", "MODE: inference\nMODEL_ARGS:\n" + arguments)
                 .starts_with("model_config.yaml:1: this file starts inference, and no training"));
}

BOOST_AUTO_TEST_CASE(the_vocabulary_is_that_of_a_tokenizer_that_is_known) {
  const std::string model =
      "python pretrain_gpt.py --num-layers 4 --hidden-size 512 --num-attention-heads 8 --micro-batch-size 1 "
      "--seq-length 64 --bf16 --swiglu ";
  const auto vocabulary = [&](const std::string& more) {
    return value(settings("t.sh", model + more + "\n"), "model.vocab_size");
  };
  BOOST_TEST(vocabulary("--tokenizer-type GPT2BPETokenizer") == "50257");
  BOOST_TEST(vocabulary("--tokenizer-type HuggingFaceTokenizer --tokenizer-model Qwen/Qwen3-8B") == "151936");
  BOOST_TEST(vocabulary("--tokenizer-type HuggingFaceTokenizer --tokenizer-model Qwen/Qwen3-8B "
                        "--vocab-size 1000") == "1000");
  // Others are asked for, also those that the script does not name.
  for (const char* other :
       {"", "--tokenizer-type HuggingFaceTokenizer --tokenizer-model $NAME", "--tokenizer-type $TYPE",
        "--tokenizer-type Llama2Tokenizer --tokenizer-model Qwen/Qwen3-8B"})
    BOOST_TEST(error_of("t.sh", model + other + "\n").find("no file gives the size of the vocabulary") !=
                   std::string::npos,
               other);
}

BOOST_AUTO_TEST_SUITE_END()
