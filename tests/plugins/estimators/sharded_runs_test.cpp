// The estimator of PyTorch on FSDP2 and DeepSpeed: its settings allocate what PyTorch counts, and what was
// not compared is refused.
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <functional>

#include "core/model/presets.hpp"
#include "tests/plugins/estimators/pytorch_runs.hpp"
#include "tests/plugins/estimators/report_notes.hpp"

using namespace trainhost;
using namespace trainhost::test;
using frameworks::Purpose;
using nlohmann::json;

namespace {

MemoryReport estimate_zero(const RunSpec& run, std::map<std::string, std::string> more = {}) {
  more["framework"] = "deepspeed";
  return estimate(run, std::move(more));
}

/// Compares the peak of the run under FSDP2, of which `r` lacks the sharding, with what PyTorch counted.
void compare_fsdp(const json& record, RunSpec r, const pytorch::Options& o) {
  const json& c = record.at("case");
  const json& policy = c.at("fsdp");
  r.parallel.data = policy.at("world"), r.parallel.zero = policy.at("reshard") ? 3 : 2;
  BOOST_TEST_CONTEXT("case " << record.at("n") << ": " << c.dump())
  BOOST_TEST(replayed_peak(c, r, o) == measured_peak(record));
}

/// Of a case that accelerate prepares with flat parameters.
pytorch::Options flat_options_of(const json& c) {
  const json& policy = c.at("fsdp");
  const json& flat = policy.at("flat");
  pytorch::Options o = options_of(c);
  o.name = "transformers", o.by_accelerate = o.flat_parameters = true;
  o.no_sync = policy.at("sync") == "last";
  o.original_parameters = flat.at("orig"), o.forward_prefetch = flat.at("forward");
  o.backward_prefetch = frameworks::BackwardPrefetch(flat.at("backward") == "pre"    ? 1
                                                     : flat.at("backward") == "post" ? 2
                                                                                     : 0);
  return o;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(sharded_runs)

// Their oracle cases are compared in tests/core/frameworks/oracle_test.cpp.
BOOST_AUTO_TEST_CASE(families_like_llama_are_sharded_where_their_step_was_compared) {
  const ModelSpec m = *model::find_planned_preset("granite-3.1-2b");
  RunSpec r = mixed_precision();
  r.parallel.data = 8, r.parallel.zero = 3;
  for (const RunMode mode : {RunMode::kFull, RunMode::kLora}) {
    r.mode = mode;
    if (mode == RunMode::kLora) r.lora_rank = 8, r.lora_targets = frameworks::kLoraQ;
    BOOST_TEST(has_note(estimate(r, {{"framework", "transformers"}}, m), "FSDP2: 8 ranks"));
    BOOST_TEST(
        has_note(estimate(r, {{"framework", "transformers"}, {"fsdp_version", "1"}}, m), "FSDP1: 8 ranks"));
    BOOST_TEST(has_note(estimate(r, {{"framework", "deepspeed"}}, m), "ZeRO 3 on 8 ranks"));
  }
  r.mode = RunMode::kFull;
  check_refused(r, {{"framework", "fsdp2"}}, "its step was compared with PyTorch as accelerate prepares it",
                m);
  r.memory.optimizer_in = Tier::kPinned;
  check_refused(r, {{"framework", "deepspeed"}, {"offload_gradients", "cpu"}},
                "offload of the family 'granite' under DeepSpeed", m);
  r = mixed_precision();
  r.parallel.data = 8, r.parallel.zero = 2, r.mode = RunMode::kQlora, r.memory.frozen = DType::kNF4;
  r.lora_rank = 8, r.lora_targets = frameworks::kLoraQ;
  BOOST_TEST(has_note(estimate(r, {{"framework", "transformers"}}, m), "FSDP2: 8 ranks"));
  check_refused(r, {{"framework", "transformers"}}, "quantized weights of the family 'gemma2' under FSDP2",
                *model::find_planned_preset("gemma-2-9b"));
  check_refused(r, {{"framework", "deepspeed"}}, "quantized weights of the family 'granite' under DeepSpeed",
                m);
}

BOOST_AUTO_TEST_CASE(gpt_2_and_gpt_oss_are_sharded) {
  RunSpec r = mixed_precision();
  r.parallel.data = 8, r.parallel.zero = 3, r.seq_len = 512;
  for (const char* name : {"gpt2", "gpt-oss-20b"}) {
    const ModelSpec m = *model::find_planned_preset(name);
    BOOST_TEST(has_note(estimate(r, {{"framework", "fsdp2"}}, m), "FSDP2: 8 ranks"));
    BOOST_TEST(has_note(estimate(r, {{"framework", "transformers"}}, m), "FSDP2: 8 ranks"));
    BOOST_TEST(
        has_note(estimate(r, {{"framework", "transformers"}, {"fsdp_version", "1"}}, m), "FSDP1: 8 ranks"));
    BOOST_TEST(has_note(estimate(r, {{"framework", "deepspeed"}}, m), "ZeRO 3 on 8 ranks"));
    RunSpec offloaded = r;
    offloaded.memory.optimizer_in = Tier::kPinned;
    check_refused(offloaded, {{"framework", "deepspeed"}, {"offload_gradients", "cpu"}},
                  "offload of the family", m);
  }
}

BOOST_AUTO_TEST_CASE(experts_under_stage_3_keep_their_gathered_weights_without_recomputation) {
  const ModelSpec m = *model::find_planned_preset("mixtral-8x7b-v0.1");
  RunSpec r = mixed_precision();
  r.parallel.data = 8, r.parallel.zero = 3, r.seq_len = 512;
  const MemoryReport kept = estimate(r, {{"framework", "deepspeed"}}, m);
  BOOST_TEST(has_note(kept, "the experts of all layers stay gathered until the backward pass"));
  r.recompute = Recompute::kFull;
  const MemoryReport recomputed = estimate(r, {{"framework", "deepspeed"}}, m);
  BOOST_TEST(has_note(recomputed, "ZeRO 3 on 8 ranks"));
  // 32 layers of 8 experts with three matrices of 4096 x 14336 in bf16.
  constexpr std::uint64_t kExperts = 2ull * 32 * 8 * 3 * 4096 * 14336;
  BOOST_TEST(bytes_of(kept, Purpose::kWeights) > bytes_of(recomputed, Purpose::kWeights) + kExperts * 9 / 10);
  r.memory.optimizer_in = Tier::kPinned;
  check_refused(r, {{"framework", "deepspeed"}, {"offload_gradients", "cpu"}},
                "offload of experts in ZeRO 3 of DeepSpeed", m);
}

BOOST_AUTO_TEST_CASE(preferences_are_replayed_with_sharded_weights) {
  RunSpec r = mixed_precision();
  r.parallel.data = 8, r.parallel.zero = 3, r.seq_len = 512, r.recompute = Recompute::kFull;
  const auto of = [&](const char* framework, std::map<std::string, std::string> more = {}) {
    more["framework"] = framework, more["method"] = "dpo";
    return estimate(r, std::move(more));
  };
  const MemoryReport trl = of("transformers");
  BOOST_TEST(has_note(trl, "TRL shards the reference as one unit"));
  // The gathered reference and the buffer that it is copied from, in bf16.
  constexpr std::uint64_t kParameters = 8'030'261'248;
  BOOST_TEST(trl.total_bytes() > 4 * kParameters);
  BOOST_TEST(has_note(of("llama-factory"), "The reference is sharded too, in units of its own"));
  BOOST_TEST(of("llama-factory").total_bytes() + 2 * kParameters < trl.total_bytes());
  BOOST_TEST(has_note(of("transformers", {{"fsdp_version", "1"}}), "The reference is sharded too, in units"));
  BOOST_TEST(has_note(of("deepspeed"), "The reference is sharded too, by an engine of its own"));
  r.parallel.zero = 2;
  BOOST_TEST(has_note(of("deepspeed"), "Below stage 3 each rank has the whole reference"));
  r.mode = RunMode::kLora, r.lora_rank = 8, r.lora_targets = frameworks::kLoraQ;
  for (const char* framework : {"transformers", "deepspeed"})
    BOOST_TEST(has_note(of(framework), "The reference is the model without its adapters"));
  r.parallel.zero = 3;
  check_refused(
      r,
      {{"framework", "transformers"}, {"method", "dpo"}, {"fsdp_version", "1"}, {"forward_prefetch", "true"}},
      "with adapters and plan.forward_prefetch");
  BOOST_TEST(has_note(of("deepspeed"), "resets DeepSpeed's counts of gradients"));
  r.parallel.zero = 2;
  r.memory.optimizer_in = Tier::kPinned;
  check_refused(r, {{"framework", "deepspeed"}, {"method", "dpo"}, {"offload_gradients", "cpu"}},
                "with offload");
}

BOOST_AUTO_TEST_CASE(the_settings_of_an_fsdp2_run_allocate_what_pytorch_counts) {
  std::size_t cases = 0;
  for (const json& record : test::oracle_records("fsdp")) {
    const json& c = record.at("case");
    const json& policy = c.at("fsdp");
    const bool mixed = policy.at("param") == "bf16";
    // Policies that the run file has no words for.
    if (policy.at("output") != "" || (mixed && policy.at("reduce") != "f32")) continue;
    if (policy.at("sync") != "every" && c.at("accumulate") > 1) continue;
    RunSpec r = run_of(c);
    if (mixed) r.weight = r.compute = DType::kBF16, r.master = DType::kF32;
    pytorch::Options o = options_of(c);
    o.framework = pytorch::Framework::kFsdp2;
    compare_fsdp(record, std::move(r), o);
    ++cases;
  }
  BOOST_TEST(cases >= 20u);
}

BOOST_AUTO_TEST_CASE(an_fsdp2_run_shards_its_states_and_is_refused_where_it_was_not_compared) {
  RunSpec r = mixed_precision();
  r.parallel.data = 8, r.parallel.zero = 3;
  const auto estimate_fsdp = [](const RunSpec& run, const ModelSpec& m = llama_8b()) {
    return estimate(run, {{"framework", "fsdp2"}}, m);
  };
  const MemoryReport report = estimate_fsdp(r);
  BOOST_TEST(has_note(
      report, "FSDP2: 8 ranks with f32 shards; weights are gathered in bf16 and gradients reduced in f32"));
  BOOST_TEST(has_note(report, "FSDP2 gathers them in bf16"));
  // An eighth of the weights in f32, and what is gathered in bf16: embedding, head, final norm, and two
  // layers at most.
  constexpr double kParameters = 8030261248.0, kRoot = 2 * 128256.0 * 4096 + 4096,
                   kShards = kParameters * 4 / 8, kLayer = (kParameters - kRoot) / 32;
  const double weights = static_cast<double>(bytes_of(report, Purpose::kWeights));
  BOOST_TEST(weights > kShards + 2 * kRoot);
  BOOST_TEST(weights < kShards + 2 * (kRoot + 2 * kLayer) * 1.001);
  r.parallel.zero = 2;
  BOOST_TEST(estimate_fsdp(r).total_bytes() > report.total_bytes());
  check_refused(r, {{"framework", "fsdp2"}}, "FSDP2 of the family 'phi': its step was not compared",
                *model::find_planned_preset("phi-2"));
  r.parallel.zero = 1;
  check_refused(r, {{"framework", "fsdp2"}}, "parallel.zero = 1 with FSDP2: fully_shard divides weights");
  r.parallel.zero = 3, r.mode = RunMode::kLora, r.lora_rank = 8, r.lora_targets = 1;
  check_refused(
      r, {{"framework", "fsdp2"}},
      "adapters under FSDP2: units that hold frozen and trained weights are replayed as accelerate");
}

BOOST_AUTO_TEST_CASE(the_settings_of_a_run_that_accelerate_shards_allocate_what_pytorch_counts) {
  std::size_t cases = 0;
  for (const json& record : test::oracle_records("accelerate")) {
    const json& c = record.at("case");
    RunSpec r = run_of(c);
    if (c.at("fsdp").at("param") == "bf16") r.weight = r.compute = DType::kBF16, r.master = DType::kF32;
    pytorch::Options o = options_of(c);
    o.name = "transformers", o.by_accelerate = o.no_sync = true;
    compare_fsdp(record, std::move(r), o);
    ++cases;
  }
  BOOST_TEST(cases >= 48u);
}

BOOST_AUTO_TEST_CASE(the_settings_of_adapters_that_accelerate_shards_allocate_what_pytorch_counts) {
  std::size_t cases = 0;
  for (const json& record : test::oracle_records("accelerate-lora")) {
    const json& c = record.at("case");
    RunSpec r = run_of(c);
    r.memory.frozen = c.at("precision") == "bf16" ? DType::kBF16 : DType::kF32;
    r.weight = r.compute = c.at("fsdp").at("param") == "bf16" ? DType::kBF16 : DType::kF32;
    pytorch::Options o = options_of(c);
    o.name = "transformers", o.by_accelerate = o.no_sync = true;
    compare_fsdp(record, std::move(r), o);
    ++cases;
  }
  BOOST_TEST(cases == 36u);
}

// On one rank nothing is divided: shards are copied into the weights of a unit, and gradients into its
// reduction.
BOOST_AUTO_TEST_CASE(the_settings_of_fsdp2_on_one_rank_allocate_what_pytorch_counts) {
  std::size_t by_accelerate = 0, adapters = 0, by_hand = 0;
  for (const json& record : test::oracle_records("one-rank")) {
    const json &c = record.at("case"), &policy = c.at("fsdp");
    RunSpec r = run_of(c);
    const bool mixed = policy.at("param") == "bf16";
    pytorch::Options o = options_of(c);
    if (c.at("lora") > 0) {
      r.memory.frozen = c.at("precision") == "bf16" ? DType::kBF16 : DType::kF32;
      r.weight = r.compute = mixed ? DType::kBF16 : DType::kF32;
      ++adapters;
    } else if (mixed) {
      r.weight = r.compute = DType::kBF16, r.master = DType::kF32;
    }
    if (policy.contains("prepare")) {
      o.name = "transformers", o.by_accelerate = o.no_sync = true;
      ++by_accelerate;
    } else {
      // Policies that the run file has no words for.
      if (policy.at("output") != "" || (mixed && policy.at("reduce") != "f32")) continue;
      if (policy.at("sync") != "every" && c.at("accumulate") > 1) continue;
      o.framework = pytorch::Framework::kFsdp2;
      ++by_hand;
    }
    compare_fsdp(record, std::move(r), o);
  }
  BOOST_TEST(by_accelerate >= 10u);
  BOOST_TEST(adapters >= 3u);
  BOOST_TEST(by_hand >= 1u);
}

BOOST_AUTO_TEST_CASE(the_settings_of_sharded_4_bit_weights_allocate_what_pytorch_counts) {
  std::size_t cases = 0;
  std::vector<json> records = test::oracle_records("sharded-quantized");
  for (json& record : test::oracle_records("whole-quantized")) records.push_back(std::move(record));
  for (const json& record : records) {
    const json& c = record.at("case");
    if (c.at("fsdp").at("param") == "") continue;  // the run file has mixed precision only
    RunSpec r = run_of(c);
    r.weight = r.compute = DType::kBF16;
    pytorch::Options o = options_of(c);
    o.name = "transformers", o.by_accelerate = o.no_sync = true;
    o.packed_as_bytes = c.at("quantized").value("whole", false);
    compare_fsdp(record, std::move(r), c.at("fsdp").contains("flat") ? flat_options_of(c) : o);
    ++cases;
  }
  BOOST_TEST(cases == 45u);
}

BOOST_AUTO_TEST_CASE(the_settings_of_sharded_adapters_with_kernels_of_liger_allocate_what_pytorch_counts) {
  std::size_t cases = 0;
  for (const json& record : test::oracle_records("sharded-liger")) {
    const json& c = record.at("case");
    RunSpec r = run_of(c);
    if (c.at("fsdp").at("param") == "bf16") r.weight = r.compute = DType::kBF16;
    compare_fsdp(record, std::move(r), flat_options_of(c));
    ++cases;
  }
  BOOST_TEST(cases == 25u);
}

// Of a layer's packed weights a rank has its part, and all scales: 4 bytes per 64 elements.
BOOST_AUTO_TEST_CASE(ranks_share_packed_weights_and_keep_all_scales) {
  RunSpec r = mixed_precision();
  r.mode = RunMode::kQlora, r.memory.frozen = DType::kNF4;
  r.lora_rank = 8, r.lora_targets = frameworks::kLoraQ, r.recompute = Recompute::kFull;
  r.parallel.zero = 3;
  const double elements = 32.0 * (2 * 4096 * 4096 + 2 * 4096 * 1024 + 3 * 4096.0 * 14336);
  const auto weights = [&](std::uint32_t ranks, const char* version) {
    r.parallel.data = ranks;
    const MemoryReport report = estimate(r, {{"framework", "llama-factory"}, {"fsdp_version", version}});
    BOOST_TEST(has_note(report, "Packed weights are sharded as elements of bf16 (plan.quant_storage"));
    return static_cast<double>(report.component_bytes(Component::kWeights));
  };
  const double others = 2 * 128256.0 * 4096 * 2;  // embedding and head in bf16
  for (const char* version : {"1", "2"}) {
    const double saved = weights(2, version) - weights(8, version);
    // Half of the packed and other weights less an eighth.
    BOOST_TEST(std::abs(saved / ((elements / 2 + others) * 3 / 8) - 1) < 0.05, version << ": " << saved);
    BOOST_TEST(weights(64, version) > elements / 64 * 4, version);
  }
  // transformers packs bytes by default, which FSDP2 leaves whole; FSDP1 cannot have them.
  r.parallel.data = 64;
  const auto total = [&](std::map<std::string, std::string> options, const char* note) {
    options.emplace("framework", "transformers");
    const MemoryReport report = estimate(r, std::move(options));
    BOOST_TEST(has_note(report, note));
    return static_cast<double>(report.component_bytes(Component::kWeights));
  };
  const double whole = total({}, "Each rank has all packed weights: they are bytes (plan.quant_storage");
  BOOST_TEST(whole > elements / 2 + elements / 64 * 4);
  BOOST_TEST(whole == total({{"quant_storage", "uint8"}}, "Each rank has all packed weights"));
  const double sharded = total({{"quant_storage", "compute"}}, "Packed weights are sharded");
  BOOST_TEST(std::abs((whole - sharded) / (elements / 2 * 63 / 64) - 1) < 0.1);
  total({{"fsdp_version", "1"}}, "Packed weights are sharded");
  check_refused(r, {{"framework", "transformers"}, {"fsdp_version", "1"}, {"quant_storage", "uint8"}},
                "plan.quant_storage = \"uint8\" under FSDP1");
}

// Keys of FSDP1 are refused under FSDP2, so the release is known before they are read.
BOOST_AUTO_TEST_CASE(transformers_4_shards_by_fsdp1_unless_the_version_is_given) {
  RunSpec r = mixed_precision();
  r.parallel.data = 8, r.parallel.zero = 3;
  std::map<std::string, std::string> o = {{"framework", "transformers"}, {"framework_version", "4.57"}};
  BOOST_TEST(has_note(estimate(r, o), "FSDP1: 8 ranks"));
  o["backward_prefetch"] = "pre";
  BOOST_TEST(has_note(estimate(r, o), "FSDP1: 8 ranks"));
  o.erase("backward_prefetch");
  o["fsdp_version"] = "2";
  BOOST_TEST(has_note(estimate(r, o), "FSDP2: 8 ranks"));
  BOOST_TEST(has_note(estimate(r, o), "were compared with PyTorch under FSDP1 only"));
  o.erase("fsdp_version");
  o["framework_version"] = "5";
  BOOST_TEST(has_note(estimate(r, o), "FSDP2: 8 ranks"));
}

BOOST_AUTO_TEST_CASE(qwen3_moe_is_sharded_by_both_versions_of_fsdp) {
  const ModelSpec m = *model::find_planned_preset("qwen3-30b-a3b");
  RunSpec r = mixed_precision();
  r.parallel.data = 8, r.parallel.zero = 3;
  for (const char* version : {"1", "2"})
    BOOST_TEST(has_note(estimate(r, {{"framework", "transformers"}, {"fsdp_version", version}}, m),
                        "FSDP" + std::string(version) + ": 8 ranks"));
}

// Checkpoints hold the units of FSDP1 before 4.52, which then keep the inputs of frozen layers.
BOOST_AUTO_TEST_CASE(reentrant_checkpoints_of_older_releases_keep_inputs_of_frozen_layers_under_fsdp1) {
  RunSpec r = mixed_precision();
  r.mode = RunMode::kLora, r.memory.frozen = DType::kBF16, r.recompute = Recompute::kFull;
  r.lora_rank = 8, r.lora_targets = frameworks::kLoraQ;
  r.parallel.data = 8, r.parallel.zero = 3, r.micro_batch = 8;
  ModelSpec m = llama_8b();
  m.vocab = 1000;  // so that a layer sets the peak, not the loss
  const auto of = [&](const char* release, const char* reentrant) {
    return estimate(
        r,
        {{"framework", "transformers"}, {"framework_version", release}, {"checkpoint_reentrant", reentrant}},
        m);
  };
  const auto bytes = [&](const char* release, const char* reentrant) {
    return of(release, reentrant).tier_bytes(Tier::kDevice);
  };
  const std::uint64_t hidden = 2u * r.seq_len * r.micro_batch * m.hidden;
  BOOST_TEST(bytes("4.51", "true") > bytes("4.51", "false") + (m.layers - 4) * hidden);
  BOOST_TEST(bytes("4.52", "true") < bytes("4.52", "false") + 4 * hidden);
  constexpr const char* kNote = "FSDP1 keeps the input of each frozen layer and its gradient";
  BOOST_TEST(has_note(of("4.51", "true"), kNote));
  BOOST_TEST(!has_note(of("4.51", "false"), kNote));
  BOOST_TEST(!has_note(of("4.52", "true"), kNote));
}

BOOST_AUTO_TEST_CASE(transformers_shards_by_fsdp2_and_reduces_in_the_last_micro_batch) {
  RunSpec r = mixed_precision();
  r.parallel.data = 8, r.parallel.zero = 3, r.accumulate = 4;
  const auto of = [&](std::map<std::string, std::string> options) {
    options.emplace("framework", "transformers");
    return estimate(r, std::move(options), llama_8b());
  };
  const MemoryReport kept = of({}), reduced = of({{"no_sync", "false"}});
  BOOST_TEST(has_note(kept, "gathered in bf16 and gradients reduced in bf16"));
  BOOST_TEST(has_note(kept, "until then each rank keeps the gradients of all weights"));
  BOOST_TEST(has_note(reduced, "every micro-batch reduces"));
  // Without reduction a rank keeps gradients of all weights in bf16.
  constexpr double kGradients = 2 * 8030261248.0;
  const double more = static_cast<double>(kept.total_bytes()) - static_cast<double>(reduced.total_bytes());
  BOOST_TEST(more > 0.8 * kGradients);
  BOOST_TEST(more < 1.2 * kGradients);
  check_refused(r, {{"framework", "axolotl"}}, "FSDP of axolotl: its own preparation of the model");
  BOOST_CHECK_EXCEPTION(estimate(r, {{"framework", "fsdp2"}, {"fsdp_version", "1"}}), plugin::PluginError,
                        [](const plugin::PluginError& e) {
                          return std::string(e.what()).find(
                                     "plan.fsdp_version of fsdp2: it is a setting of "
                                     "transformers") != std::string::npos;
                        });
  r.parallel.zero = 1;
  check_refused(r, {{"framework", "transformers"}},
                "parallel.zero = 1 with FSDP2: fully_shard divides weights");
}

BOOST_AUTO_TEST_CASE(the_settings_of_a_run_with_flat_parameters_allocate_what_pytorch_counts) {
  std::size_t cases = 0;
  std::vector<json> records = test::oracle_records("fsdp1");
  for (json& record : test::oracle_records("fsdp1-lora")) records.push_back(std::move(record));
  for (const json& record : records) {
    const json& c = record.at("case");
    const json& policy = c.at("fsdp");
    RunSpec r = run_of(c);
    if (policy.at("param") == "bf16") r.weight = r.compute = DType::kBF16, r.master = DType::kF32;
    const pytorch::Options o = flat_options_of(c);
    compare_fsdp(record, std::move(r), o);
    ++cases;
  }
  BOOST_TEST(cases == 48u + 36u);
}

BOOST_AUTO_TEST_CASE(version_1_of_fsdp_has_flat_parameters) {
  RunSpec r = mixed_precision();
  r.parallel.data = 8, r.parallel.zero = 3;
  const auto of = [&](std::map<std::string, std::string> options) {
    options.emplace("framework", "transformers");
    options.emplace("fsdp_version", "1");
    return estimate(r, std::move(options));
  };
  const MemoryReport plain = of({});
  BOOST_TEST(
      has_note(plain, "FSDP1: 8 ranks with f32 shards of flat parameters; weights are gathered in bf16"));
  BOOST_TEST(has_note(plain, "FSDP1 gathers them in bf16"));
  // A layer that is gathered early exists besides the one that computes.
  constexpr double kParameters = 8030261248.0, kRoot = 2 * 128256.0 * 4096 + 4096,
                   kLayer = 2 * (kParameters - kRoot) / 32;
  const auto weights = [](const MemoryReport& report) {
    return static_cast<double>(bytes_of(report, Purpose::kWeights));
  };
  BOOST_TEST(weights(of({{"backward_prefetch", "pre"}})) > weights(plain) + 0.99 * kLayer);
  BOOST_TEST(weights(of({{"forward_prefetch", "true"}})) > weights(plain) + 0.99 * kLayer);
  r.parallel.zero = 2;  // no layer is freed after its forward pass
  BOOST_TEST(weights(of({})) > weights(plain) + 30 * kLayer);
  r.parallel.zero = 3;
  r.mode = RunMode::kLora, r.lora_rank = 8, r.lora_targets = 1;
  const MemoryReport adapters = of({});
  BOOST_TEST(has_note(adapters, "FSDP1: 8 ranks with f32 shards of flat parameters of the adapters"));
  // Matrices of [8, 4096] and [4096, 8] in each layer, of which a rank has an eighth; with step counters.
  BOOST_TEST(adapters.component_bytes(Component::kOptimizerState) == 64 * (2 * 4u * 8 * 4096 / 8 + 512));
  BOOST_CHECK_EXCEPTION(
      estimate(r, {{"framework", "transformers"}, {"use_orig_params", "false"}}), plugin::PluginError,
      [](const plugin::PluginError& e) {
        return std::string(e.what()).find("plan.use_orig_params of transformers: it is a setting of FSDP1") !=
               std::string::npos;
      });
}

BOOST_AUTO_TEST_CASE(gradients_that_are_views_of_the_buckets_of_ddp_exist_once) {
  RunSpec r = mixed_precision();
  r.parallel.data = 8;
  const auto of = [&](const std::map<std::string, std::string>& options) { return estimate(r, options); };
  const MemoryReport beside = of({}), views = of({{"gradient_as_bucket_view", "true"}}),
                     large = of({{"ddp_bucket", "1073741824"}});
  constexpr std::uint64_t kGradients = 4 * 8030261248;
  for (const MemoryReport& report : {beside, views, large}) {
    const std::uint64_t buckets = bytes_of(report, Purpose::kCommunication);
    BOOST_TEST(buckets >= kGradients);
    BOOST_TEST(buckets < kGradients + (1u << 20));
  }
  BOOST_TEST(bytes_of(beside, Purpose::kGradients) == kGradients);
  // One at a time, until it is copied into its bucket: at most that of the embedding.
  BOOST_TEST(bytes_of(views, Purpose::kGradients) <= 4u * 128256 * 4096);
  BOOST_TEST(views.total_bytes() + kGradients * 9 / 10 < beside.total_bytes());
  // With adapters only their gradients are in buckets; in one process there are none.
  r.parallel.data = 1;
  BOOST_TEST(bytes_of(of({{"gradient_as_bucket_view", "true"}}), Purpose::kCommunication) == 0u);
}

BOOST_AUTO_TEST_CASE(the_settings_of_a_deepspeed_run_allocate_what_pytorch_counts) {
  std::size_t cases = 0;
  std::vector<json> records = test::oracle_records("deepspeed");
  for (json& record : test::oracle_records("zero-quantized")) records.push_back(std::move(record));
  for (const json& record : records) {
    const json &c = record.at("case"), &zero = c.at("zero");
    if (zero.at("groups") != 2 || zero.contains("offload")) continue;  // transformers always makes two
    RunSpec r = run_of(c);
    if (c.at("precision") == "bf16") r.weight = r.compute = DType::kBF16, r.master = DType::kF32;
    r.parallel.data = zero.at("world"), r.parallel.zero = zero.at("stage");
    pytorch::Options o = options_of(c);
    o.framework = pytorch::Framework::kDeepSpeed;
    o.reduce_bucket = zero.at("bucket"), o.overlap_reduce = zero.at("overlap");
    BOOST_TEST_CONTEXT("case " << record.at("n") << ": " << c.dump()) {
      // In f32 a rank with a part of one parameter alone does not copy its gradient, but keeps all of it.
      const std::uint64_t fullest = replayed_peak(c, r, o), measured = measured_peak(record);
      if (c.at("precision") == "bf16") BOOST_TEST(fullest + measured / 100 >= measured);
      const std::uint64_t own =
          replayed_peak(c, r, o, [&](frameworks::StepSettings& s) { s.zero.rank = zero.at("rank"); });
      BOOST_TEST(std::max(own, measured) - std::min(own, measured) <= 256u);
    }
    ++cases;
  }
  BOOST_TEST(cases >= 15u);
}

BOOST_AUTO_TEST_CASE(the_settings_of_stage_3_allocate_what_pytorch_counts) {
  std::size_t cases = 0, with_adapters = 0;
  std::vector<json> records = test::oracle_records("deepspeed3");
  for (const char* more : {"deepspeed3-lora", "one-rank-zero3"})
    for (json& record : test::oracle_records(more)) records.push_back(std::move(record));
  for (const json& record : records) {
    const json &c = record.at("case"), &zero = c.at("zero");
    if (zero.at("groups") != 2 || zero.contains("offload")) continue;  // transformers always makes two
    RunSpec r = run_of(c);
    if (c.at("precision") == "bf16") r.weight = r.compute = DType::kBF16, r.master = DType::kF32;
    r.parallel.data = zero.at("world"), r.parallel.zero = 3;
    pytorch::Options o = options_of(c);
    o.framework = pytorch::Framework::kDeepSpeed;
    o.reduce_bucket = zero.at("bucket"), o.prefetch = zero.at("prefetch"),
    o.persistence = zero.at("persistence");
    o.max_live = zero.at("max_live"), o.reuse_distance = zero.at("reuse");
    BOOST_TEST_CONTEXT("case " << record.at("n") << ": " << c.dump()) {
      const std::uint64_t measured = measured_peak(record);
      const std::uint64_t own = replayed_peak(
          c, r, o, [&](frameworks::StepSettings& s) { s.zero.sub_group = zero.at("sub_group"); });
      BOOST_TEST(std::max(own, measured) - std::min(own, measured) <= 256u);
    }
    ++(c.at("lora") > 0 ? with_adapters : cases);
  }
  BOOST_TEST(cases >= 20u);
  BOOST_TEST(with_adapters >= 12u);
}

BOOST_AUTO_TEST_CASE(stage_3_of_deepspeed_keeps_a_part_of_the_weights_and_has_settings) {
  RunSpec r = mixed_precision();
  r.parallel.data = 8, r.parallel.zero = 3;
  constexpr std::uint64_t kParameters = 8030261248;
  const MemoryReport report = estimate_zero(r);
  BOOST_TEST(bytes_of(report, Purpose::kMasterWeights) == 4 * kParameters / 8);
  BOOST_TEST(
      has_note(report, "stage3_prefetch_bucket_size 50,000,000, stage3_param_persistence_threshold 100,000"));
  const MemoryReport automatic =
      estimate_zero(r, {{"prefetch_bucket", "-1"}, {"persistence_threshold", "-1"}});
  BOOST_TEST(has_note(automatic,
                      "stage3_prefetch_bucket_size 15,099,494, stage3_param_persistence_threshold 40,960"));
  // Weights are not kept for their next use, and none are gathered early.
  const MemoryReport lean = estimate_zero(r, {{"prefetch_bucket", "0"}, {"reuse_distance", "0"}});
  BOOST_TEST(lean.total_bytes() < report.total_bytes());
  RunSpec other = r;
  other.parallel.data = 1;
  const MemoryReport alone = estimate_zero(other);
  BOOST_TEST(has_note(alone, "ZeRO 3 on one rank, which gathers nothing"));
  BOOST_TEST(bytes_of(alone, Purpose::kWeights) == 2 * kParameters);
  // With both in host memory the device has copies of the weights that a module reads.
  other.memory.weights_in = other.memory.optimizer_in = Tier::kHost;
  BOOST_TEST(bytes_of(estimate_zero(other, {{"offload_gradients", "cpu"}}), Purpose::kWeights) <
             kParameters / 2);
  other = r, other.compute = other.weight = DType::kF16;
  check_refused(other, {{"framework", "deepspeed"}}, "train.precision = \"fp16\" with ZeRO 3 of DeepSpeed");
}

BOOST_AUTO_TEST_CASE(a_deepspeed_run_shards_its_states_and_is_refused_where_it_was_not_compared) {
  RunSpec r = mixed_precision();
  r.parallel.data = 8, r.parallel.zero = 2;
  const MemoryReport report = estimate_zero(r);
  constexpr std::uint64_t kParameters = 8030261248;
  BOOST_TEST(bytes_of(report, Purpose::kWeights) == 2 * kParameters);
  BOOST_TEST(bytes_of(report, Purpose::kMasterWeights) == 4 * kParameters / 8);
  // Two moments, and a counter in a block for each group of parameters.
  BOOST_TEST(bytes_of(report, Purpose::kOptimizerState) == 8 * kParameters / 8 + 2 * 512);
  BOOST_TEST(has_note(report,
                      "ZeRO 2 on 8 ranks, for the rank with most gradients; reduce_bucket_size 500,000,000"));
  BOOST_TEST(!has_note(report, "FSDP2"));
  // "auto" is 4096 squared, two bytes each, twice.
  const MemoryReport small = estimate_zero(r, {{"reduce_bucket", "0"}, {"overlap_reduce", "true"}});
  BOOST_TEST(has_note(small, "reduce_bucket_size 16,777,216 elements, twice (overlap_comm)"));
  RunSpec one = r;
  one.parallel.zero = 1;
  // Stage 1 keeps all gradients until the backward pass has ended.
  BOOST_TEST(bytes_of(estimate_zero(one), Purpose::kGradients) >= 2 * kParameters);
  RunSpec other = r;
  other.parallel.zero = 0;
  check_refused(other, {{"framework", "deepspeed"}},
                "parallel.zero = 0 with DeepSpeed: its stages 1 to 3 are replayed");
  other = r, other.moment = DType::kBF16;
  check_refused(other, {{"framework", "deepspeed"}}, "plan.moments = \"bf16\": bf16_optimizer_states");
  other = r, other.master = DType::kBF16;
  check_refused(other, {{"framework", "deepspeed"}}, "plan.master = \"bf16\": bf16_master_weights_and_grads");
  other = r, other.weight = DType::kF32, other.master = DType::kNone;
  check_refused(other, {{"framework", "deepspeed"}},
                "plan.weights = \"fp32\" under DeepSpeed: its torch_autocast");
}

BOOST_AUTO_TEST_SUITE_END()
