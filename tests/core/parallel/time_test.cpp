// The time model: terms compared with sums computed by hand, and properties that hold for all inputs.
#include "core/parallel/step_time.hpp"

#include <boost/test/unit_test.hpp>
#include <cmath>

using namespace trainhost;
using namespace trainhost::parallel;

namespace {

model::Architecture plain(std::uint32_t layers = 8) {
  model::Architecture a;
  a.vocab = 32000, a.hidden = 1024;
  model::Layer l;
  l.attention.heads = l.attention.kv_heads = 16, l.attention.head_dim = 64;
  l.mlp.width = 4096;
  a.layers = {{l, layers}};
  return a;
}

RunSpec bf16() {
  RunSpec r;
  r.weight = r.compute = DType::kBF16, r.master = DType::kF32;
  r.seq_len = 2048, r.micro_batch = 4, r.accumulate = 8;
  return r;
}

Machine machine() {
  Machine m;
  m.flops = 1e15, m.matrix_efficiency = 1, m.memory_bytes_s = 3e12, m.link_bytes_s = 4e11,
  m.network_bytes_s = 5e10;
  m.host_bytes_s = 5e10, m.disk_bytes_s = 3e9, m.node = 8;
  return m;
}

Times step_time(const model::Architecture& a, const RunSpec& r, const Machine& m) {
  return TimeModel(a, r, m).step(r);
}

double sum(const Times& t) {
  return t.compute + t.memory + t.recompute + t.tensor + t.context + t.expert + t.pipeline + t.data +
         t.bubble + t.optimizer + t.offload;
}

void close(double a, double b, double relative = 1e-9) {
  BOOST_TEST(std::abs(a - b) <= relative * std::max(std::abs(a), std::abs(b)), a << " against " << b);
}

}  // namespace

BOOST_AUTO_TEST_SUITE(time_suite)

BOOST_AUTO_TEST_CASE(on_one_device_compute_is_six_flops_per_weight_plus_attention) {
  const RunSpec r = bf16();
  const model::Architecture a = plain();
  const Times t = step_time(a, r, machine());
  const double tokens = 4 * 2048 * 8, layer = 4.0 * 1024 * 1024 + 3.0 * 1024 * 4096 + 2 * 1024,
               head = 32000.0 * 1024;
  // Forward: 2 products over half of the keys. Flash backward recomputes the scores: 2.5 times that.
  const double attention = 3.5 * 2 * (2049.0 / 2) * 2 * 1024;
  close(t.compute, tokens * (6 * (8 * layer + head) + 8 * attention) / 1e15);
  // Useful work counts attention three times, not three and a half.
  close(t.model_flops_utilization * t.step,
        tokens * (6 * (8 * layer + head) + 8 * 6 * (2049.0 / 2) * 2048) / 1e15);
  close(t.tokens_per_second, tokens / t.step);
  BOOST_TEST(t.tensor + t.context + t.expert + t.pipeline + t.data + t.bubble + t.offload + t.recompute == 0);
}

BOOST_AUTO_TEST_CASE(terms_sum_to_the_step_and_none_is_negative) {
  RunSpec r = bf16();
  for (std::uint32_t t : {1u, 2u, 4u})
    for (std::uint32_t p : {1u, 2u, 4u})
      for (std::uint32_t c : {1u, 2u})
        for (std::uint32_t d : {1u, 16u})
          for (std::uint32_t zero : {0u, 1u, 2u, 3u})
            for (Recompute recompute : {Recompute::kNone, Recompute::kSelective, Recompute::kFull})
              for (Tier home : {Tier::kDevice, Tier::kHost, Tier::kDisk}) {
                r.parallel.tensor = t, r.parallel.pipeline = p, r.parallel.context = c, r.parallel.data = d,
                r.parallel.zero = zero;
                r.recompute = recompute,
                r.memory.activations_in = r.memory.optimizer_in = r.memory.weights_in = home;
                const Times x = step_time(plain(), r, machine());
                close(x.step, sum(x));
                for (double part : {x.compute, x.memory, x.recompute, x.tensor, x.context, x.expert,
                                    x.pipeline, x.data, x.bubble, x.optimizer, x.offload})
                  BOOST_TEST(part >= 0);
                BOOST_TEST(x.model_flops_utilization < 1);
                BOOST_TEST(x.step > 0);
              }
}

BOOST_AUTO_TEST_CASE(the_bubble_shrinks_with_chunks_and_micro_batches) {
  RunSpec r = bf16();
  r.parallel.pipeline = 4;
  const Times one = step_time(plain(), r, machine());
  r.parallel.virtual_stages = 2;
  const Times two = step_time(plain(), r, machine());
  close(one.bubble, 2 * two.bubble);
  close(two.pipeline, 2 * one.pipeline);  // twice as many boundaries
  // Relative to one micro-batch, without sends and optimizer: (p - 1) / n.
  const double work = one.compute + one.memory;
  close(one.bubble / work, 3.0 / 8);
}

BOOST_AUTO_TEST_CASE(a_tensor_group_over_several_nodes_uses_the_network) {
  RunSpec r = bf16();
  r.parallel.tensor = 8;
  const Times near = step_time(plain(), r, machine());
  Machine small = machine();
  small.node = 4;
  const Times far = step_time(plain(), r, small);
  // Each of the ring's ranks in a node has its own port: 4 x 50 GB/s, below the link's 400.
  close(far.tensor, 2 * near.tensor);
  // 8 layers, 2 all-reduces per direction and 2 for embedding and head; a ring transfers 2 (t - 1) / t of T *
  // H * 2 bytes.
  close(near.tensor, 8 * (8 * 4 + 2) * 2 * (7.0 / 8) * 4 * 2048 * 1024 * 2 / 4e11);
  r.parallel.sequence = true;
  const Times shared = step_time(plain(), r, machine());
  close(shared.tensor, near.tensor);  // all-gather + reduce-scatter = all-reduce
  BOOST_TEST(shared.memory < near.memory);
}

BOOST_AUTO_TEST_CASE(zero_costs_the_time_of_its_transfers) {
  RunSpec r = bf16();
  r.parallel.data = 64, r.accumulate = 1;
  Machine m = machine();
  m.network_bytes_s = m.link_bytes_s = 1e9;  // so slow that almost nothing overlaps
  std::vector<double> data;
  for (std::uint32_t zero : {0u, 1u, 2u, 3u}) {
    r.parallel.zero = zero;
    data.push_back(step_time(plain(), r, m).data);
  }
  // ZeRO 0: f32 gradients in both directions, 8 bytes; 1 and 2: 4 of gradients, 2 of weights; 3: weights
  // twice, gradients once.
  const double unit = data[3] - data[0];
  BOOST_TEST(data[1] < data[0]);
  BOOST_TEST(std::abs(unit) < 0.2 * data[0]);  // 2 + 2 + 4 compared with 8, except for overlap
  close(data[1], data[2], 0.2);
  r.parallel.zero = 1;
  const double replicated = step_time(
                                plain(),
                                [&] {
                                  RunSpec x = r;
                                  x.parallel.zero = 0;
                                  return x;
                                }(),
                                m)
                                .optimizer;
  close(step_time(plain(), r, m).optimizer * 64, replicated);
}

BOOST_AUTO_TEST_CASE(experts_cost_active_compute_and_all_to_all) {
  model::Architecture a = plain();
  model::Layer l = a.layers[0].layer;
  l.mlp.width = 0;
  l.experts.count = 8, l.experts.active = 2, l.experts.each.width = 2048;
  a.layers = {{l, 8}};
  RunSpec r = bf16();
  const Times one = step_time(a, r, machine());
  close(one.compute, step_time(plain(), r, machine()).compute,
        1e-3);  // 2 experts of width 2048 = one MLP of 4096, except for the router
  r.parallel.data = 8, r.parallel.expert = 8;
  const Times eight = step_time(a, r, machine());
  close(eight.expert, 8 * 8 * 4 * 2.0 * 4 * 2048 * 1024 * 2 * (7.0 / 8) /
                          4e11);  // layers, micro-batches, directions, active experts, T, H, bytes
}

BOOST_AUTO_TEST_CASE(every_device_preset_gives_a_machine) {
  for (const DevicePreset& d : device_presets())
    for (DType t : {DType::kF32, DType::kTF32, DType::kBF16, DType::kF16, DType::kF8}) {
      RunSpec r;
      r.compute = t;
      const Machine m = machine_of(d, r);
      BOOST_TEST((m.flops > 0 && m.memory_bytes_s > 0 && m.link_bytes_s > 0 && m.network_bytes_s > 0 &&
                  m.host_bytes_s > 0 && m.node > 0 && m.memory_bytes == d.memory_bytes),
                 d.name);
    }
}

BOOST_AUTO_TEST_SUITE_END()
