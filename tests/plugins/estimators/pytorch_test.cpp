// The estimator of PyTorch: its settings of a run allocate what PyTorch's counters report
// (tests/golden/oracle), its report adds up, and it refuses what it does not describe. Also the plugin
// through the host.
#include <boost/test/unit_test.hpp>
#include <functional>

#include "core/frameworks/evaluate.hpp"
#include "core/model/presets.hpp"
#include "core/plugin/registry.hpp"
#include "plugins/estimators/pytorch/report.hpp"
#include "tests/core/frameworks/oracle_cases.hpp"
#include "tests/plugins/estimators/report_notes.hpp"

using namespace trainhost;
namespace tp = trainhost::plugin;
using frameworks::Purpose;
using nlohmann::json;
using test::has_note;

namespace {

/// The case of the oracle as the run file states it.
RunSpec run_of(const json& c) {
  RunSpec r;
  r.micro_batch = c.at("batch"), r.seq_len = c.at("sequence"), r.accumulate = c.at("accumulate");
  const std::string precision = c.at("precision");
  const bool adapts = c.at("lora") > 0;
  r.mode = adapts ? RunMode::kLora : RunMode::kFull;
  r.lora_rank = c.at("lora");
  r.lora_targets = test::settings_of(c).lora_targets;
  if (precision == "autocast") r.weight = r.compute = DType::kBF16, r.master = DType::kF32;
  if (precision == "bf16" && !adapts) r.weight = r.compute = DType::kBF16;
  if (adapts) r.memory.frozen = precision == "bf16" ? DType::kBF16 : DType::kF32;
  r.memory.attention =
      c.at("attention") == "eager" ? AttentionMemory::kMaterialised : AttentionMemory::kFlash;
  r.recompute = c.at("checkpoint") ? Recompute::kFull : Recompute::kNone;
  r.optimizer = c.at("optimizer") == "sgd" ? Optimizer::kSgd : Optimizer::kAdamW;
  r.weight_decay = 0;
  return r;
}

pytorch::Options options_of(const json& c) {
  pytorch::Options o;
  if (c.at("optimizer") == "adamw-fused") o.loop = frameworks::OptimizerLoop::kFused;
  o.dropout = c.at("dropout");
  return o;
}

std::uint64_t measured_peak(const json& record) {
  std::uint64_t peak = 0;
  for (const auto& [phase, bytes] : record.at("peaks").items())
    peak = std::max(peak, bytes.at("total").get<std::uint64_t>());
  return peak;
}

/// An 8-billion-parameter model in mixed precision.
ModelSpec llama_8b() {
  ModelSpec m;
  m.family = "llama", m.vocab = 128256, m.hidden = 4096, m.layers = 32, m.heads = 32, m.kv_heads = 8,
  m.head_dim = 128, m.intermediate = 14336;
  return m;
}

RunSpec mixed_precision() {
  RunSpec r;
  r.seq_len = 2048;
  r.weight = r.compute = DType::kBF16, r.master = DType::kF32;
  return r;
}

tp::Registry registry(std::map<std::string, std::string> options = {}) {
  tp::HostOptions o;
  o.plugin_options["pytorch"] = std::move(options);
  return tp::Registry({TRAINHOST_BINARY_DIR "/lib/trainhost/plugins"}, std::move(o));
}

MemoryReport estimate(const RunSpec& r, std::map<std::string, std::string> options = {},
                      const ModelSpec& m = llama_8b()) {
  return registry(std::move(options)).estimator("pytorch").estimate(m, r, nullptr);
}

std::uint64_t bytes_of(const MemoryReport& r, Purpose p) {
  for (const MemoryEntry& e : r.entries)
    if (e.name == frameworks::name(p)) return e.bytes;
  return 0;
}

std::uint64_t full_blocks(std::uint64_t bytes) { return (bytes + 511) / 512 * 512; }

}  // namespace

BOOST_AUTO_TEST_SUITE(pytorch_estimator)

BOOST_AUTO_TEST_CASE(the_settings_of_a_run_allocate_what_pytorch_counts) {
  std::size_t cases = 0;
  for (const json& record : test::oracle_records()) {
    const json& c = record.at("case");
    const model::Architecture a = test::architecture_of(c);
    std::vector<std::string> notes;
    BOOST_TEST_CONTEXT("case " << record.at("n") << ": " << c.dump()) {
      frameworks::StepSettings s = pytorch::step_settings(a, run_of(c), options_of(c), notes);
      const frameworks::StepSettings oracle = test::settings_of(c);
      s.machine = oracle.machine;            // fake tensors on the CPU
      s.lora_dropout = oracle.lora_dropout;  // no key of the run file
      const frameworks::Trace trace = frameworks::training_step(a, s).trace;
      BOOST_TEST(frameworks::find_peak(trace, {.block = 1}).bytes == measured_peak(record));
    }
    ++cases;
  }
  BOOST_TEST(cases == 500u);
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
    r.parallel.data = policy.at("world"), r.parallel.zero = policy.at("reshard") ? 3 : 2;
    pytorch::Options o = options_of(c);
    o.framework = pytorch::Framework::kFsdp2;
    const model::Architecture a = test::architecture_of(c);
    std::vector<std::string> notes;
    BOOST_TEST_CONTEXT("case " << record.at("n") << ": " << c.dump()) {
      frameworks::StepSettings s = pytorch::step_settings(a, r, o, notes);
      s.machine = test::settings_of(c).machine;
      const frameworks::Trace trace = frameworks::training_step(a, s).trace;
      BOOST_TEST(frameworks::find_peak(trace, {.block = 1}).bytes == measured_peak(record));
    }
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
  const auto refused = [&](const RunSpec& run, const std::string& what, const ModelSpec& m = llama_8b()) {
    BOOST_CHECK_EXCEPTION(estimate_fsdp(run, m), tp::PluginError, [&](const tp::PluginError& e) {
      BOOST_TEST(std::string(e.what()).find(what) != std::string::npos, e.what());
      return e.status() == "unsupported";
    });
  };
  refused(r, "FSDP2 of the family 'gpt2': its step was not compared", *model::find_planned_preset("gpt2"));
  r.parallel.zero = 1;
  refused(r, "parallel.zero = 1 with FSDP2: fully_shard divides weights");
  r.parallel.zero = 3, r.mode = RunMode::kLora, r.lora_rank = 8, r.lora_targets = 1;
  refused(r, "adapters under FSDP2: units that hold frozen");
}

BOOST_AUTO_TEST_CASE(the_settings_of_a_deepspeed_run_allocate_what_pytorch_counts) {
  std::size_t cases = 0;
  for (const json& record : test::oracle_records("deepspeed")) {
    const json &c = record.at("case"), &zero = c.at("zero");
    if (zero.at("groups") != 2) continue;  // transformers always makes two
    RunSpec r = run_of(c);
    if (c.at("precision") == "bf16") r.weight = r.compute = DType::kBF16, r.master = DType::kF32;
    r.parallel.data = zero.at("world"), r.parallel.zero = zero.at("stage");
    pytorch::Options o = options_of(c);
    o.framework = pytorch::Framework::kDeepSpeed;
    o.reduce_bucket = zero.at("bucket"), o.overlap_reduce = zero.at("overlap");
    const model::Architecture a = test::architecture_of(c);
    std::vector<std::string> notes;
    BOOST_TEST_CONTEXT("case " << record.at("n") << ": " << c.dump()) {
      frameworks::StepSettings s = pytorch::step_settings(a, r, o, notes);
      s.machine = test::settings_of(c).machine;
      const auto peak = [&] {
        return frameworks::find_peak(frameworks::training_step(a, s).trace, {.block = 1}).bytes;
      };
      // In f32 a rank with a part of one parameter alone does not copy its gradient, but keeps all of it.
      const std::uint64_t fullest = peak(), measured = measured_peak(record);
      if (c.at("precision") == "bf16") BOOST_TEST(fullest + measured / 100 >= measured);
      s.zero.rank = zero.at("rank");
      const std::uint64_t own = peak();
      BOOST_TEST(std::max(own, measured) - std::min(own, measured) <= 256u);
    }
    ++cases;
  }
  BOOST_TEST(cases >= 15u);
}

BOOST_AUTO_TEST_CASE(the_settings_of_stage_3_allocate_what_pytorch_counts) {
  std::size_t cases = 0;
  for (const json& record : test::oracle_records("deepspeed3")) {
    const json &c = record.at("case"), &zero = c.at("zero");
    if (zero.at("groups") != 2) continue;  // transformers always makes two
    RunSpec r = run_of(c);
    if (c.at("precision") == "bf16") r.weight = r.compute = DType::kBF16, r.master = DType::kF32;
    r.parallel.data = zero.at("world"), r.parallel.zero = 3;
    pytorch::Options o = options_of(c);
    o.framework = pytorch::Framework::kDeepSpeed;
    o.reduce_bucket = zero.at("bucket"), o.prefetch = zero.at("prefetch"),
    o.persistence = zero.at("persistence");
    o.max_live = zero.at("max_live"), o.reuse_distance = zero.at("reuse");
    const model::Architecture a = test::architecture_of(c);
    std::vector<std::string> notes;
    BOOST_TEST_CONTEXT("case " << record.at("n") << ": " << c.dump()) {
      frameworks::StepSettings s = pytorch::step_settings(a, r, o, notes);
      s.machine = test::settings_of(c).machine;
      s.zero.sub_group = zero.at("sub_group");
      const std::uint64_t measured = measured_peak(record);
      const std::uint64_t own =
          frameworks::find_peak(frameworks::training_step(a, s).trace, {.block = 1}).bytes;
      BOOST_TEST(std::max(own, measured) - std::min(own, measured) <= 256u);
    }
    ++cases;
  }
  BOOST_TEST(cases >= 20u);
}

BOOST_AUTO_TEST_CASE(stage_3_of_deepspeed_keeps_a_part_of_the_weights_and_has_settings) {
  RunSpec r = mixed_precision();
  r.parallel.data = 8, r.parallel.zero = 3;
  const auto estimate_zero = [](const RunSpec& run, std::map<std::string, std::string> more = {}) {
    more["framework"] = "deepspeed";
    return estimate(run, std::move(more));
  };
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
  const auto refused = [&](const RunSpec& run, const std::string& what) {
    BOOST_CHECK_EXCEPTION(estimate_zero(run), tp::PluginError, [&](const tp::PluginError& e) {
      BOOST_TEST(std::string(e.what()).find(what) != std::string::npos, e.what());
      return e.status() == "unsupported";
    });
  };
  RunSpec other = r;
  other.parallel.data = 1;
  refused(other, "ZeRO 3 of DeepSpeed on one rank");
  other = r, other.compute = other.weight = DType::kF16;
  refused(other, "train.precision = \"fp16\" with ZeRO 3 of DeepSpeed");
}

BOOST_AUTO_TEST_CASE(a_deepspeed_run_shards_its_states_and_is_refused_where_it_was_not_compared) {
  RunSpec r = mixed_precision();
  r.parallel.data = 8, r.parallel.zero = 2;
  const auto estimate_zero = [](const RunSpec& run, std::map<std::string, std::string> more = {}) {
    more["framework"] = "deepspeed";
    return estimate(run, std::move(more));
  };
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
  const auto refused = [&](const RunSpec& run, const std::string& what) {
    BOOST_CHECK_EXCEPTION(estimate_zero(run), tp::PluginError, [&](const tp::PluginError& e) {
      BOOST_TEST(std::string(e.what()).find(what) != std::string::npos, e.what());
      return e.status() == "unsupported";
    });
  };
  RunSpec other = r;
  other.parallel.zero = 0;
  refused(other, "parallel.zero = 0 with DeepSpeed: its stages 1 to 3 are replayed");
  other = r, other.moment = DType::kBF16;
  refused(other, "plan.moments = \"bf16\": bf16_optimizer_states");
  other = r, other.master = DType::kBF16;
  refused(other, "plan.master = \"bf16\": bf16_master_weights_and_grads");
  other = r, other.weight = DType::kF32, other.master = DType::kNone;
  refused(other, "plan.weights = \"fp32\" under DeepSpeed: its torch_autocast");
  other = r, other.mode = RunMode::kLora, other.lora_rank = 8, other.lora_targets = 1;
  other.parallel.zero = 3;
  refused(other, "adapters under ZeRO 3 of DeepSpeed");
  other = r, other.memory.optimizer_in = Tier::kHost;
  refused(other, "plan.offload_optimizer");
}

BOOST_AUTO_TEST_CASE(the_weights_of_every_described_preset_are_its_parameters) {
  std::size_t described = 0;
  const auto check = [&](const ModelSpec& m) {
    if (!frameworks::has_builder(m.family)) return;
    const model::Architecture a = model::from_model(m);
    std::uint64_t bytes = 0;
    RunSpec run;
    run.seq_len = 16;
    std::vector<std::string> notes;
    const frameworks::Trace trace =
        frameworks::training_step(a, pytorch::step_settings(a, run, {}, notes)).trace;
    for (const frameworks::TraceStorage& s : trace.storages)
      if (s.purpose == Purpose::kWeights) bytes += s.bytes;
    BOOST_TEST(bytes == 4 * model::count(a).total, m.name);
    ++described;
  };
  for (const ModelSpec& m : model_presets()) check(m);
  for (const ModelSpec& m : model::planned_presets()) check(m);
  BOOST_TEST(described > 20u);
}

BOOST_AUTO_TEST_CASE(the_report_adds_up_and_names_its_parts) {
  const MemoryReport r = estimate(mixed_precision());
  const std::uint64_t parameters = 8'030'261'248;
  BOOST_TEST(r.component_bytes(Component::kWeights) == 4 * parameters);
  BOOST_TEST(r.component_bytes(Component::kGradients) == 4 * parameters);
  BOOST_TEST(r.component_bytes(Component::kOptimizerState) == 8 * parameters);
  // Square roots of AdamW foreach, a workspace of cuBLAS in each of two threads, token ids and two tables of
  // rotary frequencies.
  BOOST_TEST(r.component_bytes(Component::kWorkspace) == 4 * parameters + (64u << 20) + 8 * 2048 + 2 * 512);
  BOOST_TEST(r.component_bytes(Component::kRuntime) == 512u << 20);
  BOOST_TEST(r.entries.back().formula == "assumed; plan.runtime replaces it");
  const MemoryReport measured = estimate(mixed_precision(), {{"runtime", "629145600"}});
  BOOST_TEST(measured.component_bytes(Component::kRuntime) == 600u << 20);
  BOOST_TEST(measured.entries.back().formula == "plan.runtime");
  std::uint64_t at_peak = 0;
  for (const MemoryEntry& e : r.entries) {
    BOOST_TEST((e.claim == Claim::kApproximation));
    BOOST_TEST(e.bytes >= e.at_peak());
    at_peak += e.at_peak();
  }
  BOOST_TEST(at_peak == r.tier_bytes(Tier::kDevice));
  // Kept for the backward pass although the peak is in the optimizer step.
  BOOST_TEST(bytes_of(r, Purpose::kActivations) > 9'000'000'000u);
  BOOST_TEST(has_note(r, "Mixed precision: the weights are f32, and autocast computes in bf16"));
  BOOST_TEST(has_note(r, "Peak: optimizer step in step 1"));
  BOOST_TEST(has_note(r, "Largest tensors at the peak: embed_tokens weight 1.96 GiB"));
  BOOST_TEST(has_note(r, "Not counted: NCCL"));
}

BOOST_AUTO_TEST_CASE(the_optimizer_is_that_of_the_framework_unless_named) {
  const auto temporaries = [](std::map<std::string, std::string> options) {
    return bytes_of(estimate(mixed_precision(), std::move(options)), Purpose::kUpdate);
  };
  BOOST_TEST(temporaries({}) == 4u * 8'030'261'248);
  BOOST_TEST(temporaries({{"framework", "pytorch"}}) == 4u * 8'030'261'248);
  BOOST_TEST(temporaries({{"framework", "transformers"}}) == 0u);
  BOOST_TEST(temporaries({{"optimizer_implementation", "fused"}}) == 0u);
  BOOST_TEST(temporaries({{"framework", "transformers"}, {"optimizer_implementation", "foreach"}}) ==
             4u * 8'030'261'248);
  // One parameter after the other: two temporaries of the largest.
  BOOST_TEST(temporaries({{"optimizer_implementation", "for-loop"}}) == 2u * 4 * 128256 * 4096);
}

BOOST_AUTO_TEST_CASE(weights_in_bf16_alone_have_moments_in_bf16) {
  RunSpec r = mixed_precision();
  r.master = DType::kNone;
  const MemoryReport report = estimate(r);
  BOOST_TEST(report.component_bytes(Component::kWeights) == 2u * 8'030'261'248);
  BOOST_TEST(report.component_bytes(Component::kOptimizerState) == 4u * 8'030'261'248);
  BOOST_TEST(has_note(report, "Gradients and moments have the type of the weights"));
}

BOOST_AUTO_TEST_CASE(several_ranks_have_buckets_as_large_as_the_gradients) {
  RunSpec r = mixed_precision();
  r.parallel.data = 8;
  const MemoryReport report = estimate(r);
  BOOST_TEST(report.component_bytes(Component::kCommunication) == 4u * 8'030'261'248);
  r.mode = RunMode::kLora, r.lora_rank = 8, r.lora_targets = frameworks::kLoraQ;
  // Only adapters are reduced: 32 layers with two matrices each.
  BOOST_TEST(estimate(r).component_bytes(Component::kCommunication) ==
             full_blocks(4u * 32 * 8 * (4096 + 4096)));
}

BOOST_AUTO_TEST_CASE(recomputation_keeps_one_input_of_each_layer) {
  const std::uint64_t inputs = 32ull * 2048 * 4096;
  RunSpec r = mixed_precision();
  r.recompute = Recompute::kFull;
  const std::uint64_t mixed = bytes_of(estimate(r), Purpose::kActivations);
  // Autocast keeps a bf16 copy of every linear layer's weight until the end of the forward pass.
  const std::uint64_t copies = 2u * (8'030'261'248 - 2ull * 128256 * 4096);  // in the layers
  BOOST_TEST(mixed > 4 * inputs + copies - (1u << 20));
  r.master = DType::kNone;  // without autocast
  const std::uint64_t recomputed = bytes_of(estimate(r), Purpose::kActivations);
  r.recompute = Recompute::kNone;
  const std::uint64_t all = bytes_of(estimate(r), Purpose::kActivations);
  BOOST_TEST(recomputed > 2 * inputs);
  BOOST_TEST(recomputed < all / 5);
}

BOOST_AUTO_TEST_CASE(later_micro_batches_are_like_the_second) {
  const model::Architecture a = model::from_model(llama_8b());
  RunSpec r = mixed_precision();
  r.accumulate = 64;
  std::vector<std::string> notes;
  frameworks::StepSettings s = pytorch::step_settings(a, r, {}, notes);
  BOOST_TEST(s.accumulate == 2u);
  const auto reserved = [&](std::uint32_t micro_batches) {
    s.accumulate = micro_batches;
    return frameworks::replay_allocator(frameworks::training_step(a, s).trace).reserved;
  };
  BOOST_TEST(reserved(2) == reserved(5));
}

BOOST_AUTO_TEST_CASE(a_run_that_fits_after_cached_memory_is_returned_fits) {
  RunSpec r = mixed_precision();
  const MemoryReport unlimited = estimate(r);
  const std::uint64_t gaps = unlimited.component_bytes(Component::kFragmentation);
  BOOST_TEST(gaps > 1u << 30);
  r.device_budget = unlimited.total_bytes() - gaps / 2;
  const MemoryReport limited = estimate(r);
  BOOST_TEST(limited.total_bytes() <= r.device_budget);
  BOOST_TEST(has_note(limited, "returns its cached memory to the driver"));
  // Below what is allocated nothing helps, and the report is that of a device with enough memory.
  r.device_budget = unlimited.total_bytes() - gaps - 1;
  BOOST_TEST(estimate(r).total_bytes() == unlimited.total_bytes());
  const MemoryReport expandable = estimate(mixed_precision(), {{"allocator", "expandable_segments:True"}});
  BOOST_TEST(expandable.component_bytes(Component::kFragmentation) < gaps / 2);
}

BOOST_AUTO_TEST_CASE(dropout_of_gpt2_is_that_of_its_config) {
  const ModelSpec gpt2 = *model::find_planned_preset("gpt2");
  ModelSpec without = gpt2;
  without.config_json.insert(without.config_json.find('{') + 1,
                             R"("resid_pdrop": 0.0, "embd_pdrop": 0, "attn_pdrop": 0.0, )");
  RunSpec r;
  r.seq_len = 512;
  BOOST_TEST(bytes_of(estimate(r, {}, gpt2), Purpose::kActivations) >
             bytes_of(estimate(r, {}, without), Purpose::kActivations));
}

BOOST_AUTO_TEST_CASE(what_is_not_described_is_refused_with_the_reason) {
  struct Row {
    const char* message;
    std::function<void(RunSpec&)> set;
  };
  const Row rows[] = {
      {"inference: it replays a training step", [](RunSpec& r) { r.mode = RunMode::kInference; }},
      {"quantized base weights: the kernels of bitsandbytes are not replayed",
       [](RunSpec& r) { r.mode = RunMode::kQlora, r.memory.frozen = DType::kNF4; }},
      {"lora.base = \"int8\": kernels of narrower types are not replayed",
       [](RunSpec& r) { r.mode = RunMode::kLora, r.lora_rank = 8, r.memory.frozen = DType::kI8; }},
      {"plan.weights = \"fp8\"", [](RunSpec& r) { r.weight = DType::kF8; }},
      {"train.precision = \"fp8\"", [](RunSpec& r) { r.compute = DType::kF8; }},
      {"plan.moments = \"bf16\": gradients and moments of torch.optim have the type of the parameter",
       [](RunSpec& r) { r.moment = DType::kBF16; }},
      {"plan.gradients = \"bf16\"", [](RunSpec& r) { r.grad = DType::kBF16; }},
      {"parallel.tensor = 2: this run is data-parallel only", [](RunSpec& r) { r.parallel.tensor = 2; }},
      {"parallel.pipeline = 4", [](RunSpec& r) { r.parallel.pipeline = 4; }},
      {"parallel.context = 2", [](RunSpec& r) { r.parallel.context = 2; }},
      {"parallel.expert = 2", [](RunSpec& r) { r.parallel.expert = 2; }},
      {"parallel.zero = 3: a plain PyTorch run shards nothing; FSDP2 is the framework fsdp2",
       [](RunSpec& r) { r.parallel.data = 8, r.parallel.zero = 3; }},
      {"lora.dora", [](RunSpec& r) { r.mode = RunMode::kLora, r.lora_rank = 8, r.memory.dora = true; }},
      {"plan.cross_entropy = \"in-place\"",
       [](RunSpec& r) { r.memory.cross_entropy = CrossEntropy::kInPlace; }},
      {"plan.offload_weights", [](RunSpec& r) { r.memory.weights_in = Tier::kPinned; }},
      {"plan.offload_optimizer", [](RunSpec& r) { r.memory.optimizer_in = Tier::kHost; }},
      {"plan.offload_activations", [](RunSpec& r) { r.memory.activations_in = Tier::kPinned; }},
      {"selective recomputation", [](RunSpec& r) { r.recompute = Recompute::kSelective; }},
      {"train.recompute_every = 4",
       [](RunSpec& r) { r.recompute = Recompute::kFull, r.memory.recompute_every = 4; }},
      {"optimizer.name = \"muon\": its temporaries are not replayed",
       [](RunSpec& r) { r.optimizer = Optimizer::kMuon; }},
      {"optimizer.name = \"adamw-8bit\"", [](RunSpec& r) { r.optimizer = Optimizer::kAdamW8bit; }},
  };
  tp::Registry plugins = registry();
  for (const Row& row : rows) {
    RunSpec r = mixed_precision();
    row.set(r);
    BOOST_TEST_CONTEXT(row.message) {
      BOOST_TEST(plugins.estimator("pytorch").match(llama_8b(), r) > 0);
      BOOST_CHECK_EXCEPTION(plugins.estimator("pytorch").estimate(llama_8b(), r, nullptr), tp::PluginError,
                            [&](const tp::PluginError& e) {
                              const std::string text = e.what();
                              BOOST_TEST(text.starts_with("the estimator 'pytorch' does not describe "),
                                         text);
                              BOOST_TEST(text.find(row.message) != text.npos, text);
                              return e.status() == "unsupported";
                            });
    }
  }
  const ModelSpec mixtral = *model::find_planned_preset("mixtral-8x7b-v0.1");
  RunSpec r = mixed_precision();
  r.mode = RunMode::kLora, r.lora_rank = 8, r.lora_targets = frameworks::kLoraUp;
  BOOST_CHECK_EXCEPTION(plugins.estimator("pytorch").estimate(mixtral, r, nullptr), tp::PluginError,
                        [](const tp::PluginError& e) {
                          return std::string(e.what()).find("adapters of experts") != std::string::npos;
                        });
  BOOST_TEST(plugins.estimator("pytorch").match(*model::find_planned_preset("gemma-2b"), r) == 0);
}

BOOST_AUTO_TEST_CASE(sizes_that_cannot_be_summed_are_refused) {
  RunSpec r = mixed_precision();
  r.micro_batch = 1 << 20, r.seq_len = 1 << 24;
  BOOST_CHECK_EXCEPTION(estimate(r), tp::PluginError, [](const tp::PluginError& e) {
    return e.status() == "unsupported" && std::string(e.what()).find("63 bits") != std::string::npos;
  });
  r.micro_batch = 1, r.seq_len = 1 << 18;
  BOOST_TEST(estimate(r).total_bytes() > std::uint64_t{1} << 40);
}

BOOST_AUTO_TEST_CASE(torchtune_is_replayed_and_refused_where_it_was_not_compared) {
  RunSpec r = mixed_precision();
  r.recompute = Recompute::kFull;
  const auto estimate_torchtune = [](const RunSpec& run, std::map<std::string, std::string> options = {},
                                     const ModelSpec& m = llama_8b()) {
    options["framework"] = "torchtune";
    return estimate(run, std::move(options), m);
  };
  const MemoryReport plain = estimate_torchtune(r);
  BOOST_TEST(plain.component_bytes(Component::kWeights) == 2u * 8'030'261'248);
  BOOST_TEST(has_note(plain, "without a copy in f32"));
  // A gradient is freed when its parameter is updated.
  const MemoryReport inside = estimate_torchtune(r, {{"optimizer_in_backward", "true"}});
  BOOST_TEST(inside.component_bytes(Component::kGradients) <
             plain.component_bytes(Component::kGradients) / 4);
  r.optimizer = Optimizer::kAdamW8bit;
  const std::uint64_t bytes = estimate_torchtune(r).component_bytes(Component::kOptimizerState);
  BOOST_TEST(bytes > 2u * 8'030'261'248);
  BOOST_TEST(bytes < 2.1 * 8'030'261'248);
  BOOST_TEST(
      estimate_torchtune(r, {{"optimizer_paged", "true"}}).component_bytes(Component::kOptimizerState) <
      bytes / 10);
  const auto refused = [&](const std::string& what, const auto& set, const ModelSpec& m = llama_8b()) {
    RunSpec run = mixed_precision();
    std::map<std::string, std::string> options;
    set(run, options);
    BOOST_CHECK_EXCEPTION(estimate_torchtune(run, options, m), tp::PluginError,
                          [&](const tp::PluginError& e) {
                            BOOST_TEST(std::string(e.what()).find(what) != std::string::npos, e.what());
                            return e.status() == "unsupported";
                          });
  };
  using Options = std::map<std::string, std::string>;
  refused(
      "of its models only Llama and Mistral", [](RunSpec&, Options&) {}, *model::find_planned_preset("gpt2"));
  refused("train.precision other than",
          [](RunSpec& run, Options&) { run.compute = run.weight = DType::kF32; });
  refused("a gradient is freed before the next micro-batch",
          [](RunSpec& run, Options& o) { run.accumulate = 2, o["optimizer_in_backward"] = "true"; });
  refused("plan.offload_activations without recomputation",
          [](RunSpec& run, Options&) { run.memory.activations_in = Tier::kPinned; });
  refused("with several ranks in torchtune", [](RunSpec& run, Options&) { run.parallel.data = 8; });
  refused("NF4 weights on several ranks", [](RunSpec& run, Options&) {
    run.parallel.data = 8, run.parallel.zero = 3, run.lora_rank = 8, run.lora_targets = 1;
    run.mode = RunMode::kQlora, run.memory.frozen = DType::kNF4;
  });
  BOOST_CHECK_EXCEPTION(estimate(mixed_precision(), {{"execution", "compile"}}), tp::PluginError,
                        [](const tp::PluginError& e) { return e.status() == "unsupported"; });
}

BOOST_AUTO_TEST_CASE(lora_of_litgpt_is_replayed_and_other_runs_of_it_are_refused) {
  const ModelSpec llama = *find_model_preset("llama-2-7b");
  RunSpec r = mixed_precision();
  r.mode = RunMode::kLora, r.lora_rank = 8, r.lora_targets = frameworks::kLoraQ | frameworks::kLoraV;
  const auto estimate_litgpt = [](const RunSpec& run, const ModelSpec& m) {
    return estimate(run, {{"framework", "litgpt"}, {"cross_entropy", "plain"}}, m);
  };
  const MemoryReport report = estimate_litgpt(r, llama);
  // 4,194,304 trained parameters, and their moments.
  BOOST_TEST(report.component_bytes(Component::kWeights) == 2u * (6'738'415'616 + 4'194'304));
  BOOST_TEST(report.component_bytes(Component::kOptimizerState) == 4u * 4'194'304);
  BOOST_TEST(has_note(report, "litgpt has weights, adapters and moments in bf16"));
  const auto refused = [&](const std::string& what, const auto& set, const ModelSpec& m) {
    RunSpec run = r;
    set(run);
    BOOST_CHECK_EXCEPTION(estimate_litgpt(run, m), tp::PluginError, [&](const tp::PluginError& e) {
      BOOST_TEST(std::string(e.what()).find(what) != std::string::npos, e.what());
      return e.status() == "unsupported";
    });
  };
  refused(
      "only Llama without grouped heads", [](RunSpec&) {}, llama_8b());
  refused(
      "full training in litgpt", [](RunSpec& run) { run.mode = RunMode::kFull; }, llama);
  refused(
      "this base of litgpt", [](RunSpec& run) { run.mode = RunMode::kQlora, run.memory.frozen = DType::kI8; },
      llama);
  refused(
      "these lora.targets in litgpt", [](RunSpec& run) { run.lora_targets = 127; }, llama);
  refused(
      "several ranks in litgpt", [](RunSpec& run) { run.parallel.data = 2; }, llama);
  refused(
      "recomputation in litgpt", [](RunSpec& run) { run.recompute = Recompute::kFull; }, llama);
  r.mode = RunMode::kQlora, r.memory.frozen = DType::kNF4;
  const std::uint64_t linear = 6'738'415'616 - 32000ull * 4096 - 65 * 4096;  // with the head
  const std::uint64_t nf4 = estimate_litgpt(r, llama).component_bytes(Component::kWeights);
  BOOST_TEST(nf4 > linear / 2 + linear / 16);  // a scale of 4 bytes per 64 elements
  BOOST_TEST(nf4 < linear / 2 + linear / 16 + 300'000'000);
}

BOOST_AUTO_TEST_CASE(a_wrong_option_is_a_mistake_and_not_a_run_that_is_not_described) {
  for (const auto& [key, value] : {std::pair{"allocator", "max_split_size_mb:x"},
                                   {"optimizer_implementation", "foreach2"},
                                   {"runtime", "much"}})
    BOOST_CHECK_EXCEPTION(estimate(mixed_precision(), {{key, value}}), tp::PluginError,
                          [](const tp::PluginError& e) { return e.status() != "unsupported"; });
}

BOOST_AUTO_TEST_SUITE_END()
