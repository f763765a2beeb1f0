// Every field of RunSpec, Parallelism and MemoryPolicy, and every value of those with few values: no setting
// is silently ignored. A value is implemented by trainers, or planned_only_setting() names its key; and the
// transformer estimator plans it, or rejects it with the same key. A field added to these structs fails to
// compile here until it has rows.
#include <boost/test/unit_test.hpp>
#include <functional>
#include <map>

#include "core/base/types.hpp"
#include "core/placement/memory_plan.hpp"
#include "core/plugin/registry.hpp"

using namespace trainhost;
namespace tp = trainhost::plugin;

namespace {

// Structured bindings: fails to compile if the number of fields changes.
[[maybe_unused]] void all_fields(const RunSpec& run, const Parallelism& parallel,
                                 const MemoryPolicy& policy) {
  [[maybe_unused]] const auto& [mode, micro_batch, seq_len, accumulate, weight, grad, master, moment, compute,
                                optimizer, recompute, recompute_layers, beta1, beta2, eps, weight_decay,
                                clip_norm, seed, of_parallel, rank, targets, alpha, rules, trainable,
                                of_memory, device_budget, host_budget, document_mask] = run;
  [[maybe_unused]] const auto& [data, tensor, sequence, pipeline, virtual_stages, context, expert,
                                expert_tensor, zero, first_stage_layers, last_stage_layers, data_rank,
                                tensor_rank] = parallel;
  [[maybe_unused]] const auto& [vocab_multiple, recompute_every, attention, cross_entropy, weights_in,
                                optimizer_in, activations_in, frozen, double_quantized, dora, kv_cache,
                                kv_page, gradients_in, prefill_chunk, gap_permille, adapts_head,
                                adapts_embedding, saves_head, saves_embedding, packed, frozen_experts,
                                dequantizes, stacks_quantized_experts, lora_dropout] = policy;
}

enum Planned {
  kDiffers,  // the transformer plans it, with other bytes
  kSame,     // it plans it, and no byte depends on it
  kRefused,  // it rejects it with the key
};

struct Row {
  std::string field, key;  // key "": implemented by trainers
  Planned planned;
  std::function<void(RunSpec&)> set;
  // Of a field that th_run does not have: the option with which the estimator gets it.
  std::map<std::string, std::string> options = {};
};

ModelSpec small_model() {
  ModelSpec m;
  m.family = "llama", m.vocab = 1000, m.hidden = 256, m.layers = 4, m.heads = m.kv_heads = 8, m.head_dim = 32,
  m.intermediate = 512;
  return m;
}

constexpr DType kEveryType[] = {DType::kNone, DType::kF32, DType::kF16,  DType::kBF16,
                                DType::kI32,  DType::kU8,  DType::kTF32, DType::kF64,
                                DType::kF8,   DType::kI8,  DType::kNF4,  DType::kI4};

bool floating(DType t) {
  for (DType f : {DType::kF32, DType::kF16, DType::kBF16, DType::kTF32, DType::kF64, DType::kF8})
    if (t == f) return true;
  return false;
}

void add_types(std::vector<Row>& rows) {
  const auto each = [&](const char* field, const char* key, DType otherwise, bool none, auto member) {
    for (const DType t : kEveryType) {
      if (t == otherwise || (t == DType::kNone && !none)) continue;  // in the C interface 0 means "not set"
      const bool fine = floating(t) || t == DType::kNone;
      const bool four_bytes = otherwise == DType::kF32 && t == DType::kTF32;
      rows.push_back({std::string(field) + " " + std::string(name(t)), key,
                      !fine        ? kRefused
                      : four_bytes ? kSame
                                   : kDiffers,
                      [=](RunSpec& r) { r.*member = t; }});
    }
  };
  each("weight", "plan.weights", DType::kF32, false, &RunSpec::weight);
  each("grad", "plan.gradients", DType::kF32, false, &RunSpec::grad);
  each("master", "plan.master", DType::kNone, true, &RunSpec::master);
  each("moment", "plan.moments", DType::kF32, false, &RunSpec::moment);
  each("compute", "train.precision", DType::kF32, false, &RunSpec::compute);
  for (Row& row : rows) {  // trainers implement products in these two types, with matching weights
    if (row.field == "compute tf32") row.key = "";
    if (row.field == "compute bf16") row.key = "plan.weights";
  }
  const auto mixed = [](RunSpec& r, DType t) { r.weight = r.compute = t, r.master = DType::kF32; };
  rows.push_back({"bf16", "", kDiffers, [=](RunSpec& r) { mixed(r, DType::kBF16); }});
  rows.push_back({"bf16, bf16 master", "plan.master", kDiffers,
                  [=](RunSpec& r) { mixed(r, DType::kBF16), r.master = DType::kBF16; }});
  rows.push_back({"bf16, no master", "plan.master", kDiffers,
                  [=](RunSpec& r) { mixed(r, DType::kBF16), r.master = DType::kNone; }});
  for (const DType t : {DType::kF16, DType::kF8})
    rows.push_back(
        {std::string(run_file_name(t)), "train.precision", kDiffers, [=](RunSpec& r) { mixed(r, t); }});
  for (const DType t : {DType::kI8, DType::kI4, DType::kNF4})  // once ignored by mistake
    rows.push_back({"inference " + std::string(run_file_name(t)), "plan.weights", kDiffers,
                    [=](RunSpec& r) { r.mode = RunMode::kInference, r.weight = t; }});
}

void add_run(std::vector<Row>& rows) {
  const auto add = [&](const char* field, const char* key, Planned p, std::function<void(RunSpec&)> set) {
    rows.push_back({field, key, p, std::move(set)});
  };
  const auto adapters = [](RunSpec& r) { r.mode = RunMode::kLora, r.lora_rank = 8, r.lora_targets = 5; };
  add("mode lora", "", kDiffers, adapters);
  add("mode qlora", "", kDiffers, [=](RunSpec& r) { adapters(r), r.mode = RunMode::kQlora; });
  add("mode lora, dora", "", kDiffers, [=](RunSpec& r) { adapters(r), r.memory.dora = true; });
  add("mode lora, rank 0", "lora.rank", kRefused, [](RunSpec& r) { r.mode = RunMode::kLora; });
  add("mode inference", "", kDiffers, [](RunSpec& r) { r.mode = RunMode::kInference; });
  add("micro_batch", "", kDiffers, [](RunSpec& r) { r.micro_batch = 2; });
  add("seq_len", "", kDiffers, [](RunSpec& r) { r.seq_len = 512; });
  add("trainable", "", kRefused, [](RunSpec& r) { r.trainable = "-model.norm.weight"; });
  add("lora_rules", "", kRefused, [=](RunSpec& r) {
    adapters(r);
    r.lora_rules = "model.layers.0.self_attn.q_proj 4 8\nmodel.layers.0.self_attn.v_proj 4 8";
  });
  add("document_mask", "", kSame, [](RunSpec& r) { r.document_mask = true; });
  add("accumulate", "", kSame, [](RunSpec& r) { r.accumulate = 2; });
  for (std::uint32_t o = 2; o <= 7; ++o)
    add("optimizer", "", kDiffers, [=](RunSpec& r) { r.optimizer = static_cast<Optimizer>(o); });
  add("recompute selective", "", kDiffers, [](RunSpec& r) { r.recompute = Recompute::kSelective; });
  add("recompute full", "", kDiffers, [](RunSpec& r) { r.recompute = Recompute::kFull; });
  add("recompute auto", "", kSame, [](RunSpec& r) { r.recompute = Recompute::kAuto; });
  add("recompute layers", "", kDiffers, [](RunSpec& r) {
    r.recompute = Recompute::kLayers, r.recompute_layers = {2, 1, 1};
  });
  add("recompute_layers of another policy", "", kSame, [](RunSpec& r) { r.recompute_layers = {1, 1, 1}; });
  add("beta1", "", kSame, [](RunSpec& r) { r.beta1 = 0.8; });
  add("beta2", "", kSame, [](RunSpec& r) { r.beta2 = 0.999; });
  add("eps", "", kSame, [](RunSpec& r) { r.eps = 1e-6; });
  add("weight_decay", "", kSame, [](RunSpec& r) { r.weight_decay = 0; });
  add("clip_norm", "", kSame, [](RunSpec& r) { r.clip_norm = 0; });
  add("seed", "", kSame, [](RunSpec& r) { r.seed = 1; });
  add("device_budget", "", kSame, [](RunSpec& r) { r.device_budget = 1; });
  add("host_budget", "", kSame, [](RunSpec& r) { r.host_budget = 1; });
  add("lora_rank alone", "lora.rank", kRefused, [](RunSpec& r) { r.lora_rank = 8; });
  add("lora_targets alone", "lora.targets", kRefused, [](RunSpec& r) { r.lora_targets = 1; });
  add("lora_alpha alone", "lora.alpha", kRefused, [](RunSpec& r) { r.lora_alpha = 16; });
}

void add_parallelism(std::vector<Row>& rows) {
  const auto add = [&](const char* field, const char* key, Planned p, std::function<void(Parallelism&)> set) {
    rows.push_back({field, key, p, [set](RunSpec& r) { set(r.parallel); }});
  };
  add("data", "parallel.data", kSame, [](Parallelism& p) { p.data = 2; });
  add("tensor", "parallel.tensor", kDiffers, [](Parallelism& p) { p.tensor = 2; });
  add("pipeline", "parallel.pipeline", kDiffers, [](Parallelism& p) { p.pipeline = 2; });
  add("zero 1", "parallel.zero", kSame, [](Parallelism& p) { p.zero = 1; });
  add("zero 4", "parallel.zero", kRefused, [](Parallelism& p) { p.zero = 4; });
  add("sequence, one tensor rank", "parallel.sequence", kRefused, [](Parallelism& p) { p.sequence = true; });
  add("context", "parallel.context", kDiffers, [](Parallelism& p) { p.context = 2; });
  add("expert, none in the model", "parallel.expert", kRefused, [](Parallelism& p) { p.expert = 2; });
  add("virtual_stages, no pipeline", "parallel.interleave", kRefused,
      [](Parallelism& p) { p.virtual_stages = 2; });
}

void add_memory_policy(std::vector<Row>& rows) {
  const auto add = [&](const char* field, const char* key, Planned p,
                       std::function<void(MemoryPolicy&)> set) {
    rows.push_back({field, key, p, [set](RunSpec& r) { set(r.memory); }});
  };
  add("vocab_multiple", "parallel.vocab_multiple", kDiffers, [](MemoryPolicy& l) { l.vocab_multiple = 128; });
  add("recompute_every without recompute", "train.recompute_every", kRefused,
      [](MemoryPolicy& l) { l.recompute_every = 2; });
  add("attention", "plan.attention", kDiffers,
      [](MemoryPolicy& l) { l.attention = AttentionMemory::kMaterialised; });
  add("cross_entropy plain", "plan.cross_entropy", kDiffers,
      [](MemoryPolicy& l) { l.cross_entropy = CrossEntropy::kPlain; });
  for (const Tier t : {Tier::kHost, Tier::kDisk}) {
    add("weights_in", "plan.offload_weights", kDiffers, [=](MemoryPolicy& l) { l.weights_in = t; });
    add("optimizer_in", "plan.offload_optimizer", kDiffers, [=](MemoryPolicy& l) { l.optimizer_in = t; });
    add("activations_in", "plan.offload_activations", kDiffers,
        [=](MemoryPolicy& l) { l.activations_in = t; });
  }
  add("frozen alone", "lora.base", kRefused, [](MemoryPolicy& l) { l.frozen = DType::kNF4; });
  add("double_quantized alone", "lora.double_quant", kRefused,
      [](MemoryPolicy& l) { l.double_quantized = true; });
  add("dora alone", "lora.dora", kRefused, [](MemoryPolicy& l) { l.dora = true; });
  add("kv_cache in training", "plan.kv_cache", kRefused, [](MemoryPolicy& l) { l.kv_cache = DType::kF8; });
  add("kv_page in training", "plan.kv_page", kRefused, [](MemoryPolicy& l) { l.kv_page = 16; });
  const auto infer = [&](const char* field, const char* key, std::function<void(MemoryPolicy&)> set) {
    rows.push_back(
        {field, key, kDiffers, [set](RunSpec& r) { r.mode = RunMode::kInference, set(r.memory); }});
  };
  infer("kv_cache", "plan.kv_cache", [](MemoryPolicy& l) { l.kv_cache = DType::kF8; });
  infer("kv_page", "plan.kv_page", [](MemoryPolicy& l) { l.kv_page = 1024; });
}

/// Fields that th_run does not have. "": a setting beside another one that can be planned only.
void add_options(std::vector<Row>& rows) {
  const auto pipelined = [](RunSpec& r) { r.parallel.pipeline = 2; };
  rows.push_back({"expert_tensor, no experts in the model",
                  "plan.expert_tensor",
                  kSame,
                  [](RunSpec& r) { r.parallel.expert_tensor = 1; },
                  {{"expert_tensor", "1"}}});
  rows.push_back({"expert_tensor, too few ranks",
                  "plan.expert_tensor",
                  kRefused,
                  [](RunSpec& r) { r.parallel.expert_tensor = 2; },
                  {{"expert_tensor", "2"}}});
  rows.push_back(
      {"first_stage_layers", "parallel.pipeline", kDiffers, pipelined, {{"first_stage_layers", "1"}}});
  rows.push_back(
      {"last_stage_layers", "parallel.pipeline", kDiffers, pipelined, {{"last_stage_layers", "1"}}});
  rows.push_back({"first_stage_layers, one stage",
                  "plan.first_stage_layers",
                  kRefused,
                  [](RunSpec& r) { r.parallel.first_stage_layers = 1; },
                  {{"first_stage_layers", "1"}}});
  rows.push_back({"gradients_in",
                  "plan.offload_gradients",
                  kDiffers,
                  [](RunSpec& r) { r.memory.gradients_in = Tier::kHost; },
                  {{"offload_gradients", "cpu"}}});
  rows.push_back({"prefill_chunk",
                  "plan.prefill_chunk",
                  kDiffers,
                  [](RunSpec& r) { r.mode = RunMode::kInference, r.memory.prefill_chunk = 16; },
                  {{"prefill_chunk", "16"}}});
  rows.push_back({"prefill_chunk in training",
                  "plan.prefill_chunk",
                  kRefused,
                  [](RunSpec& r) { r.memory.prefill_chunk = 16; },
                  {{"prefill_chunk", "16"}}});
  rows.push_back({"gap_permille",
                  "plan.allocator_margin",
                  kDiffers,
                  [](RunSpec& r) { r.memory.gap_permille = 100; },
                  {{"allocator_margin", "0.1"}}});
  rows.push_back({"adapts_head",
                  "lora.targets",
                  kDiffers,
                  [](RunSpec& r) {
                    r.mode = RunMode::kLora, r.lora_rank = 8, r.lora_targets = 1;
                    r.memory.adapts_head = true;
                  },
                  {{"lora_head", "true"}}});
  rows.push_back({"adapts_embedding",
                  "lora.targets",
                  kDiffers,
                  [](RunSpec& r) {
                    r.mode = RunMode::kLora, r.lora_rank = 8, r.lora_targets = 1;
                    r.memory.adapts_embedding = true;
                  },
                  {{"lora_embedding", "true"}}});
  for (const bool head : {false, true}) {
    const auto save = [head](RunSpec& r) { (head ? r.memory.saves_head : r.memory.saves_embedding) = true; };
    rows.push_back({head ? "saves_head" : "saves_embedding",
                    "lora.modules_to_save",
                    kDiffers,
                    [save](RunSpec& r) {
                      r.mode = RunMode::kLora, r.lora_rank = 8, r.lora_targets = 1;
                      save(r);
                    },
                    {{head ? "saved_head" : "saved_embedding", "true"}}});
    rows.push_back({head ? "saves_head alone" : "saves_embedding alone",
                    "lora.modules_to_save",
                    kRefused,
                    save,
                    {{head ? "saved_head" : "saved_embedding", "true"}}});
  }
  rows.push_back({"packed",
                  "parallel.data",
                  kDiffers,
                  [](RunSpec& r) {
                    r.mode = RunMode::kQlora, r.lora_rank = 8, r.lora_targets = 1;
                    r.parallel.data = 2, r.parallel.zero = 3;
                    r.memory.packed = PackedWeights::kWhole;
                  },
                  {{"framework", "transformers"}}});
  const auto quantized = [](RunSpec& r) { r.mode = RunMode::kQlora, r.lora_rank = 8, r.lora_targets = 1; };
  rows.push_back({"dequantizes", "", kDiffers, quantized, {{"framework", "transformers"}}});
  rows.push_back({"frozen_experts, none in the model", "", kSame, quantized, {{"quant_experts", "true"}}});
  rows.push_back({"adapts_embedding alone",
                  "lora.targets",
                  kRefused,
                  [](RunSpec& r) { r.memory.adapts_embedding = true; },
                  {{"lora_embedding", "true"}}});
  rows.push_back({"adapts_head alone",
                  "lora.targets",
                  kRefused,
                  [](RunSpec& r) { r.memory.adapts_head = true; },
                  {{"lora_head", "true"}}});
  rows.push_back({"lora_dropout", "", kDiffers, [](RunSpec& r) {
                    r.mode = RunMode::kLora, r.lora_rank = 8, r.lora_targets = 1;
                    r.memory.lora_dropout = 0.1;
                  }});
  rows.push_back({"lora_dropout alone",
                  "lora.dropout",
                  kRefused,
                  [](RunSpec& r) { r.memory.lora_dropout = 0.1; },
                  {{"lora_dropout", "0.1"}}});
  for (const auto& [name, kind] : {std::pair{"liger", CrossEntropy::kLiger}, {"cut", CrossEntropy::kCut}})
    rows.push_back({std::string("cross_entropy ") + name,
                    "plan.cross_entropy",
                    kDiffers,
                    [kind = kind](RunSpec& r) { r.memory.cross_entropy = kind; },
                    {{"cross_entropy", name}}});
}

/// Bytes of a plan by entry.
std::string bytes_of(const MemoryReport& r) {
  std::string out;
  for (const MemoryEntry& n : r.entries)
    out += n.name + "@" + std::string(name(n.tier)) + "=" + std::to_string(n.bytes) + "\n";
  return out;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(run_fields)

BOOST_AUTO_TEST_CASE(every_value_is_implemented_or_rejected_by_key_and_planned_or_rejected_by_key) {
  tp::Registry registry({TRAINHOST_BINARY_DIR "/lib/trainhost/plugins"}, {});
  std::vector<Row> rows;
  add_types(rows), add_run(rows), add_parallelism(rows), add_memory_policy(rows), add_options(rows);
  const auto planned = [&](const RunSpec& r, const std::map<std::string, std::string>& options = {}) {
    if (options.empty())
      return bytes_of(registry.estimator("transformer").estimate(small_model(), r, nullptr));
    tp::HostOptions host;
    host.plugin_options["transformer"] = options;
    tp::Registry with_options({TRAINHOST_BINARY_DIR "/lib/trainhost/plugins"}, host);
    return bytes_of(with_options.estimator("transformer").estimate(small_model(), r, nullptr));
  };
  const std::string base = planned({});
  BOOST_TEST(!planned_only_setting({}));
  for (const Row& row : rows) {
    RunSpec r;
    row.set(r);
    BOOST_TEST(planned_only_setting(r).key == row.key,
               row.field << ": planned-only setting is \"" << planned_only_setting(r).key << '"');
    const bool trains = row.key.empty() && r.mode != RunMode::kInference;
    // A setting that th_run does not have needs a framework, and 'llama' is not asked for one.
    if (row.options.empty())
      BOOST_TEST((registry.estimator("llama").match(small_model(), r) > 0) == trains, row.field);
    try {
      // An option differs from the same run without it.
      const bool differs = planned(r, row.options) != (row.options.empty() ? base : planned(r));
      BOOST_TEST(row.planned != kRefused, row.field << ": was planned");
      BOOST_TEST(differs == (row.planned == kDiffers),
                 row.field << (differs ? ": differs" : ": has no effect"));
    } catch (const tp::PluginError& e) {
      BOOST_TEST(row.planned == kRefused, row.field << ": " << e.what());
      BOOST_TEST(std::string(e.what()).find(row.key) != std::string::npos, row.field << ": " << e.what());
    }
  }
}

// In the C interface 0 means "not set"; inside the host it is a value that no trainer implements.
BOOST_AUTO_TEST_CASE(zero_is_not_a_number_of_ranks) {
  RunSpec data, tensor, pipeline, context, compute;
  data.parallel.data = 0, tensor.parallel.tensor = 0, pipeline.parallel.pipeline = 0,
  context.parallel.context = 0;
  compute.compute = DType::kNone;
  BOOST_TEST(planned_only_setting(data).key == "parallel.data");
  BOOST_TEST(planned_only_setting(tensor).key == "parallel.tensor");
  BOOST_TEST(planned_only_setting(pipeline).key == "parallel.pipeline");
  BOOST_TEST(planned_only_setting(context).key == "parallel.context");
  BOOST_TEST(planned_only_setting(compute).key == "train.precision");
}

BOOST_AUTO_TEST_CASE(implemented_settings_have_a_step_program) {
  std::vector<Row> rows;
  add_types(rows), add_run(rows), add_parallelism(rows), add_memory_policy(rows), add_options(rows);
  for (const Row& row : rows) {
    RunSpec r;
    row.set(r);
    if (!row.key.empty() || r.recompute == Recompute::kAuto) continue;
    TrainerTraits device;
    device.tier = Tier::kDevice;  // TF32 exists only on devices
    BOOST_CHECK_NO_THROW(step::build_program(small_model(), r, device));
  }
}

BOOST_AUTO_TEST_SUITE_END()
