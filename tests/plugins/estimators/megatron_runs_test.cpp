// The replay of Megatron-LM compared with published runs on 8 B200 (SimuMax 4dcaae5,
// docs/b200/b200_release_v1.2_summary.json; their arguments are in simu_tools/megatron_scripts), with the bytes
// that a layer keeps by hand, and with what it does not describe.
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <cstdio>

#include "plugins/estimators/pytorch/report.hpp"
#include "plugins/estimators/pytorch/settings.hpp"
#include "tests/plugins/estimators/pytorch_runs.hpp"

using namespace trainhost;

namespace {

struct MegatronRun {
  const char* name;
  const char* model;
  std::uint32_t layers, tensor, pipeline, data, context, tokens;
  std::int32_t stage;  // that was measured; -1: all are alike
  std::uint64_t allocated;  // max_memory_allocated of the rank that needs most
  std::uint64_t reserved;   // of all ranks; 0: of another stage
};

constexpr std::uint64_t mib_of(double mib) { return static_cast<std::uint64_t>(mib * 0x1p20); }

const MegatronRun kMegatronRuns[] = {
    {"70B, PP 2, DP 4, stage 1", "70b", 12, 1, 2, 4, 1, 4096, 0, mib_of(68149.19873046875), mib_of(72586)},
    {"70B, PP 2, DP 4, stage 2", "70b", 12, 1, 2, 4, 1, 4096, 1, mib_of(64479.4794921875), 0},
    {"70B, TP 4, DP 2", "70b", 12, 4, 1, 2, 1, 4096, -1, mib_of(40009.77294921875), mib_of(41140)},
    {"405B, PP 2, DP 4, stage 1", "405b", 4, 1, 2, 4, 1, 4096, 0, mib_of(88688.88232421875), 0},
    {"405B, PP 2, DP 4, stage 2", "405b", 4, 1, 2, 4, 1, 4096, 1, mib_of(89173.3994140625), mib_of(94474)},
    {"405B, TP 4, DP 2", "405b", 4, 4, 1, 2, 1, 4096, -1, mib_of(54158.11279296875), mib_of(55966)},
    {"70B, TP 2, CP 4, 32k", "70b", 12, 2, 1, 1, 4, 32768, -1, mib_of(70070.56298828125), mib_of(72020)},
    {"405B, TP 2, CP 4, 32k", "405b", 4, 2, 1, 1, 4, 32768, -1, mib_of(89113.80126953125), mib_of(93340)},
    {"70B, TP 2, CP 4, 128k", "70b", 12, 2, 1, 1, 4, 131072, -1, mib_of(115371.97607421875),
     mib_of(124310)},
    {"405B, TP 2, CP 4, 128k", "405b", 4, 2, 1, 1, 4, 131072, -1, mib_of(120962.51123046875),
     mib_of(130562)},
};

model::Architecture llama_of(std::uint32_t hidden, std::uint32_t width, std::uint32_t heads, std::uint32_t groups,
                             std::uint64_t vocab, std::uint32_t layers) {
  model::Architecture a;
  a.family = "llama", a.vocab = vocab, a.hidden = hidden;
  model::Layer l;
  l.attention.heads = heads, l.attention.kv_heads = groups, l.attention.head_dim = hidden / heads;
  l.mlp.width = width;
  a.layers = {{l, layers}};
  return a;
}

/// --make-vocab-size-divisible-by 128, and the end of a document that NullTokenizer adds.
model::Architecture architecture_of(const MegatronRun& m) {
  const std::uint64_t multiple = 128 * m.tensor, vocab = (128257 + multiple - 1) / multiple * multiple;
  return m.model == std::string("70b") ? llama_of(8192, 28672, 64, 8, vocab, m.layers)
                                       : llama_of(16384, 53248, 128, 16, vocab, m.layers);
}

RunSpec megatron_run() {
  RunSpec r;
  r.weight = r.compute = DType::kBF16, r.master = r.grad = r.moment = DType::kF32;
  r.micro_batch = 1, r.accumulate = 4, r.parallel.zero = 1;
  r.memory.cross_entropy = CrossEntropy::kInPlace;
  return r;
}

RunSpec run_of(const MegatronRun& m) {
  RunSpec r = megatron_run();
  r.seq_len = m.tokens;
  r.parallel.tensor = m.tensor, r.parallel.pipeline = m.pipeline, r.parallel.data = m.data;
  r.parallel.context = m.context, r.parallel.sequence = m.tensor > 1;
  return r;
}

pytorch::Options megatron_options() {
  pytorch::Options o;
  o.framework = pytorch::Framework::kMegatron;
  o.name = "megatron";
  o.exchanges_heads = true;
  return o;
}

double percent_of(std::uint64_t ours, std::uint64_t measured) {
  return 100 * (static_cast<double>(ours) / static_cast<double>(measured) - 1);
}

}  // namespace

BOOST_AUTO_TEST_SUITE(megatron_runs)

BOOST_AUTO_TEST_CASE(the_replay_is_what_was_measured) {
  double sum = 0;
  for (const MegatronRun& m : kMegatronRuns) {
    std::vector<std::string> notes;
    const model::Architecture a = architecture_of(m);
    frameworks::StepSettings s = pytorch::step_settings(a, run_of(m), megatron_options(), notes);
    s.machine.cublas_workspace = 8'519'680;
    if (m.stage >= 0) s.stage.index = static_cast<std::uint32_t>(m.stage);
    const frameworks::Trace trace = frameworks::training_step(a, s).trace;
    const frameworks::AllocatorResult result = frameworks::replay_allocator(trace);
    const double allocated = percent_of(result.allocated, m.allocated);
    std::printf("%-28s allocated %9.2f MiB, replay %9.2f MiB, %+7.3f %%", m.name,
                static_cast<double>(m.allocated) / 0x1p20, static_cast<double>(result.allocated) / 0x1p20,
                allocated);
    if (m.reserved)
      std::printf("; reserved %9.0f, replay %9.0f, %+6.2f %%", static_cast<double>(m.reserved) / 0x1p20,
                  static_cast<double>(result.reserved) / 0x1p20, percent_of(result.reserved, m.reserved));
    const frameworks::Peak peak = frameworks::find_peak(trace);
    std::printf("  %s, %llu events\n", frameworks::time_of(trace, peak).c_str(), (unsigned long long)trace.events.size());
    sum += std::abs(allocated);
    BOOST_TEST(std::abs(allocated) <= 0.05, m.name);
  }
  const double mean = sum / static_cast<double>(std::size(kMegatronRuns));
  std::printf("mean %.3f %%\n", mean);
}

BOOST_AUTO_TEST_SUITE_END()
