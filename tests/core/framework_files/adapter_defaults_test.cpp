// core/framework_files: adapters, modules that are trained whole beside them, and packed weights, in the
// files of each framework and in what it does where its file says nothing.
#include <boost/test/unit_test.hpp>

#include "tests/core/framework_files/settings_of.hpp"

using namespace trainhost;
using runfile::KeyUse;
using testing::by_key;
using testing::error_of;
using testing::fate;
using testing::kModelOf8Ranks;
using testing::read_text;
using testing::settings;
using testing::Settings;
using testing::value;

BOOST_AUTO_TEST_SUITE(framework_files_adapters)

BOOST_AUTO_TEST_CASE(a_regular_expression_of_peft_names_matrices) {
  const std::string job =
      "base_model: gpt2\nmicro_batch_size: 1\nadapter: lora\nlora_r: 8\nlora_target_modules: ";
  BOOST_TEST(value(settings("a.yaml", job + "'layers.[\\d]+.(mlp|self_attn).(up|down|q)_proj|.*v_proj'\n"),
                   "lora.targets") == R"(["up_proj", "down_proj", "q_proj", "v_proj"])");
  BOOST_TEST(value(settings("a.yaml", job + "[self_attn.k_proj]\n"), "lora.targets") == R"(["k_proj"])");
  BOOST_TEST(error_of("a.yaml", job + "'.*attention.*'\n") ==
             "a.yaml:5: lora_target_modules = \".*attention.*\": expected a list of matrices; this regular "
             "expression names none that can be planned");
}

BOOST_AUTO_TEST_CASE(matrices_of_other_families_are_those_of_a_run_file) {
  const std::string job =
      "base_model: gpt2\nmicro_batch_size: 1\nadapter: lora\nlora_r: 8\nlora_target_modules: ";
  const auto targets = [&](const std::string& list) {
    return value(settings("a.yaml", job + list + "\n"), "lora.targets");
  };
  BOOST_TEST(targets("[c_attn, c_fc]") == R"(["q_proj", "k_proj", "v_proj", "up_proj"])");
  BOOST_TEST(targets("[query_key_value, dense, dense_h_to_4h, dense_4h_to_h]") ==
             R"(["q_proj", "k_proj", "v_proj", "o_proj", "up_proj", "down_proj"])");
  BOOST_TEST(targets("[q_proj, out_proj, fc1]") == R"(["q_proj", "up_proj", "o_proj"])");
  // Of a hybrid: out_proj belongs to the state space.
  const std::string hybrid = job + "[q_proj, o_proj, in_proj_qkvz, out_proj]\n";
  BOOST_TEST(value(settings("a.yaml", hybrid), "lora.targets") == R"(["q_proj", "o_proj"])");
  const auto [use, note] = fate("a.yaml", hybrid, "lora_target_modules");
  BOOST_TEST((use == KeyUse::kNotModelled));
  BOOST_TEST(note.ends_with("are not planned: in_proj_qkvz, out_proj"), note);
}

BOOST_AUTO_TEST_CASE(a_configuration_of_bitsandbytes_is_the_base_of_adapters) {
  const std::string job =
      "model_name_or_path: Qwen/Qwen2.5-0.5B\nmax_length: 512\nbf16: true\nuse_peft: true\n";
  auto s = settings("t.yaml", job + "quantization_config: {load_in_8bit: true, llm_int8_threshold: 6.0}\n");
  BOOST_TEST(value(s, "lora.base") == "int8");
  s = settings("t.yaml", job +
                             "model_init_kwargs: {quantization_config: {load_in_4bit: true, "
                             "load_in_8bit: false, bnb_4bit_use_double_quant: true}}\n");
  BOOST_TEST(value(s, "lora.base") == "nf4");
  BOOST_TEST(value(s, "lora.double_quant") == "true");
  const std::string threshold = job + "quantization_config: {load_in_8bit: true, llm_int8_threshold: 4.5}\n";
  const auto [use, note] = fate("t.yaml", threshold, "quantization_config.llm_int8_threshold");
  BOOST_TEST((use == KeyUse::kNotModelled));
  BOOST_TEST(note.find("columns with outliers") != std::string::npos, note);
}

BOOST_AUTO_TEST_CASE(a_model_that_is_stored_in_4_bits_is_the_base_of_its_adapters) {
  const std::string job = "stage: sft\ntemplate: llama3\nmodel_name_or_path: unsloth/llama-3-8b-";
  auto s = settings("f.yaml", job + "bnb-4bit\n");
  BOOST_TEST(value(s, "model.preset") == "llama-3-8b");
  BOOST_TEST(value(s, "lora.base") == "nf4");
  BOOST_TEST(value(s, "lora.double_quant") == "true");
  BOOST_TEST(value(settings("f.yaml", job + "Instruct\n"), "lora.base") == "");
  BOOST_TEST(value(settings("f.yaml", job + "bnb-4bit\nfinetuning_type: full\n"), "lora.base") == "");
  // An option of the command line wins.
  const std::vector<runfile::Override> given{{"lora.base", "bf16", ""}};
  BOOST_TEST(value(settings("f.yaml", job + "bnb-4bit\n", given), "lora.double_quant") == "");
}

BOOST_AUTO_TEST_CASE(modules_that_are_trained_whole_are_those_of_the_run_file) {
  const std::string both = "[\"embed_tokens\", \"lm_head\"]",
                    axolotl = "base_model: Qwen/Qwen2.5-0.5B\nadapter: lora\nlora_r: 8\n",
                    factory = "stage: sft\ntemplate: qwen\nmodel_name_or_path: Qwen/Qwen2.5-0.5B\n",
                    v1 = "model: Qwen/Qwen3-4B\nmodel_class: llm\npeft_config: {name: lora, ",
                    trl = "model_name_or_path: Qwen/Qwen2.5-0.5B\ndataset_name: a/b\nuse_peft: true\n";
  const auto saved = [&](const std::string& text) {
    return value(settings("f.yaml", text), "lora.modules_to_save");
  };
  BOOST_TEST(saved(axolotl + "lora_modules_to_save: [lm_head, embed_tokens]\n") == both);
  BOOST_TEST(saved(axolotl + "lora_modules_to_save: [model.embed_tokens]\n") == "[\"embed_tokens\"]");
  BOOST_TEST(saved(trl + "lora_modules_to_save: lm_head\n") == "[\"lm_head\"]");
  BOOST_TEST(saved(v1 + "modules_to_save: [lm_head]}\n") == "[\"lm_head\"]");
  BOOST_TEST(saved(factory + "additional_target: embed_tokens,lm_head\n") == both);
  // LLaMA-Factory trains both where the vocabulary changes, unless the file names modules.
  BOOST_TEST(saved(factory + "resize_vocab: true\n") == both);
  BOOST_TEST(saved(factory + "resize_vocab: true\nadditional_target: lm_head\n") == "[\"lm_head\"]");
  BOOST_TEST(saved(factory + "resize_vocab: false\n") == "");
  // Full training trains everything.
  BOOST_TEST(saved(factory + "finetuning_type: full\nadditional_target: lm_head\n") == "");
  // Others are listed, also beside one that is planned.
  const std::string norms = axolotl + "lora_modules_to_save: [lm_head, input_layernorm]\n";
  BOOST_TEST(saved(norms) == "[\"lm_head\"]");
  const auto [use, note] = fate("f.yaml", norms, "lora_modules_to_save");
  BOOST_TEST((use == KeyUse::kNotModelled));
  BOOST_TEST(note ==
             "of modules that are trained whole, embed_tokens and lm_head are planned, not input_layernorm");
  BOOST_TEST(read_text("f.yaml", norms).keys.back().needs_more);
}

BOOST_AUTO_TEST_CASE(adapters_of_peft_are_those_of_the_training_arguments_beside_them) {
  const testing::Folder folder;
  const auto path = [&](const char* name) { return (folder.path() / name).string(); };
  std::ofstream(path("t.json")) << R"({"per_device_train_batch_size": 2, "bf16": true, "output_dir": "x"})";
  const auto read = [&](const std::string& more) {
    std::ofstream(path("adapter_config.json"))
        << R"({"peft_type": "LORA", "base_model_name_or_path": "Qwen/Qwen2.5-0.5B", "inference_mode": true)"
        << more << "}";
    return framework_files::read_files({path("adapter_config.json"), path("t.json")},
                                       {{"data.seq_len", "64", ""}});
  };
  Settings s = by_key(read(""));
  BOOST_TEST(value(s, "plan.framework") == "transformers");
  BOOST_TEST(value(s, "model.preset") == "qwen2.5-0.5b");
  BOOST_TEST(value(s, "lora.rank") == "8");
  BOOST_TEST(value(s, "lora.alpha") == "8");
  BOOST_TEST(value(s, "lora.dropout") == "0");
  BOOST_TEST(value(s, "train.micro_batch") == "2");
  s = by_key(read(R"(, "r": 16, "lora_alpha": 32, "target_modules": ["q_proj", "v_proj"], "use_dora": true,
    "modules_to_save": ["lm_head"], "rank_pattern": {"q_proj": 32, "v_proj": 4}, "bias": "none")"));
  BOOST_TEST(value(s, "lora.rank") == "16");
  BOOST_TEST(value(s, "lora.targets") == "[\"q_proj\", \"v_proj\"]");
  BOOST_TEST(value(s, "lora.modules_to_save") == "[\"lm_head\"]");
  BOOST_TEST(value(s, "lora.rank_pattern") == "[\"q_proj = 32\", \"v_proj = 4\"]");
  BOOST_TEST(value(s, "lora.dora") == "true");
  BOOST_TEST(value(by_key(read(R"(, "target_modules": "all-linear")")), "lora.targets") == "all-linear");
  const auto keys =
      read(R"(, "rank_pattern": {"^model.layers.0.*": 64}, "bias": "all", "task_type": "CAUSAL_LM")").keys;
  for (const runfile::FileKey& k : keys) {
    BOOST_TEST((k.use != KeyUse::kNotUnderstood), k.key);
    if (k.key.starts_with("rank_pattern") || k.key == "bias") BOOST_TEST((k.use == KeyUse::kNotModelled));
  }
  std::ofstream(path("adapter_config.json"))
      << "{\"peft_type\": \"IA3\",\n\"base_model_name_or_path\": \"gpt2\"}";
  BOOST_CHECK_EXCEPTION(
      framework_files::read_files({path("adapter_config.json")}, {}), Error, [](const Error& e) {
        return std::string(e.what()) ==
               "peft_type = \"IA3\": expected LORA, the only adapters of PEFT that can be planned";
      });
}

BOOST_AUTO_TEST_CASE(axolotl_switches_its_kernels_of_adapters_on_unless_the_file_says_otherwise) {
  const std::string lora =
      "base_model: NousResearch/Meta-Llama-3-8B\nsequence_len: 64\nlora_r: 8\nlora_target_linear: true\n";
  const auto kernels = [&](const std::string& lines) {
    return value(settings("a.yaml", lora + lines), "plan.adapter_kernels");
  };
  // "": the default of the estimator, all of them.
  BOOST_TEST(kernels("adapter: lora\n") == "");
  BOOST_TEST(kernels("adapter: qlora\nload_in_4bit: true\n") == "");
  BOOST_TEST(kernels("adapter: lora\nlora_mlp_kernel: true\nlora_o_kernel: true\nlora_qkv_kernel: false\n") ==
             "mlp,o");
  BOOST_TEST(kernels("adapter: lora\nlora_qkv_kernel: true\n") == "qkv");
  BOOST_TEST(kernels("adapter: lora\nlora_mlp_kernel: false\n") == "none");
  BOOST_TEST(kernels("adapter: lora\nlora_embedding_kernel: false\n") == "none");
  BOOST_TEST(kernels("adapter: lora\nload_in_8bit: true\n") == "none");
  BOOST_TEST(kernels("adapter: lora\nload_in_8bit: false\ntrust_remote_code: false\n") == "");
  BOOST_TEST(kernels("adapter: lora\ntrust_remote_code: true\n") == "none");
  BOOST_TEST(kernels("adapter: lora\nrl: dpo\n") == "none");
  // Without an adapter there is nothing to compute.
  BOOST_TEST(kernels("lora_mlp_kernel: true\n") == "");
}

BOOST_AUTO_TEST_CASE(dropout_of_adapters_is_read_or_is_the_default_of_the_framework) {
  const std::string trl = "model_name_or_path: gpt2\ndataset_name: a/b\nuse_peft: true\n";
  BOOST_TEST(value(settings("t.yaml", trl), "lora.dropout") == "0.05");
  BOOST_TEST(value(settings("t.yaml", trl + "lora_dropout: 0.1\n"), "lora.dropout") == "0.1");
  BOOST_TEST(value(settings("t.yaml", "model_name_or_path: gpt2\ndataset_name: a/b\nlora_dropout: 0.1\n"),
                   "lora.dropout") == "");
  BOOST_TEST(
      value(settings("a.yaml", "base_model: gpt2\nsequence_len: 64\nadapter: lora\nlora_dropout: 0.2\n"),
            "lora.dropout") == "0.2");
  BOOST_TEST(value(settings("a.yaml", "base_model: gpt2\nsequence_len: 64\nlora_dropout: 0.2\n"),
                   "lora.dropout") == "");
}

BOOST_AUTO_TEST_CASE(adapters_of_the_head_are_targets) {
  BOOST_TEST(value(settings("l.yaml",
                            "checkpoint_dir: checkpoints/meta-llama/Meta-Llama-3-8B\nlora_r: 8\n"
                            "lora_head: true\ntrain:\n  micro_batch_size: 1\n",
                            kModelOf8Ranks),
                   "lora.targets") == R"(["q_proj", "v_proj", "lm_head"])");
}

BOOST_AUTO_TEST_CASE(axolotl_offloads_saved_tensors_of_adapters_instead_of_recomputing_layers) {
  const std::string job =
      "base_model: meta-llama/Llama-3.2-1B\nsequence_len: 2048\nmicro_batch_size: 1\ngradient_checkpointing: "
      "true\n";
  const std::string adapter = "adapter: qlora\nlora_r: 8\nlora_alpha: 16\nlora_target_linear: true\n";
  const auto recompute = [&](const std::string& more) {
    const auto s = settings("a.yaml", job + more);
    return value(s, "train.recompute") + " " + value(s, "plan.offload_activations");
  };
  BOOST_TEST(recompute("activation_offloading: true\n" + adapter) == "none cpu");
  BOOST_TEST(recompute("activation_offloading: legacy\n" + adapter) == "none cpu");
  BOOST_TEST(recompute("activation_offloading: disk\n" + adapter) == "none nvme");
  BOOST_TEST(recompute("activation_offloading: hidden_states\n" + adapter) == "full cpu");
  BOOST_TEST(recompute("activation_offloading: true\n") == "full cpu");
  BOOST_TEST(recompute(adapter) == "full ");
}

BOOST_AUTO_TEST_SUITE_END()
