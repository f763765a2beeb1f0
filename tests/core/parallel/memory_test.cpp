// Parts of the memory model compared with simpler implementations: states with enumerated tensors,
// micro-batches in flight with a simulated schedule, stored bytes with numbers computed by hand. Also the
// errors of validate().
#include <boost/test/unit_test.hpp>

#include "core/base/error.hpp"
#include "core/parallel/rank_breakdown.hpp"
#include "tests/core/parallel/measured_runs.hpp"
#include "tests/core/parallel/random_layouts.hpp"
#include "tests/support/architecture_tensors.hpp"

using namespace trainhost;
using namespace trainhost::parallel;
using test::Draw;
using test::require;

namespace {

std::uint64_t of(const Numbers& n, Component c, Tier t = Tier::kDevice) {
  return n.bytes[std::size_t(t)][std::size_t(c)];
}

/// Simulates the chunk passes of one stage: warm-up, then alternating forward and backward passes. Returns
/// the maximum number in flight, also if the micro-batches do not fill the last round.
std::uint64_t simulated_in_flight(const Pipeline& p, std::uint64_t stage) {
  const std::uint64_t all = p.micro_batches * p.chunks;
  const std::uint64_t warm_up =
      p.chunks == 1 ? p.stages - stage - 1 : 2 * (p.stages - stage - 1) + (p.chunks - 1) * p.stages;
  std::uint64_t forward = 0, backward = 0, most = 0;
  while (backward < all) {
    while (forward < all && forward - backward < warm_up) ++forward;  // warm-up
    if (forward < all) ++forward;
    most = std::max(most, forward - backward);
    ++backward;
  }
  return most;
}

void rejected(const model::Architecture& a, const RunSpec& r, const std::string& sentence) {
  BOOST_CHECK_EXCEPTION(validate(a, r), Error, [&](const Error& e) {
    if (e.what() != sentence) BOOST_TEST_MESSAGE("error: " << e.what());
    return e.what() == sentence;
  });
}

}  // namespace

BOOST_AUTO_TEST_SUITE(memory)

BOOST_AUTO_TEST_CASE(states_equal_those_of_the_enumerated_tensors) {
  test::property("one rank: weights, gradients and state, tensor by tensor", [](const Draw& draw) {
    test::Case c = test::random_case(draw);
    RunSpec r;
    r.optimizer = c.r.optimizer, r.weight = c.r.weight, r.grad = c.r.grad, r.master = c.r.master,
    r.moment = c.r.moment;
    std::uint64_t elements = 0, state = 0;
    const std::uint64_t m = size_of(r.moment);
    for (const model::TensorShape& t : model::tensor_shapes(c.a)) {
      const std::uint64_t n = t.rows * t.cols;
      const bool matrix = t.cols > 1 && t.layer >= 0, vector = t.cols == 1 || t.rows == 1;
      elements += t.elements();
      switch (r.optimizer) {
        case Optimizer::kSgd:
          break;
        case Optimizer::kSgdMomentum:
        case Optimizer::kLion:
          state += t.elements() * m;
          break;
        case Optimizer::kAdamW:
          state += t.elements() * 2 * m;
          break;
        case Optimizer::kMuon:
          if (t.name.find("project") != std::string::npos || t.name.find("shared_gate") != std::string::npos)
            return;
          state += t.elements() * (matrix ? m : 2 * m);
          break;
        case Optimizer::kAdafactor:
          if (t.cols > 1 && t.rows == 1) return;
          state += (vector ? n : t.rows + t.cols) * 4 * t.copies;
          break;
        case Optimizer::kAdamW8bit:
          state += 2 * t.copies * (n < 4096 ? n * 4 : n + (n + 255) / 256 * 4);
          break;
      }
    }
    const Numbers numbers = stage_numbers(c.a, r, 0);
    require(of(numbers, Component::kWeights) == elements * size_of(r.weight), "weights");
    require(of(numbers, Component::kMasterWeights) == elements * size_of(r.master), "master weights");
    require(of(numbers, Component::kGradients) == elements * size_of(r.grad), "gradients");
    require(of(numbers, Component::kOptimizerState) == state,
            "state of " + std::string(name(r.optimizer)) + ": " +
                std::to_string(of(numbers, Component::kOptimizerState)) + ", " + std::to_string(state));
    require(trained_parameters(c.a, r) == model::count(c.a).total, "parameters");
  });
}

BOOST_AUTO_TEST_CASE(micro_batches_in_flight_equal_those_of_the_simulated_schedule) {
  for (std::uint64_t stages = 1; stages <= 6; ++stages)
    for (std::uint64_t chunks = 1; chunks <= (stages > 1 ? 4u : 1u); ++chunks)
      for (std::uint64_t micro_batches = stages; micro_batches <= 5 * stages; ++micro_batches)
        for (std::uint64_t stage = 0; stage < stages; ++stage) {
          const Pipeline p{stages, chunks, micro_batches, stages * chunks};
          std::uint64_t waiting = 0;
          for (std::uint64_t chunk = 0; chunk < chunks; ++chunk) waiting += p.in_flight(stage, chunk);
          BOOST_TEST(waiting == simulated_in_flight(p, stage),
                     stages << " stages of " << chunks << " chunks, " << micro_batches
                            << " micro-batches, stage " << stage << ": " << waiting);
        }
}

BOOST_AUTO_TEST_CASE(every_layer_belongs_to_one_stage) {
  for (std::uint64_t layers = 1; layers <= 40; ++layers)
    for (std::uint64_t stages = 1; stages <= std::min<std::uint64_t>(layers, 8); ++stages)
      for (std::uint64_t chunks = 1; chunks * stages <= layers; ++chunks) {
        const Pipeline p{stages, chunks, 1, layers};
        std::vector<int> owners(layers);
        for (std::uint64_t stage = 0; stage < stages; ++stage)
          for (std::uint64_t chunk = 0; chunk < chunks; ++chunk) {
            BOOST_TEST(p.begin(stage, chunk) < p.end(stage, chunk));
            for (std::uint64_t l = p.begin(stage, chunk); l < p.end(stage, chunk); ++l) ++owners[l];
          }
        for (int n : owners) BOOST_TEST(n == 1);
      }
}

BOOST_AUTO_TEST_CASE(real_models_have_the_parameters_of_model_count) {
  BOOST_TEST(!model::planned_presets().empty());
  for (const ModelSpec& m : model::planned_presets()) {
    const model::Architecture a = model::from_model(m);
    validate(a, {});
    BOOST_TEST(trained_parameters(a, {}) == model::count(a).total, m.name);
    BOOST_TEST(!report(a, {}).entries.empty());
  }
}

BOOST_AUTO_TEST_CASE(quantized_weights_include_their_scales) {
  const Weight w{4096, 4096};  // 16,777,216 elements, 262,144 blocks of 64, 1,024 groups of 256 blocks
  BOOST_TEST(stored_bytes(w, DType::kNF4, DType::kBF16, false).value() == 8388608u + 262144 * 4);
  BOOST_TEST(stored_bytes(w, DType::kNF4, DType::kBF16, true).value() == 8388608u + 262144 + 1024 * 4 + 4);
  BOOST_TEST(stored_bytes(w, DType::kI8, DType::kBF16, false).value() == 16777216u + 4096 * 4);
  const Weight table{4096, 4096, 1, Kind::kEmbedding};
  BOOST_TEST(stored_bytes(table, DType::kNF4, DType::kBF16, true).value() == 33554432u);
}

BOOST_AUTO_TEST_CASE(adapters_are_counted_by_rank) {
  // Llama-2-7B, rank 8 on q and v: 4,194,304 trained parameters, as LitGPT prints for it.
  const model::Architecture a = test::dense(4096, 11008, 32, 32, 32000, 32);
  RunSpec r;
  r.mode = RunMode::kLora, r.lora_rank = 8, r.lora_targets = 1u << kQ | 1u << kV;
  BOOST_TEST(trained_parameters(a, r) == 4194304u);
  const Numbers n = stage_numbers(a, r, 0);
  BOOST_TEST(of(n, Component::kAdapters) == 4194304u * 4);
  BOOST_TEST(of(n, Component::kGradients) == 4194304u * 4);
  BOOST_TEST(of(n, Component::kOptimizerState) == 4194304u * 8);
  BOOST_TEST(of(n, Component::kWeights) == 6738415616u * 4);
  r.memory.dora = true;
  BOOST_TEST(trained_parameters(a, r) == 4194304u + 32 * 2 * 4096);
}

BOOST_AUTO_TEST_CASE(a_tied_table_is_copied_to_the_last_stage) {
  model::Architecture a = test::dense(64, 128, 4, 4, 1000, 4, true);
  RunSpec r;
  const std::uint64_t table = 1000 * 64 * 4, layers = 4 * model::layer_elements(a.layers[0].layer, 64) * 4,
                      norm = 64 * 4;
  BOOST_TEST(of(stage_numbers(a, r, 0), Component::kWeights) == table + layers + norm);
  r.parallel.pipeline = 2;
  BOOST_TEST(of(stage_numbers(a, r, 0), Component::kWeights) == table + layers / 2);
  BOOST_TEST(of(stage_numbers(a, r, 1), Component::kWeights) == table + layers / 2 + norm);
}

BOOST_AUTO_TEST_CASE(experts_are_sharded_over_expert_data_ranks) {
  const model::Architecture a = test::deepseek(64, 128, 16, 2, 32, 32, 1000, 2);
  RunSpec r;
  r.parallel.data = 8, r.parallel.expert = 4, r.parallel.zero = 1;
  StateSums t(r);
  layer_weights(a.layers[1].layer, 64, 1, 4, 1, t);
  BOOST_TEST(t.held().expert.elements.value() == 4u * 3 * 64 * 32);
  const std::uint64_t expert_state = 4 * 3 * 64 * 32 * 8 / (8 / 4),
                      dense = trained_parameters(a, r) - 16 * 3 * 64 * 32;
  const std::uint64_t state = of(stage_numbers(a, r, 0), Component::kOptimizerState);
  BOOST_TEST(state >= expert_state + dense * 8 / 8);
  BOOST_TEST(state <= expert_state + dense * 8 / 8 + 3);  // each of three parts is rounded up
}

BOOST_AUTO_TEST_CASE(experts_have_tensor_parallelism_of_their_own) {
  const model::Architecture a = test::deepseek(64, 128, 16, 2, 32, 32, 1000, 2);
  const std::uint64_t experts = 16 * 3 * 64 * 32;  // elements of a layer; one of the two layers has them
  RunSpec r;
  r.parallel.tensor = 2, r.parallel.data = 4, r.parallel.expert = 4, r.parallel.zero = 1;
  const auto weights_of_experts = [&] {
    return of(stage_numbers(a, r, 0), Component::kWeights) - [&] {
      RunSpec dense = r;
      dense.parallel.expert = 1, dense.parallel.expert_tensor = 0;
      return of(stage_numbers(a, dense, 0), Component::kWeights) - experts / 2 * 4;
    }();
  };
  BOOST_TEST(weights_of_experts() == experts / 8 * 4);  // over 4 expert-parallel x 2 tensor-parallel ranks
  r.parallel.expert_tensor = 2;
  BOOST_TEST(weights_of_experts() == experts / 8 * 4);
  r.parallel.expert_tensor = 1;
  BOOST_TEST(weights_of_experts() == experts / 4 * 4);
  r.parallel.expert = 8;  // all data and tensor ranks
  BOOST_TEST(weights_of_experts() == experts / 8 * 4);
  // A rank receives the rows of its own tokens alone, and a whole expert computes them.
  const auto rows = [&](const char* name) {
    for (const MemoryEntry& e : stage_report(a, r, 0).entries)
      if (e.name == std::string("layers[].") + name) return e.bytes;
    return std::uint64_t{0};
  };
  const std::uint64_t sent = rows("tokens sent to experts"), product = rows("experts' product");
  r.parallel.expert = 4, r.parallel.expert_tensor = 0;
  BOOST_TEST(rows("tokens sent to experts") == 2 * sent);
  BOOST_TEST(rows("experts' product") == product);
  // Nothing but the experts depends on it.
  const model::Architecture no_experts = test::dense(64, 128, 8, 2, 1000, 3);
  r.parallel.expert = 1;
  const std::uint64_t plain = stage_numbers(no_experts, r, 0).tier(Tier::kDevice);
  r.parallel.expert_tensor = 1;
  BOOST_TEST(stage_numbers(no_experts, r, 0).tier(Tier::kDevice) == plain);
}

BOOST_AUTO_TEST_CASE(a_kv_cache_has_whole_pages_of_visible_tokens) {
  model::Architecture a = test::dense(64, 128, 8, 2, 1000, 3);
  RunSpec r;
  r.mode = RunMode::kInference, r.weight = r.compute = DType::kBF16, r.micro_batch = 5, r.seq_len = 100,
  r.memory.kv_page = 16;
  BOOST_TEST(of(stage_numbers(a, r, 0), Component::kKvCache) == 3u * 5 * 112 * (2 * 2 * 8) * 2);
  a.layers[0].layer.attention.window = 30;
  BOOST_TEST(of(stage_numbers(a, r, 0), Component::kKvCache) == 3u * 5 * 32 * (2 * 2 * 8) * 2);
  r.memory.kv_cache =
      DType::kI8;  // one byte per element, and one f32 per head for the keys and one for the values
  BOOST_TEST(of(stage_numbers(a, r, 0), Component::kKvCache) == 3u * 5 * 32 * (2 * 2 * 8 + 2 * 2 * 4));
  const model::Architecture latent = test::deepseek(64, 128, 16, 2, 32, 32, 1000, 2);
  r.parallel = {}, r.memory = {};
  BOOST_TEST(of(stage_numbers(latent, r, 0), Component::kKvCache) == 2u * 5 * 100 * (512 + 64) * 2);
}

/// Three layers of 4 heads with keys of 8 and values of 16, 2 of keys; then one with attention.
model::Architecture hybrid(bool delta) {
  model::Architecture a = test::dense(64, 128, 8, 2, 1000, 1);
  model::Layer linear = a.layers[0].layer;
  linear.attention = {};
  linear.linear = {.key_heads = 2,
                   .value_heads = 4,
                   .key_dim = 8,
                   .value_dim = 16,
                   .kernel = 3,
                   .chunk = 32,
                   .gates = 2,
                   .head_weights = 2,
                   .norm_per_head = delta,
                   .delta = delta};
  a.layers.insert(a.layers.begin(), {linear, 3});
  return a;
}

BOOST_AUTO_TEST_CASE(linear_attention_has_a_state_whose_size_does_not_depend_on_the_sequence) {
  const model::Architecture a = hybrid(true);
  RunSpec r;
  r.mode = RunMode::kInference, r.weight = r.compute = DType::kBF16, r.micro_batch = 5, r.seq_len = 100;
  const std::uint64_t state = 3 * 5 * (4 * 8 * 16 * 4 + (2 * 2 * 8 + 4 * 16) * 3 * 2), keys = 2 * 2 * 8 * 2;
  BOOST_TEST(of(stage_numbers(a, r, 0), Component::kKvCache) == state + 5 * 100 * keys);
  r.seq_len = 4000;
  BOOST_TEST(of(stage_numbers(a, r, 0), Component::kKvCache) == state + 5 * 4000 * keys);
  // Its state is in f32 whatever the type of the cache.
  r.memory.kv_cache = DType::kF8;
  BOOST_TEST(of(stage_numbers(a, r, 0), Component::kKvCache) == state + 5 * 4000 * keys / 2);
  // Two ranks have half the heads each, four ranks copies of the two heads of keys.
  r.memory = {}, r.parallel.tensor = 2;
  BOOST_TEST(of(stage_numbers(a, r, 0), Component::kKvCache) == state / 2 + 5 * 4000 * keys / 2);
  r.parallel.tensor = 4;
  BOOST_TEST(of(stage_numbers(a, r, 0), Component::kKvCache) ==
             3u * 5 * (8 * 16 * 4 + (2 * 8 + 16) * 3 * 2) + 5 * 4000 * keys / 2);
}

BOOST_AUTO_TEST_CASE(linear_attention_keeps_no_scores) {
  RunSpec r;
  r.compute = DType::kBF16, r.micro_batch = 1, r.seq_len = 64,
  r.memory.attention = AttentionMemory::kMaterialised;
  const auto kept = [&](bool delta) {
    model::Architecture a = hybrid(delta);
    a.layers.resize(1);
    const MemoryReport report = stage_report(a, r, 0);
    std::uint64_t bytes = 0;
    for (const MemoryEntry& e : report.entries) {
      BOOST_TEST(e.name.find("scores") == std::string::npos);
      if (e.name.find("linear attention") != std::string::npos) bytes += e.bytes;
    }
    return bytes;
  };
  const std::uint64_t convolved = 2 * 2 * 8 + 4 * 16, values = 4 * 16;
  // Before and after the convolution; gates; 32 products per head; output gate, output before and after the
  // norm.
  BOOST_TEST(kept(true) == 3u * 64 * (2 * convolved * 2 + 2 * 4 * 4 + 4 * 32 * 2 + 3 * values * 2 + 4 * 4));
  // Mamba computes everything again from the output of its first matrix and the output of the recurrence.
  BOOST_TEST(kept(false) == 3u * 64 * ((convolved + values + 2 * 4) * 2 + values * 2));
}

BOOST_AUTO_TEST_CASE(adapters_are_in_the_layers_that_have_their_matrices) {
  const model::Architecture a = hybrid(true);
  RunSpec r;
  r.mode = RunMode::kLora, r.lora_rank = 4, r.lora_targets = 0b1000001;  // q and down
  BOOST_TEST(trained_parameters(a, r) == 4u * (4 * (128 + 64) + (64 + 64)));
}

BOOST_AUTO_TEST_CASE(layers_that_reuse_keys_and_values_have_no_cache) {
  model::Architecture a = test::dense(64, 128, 8, 2, 1000, 3);
  a.layers.push_back(a.layers[0]), a.layers[1].layer.attention.reuses_kv = true;
  RunSpec r;
  r.mode = RunMode::kInference, r.weight = r.compute = DType::kBF16, r.micro_batch = 5, r.seq_len = 100;
  BOOST_TEST(of(stage_numbers(a, r, 0), Component::kKvCache) == 3u * 5 * 100 * (2 * 2 * 8) * 2);
}

BOOST_AUTO_TEST_CASE(offloaded_state_keeps_buffers_of_two_layers) {
  const model::Architecture a = test::dense(64, 128, 8, 8, 1000, 6);
  RunSpec r;
  const Numbers all = stage_numbers(a, r, 0);
  r.memory.weights_in = r.memory.optimizer_in = Tier::kHost;
  const Numbers n = stage_numbers(a, r, 0);
  BOOST_TEST(of(n, Component::kWeights, Tier::kHost) == of(all, Component::kWeights));
  BOOST_TEST(of(n, Component::kWeights) == 2 * 4 * model::layer_elements(a.layers[0].layer, 64));
  BOOST_TEST(of(n, Component::kOptimizerState, Tier::kHost) == of(all, Component::kOptimizerState));
  BOOST_TEST(of(n, Component::kOptimizerState) == 0u);
}

BOOST_AUTO_TEST_CASE(errors_name_the_key_and_valid_values) {
  const model::Architecture a = test::dense(4096, 11008, 32, 32, 32000, 32),
                            moe = test::deepseek(64, 128, 16, 2, 32, 32, 1000, 2);
  RunSpec r;
  validate(a, r);
  r.parallel.tensor = 3;
  rejected(a, r, "parallel.tensor = 3 does not divide 32 heads; use 2 or 4");
  r = {}, r.parallel.tensor = 8;
  rejected(hybrid(true), r, "parallel.tensor = 8 does not divide 4 heads of linear attention; use 4");
  r = {}, r.parallel.pipeline = 33;
  rejected(a, r, "parallel.pipeline = 33 is more than the 32 layers; use 32");
  r = {}, r.parallel.pipeline = 8, r.parallel.virtual_stages = 5;
  rejected(a, r, "parallel.interleave = 5 with parallel.pipeline = 8 needs 40 chunks of 32 layers; use 4");
  r = {}, r.parallel.virtual_stages = 2;
  rejected(a, r, "parallel.interleave = 2 needs parallel.pipeline > 1; it is 1");
  r = {}, r.parallel.expert = 2;
  rejected(a, r, "parallel.expert = 2, but this model has no experts; use 1");
  // The nearest values that the experts and the ranks allow.
  r.parallel.expert = 5, r.parallel.data = 40;
  rejected(moe, r, "parallel.expert = 5 does not divide 16 experts; use 4 or 8");
  r.parallel.expert = 4, r.parallel.data = 6;
  rejected(moe, r, "parallel.expert = 4 does not divide 6 data x context ranks; use 2");
  r.parallel.tensor = 2, r.parallel.data = 2;
  BOOST_CHECK_EXCEPTION(validate(moe, r), Error, [](const Error& e) {
    return e.hint().starts_with("or set parallel.data to a multiple of 4; or --set plan.expert_tensor=1");
  });
  r.parallel.data = 6;
  r.parallel.tensor = 2, r.parallel.expert_tensor = 1, r.parallel.expert = 8;
  rejected(moe, r,
           "parallel.expert = 8 does not divide 12 data x context x tensor ranks / plan.expert_tensor; use "
           "4");
  r.parallel.expert = 4;
  validate(moe, r);
  r.parallel.expert_tensor = 5;
  rejected(moe, r, "plan.expert_tensor = 5 does not divide 32 columns of an expert; use 4 or 8");
  r.parallel.expert_tensor = 8;
  rejected(moe, r, "plan.expert_tensor = 8 does not divide 12 data x context x tensor ranks; use 6 or 12");
  r = {}, r.parallel.context = 7;
  rejected(a, r, "parallel.context = 7 does not divide 256 tokens of a sequence (data.seq_len); use 4 or 8");
  r = {}, r.memory.recompute_every = 2;
  rejected(a, r, "train.recompute_every = 2 needs train.recompute = \"full\"; it is \"none\"");
  r = {}, r.parallel.zero = 4;
  rejected(a, r, "parallel.zero = 4: expected 0 to 3");
}

BOOST_AUTO_TEST_CASE(every_stage_has_a_note) {
  const model::Architecture a = test::dense(64, 128, 8, 8, 1000, 6);
  RunSpec r;
  r.parallel.pipeline = 3, r.accumulate = 8;
  const MemoryReport report = parallel::report(a, r);
  BOOST_REQUIRE(report.notes.size() == 4u);
  BOOST_TEST(report.notes[0] == "The estimate is for stage 0 of 3, which needs most memory.");
  BOOST_TEST(report.notes[1].starts_with("Stage 0: "));
  BOOST_TEST(report.notes[1].ends_with(" on the device, 2 layers, 3 micro-batches in flight, embedding."));
  BOOST_TEST(report.notes[3].ends_with(" on the device, 2 layers, 1 micro-batch in flight, head."));
}

BOOST_AUTO_TEST_SUITE_END()
