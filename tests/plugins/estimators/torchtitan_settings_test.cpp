// Keys of a torchtitan run that the estimator of PyTorch reads, and what it refuses.
#include <boost/test/unit_test.hpp>
#include <functional>

#include "core/base/error.hpp"
#include "core/model/architecture.hpp"
#include "core/plugin/registry.hpp"
#include "plugins/estimators/pytorch/report.hpp"
#include "tests/plugins/estimators/report_notes.hpp"

using namespace trainhost;
using test::has_note;

namespace {

model::Architecture small_llama() {
  model::Architecture a;
  a.family = "llama", a.vocab = 8192, a.hidden = 256;
  model::Layer l;
  l.attention.heads = 8, l.attention.kv_heads = 4, l.attention.head_dim = 32, l.mlp.width = 768;
  a.layers = {{l, 8}};
  return a;
}

ModelSpec small_model() {
  ModelSpec m;
  m.family = "llama", m.vocab = 8192, m.hidden = 256, m.layers = 8, m.heads = 8, m.kv_heads = 4,
  m.head_dim = 32, m.intermediate = 768;
  return m;
}

RunSpec sharded() {
  RunSpec r;
  r.weight = DType::kF32, r.compute = DType::kBF16;
  r.micro_batch = 2, r.seq_len = 512, r.accumulate = 4, r.recompute = Recompute::kFull;
  r.parallel.data = 4, r.parallel.zero = 3;
  return r;
}

pytorch::Options titan(pytorch::TorchtitanVersion version = pytorch::TorchtitanVersion::k02) {
  pytorch::Options o;
  o.framework = pytorch::Framework::kTorchtitan, o.version = version;
  o.loop = frameworks::OptimizerLoop::kFused;
  return o;
}

pytorch::Options compiled() {
  pytorch::Options o = titan();
  o.compile = o.compiles_loss = true;
  return o;
}

std::uint64_t bytes(const RunSpec& r, const pytorch::Options& o) {
  return pytorch::report(small_llama(), r, o).total_bytes();
}

}  // namespace

BOOST_AUTO_TEST_SUITE(torchtitan_settings)

BOOST_AUTO_TEST_CASE(releases_differ_in_units_norms_and_gradients_that_are_kept) {
  const auto settings = [](pytorch::TorchtitanVersion v) {
    std::vector<std::string> notes;
    return pytorch::step_settings(small_llama(), sharded(), titan(v), notes);
  };
  using V = pytorch::TorchtitanVersion;
  for (const V v : {V::k00, V::k01, V::k02}) {
    const frameworks::StepSettings s = settings(v);
    BOOST_TEST(s.composite_norms == (v == V::k00));
    BOOST_TEST(s.fsdp.separate_ends == (v == V::k02));
    BOOST_TEST(s.fsdp.keeps_last_layer == (v != V::k02));
    BOOST_TEST(s.fsdp.sums_by_unit == (v != V::k02));
  }
}

BOOST_AUTO_TEST_CASE(the_plugin_reads_release_and_execution) {
  const auto estimate = [](std::map<std::string, std::string> options) {
    plugin::HostOptions o;
    options["framework"] = "torchtitan";
    o.plugin_options["pytorch"] = std::move(options);
    plugin::Registry plugins({TRAINHOST_BINARY_DIR "/lib/trainhost/plugins"}, std::move(o));
    return plugins.estimator("pytorch").estimate(small_model(), sharded(), nullptr);
  };
  const std::uint64_t newest = estimate({}).total_bytes();
  BOOST_TEST(estimate({{"framework_version", "0.2"}}).total_bytes() == newest);
  BOOST_TEST(estimate({{"framework_version", "0.0"}}).total_bytes() > newest);
  const MemoryReport r = estimate({{"execution", "compile"}});
  BOOST_TEST(r.total_bytes() < newest);
  BOOST_TEST(has_note(r, "the loss is computed from logits in bf16"));
  // 0.0 compiled no loss.
  BOOST_TEST(!has_note(estimate({{"execution", "compile"}, {"framework_version", "0.0"}}), "logits in bf16"));
  plugin::HostOptions other;
  other.plugin_options["pytorch"] = {{"framework", "fsdp2"}, {"framework_version", "0.1"}};
  plugin::Registry fsdp2({TRAINHOST_BINARY_DIR "/lib/trainhost/plugins"}, std::move(other));
  BOOST_CHECK_EXCEPTION(fsdp2.estimator("pytorch").estimate(small_model(), sharded(), nullptr),
                        plugin::PluginError, [](const plugin::PluginError& e) {
                          return std::string(e.what()).find("one release of fsdp2 is described") !=
                                 std::string::npos;
                        });
  BOOST_CHECK_EXCEPTION(estimate({{"framework_version", "0.4"}}), plugin::PluginError,
                        [](const plugin::PluginError& e) {
                          return std::string(e.what()).find("framework_version") != std::string::npos;
                        });
}

BOOST_AUTO_TEST_CASE(parallelism_divides_what_a_rank_holds) {
  const std::uint64_t alone = bytes(sharded(), titan());
  RunSpec r = sharded();
  r.parallel.tensor = 4, r.parallel.sequence = true;
  BOOST_TEST(bytes(r, titan()) < alone);
  r = sharded(), r.parallel.pipeline = 4;
  const MemoryReport report = pytorch::report(small_llama(), r, titan());
  BOOST_TEST(has_note(report, "Pipeline: 1F1B with 4 micro-batches per step"));
  BOOST_TEST(
      has_note(report, "Stage 4 of 4 needs the most. It has the layers 7 to 7, the last norm and the head"));
  r = sharded(), r.compute = DType::kF8;
  BOOST_TEST(has_note(pytorch::report(small_llama(), r, compiled()), "gathers their weights in 8 bits"));
  // The default of plan.weights follows train.precision; the weights are f32 all the same.
  RunSpec narrow = r;
  narrow.weight = DType::kF8;
  BOOST_TEST(bytes(narrow, compiled()) == bytes(r, compiled()));
  r.parallel.data = 1, r.parallel.context = 4;
  BOOST_TEST(has_note(pytorch::report(small_llama(), r, compiled()), "in bf16, as parallel.data is 1"));
}

BOOST_AUTO_TEST_CASE(upper_bounds_cover_the_other_start_script_and_compiled_collectives) {
  const auto margin = [](const RunSpec& r, const pytorch::Options& o) {
    MemoryReport report = pytorch::report(small_llama(), r, o);
    return raise_to_upper_bounds(report);
  };
  RunSpec r = sharded();
  pytorch::Options given = titan();
  given.allocator_given = true;
  BOOST_TEST(margin(r, titan()) >= margin(r, given));
  r.parallel.tensor = 2, r.parallel.sequence = true;
  pytorch::Options compiles = given;
  compiles.compile = true;
  // At least the inputs and results of one layer, gathered.
  BOOST_TEST(margin(r, compiles) > margin(r, given) + 4 * 2 * 512 * 256 * 2);
}

BOOST_AUTO_TEST_CASE(qwen3_is_described_from_0_2_on_and_shares_embedding_and_head_where_its_file_does) {
  model::Architecture a = small_llama();
  a.family = "qwen3";
  const auto report = [&](const pytorch::Options& o, std::uint32_t stages) {
    RunSpec r = sharded();
    r.parallel.pipeline = stages;
    return pytorch::report(a, r, o);
  };
  const auto reason = [](const char* part) {
    return [part](const Error& e) { return std::string(e.what()).find(part) != std::string::npos; };
  };
  // Without norms of q and k it is another model.
  BOOST_CHECK_EXCEPTION(report(titan(), 1), Error, reason("Llama 3 and 4, Qwen3 and DeepSeek V3"));
  a.layers.front().layer.attention.qk_norm = model::NormKind::kRms;
  const auto weights = [](const MemoryReport& r) {
    return r.component_bytes(Tier::kDevice, Component::kWeights);
  };
  const MemoryReport separate = report(titan(), 1);
  BOOST_CHECK_EXCEPTION(report(titan(pytorch::TorchtitanVersion::k01), 1), Error, reason("before 0.2"));
  a.tied = true;
  const MemoryReport shared = report(titan(), 1);
  // 8,192 x 256 elements in f32, of which each of 4 ranks has a fourth.
  BOOST_TEST(weights(separate) - weights(shared) == 8192u * 256 * 4 / 4);
  BOOST_TEST(!has_note(shared, "does not share embedding and head"));
  BOOST_CHECK_EXCEPTION(report(titan(), 2), Error, reason("shares one weight"));
}

BOOST_AUTO_TEST_CASE(ranks_share_experts_that_they_can_divide) {
  model::Architecture a = small_llama();
  a.family = "qwen3_moe";
  model::Layer& l = a.layers.front().layer;
  l.attention.qk_norm = model::NormKind::kRms;
  l.mlp = {}, l.experts.count = 8, l.experts.active = 2, l.experts.each.width = 512;
  const auto settings = [&](const std::function<void(RunSpec&)>& set) {
    RunSpec r = sharded();
    set(r);
    std::vector<std::string> notes;
    return pytorch::step_settings(a, r, titan(), notes);
  };
  BOOST_TEST(settings([](RunSpec& r) { r.parallel.expert = 2; }).expert == 2u);
  const auto refused = [&](const char* part, const std::function<void(RunSpec&)>& set) {
    BOOST_CHECK_EXCEPTION(settings(set), Error, [&](const Error& e) {
      return std::string(e.what()).find(part) != std::string::npos;
    });
  };
  refused("parallel.expert = 3 with 4 data- and tensor-parallel ranks",
          [](RunSpec& r) { r.parallel.expert = 3; });
  refused("contain all tensor-parallel ranks",
          [](RunSpec& r) { r.parallel.tensor = 4, r.parallel.sequence = true, r.parallel.expert = 2; });
  l.experts.count = 6;
  refused("parallel.expert = 4 with 6 experts", [](RunSpec& r) { r.parallel.expert = 4; });
}

// Layers with experts save tensors behind the last product that selective recomputation keeps.
BOOST_AUTO_TEST_CASE(compiled_layers_with_experts_recompute_what_is_not_kept) {
  model::Architecture a = small_llama();
  a.family = "qwen3_moe";
  model::Layer& l = a.layers.front().layer;
  l.attention.qk_norm = model::NormKind::kRms;
  l.mlp = {}, l.experts.count = 8, l.experts.active = 2, l.experts.each.width = 512;
  RunSpec r = sharded();
  pytorch::Options o = titan();
  o.compile = true;
  const auto peak = [&](Recompute recompute) {
    r.recompute = recompute;
    std::vector<std::string> notes;
    const frameworks::StepSettings s = pytorch::step_settings(a, r, o, notes);
    return frameworks::find_peak(frameworks::training_step(a, s).trace).bytes;
  };
  BOOST_TEST(peak(Recompute::kFull) <= peak(Recompute::kSelective));
}

BOOST_AUTO_TEST_CASE(replicas_shard_among_fewer_ranks) {
  RunSpec r = sharded();
  pytorch::Options o = titan();
  const auto settings = [&] {
    std::vector<std::string> notes;
    return pytorch::step_settings(small_llama(), r, o, notes);
  };
  BOOST_TEST(settings().fsdp.ranks == 4u);
  o.fsdp_replicas = 2;
  BOOST_TEST(settings().fsdp.ranks == 2u);
  for (const std::uint32_t replicas : {3u, 4u}) {
    o.fsdp_replicas = replicas;
    BOOST_CHECK_EXCEPTION(settings(), Error, [](const Error& e) {
      return std::string(e.what()).find("plan.fsdp_replicas") != std::string::npos;
    });
  }
}

BOOST_AUTO_TEST_CASE(every_second_layer_is_recomputed_whole) {
  RunSpec r = sharded();
  r.recompute = Recompute::kSelective;
  pytorch::Options o = titan();
  o.selective_layers = 2;
  std::vector<std::string> notes;
  const frameworks::StepSettings s = pytorch::step_settings(small_llama(), r, o, notes);
  BOOST_TEST(s.recomputed_layers == 2u);
  BOOST_TEST(!s.selective);
  const std::uint64_t half = bytes(r, o);
  r.recompute = Recompute::kNone;
  BOOST_TEST(half < bytes(r, o));
  r.recompute = Recompute::kFull;
  BOOST_TEST(half > bytes(r, o));
  r.recompute = Recompute::kSelective, o.compile = true;
  BOOST_CHECK_EXCEPTION(pytorch::step_settings(small_llama(), r, o, notes), Error, [](const Error& e) {
    return std::string(e.what()).find("plan.selective_layers with") != std::string::npos;
  });
}

// Every fourth layer of Llama 4 has no rotary positions, and no norms of q and k.
BOOST_AUTO_TEST_CASE(llama_4_is_replayed_with_layers_of_two_kinds) {
  plugin::HostOptions o;
  o.plugin_options["pytorch"] = {{"framework", "torchtitan"}};
  plugin::Registry plugins({TRAINHOST_BINARY_DIR "/lib/trainhost/plugins"}, std::move(o));
  RunSpec r = sharded();
  r.accumulate = 1, r.parallel.data = 64, r.parallel.tensor = 2, r.parallel.sequence = true;
  const ModelSpec& scout = *model::find_planned_preset("llama-4-scout");
  const std::uint64_t whole = plugins.estimator("pytorch").estimate(scout, r, nullptr).total_bytes();
  r.parallel.expert = 8;
  const MemoryReport shared = plugins.estimator("pytorch").estimate(scout, r, nullptr);
  BOOST_TEST(shared.total_bytes() < whole);
  BOOST_TEST(has_note(shared, "Experts: 8 ranks share them"));
}

BOOST_AUTO_TEST_CASE(the_release_0_2_0_computes_attention_again) {
  RunSpec r = sharded();
  r.recompute = Recompute::kSelective;
  std::vector<std::string> notes;
  using V = pytorch::TorchtitanVersion;
  BOOST_TEST(!pytorch::step_settings(small_llama(), r, titan(V::k02), notes).recomputes_attention);
  BOOST_TEST(pytorch::step_settings(small_llama(), r, titan(V::k020), notes).recomputes_attention);
  BOOST_TEST(bytes(r, titan(V::k020)) <= bytes(r, titan(V::k02)));
}

BOOST_AUTO_TEST_CASE(what_is_not_described_is_refused_with_the_reason) {
  struct Row {
    const char* message;
    bool compile;
    std::function<void(RunSpec&)> set;
  };
  const Row rows[] = {
      {"plan.execution = \"compile\" without recomputation", true,
       [](RunSpec& r) { r.recompute = Recompute::kNone; }},
      {"train.precision = \"fp8\" in eager execution", false, [](RunSpec& r) { r.compute = DType::kF8; }},
      {"parallel.tensor = 2 without sequence parallelism", false, [](RunSpec& r) { r.parallel.tensor = 2; }},
      {"parallel.tensor = 8 with 4 key and value heads", false,
       [](RunSpec& r) { r.parallel.tensor = 8, r.parallel.sequence = true; }},
      {"parallel.interleave = 6 with 8 layers", false,
       [](RunSpec& r) { r.parallel.pipeline = 2, r.parallel.virtual_stages = 6; }},
      {"train.grad_accum = 5 with parallel.interleave", false,
       [](RunSpec& r) { r.parallel.pipeline = 2, r.parallel.virtual_stages = 2, r.accumulate = 5; }},
      {"parallel.pipeline = 8 with 8 layers", false, [](RunSpec& r) { r.parallel.pipeline = 8; }},
      {"train.grad_accum = 2000 with parallel.pipeline", false,
       [](RunSpec& r) { r.parallel.pipeline = 2, r.accumulate = 2000; }},
      {"parallel.expert = 2 of a model without experts", false, [](RunSpec& r) { r.parallel.expert = 2; }},
      {"data.seq_len = 512 with parallel.context = 3", false, [](RunSpec& r) { r.parallel.context = 3; }},
  };
  for (const Row& row : rows) {
    RunSpec r = sharded();
    row.set(r);
    std::vector<std::string> notes;
    BOOST_CHECK_EXCEPTION(pytorch::step_settings(small_llama(), r, row.compile ? compiled() : titan(), notes),
                          Error, [&](const Error& e) {
                            BOOST_TEST(std::string(e.what()).find(row.message) != std::string::npos,
                                       e.what());
                            return true;
                          });
  }
  pytorch::Options o;
  o.compile = true;
  std::vector<std::string> notes;
  RunSpec r = sharded();
  r.parallel = {};
  BOOST_CHECK_EXCEPTION(pytorch::step_settings(small_llama(), r, o, notes), Error, [](const Error& e) {
    return std::string(e.what()).find("described for torchtitan and torchtune") != std::string::npos;
  });
}

BOOST_AUTO_TEST_SUITE_END()
