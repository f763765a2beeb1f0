// core/framework_files: files that contradict each other or leave open what decides memory, and options of
// the command line that settle it.
#include <boost/test/unit_test.hpp>

#include "tests/core/framework_files/settings_of.hpp"

using namespace trainhost;
using framework_files::read_files;
using testing::by_key;
using testing::error_of;
using testing::Folder;
using testing::read_text;

BOOST_AUTO_TEST_SUITE(framework_files_contradictions)

BOOST_AUTO_TEST_CASE(what_no_file_says_is_asked_for) {
  const std::string model = "model_name_or_path: gpt2\n", length = "max_length: 512\n",
                    batch = "per_device_train_batch_size: 4\n";
  BOOST_TEST(error_of("t.yaml", batch + length) ==
             ":0: no file names a known model (add --model=PRESET or --model=config.json)");
  BOOST_TEST(error_of("t.yaml", batch + model) ==
             ":0: no file gives the length of the sequences (add it, for example --set data.seq_len=2048: "
             "the number of "
             "tokens of one training sequence)");
  BOOST_TEST(error_of("t.yaml", batch + model + length + "fsdp: full_shard auto_wrap\n") ==
             "t.yaml:4: fsdp: parallel.zero = 3 shards over data-parallel ranks, but no file says how many "
             "devices there are (for "
             "example --set parallel.data=8)");
  // DeepSpeed divides the global batch over ranks and steps; without ranks the micro-batch is not known.
  const std::vector<runfile::Override> gpt2 = {{"model.preset", "gpt2"}, {"data.seq_len", "64"}};
  const std::string deepspeed = "{\"train_batch_size\": 32, \"gradient_accumulation_steps\": 2}";
  BOOST_TEST(error_of("d.json", deepspeed, gpt2) ==
             ":0: no file gives the number of sequences per micro-batch (add it, for example --set "
             "train.micro_batch=1)");
  auto ranks = gpt2;
  ranks.push_back({"parallel.data", "4"});
  BOOST_TEST(by_key(read_text("d.json", deepspeed, ranks)).at("train.micro_batch") == "4 @1");
  // Megatron-LM stops without a micro-batch, and so do the recipes of torchtune.
  const std::string micro = "no file gives the number of sequences per micro-batch",
                    sizes =
                        "--num-layers 2 --hidden-size 64 --num-attention-heads 2 --vocab-size 100 "
                        "--seq-length 64 --max-position-embeddings 64 --global-batch-size 8 ",
                    recipe =
                        "model:\n  _component_: torchtune.models.llama3.llama3_8b\ntokenizer:\n"
                        "  max_seq_len: 64\noptimizer:\n  _component_: torch.optim.AdamW\n";
  const std::vector<runfile::Override> two = {{"parallel.data", "2"}};
  BOOST_TEST(error_of("m.args", sizes, two).find(micro) != std::string::npos);
  BOOST_TEST(error_of("m.args", sizes + "--micro-batch-size 1\n", two) == "");
  BOOST_TEST(error_of("t.yaml", recipe).find(micro) != std::string::npos);
  BOOST_TEST(error_of("t.yaml", recipe + "batch_size: 1\n") == "");
  // A misspelt key may be the reason.
  const std::string misspelt = error_of("t.yaml", batch + model + "max_lengthh: 512\n");
  BOOST_TEST(
      misspelt.find("t.yaml:3 max_lengthh is not understood: did you mean max_length?") != std::string::npos,
      misspelt);
  // What the command line gives is not asked for.
  BOOST_TEST(error_of("t.yaml", batch + "fsdp: full_shard\n",
                      {{"model.preset", "llama-3-8b"}, {"data.seq_len", "128"}, {"parallel.data", "4"}}) ==
             "");
}

BOOST_AUTO_TEST_CASE(two_files_that_disagree_are_an_error_with_both_positions) {
  const Folder folder;
  const std::string a = (folder.path() / "a.yaml").string(), b = (folder.path() / "b.json").string();
  std::ofstream(a) << "per_device_train_batch_size: 4\nmax_length: 512\nmodel_name_or_path: gpt2\n";
  std::ofstream(b) << "{\n\"train_micro_batch_size_per_gpu\": 2,\n\"zero_optimization\": {\"stage\": 0}\n}\n";
  try {
    read_files({a, b}, {});
    BOOST_FAIL("no error");
  } catch (const Error& e) {
    BOOST_TEST(e.what() ==
               "train_micro_batch_size_per_gpu means train.micro_batch = 2, but per_device_train_batch_size "
               "in " +
                   a + ":1 means 4");
    BOOST_TEST(e.where().file == b);
    BOOST_TEST(e.where().line == 2u);
  }
}

// The Trainer of transformers and axolotl stop with both.
BOOST_AUTO_TEST_CASE(fsdp_and_deepspeed_in_one_job_are_an_error) {
  const Folder folder;
  const std::string deepspeed = (folder.path() / "d.json").string();
  std::ofstream(deepspeed)
      << R"({"train_micro_batch_size_per_gpu": "auto", "zero_optimization": {"stage": 3}})";
  for (const auto& [job, key] :
       {std::pair{"per_device_train_batch_size: 4\nmax_length: 512\nmodel_name_or_path: gpt2\n"
                  "fsdp: full_shard\n",
                  "fsdp"},
        {"micro_batch_size: 4\nsequence_len: 512\nbase_model: gpt2\nfsdp:\n  - full_shard\n", "fsdp"},
        {"micro_batch_size: 4\nsequence_len: 512\nbase_model: gpt2\nfsdp_config:\n  version: 2\n",
         "fsdp_config.version"}}) {
    const std::string file = (folder.path() / "a.yaml").string();
    std::ofstream(file) << job;
    try {
      read_files({file, deepspeed}, {{"parallel.data", "4"}});
      BOOST_ERROR("no error: " << job);
    } catch (const Error& e) {
      BOOST_TEST(e.what() ==
                 std::string(key) + " shards the run with FSDP, but the files also configure DeepSpeed");
      BOOST_TEST(e.where().file == file);
      BOOST_TEST(e.where().line >= 4u);
    }
  }
}

BOOST_AUTO_TEST_CASE(two_keys_that_disagree_about_a_model_are_named_as_the_files_have_them) {
  const std::string error = error_of(
      "t.sh", "swift sft --model Qwen/Qwen2.5-0.5B --model_id_or_path Qwen/Qwen2.5-7B --max_length 64\n");
  BOOST_TEST(error.find("model_id_or_path = \"Qwen/Qwen2.5-7B\" contradicts model in ") != std::string::npos,
             error);
  BOOST_TEST(error.find('@') == std::string::npos, error);
}

BOOST_AUTO_TEST_CASE(a_batch_that_does_not_divide_is_an_error) {
  const std::string job = "{\"train_micro_batch_size_per_gpu\": 4,\n\"zero_optimization\": {\"stage\": 0},\n";
  const std::vector<runfile::Override> given = {
      {"model.preset", "gpt2"}, {"data.seq_len", "64"}, {"parallel.data", "3"}};
  BOOST_TEST(
      error_of("d.json", job + "\"train_batch_size\": 16}", given) ==
      "d.json:3: train_batch_size = 16 is no multiple of 12: 4 per micro-batch x 3 data-parallel ranks (plan "
      "fewer ranks: --set parallel.data=2; or change train_batch_size)");
  BOOST_TEST(
      error_of("d.json", job + "\"train_batch_size\": 10}", given) ==
      "d.json:3: train_batch_size = 10 is no multiple of 12: 4 per micro-batch x 3 data-parallel ranks "
      "(change train_batch_size)");
  BOOST_TEST(by_key(read_text("d.json", job + "\"train_batch_size\": 24}", given)).at("train.grad_accum") ==
             "2 @3");
  const std::string script =
      "--num-layers 2 --swiglu --normalization RMSNorm --hidden-size 64 --num-attention-heads 2\n"
      "--seq-length 64 --micro-batch-size 1 --vocab-size 100\n--nproc_per_node 6\n"
      "--tensor-model-parallel-size 4\n";
  BOOST_TEST(
      error_of("args.txt", script) ==
      "args.txt:3: 6 devices cannot be divided into groups of 4: tensor x pipeline x context parallelism "
      "(plan more of them: --devices=8)");
}

BOOST_AUTO_TEST_CASE(an_unknown_model_is_an_error_unless_the_command_line_names_one) {
  const std::string job = "base_model: acme/unknown-9b\nsequence_len: 128\nmicro_batch_size: 1\n";
  BOOST_TEST(
      error_of("a.yaml", job) ==
      "a.yaml:1: base_model = acme/unknown-9b: neither a built-in model nor a folder with a config.json (add "
      "--model=config.json with the model's file, or --model=PRESET with a similar model of `trainhost "
      "models`)");
  BOOST_TEST(by_key(read_text("a.yaml", job, {{"model.preset", "llama-3-8b"}})).count("model.preset") == 0u);
}

BOOST_AUTO_TEST_CASE(a_folder_with_a_config_json_is_a_model) {
  const Folder folder;
  std::ofstream(folder.path() / "config.json") << R"({"model_type": "llama", "hidden_size": 64})";
  const std::string job =
      "base_model: " + folder.path().string() + "\nsequence_len: 128\nmicro_batch_size: 1\n";
  BOOST_TEST(by_key(read_text("a.yaml", job)).at("model.config") == folder.path().string() + " @1");
  // The config.json itself, beside the files of the job.
  const std::string t = (folder.path() / "t.yaml").string();
  std::ofstream(t) << "per_device_train_batch_size: 4\nmax_length: 512\n";
  const auto s = read_files({t, (folder.path() / "config.json").string()}, {});
  BOOST_TEST(by_key(s).at("model.config") == (folder.path() / "config.json").string() + " @1");
}

BOOST_AUTO_TEST_CASE(a_config_json_is_the_model_whatever_name_another_file_gives_it) {
  const Folder folder;
  const std::string config = (folder.path() / "config.json").string(),
                    job = (folder.path() / "a.yaml").string(),
                    megatron = (folder.path() / "args.txt").string();
  std::ofstream(config) << R"({"model_type": "llama", "hidden_size": 64})";
  std::ofstream(job) << "base_model: acme/unknown-9b\nsequence_len: 128\nmicro_batch_size: 1\n";
  BOOST_TEST(by_key(read_files({job, config}, {})).at("model.config") == config + " @1");
  BOOST_TEST(by_key(read_files({config, job}, {})).at("model.config") == config + " @1");
  // An option wins over it.
  BOOST_TEST(by_key(read_files({job, config}, {{"model.preset", "llama-3-8b"}})).count("model.config") == 0u);
  // Fields of the model in a file give way to it.
  std::ofstream(megatron) << "--num-layers 2 --hidden-size 128 --num-attention-heads 4 --micro-batch-size 1 "
                             "--seq-length 128 --swiglu\n";
  const auto keys = by_key(read_files({megatron, config}, {}));
  BOOST_TEST(keys.at("model.config") == config + " @1");
  BOOST_TEST(keys.count("model.hidden_size") == 0u);
}

BOOST_AUTO_TEST_CASE(options_of_the_command_line_replace_what_files_say) {
  const auto s = read_text("a.yaml", "base_model: gpt2\nsequence_len: 128\nmicro_batch_size: 1\n",
                           {{"data.seq_len", "128"}});
  BOOST_TEST(by_key(s).count("data.seq_len") == 0u);
}

BOOST_AUTO_TEST_CASE(the_command_line_replaces_values_that_are_not_understood) {
  // Files of every kind, each with an optimizer or a choice that plans do not have.
  const std::vector<std::pair<std::string, std::string>> files = {
      {"a.yaml", "base_model: gpt2\nsequence_len: 128\nmicro_batch_size: 1\noptimizer: foo\n"},
      {"t.yaml", "per_device_train_batch_size: 1\noutput_dir: a\noptim: foo\n"},
      {"d.json", R"({"train_micro_batch_size_per_gpu": 1, "optimizer": {"type": "foo"}})"},
      {"m.sh",
       "torchrun pretrain_gpt.py --num-layers 2 --hidden-size 64 --num-attention-heads 4 "
       "--seq-length 64 --micro-batch-size 1 --vocab-size 512 --optimizer foo\n"},
      {"s.sh",
       "megatron sft --model Qwen/Qwen2.5-0.5B --micro_batch_size 1 --max_length 64 --optimizer foo\n"},
      {"u.yaml",
       "model:\n  _component_: torchtune.models.llama3.llama3_8b\nbatch_size: 1\n"
       "tokenizer:\n  max_seq_len: 64\noptimizer:\n  _component_: a.foo\n"},
      {"l.yaml",
       "checkpoint_dir: checkpoints/gpt2\ntrain:\n  max_seq_length: 64\n  micro_batch_size: 1\n"
       "optimizer: foo\n"},
      {"t.toml",
       "[model]\nname = \"llama3\"\nflavor = \"8B\"\n[training]\nseq_len = 64\n"
       "local_batch_size = 1\n[optimizer]\nname = \"foo\"\n"}};
  const std::vector<runfile::Override> asked = {
      {"model.preset", "gpt2"}, {"data.seq_len", "64"}, {"parallel.data", "1"}};
  std::vector<runfile::Override> given = asked;
  given.push_back({"optimizer.name", "lion"});
  for (const auto& [name, text] : files) {
    BOOST_TEST_CONTEXT(name) {
      const std::string error = error_of(name, text, asked);
      BOOST_TEST(error.find("foo\": expected an optimizer that can be planned") != error.npos, error);
      BOOST_TEST(error.find("; or --set optimizer.name=adamw for one with two states") != error.npos, error);
      std::size_t replaced = 0;
      for (const runfile::FileKey& k : read_text(name, text, given).keys)
        replaced +=
            k.use == runfile::KeyUse::kNotModelled && k.note == "an option of the command line replaces it";
      BOOST_TEST(replaced == 1u);
    }
  }
  const std::string model =
      "torchrun pretrain_gpt.py --num-layers 2 --hidden-size 64 --num-attention-heads 4 "
      "--seq-length 64 --micro-batch-size 1 --vocab-size 512 --recompute-granularity foo\n";
  BOOST_TEST(error_of("m.sh", model).find("expected one of full, selective") != std::string::npos);
  BOOST_TEST(value(settings("m.sh", model, {{"train.recompute", "full"}}), "plan.framework") == "megatron");
}

BOOST_AUTO_TEST_CASE(values_that_are_not_understood_name_the_choices) {
  const std::string job = "base_model: gpt2\nsequence_len: 128\nmicro_batch_size: 1\n";
  BOOST_TEST(error_of("a.yaml", job + "adapter: lora2\n") ==
             "a.yaml:4: adapter = \"lora2\": expected lora or qlora");
  BOOST_TEST(error_of("a.yaml", job + "gradient_checkpointing: 7\n") ==
             "a.yaml:4: gradient_checkpointing = 7: expected true or false");
  BOOST_TEST(
      error_of("a.yaml", job + "optimizer: adamw_torch_fussed\n")
          .starts_with("a.yaml:4: optimizer = \"adamw_torch_fussed\": expected an optimizer that can be "
                       "planned; did you mean 'adamw_torch_fused'? (one of adamw_torch, "));
  const std::vector<runfile::Override> gpt2 = {{"model.preset", "gpt2"}, {"data.seq_len", "64"}};
  BOOST_TEST(
      error_of("d.json", R"({"train_micro_batch_size_per_gpu": 1, "optimizer": {"type": "AdamWW"}})", gpt2)
          .starts_with("d.json:1: optimizer.type = \"AdamWW\": expected an optimizer that can be planned; "
                       "did you mean 'adamw'? (one of auto, adam, "));
  BOOST_TEST(
      error_of("d.json",
               R"({"zero_optimization": {"offload_param": {"device": "cpuu"}}, "train_batch_size": 1})",
               gpt2) ==
      "d.json:1: zero_optimization.offload_param.device = \"cpuu\": expected one of none, "
      "cpu, nvme, auto; did you mean 'cpu'?");
  const std::string factory = "model_name_or_path: gpt2\ncutoff_len: 64\nfinetuning_type: lora\n";
  BOOST_TEST(error_of("f.yaml", factory + "stage: sftt\n") ==
             "f.yaml:4: stage = \"sftt\": expected a stage of LLaMA-Factory; did you mean 'sft'? (one of pt, "
             "sft, rm, ppo, dpo, kto)");
  const std::string v1 = "model: Qwen/Qwen3-4B\nmodel_class: llm\n";
  BOOST_TEST(error_of("f.yaml", v1 + "peft_config: {name: oft}\n") ==
             "f.yaml:3: peft_config.name = \"oft\": expected lora or freeze");
  BOOST_TEST(error_of("f.yaml", v1 + "quant_config: {name: bnb, quantization_bit: 3}\n") ==
             "f.yaml:3: quant_config.quantization_bit = 3: expected 4 or 8");
  BOOST_TEST(error_of("f.yaml", v1 + "dist_config: {name: fsdp1}\n") ==
             "f.yaml:3: dist_config.name = \"fsdp1\": expected fsdp2, fsdpturbo or deepspeed");
  const std::string script = "--num-layers $LAYERS --hidden-size 64 --micro-batch-size 1\n";
  BOOST_TEST(error_of("m.sh", script, {{"data.seq_len", "128"}}) ==
             "m.sh:1: num-layers = \"$LAYERS\": the file does not say what this is (give it: --set "
             "model.num_hidden_layers=VALUE)");
}

BOOST_AUTO_TEST_CASE(auto_without_a_file_that_gives_the_value_is_named) {
  const std::vector<runfile::Override> gpt2 = {{"model.preset", "gpt2"}, {"data.seq_len", "64"}};
  const std::string text = "{\n\"train_micro_batch_size_per_gpu\": \"auto\"}";
  BOOST_TEST(
      error_of("d.json", text, gpt2) ==
      "d.json:2: train_micro_batch_size_per_gpu = \"auto\", and no other file gives its value (give the file "
      "with the arguments of the Trainer too, or --set train.micro_batch=1)");
  auto given = gpt2;
  given.push_back({"train.micro_batch", "2"});
  BOOST_TEST(error_of("d.json", text, given) == "");
}

BOOST_AUTO_TEST_CASE(a_quantized_base_without_adapters_is_refused_as_axolotl_does) {
  const std::string job = "base_model: gpt2\nsequence_len: 128\nmicro_batch_size: 1\n";
  BOOST_TEST(error_of("a.yaml", job + "load_in_4bit: true\n") ==
             "a.yaml:4: load_in_4bit = true quantizes the base of adapters, but the file has no adapter (add "
             "adapter: qlora, or remove load_in_4bit)");
  BOOST_TEST(error_of("a.yaml", job + "load_in_8bit: true\n")
                 .ends_with("(add adapter: lora, or remove load_in_8bit)"));
  BOOST_TEST(error_of("a.yaml", job + "load_in_4bit: false\n") == "");
  BOOST_TEST(error_of("a.yaml", job + "load_in_4bit: true\nadapter: qlora\nlora_r: 8\n") == "");
}

BOOST_AUTO_TEST_CASE(a_stage_that_zero_does_not_have_is_no_question_about_devices) {
  const std::vector<runfile::Override> gpt2 = {{"model.preset", "gpt2"}, {"data.seq_len", "64"}};
  const auto error = [&](const char* stage) {
    return error_of("d.json",
                    fmt::format("{{\"train_micro_batch_size_per_gpu\": 1, \"zero_optimization\": "
                                "{{\"stage\": {}}}}}",
                                stage),
                    gpt2);
  };
  BOOST_TEST(error("3").find("no file says how many devices") != std::string::npos);
  for (const char* stage : {"\"three\"", "-1", "4"})
    BOOST_TEST(error(stage) == "", stage);  // of the run file
}

BOOST_AUTO_TEST_CASE(a_flavor_that_is_no_model_has_its_position) {
  BOOST_TEST(error_of("t.toml", "[training]\nseq_len = 64\n[model]\nname = \"llama3\"\nflavor = \"9B\"\n")
                 .starts_with("t.toml:5: model.name and model.flavor = llama3-9B: neither a built-in model"));
}

BOOST_AUTO_TEST_CASE(an_option_gives_what_a_variable_of_the_environment_has) {
  const std::string script =
      "--num-layers 2 --hidden-size 64 --num-attention-heads 4 --swiglu --vocab-size 128 --seq-length $SEQ "
      "--max-position-embeddings 128 --micro-batch-size 1 --global-batch-size ${GBS} --nnodes `nodes` "
      "--save $OUT\n";
  BOOST_TEST(error_of("m.sh", script).starts_with("m.sh:1: seq-length = \"$SEQ\": the file does not say"));
  const std::vector<runfile::Override> given{
      {"data.seq_len", "64"}, {"train.grad_accum", "8"}, {"parallel.data", "2"}};
  const auto s = by_key(testing::read_text("m.sh", script, given));
  BOOST_TEST(s.count("data.seq_len") == 0u);  // the option's
  BOOST_TEST(s.at("model.num_hidden_layers").starts_with("2"));
  BOOST_TEST(error_of("a.yaml", "base_model: ${MODEL}\nsequence_len: 128\nmicro_batch_size: 1\n") ==
             "a.yaml:1: base_model = \"${MODEL}\": the file does not say what this is (give it: "
             "--model=MODEL)");
  BOOST_TEST(error_of("a.yaml",
                      "base_model: ${MODEL}\nsequence_len: 128\nmicro_batch_size: 1\noutput_dir: $OUT\n",
                      {{"model.preset", "gpt2"}}) == "");
}

BOOST_AUTO_TEST_CASE(a_config_json_gives_the_model_that_a_variable_names) {
  const testing::Folder folder;
  const std::string script = (folder.path() / "train.sh").string(),
                    config = (folder.path() / "config.json").string();
  std::ofstream(script) << "torchrun --nproc_per_node 2 train.py --model_name_or_path $MODEL "
                           "--per_device_train_batch_size 1 --model_max_length 128\n";
  std::ofstream(config) << R"({"architectures": ["LlamaForCausalLM"], "hidden_size": 64})";
  for (const auto& files : {std::vector{script, config}, std::vector{config, script}})
    BOOST_TEST(testing::value(by_key(framework_files::read_files(files, {})), "model.config") == config);
  BOOST_CHECK_THROW(framework_files::read_files({script}, {}), Error);
}

BOOST_AUTO_TEST_CASE(keys_that_no_rule_knows_are_listed_with_the_nearest_one) {
  const auto s =
      read_text("a.yaml", "base_model: gpt2\nsequence_len: 128\nmicro_batch_size: 1\nmicro_batchsize: 3\n");
  const runfile::FileKey& last = s.keys.back();
  BOOST_TEST((last.use == runfile::KeyUse::kNotUnderstood));
  BOOST_TEST(last.note == "did you mean micro_batch_size?");
  BOOST_TEST(last.where.line == 4u);
}

// As LLaMA-Factory and the Trainer of transformers refuse them.
BOOST_AUTO_TEST_CASE(quantized_weights_are_not_trained_whole) {
  const std::string factory =
      "model_name_or_path: meta-llama/Meta-Llama-3-8B\nstage: sft\ncutoff_len: 512\nquantization_bit: 4\n"
      "finetuning_type: ";
  BOOST_TEST(
      error_of("f.yaml", factory + "full\n") ==
      "f.yaml:4: quantization_bit quantizes the weights, but no adapters are trained: weights in 4 bits "
      "cannot be trained (set finetuning_type: lora, or remove quantization_bit)");
  BOOST_TEST(error_of("f.yaml", factory + "lora\n") == "");
  const std::string trl =
      "{\"model_name_or_path\": \"meta-llama/Meta-Llama-3-8B\", \"max_length\": 512,\n\"load_in_8bit\": true";
  BOOST_TEST(error_of("t.json", trl + "}") ==
             "t.json:2: load_in_8bit quantizes the weights, but no adapters are trained: weights in 8 bits "
             "cannot be trained (add use_peft: true, or --set lora.rank=16; or load it in 16 bits)");
  BOOST_TEST(error_of("t.json", trl + ", \"use_peft\": true}") == "");
  // The hint holds.
  BOOST_TEST(value(settings("t.json", trl + "}", {{"lora.rank", "16"}}), "lora.base") == "int8");
}

BOOST_AUTO_TEST_SUITE_END()
