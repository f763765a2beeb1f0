// core/framework_files: shell scripts that start training by transformers, LLaMA-Factory and scripts around
// the Trainer, with the options of torchrun, deepspeed and accelerate launch.
#include <boost/test/unit_test.hpp>
#include <filesystem>

#include "tests/core/framework_files/settings_of.hpp"

using namespace trainhost;
using framework_files::read_files;
using runfile::KeyUse;
using testing::by_key;
using testing::error_of;
using testing::fate;
using testing::Folder;
using testing::read_text;
using testing::Settings;
using testing::settings;
using testing::value;

namespace {

std::string write_below(const std::filesystem::path& path, const std::string& text) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path) << text;
  return path.string();
}

const std::string kTrainer =
    "--model_name_or_path Qwen/Qwen2.5-0.5B --per_device_train_batch_size 4 --model_max_length 1024";

}  // namespace

BOOST_AUTO_TEST_SUITE(framework_files_scripts)

BOOST_AUTO_TEST_CASE(options_of_a_script_are_training_arguments) {
  const auto s = settings(
      "t.sh",
      "#!/bin/bash\nGPUS=4\ntorchrun --nproc_per_node=$GPUS --master_port=20001 train.py \\\n"
      "  --model_name_or_path Qwen/Qwen2.5-0.5B --bf16 True --tf32 True \\\n"
      "  --per-device-train-batch-size 2 --gradient_accumulation_steps 16 \\\n"
      "  --fsdp \"full_shard auto_wrap\" --fsdp_transformer_layer_cls_to_wrap 'Qwen2DecoderLayer' \\\n"
      "  --model_max_length 2048 --gradient_checkpointing True --lazy_preprocess False\n");
  BOOST_TEST(s.at("plan.framework") == "transformers");
  BOOST_TEST(s.at("model.preset") == "qwen2.5-0.5b @4");
  BOOST_TEST(s.at("parallel.data") == "4 @3");
  BOOST_TEST(s.at("parallel.zero") == "3 @6");
  BOOST_TEST(s.at("train.micro_batch") == "2 @5");
  BOOST_TEST(s.at("train.grad_accum") == "16 @5");
  BOOST_TEST(s.at("train.precision") == "bf16 @4");
  BOOST_TEST(s.at("train.recompute") == "full @7");
  BOOST_TEST(s.at("data.seq_len") == "2048 @7");
}

BOOST_AUTO_TEST_CASE(a_script_of_llama_factory_is_told_by_its_options) {
  const auto s =
      settings("f.sh",
               "llamafactory-cli train --stage sft --finetuning_type lora --template qwen \\\n"
               "  --model_name_or_path Qwen/Qwen2.5-0.5B --lora_target all --cutoff_len 512 --bf16\n");
  BOOST_TEST(s.at("plan.framework") == "llama-factory");
  BOOST_TEST(s.at("data.seq_len") == "512 @2");
  BOOST_TEST(value(s, "lora.targets") == "all-linear");
  // Options of the launcher belong to the script too.
  BOOST_TEST(
      settings("f.sh",
               "torchrun --nproc_per_node 2 src/train.py --finetuning_type full --model_name_or_path gpt2\n")
          .at("parallel.data") == "2 @1");
}

BOOST_AUTO_TEST_CASE(files_that_a_script_names_are_read_from_a_folder_above_it) {
  const Folder folder;
  write_below(folder.path() / "scripts/zero3.json",
              R"({"bf16": {"enabled": true}, "zero_optimization": {"stage": 3}})");
  const std::string job =
      write_below(folder.path() / "scripts/v1/t.sh",
                  "deepspeed --num_gpus 8 train.py --deepspeed ./scripts/zero3.json " + kTrainer + "\n");
  auto s = by_key(read_files({job}, {}));
  BOOST_TEST(s.at("plan.framework") == "deepspeed");
  BOOST_TEST(s.at("parallel.zero") == "3 @1");
  BOOST_TEST(s.at("parallel.data") == "8 @1");
  write_below(
      folder.path() / "cfg/fsdp.yaml",
      "distributed_type: FSDP\nnum_processes: 2\nmixed_precision: bf16\nfsdp_config:\n  fsdp_version: 2\n");
  const std::string other =
      write_below(folder.path() / "run/t.sh",
                  "accelerate launch --config_file \"cfg/fsdp.yaml\" train.py " + kTrainer + "\n");
  s = by_key(read_files({other}, {}));
  BOOST_TEST(s.at("parallel.data") == "2 @2");
  BOOST_TEST(value(s, "plan.fsdp_version") == "2");
}

BOOST_AUTO_TEST_CASE(accelerate_launch_switches_deepspeed_on) {
  const std::string launch =
      "accelerate launch --mixed_precision bf16 --num_processes 2 --use_deepspeed train.py ";
  auto s = settings("a.sh", launch + kTrainer + "\n");
  BOOST_TEST(s.at("plan.framework") == "deepspeed");
  BOOST_TEST(s.at("parallel.zero") == "2");
  BOOST_TEST(s.at("plan.weights") == "bf16");
  BOOST_TEST(s.at("plan.master") == "fp32");
  s = settings("a.sh", "accelerate launch --use_fsdp --num_processes 2 --fsdp_offload_params true train.py " +
                           kTrainer + "\n");
  BOOST_TEST(value(s, "parallel.zero") == "3");
  BOOST_TEST(value(s, "plan.offload_weights") == "cpu");
}

BOOST_AUTO_TEST_CASE(a_number_of_devices_that_the_script_does_not_say_is_asked_for_where_it_matters) {
  const std::string unknown = "torchrun --nproc_per_node $(nvidia-smi -L | wc -l) train.py " + kTrainer;
  BOOST_TEST(value(settings("t.sh", unknown + "\n"), "parallel.data") == "");
  const auto [use, note] = fate("t.sh", unknown + "\n", "nproc_per_node");
  BOOST_TEST((use == KeyUse::kNotModelled));
  BOOST_TEST(note == "the script does not say how many");
  BOOST_TEST(error_of("t.sh", unknown + " --fsdp full_shard\n").find("--set parallel.data=8") !=
             std::string::npos);
}

BOOST_AUTO_TEST_CASE(what_a_script_does_not_say_is_not_guessed) {
  const auto devices = [](const std::string& launcher) {
    return value(settings("t.sh", launcher + " train.py --bf16 True " + kTrainer + "\n"), "parallel.data");
  };
  BOOST_TEST(devices("torchrun --nnodes 2 --nproc_per_node 8") == "16");
  BOOST_TEST(devices("torchrun --nnodes $NNODES --nproc_per_node 8") == "");  // of an unknown number of nodes
  const auto fused = [](const std::string& more) {
    const std::string text =
        "accelerate launch finetune.py --dataset_mixer_list a 1 " + more + " " + kTrainer + "\n";
    return value(settings("t.sh", text), "plan.optimizer_implementation");
  };
  BOOST_TEST(fused("") == "fused");
  BOOST_TEST(fused("--fused_optimizer False") == "foreach");
  // A method whose name is not known is reported, and no error.
  BOOST_TEST(fate("t.sh", "python t.py --reward_model_path $RM " + kTrainer + "\n", "reward_model_path")
                 .second.find("another training method") != std::string::npos);
  // Alternatives of a case are no options.
  const std::string shell =
      "case $1 in\n--model_name_or_path|-m) M=$2;;\nesac\npython t.py --bf16 True " + kTrainer + "\n";
  BOOST_TEST(value(settings("t.sh", shell), "train.precision") == "bf16");
}

BOOST_AUTO_TEST_CASE(adapters_of_known_scripts_have_their_defaults) {
  // FastChat: always, on q and v; 4 bits with q_lora.
  auto s = settings("t.sh", "deepspeed train_lora.py --q_lora True --bf16 True " + kTrainer + "\n");
  BOOST_TEST(s.at("lora.rank") == "8");
  BOOST_TEST(s.at("lora.targets") == R"(["q_proj", "v_proj"])");
  BOOST_TEST(s.at("lora.base") == "nf4 @1");
  // LLaVA: all linear layers, where lora_enable says so.
  s = settings("t.sh",
               "deepspeed t.py --lora_enable True --lora_r 128 --bits 4 --bf16 True " + kTrainer + "\n");
  BOOST_TEST(s.at("lora.rank") == "128 @1");
  BOOST_TEST(s.at("lora.targets") == "all-linear");
  BOOST_TEST(s.at("lora.double_quant") == "true");
  BOOST_TEST(value(settings("t.sh", "deepspeed t.py --lora_r 128 " + kTrainer + "\n"), "lora.rank") == "");
  // Qwen: base models train the embedding and the head whole.
  s = settings("t.sh", "python finetune.py --lazy_preprocess True --use_lora --bf16 True " + kTrainer + "\n");
  BOOST_TEST(s.at("lora.rank") == "64");
  BOOST_TEST(s.at("lora.modules_to_save") == R"(["embed_tokens", "lm_head"])");
  BOOST_TEST(
      value(settings("t.sh",
                     "python finetune.py --lazy_preprocess True --use_lora --bf16 True --model_name_or_path "
                     "Qwen/Qwen-7B-Chat --model_max_length 512 --per_device_train_batch_size 1\n"),
            "lora.modules_to_save") == "");
  // The example of PEFT, with TRL.
  s = settings("t.sh",
               "python train.py --model_name_or_path gpt2 --max_length 512 --use_peft_lora True --lora_r 8 "
               "--lora_target_modules all-linear --use_4bit_quantization True --use_nested_quant True\n");
  BOOST_TEST(s.at("lora.targets") == "all-linear @1");
  BOOST_TEST(s.at("lora.base") == "nf4 @1");
  BOOST_TEST(s.at("lora.double_quant") == "true @1");
}

BOOST_AUTO_TEST_CASE(open_instruct_loads_models_in_bf16) {
  const std::string job =
      "model_name_or_path: Qwen/Qwen2.5-0.5B\nmax_seq_length: 4096\nwith_tracking: true\n"
      "dataset_mixer:\n  a/b: 1.0\nper_device_train_batch_size: 1\n";
  auto s = settings("o.yaml", job);
  BOOST_TEST(s.at("train.precision") == "bf16");
  BOOST_TEST(s.at("plan.weights") == "bf16");
  BOOST_TEST(s.at("plan.master") == "none");
  BOOST_TEST((fate("o.yaml", job, "dataset_mixer.a/b").first == KeyUse::kWithoutEffect));
  s = settings("o.yaml", job + "use_qlora: true\nlora_rank: 32\n");
  BOOST_TEST(s.at("lora.rank") == "32 @8");
  BOOST_TEST(s.at("lora.base") == "nf4 @7");
}

BOOST_AUTO_TEST_CASE(deepspeed_chat_has_its_own_defaults) {
  const std::string job =
      "deepspeed main.py --data_split 2,4,4 --model_name_or_path facebook/opt-1.3b --zero_stage 2 --offload ";
  auto s = settings("t.sh", job + "--deepspeed\n", {{"parallel.data", "8", ""}});
  BOOST_TEST(value(s, "parallel.zero") == "2");
  BOOST_TEST(value(s, "plan.offload_optimizer") == "cpu");
  BOOST_TEST(value(s, "plan.offload_weights") == "");
  BOOST_TEST(s.at("train.precision") == "fp16");
  BOOST_TEST(s.at("data.seq_len") == "512");
  BOOST_TEST(s.at("train.micro_batch") == "16");
  const std::vector<runfile::Override> ranks{{"parallel.data", "8", ""}};
  s = settings("t.sh", job + "--lora_dim 128 --only_optimize_lora\n", ranks);
  BOOST_TEST(value(s, "lora.rank") == "128");
  BOOST_TEST(value(s, "lora.targets") == "all-linear");
  // The other weights are trained too without only_optimize_lora.
  const auto lines = [&](const std::string& options) {
    return std::ranges::count_if(read_text("t.sh", job + options, ranks).keys, [](const runfile::FileKey& k) {
      return k.key == "lora_dim" && k.use == KeyUse::kNotModelled && k.needs_more;
    });
  };
  BOOST_TEST(lines("--lora_dim 128\n") == 1);
  BOOST_TEST(lines("--lora_dim 128 --only_optimize_lora\n") == 0);
}

BOOST_AUTO_TEST_CASE(moments_under_deepspeed_have_the_type_of_master_weights) {
  const Folder folder;
  const std::string job =
      write_below(folder.path() / "t.yaml",
                  "model_name_or_path: gpt2\nmax_seq_length: 512\nbf16: true\ndtype: bfloat16\n");
  const std::string zero = write_below(folder.path() / "z.json", R"({"bf16": {"enabled": true},
    "zero_optimization": {"stage": 3}})");
  BOOST_TEST(value(by_key(read_files({job}, {})), "plan.moments") == "bf16");
  const auto s = by_key(read_files({job, zero}, {{"parallel.data", "8", ""}}));
  BOOST_TEST(value(s, "plan.master") == "fp32");
  BOOST_TEST(value(s, "plan.moments") == "");
}

BOOST_AUTO_TEST_CASE(losses_of_other_trainers_are_another_method) {
  const std::string job = "model_name_or_path: gpt2\nmax_length: 512\nbf16: true\nloss_type: ";
  for (const char* loss : {"dr_grpo", "kto", "[sigmoid, grpo]"})
    BOOST_TEST((fate("t.yaml", job + loss + "\n", "loss_type").first == KeyUse::kNotModelled), loss);
  for (const char* loss : {"sigmoid", "ipo", "[sigmoid, bco_pair]"})
    BOOST_TEST(value(settings("t.yaml", job + loss + "\n"), "plan.method") == "dpo", loss);
  BOOST_TEST((fate("t.yaml", job + "nll\n", "loss_type").first == KeyUse::kUsed));
  BOOST_TEST(
      error_of("t.yaml", job + "sigmoidal\n").find("loss_type = \"sigmoidal\": expected a loss of TRL") !=
      std::string::npos);
}

BOOST_AUTO_TEST_CASE(a_note_says_what_is_planned_of_another_method) {
  const auto note = [](const std::string& text, const char* key) {
    const auto [use, why] = fate("t.yaml", text, key);
    BOOST_TEST((use == KeyUse::kNotModelled), key);
    return why;
  };
  const std::string trl = "model_name_or_path: gpt2\nmax_length: 512\nbf16: true\n";
  BOOST_TEST(
      note(trl + "num_generations: 8\n", "num_generations").starts_with("reinforcement learning; planned"));
  BOOST_TEST((fate("t.yaml", trl + "reward_funcs: []\n", "reward_funcs").first == KeyUse::kUsed));
  const std::string axolotl = "base_model: gpt2\nmicro_batch_size: 1\n";
  BOOST_TEST(
      note(axolotl + "reward_model: true\n", "reward_model").starts_with("a reward model has two sequences"));
  const std::string factory = "model_name_or_path: gpt2\nfinetuning_type: full\nstage: ";
  BOOST_TEST(note(factory + "kto\n", "stage").starts_with("a reference model, unless adapters are trained"));
  BOOST_TEST((fate("t.yaml", factory + "pt\n", "stage").first == KeyUse::kUsed));
}

BOOST_AUTO_TEST_CASE(files_of_dpo_are_planned_with_pairs_and_a_reference) {
  const auto method = [](const std::string& text) {
    const Settings s = settings("t.yaml", text);
    BOOST_TEST(error_of("t.yaml", text) == "");
    return value(s, "plan.method") + " " + value(s, "plan.reference_model");
  };
  const std::string trl = "model_name_or_path: gpt2\nmax_length: 512\nbf16: true\n";
  BOOST_TEST(method(trl) == " ");
  BOOST_TEST(method(trl + "beta: 0.1\n") == "dpo ");
  BOOST_TEST(method(trl + "beta: 0.0\n") == " ");
  BOOST_TEST(method(trl + "beta: 0.04\nnum_generations: 8\n") == " ");  // of GRPO
  BOOST_TEST(method(trl + "loss_type: [sigmoid, sft]\nbeta: 0.1\n") == "dpo ");
  BOOST_TEST(method(trl + "beta: 0.1\nloss_type: simpo\n") == "dpo false");
  // Of KTO, GRPO, CPO and distillation, which have the key too.
  for (const char* other : {"loss_type: kto", "loss_type: dapo", "loss_type: [dr_grpo]",
                            "desirable_weight: 1.0", "undesirable_weight: 1.0", "epsilon_high: 0.28",
                            "use_vllm: true", "num_iterations: 2", "reward_funcs: [accuracy]",
                            "cpo_alpha: 0.5", "simpo_gamma: 0.5", "teacher_model_name_or_path: gpt2"}) {
    const std::string job = trl + "beta: 0.1\n" + other + "\n";
    BOOST_TEST(method(job) == " ", other);
    BOOST_TEST((fate("t.yaml", job, "beta").first == KeyUse::kNotModelled), other);
    BOOST_TEST(fate("t.yaml", job, "beta").second.starts_with("another training method"), other);
  }
  BOOST_TEST(fate("t.yaml", trl + "beta: 0.1\n", "beta").second.find("taken as DPO") != std::string::npos);
  BOOST_TEST((fate("t.yaml", trl + "loss_type: ipo\nbeta: 0.1\n", "beta").first == KeyUse::kUsed));
  BOOST_TEST(method(trl + "loss_type: ipo\nprecompute_ref_log_probs: true\n") == "dpo false");
  const std::string axolotl = "base_model: gpt2\nmicro_batch_size: 1\ngradient_checkpointing: true\n";
  BOOST_TEST(method(axolotl + "rl: dpo\n") == "dpo ");
  BOOST_TEST(method(axolotl + "rl: orpo\n") == "dpo false");
  BOOST_TEST(method(axolotl + "rl: false\n") == " ");
  // Its checkpoints are reentrant only without another method and frozen weights.
  BOOST_TEST(value(settings("t.yaml", axolotl + "rl: dpo\n"), "plan.checkpoint_reentrant") == "false");
  BOOST_TEST(value(settings("t.yaml", axolotl + "unfrozen_parameters: [lm_head]\n"),
                   "plan.checkpoint_reentrant") == "false");
  BOOST_TEST(value(settings("t.yaml", axolotl), "plan.checkpoint_reentrant") == "");
  const std::string factory = "model_name_or_path: gpt2\nfinetuning_type: full\nstage: dpo\n";
  BOOST_TEST(method(factory) == "dpo ");
  BOOST_TEST(method(factory + "pref_loss: simpo\n") == "dpo false");
  BOOST_TEST(method(factory + "pref_loss: sigmoid\n") == "dpo ");
}

BOOST_AUTO_TEST_CASE(keys_of_scripts_are_reported_as_they_are_written) {
  const std::string script =
      "torchrun --nproc-per-node 2 train.py --model_name_or_path gpt2 --per-device-train-batch-size 2 "
      "--max-length 512 --gradient-acumulation-steps 4 --bf16 maybe\n";
  BOOST_TEST(error_of("t.sh", script).find("bf16 = ") != std::string::npos);
  const std::string job = script.substr(0, script.find(" --bf16")) + "\n";
  const auto s = testing::read_text("t.sh", job);
  std::string keys;
  for (const runfile::FileKey& k : s.keys) keys += k.key + " ";
  BOOST_TEST(keys ==
             "nproc-per-node model_name_or_path per-device-train-batch-size max-length "
             "gradient-acumulation-steps ");
  BOOST_TEST(fate("t.sh", job, "gradient-acumulation-steps").second ==
             "did you mean gradient-accumulation-steps?");
  for (const runfile::Override& o : s.settings)
    if (o.key == "train.micro_batch") BOOST_TEST(o.option == "per-device-train-batch-size");
  BOOST_TEST(error_of("t.sh", job.substr(0, job.size() - 1) + " --per-device-train-batch-size=4\n")
                 .find("per-device-train-batch-size means train.micro_batch = 4") != std::string::npos);
  BOOST_TEST(value(testing::by_key(s), "parallel.data") == "2");
}

BOOST_AUTO_TEST_CASE(paged_moments_are_left_out_where_the_replay_can) {
  const std::string job = "base_model: gpt2\nmicro_batch_size: 1\noptimizer: paged_adamw_8bit\n";
  BOOST_TEST(settings("a.yaml", job).at("plan.optimizer_paged") == "true @3");
  const std::string sharded = job + "fsdp: [full_shard]\n";
  const std::vector<runfile::Override> ranks{{"parallel.data", "2", ""}};
  BOOST_TEST(value(settings("a.yaml", sharded, ranks), "plan.optimizer_paged") == "");
  BOOST_TEST(error_of("a.yaml", sharded, ranks) == "");
}

// github.com/artidoro/qlora: adapters over 4 bits are its default, and its rows are a source and a target.
BOOST_AUTO_TEST_CASE(the_script_of_qlora_trains_adapters_by_default) {
  const std::string script =
      "python qlora.py --model_name_or_path huggyllama/llama-7b --lora_alpha 16 --lora_modules all "
      "--double_quant "
      "--quant_type nf4 --bf16 --bits 4 --gradient_checkpointing --source_max_len 16 --target_max_len 512 "
      "--per_device_train_batch_size 2 --gradient_accumulation_steps 8 --max_memory_MB 80000 --dataset "
      "oasst1\n";
  const Settings s = settings("t.sh", script);
  for (const auto& [key, expected] : {std::pair{"data.seq_len", "528"},
                                      {"lora.rank", "64"},
                                      {"lora.base", "nf4"},
                                      {"lora.targets", "all-linear"},
                                      {"lora.double_quant", "true"},
                                      {"train.recompute", "full"},
                                      {"train.micro_batch", "2"},
                                      {"train.grad_accum", "8"}})
    BOOST_TEST(value(s, key) == expected, key << " = " << value(s, key));
  for (const char* key : {"lora_modules", "max_memory_MB", "dataset"})
    BOOST_TEST((fate("t.sh", script, key).first == KeyUse::kWithoutEffect), key);
  BOOST_TEST(
      value(settings("t.sh",
                     "python qlora.py --model_name_or_path huggyllama/llama-7b --bits 16 --full_finetune "
                     "--source_max_len 1024 --per_device_train_batch_size 1\n"),
            "lora.rank") == "");
}

// As tutorials write them; without adapters 4 bits mean nothing.
BOOST_AUTO_TEST_CASE(a_file_of_ones_own_script_with_4_bits_trains_adapters) {
  const Settings s =
      settings("t.yaml",
               "model_name: mistralai/Mistral-7B-v0.1\nuse_4bit: true\nuse_nested_quant: true\n"
               "lora_r: 64\nper_device_train_batch_size: 4\nmax_seq_length: 512\nbf16: true\n");
  BOOST_TEST(value(s, "lora.base") == "nf4");
  BOOST_TEST(value(s, "lora.rank") == "64");
  BOOST_TEST(value(s, "lora.double_quant") == "true");
}

BOOST_AUTO_TEST_CASE(a_script_of_another_program_is_named) {
  BOOST_TEST(error_of("t.sh", "deepspeed --module openrlhf.cli.train_sft --pretrain m --max_len 8\n")
                 .starts_with("t.sh:1: this script starts OpenRLHF, whose options --from does not know"));
  BOOST_TEST(error_of("t.sh", "accelerate launch --num_processes 2 src/train.py jobs/sft.yaml\n") ==
             "t.sh:1: this script has no options of a training run, but names files that may have them (give "
             "those: --from jobs/sft.yaml)");
  BOOST_TEST(error_of("t.sh", "# swift sft\nswift infer --model a --stream true --max_new_tokens 8\n")
                 .starts_with(
                     "t.sh:1: this script starts `swift infer`, which trains nothing (give the files of a"));
  // A script that converts a model names one, too.
  BOOST_TEST(error_of("t.sh", "python expand.py --model_name_or_path gpt2 --output_dir x --num_expand 8\n")
                 .starts_with("t.sh:1: no option of this script is one of a training run"));
  BOOST_TEST(error_of("t.sh", "python serve.py --port 80\n")
                 .starts_with("t.sh:1: no option of this script is one of a training run"));
}

BOOST_AUTO_TEST_CASE(options_that_a_script_reads_itself_do_not_replace_its_values) {
  const std::string job =
      "MODEL=\"Qwen/Qwen2.5-0.5B\"\nwhile [[ \"$1\" != \"\" ]]; do\n  case $1 in\n    -m | --model )\n"
      "      shift\n      MODEL=$1\n      ;;\n  esac\ndone\npython t.py --model_name_or_path $MODEL "
      "--model_max_length 8\n";
  const auto s = read_text("t.sh", job);
  BOOST_TEST(by_key(s).at("model.preset") == "qwen2.5-0.5b @10");
  for (const runfile::FileKey& k : s.keys) BOOST_TEST(k.key != "model");
}

BOOST_AUTO_TEST_CASE(everything_that_is_missing_is_asked_for_at_once) {
  BOOST_TEST(
      error_of("t.yaml", "per_device_train_batch_size: 1\nfsdp: full_shard\n")
          .find("add --model=PRESET or --model=config.json; also needed: --set data.seq_len=2048 --set "
                "parallel.data=8") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(expr_is_computed) {
  const auto accumulated = [](const std::string& value_of_option) {
    return value(settings("t.sh",
                          "n=2\nswift sft --model Qwen/Qwen2.5-0.5B --max_length 64 "
                          "--per_device_train_batch_size 1 --gradient_accumulation_steps " +
                              value_of_option + "\n"),
                 "train.grad_accum");
  };
  BOOST_TEST(accumulated("$(expr 16 / $n)") == "8");
  BOOST_TEST(accumulated("$(expr 16 / 2 / ${n})") == "4");
  BOOST_TEST(accumulated("$(expr 3 \\* $n)") == "6");
  BOOST_TEST(accumulated("$(expr $n '*' \"$n\")") == "4");
  for (const char* unknown : {"$(expr 16 / $m)", "$(expr 16 / 0)", "$(expr length $n)", "$(expr )"})
    BOOST_CHECK_THROW(accumulated(unknown), Error);
}

BOOST_AUTO_TEST_CASE(everything_that_no_file_gives_is_asked_for_at_once) {
  BOOST_TEST(error_of("a.yaml", "compute_environment: LOCAL_MACHINE\nnum_processes: 2\n") ==
             ":0: no file names a known model (add --model=PRESET or --model=config.json; also needed: --set "
             "data.seq_len=2048 --set train.micro_batch=1)");
  BOOST_TEST(
      error_of("a.yml", "base_model: Qwen/Qwen3-30B-A3B\nexpert_parallel_size: 4\n") ==
      "a.yml:2: expert_parallel_size: parallel.expert = 4 divides experts over ranks, but no file says how "
      "many devices there are (for example --set parallel.data=4)");
}

BOOST_AUTO_TEST_CASE(files_of_other_programs_are_named) {
  BOOST_TEST(
      error_of("a.yaml", "parallelism:\n  dp: 2\nmodel:\n  model_config:\n    hidden_size: 64\n") ==
      "a.yaml:1: this looks like a configuration of nanotron, whose keys --from does not know (plan the "
      "same job with --model=MODEL --for=pytorch and --set KEY=VALUE)");
  for (const auto& [text, name] : {std::pair{"trainer:\n  devices: 8\n", "NeMo or Lightning"},
                                   {"MODEL_ARGS:\n  trainer.devices: 8\n", "NeMo"},
                                   {"actor_rollout_ref:\n  model:\n    path: a\n", "verl"}})
    BOOST_TEST(
        error_of("a.yaml", text).find(fmt::format("a configuration of {},", name)) != std::string::npos,
        text);
}

// They name a model too.
BOOST_AUTO_TEST_CASE(recipes_of_torchtune_that_train_nothing_are_named) {
  const std::string model = "model:\n  _component_: torchtune.models.llama3.llama3_8b\n";
  const auto error = [&](const std::string& more) { return error_of("t.yaml", model + more); };
  BOOST_TEST(
      error("max_new_tokens: 300\n") ==
      "t.yaml:3: max_new_tokens without an optimizer: this is a recipe that generates, and trains nothing "
      "(give the files of a training run; --model=MODEL --set plan.mode=inference plans inference)");
  BOOST_TEST(error("tasks: [truthfulqa_mc2]\n").find("a recipe that evaluates") != std::string::npos);
  const std::string quantizer = "quantizer:\n  _component_: torchtune.training.Int8\n";
  BOOST_TEST(error(quantizer).find("a recipe that quantizes") != std::string::npos);
  BOOST_TEST(error(quantizer + "optimizer:\n  _component_: torch.optim.AdamW\n").find("recipe that") ==
             std::string::npos);
}

BOOST_AUTO_TEST_CASE(files_of_llama_factory_that_train_nothing_are_named) {
  const std::string model = "model_name_or_path: Qwen/Qwen2.5-0.5B\ntemplate: qwen\n";
  const auto error = [&](const std::string& more) { return error_of("f.yaml", model + more); };
  BOOST_TEST(
      error("export_dir: out\n") ==
      "f.yaml:3: export_dir: this file exports a model, and trains nothing (give the files of a training "
      "run; --model=MODEL --set plan.mode=inference plans inference)");
  BOOST_TEST(error("infer_backend: vllm\n").find("this file generates") != std::string::npos);
  const std::string predicts = "do_predict: true\nper_device_eval_batch_size: 1\n";
  BOOST_TEST(error(predicts).find("this file predicts") != std::string::npos);
  for (const char* trains : {"do_train: true\n", "per_device_train_batch_size: 1\n"})
    BOOST_TEST(error(predicts + trains) == "", trains);
}

BOOST_AUTO_TEST_CASE(adapters_of_shared_experts_alone_are_not_those_of_all_experts) {
  const std::string text =
      "base_model: NousResearch/Meta-Llama-3-8B\nadapter: lora\nlora_r: 8\n"
      "lora_target_modules: [self_attn.q_proj, shared_expert.up_proj]\n";
  BOOST_TEST(value(settings("a.yml", text), "lora.targets") == "[\"q_proj\"]");
  BOOST_TEST((fate("a.yml", text, "lora_target_modules").first == KeyUse::kNotModelled));
}

BOOST_AUTO_TEST_CASE(a_variable_may_extend_itself) {
  const auto length = [](const std::string& assignments) {
    return value(settings("t.sh", assignments + "swift sft --model Qwen/Qwen2.5-0.5B --max_length ${n} "
                                                "--per_device_train_batch_size 1\n"),
                 "data.seq_len");
  };
  BOOST_TEST(length("n=1\nn=${n}2\nn=\"${n}8\"\n") == "128");
  BOOST_TEST(length("n=1\nnn=3\nn=$n$nn\n") == "13");
  BOOST_CHECK_THROW(length("n=${n}2\n"), Error);  // the environment may have more
  // Options of the earlier value stay.
  const std::string more =
      "A=\"--max_length 64\"\nA=\"$A --learning_rate 1e-4\"\nswift sft --model "
      "Qwen/Qwen2.5-0.5B $A\n";
  BOOST_TEST(value(settings("t.sh", more), "data.seq_len") == "64");
}

BOOST_AUTO_TEST_CASE(all_values_that_a_script_does_not_say_are_asked_for_at_once) {
  const std::string script =
      "python pretrain_gpt.py --num-layers 4 --hidden-size 64 --num-attention-heads 4 --seq-length 64 --bf16 "
      "--vocab-size 100 --micro-batch-size $MBS --tensor-model-parallel-size ${TP} "
      "--num-layers-per-virtual-pipeline-stage $VP --moe-router-topk $K --num-experts 8\n";
  BOOST_TEST(
      error_of("t.sh", script) ==
      "t.sh:1: micro-batch-size = \"$MBS\": the file does not say what this is, nor "
      "tensor-model-parallel-size = \"${TP}\", num-layers-per-virtual-pipeline-stage = \"$VP\", "
      "moe-router-topk = \"$K\" (give them: --set train.micro_batch=VALUE --set parallel.tensor=VALUE --set "
      "parallel.interleave=VALUE; write the value of moe-router-topk in its place)");
  BOOST_TEST(
      error_of("t.sh", script,
               {{"train.micro_batch", "1"}, {"parallel.tensor", "1"}, {"parallel.interleave", "1"}}) ==
      "t.sh:1: moe-router-topk = \"$K\": the file does not say what this is (write the value in its place)");
}

// Branches of which only a run could tell which runs: both are read.
BOOST_AUTO_TEST_CASE(an_option_decides_between_branches_that_contradict_each_other) {
  const std::string script =
      "if [ $AC = full ]; then\n  AC_OPTIONS=\"--recompute-method uniform --recompute-granularity "
      "full\"\nelif [ "
      "$AC = sel ]; then\n  AC_OPTIONS=\"--recompute-activations\"\nfi\n"
      "python pretrain_gpt.py --num-layers 4 --hidden-size 64 --num-attention-heads 4 --seq-length 64 --bf16 "
      "--vocab-size 100 --micro-batch-size 1 --swiglu $AC_OPTIONS\n";
  BOOST_TEST(error_of("t.sh", script)
                 .ends_with("(make both equal, or remove one of them; or give --set train.recompute=VALUE)"),
             error_of("t.sh", script));
  BOOST_TEST(error_of("t.sh", script, {{"train.recompute", "selective"}}) == "");
}

BOOST_AUTO_TEST_CASE(a_model_of_the_command_line_decides_between_branches_of_sizes) {
  const std::string script =
      "if [ $SIZE = 7B ]; then\n  N=\"--num-layers 4 --moe-router-topk 2\"\nelif [ $SIZE = 13B ]; then\n  "
      "N=\"--num-layers 8 --moe-router-topk 4\"\nfi\n"
      "python pretrain_gpt.py --hidden-size $H --num-attention-heads 4 --seq-length 64 --bf16 --vocab-size "
      "100 "
      "--micro-batch-size 1 --swiglu $N\n";
  BOOST_TEST(
      error_of("t.sh", script).ends_with("(make both equal, or remove one of them; or give --model=MODEL)"),
      error_of("t.sh", script));
  BOOST_TEST(error_of("t.sh", script, {{"model.preset", "llama-3.2-1b"}}) == "");
}

BOOST_AUTO_TEST_CASE(files_of_gpt_neox_are_not_those_of_deepspeed) {
  for (const char* key : {"pipe_parallel_size", "pipe-parallel-size"})
    BOOST_TEST(error_of("a.yml", fmt::format("{{\"{}\": 1, \"num-layers\": 12, # comment\n "
                                             "\"zero_optimization\": {{\"stage\": 1}}}}",
                                             key))
                   .starts_with("a.yml:1: this looks like a configuration of GPT-NeoX,"));
}

BOOST_AUTO_TEST_CASE(a_pattern_of_layers_may_have_quotes_inside_a_text) {
  const std::string script =
      "MOE=\"--num-experts 8 --moe-layer-freq '([0]*1+[1]*3)' --moe-token-dispatcher-type $D\"\n"
      "run_cmd=\"python pretrain_gpt.py --num-layers 4 --hidden-size 64 --num-attention-heads 4 --seq-length "
      "64 "
      "--bf16 --vocab-size 100 --micro-batch-size 1 --swiglu --multi-latent-attention "
      "--max-position-embeddings $P $MOE\"\neval $run_cmd\n";
  BOOST_TEST(error_of("t.sh", script) == "");
  BOOST_TEST(value(settings("t.sh", script), "model.config").find("\"first_k_dense_replace\": 1") !=
             std::string::npos);
}

BOOST_AUTO_TEST_SUITE_END()
