// The estimator of PyTorch for QLoRA of transformers: adapters over weights of bitsandbytes. QLoRA of
// torchtune and litgpt: own_modules_test.cpp.
#include <boost/test/unit_test.hpp>
#include <cmath>

#include "core/model/presets.hpp"
#include "core/plugin/registry.hpp"
#include "tests/plugins/estimators/pytorch_runs.hpp"
#include "tests/plugins/estimators/report_notes.hpp"

using namespace trainhost;
using namespace trainhost::test;
using nlohmann::json;

namespace {

RunSpec qlora() {
  RunSpec r = mixed_precision();
  r.mode = RunMode::kQlora;
  r.memory.frozen = DType::kNF4;
  r.lora_rank = 8, r.lora_targets = frameworks::kLoraQ;
  return r;
}

const std::map<std::string, std::string> kTransformers = {{"framework", "transformers"}};

/// Blocks of a quantized matrix on the device: packed elements, scales in f32 or in 8 bits, the table, and of
/// scales in 8 bits their scales, table and mean.
std::uint64_t quantized_bytes(std::uint64_t elements, bool doubled) {
  const std::uint64_t scales = elements / 64;
  return full_blocks(elements / 2) + full_blocks(doubled ? scales : 4 * scales) + full_blocks(4 * 16) +
         (doubled ? full_blocks(4 * (scales / 256)) + full_blocks(4 * 256) + full_blocks(4) : 0);
}

std::uint64_t weights_of_llama_8b(bool doubled, std::uint64_t bytes_of_others) {
  std::uint64_t layer = 0;
  for (const std::uint64_t elements : {4096u * 4096u, 4096u * 1024u, 4096u * 1024u, 4096u * 4096u,
                                       4096u * 14336u, 4096u * 14336u, 4096u * 14336u})
    layer += quantized_bytes(elements, doubled);
  layer += 2 * 4 * 8 * 4096;  // the adapter of q, in f32
  const std::uint64_t others = 2 * 128256ull * 4096 + 65 * 4096;
  return 32 * layer + bytes_of_others * others;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(quantized_runs)

BOOST_AUTO_TEST_CASE(the_settings_of_a_run_over_4_bit_weights_allocate_what_pytorch_counts) {
  std::vector<json> records = oracle_records("quantized");
  std::ranges::move(oracle_records("trl"), std::back_inserter(records));
  BOOST_TEST(compare_peaks(records) >= 30u);
}

BOOST_AUTO_TEST_CASE(the_settings_of_a_run_with_reentrant_checkpoints_allocate_what_pytorch_counts) {
  BOOST_TEST(compare_peaks(oracle_records("reentrant")) >= 50u);
}

BOOST_AUTO_TEST_CASE(checkpoints_are_reentrant_where_the_framework_makes_them_so) {
  RunSpec r = qlora();
  r.recompute = Recompute::kFull;
  // With a small vocabulary the peak is in the backward pass of a layer, not in the loss.
  ModelSpec m = llama_8b();
  m.vocab = 1000;
  const auto total = [&](const std::string& framework, const char* reentrant) {
    // Expandable segments, which axolotl has, round the difference away.
    std::map<std::string, std::string> options = {{"framework", framework},
                                                  {"allocator", "expandable_segments:False"}};
    if (*reentrant) options["checkpoint_reentrant"] = reentrant;
    return estimate(r, options, m).tier_bytes(Tier::kDevice);
  };
  for (const char* framework : {"axolotl", "llama-factory"}) {
    BOOST_TEST(total(framework, "") == total(framework, "true"), framework);
    BOOST_TEST(total(framework, "") != total(framework, "false"), framework);
  }
  BOOST_TEST(total("transformers", "") == total("transformers", "false"));
  BOOST_TEST(has_note(estimate(r, {{"framework", "axolotl"}}), "reentrant, which is the default of axolotl"));
  // Nothing is recomputed: the key has no effect.
  r.recompute = Recompute::kNone;
  BOOST_TEST(total("axolotl", "true") == total("axolotl", "false"));
  // Sharded weights.
  RunSpec sharded = mixed_precision();
  sharded.recompute = Recompute::kFull, sharded.parallel.data = 8, sharded.parallel.zero = 3;
  const auto of = [&](std::map<std::string, std::string> options) {
    options["framework"] = "llama-factory";
    return estimate(sharded, std::move(options));
  };
  BOOST_TEST(!has_note(of({}), "Checkpoints are reentrant"));
  BOOST_TEST(has_note(of({{"checkpoint_reentrant", "true"}}), "are planned as others"));
  BOOST_TEST(has_note(of({{"fsdp_version", "1"}}), "reentrant, which is the default of llama-factory:"));
  BOOST_CHECK_EXCEPTION(estimate(r, {{"framework", "torchtune"}, {"checkpoint_reentrant", "true"}}),
                        plugin::PluginError, [](const plugin::PluginError& e) {
                          return std::string(e.what()).find("torchtune has models of its own") !=
                                 std::string::npos;
                        });
}

BOOST_AUTO_TEST_CASE(weights_are_those_that_bitsandbytes_stores) {
  RunSpec r = qlora();
  const auto weights = [&](const std::string& framework) {
    return estimate(r, {{"framework", framework}}).component_bytes(Component::kWeights);
  };
  BOOST_TEST(weights("transformers") == weights_of_llama_8b(false, 4));
  r.memory.double_quantized = true;
  BOOST_TEST(weights("transformers") == weights_of_llama_8b(true, 4));
  BOOST_TEST(weights("llama-factory") == weights_of_llama_8b(true, 2));
  BOOST_TEST(weights("axolotl") == weights_of_llama_8b(true, 2));
  r.master = DType::kNone;
  BOOST_TEST(weights("transformers") == weights_of_llama_8b(true, 2));
  r.weight = DType::kF32;
  BOOST_TEST(weights("llama-factory") == weights_of_llama_8b(true, 4));
}

BOOST_AUTO_TEST_CASE(what_is_assumed_is_a_note_with_the_key_that_changes_it) {
  RunSpec r = qlora();
  const MemoryReport prepared = estimate(r, kTransformers);
  BOOST_TEST(
      has_note(prepared, "fp32, as prepare_model_for_kbit_training() of peft casts them; plan.master"));
  BOOST_TEST(has_note(prepared, "Planned without gradient checkpointing"));
  BOOST_TEST(has_note(prepared, "bitsandbytes 0.50"));
  r.recompute = Recompute::kFull, r.master = DType::kNone;
  const MemoryReport loaded = estimate(r, kTransformers);
  BOOST_TEST(has_note(loaded, "bf16 (plan.master = \"none\"), as the model is loaded"));
  BOOST_TEST(!has_note(loaded, "Planned without gradient checkpointing"));
  r = qlora();
  const MemoryReport axolotl = estimate(r, {{"framework", "axolotl"}});
  BOOST_TEST(has_note(axolotl, "bf16, to which axolotl casts them"));
  BOOST_TEST(!has_note(axolotl, "Planned without gradient checkpointing"));
}

BOOST_AUTO_TEST_CASE(the_moments_of_bitsandbytes_have_one_byte_or_are_paged) {
  RunSpec r = qlora();
  const auto moments = [&](const char* paged) {
    return estimate(r, {{"framework", "transformers"}, {"optimizer_paged", paged}})
        .component_bytes(Component::kOptimizerState);
  };
  // 32 layers with two matrices, two moments each.
  const std::uint64_t matrices = 32 * 2 * 2, elements = 8 * 4096, tables = 2 * 4 * 256;
  BOOST_TEST(moments("true") == 4 * matrices * elements);
  r.optimizer = Optimizer::kAdamW8bit;
  BOOST_TEST(moments("false") == matrices * (elements + 4 * elements / 256) + tables);
  BOOST_TEST(moments("true") == moments("false"));
  r.lora_rank = 32;  // moments of 131,072 elements are paged
  BOOST_TEST(moments("true") == matrices * 4 * 4 * elements / 256 + tables);
  r.optimizer = Optimizer::kAdamW;
  BOOST_TEST(moments("true") == 0u);
  r.parallel.data = 8, r.parallel.zero = 3;
  r.mode = RunMode::kFull, r.lora_rank = 0, r.memory.frozen = DType::kNone;
  check_refused(r, {{"framework", "transformers"}, {"optimizer_paged", "true"}}, "plan.optimizer_paged");
}

BOOST_AUTO_TEST_CASE(full_training_with_moments_of_one_byte_allocates_what_pytorch_counts) {
  std::size_t cases = 0;
  for (const json& record : oracle_records("eight-bit")) {
    const json& c = record.at("case");
    pytorch::Options o = options_of(c);
    o.name = "transformers";
    RunSpec r = run_of(c);
    if (c.at("precision") == "bf16") r.grad = r.moment = DType::kBF16;
    BOOST_TEST_CONTEXT("case " << record.at("n") << ": " << c.dump())
    BOOST_TEST(replayed_peak(c, r, o) == measured_peak(record));
    ++cases;
  }
  BOOST_TEST(cases == 18u);
  // The Trainer keeps moments of embeddings in f32; a loop by hand does not.
  RunSpec r = mixed_precision();
  r.optimizer = Optimizer::kAdamW8bit;
  const auto moments = [&](const char* framework) {
    return estimate(r, {{"framework", framework}}).component_bytes(Component::kOptimizerState);
  };
  const std::uint64_t embedding = 128256ull * 4096;
  BOOST_TEST(moments("transformers") - moments("pytorch") ==
             2 * (4 * embedding - embedding - 4 * embedding / 256));
}

// Each rank of DDP has all weights, and reduces the gradients of the adapters only.
BOOST_AUTO_TEST_CASE(several_ranks_have_buckets_for_the_adapters) {
  RunSpec r = qlora();
  r.parallel.data = 8;
  BOOST_TEST(estimate(r, kTransformers).component_bytes(Component::kCommunication) ==
             full_blocks(4u * 32 * 8 * (4096 + 4096)));
}

BOOST_AUTO_TEST_CASE(the_trainer_of_llama_factory_v1_has_two_losses) {
  std::size_t cases = 0;
  for (const json& record : oracle_records("factory")) {
    const json& c = record.at("case");
    if (c.contains("quantized")) continue;  // without autocast, which the run file does not have there
    pytorch::Options o = options_of(c);
    o.name = "llama-factory", o.trainer_loss = true, o.reentrant = false;
    BOOST_TEST_CONTEXT("case " << record.at("n") << ": " << c.dump())
    BOOST_TEST(replayed_peak(c, run_of(c), o) == measured_peak(record));
    ++cases;
  }
  BOOST_TEST(cases == 14u);
  RunSpec r = mixed_precision();
  r.mode = RunMode::kLora, r.lora_rank = 8, r.lora_targets = frameworks::kLoraQ;
  r.recompute = Recompute::kFull, r.micro_batch = 4;  // several rows: the logits are copied
  const std::map<std::string, std::string> v1 = {{"framework", "llama-factory"}, {"framework_version", "v1"}};
  BOOST_TEST(estimate(r, v1).tier_bytes(Tier::kDevice) >
             estimate(r, {{"framework", "llama-factory"}}).tier_bytes(Tier::kDevice));
  BOOST_TEST(has_note(estimate(r, v1), "its Trainer computes a loss from the logits"));
  auto liger = v1;
  liger["cross_entropy"] = "liger";
  check_refused(r, liger, "its Trainer needs the logits");
  r.parallel.data = 8, r.parallel.zero = 3;
  BOOST_TEST(has_note(estimate(r, v1), "is not counted: with sharded weights"));
}

BOOST_AUTO_TEST_CASE(adapters_of_different_ranks_are_those_of_their_matrices) {
  RunSpec r = qlora();
  const auto weights = [&] { return estimate(r, kTransformers).component_bytes(Component::kWeights); };
  const std::uint64_t alike = weights();
  // One matrix has rank 24 instead of 8, one none: f32, [r, 4096] and [4096, r].
  r.lora_rules = "model.layers.3.self_attn.q_proj 24 16\nmodel.layers.5.self_attn.q_proj 0 0";
  BOOST_TEST(weights() == alike + 4u * (24 - 8 - 8) * (4096 + 4096));
  check_refused(r, {{"framework", "deepspeed"}}, "adapters of different ranks are replayed for models");
  r.parallel.data = 8, r.parallel.zero = 3;
  check_refused(r, kTransformers, "lora.targets, lora.rank_pattern with patterns");
}

// The engine casts what is not packed to the type of the model: adapters, embedding, norms and head.
BOOST_AUTO_TEST_CASE(deepspeed_leaves_each_rank_all_packed_weights) {
  RunSpec r = qlora();
  r.parallel.data = 8, r.parallel.zero = 2;
  const MemoryReport report = estimate(r, {{"framework", "deepspeed"}});
  const std::uint64_t adapters = 32 * 2 * 8 * 4096;
  BOOST_TEST(report.component_bytes(Component::kWeights) ==
             weights_of_llama_8b(false, 2) - (4 - 2) * adapters);
  BOOST_TEST(has_note(report, "each rank has all packed weights. The engine casts adapters"));
}

// Scales are no parameters, and FSDP2 leaves bytes whole. At its peak the replay has the head gathered.
BOOST_AUTO_TEST_CASE(the_closed_form_shards_of_packed_weights_what_the_replay_shards) {
  RunSpec r = qlora();
  r.parallel.data = 4, r.parallel.zero = 3;
  const auto weights = [&](const char* estimator, const char* framework, const char* storage) {
    plugin::HostOptions o;
    o.plugin_options[""] = {{"framework", framework}};
    if (*storage) o.plugin_options[""]["quant_storage"] = storage;
    plugin::Registry plugins({TRAINHOST_BINARY_DIR "/lib/trainhost/plugins"}, std::move(o));
    const MemoryReport m = plugins.estimator(estimator).estimate(llama_8b(), r, nullptr);
    return static_cast<double>(m.component_bytes(Component::kWeights) +
                               m.component_bytes(Component::kAdapters));
  };
  constexpr double kHead = 2 * 128256.0 * 4096;
  for (const char* storage : {"uint8", "compute", ""}) {
    const double replay = weights("pytorch", "transformers", storage) - kHead;
    BOOST_TEST(std::abs(weights("transformer", "transformers", storage) / replay - 1) < 0.005, storage);
  }
  const double bytes = weights("transformer", "transformers", "uint8"),
               elements = weights("transformer", "transformers", "compute");
  BOOST_TEST(bytes > 2 * elements);
  BOOST_TEST(weights("transformer", "llama-factory", "") == elements);
  // Parameters of any type are sharded by stage 3 of DeepSpeed.
  BOOST_TEST(weights("transformer", "deepspeed", "") == elements);
  BOOST_TEST(weights("transformer", "trainhost", "") < elements);
}

BOOST_AUTO_TEST_CASE(other_quantized_runs_are_refused_with_the_reason) {
  const auto refused = [](const std::string& framework, const std::string& what, const auto& set,
                          const ModelSpec& m = llama_8b()) {
    RunSpec r = qlora();
    set(r);
    check_refused(r, {{"framework", framework}}, what, m);
  };
  const auto unchanged = [](RunSpec&) {};
  refused("deepspeed", "quantized base weights under ZeRO 3 of DeepSpeed",
          [](RunSpec& r) { r.parallel.data = 8, r.parallel.zero = 3; });
  refused(
      "deepspeed", "a model with experts", [](RunSpec& r) { r.parallel.data = 8, r.parallel.zero = 2; },
      *model::find_planned_preset("mixtral-8x7b-v0.1"));
  refused("fsdp2", "quantized base weights that are sharded", unchanged);
  const auto shards = [](RunSpec& r) { r.parallel.data = 8, r.parallel.zero = 3; };
  refused("axolotl", "FSDP of axolotl", shards);
  refused("transformers", "sharded in f32",
          [](RunSpec& r) { r.parallel.data = 8, r.parallel.zero = 3, r.compute = DType::kF32; });
  refused("transformers", "under FSDP2 they were not compared",
          [](RunSpec& r) { r.parallel.data = 8, r.parallel.zero = 3, r.grad = DType::kBF16; });
  refused("transformers", "lora.base = \"int4\"", [](RunSpec& r) { r.memory.frozen = DType::kI4; });
  refused("transformers", "train.precision = \"fp8\"", [](RunSpec& r) { r.compute = DType::kF8; });
  const ModelSpec mixtral = *model::find_planned_preset("mixtral-8x7b-v0.1");
  refused(
      "transformers", "a model with experts in 8 bits", [](RunSpec& r) { r.memory.frozen = DType::kI8; },
      mixtral);
  check_refused(qlora(), {{"framework", "axolotl"}, {"quant_experts", "true"}}, "plan.quant_experts",
                mixtral);
  refused("transformers", "GPT-2", unchanged, *model::find_planned_preset("gpt2"));
}

BOOST_AUTO_TEST_CASE(norms_alone_may_be_in_f32_over_a_base_in_4_bits) {
  const std::map<std::string, std::string> options{{"framework", "transformers"}, {"norms", "fp32"}};
  RunSpec r = qlora();
  BOOST_TEST(has_note(estimate(r, options), "to which TRL casts them, but norms in fp32 (plan.norms)"));
  const auto weights = [&](const std::map<std::string, std::string>& o) {
    return estimate(r, o).component_bytes(Component::kWeights);
  };
  // Embedding and head have half of the bytes.
  BOOST_TEST(weights(options) < weights({{"framework", "transformers"}}) - (1u << 30));
  r.parallel.data = 2, r.parallel.zero = 3;
  check_refused(r, options, "plan.norms = \"fp32\" with sharded weights");
  check_refused(mixed_precision(), options, "norms have a type of their own over a base in 4 bits only");
}

BOOST_AUTO_TEST_SUITE_END()
