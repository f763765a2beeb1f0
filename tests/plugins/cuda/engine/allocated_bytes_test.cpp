// Allocated memory equals the plan to the byte: for random shapes, families, precisions, recompute policies
// and modes, a run allocates the planned arena of each memory tier once, at creation, and steps allocate
// nothing.
#include <boost/test/unit_test.hpp>

#include <random>

#include "tests/plugins/cuda/engine/engine_fixture.hpp"

namespace trainhost {
namespace {

using namespace test;

struct Shape {
  ModelSpec model;
  RunSpec run;
};

Shape random_shape(std::mt19937& g, int number) {
  auto between = [&](std::uint32_t lo, std::uint32_t hi) {
    return lo + static_cast<std::uint32_t>(g() % (hi - lo + 1));
  };
  const char* families[] = {"llama", "mistral", "qwen2", "qwen3"};
  const Optimizer optimizers[] = {Optimizer::kAdamW, Optimizer::kSgd,       Optimizer::kSgdMomentum,
                                  Optimizer::kLion,  Optimizer::kAdafactor, Optimizer::kAdamW8bit,
                                  Optimizer::kMuon};
  const Recompute recomputes[] = {Recompute::kNone, Recompute::kSelective, Recompute::kFull,
                                  Recompute::kLayers};
  const char* precisions[] = {"fp32", "tf32", "bf16"};
  Shape s;
  const std::uint32_t kv = between(1, 2);
  s.model = small_model(families[number % 4], between(2, 90), between(1, 40), between(1, 3),
                        kv * between(1, 2), kv, 2 * between(1, 12), between(1, 60));
  s.model.tied = between(0, 1), s.model.qkv_bias = between(0, 1), s.model.o_bias = between(0, 1),
  s.model.mlp_bias = between(0, 1);
  s.model.qk_norm = s.model.family == "qwen3";
  if (s.model.family == "mistral") s.model.sliding_window = between(1, 20);
  s.run.seq_len = between(1, 13), s.run.micro_batch = between(1, 3), s.run.accumulate = between(1, 3);
  s.run.optimizer = optimizers[number % 7], s.run.recompute = recomputes[number % 5 % 4];
  const std::uint32_t layers = s.model.layers, full = between(0, layers);
  s.run.recompute_layers = {full, 0, layers - full};
  s.run = in_precision(s.run, precisions[number / 3 % 3]);
  if (number % 3 == 0) {
    s.run.mode = number % 2 ? RunMode::kQlora : RunMode::kLora;
    s.run.memory.double_quantized = s.run.mode == RunMode::kQlora && number % 4 == 1;
    s.run.memory.lora_dropout = number % 9 == 0 ? 0.1 : 0.0;
    s.run.lora_rank = between(1, 5), s.run.lora_targets = between(1, 127), s.run.lora_alpha = 8;
  } else if (number % 5 == 0) {
    s.run.trainable = number % 2 ? "-model.embed_tokens*" : "-*.mlp.*";
  }
  return s;
}

BOOST_AUTO_TEST_SUITE(cuda_allocated_bytes)

BOOST_AUTO_TEST_CASE(allocated_bytes_equal_the_plan) {
  std::mt19937 g(20240719);
  for (int number = 0; number < 44; ++number) {
    const Shape s = random_shape(g, number);
    const char* mode = kModes[(number + number / 4) % 3];
    emu::reset();
    CudaHost host(mode);
    const step::Program program = step::build_program(
        s.model, s.run,
        cuda::choose(s.model, s.run, mode, host.thread_budget, emu::Machine{}.multiprocessors).traits);
    const placement::MemoryPlan plan = placement::place(program);
    const std::uint64_t device = plan.of(Tier::kDevice).arena_bytes,
                        pinned = plan.of(Tier::kPinned).arena_bytes,
                        pageable = plan.of(Tier::kHost).arena_bytes;
    BOOST_TEST_CONTEXT("shape " << number << ", " << mode << ", recompute " << name(s.run.recompute)) {
      {
        PluginSession session(cuda_engine(), host, s.model, s.run);
        session.init(1);
        BOOST_TEST((host.device == static_cast<std::int64_t>(device) &&
                    host.pinned == static_cast<std::int64_t>(pinned) && host.now == pageable));
        const auto calls = emu::calls();
        const std::size_t n = s.run.tokens_per_step(), m = s.run.tokens_per_micro_batch();
        for (std::uint64_t t = 0; t < 2; ++t)
          session.step(random_tokens(n, s.model.vocab, 1), random_tokens(n, s.model.vocab, 2), 1e-3, t);
        session.evaluate(random_tokens(m, s.model.vocab, 1), random_tokens(m, s.model.vocab, 2));
        session.next(0, 0);
        session.save();
        const auto later = emu::calls();
        for (const char* call : {"cudaMalloc", "cudaHostAlloc"})
          BOOST_TEST(
              (calls.contains(call) ? calls.at(call) : 0) == (later.contains(call) ? later.at(call) : 0),
              call);
      }
      BOOST_TEST(emu::peak_device_bytes() == device);
      BOOST_TEST(emu::peak_pinned_bytes() == pinned);
      BOOST_TEST(host.device_peak == static_cast<std::int64_t>(device));
      BOOST_TEST(host.pinned_peak == static_cast<std::int64_t>(pinned));
      BOOST_TEST(host.peak == pageable);
      BOOST_TEST(host.all_freed());
      BOOST_TEST(emu::outstanding().nothing());
      BOOST_TEST(emu::problems().empty());
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace trainhost
