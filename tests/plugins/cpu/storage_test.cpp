// Runs with every buffer in its own allocation: the maximum of live bytes equals the tensor bytes of the
// plan, no buffer is accessed outside its lifetime or its bounds, and results equal those of a single arena.
// Random shapes, every recompute policy.
#include <boost/test/unit_test.hpp>

#include "tests/support/cpu_model_fixture.hpp"

namespace trainhost {
namespace {

using namespace test;

struct Shape {
  ModelSpec model;
  RunSpec run;
  TrainerTraits traits;
};

Shape random_shape(std::mt19937& g) {
  auto between = [&](std::uint32_t lo, std::uint32_t hi) {
    return lo + static_cast<std::uint32_t>(g() % (hi - lo + 1));
  };
  Shape s;
  const char* families[] = {"llama", "mistral", "qwen2", "qwen3"};
  const std::uint32_t kv = between(1, 3);
  s.model = small_model(families[between(0, 3)], between(2, 90), between(1, 40), between(1, 4),
                        kv * between(1, 3), kv, 2 * between(1, 12), between(1, 60));
  s.model.tied = between(0, 1), s.model.qkv_bias = between(0, 1), s.model.o_bias = between(0, 1),
  s.model.mlp_bias = between(0, 1);
  s.model.qk_norm = s.model.family == "qwen3";
  s.run.seq_len = between(1, 40), s.run.micro_batch = between(1, 4), s.run.accumulate = between(1, 2);
  if (s.model.family == "mistral") s.model.sliding_window = between(1, 20);
  const Optimizer optimizers[] = {Optimizer::kAdamW, Optimizer::kSgd, Optimizer::kSgdMomentum};
  s.run.optimizer = optimizers[between(0, 2)];
  s.run.clip_norm = between(0, 1);
  s.traits = cpu::traits_of(s.model, s.run, between(1, 3));
  s.traits.head_chunk_tokens = between(0, 1) ? between(1, 30) : 0;
  s.traits.attention_tile_q = between(1, 20), s.traits.attention_tile_k = between(1, 20),
  s.traits.slots = between(1, 16);
  s.traits.workspace_bytes = cpu::workspace_floats(s.model, s.run, s.traits) * sizeof(float);
  return s;
}

BOOST_AUTO_TEST_SUITE(cpu_storage)

BOOST_AUTO_TEST_CASE(separate_buffers_peak_at_the_plans_tensor_bytes) {
  std::mt19937 g(20240607);
  const cpu::Kernels& kernels = cpu::select_kernels();
  for (int shape = 0; shape < 120; ++shape) {
    Shape s = random_shape(g);
    for (Recompute recompute :
         {Recompute::kNone, Recompute::kSelective, Recompute::kFull, Recompute::kLayers}) {
      s.run.recompute = recompute;
      const std::uint32_t layers = s.model.layers, full = shape % 2 ? layers / 2 : 0,
                          mlp = shape / 2 % 2 ? (layers - full) / 2 : 0;
      s.run.recompute_layers = {full, mlp, shape / 4 % 2 ? layers - full - mlp : 0};
      const std::size_t n = s.run.tokens_per_step();
      const reference::Ids ids = random_tokens(n, s.model.vocab, 1),
                           targets = random_tokens(n, s.model.vocab, 2);
      const reference::Weights w = random_weights(s.model, 3);
      reference::Weights after[2];
      double losses[2][2];
      for (bool separate : {false, true}) {
        CpuModelFixture fixture(s.model, s.run, kernels, s.traits.threads, separate, &s.traits);
        fixture.load(w);
        for (std::uint64_t t = 0; t < 2; ++t)
          losses[separate][t] = fixture.update(ids, targets, 1e-3, t).loss;
        const std::size_t one = s.run.tokens_per_micro_batch();
        fixture.evaluate(reference::Ids(ids.begin(), ids.begin() + static_cast<long>(one)),
                         reference::Ids(targets.begin(), targets.begin() + static_cast<long>(one)));
        for (std::uint32_t p = 0; p < std::min(3u, s.run.seq_len); ++p) fixture.next(ids[p], p);
        after[separate] = fixture.read();
        if (!separate) continue;
        const placement::MemoryPlan plan = placement::place(fixture.program);
        auto& storage = static_cast<SeparateStorage&>(*fixture.storage);
        BOOST_TEST(storage.peak() == plan.peak_tensor_bytes,
                   "shape " << shape << ", recompute " << name(recompute) << ": " << storage.peak()
                            << " bytes against " << plan.peak_tensor_bytes);
      }
      BOOST_TEST((after[0] == after[1]), "shape " << shape << ": weights depend on the storage");
      BOOST_TEST((losses[0][0] == losses[1][0] && losses[0][1] == losses[1][1]),
                 "shape " << shape << ": losses depend on the storage");
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace trainhost
