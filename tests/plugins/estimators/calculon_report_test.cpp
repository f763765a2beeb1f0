// The report of the calculon plugin: options, conversion of runs, sums of entries, notes with true values.
#include <boost/test/unit_test.hpp>
#include <cctype>
#include <cstring>
#include <map>

#include "core/abi/error_guard.hpp"
#include "core/base/error.hpp"
#include "core/model/tensors.hpp"
#include "plugins/estimators/calculon/report.hpp"
#include "tests/plugins/estimators/calculon_golden.hpp"
#include "tests/plugins/estimators/report_notes.hpp"

using namespace trainhost;
using namespace trainhost::calculon;
using trainhost::test::has_note;

namespace {

ModelSpec llama3_8b() {
  ModelSpec m;
  m.vocab = 128256, m.hidden = 4096, m.layers = 32, m.heads = 32, m.kv_heads = 8, m.head_dim = 128,
  m.intermediate = 14336;
  return m;
}

RunSpec bf16(std::uint32_t seq = 2048) {
  RunSpec r;
  r.seq_len = seq, r.weight = r.compute = DType::kBF16, r.master = DType::kF32;
  return r;
}

/// Converts a case of Calculon to a model and a run.
std::pair<ModelSpec, RunSpec> converted(const Case& c) {
  ModelSpec m;
  m.family = "gpt", m.vocab = 51200;
  m.hidden = c.application.hidden, m.layers = c.application.num_blocks,
  m.heads = m.kv_heads = c.application.attn_heads;
  m.head_dim = c.application.attn_size, m.intermediate = c.application.feedforward;
  RunSpec r = bf16(c.application.seq_size);
  const Execution& e = c.execution;
  r.micro_batch = e.microbatch_size, r.accumulate = e.microbatches;
  r.parallel.tensor = e.tensor_par, r.parallel.pipeline = e.pipeline_par,
  r.parallel.virtual_stages = e.pipeline_interleaving;
  r.parallel.sequence = e.comm == Comm::kRsAg;
  r.recompute = e.recompute == Activation::kFull       ? Recompute::kFull
                : e.recompute == Activation::kAttnOnly ? Recompute::kSelective
                                                       : Recompute::kNone;
  return {m, r};
}

Options options(const std::map<std::string, std::string>& table) {
  return read_options(
      {[&](const char* key) { return table.count(key) ? table.at(key).c_str() : nullptr; }, "calculon"});
}

std::string refusal(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& e) {
    BOOST_TEST((e.code() == Exit::kUsage));
    return e.what();
  } catch (const trainhost::abi::StatusError& e) {
    BOOST_TEST(e.code == TH_E_ARG);
    return e.what();
  }
  return "";
}

const MemoryEntry* entry(const MemoryReport& r, const std::string& name, Tier t = Tier::kDevice) {
  for (const MemoryEntry& n : r.entries)
    if (n.name == name && n.tier == t) return &n;
  return nullptr;
}

/// Value of a formula: sums, products and quotients of integers; words are skipped. Quotients are not
/// rounded.
struct Arithmetic {
  const char* p;
  void skip() {
    while (*p && !std::isdigit(static_cast<unsigned char>(*p)) && !std::strchr("+-*/()", *p)) ++p;
  }
  long double atom() {
    skip();
    if (*p == '(') {
      ++p;
      const long double v = sum();
      skip(), ++p;
      return v;
    }
    char* end = nullptr;
    const long double v = std::strtoull(p, &end, 10);
    p = end;
    return v;
  }
  long double product() {
    long double v = atom();
    for (skip(); *p == '*' || *p == '/'; skip()) v = *p++ == '*' ? v * atom() : v / atom();
    return v;
  }
  long double sum() {
    long double v = product();
    for (skip(); *p == '+' || *p == '-'; skip()) v = *p++ == '+' ? v + product() : v - product();
    return v;
  }
};

}  // namespace

BOOST_AUTO_TEST_SUITE(calculon_report)

BOOST_AUTO_TEST_CASE(the_converted_validation_runs_sum_to_tier_1) {
  for (const Case& c : kGolden) {
    const auto [m, r] = converted(c);
    Options o;
    o.embedding = false, o.seq_par_ag_redo = c.execution.seq_par_ag_redo;
    const MemoryReport report = calculon::report(m, r, o, Tier::kDevice);
    BOOST_TEST(report.total_bytes() == std::uint64_t(c.out.tier1), c.name);
    BOOST_TEST(report.tier_bytes(Tier::kHost) == 0u);
    BOOST_TEST((report.claim == Claim::kApproximation));
    BOOST_TEST(report.component_bytes(Component::kWeights) == std::uint64_t(c.out.weight_space), c.name);
    BOOST_TEST(report.component_bytes(Component::kGradients) == std::uint64_t(c.out.weight_grad_space),
               c.name);
    BOOST_TEST(report.component_bytes(Component::kMasterWeights) +
                       report.component_bytes(Component::kOptimizerState) ==
                   std::uint64_t(c.out.optimizer_space),
               c.name);
  }
}

BOOST_AUTO_TEST_CASE(every_formula_has_the_value_of_its_entry) {
  int compared = 0;
  for (int variant = 0; variant < 64; ++variant) {
    ModelSpec m = llama3_8b();
    RunSpec r = bf16(512);
    r.accumulate = 8;
    if (variant & 1) r.parallel.tensor = 4, r.parallel.sequence = true;
    if (variant & 2) r.parallel.pipeline = 4, r.parallel.virtual_stages = 2;
    if (variant & 4) r.parallel.data = 8, r.parallel.zero = 1;
    if (variant & 8)
      r.memory.weights_in = r.memory.optimizer_in = Tier::kHost, r.memory.activations_in = Tier::kDisk;
    if (variant & 16) r.recompute = variant & 1 ? Recompute::kFull : Recompute::kSelective;
    if (variant & 32) m.kv_heads = 1, m.tied = true;
    const MemoryReport report = calculon::report(m, r, {}, Tier::kDevice);
    for (const MemoryEntry& n : report.entries) {
      if (n.formula.starts_with("all blocks")) continue;  // a figure, no formula
      Arithmetic a{n.formula.c_str()};
      BOOST_TEST(std::uint64_t(a.sum() + 0.5L) == n.bytes, variant << " " << n.name << " = " << n.formula);
      ++compared;
    }
    for (const TierPeak& t : report.tiers) {
      std::uint64_t sum = 0;
      for (const MemoryEntry& n : report.entries) sum += n.tier == t.tier ? n.bytes_at_peak : 0;
      BOOST_TEST(sum == t.bytes);
    }
  }
  BOOST_TEST(compared > 600);
}

BOOST_AUTO_TEST_CASE(offloaded_entries_are_in_the_tier_of_the_run) {
  RunSpec r = bf16();
  r.memory.weights_in = Tier::kHost, r.memory.optimizer_in = Tier::kDisk;
  const MemoryReport report = calculon::report(llama3_8b(), r, {}, Tier::kDevice);
  BOOST_REQUIRE(entry(report, "weights.blocks", Tier::kHost));
  BOOST_TEST(entry(report, "weights.blocks", Tier::kHost)->bytes ==
             16 * entry(report, "weights.blocks")->bytes);  // 32 to 2
  BOOST_REQUIRE(entry(report, "optimizer_state.blocks", Tier::kDisk));
  BOOST_TEST(entry(report, "weights.embedding_and_head", Tier::kHost)->bytes == 2u * 128256 * 4096 * 2);
  BOOST_TEST(!entry(report, "weights.embedding_and_head"));
  // weights 2, master 4 and moments 8 bytes per element
  BOOST_TEST(has_note(report, "14,709,424,128 bytes of the offloaded embedding are counted in tier 2 only"));
}

BOOST_AUTO_TEST_CASE(embedding_terms_follow_the_stages) {
  const std::uint64_t one = 2ull * 128256 * 4096;
  RunSpec r = bf16();
  ModelSpec m = llama3_8b();
  const auto bytes = [&](const char* name) {
    const MemoryReport report = calculon::report(m, r, {}, Tier::kDevice);
    return entry(report, name) ? entry(report, name)->bytes : 0;
  };
  BOOST_TEST(bytes("weights.embedding_and_head") == 2 * one);
  r.parallel.tensor = 8;
  BOOST_TEST(bytes("weights.embedding_and_head") == 2 * one / 8);
  r.parallel.pipeline = 2;
  BOOST_TEST(bytes("weights.embedding") == one / 8);
  m.tied = true;
  BOOST_TEST(bytes("weights.embedding") == one / 8);
  r.parallel.pipeline = 1;
  BOOST_TEST(bytes("weights.embedding") == one / 8);
  r.parallel.data = 4, r.parallel.zero = 1;
  BOOST_TEST(bytes("optimizer_state.embedding") == 4 * one / 8 / 4);
  BOOST_TEST(bytes("master_weights.embedding") == 2 * one / 8 / 4);
  r.memory.vocab_multiple = 128;
  m.vocab = 50257;  // padded to 51200
  BOOST_TEST(bytes("weights.embedding") == 2ull * 51200 * 4096 / 8);
}

BOOST_AUTO_TEST_CASE(invalid_options_get_the_nearest_value) {
  const Options o = options({{"embedding", "false"},
                             {"tensor_par_comm_type", "p2p_rs_ag"},
                             {"tensor_par_overlap", "ring"},
                             {"attention_type", "multiquery"},
                             {"fused_activation", "true"},
                             {"seq_par_ag_redo", "true"}});
  BOOST_TEST(
      (!o.embedding && o.comm == Comm::kP2pRsAg && o.overlap == Overlap::kRing && o.multiquery == true));
  BOOST_TEST((o.fused_activation && o.seq_par_ag_redo));
  BOOST_TEST((options({}).embedding && !options({}).comm));
  BOOST_TEST(
      refusal([] {
        options({{"tensor_par_comm_type", "rs_gg"}});
      }) ==
      "plugin.calculon.tensor_par_comm_type = rs_gg: expected ar, p2p_rs_ag or rs_ag; did you mean 'rs_ag'?");
  BOOST_TEST(refusal([] { options({{"embedding", "1"}}); }).starts_with("plugin.calculon.embedding = 1"));
}

BOOST_AUTO_TEST_CASE(contradictions_of_run_and_options_fail) {
  RunSpec r = bf16();
  r.parallel.tensor = 2;
  BOOST_TEST((calculon::map(llama3_8b(), r, {}).execution.comm == Comm::kAr));
  BOOST_TEST((calculon::map(llama3_8b(), r, options({{"tensor_par_comm_type", "rs_ag"}})).execution.comm ==
              Comm::kRsAg));
  r.parallel.sequence = true;
  BOOST_TEST((calculon::map(llama3_8b(), r, {}).execution.comm == Comm::kRsAg));
  BOOST_TEST(refusal([&] {
               calculon::map(llama3_8b(), r, options({{"tensor_par_comm_type", "ar"}}));
             }).ends_with("contradict each other"));
  r.weight = DType::kNF4;
  BOOST_TEST(refusal([&] {
               calculon::map(llama3_8b(), r, {});
             }).starts_with("calculon does not support nf4 weights"));
}

BOOST_AUTO_TEST_CASE(a_run_with_policies_per_layer_is_counted_with_the_weakest) {
  RunSpec r = bf16();
  r.recompute = Recompute::kLayers;
  const auto policy = [&](RecomputeLayers l) {
    r.recompute_layers = l;
    return calculon::map(llama3_8b(), r, {}).execution.recompute;
  };
  BOOST_TEST((policy({32, 0, 0}) == Activation::kFull));
  BOOST_TEST((policy({10, 12, 10}) == Activation::kAttnOnly));
  BOOST_TEST((policy({31, 0, 0}) == Activation::kNone));
  BOOST_TEST(has_note(calculon::report(llama3_8b(), r, {}, Tier::kDevice),
                      "the weakest policy among the layers of this run"));
}

BOOST_AUTO_TEST_CASE(broken_assumptions_have_notes_with_true_values) {
  const MemoryReport r = calculon::report(llama3_8b(), bf16(), {}, Tier::kDevice);
  // 2*32*4096*(32 - 8)*128; 32*4096*14336; what the model really has.
  BOOST_TEST(has_note(r, "counted with 32 heads instead of 8, 805,306,368 parameters too many"));
  BOOST_TEST(has_note(r, "L*H*I = 1,879,048,192 parameters, is not counted"));
  BOOST_TEST(count_parameters(llama3_8b()).total == 8030261248u);
  BOOST_TEST(has_note(r, "True parameters: 8,030,261,248; Calculon counts 6,956,777,472 (-13.37 %)"));
  BOOST_TEST(form_parameters(llama3_8b(), {}, calculon::map(llama3_8b(), bf16(), {})) == 6956777472u);
  BOOST_TEST(has_note(r, "\"MB\" in the note means MiB"));
  BOOST_TEST(has_note(r, "mixes elements and bytes"));
  BOOST_TEST(has_note(r, "flash attention, which this run uses, needs"));
  BOOST_TEST(has_note(r, "gradients would take 4,202,692,608 bytes in f32"));
  BOOST_TEST(has_note(r, "Logits are not counted: B*S*V/t*4 = 1,050,673,152 bytes"));
  BOOST_TEST(has_note(r, "in f32 (this run) all blocks take"));
  BOOST_TEST(!has_note(r, "Tied embeddings"));
  BOOST_TEST(!has_note(r, "KV cache"));

  ModelSpec tied = llama3_8b();
  tied.tied = true;
  RunSpec stages = bf16();
  stages.parallel.pipeline = 3, stages.optimizer = Optimizer::kSgdMomentum, stages.mode = RunMode::kLora;
  const MemoryReport p = calculon::report(tied, stages, {}, Tier::kDevice);
  BOOST_TEST(
      has_note(p,
               "Tied embeddings are on the first and the last pipeline stage: 1,050,673,152 bytes of weights "
               "each, 2,101,346,304 in total"));
  BOOST_TEST(has_note(p, "The 3 stages do not divide 32 layers: the estimate is for a stage with 11"));
  BOOST_TEST(has_note(p, "sgd-momentum has one"));
  BOOST_TEST(has_note(p, "counted as full training"));

  RunSpec infer = bf16();
  infer.mode = RunMode::kInference;
  const MemoryReport i = calculon::report(llama3_8b(), infer, {}, Tier::kDevice);
  BOOST_TEST(has_note(i, "a KV cache for inference; it would take 268,435,456 bytes"));  // 2*32*2048*8*128*2
  BOOST_TEST(i.component_bytes(Component::kGradients) + i.component_bytes(Component::kOptimizerState) == 0u);

  Options bare;
  bare.embedding = false;
  BOOST_TEST(has_note(calculon::report(llama3_8b(), bf16(), bare, Tier::kDevice),
                      "has no embedding and no LM head: 1,050,673,152 parameters"));
}

BOOST_AUTO_TEST_CASE(bounds_include_the_estimate_and_flash_attention) {
  const MemoryReport r = calculon::report(llama3_8b(), bf16(8192), {}, Tier::kDevice);
  for (const MemoryEntry& n : r.entries) BOOST_TEST((n.lo <= n.bytes && n.bytes <= n.hi), n.name);
  BOOST_TEST(entry(r, "activations.waiting_blocks")->lo < entry(r, "activations.waiting_blocks")->bytes / 4);
}

BOOST_AUTO_TEST_SUITE_END()
