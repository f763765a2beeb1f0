// trainhost plan, sweep and search with --from: files of other frameworks, as a user gives them.
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/support/files.hpp"
#include "tests/support/process.hpp"

using namespace trainhost::test;

namespace {

/// A folder with TrainingArguments and a DeepSpeed file.
struct Job {
  TemporaryDirectory folder;
  RunOptions options;
  Job() {
    options.directory = folder.path();
    std::ofstream(folder.path() / "train.yaml")
        << "model_name_or_path: Qwen/Qwen2.5-0.5B\nmax_length: 512\n"
           "per_device_train_batch_size: 2\nbf16: true\nlearning_rate: 1e-4\n"
           "deepspeed: ds.json\ntypo_key: 1\n";
    std::ofstream(folder.path() / "ds.json")
        << R"({"zero_optimization": {"stage": 2}, "train_batch_size": 16, "gradient_accumulation_steps": 2})";
  }
  Outcome run(std::vector<std::string> arguments) { return run_program(arguments, options); }
};

}  // namespace

BOOST_AUTO_TEST_SUITE(from)

// As plan does: the replay does not describe FSDP of axolotl.
BOOST_AUTO_TEST_CASE(a_sweep_is_planned_in_closed_form_where_the_replay_does_not_describe_the_run) {
  Job job;
  std::ofstream(job.folder.path() / "fsdp.yml")
      << "base_model: meta-llama/Llama-3.2-1B\nsequence_len: 512\nmicro_batch_size: 1\nbf16: true\n"
         "fsdp_version: 2\nfsdp_config:\n  reshard_after_forward: true\n";
  const std::vector<std::string> sweep{"sweep",
                                       "--from",
                                       "fsdp.yml",
                                       "--device=h100-80gb",
                                       "--set",
                                       "parallel.data=4",
                                       "--over=train.micro_batch=1..2"};
  const Outcome r = job.run(sweep);
  BOOST_TEST(r.code == 0, r.out << r.err);
  BOOST_TEST(has(r.out, "does not describe FSDP of axolotl"), r.out);
  BOOST_TEST(has(r.out, "The closed form 'transformer' answers instead"), r.out);
  // One that the user names is an error.
  std::vector<std::string> named = sweep;
  named.push_back("--estimator=pytorch");
  BOOST_TEST(job.run(named).code == 2);
}

// A file of DeepSpeed does not say how many devices there are; --devices of the search does.
BOOST_AUTO_TEST_CASE(a_search_shards_over_the_devices_that_it_is_given) {
  Job job;
  std::ofstream(job.folder.path() / "zero.json")
      << R"({"zero_optimization": {"stage": 2}, "train_micro_batch_size_per_gpu": 2})";
  const std::vector<std::string> files{
      "--from", "zero.json", "--model=llama-3.2-1b", "--device=h100-80gb", "--set", "data.seq_len=512"};
  const auto search = [&](std::vector<std::string> more) {
    more.insert(more.begin(), "search");
    more.insert(more.end(), files.begin(), files.end());
    return job.run(more);
  };
  const Outcome r = search({"--devices=4"});
  BOOST_TEST(r.code == 0, r.out << r.err);
  BOOST_TEST(has(r.out, "on 4 x h100-80gb"), r.out);
  BOOST_TEST(has(r.out, "8 sequences of 512 tokens per step"), r.out);  // 2 on each of 4 devices
  BOOST_TEST(search({}).code == 2);
  // The number of devices in a file decides the sequences per step.
  std::ofstream(job.folder.path() / "two.yaml") << "num_processes: 2\n";
  const Outcome two = search({"--devices=4", "--from", "two.yaml"});
  BOOST_TEST(has(two.out, "4 sequences of 512 tokens per step"), two.out << two.err);
}

BOOST_AUTO_TEST_CASE(files_that_quantize_the_weights_are_planned_by_the_replay) {
  Job job;
  const char* model =
      "model_name_or_path: meta-llama/Meta-Llama-3-8B\nper_device_train_batch_size: 1\nbf16: true\n";
  std::ofstream(job.folder.path() / "trl.yaml")
      << model << "max_length: 1024\nuse_peft: true\nload_in_4bit: true\noptim: paged_adamw_8bit\n";
  std::ofstream(job.folder.path() / "factory.yaml")
      << model
      << "cutoff_len: 1024\nstage: sft\nfinetuning_type: lora\nlora_target: all\nquantization_bit: 4\n";
  for (const char* file : {"trl.yaml", "factory.yaml"}) {
    const Outcome r = job.run({"plan", "--from", file, "--budget=24GiB"});
    BOOST_TEST(r.code == 0, r.out << r.err);
    BOOST_TEST(has(r.out, "estimator pytorch"), r.out);
    BOOST_TEST(has(r.out, "bitsandbytes quantizes the linear layers but the head"), r.out);
  }
}

// Published in whole GB, which are the replayed GiB rounded up; docs/published-runs.md has the table.
BOOST_AUTO_TEST_CASE(the_published_memory_of_llama_factory_is_planned) {
  Job job;
  struct Row {
    int tokens, sequences, bits;
    double published;
  };
  for (const Row& row : {Row{1024, 1, 4, 6}, Row{4096, 1, 4, 9}, Row{16384, 1, 4, 19}, Row{32768, 1, 4, 32},
                         Row{1024, 4, 16, 17}}) {
    std::ofstream file(job.folder.path() / "factory.yaml");
    file << "model_name_or_path: meta-llama/Llama-2-7b-hf\nstage: sft\nfinetuning_type: lora\nlora_rank: 8\n"
            "lora_target: all\nflash_attn: fa2\ngradient_accumulation_steps: 4\nbf16: true\ncutoff_len: "
         << row.tokens << "\nper_device_train_batch_size: " << row.sequences << '\n';
    if (row.bits == 4) file << "quantization_bit: 4\n";
    file.close();
    const Outcome r = job.run({"plan", "--from", "factory.yaml", "--device=a100-40gb", "--json"});
    BOOST_REQUIRE_MESSAGE(r.code == 0, r.err);
    const double gib = nlohmann::json::parse(r.out)["estimates"][0]["total_bytes"].get<double>() / (1 << 30);
    BOOST_TEST((gib > row.published - 1 && gib < row.published + 0.1), row.tokens << " tokens: " << gib);
  }
}

// max_memory_allocated() that litgpt publishes for its examples (docs/published-runs.md), in GB.
BOOST_AUTO_TEST_CASE(the_published_memory_of_examples_of_litgpt_is_planned) {
  Job job;
  struct Row {
    const char* model;
    int sequences;
    double published;
    const char* quantize = "";
  };
  const char* const kNf4 = "quantize: bnb.nf4\n";
  for (const Row& row :
       {Row{"meta-llama/Llama-2-7b-hf", 2, 19.77}, Row{"meta-llama/Meta-Llama-3-8B", 1, 19.73},
        Row{"mistralai/Mistral-7B-v0.1", 2, 20.66}, Row{"meta-llama/Llama-3.2-1B", 1, 4.49},
        Row{"meta-llama/Llama-3.2-3B", 1, 9.67}, Row{"stabilityai/stablelm-base-alpha-3b", 1, 8.58},
        Row{"meta-llama/Llama-2-7b-hf", 2, 13.68, kNf4}, Row{"meta-llama/Meta-Llama-3-8B", 2, 17.41, kNf4},
        Row{"mistralai/Mistral-7B-v0.1", 2, 14.29, kNf4}, Row{"meta-llama/Llama-3.2-1B", 2, 5.53, kNf4},
        Row{"meta-llama/Llama-3.2-3B", 2, 10.30, kNf4},
        Row{"stabilityai/stablelm-base-alpha-3b", 1, 5.24, kNf4}}) {
    std::ofstream(job.folder.path() / "lora.yaml")
        << "checkpoint_dir: checkpoints/" << row.model
        << "\nprecision: bf16-true\ndevices: 1\nlora_r: 32\nlora_alpha: 16\nlora_dropout: 0.05\n"
           "lora_query: true\nlora_value: true\ntrain:\n  global_batch_size: 8\n  micro_batch_size: "
        << row.sequences << "\n  max_seq_length: 512\n"
        << row.quantize;
    const Outcome r = job.run(
        {"plan", "--from", "lora.yaml", "--device=a10g", "--set", "plan.framework_version=0.4", "--json"});
    BOOST_REQUIRE_MESSAGE(r.code == 0, r.err);
    const auto estimate = nlohmann::json::parse(r.out)["estimates"][0];
    double bytes = estimate["total_bytes"];
    for (const auto& c : estimate["tiers"][0]["components"])
      if (c["name"] == "fragmentation" || c["name"] == "runtime") bytes -= c["bytes"].get<double>();
    BOOST_TEST(std::abs(bytes / 1e9 / row.published - 1) < 0.006, row.model << ": " << bytes / 1e9);
  }
}

BOOST_AUTO_TEST_CASE(the_verdict_names_what_is_not_planned_and_may_need_more_memory) {
  Job job;
  const std::string model =
      "base_model: NousResearch/Meta-Llama-3-8B\nsequence_len: 1024\nmicro_batch_size: 1\nadapter: qlora\n"
      "load_in_4bit: true\nlora_r: 16\nlora_target_linear: true\ngradient_checkpointing: true\nbf16: true\n";
  std::ofstream(job.folder.path() / "axolotl.yaml")
      << model << "kd_trainer: true\nrl: kto\noptimizer: paged_adamw_8bit\n";
  std::ofstream(job.folder.path() / "plain.yaml") << model << "kd_trainer:\n";
  Outcome r = job.run({"plan", "--from", "axolotl.yaml", "--device=rtx-4090"});
  BOOST_TEST(has(r.out,
                 "fits in 23.6 GiB (rtx-4090)\n  not planned, and may need more memory: "
                 "kd_trainer, rl\n"),
             r.out);
  BOOST_TEST(has(r.out, "not modelled, may need more: axolotl.yaml:11 rl = \"kto\""), r.out);
  r = job.run({"plan", "--from", "axolotl.yaml", "--device=rtx-4090", "--json"});
  const auto plan = nlohmann::json::parse(r.out);
  int more = 0;
  for (const auto& key : plan["file_keys"]) more += key.contains("needs_more");
  BOOST_TEST(more == 2);
  r = job.run({"plan", "--from", "plain.yaml", "--device=rtx-4090"});
  BOOST_TEST(!has(r.out, "may need more"), r.out);
  // A key that was meant to count may change the plan; one of another program does not.
  std::ofstream(job.folder.path() / "misspelt.yaml") << model << "lora_alhpa: 32\nsomething_else: 1\n";
  r = job.run({"plan", "--from", "misspelt.yaml", "--device=rtx-4090"});
  BOOST_TEST(has(r.out, "fits in 23.6 GiB (rtx-4090)\n  not understood, perhaps misspelt: lora_alhpa\n"),
             r.out);
}

// Search computes the accumulation: a global batch that a script leaves open is given by its own option.
BOOST_AUTO_TEST_CASE(search_takes_the_global_batch_of_a_script_from_its_option) {
  Job job;
  std::ofstream(job.folder.path() / "run.sh")
      << "torchrun pretrain_gpt.py --num-layers 2 --hidden-size 512 --num-attention-heads 8 --vocab-size "
         "1000 "
         "--swiglu --normalization RMSNorm --hidden-dropout 0 --micro-batch-size 1 --seq-length 128 "
         "--global-batch-size $GBS\n";
  Outcome r = job.run({"search", "--from", "run.sh", "--device=h100-80gb", "--devices=4"});
  BOOST_TEST(r.code == 2);
  BOOST_TEST(has(r.err, "give it: --global-batch=N"), r.err);
  r = job.run({"search", "--from", "run.sh", "--device=h100-80gb", "--devices=4", "--global-batch=16"});
  BOOST_TEST(r.code == 0, r.err);
  BOOST_TEST(has(r.out, "16 sequences of 128 tokens per step"), r.out);
}

// Advice that the estimator of the first plan can follow, and whose words say what changes.
BOOST_AUTO_TEST_CASE(a_run_over_nf4_weights_is_offered_the_loss_of_liger_and_double_quantization) {
  Job job;
  std::ofstream(job.folder.path() / "trl.json")
      << R"({"model_name_or_path": "Qwen/Qwen2.5-7B", "max_length": 2048, "per_device_train_batch_size": 4,
             "bf16": true, "use_peft": true, "load_in_4bit": true, "optim": "paged_adamw_8bit"})";
  // The head of TRL 1.15 would fit.
  const Outcome r =
      job.run({"plan", "--from", "trl.json", "--budget=20GiB", "--set", "plan.cross_entropy=plain"});
  BOOST_TEST(has(r.out, "plan.cross_entropy = \"liger\""), r.out);
  BOOST_TEST(!has(r.out, "frozen 4-bit weights"), r.out);
  BOOST_TEST(
      job.run({"plan", "--from", "trl.json", "--budget=20GiB", "--set", "plan.cross_entropy=liger"}).code ==
      0);
}

// The frozen module and a trained copy of it, with gradient and moments, as PEFT keeps them.
BOOST_AUTO_TEST_CASE(modules_that_are_trained_whole_beside_adapters_are_planned) {
  Job job;
  const auto total = [&](const std::string& more) {
    std::ofstream(job.folder.path() / "axolotl.yaml")
        << "base_model: NousResearch/Meta-Llama-3-8B\nsequence_len: 1024\nmicro_batch_size: 1\nadapter: "
           "lora\n"
           "lora_r: 16\nlora_target_linear: true\ngradient_checkpointing: true\nbf16: true\n"
        << more;
    const Outcome r = job.run(
        {"plan", "--from", "axolotl.yaml", "--device=h100-80gb", "--estimator=transformer", "--json"});
    BOOST_REQUIRE_MESSAGE(r.code == 0, r.err);
    const auto plan = nlohmann::json::parse(r.out);
    for (const auto& key : plan["file_keys"]) BOOST_TEST(!key.contains("needs_more"), key.dump());
    return plan["estimates"][0]["total_bytes"].get<std::uint64_t>();
  };
  constexpr std::uint64_t kMatrix = 128256ull * 4096;
  const std::uint64_t without = total("");
  // bf16 weights: the copy, its gradient and two moments at least.
  BOOST_TEST(total("lora_modules_to_save: [lm_head]\n") >= without + 4 * 2 * kMatrix);
  BOOST_TEST(total("lora_modules_to_save: [embed_tokens, lm_head]\n") >= without + 8 * 2 * kMatrix);
}

BOOST_AUTO_TEST_CASE(the_name_of_a_model_says_that_its_weights_are_packed) {
  Job job;
  const auto plan = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"plan", "--device=rtx-4090", "--json"});
    const Outcome r = job.run(more);
    BOOST_TEST((r.code == 0 || r.code == 3), r.err);  // 3: does not fit
    return nlohmann::json::parse(r.out);
  };
  const std::string packed = "--model=unsloth/Meta-Llama-3.1-8B-bnb-4bit";
  auto p = plan({packed, "--for=transformers", "--set", "lora.rank=16"});
  BOOST_TEST(has(p["assumed"].dump(), "lora.base = \\\"nf4\\\""), p["assumed"].dump());
  BOOST_TEST(has(p["assumed"].dump(), "lora.double_quant = true"), p["assumed"].dump());
  const auto same = plan({"--model=llama-3.1-8b", "--for=transformers", "--set", "lora.rank=16", "--set",
                          "lora.base=nf4", "--set", "lora.double_quant=true"});
  BOOST_TEST(p["estimates"][0]["total_bytes"] == same["estimates"][0]["total_bytes"]);
  // Without a key of adapters too: transformers trains nothing else over packed weights.
  BOOST_TEST(has(plan({packed, "--for=transformers"})["assumed"].dump(), "nf4"));
  // What is given wins.
  // transformers 4: its experts are linear layers, which bitsandbytes quantizes, and f32 is its default type.
  const auto mixtral = [&](const char* version) {
    return plan({"--model=mixtral-8x7b", "--for=transformers", "--set", "lora.rank=16", "--set",
                 "lora.base=nf4", "--set",
                 std::string("plan.framework_version=") + version})["estimates"][0]["total_bytes"]
        .get<double>();
  };
  BOOST_TEST(mixtral("4.57") < 0.5 * mixtral("5"));
  BOOST_TEST(!has(
      plan({"--model=mistral-7b", "--for=transformers", "--set", "plan.framework_version=4.57"})["assumed"]
          .dump(),
      "plan.master"));
  BOOST_TEST(has(plan({"--model=mistral-7b", "--for=transformers"})["assumed"].dump(), "plan.master"));

  p = plan({packed, "--for=transformers", "--set", "lora.base=int8"});
  BOOST_TEST(!has(p["assumed"].dump(), "nf4"), p["assumed"].dump());
  // Unsloth's dynamic quantization keeps some matrices, which the name does not list.
  p = plan({"--model=unsloth/Llama-3.1-8B-unsloth-bnb-4bit", "--for=transformers"});
  BOOST_TEST(has(p["file_keys"].dump(), "in 16 bits"), p.dump());
  const Outcome text = job.run({"plan", "--model=unsloth/Llama-3.1-8B-unsloth-bnb-4bit", "--for=unsloth"});
  BOOST_TEST(has(text.out, "may need more memory: unsloth/Llama-3.1-8B-unsloth-bnb-4bit\n"), text.out);
  // A file that trains everything is not made a run of adapters.
  std::ofstream(job.folder.path() / "factory.yaml")
      << "stage: sft\ntemplate: llama3\nfinetuning_type: full\ncutoff_len: 512\nbf16: true\n";
  p = plan({"--from=factory.yaml", packed});
  BOOST_TEST(!has(p.dump(), "nf4"), p.dump());
  std::ofstream(job.folder.path() / "factory.yaml")
      << "stage: sft\ntemplate: llama3\nfinetuning_type: lora\ncutoff_len: 512\nbf16: true\n"
         "per_device_train_batch_size: 1\n";
  const auto full = plan({"--from=factory.yaml", "--model=llama-3.1-8b"});
  p = plan({"--from=factory.yaml", packed});
  BOOST_TEST(p["estimates"][0]["total_bytes"].get<std::uint64_t>() <
             full["estimates"][0]["total_bytes"].get<std::uint64_t>() - (8ull << 30));
}

// README of axolotl's example: 63.4 GiB. 45 layers have 128 experts of three matrices 1,408 x 4,096.
BOOST_AUTO_TEST_CASE(experts_over_a_quantized_base_are_not_quantized_by_themselves) {
  Job job;
  const auto plan = [&](const std::string& more) {
    std::ofstream(job.folder.path() / "glm.yaml")
        << "base_model: zai-org/GLM-4.5-Air\nplugins: "
           "[axolotl.integrations.cut_cross_entropy.CutCrossEntropyPlugin]\nload_in_4bit: true\n"
           "adapter: qlora\nsequence_len: 2048\nsample_packing: true\nlora_r: 16\nlora_alpha: 8\n"
           "lora_dropout: 0\nlora_target_modules: [q_proj, v_proj, k_proj, o_proj]\n"
           "lora_mlp_kernel: false\nlora_qkv_kernel: false\nlora_o_kernel: false\n"
           "gradient_accumulation_steps: 2\nmicro_batch_size: 2\noptimizer: adamw_bnb_8bit\nbf16: auto\n"
           "gradient_checkpointing: true\nattn_implementation: flash_attention_2\n"
        << more;
    const Outcome r = job.run({"plan", "--from", "glm.yaml", "--device=h100-80gb", "--json"});
    const auto json = nlohmann::json::parse(r.out);
    return std::pair{json["estimates"][0]["total_bytes"].get<double>() / (1 << 30), r.out};
  };
  const auto [whole, why] = plan("");
  BOOST_TEST(whole > 4.0 * 45 * 128 * 3 * 1408 * 4096 / (1 << 30));
  BOOST_TEST(has(why, "to which prepare_model_for_kbit_training() of peft casts them"), why);
  const auto [packed, copies] = plan("quantize_moe_experts: true\n");
  BOOST_TEST(std::abs(packed / 63.4 - 1) < 0.05, packed);
  BOOST_TEST(has(copies, "makes a copy of all of its experts in bf16"), copies);
  BOOST_TEST(has(copies, "experts, dequantized weights") == false);  // recomputed: part of that entry
  BOOST_TEST(has(copies, "dequantized weight"), copies);
}

BOOST_AUTO_TEST_CASE(a_job_of_dpo_has_pairs_and_a_reference) {
  Job job;
  const auto plan = [&](const std::string& more, const std::vector<std::string>& options = {}) {
    std::ofstream(job.folder.path() / "dpo.yaml")
        << "model_name_or_path: Qwen/Qwen2.5-0.5B\nfinetuning_type: full\nstage: dpo\ncutoff_len: 512\n"
           "per_device_train_batch_size: 1\nbf16: true\n"
        << more;
    std::vector<std::string> arguments{"plan", "--from", "dpo.yaml", "--device=h100-80gb", "--json"};
    arguments.insert(arguments.end(), options.begin(), options.end());
    const Outcome r = job.run(arguments);
    BOOST_REQUIRE_MESSAGE(r.code == 0, r.err);
    const auto json = nlohmann::json::parse(r.out);
    for (const auto& key : json["file_keys"]) BOOST_TEST(!key.contains("needs_more"), key.dump());
    return json["estimates"][0];
  };
  const auto full = plan(""), alone = plan("pref_loss: orpo\n");
  BOOST_TEST(full["estimator"] == "pytorch");
  BOOST_TEST(has(full.dump(), "each micro-batch has 2 sequences"), full.dump());
  BOOST_TEST(has(full.dump(), "The reference is a second model"), full.dump());
  constexpr double kWeights = 494e6 * 2;  // in the type of its checkpoint
  BOOST_TEST(full["total_bytes"].get<double>() > alone["total_bytes"].get<double>() + kWeights);
  // The closed form, with the second model too.
  const auto closed = plan("", {"--estimator=transformer"});
  BOOST_TEST(has(closed.dump(), "reference model, layers.weights"), closed.dump());
  BOOST_TEST(std::abs(closed["total_bytes"].get<double>() / full["total_bytes"].get<double>() - 1) < 0.3);
  // Adapters have no second model.
  const std::string lora = "model_name_or_path: Qwen/Qwen2.5-0.5B\nstage: dpo\n";
  std::ofstream(job.folder.path() / "lora.yaml")
      << lora << "finetuning_type: lora\ncutoff_len: 512\nper_device_train_batch_size: 1\nbf16: true\n";
  const Outcome r = job.run({"plan", "--from", "lora.yaml", "--device=h100-80gb"});
  BOOST_TEST(has(r.out, "The reference is the model without its adapters"), r.out);
  const Outcome refused = job.run(
      {"plan", "--model=qwen2.5-0.5b", "--for=torchtune", "--device=h100-80gb", "--set", "plan.method=dpo"});
  BOOST_TEST(refused.code == 2);
  BOOST_TEST(has(refused.err, "its loss is not described"), refused.err);
}

BOOST_AUTO_TEST_CASE(the_plan_of_unsloth_says_what_is_known_of_its_step) {
  Job job;
  const auto plan = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments{"plan",  "--model=llama-3-8b", "--budget=24GiB", "--for=unsloth",
                                       "--set", "lora.rank=16",       "--set",          "lora.base=nf4"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Outcome r = job.run(arguments);
    std::string line;  // without the line ends that the width of the terminal needs
    for (const char c : r.out)
      if (c != '\n' && (c != ' ' || !line.ends_with(' ')))
        line += c;
      else if (!line.ends_with(' '))
        line += ' ';
    return line;
  };
  std::string text = plan({});
  BOOST_TEST(
      has(text, "Unsloth 2026.10: its checkpoints keep the inputs of all layers but the last in host memory"),
      text);
  BOOST_TEST(has(text, "lora.targets = \"all-linear\""), text);
  text = plan({"--set", "plan.offload_activations=none"});
  BOOST_TEST(has(text, "Unsloth 2026.10: the inputs of the layers stay on the device"), text);
  text = plan({"--set", "train.recompute=none"});
  BOOST_TEST(has(text, "Unsloth 2026.10: without its checkpoints, which are on by default"), text);
  // Runs that are not replayed.
  text = plan({"--set", "plan.attention=materialised"});
  BOOST_TEST(has(text, "does not describe plan.attention = \"materialised\" with Unsloth"), text);
  BOOST_TEST(has(text, "Its kernels of MLP and adapters write over gate and up, which is not counted"), text);
}

// A notebook of Unsloth, and the same settings as options.
BOOST_AUTO_TEST_CASE(a_python_script_is_planned_as_the_options_that_it_states) {
  const std::string files = TRAINHOST_SOURCE_DIR "/tests/core/framework_files/files/";
  const auto total = [](const std::vector<std::string>& arguments) {
    const Outcome r = run_program(arguments);
    BOOST_TEST(r.code == 0, r.out << r.err);
    const auto plan = nlohmann::json::parse(r.out);
    std::vector<std::uint64_t> bytes;
    for (const auto& tier : plan["estimates"][0]["tiers"])
      bytes.push_back(tier["total_bytes"].get<std::uint64_t>());
    BOOST_TEST(!bytes.empty());
    return bytes;
  };
  const auto script = total(
                 {"plan", "--from", files + "unsloth_conversations.ipynb", "--device=rtx-4090", "--json"}),
             options = total({"plan", "--model=unsloth/Llama-3.2-3B-Instruct", "--for=unsloth", "--qlora",
                              "--device=rtx-4090", "--json", "--set", "data.seq_len=2048", "--set",
                              "train.micro_batch=2", "--set", "train.grad_accum=4", "--set",
                              "optimizer.name=adamw-8bit", "--set", "lora.double_quant=true"});
  BOOST_TEST(script == options, boost::test_tools::per_element());
  // The T4 computes in fp16, as is_bfloat16_supported() tells the script.
  const Outcome old = run_program({"plan", "--from", files + "unsloth_conversations.ipynb", "--device=t4"});
  BOOST_TEST(has(old.out, "unsloth: fp16, 2 sequences of 2048 tokens x 4 accumulated, QLoRA of rank 16"),
             old.out << old.err);
  const Outcome assumed = run_program({"plan", "--from", files + "peft_qlora.py", "--device=rtx-4090"});
  BOOST_TEST(assumed.code == 0, assumed.out << assumed.err);
  BOOST_TEST(has(assumed.out, "peft_qlora.py:48 --cutoff_len = 512 (the default of the option)"),
             assumed.out);
  const Outcome sweep = run_program(
      {"sweep", "--from", files + "peft_qlora.py", "--device=rtx-4090", "--over=data.seq_len=512..1024"});
  BOOST_TEST(sweep.code == 0, sweep.out << sweep.err);
  const Outcome search =
      run_program({"search", "--from", files + "peft_qlora.py", "--device=h100-80gb", "--devices=2"});
  BOOST_TEST(search.code == 0, search.out << search.err);
}

BOOST_AUTO_TEST_CASE(a_plan_lists_every_key_of_the_files) {
  Job job;
  const Outcome r = job.run({"plan", "--from", "train.yaml", "ds.json", "--device=h100-80gb"});
  BOOST_TEST(r.code == 0, r.err);
  BOOST_TEST(has(r.out, "deepspeed: bf16, 2 sequences of 512 tokens x 2 accumulated, adamw"), r.out);
  BOOST_TEST(has(r.out, "the one of 4 devices that needs most memory"), r.out);
  BOOST_TEST(has(r.out, "keys of train.yaml, ds.json"), r.out);
  BOOST_TEST(has(r.out, "used: model_name_or_path, max_length, per_device_train_batch_size, bf16, deepspeed"),
             r.out);
  BOOST_TEST(has(r.out, "without effect on memory: learning_rate"), r.out);
  BOOST_TEST(has(r.out, "not understood: train.yaml:7 typo_key = 1"), r.out);
}

BOOST_AUTO_TEST_CASE(the_keys_are_in_json_and_on_the_pages) {
  Job job;
  for (const std::vector<std::string>& command : {std::vector<std::string>{"plan"},
                                                  {"sweep", "--over", "train.micro_batch=1,2"},
                                                  {"search", "--devices=4"}}) {
    std::vector<std::string> arguments = command;
    for (const char* more :
         {"--from", "train.yaml", "ds.json", "--device=h100-80gb", "--json", "--html=page.html"})
      arguments.push_back(more);
    const Outcome r = job.run(arguments);
    BOOST_TEST(r.code == 0, command.front() + ": " + r.err);
    const auto keys = nlohmann::json::parse(r.out)["file_keys"];
    BOOST_REQUIRE_EQUAL(keys.size(), 10u);
    BOOST_TEST(keys[6]["key"] == "typo_key");
    BOOST_TEST(keys[6]["use"] == "not_understood");
    BOOST_TEST(keys[6]["file"] == "train.yaml");
    BOOST_TEST(keys[6]["line"] == 7);
    BOOST_TEST(has(read_file(job.folder.path() / "page.html"), "not understood: train.yaml:7 typo_key = 1"));
  }
}

BOOST_AUTO_TEST_CASE(the_printed_run_file_plans_the_same) {
  Job job;
  // 16 sequences of 1 x 2 accumulated: 8 devices
  const Outcome smaller = job.run({"plan", "--from", "train.yaml", "ds.json", "--device=h100-80gb", "--set",
                                   "train.micro_batch=1", "--print-run"});
  BOOST_TEST(has(smaller.out, "micro_batch = 1                          # command line"),
             smaller.out + smaller.err);
  BOOST_TEST(has(smaller.out, "data = 8                                 # ds.json:1"), smaller.out);
  const Outcome r = job.run({"plan", "--from", "train.yaml", "ds.json", "--device=h100-80gb", "--print-run"});
  BOOST_TEST(r.code == 0, r.err);
  BOOST_TEST(has(r.out, "micro_batch = 2                          # train.yaml:3"), r.out);
  BOOST_TEST(has(r.out, "device = \"h100-80gb\"                     # command line"), r.out);
  std::ofstream(job.folder.path() / "run.toml") << r.out;
  const auto bytes = [](const Outcome& o) {
    return nlohmann::json::parse(o.out)["estimates"][0]["total_bytes"];
  };
  BOOST_TEST(bytes(job.run({"plan", "run.toml", "--json"})) ==
             bytes(job.run({"plan", "--from", "train.yaml", "ds.json", "--device=h100-80gb", "--json"})));
}

BOOST_AUTO_TEST_CASE(mistakes_have_one_message_with_the_position) {
  Job job;
  const auto error = [&](std::vector<std::string> arguments) {
    const Outcome r = job.run(arguments);
    BOOST_TEST(r.code == 2, r.out);
    return r.err;
  };
  BOOST_TEST(
      has(error({"plan", "run.toml", "--from", "train.yaml"}), "--from and a run file are both given"));
  BOOST_TEST(has(error({"plan", "--from", "nowhere.yaml"}), "nowhere.yaml"));
  std::ofstream(job.folder.path() / "bad.yaml") << "base_model: gpt2\nsequence_len: [1\n";
  BOOST_TEST(has(error({"plan", "--from", "bad.yaml"}), "bad.yaml:3"));
  std::ofstream(job.folder.path() / "cut.json") << "{\"train_batch_size\": 8,\n \"bf16\": {\"enab";
  for (const std::vector<std::string>& command : std::vector<std::vector<std::string>>{
           {"plan"}, {"search", "--devices=2"}, {"sweep", "--over", "data.seq_len=1..4"}}) {
    std::vector<std::string> arguments = command;
    arguments.insert(arguments.end(), {"--from", "cut.json", "--model=gpt2", "--device=h100-80gb"});
    const std::string text = error(arguments);
    BOOST_TEST(has(text, "cut.json:2:11: not valid JSON: unterminated string (the file is truncated"), text);
    BOOST_TEST(std::ranges::count(text, '\n') == 1, text);
  }
  BOOST_TEST(has(error({"plan", "--from", "train.yaml", "--set", "data.seq_len=0"}), "data.seq_len = 0"));
}

BOOST_AUTO_TEST_CASE(the_kernels_of_liger_are_replayed) {
  Job job;
  const std::string trainer = "model_name_or_path: Qwen/Qwen2.5-0.5B\nbf16: true\nuse_liger_kernel: true\n";
  std::ofstream(job.folder.path() / "trainer.yaml") << trainer;
  std::ofstream(job.folder.path() / "trl.yaml") << trainer << "max_length: 512\n";
  // TRL has its own head and loss, and takes the kernels of the layers alone.
  for (const auto& [file, kernels] :
       {std::pair("trainer.yaml", "Liger 0.8: head and loss in chunks of tokens"),
        std::pair("trl.yaml", "Liger 0.8: kernels rope, rms_norm, swiglu")}) {
    const Outcome r = job.run({"plan", "--from", file, "--device=h100-80gb", "--set", "data.seq_len=512"});
    BOOST_TEST(r.code == 0, r.err);
    BOOST_TEST(has(r.out, "estimator pytorch (approximation)"), r.out);
    BOOST_TEST(has(r.out, kernels), r.out);
    BOOST_TEST(!has(r.out, "has no effect"), r.out);
  }
}

BOOST_AUTO_TEST_CASE(a_line_for_the_family_chooses_the_estimator) {
  Job job;
  Outcome r = job.run({"plan", "--set", "memory.estimators.llama=transformer"});
  BOOST_TEST(has(r.out, "estimator transformer (approximation)"), r.out);
  BOOST_TEST(has(r.out, "note: the estimator was chosen by memory.estimators.llama"), r.out);
  r = job.run({"plan", "--set", "memory.estimators.llama=transformer", "--json", "--estimator=contract"});
  BOOST_TEST(nlohmann::json::parse(r.out)["estimator_rule"] == "--estimator");
  BOOST_TEST(nlohmann::json::parse(job.run({"plan", "--json"}).out)["estimator_rule"] == "auto");
  // An estimator of another framework would answer for another step.
  r = job.run({"plan", "--estimator=pytorch"});
  BOOST_TEST(r.code == 2);
  BOOST_TEST(has(r.err, "the estimator 'pytorch' does not describe training steps of trainhost"), r.err);
  BOOST_TEST(has(r.err, "--for pytorch"), r.err);
}

BOOST_AUTO_TEST_CASE(a_number_of_devices_completes_files_that_do_not_say_it) {
  TemporaryDirectory tmp;
  const std::filesystem::path arguments = tmp.path() / "arguments.json", zero = tmp.path() / "zero3.json";
  std::ofstream(arguments)
      << R"({"per_device_train_batch_size": 1, "bf16": true, "gradient_checkpointing": true})";
  std::ofstream(zero) << R"({"zero_optimization": {"stage": 3}, "bf16": {"enabled": "auto"}})";
  const auto plan = [&](std::vector<std::string> more) {
    std::vector<std::string> words = {"plan",
                                      "--from",
                                      arguments.string(),
                                      zero.string(),
                                      "--model=llama-3-8b",
                                      "--device=a100-80gb",
                                      "--set",
                                      "data.seq_len=2048",
                                      "--json"};
    words.insert(words.end(), more.begin(), more.end());
    return run_program(words);
  };
  const Outcome missing = plan({});
  BOOST_TEST(missing.code == 2);
  BOOST_TEST(has(missing.err, "no file says how many devices there are"), missing.err);
  const Outcome devices = plan({"--devices=8"}), ranks = plan({"--set", "parallel.data=8"});
  BOOST_TEST(devices.code == 0, devices.err);
  nlohmann::json of_devices = nlohmann::json::parse(devices.out), of_ranks = nlohmann::json::parse(ranks.out);
  for (nlohmann::json* j : {&of_devices, &of_ranks}) j->erase("command");
  BOOST_TEST(of_devices.at("estimates") == of_ranks.at("estimates"));
}

BOOST_AUTO_TEST_SUITE_END()
