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
  m.flops = m.wide_flops = 1e15, m.matrix_efficiency = m.wide_efficiency = m.attention_efficiency = 1;
  m.memory_bytes_s = 3e12, m.link_bytes_s = 4e11, m.network_bytes_s = 5e10;
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

BOOST_AUTO_TEST_CASE(a_stage_with_given_layers_that_is_slower_than_the_one_with_the_head_counts) {
  RunSpec r = bf16();
  r.parallel.pipeline = 4;
  const double even = step_time(plain(24), r, machine()).compute;  // 6 layers and the head
  r.parallel.last_stage_layers = 3;                                // others: 7
  const Times given = step_time(plain(24), r, machine());
  const double layer =
      step_time(plain(48), r, machine()).compute - given.compute;  // 8 layers more in a stage
  close(given.compute, layer / 8 * 7);
  BOOST_TEST(given.compute < even + layer / 8);
}

BOOST_AUTO_TEST_CASE(each_message_costs_the_steps_of_its_ring_or_tree) {
  const RunSpec one = bf16();
  Machine slow = machine();
  slow.start_s = 1e-3, slow.link_latency_s = 1e-4, slow.network_latency_s = 1e-2;
  const auto added = [&](const RunSpec& r, double Times::*term) {
    return step_time(plain(), r, slow).*term - step_time(plain(), r, machine()).*term;
  };
  RunSpec r = one;
  r.parallel.tensor = 8;  // 2 + 2 all-reduces of 8 layers, 2 of embedding and head; 14 steps inside a node
  close(added(r, &Times::tensor), 8 * (8 * 4 + 2) * (1e-3 + 14 * 1e-4), 1e-6);
  r.parallel.sequence = true;  // all-gather and reduce-scatter of 7 steps each
  close(added(r, &Times::tensor), 8 * (8 * 4 + 2) * 2 * (1e-3 + 7 * 1e-4), 1e-6);
  r = one, r.parallel.pipeline = 4;
  close(added(r, &Times::pipeline), 8 * 2 * (1e-3 + 1e-4), 1e-6);
  slow.node = 1;
  Machine fast = machine();
  fast.node = 1;
  close(step_time(plain(), r, slow).pipeline - step_time(plain(), r, fast).pipeline, 8 * 2 * (1e-3 + 1e-2),
        1e-6);
}

BOOST_AUTO_TEST_CASE(data_parallel_latency_grows_with_the_ring_and_with_the_logarithm_of_nodes_in_a_tree) {
  RunSpec r = bf16();
  r.accumulate = 1;
  Machine m = machine();
  m.memory_bytes_s = m.link_bytes_s = m.network_bytes_s =
      1e30;  // nothing but latency; nothing to overlap with
  m.flops = m.wide_flops = 1e30;
  m.start_s = 1e-3, m.link_latency_s = 1e-4, m.network_latency_s = 1e-2;
  const auto data = [&](std::uint32_t ranks, std::uint32_t zero) {
    r.parallel.data = ranks, r.parallel.zero = zero;
    return step_time(plain(), r, m).data;
  };
  // 8 layers, and one message for embedding and head. 64 ranks are 8 nodes of 8: 56 steps inside nodes.
  close(data(64, 1), 2 * 9 * (1e-3 + 56 * 1e-4 + 7 * 1e-2), 1e-6);
  close(data(64, 3), 3 * 9 * (1e-3 + 56 * 1e-4 + 7 * 1e-2), 1e-6);
  // A tree: 3 stages of nodes and 7 steps in a node, up and down.
  close(data(64, 0), 9 * (1e-3 + 2 * (7 * 1e-4 + 3 * 1e-2)), 1e-6);
  close(data(8, 0), 9 * (1e-3 + 2 * 7 * 1e-4), 1e-6);
  close(data(4096, 0), 9 * (1e-3 + 2 * (7 * 1e-4 + 9 * 1e-2)), 1e-6);
  BOOST_TEST(data(4096, 1) > 60 * data(64, 1));
}

BOOST_AUTO_TEST_CASE(overlap_hides_a_share_of_the_tensor_parallel_exchange) {
  RunSpec r = bf16();
  r.parallel.tensor = 8;
  Machine m = machine();
  const Times none = step_time(plain(), r, m);
  m.tensor_overlap = 0.75;
  const Times most = step_time(plain(), r, m);
  const double head = 2 * 2 * (7.0 / 8) * 4 * 2048 * 1024 * 2 / 4e11 * 8;  // not overlapped
  close(most.tensor - head, (none.tensor - head) / 4, 1e-6);
  BOOST_TEST(most.step < none.step);
}

BOOST_AUTO_TEST_CASE(fp8_speeds_up_products_with_weights_and_costs_conversions) {
  RunSpec r = bf16();
  const Times wide = step_time(plain(), r, machine());
  Machine m = machine();
  r.compute = DType::kF8;
  m.flops = 2e15, m.converts = true;
  const Times narrow = step_time(plain(), r, m);
  const double tokens = 4 * 2048 * 8, layer = 4.0 * 1024 * 1024 + 3.0 * 1024 * 4096 + 2 * 1024;
  // Attention and head keep their rate.
  close(wide.compute - narrow.compute, tokens * 6 * 8 * layer / 2e15);
  // Read in 16 bits, written twice in 8: weights and inputs forward, gradients of outputs backward.
  const double in_out = 4 * 2048 * (4.0 * 1024 + 4 * 1024 + 3 * 4096);
  m.memory_bytes_s = 3e9;  // so slow that every product is bound by memory
  Machine slow = machine();
  slow.memory_bytes_s = 3e9;
  r.compute = DType::kBF16;
  const double bf16_bytes = step_time(plain(), r, slow).memory + step_time(plain(), r, slow).compute;
  r.compute = DType::kF8;
  const double fp8_bytes = step_time(plain(), r, m).memory + step_time(plain(), r, m).compute;
  // Operands and results: 1.5 bytes instead of 2, three times; weights 1 byte instead of 2.
  close(fp8_bytes - bf16_bytes, 8 * 8 * (4 * (in_out + layer) - 3 * (0.5 * in_out + layer)) / 3e9, 1e-6);
}

BOOST_AUTO_TEST_CASE(materialised_attention_computes_scores_of_every_pair) {
  RunSpec r = bf16();
  r.memory.attention = AttentionMemory::kMaterialised;
  const double tokens = 4 * 2048 * 8, layer = 4.0 * 1024 * 1024 + 3.0 * 1024 * 4096 + 2 * 1024,
               head = 32000.0 * 1024;
  close(step_time(plain(), r, machine()).compute,
        tokens * (6 * (8 * layer + head) + 8 * 3 * 2 * 2048.0 * 2 * 1024) / 1e15);
}

BOOST_AUTO_TEST_CASE(activations_have_the_compute_type_and_gathered_weights_the_narrower_one) {
  RunSpec r = bf16();
  r.parallel.tensor = 2, r.parallel.data = 4, r.parallel.zero = 3, r.accumulate = 1;
  Machine m = machine();
  m.link_bytes_s = m.network_bytes_s = 1e9;
  const Times narrow = step_time(plain(), r, m);
  r.weight = DType::kF32, r.master = DType::kNone;  // f32 shards, gathered in bf16
  const Times shards = step_time(plain(), r, m);
  close(narrow.tensor, shards.tensor);
  close(narrow.data, shards.data);
  r.compute = DType::kF32;
  close(step_time(plain(), r, m).tensor, 2 * narrow.tensor);
}

BOOST_AUTO_TEST_CASE(a_query_sees_half_of_its_chunk_on_average) {
  model::Attention a;
  BOOST_TEST(visible_keys(a, 99) == 50.0);
  a.window = 11;
  BOOST_TEST(visible_keys(a, 99) == 11 - 11 * 10 / (2 * 99.0));
  a.chunked = true;
  BOOST_TEST(visible_keys(a, 99) == 6.0);
  BOOST_TEST(visible_keys(a, 5) == 3.0);
}

// Twice the tokens take twice the time: no product of pairs of tokens.
BOOST_AUTO_TEST_CASE(linear_attention_costs_the_same_for_every_token) {
  model::LinearAttention a{.key_heads = 2, .value_heads = 4, .key_dim = 8, .value_dim = 16, .chunk = 32};
  BOOST_TEST(recurrence_flops(a) == 2.0 * 4 * (2 * 8 * 16 + 32 * (8 + 16)));
  BOOST_TEST(recurrence_flops({}) == 0.0);
}

BOOST_AUTO_TEST_CASE(every_device_preset_gives_a_machine) {
  for (const DevicePreset& d : device_presets())
    for (DType t : {DType::kF32, DType::kTF32, DType::kBF16, DType::kF16, DType::kF8}) {
      RunSpec r;
      r.compute = t;
      const Machine m = machine_of(d, r);
      BOOST_TEST(
          (m.flops > 0 && m.wide_flops > 0 && m.wide_flops <= m.flops && m.matrix_efficiency > 0 &&
           m.wide_efficiency > 0 && m.attention_efficiency > 0 && m.memory_bytes_s > 0 && m.start_s > 0 &&
           m.link_latency_s > 0 && m.network_latency_s > m.link_latency_s && m.link_bytes_s > 0 &&
           m.network_bytes_s > 0 && m.host_bytes_s > 0 && m.node > 0 && m.memory_bytes == d.memory_bytes),
          d.name);
    }
}

BOOST_AUTO_TEST_SUITE_END()
