// Scripts of ms-swift: what its options mean as settings of a run file, and its defaults.
#include <algorithm>
#include <boost/test/unit_test.hpp>

#include "tests/core/framework_files/settings_of.hpp"

using namespace trainhost;
using namespace trainhost::testing;
using framework_files::read_files;
using runfile::KeyUse;

BOOST_AUTO_TEST_SUITE(swift)

BOOST_AUTO_TEST_CASE(a_script_trains_adapters_under_a_configuration_of_deepspeed) {
  const auto s = read_files({fixture("swift.sh")}, {});
  const Settings expected = {{"plan.framework", "deepspeed"},
                             {"model.preset", "qwen2.5-7b @7"},
                             {"data.seq_len", "2048 @17"},
                             {"lora.rank", "16 @13"},
                             {"lora.alpha", "32 @14"},
                             {"lora.dropout", "0.05"},
                             {"lora.targets", "[\"all-linear\"] @15"},
                             {"lora.base", "bf16 @10"},
                             {"train.precision", "bf16 @10"},
                             {"train.micro_batch", "1 @12"},
                             {"train.grad_accum", "8 @16"},
                             {"train.recompute", "full"},
                             {"plan.checkpoint_reentrant", "true"},
                             {"plan.attention", "flash_attention_2 @21"},
                             {"plan.cross_entropy", "plain"},
                             {"plan.offload_optimizer", "cpu @22"},
                             {"plan.offload_weights", "cpu @22"},
                             {"plan.reduce_bucket", "0 @22"},
                             {"plan.prefetch_bucket", "-1 @22"},
                             {"plan.persistence_threshold", "-1 @22"},
                             {"plan.weights", "bf16"},
                             {"plan.gradients", "bf16"},
                             {"plan.master", "fp32"},
                             {"parallel.zero", "3 @22"},
                             {"parallel.data", "2 @5"}};
  for (const auto& [key, value] : expected) BOOST_TEST(by_key(s)[key] == value, key << " " << by_key(s)[key]);
  for (const auto& [key, value] : by_key(s)) BOOST_TEST(expected.count(key) == 1u, key << " = " << value);
  std::string names;
  for (const runfile::FileKey& k : s.keys) {
    BOOST_TEST((k.use != KeyUse::kNotUnderstood), k.key);
    names += k.key + " ";
  }
  BOOST_TEST(names.find(" deepspeed ") != std::string::npos, names);
  BOOST_TEST(names.find(" gradient-accumulation-steps ") != std::string::npos, names);
}

BOOST_AUTO_TEST_CASE(full_training_has_the_type_of_the_model) {
  const std::string job = "swift sft --model Qwen/Qwen2.5-0.5B --max_length 512 --tuner_type full ";
  auto s = settings("t.sh", job + "\n");
  for (const char* key : {"plan.weights", "plan.gradients", "plan.moments", "train.precision"})
    BOOST_TEST(value(s, key) == "bf16", key);
  BOOST_TEST(value(s, "plan.master") == "none");
  BOOST_TEST(value(s, "lora.rank") == "");
  BOOST_TEST(value(s, "train.micro_batch") == "1");
  BOOST_TEST(value(s, "train.grad_accum") == "16");
  BOOST_TEST(value(s, "plan.framework") == "transformers");
  // A model in f32 trains under autocast in f16.
  s = settings("t.sh", job + "--torch_dtype float32 --gradient_checkpointing false\n");
  BOOST_TEST(value(s, "train.precision") == "fp16");
  BOOST_TEST(value(s, "plan.weights") == "fp32");
  BOOST_TEST(value(s, "train.recompute") == "none");
  // Under DDP checkpoints are not reentrant, and fewer micro-batches are accumulated.
  s = settings("t.sh", "export NPROC_PER_NODE=4\n" + job + "--per_device_train_batch_size 2\n");
  BOOST_TEST(value(s, "plan.checkpoint_reentrant") == "false");
  BOOST_TEST(value(s, "train.grad_accum") == "2");
  BOOST_TEST(value(s, "parallel.data") == "4");
  // FSDP2 by its name.
  s = settings("t.sh", "NPROC_PER_NODE=4 " + job + "--fsdp fsdp2\n");
  BOOST_TEST(value(s, "parallel.zero") == "3");
  BOOST_TEST(value(s, "plan.fsdp_version") == "2");
}

BOOST_AUTO_TEST_CASE(presets_are_those_of_their_own_option) {
  const std::string job = "NPROC_PER_NODE=2 swift sft --model Qwen/Qwen2.5-0.5B --max_length 512 ";
  BOOST_TEST(value(settings("t.sh", job + "--deepspeed zero2\n"), "parallel.zero") == "2");
  BOOST_TEST(error_of("t.sh", job + "--fsdp zero2\n").find("expected fsdp2") != std::string::npos);
  BOOST_TEST(value(settings("t.sh", job + "--fsdp 'full_shard auto_wrap'\n"), "parallel.zero") == "3");
  BOOST_TEST(error_of("t.sh", job + "--deepspeed fsdp2\n").find("no such file") != std::string::npos);
  BOOST_TEST(
      (fate("t.sh", job + "--deepspeed_preset z2\n", "deepspeed_preset").first == KeyUse::kNotUnderstood));
  BOOST_TEST(error_of("t.sh", job + "--@deepspeed_preset z2\n").find("expected zero0") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(yaml_of_commands_that_train_nothing_is_refused) {
  const std::string model = "model: Qwen/Qwen2.5-0.5B\nmax_length: 2048\n";
  const std::string hint =
      " (give the files of a training run; --model=MODEL --set plan.mode=inference plans inference)";
  BOOST_TEST(error_of("s.yaml", model + "sampler_engine: vllm\n") ==
             "s.yaml:3: sampler_engine is an option of `swift sample`, which trains nothing" + hint);
  BOOST_TEST(
      error_of("s.yaml", "num_return_sequences: 4\n" + model).starts_with("s.yaml:1: num_return_sequences"));
  BOOST_TEST(error_of("i.yaml", model + "infer_backend: vllm\n") ==
             "i.yaml:3: infer_backend is an option of `swift infer`, which trains nothing" + hint);
  BOOST_TEST(error_of("g.yaml", "max_new_tokens: 1024\ntemperature: 0\n") ==
             "g.yaml:1: this file has settings of generation, and none of training" + hint);
}

BOOST_AUTO_TEST_CASE(the_trainer_of_a_run_under_ray_is_planned) {
  const std::string job =
      "rlhf_type: grpo\nmodel: Qwen/Qwen2.5-0.5B\nsplit_dataset_ratio: 0\nmicro_batch_size: 2\n"
      "global_batch_size: 16\nmax_length: 4096\nuse_vllm: true\n"
      "train:\n  gpus: 4\n  tuner_type: lora\n  lora_rank: 16\n  tensor_model_parallel_size: 2\n"
      "rollout:\n  gpus: 4\n  vllm_tensor_parallel_size: 1\n";
  const auto s = settings("r.yaml", job);
  BOOST_TEST(value(s, "plan.framework") == "megatron");
  BOOST_TEST(value(s, "parallel.tensor") == "2");
  BOOST_TEST(value(s, "parallel.data") == "2");
  BOOST_TEST(value(s, "lora.rank") == "16");
  BOOST_TEST(value(s, "train.grad_accum") == "4");
  BOOST_TEST((fate("r.yaml", job, "rollout.gpus").first == KeyUse::kNotModelled));
  const std::string groups = job + "colocate_groups: [[train, rollout]]\n";
  BOOST_TEST(std::ranges::any_of(read_text("r.yaml", groups).keys, [](const runfile::FileKey& k) {
    return k.key.starts_with("colocate_groups") && k.use == KeyUse::kNotModelled && k.needs_more;
  }));
}

BOOST_AUTO_TEST_CASE(variables_give_the_devices_of_all_nodes) {
  const std::string job =
      "swift sft --model Qwen/Qwen2.5-0.5B --max_length 512 --per_device_train_batch_size 1\n";
  const auto s = settings("t.sh", "NNODES=2 NPROC_PER_NODE=4 " + job);
  BOOST_TEST(value(s, "parallel.data") == "8");
  BOOST_TEST(value(s, "train.grad_accum") == "2");
  const std::string open = "NPROC_PER_NODE=gpu " + job;
  BOOST_TEST((fate("t.sh", open, "NPROC_PER_NODE").first == KeyUse::kNotModelled));
  BOOST_TEST(fate("t.sh", open, "NPROC_PER_NODE").second == "the script does not say how many");
  BOOST_TEST(value(settings("t.sh", open), "parallel.data") == "");
  // Devices of one node are not those of an unknown number of nodes.
  for (const std::string nodes : {"NNODES=$COUNT ", "NNODES=$(wc -l < hosts) ", "NNODES=`cat n` "}) {
    const std::string unknown = nodes + "NPROC_PER_NODE=4 " + job;
    BOOST_TEST(value(settings("t.sh", unknown), "parallel.data") == "", nodes);
    BOOST_TEST((fate("t.sh", unknown, "NNODES").first == KeyUse::kNotModelled), nodes);
  }
  BOOST_TEST(value(settings("t.sh", "NNODES=${COUNT:-2} NPROC_PER_NODE=4 " + job), "parallel.data") == "8");
}

BOOST_AUTO_TEST_CASE(quantized_models_and_preferences_are_read) {
  const std::string job = "swift rlhf --rlhf_type dpo --model Qwen/Qwen2.5-0.5B --max_length 512 ";
  auto s = settings("t.sh", job + "--quant_bits 4 --quant_method bnb --bnb_4bit_use_double_quant false\n");
  BOOST_TEST(value(s, "plan.method") == "dpo");
  BOOST_TEST(value(s, "lora.base") == "nf4");
  BOOST_TEST(value(s, "lora.double_quant") == "false");
  BOOST_TEST(value(s, "plan.master") == "none");
  BOOST_TEST(value(s, "lora.alpha") == "32");
  BOOST_TEST((fate("t.sh", job + "--quant_bits 3\n", "quant_bits").first == KeyUse::kNotModelled));
  BOOST_TEST(error_of("t.sh", job + "--quant_bits 16\n").find("expected 4 or 8") != std::string::npos);
  BOOST_TEST(error_of("t.sh", job + "--torch_dtype int8\n").find("expected bfloat16") != std::string::npos);
  const std::string other =
      "swift rlhf --rlhf_type grpo --model Qwen/Qwen2.5-0.5B --max_length 512 --use_vllm true\n";
  BOOST_TEST((fate("t.sh", other, "rlhf_type").first == KeyUse::kNotModelled));
  BOOST_TEST((fate("t.sh", other, "use_vllm").first == KeyUse::kNotModelled));
  BOOST_TEST(value(settings("t.sh", other), "plan.method") == "");
  // DPO is the method of the command.
  const std::string unnamed = "swift rlhf --model Qwen/Qwen2.5-0.5B --max_length 512\n";
  BOOST_TEST(value(settings("t.sh", unnamed), "plan.method") == "dpo");
  BOOST_TEST((fate("t.sh", unnamed, "swift rlhf").first == KeyUse::kUsed));
  BOOST_TEST(
      value(settings("t.sh", "swift sft --model Qwen/Qwen2.5-0.5B --max_length 512\n"), "plan.method") == "");
  BOOST_TEST(value(settings("t.sh", "torchrun swift/cli/rlhf.py " + job.substr(11) + "\n"), "plan.method") ==
             "dpo");
  // The name of a model that is stored in 4 bits.
  s = settings("t.sh", "swift sft --model Qwen/Qwen2.5-7B-Instruct-AWQ --max_length 512\n");
  BOOST_TEST(value(s, "lora.base") == "nf4");
  BOOST_TEST(value(s, "plan.master") == "none");
  // Adapters of stacked experts by the name of their parameter.
  for (const runfile::FileKey& k :
       read_text("t.sh", job + "--target_parameters mlp.experts.gate_up_proj\n").keys)
    if (k.key == "target_parameters") BOOST_TEST(k.needs_more);
  // A path is a file of DeepSpeed.
  BOOST_TEST(error_of("t.sh", job + "--deepspeed ds/none.json\n").find("no such file") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(bf16_and_fp16_win_over_the_type_of_the_model) {
  const std::string job = "swift sft --model Qwen/Qwen2.5-0.5B --max_length 512 --tuner_type full ";
  const auto precision = [&](const std::string& options) {
    return value(settings("t.sh", job + options + "\n"), "train.precision");
  };
  BOOST_TEST(precision("--bf16 true") == "bf16");
  BOOST_TEST(precision("--torch_dtype float32 --bf16 true --fp16 false") == "bf16");
  BOOST_TEST(precision("--torch_dtype float32 --fp16 false") == "fp32");
  BOOST_TEST(precision("--torch_dtype float16 --fp16 true") == "fp16");
  // Without torch_dtype the checkpoint may be in f16.
  BOOST_TEST(precision("--fp16 true") == "fp16");
  BOOST_TEST(precision("--bf16 false --fp16 true") == "fp16");
  // No autocast: the type of the weights, which are in bf16.
  BOOST_TEST(precision("--bf16 false") == "bf16");
  BOOST_TEST(value(settings("t.sh", job + "--torch_dtype float32 --bf16 true --fp16 false\n"),
                   "plan.weights") == "fp32");
  for (const char* options :
       {"--bf16 true --fp16 true", "--torch_dtype float32 --bf16 true", "--torch_dtype bfloat16 --fp16 true"})
    BOOST_TEST(
        error_of("t.sh", job + options + "\n").find("refuses bf16 and fp16 together") != std::string::npos,
        options);
  BOOST_TEST(error_of("t.sh", job + "--bf16 maybe\n").find("one of true, false") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(arguments_in_json_keep_their_spaces) {
  const std::string job = "NPROC_PER_NODE=2 swift sft --model Qwen/Qwen2.5-0.5B --max_length 512 ";
  const auto reentrant = [&](const std::string& options) {
    return value(settings("t.sh", job + options + "\n"), "plan.checkpoint_reentrant");
  };
  BOOST_TEST(reentrant("--gradient_checkpointing_kwargs '{\"use_reentrant\": true}'") == "true");
  BOOST_TEST(reentrant("--gradient_checkpointing_kwargs '{\"use_reentrant\":true}'") == "true");
  BOOST_TEST(reentrant("--gradient_checkpointing_kwargs '{\"use_reentrant\": false}'") == "false");
}

BOOST_AUTO_TEST_CASE(a_file_of_its_options_is_read) {
  const std::string job = "model: Qwen/Qwen2.5-0.5B\ntuner_type: lora\nmax_length: 512\nlora_rank: 16\n";
  const auto s = settings("a.yaml", job + "deepspeed: zero2\n", {{"parallel.data", "2", ""}});
  BOOST_TEST(value(s, "plan.framework") == "deepspeed");
  BOOST_TEST(value(s, "parallel.zero") == "2");
  BOOST_TEST(value(s, "lora.rank") == "16");
  BOOST_TEST(value(s, "lora.targets") == "all-linear");
  BOOST_TEST((fate("a.yaml", job + "ENV:\n  MAX_PIXELS: '1003520'\n", "ENV.MAX_PIXELS").first ==
              KeyUse::kWithoutEffect));
  const std::string ranks = "deepspeed: zero2\nENV:\n  NPROC_PER_NODE: 4\n  NNODES: 2\n";
  BOOST_TEST(value(settings("a.yaml", job + ranks), "parallel.data") == "8");
}

BOOST_AUTO_TEST_CASE(a_file_is_recognised_without_a_kind_of_tuner) {
  auto s = settings("a.yaml",
                    "model: Qwen/Qwen2.5-0.5B\ndataset: x\nmax_length: 512\nbf16: true\n"
                    "per_device_train_batch_size: 2\nlearning_rate: 1e-4\noutput_dir: out\n");
  BOOST_TEST(value(s, "lora.rank") == "8");
  BOOST_TEST(value(s, "model.preset") == "qwen2.5-0.5b");
  s = settings("a.yaml",
               "model: Qwen/Qwen2.5-0.5B\nmax_length: 512\nmicro_batch_size: 2\n"
               "global_batch_size: 16\n",
               {{"parallel.data", "2", ""}});
  BOOST_TEST(value(s, "plan.framework") == "megatron");
}

BOOST_AUTO_TEST_CASE(accumulation_follows_from_devices_of_the_command_line) {
  const std::string job = "swift sft --model Qwen/Qwen2.5-0.5B --max_length 512 --tuner_type full ";
  const std::vector<runfile::Override> ranks = {{"parallel.data", "4", "--devices"}};
  auto s = settings("t.sh", job + "--per_device_train_batch_size 2\n", ranks);
  BOOST_TEST(value(s, "train.grad_accum") == "2");
  BOOST_TEST(value(s, "plan.checkpoint_reentrant") == "false");
  BOOST_TEST(value(settings("t.sh", job + "--gradient_accumulation_steps 5\n", ranks), "train.grad_accum") ==
             "5");
  // All devices count, also those that share a sequence.
  s = settings("t.sh", "NPROC_PER_NODE=8 " + job + "--sequence_parallel_size 2\n");
  BOOST_TEST(value(s, "train.grad_accum") == "2");
  BOOST_TEST(value(s, "parallel.data") == "4");
}

BOOST_AUTO_TEST_CASE(sequences_are_padded_for_the_ranks_that_share_them) {
  const std::string job = "NPROC_PER_NODE=8 swift sft --model Qwen/Qwen2.5-0.5B --tuner_type full ";
  const auto length = [&](const std::string& more, const std::vector<runfile::Override>& options = {}) {
    return value(settings("t.sh", job + more + "\n", options), "data.seq_len");
  };
  BOOST_TEST(length("--max_length 65535 --sequence_parallel_size 4") == "65536");
  BOOST_TEST(length("--max_length 65536 --sequence_parallel_size 4") == "65536");
  BOOST_TEST(length("--max_length 65535") == "65535");
  const auto loss =
      fate("t.sh", "CELOSS_PARALLEL_SIZE=2048 \\\n" + job + "--max_length 64\n", "CELOSS_PARALLEL_SIZE");
  BOOST_TEST((loss.first == runfile::KeyUse::kNotModelled));
  BOOST_TEST(loss.second.starts_with("a loss whose gradient overwrites the logits"), loss.second);
  // Files do not change what the command line says.
  BOOST_TEST(length("--max_length 65535 --sequence_parallel_size 4", {{"parallel.context", "2"}}) == "65535");
}

BOOST_AUTO_TEST_CASE(experts_that_are_no_linear_layers_have_no_adapters) {
  const auto targets = [](const std::string& model, const std::string& more = "") {
    return value(settings("t.sh", "swift sft --max_length 512 --model " + model + " " + more + "\n"),
                 "lora.targets");
  };
  const std::string attention = R"(["q_proj", "k_proj", "v_proj", "o_proj"])";
  BOOST_TEST(targets("Qwen/Qwen3-30B-A3B") == attention);
  BOOST_TEST(targets("mistralai/Mixtral-8x7B-v0.1", "--target_modules all-linear") == attention);
  // peft finds those of models that have matrices of the same names elsewhere.
  BOOST_TEST(targets("deepseek-ai/DeepSeek-V2-Lite") == "all-linear");
  BOOST_TEST(targets("Qwen/Qwen2.5-0.5B") == "all-linear");
  BOOST_TEST(targets("Qwen/Qwen3-30B-A3B", "--target_modules q_proj up_proj") == R"(["q_proj", "up_proj"])");
  // The model of the command line.
  const auto s =
      settings("t.sh", "swift sft --max_length 512 --model x/y\n", {{"model.preset", "qwen3-30b-a3b", ""}});
  BOOST_TEST(value(s, "lora.targets") == attention);
}

BOOST_AUTO_TEST_CASE(options_of_commands_that_do_not_train_are_left_out) {
  const auto s = settings("t.sh",
                          "swift rollout --model Qwen/Qwen2.5-7B --max_length 64 &\n"
                          "swift sft --model Qwen/Qwen2.5-0.5B --max_length 512\n"
                          "swift export --adapters x --model Qwen/Qwen2.5-1.5B\n"
                          "NPROC_PER_NODE=8 CUDA_VISIBLE_DEVICES=0 \\\n  swift infer --model out\n");
  BOOST_TEST(value(s, "model.preset") == "qwen2.5-0.5b");
  BOOST_TEST(value(s, "parallel.data") != "8");
  BOOST_TEST(value(s, "data.seq_len") == "512");
  for (const char* program : {"python swift/cli/infer.py", "torchrun /src/swift/cli/merge_lora.py"})
    BOOST_TEST(value(settings("t.sh", "swift sft --model Qwen/Qwen2.5-0.5B --max_length 512\n" +
                                          std::string(program) + " --model out --max_length 64\n"),
                     "data.seq_len") == "512",
               program);
}

BOOST_AUTO_TEST_CASE(megatron_of_ms_swift_has_the_arguments_of_megatron_and_own_defaults) {
  const std::string job = "NPROC_PER_NODE=8 megatron sft --model Qwen/Qwen2.5-7B --max_length 4096 ";
  auto s = settings("t.sh", job + "\n");
  for (const auto& [key, expected] : Settings{{"plan.framework", "megatron"},
                                              {"model.preset", "qwen2.5-7b"},
                                              {"parallel.data", "8"},
                                              {"train.micro_batch", "1"},
                                              {"train.grad_accum", "2"},
                                              {"train.recompute", "selective"},
                                              {"parallel.zero", "1"},
                                              {"plan.attention", "flash"},
                                              {"plan.cross_entropy", "plain"},
                                              {"plan.compiled_loss", "true"},
                                              {"plan.rope_fusion", "false"},
                                              {"train.precision", "bf16"},
                                              {"lora.rank", ""}})
    BOOST_TEST(value(s, key) == expected, key << " = " << value(s, key));
  s = settings("t.sh", job +
                           "--tuner_type lora --tensor_model_parallel_size 4 --sequence_parallel true "
                           "--recompute_granularity full --recompute_method uniform --recompute_num_layers 2 "
                           "--cross_entropy_loss_fusion true --cross_entropy_fusion_impl te "
                           "--attention_backend flash_3 --micro_batch_size 2 --global_batch_size 32\n");
  for (const auto& [key, expected] : Settings{{"parallel.tensor", "4"},
                                              {"parallel.sequence", "true"},
                                              {"parallel.data", "2"},
                                              {"train.recompute", "full"},
                                              {"train.recompute_every", "2"},
                                              {"train.grad_accum", "8"},
                                              {"plan.cross_entropy", "in-place"},
                                              {"plan.compiled_loss", ""},
                                              {"plan.attention", "flash"},
                                              {"lora.rank", "8"},
                                              {"lora.alpha", "32"},
                                              {"lora.base", "bf16"},
                                              {"lora.targets", "all-linear"}})
    BOOST_TEST(value(s, key).starts_with(expected), key << " = " << value(s, key));
  BOOST_TEST((fate("t.sh", job + "--dataset a b --no_save_optim true\n", "no_save_optim").first ==
              KeyUse::kWithoutEffect));
  BOOST_TEST((fate("t.sh", job + "--split_dataset_ratio 0.01\n", "split_dataset_ratio").first ==
              KeyUse::kWithoutEffect));
  BOOST_TEST((fate("t.sh", job + "--recompute_granularty full\n", "recompute_granularty").second ==
              "did you mean recompute_granularity?"));
  // A model by name does not say how many layers the stages divide.
  for (const char* key : {"num_layers_per_virtual_pipeline_stage", "account_for_loss_in_pipeline_split"}) {
    const std::string value_of_key = std::string(key).starts_with("num") ? " 3\n" : " true\n";
    BOOST_TEST((fate("t.sh", job + "--pipeline_model_parallel_size 4 --" + key + value_of_key, key).first ==
                KeyUse::kNotModelled),
               key);
  }
  // Muon has no distributed optimizer; types of a model are those of its main weights.
  BOOST_TEST(value(settings("t.sh", job + "--optimizer muon\n"), "parallel.zero") == "0");
  BOOST_TEST(value(settings("t.sh", job + "--torch_dtype float16\n"), "train.precision") == "fp16");
  BOOST_TEST(value(settings("t.sh", job + "--target_modules linear_qkv linear_fc2 --tuner_type lora\n"),
                   "lora.targets") == "[\"q_proj\", \"k_proj\", \"v_proj\", \"down_proj\"]");
  // Experts have no tensor parallelism of their own by default.
  s = settings("t.sh", job + "--tensor_model_parallel_size 2 --expert_model_parallel_size 8\n");
  BOOST_TEST(value(s, "parallel.expert") == "8");
  BOOST_TEST(value(s, "plan.expert_tensor") == "1");
  s = settings("t.sh", job + "--tensor_model_parallel_size 4\n");
  BOOST_TEST(value(s, "plan.expert_tensor") == "1");  // each rank has all experts whole
  BOOST_TEST(value(settings("t.sh", job), "plan.expert_tensor") == "");
  s = settings("t.sh", job +
                           "--tensor_model_parallel_size 2 --expert_model_parallel_size 4 "
                           "--expert_tensor_parallel_size 2\n");
  BOOST_TEST(value(s, "parallel.expert") == "4");
  BOOST_TEST(value(s, "plan.expert_tensor") == "");
  const std::string preferences = "NPROC_PER_NODE=8 megatron rlhf --model Qwen/Qwen2.5-7B --max_length 64\n";
  BOOST_TEST((fate("t.sh", preferences, "megatron rlhf").first == KeyUse::kNotModelled));
  // The same options in a file.
  s = settings("a.yaml",
               "model: Qwen/Qwen2.5-7B\ntuner_type: lora\nmax_length: 2048\ntensor_model_parallel_size: 2\n"
               "recompute_granularity: full\n",
               {{"parallel.data", "2", ""}});
  BOOST_TEST(value(s, "plan.framework") == "megatron");
  BOOST_TEST(value(s, "parallel.tensor") == "2");
  // A script starts one process unless it says how many; a file does not say it.
  const std::string alone = "megatron sft --model Qwen/Qwen2.5-7B --max_length 4096 ";
  BOOST_TEST(value(settings("t.sh", alone + "\n"), "parallel.data") == "1");
  BOOST_TEST(value(settings("t.sh", alone + "--fp8_format hybrid --fp8_param_gather true\n"),
                   "parallel.zero") == "1");
  BOOST_TEST(error_of("t.sh", alone + "--tensor_model_parallel_size 2\n").find("how many devices") !=
             std::string::npos);
  BOOST_TEST(error_of("a.yaml", "model: Qwen/Qwen2.5-7B\nmax_length: 64\nrecompute_granularity: full\n")
                 .find("how many devices") != std::string::npos);
  for (const auto& [options, expected] : Settings{{"--tuner_type dora", "full, lora or lora_llm"},
                                                  {"--torch_dtype int8", "bfloat16, float16 or float32"},
                                                  {"--attention_backend sdpa", "flash, fused, unfused"},
                                                  {"--optimizer lamb", "adam, sgd, muon"},
                                                  {"--recompute_granularity some", "one of full, selective"}})
    BOOST_TEST(error_of("t.sh", job + options + "\n").find(expected) != std::string::npos, options);
}

BOOST_AUTO_TEST_CASE(the_configuration_of_accelerate_launch_is_read) {
  const testing::Folder folder;
  const auto write = [&](const char* name, const std::string& text) {
    std::ofstream(folder.path() / name) << text;
    return (folder.path() / name).string();
  };
  write("fsdp.json",
        R"({"compute_environment": "LOCAL_MACHINE", "distributed_type": "FSDP", "num_processes": 2,
    "mixed_precision": "bf16", "fsdp_config": {"fsdp_version": 2, "fsdp_reshard_after_forward": true,
    "fsdp_activation_checkpointing": true}})");
  const std::string script =
      write("train.sh",
            "accelerate launch --config_file fsdp.json swift/cli/sft.py --model Qwen/Qwen2.5-0.5B "
            "--tuner_type lora --max_length 64 --gradient_checkpointing false\n");
  const testing::Settings s = testing::by_key(framework_files::read_files({script}, {}));
  BOOST_TEST(testing::value(s, "parallel.data") == "2");
  BOOST_TEST(testing::value(s, "parallel.zero") == "3");
  BOOST_TEST(testing::value(s, "plan.fsdp_version") == "2");
  // By accelerate, although the Trainer recomputes nothing.
  BOOST_TEST(testing::value(s, "train.recompute") == "full");
}

BOOST_AUTO_TEST_CASE(several_devices_of_one_process_are_noted) {
  const auto noted = [](const std::string& variables, const std::string& more = "") {
    const std::string text =
        variables + " swift sft --model Qwen/Qwen2.5-0.5B --max_length 64 " + more + "\n";
    return fate("t.sh", text, "CUDA_VISIBLE_DEVICES", {{"parallel.data", "2"}}).first == KeyUse::kNotModelled;
  };
  BOOST_TEST(noted("CUDA_VISIBLE_DEVICES=0,1"));
  BOOST_TEST(noted("NPROC_PER_NODE=2 CUDA_VISIBLE_DEVICES=0,1,2,3"));
  BOOST_TEST(!noted("CUDA_VISIBLE_DEVICES=0"));
  BOOST_TEST(!noted("NPROC_PER_NODE=2 CUDA_VISIBLE_DEVICES=0,1"));
  BOOST_TEST(!noted("CUDA_VISIBLE_DEVICES=$DEVICES"));
  BOOST_TEST(!noted("CUDA_VISIBLE_DEVICES=0,1", "--deepspeed zero2"));
}

BOOST_AUTO_TEST_CASE(a_script_that_names_the_file_of_its_options_is_an_error_that_names_it) {
  BOOST_TEST(
      error_of("t.sh", "megatron rlhf --use_ray true --config \"$DIR/grpo.yaml\"\n") ==
      "t.sh:1: config = $DIR/grpo.yaml: the options of this run are in that file (give it instead: --from "
      "grpo.yaml)");
  BOOST_TEST(
      error_of("t.sh", "megatron sft --config jobs/sft.yaml --lr 1e-5\n") ==
      "t.sh:1: config = jobs/sft.yaml: the options of this run are in that file (give it instead: --from "
      "jobs/sft.yaml)");
}

BOOST_AUTO_TEST_CASE(cached_data_is_no_misspelt_option) {
  const std::string script =
      "swift sft --model Qwen/Qwen2.5-0.5B --max_length 64 --cached_dataset a --cached_val_dataset b\n";
  for (const char* key : {"cached_dataset", "cached_val_dataset"})
    BOOST_TEST((fate("t.sh", script, key).first == KeyUse::kWithoutEffect), key);
}

BOOST_AUTO_TEST_SUITE_END()
