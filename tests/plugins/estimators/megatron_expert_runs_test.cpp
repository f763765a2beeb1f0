// The replay of Megatron-LM's models with experts and tensor parallelism: bytes that its functional tests
// measure (the table of docs/published-runs.md), what a layer keeps, and the modules of selective
// recomputation.
#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <cstdio>

#include "core/base/error.hpp"
#include "core/frameworks/trace/evaluate.hpp"
#include "plugins/estimators/pytorch/report.hpp"
#include "tests/core/parallel/measured_runs.hpp"

using namespace trainhost;

BOOST_AUTO_TEST_SUITE(megatron_expert_runs)

namespace {

pytorch::Options with_experts() {
  pytorch::Options o;
  o.framework = pytorch::Framework::kMegatron;
  o.name = "megatron";
  o.router_in_f32 = false;
  return o;
}

/// Mixtral: 8 experts, 2 of them per token.
model::Architecture mixtral(std::uint32_t H, std::uint32_t I, std::uint32_t A, std::uint32_t L) {
  model::Architecture a = test::dense(H, I, A, 8, 32000, L);
  a.family = "mixtral";
  model::Layer& l = a.layers[0].layer;
  l.mlp.width = 0, l.experts.count = 8, l.experts.active = 2, l.experts.each.width = I;
  return a;
}

/// Golden values of Megatron-LM's functional tests (mixtral, *_release, dev_dgx_h100, commit d98e8a64,
/// recorded by f098fe84): torch.cuda.memory_stats() of the last rank after step 5.
struct FunctionalTest {
  const char* what;
  model::Architecture model;
  RunSpec run;
  std::uint64_t between_steps, peak;
  double least_error;  // of the peak, percent
};

std::vector<FunctionalTest> functional_tests() {
  RunSpec small = test::megatron({2, 4, 8, 1, 8}, 4096), large = test::megatron({2, 8, 8, 1, 8}, 4096);
  small.parallel.expert_tensor = 1, small.parallel.virtual_stages = 8;
  for (RunSpec* r : {&small, &large}) r->accumulate = 32, r->memory.cross_entropy = CrossEntropy::kPlain;
  return {
      {"mixtral_8x7b_tp1pp4ep8vpp8", mixtral(4096, 14336, 32, 32), small, 19743387648, 35408363520, -2.9},
      {"mixtral_8x22b_tp2pp8ep8vpp1", mixtral(6144, 16384, 48, 56), large, 23002929152, 28230793216, -0.6}};
}

frameworks::StepSettings settings_of_last_rank(const FunctionalTest& t) {
  constexpr std::uint64_t kWorkspaceOfHopper = 32 << 20;
  std::vector<std::string> notes;
  pytorch::Options o = with_experts();
  o.fused_rotation = false;  // --no-rope-fusion
  frameworks::StepSettings s = pytorch::step_settings(t.model, t.run, o, notes);
  s.stage.index = s.stage.stages - 1;
  s.megatron.optimizer_rank = s.megatron.optimizer_ranks - 1;
  s.machine.cublas_workspace = kWorkspaceOfHopper;
  return s;
}

std::uint64_t bytes_at_end(const frameworks::Trace& trace) {
  std::uint64_t live = 0;
  for (const frameworks::TraceEvent& e : trace.events) {
    const std::uint64_t bytes = (trace.storages[e.storage].bytes + 511) / 512 * 512;
    live += e.allocation ? bytes : -bytes;
  }
  return live;
}

}  // namespace

/// Weights of the experts of this size are chosen by a trained model, so their shares of the tokens differ;
/// the replay has equal shares.
BOOST_AUTO_TEST_CASE(allocated_bytes_agree_with_functional_tests) {
  for (const FunctionalTest& t : functional_tests()) {
    const frameworks::StepSettings s = settings_of_last_rank(t);
    const frameworks::Trace trace = frameworks::training_step(t.model, s).trace;
    const auto error = [](std::uint64_t ours, std::uint64_t measured) {
      return 100 * (static_cast<double>(ours) / static_cast<double>(measured) - 1);
    };
    const std::uint64_t end = bytes_at_end(trace), most = frameworks::find_peak(trace).bytes;
    const double between = error(end, t.between_steps), peak = error(most, t.peak);
    std::printf("%-28s between steps %llu bytes, %+.4f %%, peak %llu bytes, %+.2f %%\n", t.what,
                static_cast<unsigned long long>(end), between, static_cast<unsigned long long>(most), peak);
    BOOST_TEST((between > -0.005 && between <= 0), t.what << ' ' << between);
    BOOST_TEST((peak > t.least_error && peak <= 0), t.what << ' ' << peak);
  }
}

/// H 512, E 8, 2 of them per token, each of width 64, a shared one of width 128; attention of DeepSeek V2.
/// Layer 0 is dense.
constexpr std::uint64_t T = 256, H = 512, A = 128, E = 8, W = 64, kShared = 128, kDense = 768;
constexpr std::uint64_t kQ = 1536, kLatent = 512, kRope = 64, kHead = 128, kTensor = 2, t = T / kTensor;

model::Architecture small_deepseek() { return test::deepseek(512, 768, 8, 2, 64, 128, 1024, 2); }

RunSpec on_two_tensor_ranks(std::uint32_t expert_tensor) {
  RunSpec run = test::megatron({2, 1, 2, 1, 2}, 256);
  run.parallel.expert_tensor = expert_tensor;
  return run;
}

std::vector<std::uint64_t> saved_by(const RunSpec& run, pytorch::Options o = with_experts()) {
  o.router_in_f32 = true;
  std::vector<std::string> notes;
  const model::Architecture a = small_deepseek();
  return frameworks::training_step(a, pytorch::step_settings(a, run, o, notes)).saved_bytes;
}

/// Under sequence parallelism norms, latents and the router see half of the tokens. Keys and values of all
/// tokens are divided by heads.
constexpr std::uint64_t kLatents = 2 * 2 * t * kQ + 4 * t + 2 * t * (2 * kLatent + kRope) + 4 * t,
                        kHeads = 2 * T * A / kTensor * (2 * (kHead + kRope) + kHead),
                        kAttended = 2 * T * A / kTensor * kHead + 4 * T * A / kTensor,
                        kNorm = 4 * t * H + 4 * t, kMla = kNorm + kLatents + kHeads + kAttended,
                        kRouter = 3 * 4 * t * E + t * E + 4 * t * (2 * E + 1),
                        kSharedExpert = 2 * T * 3 * kShared / kTensor;

BOOST_AUTO_TEST_CASE(tensor_parallel_experts_keep_the_rows_of_all_ranks_that_divide_them) {
  for (const std::uint64_t ranks : {1, 2}) {
    const std::vector<std::uint64_t> saved = saved_by(on_two_tensor_ranks(static_cast<std::uint32_t>(ranks)));
    BOOST_TEST(saved.at(1) == kMla + kNorm + 2 * T * 3 * kDense / kTensor);
    const std::uint64_t rows = 2 * t * ranks;  // two experts per token; both data ranks have half of them
    const std::uint64_t experts = 2 * rows * H + 2 * rows * 3 * W / ranks + 4 * rows;
    BOOST_TEST(saved.at(2) == kMla + kNorm + kRouter + experts + kSharedExpert, ranks);
  }
  // Without plan.expert_tensor all tensor-parallel ranks divide each expert.
  BOOST_TEST(saved_by(on_two_tensor_ranks(0)) == saved_by(on_two_tensor_ranks(2)));
}

BOOST_AUTO_TEST_CASE(experts_have_their_own_buffers_and_optimizer_ranks) {
  const model::Architecture a = small_deepseek();
  const auto main_weights = [&](std::uint32_t expert_tensor) {
    const MemoryReport report = pytorch::report(a, on_two_tensor_ranks(expert_tensor), with_experts());
    return report.component_bytes(Tier::kDevice, Component::kMasterWeights) / 4;
  };
  const auto weights = [&](std::uint32_t expert_tensor) {
    const MemoryReport report = pytorch::report(a, on_two_tensor_ranks(expert_tensor), with_experts());
    return report.component_bytes(Tier::kDevice, Component::kWeights) / 2;
  };
  // Four of eight experts on a rank, whole or halved. Two ranks share the other weights. Of 2 x 2 ranks four
  // have other parts of the halved experts; of whole ones two have the same.
  const std::uint64_t whole = 3 * H * W * E / 2;
  BOOST_TEST(weights(1) - weights(2) == whole / 2);
  const std::uint64_t others = weights(1) - whole;
  BOOST_TEST(main_weights(1) - (others / 2 + whole / 2) < 1024u);
  BOOST_TEST(main_weights(2) - (others / 2 + whole / 2) < 1024u);
}

BOOST_AUTO_TEST_CASE(recomputed_modules_keep_their_inputs_only) {
  RunSpec run = on_two_tensor_ranks(1);
  const std::vector<std::uint64_t> all = saved_by(run);
  run.recompute = Recompute::kSelective;
  const auto freed = [&](std::size_t layer, const auto& choose) {
    pytorch::Options o = with_experts();
    o.modules_given = true, o.recomputes_attention = false;
    choose(o.recomputed);
    return all.at(layer) - saved_by(run, o).at(layer);
  };
  using Modules = frameworks::RecomputedModules;
  const std::uint64_t rows = 2 * t;
  BOOST_TEST(freed(2, [](Modules& m) { m.activation = true; }) == 2 * rows * W);
  // The input norm of both layers; the second norm of the dense layer is a part of fc1.
  BOOST_TEST(freed(1, [](Modules& m) { m.norms = true; }) == 2 * t * H + 4 * t);
  BOOST_TEST(freed(2, [](Modules& m) { m.norms = true; }) == 2 * (2 * t * H + 4 * t));
  // The rotated part of the keys of all tokens is an input.
  BOOST_TEST(freed(1, [](Modules& m) { m.up_projections = true; }) ==
             kHeads + 2 * t * (kQ + kLatent) + 8 * t - 2 * T * kRope);
  BOOST_TEST(freed(1, [](Modules& m) { m.mlp = true; }) == 2 * t * H + 4 * t + 2 * T * 3 * kDense / kTensor);
  BOOST_TEST(freed(2, [](Modules& m) { m.mlp = true; }) == 0u);
  const std::uint64_t experts = 2 * rows * H + 2 * rows * 3 * W + 4 * rows;
  BOOST_TEST(freed(2, [](Modules& m) { m.experts = true; }) == kRouter + experts + kSharedExpert);
  BOOST_TEST(freed(2, [](Modules& m) { m.shared_expert = true; }) == kSharedExpert);
}

/// Every tensor that the backward pass restores is freed again, and the steps are alike.
BOOST_AUTO_TEST_CASE(recomputed_modules_leave_nothing_behind) {
  RunSpec run = on_two_tensor_ranks(1);
  const model::Architecture a = small_deepseek();
  const auto step = [&](bool recomputes) {
    pytorch::Options o = with_experts();
    run.recompute = recomputes ? Recompute::kSelective : Recompute::kNone;
    if (recomputes) {
      o.modules_given = true, o.recomputes_attention = true;
      o.recomputed = {true, true, true, true, false, true};
    }
    std::vector<std::string> notes;
    return frameworks::training_step(a, pytorch::step_settings(a, run, o, notes)).trace;
  };
  const frameworks::Trace none = step(false), all = step(true);
  BOOST_TEST(bytes_at_end(all) == bytes_at_end(none));
  BOOST_TEST(frameworks::find_peak(all).bytes < frameworks::find_peak(none).bytes);
}

BOOST_AUTO_TEST_CASE(expert_runs_that_are_not_described_are_refused_with_a_sentence) {
  const auto refused = [](const RunSpec& run, const char* words, pytorch::Options o = with_experts()) {
    std::vector<std::string> notes;
    BOOST_CHECK_EXCEPTION(
        pytorch::step_settings(small_deepseek(), run, o, notes), Error,
        [&](const Error& e) { return std::string(e.what()).find(words) != std::string::npos; });
  };
  RunSpec run = on_two_tensor_ranks(1);
  run.parallel.sequence = false;
  refused(run, "parallel.tensor = 2 without parallel.sequence in a model with experts");
  run = on_two_tensor_ranks(1);
  run.parallel.expert = 8;
  refused(run, "parallel.expert = 8, each expert on 1 rank, with 4 data x context x tensor ranks");
  run = on_two_tensor_ranks(1);
  run.parallel.expert = 1, run.parallel.expert_tensor = 128, run.parallel.data = 64;
  refused(run, "experts of width 64 on 128 ranks");
}

/// small_deepseek() has latent attention, a dense layer, experts and a shared expert.
BOOST_AUTO_TEST_CASE(modules_that_megatron_core_refuses_are_refused_and_absent_ones_are_noted) {
  const auto notes_of = [](const model::Architecture& a, frameworks::RecomputedModules modules) {
    RunSpec run = test::megatron({1, 1, 1}, 256);
    run.recompute = Recompute::kSelective;
    pytorch::Options o = with_experts();
    o.recomputed = modules;
    std::vector<std::string> notes;
    pytorch::step_settings(a, run, o, notes);
    return notes;
  };
  const auto refused = [&](const model::Architecture& a, frameworks::RecomputedModules modules) {
    std::string words;
    try {
      notes_of(a, modules);
    } catch (const Error& e) {
      words = std::string(e.what()) + " (" + e.hint() + ")";
    }
    return words;
  };
  const model::Architecture llama = test::dense(64, 96, 4, 2, 1024, 2), experts = mixtral(64, 96, 8, 2);
  for (const model::Architecture& a : {llama, experts})
    BOOST_TEST(
        refused(a, {.up_projections = true}) ==
        "the estimator 'pytorch' does not describe plan.recompute_modules with mla_up_proj: Megatron Core "
        "refuses it without multi-latent attention (leave mla_up_proj out of it)");
  BOOST_TEST(refused(llama, {.activation = true}).find("refuses it without --moe-grouped-gemm") !=
             std::string::npos);
  BOOST_TEST(refused(small_deepseek(), {.activation = true, .norms = true, .up_projections = true}) == "");
  const auto noted = [&](const model::Architecture& a, frameworks::RecomputedModules modules,
                         const std::string& name) {
    return std::ranges::any_of(notes_of(a, modules), [&](const std::string& note) {
      return note.starts_with(name + " of plan.recompute_modules has no effect");
    });
  };
  BOOST_TEST(noted(llama, {.shared_expert = true}, "shared_experts"));
  BOOST_TEST(noted(experts, {.shared_expert = true}, "shared_experts"));
  BOOST_TEST(!noted(small_deepseek(), {.shared_expert = true}, "shared_experts"));
  BOOST_TEST(noted(llama, {.experts = true}, "moe"));
  BOOST_TEST(!noted(experts, {.experts = true}, "moe"));
  BOOST_TEST(noted(experts, {.mlp = true}, "mlp"));
  BOOST_TEST(!noted(llama, {.mlp = true}, "mlp"));
}

// Sweeps and proposed changes set train.recompute alone.
BOOST_AUTO_TEST_CASE(modules_have_no_effect_without_selective_recomputation) {
  pytorch::Options o = with_experts();
  o.modules_given = true;
  o.recomputed.experts = true;
  for (const Recompute other : {Recompute::kNone, Recompute::kFull}) {
    RunSpec run = on_two_tensor_ranks(1);
    run.recompute = other;
    std::vector<std::string> notes;
    const frameworks::StepSettings s = pytorch::step_settings(small_deepseek(), run, o, notes);
    BOOST_TEST(!s.selective);
    BOOST_TEST((s.megatron.recomputed == frameworks::RecomputedModules{}));
    BOOST_TEST(std::ranges::any_of(notes, [](const std::string& note) {
      return note.starts_with("plan.recompute_modules has no effect without selective recomputation");
    }));
  }
}

BOOST_AUTO_TEST_SUITE_END()
