// The replay of Megatron-LM: published peaks (the table of docs/published-runs.md), the bytes that a layer
// keeps, and runs that are not described.
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <cstdio>
#include <map>
#include <tuple>

#include "core/base/error.hpp"
#include "core/frameworks/allocator/caching_allocator.hpp"
#include "core/frameworks/trace/evaluate.hpp"
#include "plugins/estimators/pytorch/report.hpp"
#include "tests/core/parallel/measured_runs.hpp"

using namespace trainhost;

namespace {

constexpr double kMiB = 1 << 20;

/// SimuMax@4dcaae5, docs/b200/b200_release_v1.2_summary.json, each stage by itself: largest
/// torch.cuda.max_memory_allocated() of its ranks.
struct StagePeak {
  std::size_t run;  // of megatron_runs()
  std::uint32_t stage;
  double measured_mib;
  double lowest, highest;  // error, percent
};
const StagePeak kStagePeaks[] = {
    {0, 0, 68149.20, -0.01, 0.01},  {0, 1, 64479.48, -0.01, 0.01}, {1, 0, 40009.77, -0.01, 0.01},
    {4, 0, 88688.88, -0.01, 0.01},  {4, 1, 89173.40, -0.01, 0.01}, {5, 0, 54158.11, -0.01, 0.01},
    {6, 0, 70070.56, -0.01, 0.01},  {7, 0, 89113.80, -0.01, 0.01}, {8, 0, 115371.98, -0.01, 0.01},
    {9, 0, 120962.51, -0.01, 0.01}, {2, 0, 46730.00, -0.06, 0},    {3, 0, 106803.80, -0.02, 0},
};
/// max_memory_reserved() of all ranks; the worst stage.
struct ReservedPeak {
  std::size_t run;
  std::uint64_t measured;
  double lowest, highest;
};
const ReservedPeak kReservedPeaks[] = {
    {0, 76111937536, -0.1, 0.1},  {1, 43138416640, -0.2, 0},  {4, 99063169024, -0.1, 0.1},
    {5, 58684604416, -0.1, 0},    {6, 75518443520, -1.4, 0},  {7, 97874083840, -0.1, 0.1},
    {8, 130348482560, -3.2, 0},   {9, 136904179712, -0.5, 0}, {2, 52388954112, -0.2, 0},
    {3, 118304538624, -0.1, 0.1},
};

/// ring: --cp-comm-type p2p, the default; the published runs have a2a.
pytorch::Options megatron_options(bool ring = true) {
  pytorch::Options o;
  o.framework = pytorch::Framework::kMegatron;
  o.name = "megatron";
  o.context_ring = ring;
  return o;
}

/// The settings of a published run: NullTokenizer adds a token, and B200 has the smaller workspace of cuBLAS.
std::pair<model::Architecture, frameworks::StepSettings> published(const test::MeasuredRun& run) {
  model::Architecture a = run.model;
  const std::uint64_t multiple = 128 * run.run.parallel.tensor;
  a.vocab = (a.vocab + 1 + multiple - 1) / multiple * multiple;
  std::vector<std::string> notes;
  frameworks::StepSettings s = pytorch::step_settings(a, run.run, megatron_options(false), notes);
  s.machine.cublas_workspace = 8'519'680;
  return {std::move(a), s};
}

double error_percent(double ours, double measured) { return 100 * (ours - measured) / measured; }

RunSpec small_run() {
  RunSpec r = test::megatron({1, 1, 2}, 256);
  r.micro_batch = 2;
  return r;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(megatron_runs)

BOOST_AUTO_TEST_CASE(allocated_bytes_agree_with_published_runs) {
  const std::vector<test::MeasuredRun> runs = test::megatron_runs();
  double sum = 0;
  for (const StagePeak& p : kStagePeaks) {
    auto [a, s] = published(runs[p.run]);
    s.stage.index = p.stage;
    const frameworks::TrainingStep step = frameworks::training_step(a, s);
    const double ours = static_cast<double>(frameworks::find_peak(step.trace).bytes) / kMiB;
    const double error = error_percent(ours, p.measured_mib);
    std::printf("%-30s stage %u measured %10.2f MiB, replay %10.2f MiB, %+.4f %%\n", runs[p.run].what.c_str(),
                p.stage, p.measured_mib, ours, error);
    BOOST_TEST((error >= p.lowest && error <= p.highest), runs[p.run].what);
    sum += std::abs(error);
  }
  BOOST_TEST(sum / static_cast<double>(std::size(kStagePeaks)) < 0.01);
}

BOOST_AUTO_TEST_CASE(reserved_bytes_agree_with_published_runs) {
  const std::vector<test::MeasuredRun> runs = test::megatron_runs();
  double sum = 0;
  for (const ReservedPeak& p : kReservedPeaks) {
    auto [a, s] = published(runs[p.run]);
    std::uint64_t most = 0;
    std::uint32_t &stage = s.stage.index, &rank = s.megatron.optimizer_rank;
    for (stage = 0; stage < s.stage.stages; ++stage)
      for (rank = 0; rank < s.megatron.optimizer_ranks; ++rank)
        most = std::max(most, frameworks::replay_allocator(frameworks::training_step(a, s).trace).reserved);
    const double error = error_percent(static_cast<double>(most), static_cast<double>(p.measured));
    std::printf("%-30s reserved measured %7.2f GiB, replay %7.2f GiB, %+.2f %%\n", runs[p.run].what.c_str(),
                static_cast<double>(p.measured) / 0x1p30, static_cast<double>(most) / 0x1p30, error);
    BOOST_TEST((error >= p.lowest && error <= p.highest), runs[p.run].what);
    sum += std::abs(error);
  }
  BOOST_TEST(sum / static_cast<double>(std::size(kReservedPeaks)) < 0.55);
}

/// The same, of each rank of the optimizer, MiB: {run, stage, rank, measured}. Ranks of tensor parallelism
/// that share a rank of the optimizer have equal peaks.
BOOST_AUTO_TEST_CASE(reserved_bytes_of_single_ranks_agree_with_published_runs) {
  struct RankPeak {
    std::size_t run;
    std::uint32_t stage, rank;
    std::uint64_t measured;
  };
  const RankPeak peaks[] = {
      {0, 0, 0, 70730}, {0, 0, 1, 71592}, {0, 0, 2, 72586},  {0, 1, 0, 65762},
      {4, 0, 0, 93782}, {4, 0, 1, 93838}, {4, 0, 2, 94474},  {4, 0, 3, 93290},
      {4, 1, 0, 90282}, {4, 1, 1, 89788}, {4, 1, 2, 90706},  {7, 0, 0, 92344},
      {7, 0, 1, 93340}, {7, 0, 2, 93114}, {9, 0, 0, 129804}, {9, 0, 3, 129932},
  };
  const std::vector<test::MeasuredRun> runs = test::megatron_runs();
  for (const RankPeak& p : peaks) {
    auto [a, s] = published(runs[p.run]);
    s.stage.index = p.stage, s.megatron.optimizer_rank = p.rank;
    const std::uint64_t reserved =
        frameworks::replay_allocator(frameworks::training_step(a, s).trace).reserved >> 20;
    BOOST_TEST(std::max(reserved, p.measured) - std::min(reserved, p.measured) <= 4,
               runs[p.run].what << " stage " << p.stage << " rank " << p.rank << ": " << reserved << " MiB, "
                                << p.measured << " measured");
  }
}

/// With the defaults of the command line, except NCCL and the context.
BOOST_AUTO_TEST_CASE(upper_bounds_are_above_the_published_reserved_bytes) {
  const std::vector<test::MeasuredRun> runs = test::megatron_runs();
  for (const ReservedPeak& p : kReservedPeaks) {
    MemoryReport r = pytorch::report(runs[p.run].model, runs[p.run].run, megatron_options(false));
    raise_to_upper_bounds(r);
    const std::uint64_t runtime = r.component_bytes(Tier::kDevice, Component::kRuntime);
    BOOST_TEST(r.tier_bytes(Tier::kDevice) - runtime >= p.measured, runs[p.run].what);
  }
}

BOOST_AUTO_TEST_CASE(a_layer_keeps_what_its_modules_save) {
  // H 64, I 96, A 4, K 2, D 16, B 2, S 256: T = 512 tokens.
  const model::Architecture a = test::dense(64, 96, 4, 2, 1024, 2);
  const auto saved = [&](const RunSpec& run, bool ring = true) {
    std::vector<std::string> notes;
    return frameworks::training_step(a, pytorch::step_settings(a, run, megatron_options(ring), notes))
        .saved_bytes.at(2);
  };
  constexpr std::uint64_t T = 512, H = 64, I = 96, A = 4, K = 2, D = 16;
  // Both norms keep input, output and 1/rms; attention q, k, v, output and log-sum-exp; fc1's output,
  // SwiGLU's.
  const std::uint64_t kept = 4 * 2 * T * H + 2 * 4 * T + 2 * T * (A + 2 * K) * D + 2 * T * A * D + 4 * T * A +
                             2 * T * 2 * I + 2 * T * I;
  RunSpec run = small_run();
  BOOST_TEST(saved(run) == kept);
  // Sequence parallelism divides what norms keep; the matrices divide the rest.
  run.parallel.tensor = 2, run.parallel.sequence = true;
  BOOST_TEST(saved(run) == kept / 2);
  // Without it, the norms keep all tokens.
  run.parallel.sequence = false;
  const std::uint64_t norms = 4 * 2 * T * H + 2 * 4 * T;
  BOOST_TEST(saved(run) == norms + (kept - norms) / 2);
  // Context parallelism: half of the tokens; by all-to-all also the output of attention before its exchange.
  run = small_run();
  run.parallel.context = 2;
  BOOST_TEST(saved(run) == kept / 2);
  BOOST_TEST(saved(run, false) == kept / 2 + T * A * D);
  run = small_run();
  run.recompute = Recompute::kFull;
  BOOST_TEST(saved(run) == 2 * T * H);
  // v is a part of the product of linear_qkv, which recomputed attention keeps; its output is fc's input.
  run.recompute = Recompute::kSelective;
  BOOST_TEST(saved(run) == kept - 4 * T * A + 2 * T * (A + K) * D);
}

BOOST_AUTO_TEST_CASE(operators_that_are_not_fused_keep_the_angles_and_a_compiled_loss_copies_the_softmax) {
  const model::Architecture a = test::dense(64, 96, 4, 2, 1024, 2);
  constexpr std::uint64_t S = 256, D = 16, kTokens = 512, kVocab = 1024;
  RunSpec run = small_run();
  run.memory.cross_entropy = CrossEntropy::kPlain, run.accumulate = 1;
  const auto step = [&](const pytorch::Options& o) {
    std::vector<std::string> notes;
    return frameworks::training_step(a, pytorch::step_settings(a, run, o, notes));
  };
  const frameworks::TrainingStep usual = step(megatron_options());
  pytorch::Options o = megatron_options();
  o.fused_rotation = false;
  // Cosine and sine of queries and of keys, once for all heads and sequences.
  BOOST_TEST(step(o).saved_bytes.at(2) == usual.saved_bytes.at(2) + 4 * 2 * S * D);
  o = megatron_options();
  o.compiled_loss = true;
  const frameworks::TrainingStep compiled = step(o);
  BOOST_TEST(compiled.saved_bytes == usual.saved_bytes);
  const auto copies = [](const frameworks::Trace& trace) {
    std::uint64_t bytes = 0;
    for (const frameworks::TraceStorage& storage : trace.storages)
      if (std::string_view(trace.names[storage.tensor]) == "copy of the softmax") bytes += storage.bytes;
    return bytes;
  };
  BOOST_TEST(copies(usual.trace) == 0u);
  BOOST_TEST(copies(compiled.trace) == 2 * 4 * kTokens * kVocab);  // in two steps
  BOOST_TEST(frameworks::find_peak(compiled.trace).bytes >
             frameworks::find_peak(usual.trace).bytes + 3 * kTokens * kVocab);
  // No effect on the loss of Transformer Engine.
  run.memory.cross_entropy = CrossEntropy::kInPlace;
  const std::uint64_t in_place = frameworks::find_peak(step(megatron_options()).trace).bytes;
  BOOST_TEST(frameworks::find_peak(step(o).trace).bytes == in_place);
}

BOOST_AUTO_TEST_CASE(a_ring_of_context_ranks_holds_the_keys_and_values_of_all_steps) {
  // T = 512 tokens on 4 ranks; K 2, A 4, D 16. One layer and one micro-batch.
  const model::Architecture a = test::dense(64, 96, 4, 2, 1024, 1);
  constexpr std::uint64_t kTokens = 512 / 4, kHeads = 4, kKeysAndValues = 2 * 2 * kTokens * 2 * 16;
  RunSpec run = small_run();
  run.parallel.context = 4, run.accumulate = 1;
  std::vector<std::string> notes;
  frameworks::StepSettings s = pytorch::step_settings(a, run, megatron_options(), notes);
  s.steps = 1;
  const frameworks::Trace trace = frameworks::training_step(a, s).trace;
  std::map<std::string, std::pair<std::size_t, std::uint64_t>> found;  // number, bytes of all
  for (const frameworks::TraceStorage& storage : trace.storages) {
    auto& [count, bytes] = found[trace.names[storage.tensor]];
    ++count, bytes += storage.bytes;
  }
  using Found = std::pair<std::size_t, std::uint64_t>;
  BOOST_TEST((found["keys and values"] == Found{1, kKeysAndValues}));
  BOOST_TEST((found["received keys and values"] == Found{3, 3 * kKeysAndValues}));
  BOOST_TEST((found["output of a step"] == Found{4, 4 * 2 * kTokens * kHeads * 16}));
  BOOST_TEST((found["log-sum-exp of a step"] == Found{4, 4 * 4 * kTokens * kHeads}));
  BOOST_TEST((found["keys, values and gradients"] == Found{2, 2 * 2 * kKeysAndValues}));
  BOOST_TEST(
      (found["f32 gradient of q, row sums"] == Found{4, 4 * 4 * (kTokens * kHeads * 16 + kTokens * kHeads)}));
  run.parallel.context = 3;  // does not divide the tokens
  BOOST_CHECK_THROW(pytorch::step_settings(a, run, megatron_options(), notes), Error);
}

/// Most activations in flight, counted from the schedule of its documentation: pass k of the forward passes
/// precedes pass k - W of the backward passes.
BOOST_AUTO_TEST_CASE(virtual_stages_have_more_micro_batches_in_flight) {
  // 8 layers of equal size on 2 ranks. Input of a rank's pass: one layer with 4 virtual stages, two with 2.
  const model::Architecture a = test::dense(64, 96, 4, 2, 128, 8);
  const auto step = [&](std::uint32_t virtual_stages, std::uint32_t rank, std::uint32_t accumulate) {
    RunSpec run = small_run();
    run.parallel.pipeline = 2, run.parallel.virtual_stages = virtual_stages, run.accumulate = 32;
    std::vector<std::string> notes;
    frameworks::StepSettings s = pytorch::step_settings(a, run, megatron_options(), notes);
    s.stage.index = rank;
    if (accumulate) s.accumulate = accumulate;
    return frameworks::training_step(a, s);
  };
  constexpr std::uint64_t T = 512, H = 64, I = 96, A = 4, K = 2, D = 16;
  constexpr std::uint64_t kLayer = 4 * 2 * T * H + 2 * 4 * T + 2 * T * (A + 2 * K) * D + 2 * T * A * D +
                                   4 * T * A + 2 * T * 2 * I + 2 * T * I;
  const auto most_kept = [&](std::uint32_t virtual_stages, std::uint32_t rank, std::uint32_t accumulate) {
    const frameworks::Trace trace = step(virtual_stages, rank, accumulate).trace;
    std::uint64_t live = 0, most = 0;
    for (const frameworks::TraceEvent& e : trace.events) {
      const frameworks::TraceStorage& s = trace.storages[e.storage];
      if (!s.saved || s.layer < 0 || s.purpose != frameworks::Purpose::kActivations) continue;
      live += e.allocation ? s.bytes : -s.bytes;
      most = std::max(most, live);
    }
    return most;
  };
  // In flight: 2 (ranks - rank - 1) + (stages - 1) ranks + 1 passes of 8 / (2 stages) layers.
  for (const auto& [virtual_stages, rank, passes] :
       {std::tuple{1u, 0u, 2u}, {1u, 1u, 1u}, {2u, 0u, 5u}, {2u, 1u, 3u}, {4u, 0u, 9u}, {4u, 1u, 7u}}) {
    const std::uint64_t layers = passes * 8 / (2 * virtual_stages);
    const std::uint64_t kept = most_kept(virtual_stages, rank, 0);
    // The input of the first layer of a pass is received, or the output of the embedding.
    BOOST_TEST(
        (kept <= layers * kLayer && kept + passes * 2 * T * H >= layers * kLayer),
        virtual_stages << " virtual stages, rank " << rank << ": " << kept << " of " << layers * kLayer);
    // The replayed micro-batches are as many as thirty-two.
    const auto peak = [&](std::uint32_t accumulate) {
      return frameworks::find_peak(step(virtual_stages, rank, accumulate).trace).bytes;
    };
    BOOST_TEST(most_kept(virtual_stages, rank, 32) == kept);
    BOOST_TEST(peak(0) == peak(32));
  }
  // Weights of a rank are the same, with a buffer for each virtual stage.
  const auto buffers = [&](std::uint32_t virtual_stages) {
    const frameworks::Trace trace = step(virtual_stages, 0, 0).trace;
    std::pair<std::size_t, std::uint64_t> found;
    for (const frameworks::TraceStorage& s : trace.storages)
      if (trace.names[s.tensor] == "buffer of weights") ++found.first, found.second += s.bytes;
    return found;
  };
  BOOST_TEST(buffers(1).first == 1u);
  BOOST_TEST(buffers(4).first == 4u);
  BOOST_TEST(buffers(4).second - buffers(1).second < 4 * 2 * 256u);
}

BOOST_AUTO_TEST_CASE(a_layer_of_experts_keeps_what_its_modules_save) {
  // H 512, E 8, 2 of them per token, each of width 64, a shared one of width 128; V2's attention.
  const model::Architecture a = test::deepseek(512, 768, 8, 2, 64, 128, 1024, 2);
  RunSpec run = test::megatron({1, 1, 2, 1, 2}, 256);
  std::vector<std::string> notes;
  const frameworks::StepSettings s = pytorch::step_settings(a, run, megatron_options(), notes);
  const std::vector<std::uint64_t> saved = frameworks::training_step(a, s).saved_bytes;
  constexpr std::uint64_t T = 256, H = 512, A = 128, E = 8, N = 2 * T, W = 64, kShared = 128;
  constexpr std::uint64_t kQ = 1536, kLatent = 512, kRope = 64, kHead = 128;
  // Input and output of the norms, 1/rms; the latents; q, k, v, the output and log-sum-exp.
  const std::uint64_t attention = 4 * T * H + 4 * T + 2 * 2 * T * kQ + 4 * T + 2 * T * (2 * kLatent + kRope) +
                                  4 * T + 2 * T * A * (2 * (kHead + kRope) + 2 * kHead) + 4 * T * A;
  BOOST_TEST(saved.at(1) == attention + 4 * T * H + 4 * T + 2 * T * 3 * 768);
  const std::uint64_t router = 3 * 4 * T * E + T * E + 4 * T * (2 * E + 1);
  const std::uint64_t experts = 2 * N * H + 2 * N * 3 * W + 4 * N + 2 * T * 3 * kShared;
  BOOST_TEST(saved.at(2) == attention + 4 * T * H + 4 * T + router + experts);
  // All main weights of the experts are on one of two ranks, which share the experts.
  const MemoryReport report = pytorch::report(a, run, megatron_options());
  const std::uint64_t own = 3 * H * W * E / 2;
  const std::uint64_t weights = report.component_bytes(Tier::kDevice, Component::kWeights) / 2;
  const std::uint64_t main = report.component_bytes(Tier::kDevice, Component::kMasterWeights) / 4;
  BOOST_TEST(main - ((weights - own) / 2 + own) < 1024u);
}

BOOST_AUTO_TEST_CASE(main_weights_and_moments_are_divided_over_data_and_context_ranks) {
  const model::Architecture a = test::dense(512, 768, 4, 2, 1024, 2);
  const auto bytes = [&](const RunSpec& run, Component c) {
    return pytorch::report(a, run, megatron_options()).component_bytes(Tier::kDevice, c);
  };
  // Two layers of q, o (H x AD), k, v (H x KD), fc1, fc2 (3HI), two norms; embedding, head, norm.
  constexpr std::uint64_t kLayer = 2 * 512 * 512 + 2 * 512 * 256 + 3 * 512 * 768 + 2 * 512,
                          kElements = 2 * kLayer + 2 * 1024 * 512 + 512;
  RunSpec run = small_run();
  BOOST_TEST(bytes(run, Component::kWeights) == 2 * kElements);
  BOOST_TEST(bytes(run, Component::kGradients) == 4 * kElements);
  BOOST_TEST(bytes(run, Component::kMasterWeights) == 4 * kElements / 2);
  BOOST_TEST(bytes(run, Component::kOptimizerState) == 8 * kElements / 2);
  run.grad = DType::kBF16;
  run.parallel.zero = 0;
  BOOST_TEST(bytes(run, Component::kGradients) == 2 * kElements);
  BOOST_TEST(bytes(run, Component::kOptimizerState) == 8 * kElements);
}

BOOST_AUTO_TEST_CASE(runs_that_are_not_described_are_refused_with_a_sentence) {
  const auto refused = [](const model::Architecture& a, const RunSpec& run, const char* words) {
    std::vector<std::string> notes;
    BOOST_CHECK_EXCEPTION(
        pytorch::step_settings(a, run, megatron_options(), notes), Error,
        [&](const Error& e) { return std::string(e.what()).find(words) != std::string::npos; });
  };
  const model::Architecture a = test::dense(64, 96, 4, 2, 1024, 4);
  const auto with = [&](const char* words, const auto& change) {
    RunSpec run = small_run();
    change(run);
    refused(a, run, words);
  };
  with("plan.cross_entropy", [](RunSpec& r) { r.memory.cross_entropy = CrossEntropy::kFused; });
  with("parallel.interleave = 4", [](RunSpec& r) { r.parallel.pipeline = 2, r.parallel.virtual_stages = 4; });
  with("train.grad_accum = 3",
       [](RunSpec& r) { r.parallel.pipeline = r.parallel.virtual_stages = 2, r.accumulate = 3; });
  with("parallel.pipeline = 3", [](RunSpec& r) { r.parallel.pipeline = 3; });
  with("parallel.tensor = 4", [](RunSpec& r) { r.parallel.tensor = 4; });
  with("parallel.context = 3", [](RunSpec& r) { r.parallel.context = 3; });
  with("parallel.zero = 3", [](RunSpec& r) { r.parallel.zero = 3; });
  with("train.precision", [](RunSpec& r) { r.compute = DType::kF8; });
  with("plan.master", [](RunSpec& r) { r.master = DType::kNone; });
  with("plan.moments", [](RunSpec& r) { r.moment = DType::kF8; });
  with("optimizer.name", [](RunSpec& r) { r.optimizer = Optimizer::kSgd; });
  with("adapters", [](RunSpec& r) { r.mode = RunMode::kLora, r.lora_rank = 8; });
  with("plan.attention", [](RunSpec& r) { r.memory.attention = AttentionMemory::kMaterialised; });
  // All-to-all divides the heads; two chunks of the sequence per rank of a ring.
  RunSpec divided = small_run();
  divided.parallel.context = 4;
  std::vector<std::string> ignored;
  BOOST_CHECK_THROW(pytorch::step_settings(a, divided, megatron_options(false), ignored), Error);
  BOOST_CHECK_NO_THROW(pytorch::step_settings(a, divided, megatron_options(), ignored));
  divided.seq_len = 4;
  BOOST_CHECK_THROW(pytorch::step_settings(a, divided, megatron_options(), ignored), Error);
  with("without experts", [](RunSpec& r) { r.parallel.expert = 2; });
  // DeepSeek V2: multi-latent attention and experts.
  const test::MeasuredRun experts = test::megatron_runs()[2];
  RunSpec run = experts.run;
  run.parallel.expert = 3;
  refused(experts.model, run, "parallel.expert = 3 with 160 experts");
  run = experts.run, run.parallel.tensor = 2;
  refused(experts.model, run, "parallel.tensor = 2 without parallel.sequence");
  model::Architecture gated = experts.model;
  gated.layers[1].layer.experts.shared_gate = true;
  refused(gated, experts.run, "this model in Megatron-LM");
}

BOOST_AUTO_TEST_SUITE_END()
