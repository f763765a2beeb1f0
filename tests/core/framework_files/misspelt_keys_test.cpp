// Misspelt keys in tables that have keys without effect too: they are neither used nor without effect, and
// the key that was meant is named.
#include <boost/test/unit_test.hpp>

#include "tests/core/framework_files/settings_of.hpp"

namespace trainhost::framework_files {
namespace {

using runfile::KeyUse;
using testing::kModelOf8Ranks;
using testing::read_text;

using Pairs = std::vector<std::string>;

/// "KEY: NOTE" of each key that is not understood.
Pairs unknown(const std::string& name, const std::string& text) {
  Pairs found;
  for (const runfile::FileKey& k : read_text(name, text, kModelOf8Ranks).keys)
    if (k.use == KeyUse::kNotUnderstood) found.push_back(k.key + ": " + k.note);
  return found;
}

void check(const Pairs& found, const Pairs& expected) {
  BOOST_TEST(found == expected, boost::test_tools::per_element());
}

BOOST_AUTO_TEST_SUITE(misspelt_keys)

BOOST_AUTO_TEST_CASE(torchtitan) {
  check(unknown("t.toml",
                "[model]\nflavor = \"8B\"\n[activation_checkpoint]\nmodde = \"full\"\n[compile]\n"
                "enabel = true\n[experimental]\ncontext_parallel_degre = 2\n"),
        {"activation_checkpoint.modde: did you mean activation_checkpoint.mode?",
         "compile.enabel: did you mean compile.enable?",
         "experimental.context_parallel_degre: did you mean experimental.context_parallel_degree?"});
}

BOOST_AUTO_TEST_CASE(deepspeed) {
  check(unknown("d.json",
                "{\"train_micro_batch_size_per_gpu\": 1, \"fp16\": {\"enabeld\": true}, \"bf16\": "
                "{\"enabeld\": true}, \"zero_optimization\": {\"stage\": 2, \"offload_optimizer\": "
                "{\"devce\": \"cpu\"}}, \"optimizer\": {\"tpye\": \"SGD\", \"params\": {\"lrr\": 1}}, "
                "\"scheduler\": {\"params\": {\"warmup_num_step\": 3}}, \"aio\": {\"blok_size\": 1}, "
                "\"activation_checkpointing\": {\"cpu_checkpointng\": true, \"profile\": false}}"),
        {"fp16.enabeld: did you mean fp16.enabled?", "bf16.enabeld: did you mean bf16.enabled?",
         "zero_optimization.offload_optimizer.devce: did you mean "
         "zero_optimization.offload_optimizer.device?",
         "optimizer.tpye: did you mean optimizer.type?",
         "optimizer.params.lrr: did you mean optimizer.params.lr?",
         "scheduler.params.warmup_num_step: did you mean scheduler.params.warmup_num_steps?",
         "aio.blok_size: did you mean aio.block_size?",
         "activation_checkpointing.cpu_checkpointng: did you mean "
         "activation_checkpointing.cpu_checkpointing?"});
}

BOOST_AUTO_TEST_CASE(accelerate) {
  check(unknown("a.yaml",
                "compute_environment: LOCAL_MACHINE\ndistributed_type: FSDP\nnum_processes: 8\nfsdp_config:\n"
                "  fsdp_versoin: 2\n  fsdp_offload_parms: true\ndynamo_config:\n  dynamo_backnd: INDUCTOR\n"
                "deepspeed_config:\n  zero_stag: 3\n"),
        {"fsdp_config.fsdp_versoin: did you mean fsdp_config.fsdp_version?",
         "fsdp_config.fsdp_offload_parms: did you mean fsdp_config.fsdp_offload_params?",
         "dynamo_config.dynamo_backnd: did you mean dynamo_config.dynamo_backend?"});
  check(unknown("a.yaml",
                "compute_environment: LOCAL_MACHINE\ndistributed_type: DEEPSPEED\nnum_processes: 8\n"
                "deepspeed_config:\n  zero_stag: 3\n  zero3_init_flag: true\n"),
        {"deepspeed_config.zero_stag: did you mean deepspeed_config.zero_stage?"});
}

BOOST_AUTO_TEST_CASE(torchtune) {
  check(unknown("t.yaml",
                "model:\n  _component_: torchtune.models.llama3.lora_llama3_8b\n  lora_rnak: 64\n"
                "optimizer:\n  _component_: torch.optim.AdamW\n  fusde: true\n"
                "loss:\n  _componnt_: torch.nn.CrossEntropyLoss\n  num_output_chunks: 8\n"
                "compile:\n  modle: true\nbatch_size: 1\n"),
        {"model.lora_rnak: did you mean model.lora_rank?", "optimizer.fusde: did you mean optimizer.fused?",
         "loss._componnt_: did you mean loss._component_?", "compile.modle: did you mean compile.model?"});
}

BOOST_AUTO_TEST_CASE(litgpt) {
  check(unknown("l.yaml",
                "checkpoint_dir: checkpoints/meta-llama/Llama-3.2-1B\nout_dir: out\n"
                "train:\n  micro_batch_size: 1\n  global_batch_size: 8\noptimizer:\n"
                "  clas_path: torch.optim.SGD\n  init_args:\n    lr: 0.1\neval:\n  intervall: 3\n"),
        {"optimizer.clas_path: did you mean optimizer.class_path?",
         "eval.intervall: did you mean eval.interval?"});
}

// Prefixes stand for groups of keys without effect, and none of those that matter.
BOOST_AUTO_TEST_CASE(keys_that_only_a_prefix_matches) {
  check(unknown("m.sh",
                "--num-layers 2 --hidden-size 512 --num-attention-heads 8 --vocab-size 1000 "
                "--micro-batch-size 1 --seq-length 128 --hidden-dropout 0 --no-rope-fuson "
                "--moe-router-topkk 2 --train-iters 5 --no-save-optim --no-persist-layer-norm\n"),
        {"no-rope-fuson: did you mean no-rope-fusion?", "moe-router-topkk: did you mean moe-router-topk?"});
  check(unknown("x.yaml",
                "base_model: meta-llama/Meta-Llama-3-8B\nsequence_len: 512\nliger_rms_nrom: true\n"
                "datasets:\ndataset_prepared_path: x\nwandb_project: y\n"),
        {"liger_rms_nrom: did you mean liger_rms_norm?"});
  check(unknown("f.yaml",
                "model_name_or_path: meta-llama/Meta-Llama-3-8B\nfinetuning_type: lora\n"
                "quantization_bitt: 4\nmoe_aux_loss_coef: 0.1\nquantization_device_map: auto\n"),
        {"quantization_bitt: did you mean quantization_bit?"});
  check(unknown("h.json",
                "{\"model_name_or_path\": \"meta-llama/Meta-Llama-3-8B\", \"bf16\": true, "
                "\"ddp_bucket_cap_bm\": 25, \"ddp_timeout\": 3, \"eval_steps\": 5, \"save_steps\": 5}"),
        {"ddp_bucket_cap_bm: did you mean ddp_bucket_cap_mb?"});
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace trainhost::framework_files
