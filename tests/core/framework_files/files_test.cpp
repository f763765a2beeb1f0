// core/framework_files: what a file of each framework means as settings of a run file. The fixtures have the
// keys and the spelling of the frameworks' own examples.
#include <boost/test/unit_test.hpp>
#include <set>

#include "core/runfile/run_config.hpp"
#include "tests/core/framework_files/settings_of.hpp"

using namespace trainhost;
using framework_files::read_files;
using runfile::KeyUse;
using testing::by_key;
using testing::fixture;
using Expected = std::map<std::string, std::string>;

namespace {

std::string lines(const Expected& m) {
  std::string out;
  for (const auto& [key, value] : m) out += key + " = " + value + "\n";
  return out;
}

/// Keys of one use, in the order of the files.
std::vector<std::string> keys_with(const framework_files::FileSettings& s, KeyUse use) {
  std::vector<std::string> out;
  for (const runfile::FileKey& k : s.keys)
    if (k.use == use) out.push_back(k.key);
  return out;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(framework_files_meaning)

BOOST_AUTO_TEST_CASE(training_arguments_and_deepspeed_describe_one_job) {
  const auto s = read_files({fixture("deepspeed.json"), fixture("training_arguments.json")}, {});
  BOOST_TEST(lines(by_key(s)) == lines({{"plan.framework", "deepspeed"},
                                        {"model.preset", "llama-3-8b @3"},
                                        {"data.seq_len", "4096 @6"},
                                        {"train.precision", "bf16 @7"},
                                        {"train.micro_batch", "2 @4"},
                                        {"train.grad_accum", "8 @5"},
                                        {"train.recompute", "full @8"},
                                        {"plan.checkpoint_reentrant", "false @9"},
                                        {"optimizer.name", "adamw @10"},
                                        {"plan.optimizer_implementation", "fused @10"},
                                        // 128 sequences per step of 2 x 8: 8 devices
                                        {"parallel.data", "8 @19"},
                                        {"parallel.zero", "3 @4"},
                                        {"plan.weights", "bf16"},
                                        {"plan.gradients", "bf16"},
                                        {"plan.master", "fp32"},
                                        {"plan.cross_entropy", "fused"},
                                        {"plan.reduce_bucket", "0 @10"},
                                        {"plan.overlap_reduce", "true @7"},
                                        {"plan.prefetch_bucket", "-1 @11"},
                                        {"plan.persistence_threshold", "-1 @12"},
                                        {"plan.max_live", "1000000000 @13"},
                                        {"plan.reuse_distance", "1000000000 @14"},
                                        {"plan.offload_optimizer", "cpu @5"}}));
  BOOST_TEST(
      keys_with(s, KeyUse::kNotModelled) == (std::vector<std::string>{"zero_optimization.sub_group_size"}),
      boost::test_tools::per_element());
  BOOST_TEST(keys_with(s, KeyUse::kNotUnderstood).empty());
  BOOST_TEST(s.keys.size() == 20u + 19u);  // every key of both files
}

BOOST_AUTO_TEST_CASE(scripts_of_trl_name_adapters_beside_training_arguments) {
  const std::string job =
      "model_name_or_path: Qwen/Qwen2.5-0.5B\nmax_length: 512\nper_device_train_batch_size: 1\nbf16: true\n";
  const std::string peft =
      "use_peft: true\nlora_target_modules: all-linear\nattn_implementation: flash_attention_2\n";
  auto s = by_key(testing::read_text("sft.yaml", job + peft + "load_in_4bit: true\ntorch_dtype: bfloat16\n"));
  BOOST_TEST(s.at("lora.rank") == "16");
  BOOST_TEST(s.at("lora.targets") == "all-linear @6");
  BOOST_TEST(s.at("lora.base") == "nf4 @8");
  BOOST_TEST(s.at("plan.attention") == "flash_attention_2 @7");
  BOOST_TEST(s.count("plan.weights") == 0u);
  // The adapters are cast to bf16; the rest stays as it is loaded.
  BOOST_TEST(s.at("plan.gradients") == "bf16");
  BOOST_TEST(s.at("plan.master") == "none @9");
  s = by_key(testing::read_text("sft.yaml", job + peft + "load_in_8bit: true\n"));
  BOOST_TEST(s.at("lora.base") == "int8 @8");
  BOOST_TEST(s.at("plan.gradients") == "bf16");
  s = by_key(testing::read_text("sft.yaml", job + peft + "dtype: float32\n"));
  BOOST_TEST(s.count("plan.gradients") == 0u);
  BOOST_TEST(s.at("lora.base") == "fp32");
  // Without use_peft its keys mean nothing; a model that is loaded in bf16 is trained in bf16.
  s = by_key(testing::read_text("sft.yaml", job + "lora_r: 8\ntorch_dtype: bfloat16\n"));
  BOOST_TEST(s.count("lora.rank") == 0u);
  for (const char* key : {"plan.weights", "plan.gradients", "plan.moments"})
    BOOST_TEST(s.at(key) == "bf16 @6", key);
  BOOST_TEST(by_key(testing::read_text("sft.yaml", job)).at("plan.weights") == "fp32 @4");
}

BOOST_AUTO_TEST_CASE(accelerate_gives_the_devices_and_the_sharding) {
  const auto s =
      read_files({fixture("accelerate.yaml")},
                 {{"model.preset", "llama-3-8b"}, {"data.seq_len", "128"}, {"train.micro_batch", "1"}});
  BOOST_TEST(lines(by_key(s)) == lines({{"plan.framework", "transformers"},
                                        {"train.precision", "bf16 @16"},
                                        {"plan.weights", "fp32 @16"},
                                        {"plan.master", "none @16"},
                                        {"plan.cross_entropy", "plain"},
                                        {"train.recompute", "full @7"},
                                        {"plan.fsdp_version", "2 @13"},
                                        {"parallel.data", "16 @18"},
                                        {"parallel.zero", "3 @11"}}));
}

BOOST_AUTO_TEST_CASE(axolotl_trains_adapters_on_a_quantized_model) {
  const auto s = read_files({fixture("axolotl.yaml")}, {});
  BOOST_TEST(lines(by_key(s)) == lines({{"plan.framework", "axolotl"},
                                        {"model.preset", "llama-3.1-8b @1"},
                                        {"data.seq_len", "4096 @14"},
                                        {"lora.dropout", "0.05 @12"},
                                        {"train.precision", "bf16 @23"},
                                        {"train.micro_batch", "2 @18"},
                                        {"train.grad_accum", "4 @17"},
                                        {"train.recompute", "full @25"},
                                        {"optimizer.name", "adamw @20"},
                                        {"plan.optimizer_paged", "true @20"},
                                        {"plan.attention", "flash_attention_2 @26"},
                                        {"plan.cross_entropy", "plain"},
                                        {"lora.rank", "32 @10"},
                                        {"lora.alpha", "16 @11"},
                                        {"lora.base", "nf4 @9"},
                                        {"lora.double_quant", "true @9"},
                                        {"lora.targets", "all-linear @13"}}));
}

BOOST_AUTO_TEST_CASE(llama_factory_recomputes_unless_it_is_told_not_to) {
  const auto s = read_files({fixture("llama_factory.yaml")}, {});
  BOOST_TEST(lines(by_key(s)) == lines({{"plan.framework", "llama-factory"},
                                        {"model.preset", "qwen2.5-7b @2"},
                                        {"data.seq_len", "4096 @13"},
                                        {"train.precision", "bf16 @28"},
                                        {"train.micro_batch", "1 @22"},
                                        {"train.grad_accum", "8 @23"},
                                        {"train.recompute", "full"},
                                        {"plan.cross_entropy", "plain"},
                                        {"lora.rank", "16 @8"},
                                        {"lora.alpha", "32"},  // twice the rank
                                        {"lora.targets", "all-linear @9"}}));
}

BOOST_AUTO_TEST_CASE(torchtune_has_every_tensor_in_bf16) {
  const auto s = read_files({fixture("torchtune.yaml")}, {});
  BOOST_TEST(lines(by_key(s)) == lines({{"plan.framework", "torchtune"},
                                        {"model.preset", "llama-3.1-8b @12"},
                                        {"data.seq_len", "8192 @5"},
                                        {"train.precision", "bf16 @32"},
                                        {"plan.weights", "bf16 @32"},
                                        {"plan.gradients", "bf16 @32"},
                                        {"plan.moments", "bf16 @32"},
                                        {"plan.master", "none @32"},
                                        {"train.micro_batch", "2 @17"},
                                        {"train.grad_accum", "1 @25"},
                                        {"train.recompute", "full @30"},
                                        {"optimizer.name", "adamw-8bit @20"},
                                        {"plan.optimizer_paged", "true @20"},
                                        {"plan.optimizer_in_backward", "true @26"},
                                        {"plan.cross_entropy", "fused @23"}}));
  BOOST_TEST(keys_with(s, KeyUse::kNotModelled).empty());
}

BOOST_AUTO_TEST_CASE(litgpt_divides_the_batch_by_its_devices) {
  const auto s = read_files({fixture("litgpt.yaml")}, {});
  BOOST_TEST(lines(by_key(s)) == lines({{"plan.framework", "litgpt"},
                                        {"model.preset", "llama-3.2-3b @1"},
                                        {"data.seq_len", "512 @27"},
                                        {"lora.dropout", "0.05 @9"},
                                        {"train.precision", "bf16 @3"},
                                        {"train.micro_batch", "2 @24"},
                                        {"train.grad_accum", "4 @23"},
                                        {"optimizer.name", "adamw @31"},
                                        {"parallel.data", "1 @5"},
                                        {"plan.cross_entropy", "plain"},
                                        {"lora.rank", "32 @7"},
                                        {"lora.alpha", "16 @8"},
                                        {"lora.base", "nf4 @4"},
                                        {"lora.double_quant", "false @4"},
                                        {"lora.targets", R"(["q_proj", "v_proj"])"}}));
}

BOOST_AUTO_TEST_CASE(torchtitan_shards_f32_weights_and_computes_in_bf16) {
  const auto s = read_files({fixture("torchtitan.toml")}, {});
  BOOST_TEST(lines(by_key(s)) == lines({{"plan.framework", "torchtitan"},
                                        {"model.preset", "llama-3-8b @10"},
                                        {"data.seq_len", "8192 @22"},
                                        {"train.precision", "bf16"},
                                        {"plan.weights", "fp32"},
                                        {"plan.master", "none"},
                                        {"plan.cross_entropy", "plain"},
                                        {"plan.optimizer_implementation", "fused"},
                                        {"train.micro_batch", "1 @21"},
                                        {"train.recompute", "selective @38"},
                                        {"optimizer.name", "adamw @13"},
                                        {"parallel.data", "8"},
                                        {"parallel.tensor", "1 @30"},
                                        {"parallel.pipeline", "1 @31"},
                                        {"parallel.context", "1 @32"},
                                        {"parallel.zero", "3"}}));
}

BOOST_AUTO_TEST_CASE(torchtitan_compiles_layers_and_loss_unless_components_are_named) {
  const std::string model = "[model]\nname = \"llama3\"\nflavor = \"8B\"\n[compile]\nenable = true\n";
  const auto both = by_key(testing::read_text("t.toml", model, {{"parallel.data", "8"}}));
  BOOST_TEST(both.at("plan.execution") == "compile @5");
  BOOST_TEST(both.count("plan.cross_entropy") == 0u);
  const auto layers =
      by_key(testing::read_text("t.toml", model + "components = [\"model\"]\n", {{"parallel.data", "8"}}));
  BOOST_TEST(layers.at("plan.cross_entropy") == "plain @6");
  const auto loss =
      by_key(testing::read_text("t.toml", model + "components = [\"loss\"]\n", {{"parallel.data", "8"}}));
  BOOST_TEST(loss.count("plan.execution") == 0u);
  BOOST_TEST(loss.at("plan.cross_entropy") == "fused @6");
}

BOOST_AUTO_TEST_CASE(interleaved_schedules_of_torchtitan_have_two_stages_per_rank) {
  const auto settings = [](const std::string& degree) {
    return by_key(testing::read_text("t.toml",
                                     "[model]\nname = \"deepseek_v3\"\nflavor = \"16B\"\n[parallelism]\n"
                                     "pipeline_parallel_schedule = \"Interleaved1F1B\"\n"
                                     "pipeline_parallel_degree = " +
                                         degree + "\n",
                                     {{"parallel.data", "8"}}));
  };
  BOOST_TEST(settings("4").at("parallel.interleave") == "2 @5");
  BOOST_TEST(settings("1").count("parallel.interleave") == 0u);
  // Its 16B has the sizes of DeepSeek V2 Lite.
  BOOST_TEST(settings("1").at("model.preset") == "deepseek-v2-lite @3");
}

BOOST_AUTO_TEST_CASE(tensor_parallelism_of_torchtitan_shares_the_tokens) {
  const auto s = by_key(testing::read_text(
      "t.toml", "[model]\nname = \"llama3\"\nflavor = \"8B\"\n[parallelism]\ntensor_parallel_degree = 4\n",
      {{"parallel.data", "8"}}));
  BOOST_TEST(s.at("parallel.sequence") == "true @5");
}

BOOST_AUTO_TEST_CASE(a_shell_script_of_megatron_gives_the_model_and_the_layout) {
  const auto s = read_files({fixture("megatron.sh")}, {});
  BOOST_TEST(lines(by_key(s)) == lines({{"plan.framework", "megatron"},
                                        {"model.model_type", "llama"},
                                        {"model.num_hidden_layers", "32 @11"},
                                        {"model.hidden_size", "4096 @12"},
                                        {"model.intermediate_size", "14336 @13"},
                                        {"model.num_attention_heads", "32 @14"},
                                        {"model.num_key_value_heads", "8 @16"},
                                        {"model.max_position_embeddings", "8192 @18"},
                                        {"model.tie_word_embeddings", "false @22"},
                                        {"model.vocab_size", "128256 @24"},
                                        {"data.seq_len", "8192 @17"},
                                        {"train.precision", "bf16 @30"},
                                        {"train.micro_batch", "1 @27"},
                                        {"train.grad_accum", "32 @28"},
                                        {"parallel.zero", "1 @31"},
                                        {"parallel.sequence", "true @32"},
                                        {"parallel.tensor", "4 @33"},
                                        {"parallel.pipeline", "2 @34"},
                                        {"parallel.data", "4 @6"},
                                        {"parallel.vocab_multiple", "128"},
                                        {"plan.cross_entropy", "plain"}}));
}

BOOST_AUTO_TEST_CASE(the_loss_of_transformer_engine_and_no_recomputed_blocks_are_read_from_arguments) {
  const std::string common =
      "--num-layers 4 --hidden-size 512 --num-attention-heads 8 --swiglu --vocab-size 1000 "
      "--seq-length 1024 --micro-batch-size 1 --bf16 ";
  const auto read = [&](const std::string& more) {
    return by_key(testing::read_text("arguments.sh", "torchrun pretrain_gpt.py " + common + more, {}));
  };
  const auto s = read(
      "--cross-entropy-loss-fusion --cross-entropy-fusion-impl te --recompute-granularity full "
      "--recompute-method block --recompute-num-layers 0");
  BOOST_TEST(s.at("plan.cross_entropy").starts_with("in-place"));
  BOOST_TEST(s.count("train.recompute") == 0u);
  BOOST_TEST(read("--cross-entropy-loss-fusion").at("plan.cross_entropy") == "plain");
}

BOOST_AUTO_TEST_CASE(every_fixture_is_a_valid_run) {
  for (const std::vector<std::string>& files :
       {std::vector<std::string>{"training_arguments.json", "deepspeed.json"},
        {"axolotl.yaml"},
        {"llama_factory.yaml"},
        {"llama_factory_v1.yaml"},
        {"torchtune.yaml"},
        {"litgpt.yaml"},
        {"torchtitan.toml"},
        {"megatron.sh"}}) {
    std::vector<std::string> paths;
    for (const std::string& f : files) paths.push_back(fixture(f));
    const auto s = read_files(paths, {});
    const runfile::RunConfig c = runfile::load_run({}, s.settings);
    // The run file that is printed describes the same run.
    const runfile::RunConfig again = runfile::parse_run(runfile::without_defaults(c.resolved()), "run.toml",
                                                        std::filesystem::current_path());
    if (files.front() == "megatron.sh") BOOST_TEST(c.model.name == "megatron");
    ModelSpec model = again.model;
    model.name = c.model.name;  // of fields in a file of another framework: that file's name
    BOOST_TEST((again.run == c.run && model == c.model && again.framework == c.framework), files.front());
    BOOST_TEST(s.keys.size() > 10u);
  }
}

// Planners ask for one job with many options; what is kept must not carry one answer into another.
BOOST_AUTO_TEST_CASE(a_job_that_is_asked_again_answers_as_one_that_is_read_anew) {
  const std::vector<std::vector<runfile::Override>> options = {
      {},
      {{"train.micro_batch", "1"}},
      {{"train.micro_batch", "4"}},
      {{"train.micro_batch", "4"}, {"parallel.data", "16"}},
      {{"parallel.data", "32"}},
      {{"data.seq_len", "1024"}},
      {{"train.recompute", "none"}, {"data.seq_len", "1024"}}};
  const auto text = [](const framework_files::FileSettings& s) {
    std::string out = lines(by_key(s));
    for (const runfile::FileKey& k : s.keys)
      out += k.key + " " + k.value + " " + std::to_string(int(k.use)) + " " + k.note + "\n";
    return out;
  };
  // Some options contradict the files.
  const auto answer_of = [&](const auto& ask) -> std::string {
    try {
      return text(ask());
    } catch (const Error& e) {
      return e.full();
    }
  };
  // An option may replace a value that is not known.
  const testing::Folder folder;
  const std::string script = (folder.path() / "script.sh").string();
  std::ofstream(script)
      << "torchrun pretrain_gpt.py --micro-batch-size $BATCH --num-layers 2 --hidden-size 64 "
         "--num-attention-heads 4 --vocab-size 100 --seq-length 128\n";
  std::set<std::string> different;
  for (const std::vector<std::string>& files :
       {std::vector{fixture("deepspeed.json"), fixture("training_arguments.json")},
        std::vector{fixture("axolotl.yaml")}, std::vector{fixture("llama_factory.yaml")},
        std::vector{fixture("megatron.sh")}, std::vector{script}}) {
    const framework_files::JobFiles job(files);
    for (int round = 0; round < 2; ++round)
      for (const auto& o : options) {
        const std::string answer = answer_of([&] { return job.settings(o); });
        BOOST_TEST(answer == answer_of([&] { return read_files(files, o); }), files.front());
        different.insert(answer);
      }
  }
  BOOST_TEST(different.size() >= 19u);
}

BOOST_AUTO_TEST_SUITE_END()
