// Scripts of ms-swift: what its options mean as settings of a run file, and its defaults.
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
                             {"plan.attention", "flash @21"},
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
  // A path is a file of DeepSpeed.
  BOOST_TEST(error_of("t.sh", job + "--deepspeed ds/none.json\n").find("no such file") != std::string::npos);
}

BOOST_AUTO_TEST_SUITE_END()
