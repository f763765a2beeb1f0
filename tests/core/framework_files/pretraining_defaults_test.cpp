// core/framework_files: the same as defaults_test.cpp for torchtitan and Megatron-LM.
#include <algorithm>
#include <boost/test/unit_test.hpp>

#include "tests/core/framework_files/settings_of.hpp"

using namespace trainhost;
using runfile::KeyUse;
using testing::error_of;
using testing::fate;
using testing::read_text;
using testing::settings;
using testing::value;

BOOST_AUTO_TEST_SUITE(framework_files_defaults)

// selective_ac_option of class ActivationCheckpoint in 0.1.0 to 0.2.2.
BOOST_AUTO_TEST_CASE(torchtitan_recomputes_every_second_layer_by_default) {
  const std::string job =
                        "[model]\nname = \"llama3\"\nflavor = \"8B\"\n[training]\nseq_len = 2048\n"
                        "[parallelism]\ndata_parallel_shard_degree = 8\n",
                    mode = "[activation_checkpoint]\nmode = ",
                    option = "activation_checkpoint.selective_ac_option";
  const auto layers = [&](const std::string& more) {
    return value(settings("t.toml", job + more), "plan.selective_layers");
  };
  BOOST_TEST(layers("") == "2");
  BOOST_TEST(layers(mode + "\"selective\"\n") == "2");
  BOOST_TEST(layers(mode + "\"selective\"\nselective_ac_option = \"op\"\n") == "");
  for (const char* other : {"full", "none", "memory_budget"})
    BOOST_TEST(layers(mode + "\"" + other + "\"\n") == "");
  // A compiler chooses what the layers in between keep.
  const auto is_listed = [&](const std::string& text) {
    return std::ranges::any_of(read_text("t.toml", text).keys, [&](const runfile::FileKey& k) {
      return k.key == option && k.use == KeyUse::kNotModelled;
    });
  };
  const std::string compiled = "[compile]\nenable = true\n";
  BOOST_TEST(layers(compiled) == "");
  BOOST_TEST(is_listed(job + compiled));
  BOOST_TEST(!is_listed(job));
}

// Its number of devices is in no key; one would be a guess where a recipe shards.
BOOST_AUTO_TEST_CASE(torchtune_asks_for_the_devices_of_distributed_recipes) {
  const std::string recipe =
      "model:\n  _component_: torchtune.models.llama3.llama3_8b\ntokenizer:\n  max_seq_len: 512\n"
      "batch_size: 1\noptimizer:\n  _component_: torch.optim.AdamW\n";
  for (const char* key : {"fsdp_cpu_offload: True", "custom_sharded_layers: ['tok_embeddings', 'output']",
                          "fsdp_reshard_after_forward: False", "tensor_parallel_dim: 2"}) {
    const std::string text = recipe + key + "\n";
    BOOST_TEST_CONTEXT(key) {
      const std::string error = testing::error_of("t.yaml", text);
      BOOST_TEST(error.find("no file says how many devices there are") != std::string::npos);
      BOOST_TEST(error.starts_with("t.yaml:8:"));
      BOOST_TEST(error.find("--set parallel.data=8") != std::string::npos);
      BOOST_TEST(value(settings("t.yaml", text, {{"parallel.data", "4"}}), "parallel.zero") != "");
      BOOST_TEST(value(settings("t.yaml", "# tune run --nproc_per_node 4 full\n" + text), "parallel.zero") !=
                 "");
    }
  }
  BOOST_TEST(value(settings("t.yaml", recipe + "fsdp_cpu_offload: False\n"), "parallel.zero") == "");
}

// The command line may choose the release of transformers, or the version of FSDP itself.
BOOST_AUTO_TEST_CASE(settings_of_fsdp1_count_in_its_version_alone) {
  const std::string text =
      "{\"model_name_or_path\": \"meta-llama/Meta-Llama-3-8B\", \"bf16\": true, \"fsdp\": \"full_shard\", "
      "\"max_length\": 512, \"fsdp_config\": {\"backward_prefetch\": \"backward_pre\", "
      "\"use_orig_params\": false}}";
  const auto prefetch = [&](const char* key, const char* chosen) {
    const auto s = settings("t.json", text, {{"parallel.data", "8"}, {key, chosen}});
    return value(s, "plan.backward_prefetch") + value(s, "plan.use_orig_params");
  };
  BOOST_TEST(prefetch("plan.framework_version", "4.57") == "prefalse");
  BOOST_TEST(prefetch("plan.framework_version", "5") == "");
  BOOST_TEST(prefetch("plan.fsdp_version", "1") == "prefalse");
  BOOST_TEST(prefetch("plan.fsdp_version", "2") == "");
  BOOST_TEST(prefetch("train.steps", "1") == "");
}

BOOST_AUTO_TEST_CASE(torchtitan_reads_the_type_of_all_tensors) {
  const std::string job =
      "[model]\nflavor = \"8B_flex\"\n[training]\ndtype = \"bfloat16\"\n"
      "enable_cpu_offload = true\n[parallelism]\npipeline_parallel_degree = 2\n[activation_checkpoint]\n"
      "mode = \"memory_budget\"\n";
  const auto s = settings("t.toml", job, {{"parallel.data", "8"}});
  BOOST_TEST(value(s, "model.preset") == "llama-3-8b");
  BOOST_TEST(value(s, "plan.moments") == "bf16");
  BOOST_TEST(value(s, "plan.offload_optimizer") == "cpu");
  BOOST_TEST(value(s, "parallel.zero") == "2");
  BOOST_TEST(value(s, "train.recompute") == "selective");
  // Stages divide the local batch.
  BOOST_TEST(value(s, "train.micro_batch") == "1");
  BOOST_TEST(value(s, "train.grad_accum") == "8");
}

BOOST_AUTO_TEST_CASE(torchtitan_names_models_of_transformers_and_of_images) {
  const std::string job =
      "[model]\nname = \"transformers_modeling_backend\"\nflavor = \"full\"\n[training]\nlocal_batch_size = "
      "1\n"
      "seq_len = 64\n[hf_transformers]\nmodel = \"Qwen/Qwen3-4B-Instruct-2507\"\n";
  BOOST_TEST(settings("t.toml", job, {{"parallel.data", "8", ""}}).at("model.preset") == "qwen3-4b @8");
  BOOST_TEST(
      error_of("t.toml", "[model]\nname = \"flux\"\nflavor = \"flux-dev\"\n[training]\nseq_len = 64\n") ==
      "t.toml:2: model.name = \"flux\" generates images; plans are of language models");
}

BOOST_AUTO_TEST_CASE(flavors_of_torchtitan_without_a_preset_are_fields) {
  const auto of = [](const std::string& flavor) {
    return settings("t.toml", "[model]\nname = \"qwen3\"\nflavor = \"" + flavor + "\"\n",
                    {{"parallel.data", "8"}});
  };
  const auto s = of("debugmodel");
  BOOST_TEST(value(s, "model.model_type") == "qwen3");
  BOOST_TEST(value(s, "model.intermediate_size") == "3072");
  BOOST_TEST(value(s, "model.preset") == "");
  BOOST_TEST(value(of("32B"), "model.preset") == "qwen3-32b");
}

BOOST_AUTO_TEST_CASE(experts_of_torchtitan_have_tensor_parallelism_of_their_own) {
  const auto own = [](const std::string& degrees) {
    return value(settings("t.toml",
                          "[model]\nname = \"llama3\"\nflavor = \"8B\"\n[parallelism]\n"
                          "data_parallel_shard_degree = 8\n" +
                              degrees),
                 "plan.expert_tensor");
  };
  BOOST_TEST(own("tensor_parallel_degree = 2\nexpert_parallel_degree = 4\n") == "1");
  BOOST_TEST(own("tensor_parallel_degree = 2\nexpert_parallel_degree = 4\n"
                 "expert_tensor_parallel_degree = 2\n") == "");
  BOOST_TEST(own("tensor_parallel_degree = 2\nexpert_tensor_parallel_degree = 1\n") == "");
  BOOST_TEST(own("expert_parallel_degree = 4\n") == "");
}

BOOST_AUTO_TEST_CASE(virtual_stages_of_megatron_divide_the_layers) {
  const std::string llama =
      "--num-layers 8 --hidden-size 512 --num-attention-heads 8 --vocab-size 1000 --micro-batch-size 1 "
      "--seq-length 128 --bf16 --swiglu --pipeline-model-parallel-size 2 "
      "--num-layers-per-virtual-pipeline-stage ";
  BOOST_TEST(value(settings("t.sh", llama + "2\n"), "parallel.interleave") == "2");
  BOOST_TEST(error_of("t.sh", llama + "3\n").find("8 layers cannot be divided into stages") !=
             std::string::npos);
  BOOST_TEST(error_of("a.yaml", "trainer:\n  devices: 8\nmodel:\n  num_layers: 2\n").find("NeMo") !=
             std::string::npos);
}

BOOST_AUTO_TEST_CASE(dropout_of_megatron_is_noted_where_no_argument_switches_it_off) {
  const std::string gpt =
      "--num-layers 2 --hidden-size 512 --num-attention-heads 8 --vocab-size 1000 --micro-batch-size 1 "
      "--seq-length 128 --max-position-embeddings 128 --bf16 ";
  const auto noted = [&](const std::string& more, const char* key) {
    return fate("t.sh", gpt + more + "\n", key).first == KeyUse::kNotModelled;
  };
  BOOST_TEST(noted("", "hidden-dropout"));
  BOOST_TEST(!noted("", "attention-dropout"));
  BOOST_TEST(noted("--attention-backend unfused", "attention-dropout"));
  BOOST_TEST(!noted("--hidden-dropout 0.0", "hidden-dropout"));
  BOOST_TEST(noted("--hidden-dropout 0.1", "hidden-dropout"));
}

BOOST_AUTO_TEST_CASE(torchtitan_shards_over_several_devices_only) {
  const auto of = [](const std::string& degrees, const std::vector<runfile::Override>& given = {}) {
    return settings("t.toml", "[model]\nflavor = \"8B\"\n[parallelism]\n" + degrees, given);
  };
  auto s = of("data_parallel_replicate_degree = 4\ndata_parallel_shard_degree = 1\n");
  BOOST_TEST(value(s, "parallel.zero") == "0");
  BOOST_TEST(value(s, "parallel.data") == "4");
  BOOST_TEST(value(s, "train.precision") == "bf16");
  s = of("data_parallel_shard_degree = 1\ntensor_parallel_degree = 4\n");
  BOOST_TEST(value(s, "train.precision") == "fp32");
  s = of("fsdp_reshard_after_forward = \"never\"\n", {{"parallel.data", "4"}});
  BOOST_TEST(value(s, "parallel.zero") == "2");
  BOOST_TEST(value(of("", {{"parallel.data", "1"}}), "parallel.zero") == "");
  const std::string replicas =
      "[model]\nflavor = \"8B\"\n[parallelism]\ndata_parallel_replicate_degree = 2\n"
      "data_parallel_shard_degree = 4\n";
  BOOST_TEST((fate("t.toml", replicas, "parallelism.data_parallel_replicate_degree").first == KeyUse::kUsed));
  s = settings("t.toml", replicas);
  BOOST_TEST(value(s, "parallel.data") == "8");
  BOOST_TEST(value(s, "plan.fsdp_replicas") == "2");
  const std::string layers =
      replicas + "[activation_checkpoint]\nmode = \"selective\"\nselective_ac_option = ";
  BOOST_TEST(value(settings("t.toml", layers + "\"2\"\n"), "plan.selective_layers") == "2");
  BOOST_TEST(value(settings("t.toml", layers + "\"op\"\n"), "plan.selective_layers") == "");
  // The compiler chooses what the layers in between keep.
  const std::string compiled = layers + "\"2\"\n[compile]\nenable = true\n";
  BOOST_TEST(value(settings("t.toml", compiled), "plan.selective_layers") == "");
  BOOST_TEST(
      (fate("t.toml", compiled, "activation_checkpoint.selective_ac_option").first == KeyUse::kNotModelled));
  // The shards are the rest of the devices, which are not counted here.
  BOOST_CHECK_EXCEPTION(of("data_parallel_replicate_degree = 2\n"), Error, [](const Error& e) {
    return std::string(e.what()).find("no file says how many devices") != std::string::npos;
  });
  s = of("data_parallel_replicate_degree = 2\n", {{"parallel.data", "8"}});
  BOOST_TEST(value(s, "plan.fsdp_replicas") == "2");
  const std::string stages =
      "data_parallel_shard_degree = 4\npipeline_parallel_degree = 2\npipeline_parallel_schedule = ";
  BOOST_TEST((fate("t.toml", "[model]\nflavor = \"8B\"\n[parallelism]\n" + stages + "\"GPipe\"\n",
                   "parallelism.pipeline_parallel_schedule")
                  .first == KeyUse::kNotModelled));
  BOOST_CHECK_EXCEPTION(of(stages + "\"2F2B\"\n"), Error, [](const Error& e) {
    return std::string(e.what()).find("2F2B") != std::string::npos;
  });
}

BOOST_AUTO_TEST_CASE(megatron_options_depend_on_each_other) {
  const std::string model =
      "ARGS=\" \\\n  --num-layers 2 \\\n  --hidden-size 1024 \\\n  --num-attention-heads 8 \\\n"
      "  --vocab-size 1000 \\\n  --swiglu \\\n  --normalization RMSNorm \\\n  --seq-length 64 \\\n"
      "  --micro-batch-size 1 \\\n";
  auto s = settings("m.sh", model + "  --num-query-groups 2 --sequence-parallel\"\n");
  BOOST_TEST(value(s, "model.num_key_value_heads") == "8");  // without --group-query-attention
  BOOST_TEST(value(s, "model.intermediate_size") == "2688");
  BOOST_TEST(value(s, "model.attention_bias") == "true");
  BOOST_TEST(value(s, "parallel.sequence") == "");
  s = settings("m.sh",
               model +
                   "  --num-query-groups 2 --group-query-attention --disable-bias-linear --bf16 "
                   "--use-distributed-optimizer --grad-reduce-in-bf16 --use-megatron-fsdp "
                   "--data-parallel-sharding-strategy optim_grads\"\n",
               {{"parallel.data", "4"}});
  BOOST_TEST(value(s, "model.num_key_value_heads") == "2");
  BOOST_TEST(value(s, "model.attention_bias") == "");
  BOOST_TEST(value(s, "plan.gradients") == "bf16");
  BOOST_TEST(value(s, "parallel.zero") == "2");
  BOOST_TEST(value(settings("m.sh", model + " --fp16\"\n"), "plan.gradients") == "fp16");
  BOOST_TEST(value(settings("m.sh", model + " --fp16 --accumulate-allreduce-grads-in-fp32\"\n"),
                   "plan.gradients") == "");
  s = settings("m.sh", model + "  --cp-comm-type a2a --tokenizer-type NullTokenizer\"\n");
  BOOST_TEST(value(s, "plan.context_exchange") == "a2a");
  BOOST_TEST(value(s, "model.vocab_size") == "1001");  // and the end of a document
  s = settings("m.sh", model + "  --tokenizer-type NullTokenizer --padded-vocab-size 2048\"\n");
  BOOST_TEST(value(s, "model.vocab_size") == "2048");
  // Layers of state spaces are no fields of a run file, and the tokenizer decides the vocabulary.
  BOOST_TEST(error_of("m.sh", model + "  --hybrid-layer-pattern M*\"\n")
                 .starts_with("m.sh:1: hybrid-layer-pattern describes a model that run files have no fields "
                              "for (add"));
  BOOST_TEST(error_of("m.args", "--num-layers 2 --swiglu --hidden-size 64 --num-attention-heads 2\n")
                 .find("no file gives the size of the vocabulary") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(products_of_megatron_in_8_bits_begin_with_a_format) {
  const std::string model =
      "--num-layers 8 --hidden-size 64 --ffn-hidden-size 128 --num-attention-heads 4 --seq-length 32 "
      "--micro-batch-size 1 --normalization RMSNorm --swiglu --disable-bias-linear --vocab-size 512 --bf16 "
      "--use-distributed-optimizer ";
  const std::vector<runfile::Override> two = {{"parallel.data", "2"}};
  auto s =
      settings("m.sh", model + "--fp8-format hybrid --fp8-amax-history-len 1024 --fp8-param-gather\n", two);
  BOOST_TEST(value(s, "plan.fp8_recipe") == "delayed");  // default of Megatron-LM
  BOOST_TEST(value(s, "plan.amax_history") == "1024");
  BOOST_TEST(value(s, "plan.fp8_weights") == "true");
  BOOST_TEST(value(s, "train.precision") == "bf16");
  s = settings(
      "m.sh",
      model +
          "--fp8-format e4m3 --fp8-recipe blockwise --fp8-amax-history-len 16 --first-last-layers-bf16 "
          "--num-layers-at-start-in-bf16 2 --activation-func-fp8-input-store\n",
      two);
  BOOST_TEST(value(s, "plan.fp8_recipe") == "blockwise");
  BOOST_TEST(value(s, "plan.fp8_weights") == "");
  BOOST_TEST(value(s, "plan.amax_history") == "");  // only delayed scaling has one
  BOOST_TEST(value(s, "plan.bf16_first_layers") == "2");
  BOOST_TEST(value(s, "plan.bf16_last_layers") == "1");
  BOOST_TEST(value(s, "plan.fp8_swiglu_input") == "true");
  BOOST_TEST(value(settings("m.sh", model + "--fp4-format e2m1\n", two), "plan.fp8_recipe") == "nvfp4");
  // The other arguments have no meaning without a format.
  s = settings("m.sh", model + "--fp8-recipe mxfp8 --fp8-param-gather --first-last-layers-bf16\n", two);
  for (const char* key : {"plan.fp8_recipe", "plan.fp8_weights", "plan.bf16_first_layers"})
    BOOST_TEST(value(s, key) == "", key);
  BOOST_TEST(error_of("m.sh", model + "--fp8-format hybrid --fp4-format e2m1\n") ==
             "m.sh:1: fp4-format and fp8-format are both given, and Megatron-LM accepts one (leave one of "
             "them out)");
  BOOST_TEST(error_of("m.sh", model + "--fp8-format fp8\n").find("e4m3 or hybrid") != std::string::npos);
  BOOST_TEST(error_of("m.sh", model + "--fp8-format e4m3 --fp8-recipe nvfp4\n").find("mxfp8 or custom") !=
             std::string::npos);
  // Every argument has a rule.
  const std::string all =
      model +
      "--fp8-format hybrid --fp8-recipe mxfp8 --fp8-margin 0 --fp8-interval 1 --fp8-amax-compute-algo max "
      "--fp8-param-gather --reuse-grad-buf-for-mxfp8-param-ag --fp8-dot-product-attention "
      "--fp8-multi-head-attention --no-fp8-wgrad --disable-parameter-transpose-cache --fp4-param-gather\n";
  for (const char* used :
       {"fp8-format", "fp8-recipe", "fp8-param-gather", "reuse-grad-buf-for-mxfp8-param-ag"})
    BOOST_TEST((fate("m.sh", all, used, two).first == KeyUse::kUsed), used);
  for (const char* idle : {"fp8-margin", "fp8-interval", "fp8-amax-compute-algo"})
    BOOST_TEST((fate("m.sh", all, idle, two).first == KeyUse::kWithoutEffect), idle);
  for (const char* unknown : {"fp8-dot-product-attention", "fp8-multi-head-attention", "no-fp8-wgrad",
                              "disable-parameter-transpose-cache", "fp4-param-gather"})
    BOOST_TEST((fate("m.sh", all, unknown, two).first == KeyUse::kNotModelled), unknown);
  const auto custom = fate("m.sh", model + "--fp8-format e4m3 --fp8-recipe custom\n", "fp8-recipe", two);
  BOOST_TEST((custom.first == KeyUse::kNotModelled));
  BOOST_TEST(custom.second == "products of a recipe in Python; planned in 16 bits");
  BOOST_TEST(value(settings("m.sh", model + "--fp8-format e4m3 --fp8-recipe custom\n", two),
                   "plan.fp8_recipe") == "");
}

BOOST_AUTO_TEST_CASE(megatron_counts_embedding_and_loss_as_layers_of_their_stages) {
  const std::string model =
      "--num-layers 30 --hidden-size 64 --ffn-hidden-size 128 --num-attention-heads 4 --seq-length 32 "
      "--micro-batch-size 1 --normalization RMSNorm --swiglu --disable-bias-linear "
      "--untie-embeddings-and-output-weights --position-embedding-type rope --vocab-size 512 "
      "--pipeline-model-parallel-size 4 ";
  auto s = settings("m.sh", model +
                                "--account-for-embedding-in-pipeline-split "
                                "--account-for-loss-in-pipeline-split\n");
  BOOST_TEST(value(s, "plan.first_stage_layers") == "7");
  BOOST_TEST(value(s, "plan.last_stage_layers") == "7");
  s = settings("m.sh", model + "--decoder-first-pipeline-num-layers 6\n");
  BOOST_TEST(value(s, "plan.first_stage_layers") == "6");
  BOOST_TEST(value(s, "plan.last_stage_layers") == "");
  BOOST_TEST(error_of("m.sh", model + "--account-for-loss-in-pipeline-split\n") ==
             "m.sh:1: account-for-loss-in-pipeline-split counts as a layer, and 31 cannot be divided over 4 "
             "stages");
}

BOOST_AUTO_TEST_CASE(float8_of_torchtitan_is_planned_where_it_changes_what_fsdp_gathers) {
  const std::string job =
      "[model]\nname = \"llama3\"\nflavor = \"8B\"\n%\n[training]\nlocal_batch_size = 1\nseq_len = 64\n"
      "[parallelism]\ndata_parallel_shard_degree = 8\n[float8]\n";
  const auto precision = [&](const std::string& converters, const std::string& lines) {
    std::string text = job + lines;
    text.replace(text.find('%'), 1, converters);
    return value(settings("t.toml", text), "train.precision");
  };
  const std::string on = "converters = [\"float8\"]", gather = "enable_fsdp_float8_all_gather = true\n";
  BOOST_TEST(precision(on, gather) == "fp8");
  BOOST_TEST(precision("", gather) == "bf16");
  BOOST_TEST(precision(on, "") == "bf16");
  BOOST_TEST(precision(on, gather + "recipe_name = \"rowwise\"\n") == "bf16");
  // Since 0.2.
  const std::string newer = "converters = [\"quantize.linear.float8\"]",
                    table = "[quantize.linear.float8]\n" + gather;
  BOOST_TEST(precision(newer, table) == "fp8");
  BOOST_TEST(precision("", table) == "bf16");
  BOOST_TEST(precision(newer, table + "recipe_name = \"rowwise\"\n") == "bf16");
  // A table of a converter that is not used says nothing.
  const auto fate_of_filter = [&](const std::string& converters) {
    std::string text = job + table + "filter_fqns = [\"output\"]\n";
    text.replace(text.find('%'), 1, converters);
    return fate("t.toml", text, "quantize.linear.float8.filter_fqns");
  };
  BOOST_TEST((fate_of_filter("") == std::pair(KeyUse::kWithoutEffect, std::string())));
  BOOST_TEST((fate_of_filter(newer).first == KeyUse::kNotModelled));
}

BOOST_AUTO_TEST_SUITE_END()
