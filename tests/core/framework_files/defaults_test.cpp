// core/framework_files: what a framework does where its file says nothing, and what a key means beside
// others. Versions: core/framework_files/README.md.
#include <boost/test/unit_test.hpp>

#include "tests/core/framework_files/settings_of.hpp"

using namespace trainhost;
using runfile::KeyUse;
using testing::by_key;
using testing::fate;
using testing::kModelOf8Ranks;
using testing::settings;
using testing::value;

BOOST_AUTO_TEST_SUITE(framework_files_defaults)

BOOST_AUTO_TEST_CASE(sft_config_of_trl_computes_in_bf16_and_checkpoints_1024_tokens) {
  const std::string job = "model_name_or_path: gpt2\ndataset_name: a/b\n";
  auto s = settings("sft.yaml", job);
  BOOST_TEST(value(s, "train.precision") == "bf16");
  BOOST_TEST(value(s, "plan.weights") == "fp32");
  BOOST_TEST(value(s, "train.recompute") == "full");
  BOOST_TEST(value(s, "data.seq_len") == "1024");
  s = settings("sft.yaml", job + "bf16: false\ngradient_checkpointing: false\nmax_length: 64\n");
  BOOST_TEST(value(s, "train.precision") == "fp32");
  BOOST_TEST(value(s, "train.recompute") == "");
  // Adapters on a base that ModelConfig loads in f32.
  BOOST_TEST(value(settings("sft.yaml", job + "use_peft: true\n"), "lora.base") == "fp32");
  // TRL before 0.20: the defaults of TrainingArguments.
  s = settings("sft.yaml", job + "max_seq_length: 64\n");
  BOOST_TEST(value(s, "train.precision") == "fp32");
  BOOST_TEST(value(s, "train.recompute") == "");
  BOOST_TEST(value(settings("sft.yaml", job + "activation_checkpointing: true\nmax_seq_length: 64\n"),
                   "train.recompute") == "full");
}

BOOST_AUTO_TEST_CASE(files_of_trl_have_the_fused_head_of_its_newest_release) {
  const auto loss = [](const std::string& more,
                       const std::vector<runfile::Override>& options = kModelOf8Ranks) {
    return value(
        settings("sft.yaml", "per_device_train_batch_size: 1\nmax_length: 64\nbf16: true\n" + more, options),
        "plan.cross_entropy");
  };
  BOOST_TEST(loss("") == "fused");
  for (const char* same : {"loss_type: nll\n", "loss_type: dft\n", "loss_type: chunked_nll\n", "beta: 0.1\n",
                           "loss_type: sigmoid\n", "label_smoothing_factor: 0\n", "use_peft: true\n"})
    BOOST_TEST(loss(same) == "fused", same);
  // What computes all logits there, is refused there, or has another trainer.
  for (const char* other :
       {"label_smoothing_factor: 0.1\n", "use_peft: true\nlora_target_modules: [q_proj, lm_head]\n",
        "loss_type: simpo\n", "simpo_gamma: 0.5\n"})
    BOOST_TEST(loss(other) == "plain", other);
  auto release = kModelOf8Ranks;
  release.push_back({"plan.framework_version", "4.57", ""});
  BOOST_TEST(loss("", release) == "plain");
  // An option wins.
  auto older = kModelOf8Ranks;
  older.push_back({"plan.cross_entropy", "plain", ""});
  BOOST_TEST(loss("", older) == "");
  // The kernels of Liger in the layers, and its own loss before TRL 0.20 and in the Trainer.
  const auto s = settings(
      "sft.yaml", "per_device_train_batch_size: 1\nmax_length: 64\nuse_liger_kernel: true\n", kModelOf8Ranks);
  BOOST_TEST(value(s, "plan.cross_entropy") == "fused");
  BOOST_TEST(value(s, "plan.liger_kernels") == "rope,rms_norm,swiglu");
  const std::string trainer = "per_device_train_batch_size: 1\nbf16: true\n";
  BOOST_TEST(value(settings("t.yaml", trainer, kModelOf8Ranks), "plan.cross_entropy") == "plain");
  BOOST_TEST(value(settings("t.yaml", trainer + "use_liger_kernel: true\n", kModelOf8Ranks),
                   "plan.cross_entropy") == "liger");
  BOOST_TEST(value(settings("t.yaml", trainer + "max_seq_length: 64\nloss_type: nll\n", kModelOf8Ranks),
                   "plan.cross_entropy") == "plain");
  BOOST_TEST(value(settings("t.yaml", trainer + "loss_type: nll\n", kModelOf8Ranks), "plan.cross_entropy") ==
             "fused");
}

BOOST_AUTO_TEST_CASE(the_type_of_products_is_that_of_the_file_where_nothing_is_mixed) {
  const auto type = [](const std::string& name, const std::string& text) {
    return value(settings(name, text, kModelOf8Ranks), "plan.quant_compute");
  };
  const std::string trl =
      "per_device_train_batch_size: 1\nmax_length: 64\nuse_peft: true\nmodel_init_kwargs: "
      "{quantization_config: "
      "{load_in_4bit: true, bnb_4bit_compute_dtype: ";
  BOOST_TEST(type("t.yaml", trl + "float16}}\nbf16: false\n") == "fp16");
  BOOST_TEST(type("t.yaml", trl + "torch.bfloat16}}\nbf16: false\n") == "bf16");
  BOOST_TEST(type("t.yaml", trl + "float32}}\nbf16: false\n") == "");
  BOOST_TEST(type("t.yaml", trl + "bfloat16}}\nbf16: true\n") == "");
  const std::string axolotl =
      "base_model: a/b\nadapter: qlora\nload_in_4bit: true\nmicro_batch_size: 1\nsequence_len: 64\n";
  BOOST_TEST(type("a.yaml",
                  axolotl + "bf16: false\nbnb_config_kwargs: {bnb_4bit_compute_dtype: float16}\n") == "fp16");
  BOOST_TEST(type("a.yaml", axolotl + "bf16: true\n") == "");
  // Beside mixed precision in another type.
  BOOST_TEST((fate("t.yaml", trl + "float32}}\nbf16: true\nmodel_name_or_path: gpt2\n",
                   "model_init_kwargs.quantization_config.bnb_4bit_compute_dtype")
                  .first == KeyUse::kNotModelled));
  BOOST_TEST(error_of("t.yaml", trl + "float8}}\n").find("expected bfloat16, float16 or float32") !=
             std::string::npos);
}

BOOST_AUTO_TEST_CASE(the_trainer_of_transformers_5_trains_a_model_in_the_type_of_its_checkpoint) {
  const auto weights = [](const std::string& more) {
    const auto s = settings("t.yaml", "per_device_train_batch_size: 1\n" + more, kModelOf8Ranks);
    return value(s, "train.precision") + " " + value(s, "plan.weights") + " " + value(s, "plan.moments") +
           " " + value(s, "plan.master");
  };
  BOOST_TEST(weights("bf16: true\n") == "bf16 bf16 bf16 none");
  BOOST_TEST(weights("") == "bf16 bf16 bf16 none");
  BOOST_TEST(weights("fp16: true\n") == "fp16 fp32  none");  // its gradients are scaled in f32
  BOOST_TEST(weights("bf16: true\ndtype: float32\n") == "bf16 fp32  none");
  // accelerate casts what FSDP shards.
  BOOST_TEST(weights("bf16: true\nfsdp: true\n") == "bf16 fp32  none");
}

BOOST_AUTO_TEST_CASE(the_kind_of_checkpoints_is_that_of_each_framework) {
  const std::string trainer = "per_device_train_batch_size: 1\nbf16: true\ngradient_checkpointing: true\n";
  const auto kind = [](const std::string& text) {
    return value(settings("t.yaml", text, kModelOf8Ranks), "plan.checkpoint_reentrant");
  };
  BOOST_TEST(kind(trainer) == "");
  BOOST_TEST(kind(trainer + "gradient_checkpointing_kwargs: {use_reentrant: true}\n") == "true");
  const std::string axolotl =
      "base_model: a/b\nadapter: qlora\nload_in_4bit: true\ngradient_checkpointing: true\n";
  BOOST_TEST(kind(axolotl) == "");
  BOOST_TEST(kind(axolotl + "gradient_checkpointing_kwargs:\n  use_reentrant: false\n") == "false");
  BOOST_TEST(kind(axolotl + "gradient_checkpointing_kwargs:\n  use_reentrant: True\n") == "true");
  // LLaMA-Factory has its own checkpoints, whatever TrainingArguments say.
  const std::string factory = "model_name_or_path: a/b\nfinetuning_type: lora\ncutoff_len: 64\nbf16: true\n";
  BOOST_TEST(kind(factory + "gradient_checkpointing_kwargs: {use_reentrant: true}\n") == "");
  BOOST_TEST(kind(factory + "use_reentrant_gc: false\n") == "false");
}

BOOST_AUTO_TEST_CASE(fsdp_of_training_arguments_is_configured_beside_it) {
  const std::string job = "per_device_train_batch_size: 1\nbf16: true\ngradient_checkpointing: false\n";
  const std::string table =
      "fsdp_config:\n  reshard_after_forward: false\n  cpu_offload: true\n  activation_checkpointing: true\n";
  auto s = settings("t.yaml", job + "fsdp: true\n" + table, kModelOf8Ranks);
  BOOST_TEST(value(s, "parallel.zero") == "2");
  BOOST_TEST(value(s, "plan.offload_weights") == "cpu");
  BOOST_TEST(value(s, "plan.offload_optimizer") == "cpu");
  BOOST_TEST(value(s, "train.recompute") == "full");
  // The table means nothing while FSDP is off; its keys may begin with fsdp_.
  s = settings("t.yaml", job + table, kModelOf8Ranks);
  BOOST_TEST(value(s, "parallel.zero") == "");
  BOOST_TEST(value(s, "train.recompute") == "");
  s = settings("t.yaml", job + "fsdp: full_shard\nfsdp_config:\n  fsdp_sharding_strategy: SHARD_GRAD_OP\n",
               kModelOf8Ranks);
  BOOST_TEST(value(s, "parallel.zero") == "2");
}

BOOST_AUTO_TEST_CASE(accelerate_and_transformers_have_different_versions_of_fsdp_by_default) {
  const std::string arguments = "per_device_train_batch_size: 8\nmodel_name_or_path: gpt2\nfsdp: true\n",
                    accelerate = "distributed_type: FSDP\nnum_processes: 8\nfsdp_config:\n";
  BOOST_TEST(value(settings("t.yaml", arguments, kModelOf8Ranks), "plan.fsdp_version") == "2");
  BOOST_TEST(value(settings("t.yaml", arguments + "fsdp_config:\n  version: 1\n", kModelOf8Ranks),
                   "plan.fsdp_version") == "1");
  std::vector<runfile::Override> older = kModelOf8Ranks;
  older.push_back({"plan.framework_version", "\"4.57\""});
  BOOST_TEST(value(settings("t.yaml", arguments, older), "plan.fsdp_version") == "");
  std::vector<runfile::Override> given = kModelOf8Ranks;
  given.pop_back();  // the file names the number of devices
  BOOST_TEST(value(settings("a.yaml", accelerate + "  fsdp_offload_params: false\n", given),
                   "plan.fsdp_version") == "1");
  BOOST_TEST(value(settings("a.yaml", accelerate + "  fsdp_version: 2\n", given), "plan.fsdp_version") ==
             "2");
}

BOOST_AUTO_TEST_CASE(settings_of_flat_parameters_are_read_for_version_1_only) {
  const std::string job =
      "per_device_train_batch_size: 8\nmodel_name_or_path: gpt2\nfsdp: true\nfsdp_config:\n"
      "  backward_prefetch: BACKWARD_PRE\n  forward_prefetch: true\n  use_orig_params: false\n";
  auto s = settings("t.yaml", job + "  version: 1\n", kModelOf8Ranks);
  BOOST_TEST(value(s, "plan.backward_prefetch") == "pre");
  BOOST_TEST(value(s, "plan.forward_prefetch") == "true");
  BOOST_TEST(value(s, "plan.use_orig_params") == "false");
  s = settings("t.yaml", job, kModelOf8Ranks);
  for (const char* key : {"plan.backward_prefetch", "plan.forward_prefetch", "plan.use_orig_params"})
    BOOST_TEST(value(s, key) == "", key);
  std::vector<runfile::Override> given = kModelOf8Ranks;
  given.pop_back();  // the file names the number of devices
  s = settings("a.yaml",
               "distributed_type: FSDP\nnum_processes: 8\nfsdp_config:\n"
               "  fsdp_backward_prefetch: NO_PREFETCH\n",
               given);
  BOOST_TEST(value(s, "plan.backward_prefetch") == "none");
}

BOOST_AUTO_TEST_CASE(buckets_of_ddp_are_given_in_mebibytes) {
  BOOST_TEST(
      value(settings("t.yaml", "per_device_train_batch_size: 8\nddp_bucket_cap_mb: 100\n", kModelOf8Ranks),
            "plan.ddp_bucket") == "100MiB");
}

BOOST_AUTO_TEST_CASE(fsdp_of_accelerate_trains_f32_weights_under_mixed_precision) {
  const std::string job = "model_name_or_path: gpt2\nmax_length: 64\ndtype: bfloat16\nbf16: ";
  const std::vector<runfile::Override> given = {{"parallel.data", "8"}};
  auto s = settings("t.yaml", job + "true\nfsdp: full_shard\n", given);
  BOOST_TEST(value(s, "plan.weights") == "fp32");
  BOOST_TEST(value(s, "plan.moments") == "");
  s = settings("t.yaml", job + "false\nfsdp: full_shard\n", given);
  BOOST_TEST(value(s, "plan.weights") == "bf16");
  // The same, where the YAML of accelerate says that there is FSDP.
  const testing::Folder folder;
  const std::string trainer = (folder.path() / "t.yaml").string(),
                    launch = (folder.path() / "a.yaml").string();
  std::ofstream(trainer) << job << "true\n";
  std::ofstream(launch) << "distributed_type: FSDP\nnum_processes: 8\nmixed_precision: 'no'\n";
  s = by_key(framework_files::read_files({trainer, launch}, {}));
  BOOST_TEST(value(s, "plan.weights") == "fp32");
  BOOST_TEST(value(s, "train.precision") == "bf16");
  // Version 2 of axolotl is its own code.
  const std::string axolotl =
      "base_model: gpt2\nmicro_batch_size: 1\nfsdp_config:\n  offload_params: false\n";
  BOOST_TEST(value(settings("a.yaml", axolotl, given), "plan.weights") == "fp32");
  BOOST_TEST(value(settings("a.yaml", axolotl + "  fsdp_version: 2\n", given), "plan.weights") == "bf16");
}

BOOST_AUTO_TEST_CASE(keys_with_an_effect_on_memory_are_not_listed_without_effect) {
  const std::string trainer =
      "per_device_train_batch_size: 1\nlabel_smoothing_factor: 0.1\nadafactor: true\n";
  BOOST_TEST(
      (fate("t.yaml", trainer, "label_smoothing_factor", kModelOf8Ranks).first == KeyUse::kNotModelled));
  BOOST_TEST(value(settings("t.yaml", trainer, kModelOf8Ranks), "optimizer.name") == "adafactor");
  const std::string megatron =
      "--num-layers 2\n--hidden-dropout 0.1\n--attention-dropout 0.0\n--window-size 4\n";
  BOOST_TEST((fate("m.args", megatron, "hidden-dropout", kModelOf8Ranks).first == KeyUse::kNotModelled));
  BOOST_TEST((fate("m.args", megatron, "attention-dropout", kModelOf8Ranks).first == KeyUse::kWithoutEffect));
  for (const bool pinned : {true, false}) {
    const std::string deepspeed =
        std::string("{\"train_micro_batch_size_per_gpu\": 1, \"zero_optimization\": {\"stage\": 2, ") +
        "\"offload_optimizer\": {\"device\": \"cpu\", \"pin_memory\": " + (pinned ? "true" : "false") + "}}}";
    BOOST_TEST(
        (fate("d.json", deepspeed, "zero_optimization.offload_optimizer.pin_memory", kModelOf8Ranks).first ==
         (pinned ? KeyUse::kUsed : KeyUse::kNotModelled)));
  }
}

BOOST_AUTO_TEST_CASE(accelerate_shards_as_its_distributed_type_says) {
  const std::string rest =
      "num_processes: 8\nmixed_precision: bf16\nfsdp_config: {}\ndeepspeed_config:\n"
      "  offload_optimizer_device: cpu\n";
  const std::vector<runfile::Override> given = {
      {"model.preset", "llama-3-8b"}, {"data.seq_len", "128"}, {"train.micro_batch", "1"}};
  BOOST_TEST(value(settings("a.yaml", "distributed_type: FSDP\n" + rest, given), "parallel.zero") == "3");
  BOOST_TEST(value(settings("a.yaml", "distributed_type: MULTI_GPU\n" + rest, given), "parallel.zero") == "");
  const auto s = settings("a.yaml", "distributed_type: DEEPSPEED\n" + rest, given);
  BOOST_TEST(value(s, "parallel.zero") == "2");
  BOOST_TEST(value(s, "plan.framework") == "deepspeed");
  BOOST_TEST(value(s, "plan.master") == "fp32");
  BOOST_TEST(value(s, "plan.weights") == "bf16");
  BOOST_TEST(value(s, "plan.offload_optimizer") == "cpu");
  BOOST_TEST((fate("a.yaml", "distributed_type: NO\n" + rest, "fsdp_config", given).first ==
              KeyUse::kWithoutEffect));
}

// accelerate launch starts FSDP and DeepSpeed in one process too. FSDP1 is NO_SHARD there.
BOOST_AUTO_TEST_CASE(one_process_has_fsdp_2_and_deepspeed_too) {
  const std::string rest = "num_processes: 1\nmixed_precision: bf16\n",
                    fsdp = "distributed_type: FSDP\nfsdp_config:\n";
  const std::vector<runfile::Override> given = {
      {"model.preset", "llama-3-8b"}, {"data.seq_len", "128"}, {"train.micro_batch", "1"}};
  const auto zero = [&](const std::string& text) {
    return value(settings("a.yaml", rest + text, given), "parallel.zero");
  };
  BOOST_TEST(zero(fsdp + "  fsdp_version: 2\n") == "3");
  BOOST_TEST(zero(fsdp + "  fsdp_version: 1\n") == "");
  BOOST_TEST(zero("distributed_type: DEEPSPEED\ndeepspeed_config:\n  zero3_init_flag: false\n") == "2");
}

BOOST_AUTO_TEST_CASE(deepspeed_keeps_gradients_in_the_type_of_the_weights) {
  const std::string bf16 = "{\"train_micro_batch_size_per_gpu\": 1, \"bf16\": {\"enabled\": true";
  auto s = settings("d.json", bf16 + "}}", kModelOf8Ranks);
  BOOST_TEST(value(s, "plan.gradients") == "bf16");
  s = settings("d.json",
               bf16 + ", \"bf16_master_weights_and_grads\": true, \"bf16_optimizer_states\": true}}",
               kModelOf8Ranks);
  BOOST_TEST(value(s, "plan.master") == "bf16");
  BOOST_TEST(value(s, "plan.moments") == "bf16");
  s = settings("d.json", bf16 + "}, \"optimizer\": {\"type\": \"adamw\"}}", kModelOf8Ranks);
  BOOST_TEST(value(s, "optimizer.name") == "adamw");
}

// Without ZeRO every rank has all states.
BOOST_AUTO_TEST_CASE(a_file_of_deepspeed_without_a_stage_has_stage_0) {
  const std::string file = "{\"train_micro_batch_size_per_gpu\": 1, \"bf16\": {\"enabled\": true}";
  BOOST_TEST(value(settings("d.json", file + "}", kModelOf8Ranks), "parallel.zero") == "0");
  BOOST_TEST(value(settings("d.json", file + ", \"zero_optimization\": {\"stage\": 2}}", kModelOf8Ranks),
                   "parallel.zero") == "2");
}

// DeepSpeedCPUAdam allocates moments in the type of the weights that it updates. Those are f32 unless the
// master weights are narrow too.
BOOST_AUTO_TEST_CASE(narrow_moments_of_deepspeed_follow_the_master_weights) {
  const auto moments = [](bool narrow_master, bool offloads, const char* states) {
    const std::string text =
        std::string("{\"train_micro_batch_size_per_gpu\": 1, \"bf16\": {\"enabled\": true") +
        (narrow_master ? ", \"bf16_master_weights_and_grads\": true" : "") +
        "}, \"optimizer\": {\"type\": \"AdamW\", \"params\": {\"fp32_optimizer_states\": " + states +
        "}}, \"zero_optimization\": {\"stage\": 2" +
        (offloads ? ", \"offload_optimizer\": {\"device\": \"cpu\"}" : "") + "}}";
    return value(settings("d.json", text, kModelOf8Ranks), "plan.moments");
  };
  BOOST_TEST(moments(true, true, "false") == "bf16");
  BOOST_TEST(moments(true, true, "true") == "");
  BOOST_TEST(moments(false, true, "false") == "");
  BOOST_TEST(moments(true, false, "false") == "");
}

BOOST_AUTO_TEST_CASE(axolotl_computes_in_bf16_and_ignores_lora_without_an_adapter) {
  const std::string job = "base_model: gpt2\nmicro_batch_size: 1\nattn_implementation: eager\nlora_r: 8\n";
  auto s = settings("a.yaml", job);
  BOOST_TEST(value(s, "train.precision") == "bf16");
  BOOST_TEST(value(s, "plan.moments") == "bf16");
  BOOST_TEST(value(s, "data.seq_len") == "512");
  BOOST_TEST(value(s, "plan.attention") == "materialised");
  BOOST_TEST(value(s, "lora.rank") == "");
  s = settings("a.yaml", job + "bf16: false\n");
  BOOST_TEST(value(s, "train.precision") == "fp32");
  s = settings("a.yaml",
               job +
                   "adapter: lora\nlora_target_linear: true\nlora_target_modules:\n  - q_proj\n"
                   "fsdp_config:\n  offload_params: true\n  version: 2\n",
               kModelOf8Ranks);
  BOOST_TEST(value(s, "lora.targets") == "all-linear");
  BOOST_TEST(value(s, "parallel.zero") == "3");
  BOOST_TEST(value(s, "plan.offload_optimizer") == "cpu");
}

BOOST_AUTO_TEST_CASE(the_plugin_of_axolotl_for_the_loss_is_on_by_default) {
  const std::string job =
      "base_model: gpt2\nmicro_batch_size: 1\nplugins:\n"
      "  - axolotl.integrations.cut_cross_entropy.CutCrossEntropyPlugin\n";
  BOOST_TEST(value(settings("a.yaml", job), "plan.cross_entropy") == "cut");
  BOOST_TEST(value(settings("a.yaml", job + "cut_cross_entropy: false\n"), "plan.cross_entropy") == "plain");
}

BOOST_AUTO_TEST_CASE(files_that_spell_out_every_default_are_read) {
  const std::string trainer =
      "{\"per_device_train_batch_size\": 8, \"fsdp\": \"\", \"debug\": [], \"deepspeed\": null}";
  BOOST_TEST(value(settings("t.json", trainer, kModelOf8Ranks), "parallel.zero") == "");
  const std::string factory =
      "model_name_or_path: gpt2\nstage: sft\nquantization_bit: null\ndouble_quantization: true\n";
  BOOST_TEST(value(settings("f.yaml", factory), "lora.double_quant") == "");
}

BOOST_AUTO_TEST_CASE(optimizers_without_a_kind_of_their_own_are_planned_with_a_note) {
  const std::string job = "base_model: gpt2\nmicro_batch_size: 1\noptimizer: adamw_torch_4bit\n";
  BOOST_TEST(value(settings("a.yaml", job), "optimizer.name") == "adamw-8bit");
  BOOST_TEST(fate("a.yaml", job, "optimizer").second == "moments of 4 bits, planned with 8");
  // bitsandbytes keeps f32 moments of bf16 weights.
  const std::string paged = "base_model: gpt2\nmicro_batch_size: 1\noptimizer: paged_adamw_32bit\n";
  BOOST_TEST(value(settings("a.yaml", paged), "plan.weights") == "bf16");
  BOOST_TEST(value(settings("a.yaml", paged), "plan.moments") == "fp32");
}

BOOST_AUTO_TEST_CASE(llama_factory_trains_adapters_unless_it_is_told_not_to) {
  const std::string job = "model_name_or_path: gpt2\nstage: sft\nbf16: true\n";
  auto s = settings("f.yaml", job + "lora_rank: 4\n");
  BOOST_TEST(value(s, "lora.rank") == "4");
  BOOST_TEST(value(s, "lora.alpha") == "8");
  BOOST_TEST(value(s, "lora.targets") == "all-linear");
  s = settings("f.yaml", job + "finetuning_type: full\npure_bf16: true\n");
  BOOST_TEST(value(s, "lora.rank") == "");
  BOOST_TEST(value(s, "plan.moments") == "bf16");
  BOOST_TEST(
      (fate("f.yaml", "model_name_or_path: gpt2\nstage: kto\n", "stage").first == KeyUse::kNotModelled));
}

BOOST_AUTO_TEST_CASE(litgpt_and_torchtune_shard_over_several_devices) {
  const std::string job = "checkpoint_dir: gpt2\ntrain:\n  max_seq_length: 64\n  global_batch_size: 9\n";
  auto s = settings("l.yaml", job);
  BOOST_TEST(value(s, "parallel.zero") == "");
  BOOST_TEST(value(s, "train.recompute") == "");
  BOOST_TEST(value(s, "train.precision") == "bf16");
  BOOST_TEST(value(s, "plan.weights") == "fp32");  // bf16-mixed
  s = settings("l.yaml", job + "devices: 4\n");
  BOOST_TEST(value(s, "parallel.zero") == "3");
  BOOST_TEST(value(s, "train.recompute") == "full");
  BOOST_TEST(value(s, "train.grad_accum") == "2");  // 9 / 4 rounded down
  s = settings("l.yaml", job + "lora_r: 4\nlora_key: true\n");
  BOOST_TEST(value(s, "lora.targets") == R"(["q_proj", "k_proj", "v_proj"])");
  BOOST_TEST(value(s, "lora.base") == "fp32");  // bf16-mixed
  s = settings("l.yaml", job + "precision: bf16-true\nlora_r: 4\n");
  BOOST_TEST(value(s, "lora.base") == "");
  s = settings("t.yaml",
               "model:\n  _component_: torchtune.models.llama3.llama3_8b\nbatch_size: 1\ndtype: bf16\n",
               kModelOf8Ranks);
  BOOST_TEST(value(s, "parallel.zero") == "3");
}

BOOST_AUTO_TEST_CASE(linear_layers_that_a_framework_lists_are_no_stacked_experts) {
  const std::string attention = R"(["q_proj", "k_proj", "v_proj", "o_proj"])",
                    axolotl = "\nsequence_len: 64\nadapter: lora\nlora_target_linear: true\n",
                    factory = "\nfinetuning_type: lora\nstage: sft\ntemplate: qwen\n";
  for (const char* name : {"Qwen/Qwen3-30B-A3B", "mistralai/Mixtral-8x7B-v0.1", "openai/gpt-oss-20b"}) {
    BOOST_TEST(value(settings("a.yaml", "base_model: " + std::string(name) + axolotl), "lora.targets") ==
               attention);
    for (const char* target : {"", "lora_target: all\n"})
      BOOST_TEST(value(settings("a.yaml", "model_name_or_path: " + std::string(name) + factory + target),
                       "lora.targets") == attention);
  }
  BOOST_TEST(value(settings("a.yaml", "base_model: Qwen/Qwen2.5-0.5B" + axolotl), "lora.targets") ==
             "all-linear");
}

BOOST_AUTO_TEST_CASE(kernels_of_liger_and_cut_cross_entropy_are_losses_of_their_own) {
  const std::string job = "model_name_or_path: gpt2\nper_device_train_batch_size: 8\n";
  BOOST_TEST(value(settings("t.yaml", job + "use_liger_kernel: true\n", kModelOf8Ranks),
                   "plan.cross_entropy") == "liger");
  const std::string axolotl = "base_model: NousResearch/Meta-Llama-3-8B\nsequence_len: 64\n";
  const auto loss = [&](const std::string& lines) {
    return value(settings("a.yaml", axolotl + lines), "plan.cross_entropy");
  };
  BOOST_TEST(loss("") == "plain");
  BOOST_TEST(loss("liger_fused_linear_cross_entropy: true\n") == "liger");
  const auto kernels = [&](const std::string& text) {
    return value(settings("a.yaml", axolotl + "liger_fused_linear_cross_entropy: true\n" + text),
                 "plan.liger_kernels");
  };
  BOOST_TEST(kernels("") == "");
  BOOST_TEST(kernels("liger_rope: true\nliger_rms_norm: true\nliger_glu_activation: true\n") ==
             "rope,rms_norm,swiglu");
  BOOST_TEST(kernels("liger_rms_norm: true\nliger_rope: false\n") == "rms_norm");
}

BOOST_AUTO_TEST_CASE(llama_factory_v1_has_no_autocast_without_a_distribution) {
  const std::string v1 = "model: Qwen/Qwen3-4B\nmodel_class: llm\n";
  // Full training: f32, recomputed, AdamW as torch.optim has it.
  auto s = settings("f.yaml", v1);
  for (const auto& [key, expected] : {std::pair{"plan.framework", "llama-factory"},
                                      {"plan.framework_version", "v1"},
                                      {"train.precision", "fp32"},
                                      {"plan.weights", "fp32"},
                                      {"train.recompute", "full"},
                                      {"plan.checkpoint_reentrant", "false"},
                                      {"plan.optimizer_implementation", "foreach"},
                                      {"data.seq_len", "2048"},
                                      {"train.micro_batch", "1"}})
    BOOST_TEST(value(s, key) == expected, key);
  BOOST_TEST(value(s, "lora.rank") == "");
  // Adapters over the type of the checkpoint.
  s = settings("f.yaml", v1 + "peft_config: {name: lora}\nenable_activation_checkpointing: false\n");
  for (const auto& [key, expected] : {std::pair{"lora.rank", "8"},
                                      {"lora.dropout", "0.05"},
                                      {"lora.base", "bf16"},
                                      {"lora.targets", "all-linear"},
                                      {"train.precision", "fp32"},
                                      {"train.recompute", "none"}})
    BOOST_TEST(value(s, key).find(expected) != std::string::npos, key);
  s = settings("f.yaml", v1 + "peft_config: {name: lora}\nquant_config: {name: bnb, quantization_bit: 4}\n");
  BOOST_TEST(value(s, "lora.base") == "nf4");
  BOOST_TEST(value(s, "lora.double_quant") == "true");
  s = settings("f.yaml", v1 + "peft_config: {name: lora}\nquant_config: {name: auto, quantization_bit: 8}\n");
  BOOST_TEST(value(s, "lora.base") == "int8");
  BOOST_TEST(value(s, "lora.double_quant") == "");
  // Without an adapter a quantized model is not trained.
  BOOST_TEST(
      value(settings("f.yaml", v1 + "quant_config: {name: bnb, quantization_bit: 4}\n"), "lora.base") == "");
  // FSDP2 alone has mixed precision.
  const std::string fsdp =
      "dist_config: {name: fsdp2, mp_shard_size: 4, offload_params: true, reshard_after_forward: false}\n";
  s = settings("f.yaml", v1 + fsdp);
  for (const auto& [key, expected] : {std::pair{"train.precision", "bf16"},
                                      {"parallel.data", "4"},
                                      {"parallel.zero", "2"},
                                      {"plan.weights", "fp32"},
                                      {"plan.offload_weights", "cpu"}})
    BOOST_TEST(value(s, key) == expected, key);
  BOOST_TEST(value(settings("f.yaml", v1 + fsdp + "bf16: false\n"), "train.precision") == "fp32");
}

BOOST_AUTO_TEST_CASE(fsdp_offload_moves_gradients_to_the_host_too) {
  const std::string job = "model_name_or_path: gpt2\nfsdp: full_shard offload\n";
  const auto s = settings("t.yaml", job, kModelOf8Ranks);
  for (const char* key : {"plan.offload_weights", "plan.offload_optimizer", "plan.offload_gradients"})
    BOOST_TEST(value(s, key) == "cpu", key);
}

BOOST_AUTO_TEST_CASE(a_recipe_of_torchtune_has_the_devices_of_its_command) {
  const std::string job =
      "# Run it:\n#   tune run --nproc_per_node 8 lora_finetune_distributed --config X\n"
      "model:\n  _component_: torchtune.models.llama3.llama3_8b\ntokenizer:\n  max_seq_len: 2048\n"
      "batch_size: 1\n";
  auto s = settings("t.yaml", job);
  BOOST_TEST(s.at("parallel.data") == "8 @2");
  BOOST_TEST(value(s, "parallel.zero") == "3");
  s = settings("t.yaml", job, {{"parallel.data", "4", ""}});
  BOOST_TEST(value(s, "parallel.zero") == "3");
  BOOST_TEST(s.count("parallel.data") == 0u);
  s = settings("t.yaml", job + "data_parallel_shard_dim: 2\n");
  BOOST_TEST(value(s, "parallel.data") == "2");
  // A command for one device, or no command.
  BOOST_TEST(settings("t.yaml", "# tune run full_finetune_single_device\n" + job.substr(job.find("model")))
                 .count("parallel.data") == 0u);
}

BOOST_AUTO_TEST_SUITE_END()
