// Settings of a run that only the closed form plans: layers of the first and the last stage, losses of Liger
// and Cut Cross Entropy, an adapter of the LM head, offloaded gradients, chunked prefill, the margin for
// gaps. The expected bytes are computed by hand from the model's dimensions.
#include <boost/test/unit_test.hpp>

#include "core/base/error.hpp"
#include "core/parallel/rank_breakdown.hpp"
#include "tests/core/parallel/measured_runs.hpp"

using namespace trainhost;
using namespace trainhost::parallel;

namespace {

// 32 layers, H 4096, V 32,000.
model::Architecture llama_7b() {
  ModelSpec m;
  m.vocab = 32000, m.hidden = 4096, m.layers = 32, m.heads = m.kv_heads = 32, m.head_dim = 128,
  m.intermediate = 11008;
  return model::from_model(m);
}

RunSpec run_in_bf16() {
  RunSpec r;
  r.weight = r.compute = r.grad = DType::kBF16, r.master = DType::kF32;
  r.micro_batch = 4, r.seq_len = 2048;
  return r;
}

/// Bytes of the entry with this name; 0 without one.
std::uint64_t bytes_of(const MemoryReport& r, const std::string& name, Tier tier = Tier::kDevice) {
  for (const MemoryEntry& e : r.entries)
    if (e.name == name && e.tier == tier) return e.bytes;
  return 0;
}

MemoryReport report_of(const RunSpec& r) { return report(llama_7b(), r); }

}  // namespace

BOOST_AUTO_TEST_SUITE(settings_of_the_closed_form)

BOOST_AUTO_TEST_CASE(given_layers_are_in_the_first_and_last_stage_and_every_layer_is_in_one_stage) {
  for (std::uint64_t layers = 2; layers <= 24; ++layers)
    for (std::uint64_t stages = 2; stages <= 6; ++stages)
      for (std::uint64_t chunks = 1; chunks <= 3; ++chunks)
        for (std::uint64_t first = 0; first <= layers; first += chunks)
          for (std::uint64_t last = 0; first + last <= layers; last += chunks) {
            const Pipeline p{stages, chunks, 1, layers, first, last};
            if (!p.layers_suffice()) continue;
            std::vector<int> owners(layers);
            std::uint64_t least = layers, most = 0, of_first = 0, of_last = 0;
            for (std::uint64_t stage = 0; stage < stages; ++stage)
              for (std::uint64_t chunk = 0; chunk < chunks; ++chunk) {
                const std::uint64_t n = p.end(stage, chunk) - p.begin(stage, chunk);
                for (std::uint64_t l = p.begin(stage, chunk); l < p.end(stage, chunk); ++l) ++owners.at(l);
                if (stage == 0) of_first += n;
                if (stage + 1 == stages) of_last += n;
                if ((stage == 0 && first) || (stage + 1 == stages && last)) continue;
                least = std::min(least, n), most = std::max(most, n);
              }
            const auto what = layers << 16 | stages << 12 | chunks << 8;
            BOOST_TEST((!first || of_first == first), what << " first " << first);
            BOOST_TEST((!last || of_last == last), what << " last " << last);
            BOOST_TEST((most == 0 || (least >= 1 && most - least <= 1)), what);
            for (int n : owners) BOOST_TEST(n == 1, what);
          }
}

BOOST_AUTO_TEST_CASE(stages_that_would_be_empty_or_cannot_be_divided_are_rejected) {
  RunSpec r = run_in_bf16();
  const auto error = [&](std::uint32_t stages, std::uint32_t chunks, std::uint32_t first,
                         std::uint32_t last) {
    r.parallel.pipeline = stages, r.parallel.virtual_stages = chunks;
    r.parallel.first_stage_layers = first, r.parallel.last_stage_layers = last;
    try {
      validate(llama_7b(), r);
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  BOOST_TEST(error(4, 1, 7, 7) == "");
  BOOST_TEST(error(2, 1, 20, 12) == "");
  BOOST_TEST(
      error(4, 1, 30, 0) ==
      "plan.first_stage_layers = 30 leaves 2 of 32 layers to 3 other stages; use 8, as many as they have");
  BOOST_TEST(
      error(2, 1, 20, 13) ==
      "plan.first_stage_layers = 20 and plan.last_stage_layers = 13 are 33 layers, but the model has 32");
  BOOST_TEST(error(4, 2, 0, 5) ==
             "plan.last_stage_layers = 5 cannot be divided over 2 chunks (parallel.interleave); use a "
             "multiple of 2");
  BOOST_TEST(error(1, 1, 5, 0) == "plan.first_stage_layers needs parallel.pipeline > 1; it is 1");
}

BOOST_AUTO_TEST_CASE(fewer_layers_of_the_first_stage_take_their_share_of_its_memory) {
  RunSpec r = run_in_bf16();
  r.parallel.pipeline = 4, r.accumulate = 8;
  const std::uint64_t even = stage_report(llama_7b(), r, 0).component_bytes(Component::kActivations);
  r.parallel.first_stage_layers = 6;
  const std::uint64_t fewer = stage_report(llama_7b(), r, 0).component_bytes(Component::kActivations);
  // 8 and 6 layers, 4 micro-batches in flight, and 16 bytes per token beside them.
  const std::uint64_t tokens = 4 * 2048 * 16;
  BOOST_TEST((fewer - tokens) * 8 == (even - tokens) * 6);
  BOOST_TEST(worst_stage(llama_7b(), r) == 1u);
}

BOOST_AUTO_TEST_CASE(liger_computes_logits_of_a_chunk_and_the_weight_gradient_of_the_head) {
  RunSpec r = run_in_bf16();
  // 32,000 / 4,096 rounded up is 8; 8,192 tokens / 8 are 1,024, a power of two.
  r.memory.cross_entropy = CrossEntropy::kLiger;
  const MemoryReport liger = report_of(r);
  BOOST_TEST(bytes_of(liger, "head.logits and their gradient") == 1024u * 32000 * 2);
  BOOST_TEST(bytes_of(liger, "head.weight gradient") == 32000ull * 4096 * 2);
  // 6,144 tokens / 8 are 768, rounded up to 1,024.
  r.micro_batch = 3;
  BOOST_TEST(bytes_of(report_of(r), "head.logits and their gradient") == 1024u * 32000 * 2);
  r.memory.cross_entropy = CrossEntropy::kPlain;
  BOOST_TEST(bytes_of(report_of(r), "head.logits and their gradient") == 6144u * 32000 * 12);
  r.mode = RunMode::kLora, r.lora_rank = 8, r.lora_targets = 1, r.memory.cross_entropy = CrossEntropy::kLiger;
  BOOST_TEST(bytes_of(report_of(r), "head.weight gradient") == 0u);
}

BOOST_AUTO_TEST_CASE(cut_cross_entropy_has_two_numbers_per_token_instead_of_logits) {
  RunSpec r = run_in_bf16();
  r.memory.cross_entropy = CrossEntropy::kCut;
  const MemoryReport cut = report_of(r);
  BOOST_TEST(cut.component_bytes(Component::kLogits) == 8192u * 8);
}

BOOST_AUTO_TEST_CASE(an_adapter_of_the_head_has_two_matrices_also_beside_a_tied_embedding) {
  RunSpec r = run_in_bf16();
  r.mode = RunMode::kLora, r.lora_rank = 16, r.lora_targets = 1;
  for (const bool tied : {false, true}) {
    model::Architecture a = llama_7b();
    a.tied = tied;
    r.memory.adapts_head = false;
    const std::uint64_t without = trained_parameters(a, r);
    const std::uint64_t adapters = report(a, r).component_bytes(Component::kAdapters);
    r.memory.adapts_head = true;
    BOOST_TEST(trained_parameters(a, r) - without == 16u * (4096 + 32000));
    const MemoryReport with = report(a, r);
    BOOST_TEST(with.component_bytes(Component::kAdapters) - adapters == 4u * 16 * (4096 + 32000));
    BOOST_TEST(bytes_of(with, "head.adapter, output of A") == 8192u * 16 * 2);
  }
}

BOOST_AUTO_TEST_CASE(an_adapter_of_the_embedding_has_two_matrices) {
  RunSpec r = run_in_bf16();
  r.mode = RunMode::kLora, r.lora_rank = 16, r.lora_targets = 1;
  const model::Architecture a = llama_7b();
  const std::uint64_t without = trained_parameters(a, r);
  const std::uint64_t adapters = report(a, r).component_bytes(Component::kAdapters);
  r.memory.adapts_embedding = true;
  BOOST_TEST(trained_parameters(a, r) - without == 16u * (4096 + 32000));
  const MemoryReport with = report(a, r);
  BOOST_TEST(with.component_bytes(Component::kAdapters) - adapters == 4u * 16 * (4096 + 32000));
  BOOST_TEST(bytes_of(with, "embedding.adapter, output of A") == 8192u * 16 * 2);
}

// As PEFT keeps them: the frozen module, and a copy of its type with gradient and moments.
BOOST_AUTO_TEST_CASE(modules_trained_whole_beside_adapters_are_copies_with_gradient_and_moments) {
  RunSpec r = run_in_bf16();
  r.mode = RunMode::kLora, r.lora_rank = 16, r.lora_targets = 1;
  const model::Architecture a = llama_7b();
  const std::uint64_t elements = 4096ull * 32000;
  const MemoryReport without = report(a, r);
  const std::uint64_t trained = trained_parameters(a, r);
  r.memory.saves_head = r.memory.saves_embedding = true;
  BOOST_TEST(trained_parameters(a, r) - trained == 2 * elements);
  const MemoryReport with = report(a, r);
  for (const auto& [component, bytes] :
       {std::pair(Component::kWeights, 2u), std::pair(Component::kGradients, 2u),
        std::pair(Component::kOptimizerState, 4u)})
    BOOST_TEST(with.component_bytes(component) - without.component_bytes(component) == 2 * bytes * elements);
  r.mode = RunMode::kQlora;  // embedding and head are not quantized
  BOOST_TEST(bytes_of(report(a, r), "head.trained copy.weights") == 2 * elements);
}

BOOST_AUTO_TEST_CASE(dropout_keeps_the_input_of_each_adapter_and_a_mask) {
  RunSpec r = run_in_bf16();
  r.mode = RunMode::kLora, r.lora_rank = 16, r.lora_targets = 0b1001101;  // q, v, o and down
  const MemoryReport without = report_of(r);
  r.memory.lora_dropout = 0.1;
  const MemoryReport with = report_of(r);
  // q and v read H elements, o the 4,096 of attention, down 11,008; two bytes and a byte of the mask each.
  BOOST_TEST(with.component_bytes(Component::kActivations) -
                 without.component_bytes(Component::kActivations) ==
             32ull * 8192 * (3 * 4096 + 11008) * 3);
}

BOOST_AUTO_TEST_CASE(offloaded_gradients_leave_two_layers_on_the_device) {
  RunSpec r = run_in_bf16();
  r.parallel.data = 4, r.parallel.zero = 2;
  const std::uint64_t all = report_of(r).component_bytes(Tier::kDevice, Component::kGradients);
  r.memory.gradients_in = Tier::kHost;
  const MemoryReport offloaded = report_of(r);
  BOOST_TEST(offloaded.component_bytes(Tier::kHost, Component::kGradients) == all);
  // One layer: 4 H^2 + 3 H I + 2 H elements of 2 bytes, a fourth of it on each rank.
  const std::uint64_t layer = (4ull * 4096 * 4096 + 3ull * 4096 * 11008 + 2 * 4096) * 2 / 4;
  BOOST_TEST(offloaded.component_bytes(Tier::kDevice, Component::kGradients) == 2 * layer);
}

BOOST_AUTO_TEST_CASE(chunked_prefill_computes_a_part_of_the_prompts_and_keeps_all_keys) {
  RunSpec r;
  r.mode = RunMode::kInference, r.weight = r.compute = DType::kBF16, r.micro_batch = 8, r.seq_len = 4096;
  const MemoryReport whole = report_of(r);
  r.memory.prefill_chunk = 2048;
  const MemoryReport chunked = report_of(r);
  BOOST_TEST(chunked.component_bytes(Component::kKvCache) == whole.component_bytes(Component::kKvCache));
  BOOST_TEST(chunked.component_bytes(Component::kActivations) * 16 ==
             whole.component_bytes(Component::kActivations));
  r.memory.prefill_chunk = 1 << 20;  // more than there are
  BOOST_TEST(report_of(r).total_bytes() == whole.total_bytes());
}

BOOST_AUTO_TEST_CASE(the_margin_for_gaps_is_a_part_of_the_transient_memory) {
  RunSpec r = run_in_bf16();
  const std::uint64_t usual = report_of(r).component_bytes(Component::kFragmentation);
  r.memory.gap_permille = 100;
  const std::uint64_t half = report_of(r).component_bytes(Component::kFragmentation);
  BOOST_TEST((half * 2 == usual || half * 2 == usual + 1));
  r.memory.gap_permille = 0;
  BOOST_TEST(report_of(r).component_bytes(Component::kFragmentation) == 0u);
}

BOOST_AUTO_TEST_SUITE_END()
