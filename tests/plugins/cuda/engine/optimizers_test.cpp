// Adafactor, Muon and 8-bit AdamW on the CUDA trainer: the golden runs of torch.optim and bitsandbytes in
// every mode and precision, the CPU trainer's results with adapters and frozen weights, the same bits under
// every schedule and after a save and a load, in the planned memory.
#include <boost/test/data/monomorphic.hpp>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>

#include <cmath>

#include "core/model/adapters.hpp"
#include "core/model/optimizer_state.hpp"
#include "core/model/trainable.hpp"
#include "tests/plugins/cuda/engine/engine_fixture.hpp"

namespace trainhost {
namespace {

using namespace test;

const Plugin& cpu_plugin() {
  static const Plugin p(TRAINHOST_BINARY_DIR "/lib/trainhost/plugins/cpu.so");
  return p;
}

struct OptimizerMode {
  Optimizer optimizer;
  std::string mode;
};
std::ostream& operator<<(std::ostream& o, const OptimizerMode& c) {
  return o << name(c.optimizer) << ", " << c.mode;
}

const auto kOptimizerModes = boost::unit_test::data::make([] {
  std::vector<OptimizerMode> all;
  for (const Optimizer o : {Optimizer::kAdafactor, Optimizer::kMuon, Optimizer::kAdamW8bit})
    for (const char* mode : kModes) all.push_back({o, mode});
  return all;
}());

GoldenRun golden(const char* name) {
  return read_golden(std::string(TRAINHOST_SOURCE_DIR) + "/tests/golden/runs/" + name);
}
nlohmann::json expected_of(Optimizer o) {
  const std::string file = std::string(TRAINHOST_SOURCE_DIR) + "/tests/golden/runs/optimizers/expected.json";
  return nlohmann::json::parse(golden_detail::slurp(file))[name(o)];
}

/// Loads saved tensors of a scope, named and shaped as the run has them.
void load_saved(PluginSession& s, const std::vector<TensorInfo>& infos, const Tensors& from,
                std::uint32_t scope) {
  for (const TensorInfo& t : infos) s.load(t, from.at(t.name), scope, 333);
}

/// Two layers of gqa-tied with all kinds of trained tensors: everything, adapters of tensors above and below
/// 4,096 elements, or everything but some products. With mode hybrid, untied, so that the host has the
/// embedding.
enum class Trains { kAll, kAdapters, kSome };
GoldenRun small_run(Optimizer o, Trains what, bool untied) {
  GoldenRun g = golden("gqa-tied");
  g.model.layers = 2;
  RunSpec& r = g.run;
  r.optimizer = o, r.micro_batch = 1, r.accumulate = 2, r.seq_len = 8, r.clip_norm = 0.5,
  r.weight_decay = 0.1;
  if (o == Optimizer::kAdafactor) r.eps = 1e-3;
  if (untied) {
    g.model.tied = false;
    for (const TensorInfo& t : tensors(g.model))
      if (!g.weights.contains(t.name)) g.weights[t.name] = g.weights.at(tensors(g.model).front().name);
  }
  if (what == Trains::kSome) r.trainable = "-*.layers.0.mlp.*\n-*.layers.1.self_attn.*";
  if (what == Trains::kAdapters)
    r.mode = RunMode::kLora, r.lora_rank = 40, r.lora_alpha = 40,
    r.lora_targets = TH_LORA_Q | TH_LORA_V | TH_LORA_DOWN;
  return g;
}
double step(PluginSession& s, const GoldenRun& g, std::uint32_t t, double lr = 1e-3) {
  std::vector<std::int32_t> ids, targets;
  g.samples(2 * std::uint64_t{t}, 2, ids, targets);
  return s.step(ids, targets, lr, t).loss;
}
std::uint32_t weights_scope(const RunSpec& r) {
  return r.mode == RunMode::kLora ? TH_SCOPE_ADAPTER : TH_SCOPE_WEIGHTS;
}

BOOST_AUTO_TEST_SUITE(cuda_optimizers)

// 20 steps in f32, with the tolerances of the CPU trainer; some steps in TF32 and bf16. Codes of 8 bits
// amplify rounding. In TF32 and bf16, Muon's products have operands of 11 bits.
BOOST_DATA_TEST_CASE(golden_runs_of_other_packages_are_reproduced, kOptimizerModes, c) {
  const auto& [optimizer, mode] = c;
  const nlohmann::json expected = expected_of(optimizer), run = expected["run"];
  for (const char* precision : {"fp32", "tf32", "bf16"}) {
    const bool exact = std::string(precision) == "fp32", resident = mode == "resident",
               coded = optimizer == Optimizer::kAdamW8bit;
    if (!exact && !resident) continue;
    emu::reset();
    GoldenRun g = golden("gqa-tied");
    g.run.optimizer = optimizer;
    g.run.micro_batch = run["micro_batch"], g.run.accumulate = 1, g.run.seq_len = run["seq_len"];
    g.run.beta1 = run["betas"][0], g.run.beta2 = run["betas"][1], g.run.eps = run["eps"];
    g.run.weight_decay = run["weight_decay"], g.run.clip_norm = run["grad_clip"];
    g.run = in_precision(g.run, precision);
    CudaHost host(mode);
    PluginSession s(cuda_engine(), host, g.model, g.run);
    s.load_all(g.weights);
    s.init(0);
    double worst = 0;
    const std::uint32_t all = run["steps"], steps = exact && resident ? all : 3;
    for (std::uint32_t t = 0; t < steps; ++t) {
      std::vector<std::int32_t> ids, targets;
      g.samples(std::uint64_t{t} * g.run.micro_batch, g.run.micro_batch, ids, targets);
      const th_step_out out = s.step(ids, targets, run["lr"], t);
      const double loss = expected["loss"][t], norm = expected["grad_norm"][t];
      worst = std::max(worst, std::abs(out.loss - loss));
      BOOST_TEST(std::abs(out.loss - loss) <= (!exact  ? 1e-2
                                               : coded ? 2e-4
                                                       : 2e-5),
                 precision << ", step " << t << ": loss " << out.loss << " against " << loss);
      BOOST_TEST(std::abs(out.grad_norm - norm) <= (!exact  ? 5e-2
                                                    : coded ? 5e-3
                                                            : 1e-3) *
                                                       norm,
                 precision << ", step " << t << ": norm " << out.grad_norm << " against " << norm);
    }
    BOOST_TEST_MESSAGE(name(optimizer)
                       << ", " << mode << ", " << precision << ": largest loss difference " << worst);
    if (steps == all)
      for (const auto& [name, values] : s.save()) {
        double squares = 0;
        for (const float v : values) squares += static_cast<double>(v) * v;
        const double l2 = expected["final_weights"][name];
        BOOST_TEST(std::abs(std::sqrt(squares) - l2) <= 1e-4 * l2, name);
      }
    BOOST_TEST(emu::problems().empty());
  }
}

// Of the first block after one step; a value beside the middle of two codes may have either.
BOOST_AUTO_TEST_CASE(codes_and_scales_of_8_bit_moments_are_those_of_bitsandbytes) {
  const nlohmann::json expected = expected_of(Optimizer::kAdamW8bit), run = expected["run"],
                       block = expected["first_block"];
  for (const char* mode : {"resident", "streamed"}) {
    GoldenRun g = golden("gqa-tied");
    g.run.optimizer = Optimizer::kAdamW8bit, g.run.micro_batch = run["micro_batch"], g.run.accumulate = 1;
    g.run.beta1 = run["betas"][0], g.run.beta2 = run["betas"][1], g.run.clip_norm = run["grad_clip"];
    CudaHost host(mode);
    PluginSession s(cuda_engine(), host, g.model, g.run);
    s.load_all(g.weights);
    s.init(0);
    std::vector<std::int32_t> ids, targets;
    g.samples(0, g.run.micro_batch, ids, targets);
    s.step(ids, targets, run["lr"], 0);
    for (const std::size_t i : {0u, 1u}) {
      const Tensors moment = s.save(i == 0 ? TH_SCOPE_MOMENT1 : TH_SCOPE_MOMENT2);
      const std::string name = block["of"];
      const double scale = block["moments"][i]["absmax"];
      BOOST_TEST(std::abs(moment.at(name + ".absmax")[0] - scale) <= 1e-5 * scale);
      std::size_t different = 0;
      for (std::size_t k = 0; k < 256; ++k)
        different += moment.at(name)[k] != block["moments"][i]["values"][k].get<float>();
      BOOST_TEST(different <= 2u, mode << ", moment " << i + 1);
    }
  }
}

// After the first update, from zero state, most elements of 8-bit AdamW and all of the others are within
// rounding; the losses of later steps stay together.
BOOST_DATA_TEST_CASE(losses_are_those_of_the_cpu_trainer,
                     kOptimizerModes* boost::unit_test::data::make({0, 1, 2}), c, trains) {
  const auto& [optimizer, mode] = c;
  emu::reset();
  const GoldenRun g = small_run(optimizer, static_cast<Trains>(trains), mode == "hybrid");
  CudaHost host(mode);
  CountingHost cpu_host(2);
  PluginSession cuda(cuda_engine(), host, g.model, g.run), cpu(cpu_plugin(), cpu_host, g.model, g.run);
  for (PluginSession* s : {&cuda, &cpu}) s->load_all(g.weights), s->init(5);
  const bool coded = optimizer == Optimizer::kAdamW8bit;
  for (std::uint32_t t = 0; t < 3; ++t) {
    const double loss = step(cpu, g, t);
    BOOST_TEST(std::abs(step(cuda, g, t) - loss) <= (coded ? 2e-4 : 2e-5), "step " << t);
  }
  const std::uint32_t scope = weights_scope(g.run);
  const Tensors expected = cpu.save(scope);
  for (const auto& [name, values] : cuda.save(scope)) {
    double squares = 0, off = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double x = expected.at(name)[i], d = values[i] - x;
      squares += x * x, off += d * d;
      if (!is_trained(g.run, name) && scope == TH_SCOPE_WEIGHTS) BOOST_TEST(d == 0.0);
    }
    BOOST_TEST(std::sqrt(off) <= (coded ? 1e-3 : 1e-4) * std::sqrt(squares), name << " differs");
  }
  BOOST_TEST(emu::problems().empty());
}

BOOST_DATA_TEST_CASE(a_save_and_a_load_resume_with_the_same_bits,
                     kOptimizerModes* boost::unit_test::data::make({0, 1, 2}), c, trains) {
  const auto& [optimizer, mode] = c;
  emu::reset();
  GoldenRun g = small_run(optimizer, static_cast<Trains>(trains), mode == "hybrid");
  g.run = in_precision(g.run, (trains + mode.size()) % 2 ? "fp32" : "bf16");
  const RunSpec& r = g.run;
  const std::uint32_t scope = weights_scope(r);
  const step::Program program = step::build_program(
      g.model, r, cuda::choose(g.model, r, mode, 2, emu::Machine{}.multiprocessors).traits);
  const placement::MemoryPlan plan = placement::place(program);
  CudaHost host(mode), other_host(mode);
  {
    PluginSession one(cuda_engine(), host, g.model, r), other(cuda_engine(), other_host, g.model, r);
    BOOST_TEST(host.device == static_cast<std::int64_t>(plan.of(Tier::kDevice).arena_bytes));
    BOOST_TEST(host.pinned == static_cast<std::int64_t>(plan.of(Tier::kPinned).arena_bytes));
    BOOST_TEST(host.now == plan.of(Tier::kHost).arena_bytes);
    one.load_all(g.weights), one.init(5);
    const Tensors start = one.save(scope);
    for (std::uint32_t t = 0; t < 2; ++t) step(one, g, t);
    const Tensors weights = one.save(scope);
    std::size_t frozen = 0;
    for (const auto& [name, values] : weights) {
      const bool same = values == start.at(name);
      BOOST_TEST(same == (scope == TH_SCOPE_WEIGHTS && !is_trained(r, name)), name);
      frozen += same;
    }
    BOOST_TEST((frozen > 0) == (static_cast<Trains>(trains) == Trains::kSome));
    other.load_all(scope == TH_SCOPE_WEIGHTS ? weights : g.weights);
    if (scope == TH_SCOPE_ADAPTER) load_saved(other, adapter_tensors(g.model, r), weights, scope);
    for (int moment = 1; moment <= moment_count(optimizer); ++moment) {
      const std::uint32_t state = moment == 1 ? TH_SCOPE_MOMENT1 : TH_SCOPE_MOMENT2;
      const Tensors saved = one.save(state);
      const std::vector<TensorInfo> infos = state_tensors(g.model, r, moment);
      BOOST_TEST(saved.size() == infos.size());
      load_saved(other, infos, saved, state);
    }
    other.init(0);
    BOOST_TEST(step(one, g, 2) == step(other, g, 2));
    for (const std::uint32_t of : {scope, std::uint32_t{TH_SCOPE_MOMENT1}, std::uint32_t{TH_SCOPE_MOMENT2}})
      BOOST_TEST((one.save(of) == other.save(of)), "scope " << of);
    BOOST_TEST(host.device_peak == host.device);
    BOOST_TEST(one.metric("sync_mismatch") == 0.0);
  }
  BOOST_TEST(host.all_freed());
  BOOST_TEST(emu::outstanding().nothing());
  BOOST_TEST(emu::problems().empty());
}

BOOST_DATA_TEST_CASE(bits_depend_on_no_schedule_and_a_failed_update_changes_none, kOptimizerModes, c) {
  const auto& [optimizer, mode] = c;
  const GoldenRun g = small_run(optimizer, Trains::kAll, mode == "hybrid");
  TrainState first;
  std::uint32_t threads = 0;
  for (const emu::Schedule& schedule : emu::every_schedule()) {
    if (schedule.seed % 2) continue;
    emu::reset();
    emu::set_schedule(schedule);
    CudaHost host(mode, 1 + threads++ % 3);
    PluginSession s(cuda_engine(), host, g.model, g.run);
    s.load_all(g.weights);
    s.init(0);
    for (std::uint32_t t = 0; t < 2; ++t) step(s, g, t);
    const TrainState state = state_of(s);
    if (first.empty()) first = state;
    BOOST_TEST(same_bits(state, first), "schedule " << schedule.seed << ", threads " << host.thread_budget);
    if (threads > 1) continue;
    const TensorInfo norm = tensors(g.model).back();
    s.load(norm, std::vector<float>(norm.elements(), INFINITY));
    const TrainState broken = state_of(s);
    BOOST_TEST(refusal([&] { step(s, g, 2); }).first == TH_E_NONFINITE);
    BOOST_TEST(same_bits(state_of(s), broken));
    BOOST_TEST(emu::problems().empty());
  }
  emu::set_schedule({});
}

BOOST_AUTO_TEST_CASE(state_that_the_optimizer_does_not_have_is_refused) {
  emu::reset();
  GoldenRun g = golden("gqa-tied");
  g.run.optimizer = Optimizer::kAdamW8bit;
  CudaHost host("resident");
  PluginSession s(cuda_engine(), host, g.model, g.run);
  const TensorInfo embed = tensors(g.model).front();
  CHECK_REFUSED(s.load(embed, std::vector<float>(embed.elements(), 1.5f), TH_SCOPE_MOMENT1), TH_E_ARG,
                "model.embed_tokens.weight: 8-bit moments are numbers of [-1, 1], not 1.5");
  g.run.optimizer = Optimizer::kLion;
  PluginSession lion(cuda_engine(), host, g.model, g.run);
  CHECK_REFUSED(lion.load(embed, std::vector<float>(embed.elements()), TH_SCOPE_MOMENT2), TH_E_ARG,
                "the run has no such optimizer state");
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace trainhost
