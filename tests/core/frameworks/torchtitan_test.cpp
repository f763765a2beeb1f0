// What releases, compilation, float8 and parallelism of torchtitan change in the replay. Published runs are
// compared in tests/plugins/estimators/torchtitan_runs_test.cpp.
#include <boost/test/unit_test.hpp>
#include <functional>

#include "core/frameworks/trace/evaluate.hpp"
#include "core/frameworks/training_step.hpp"

using namespace trainhost;
using namespace trainhost::frameworks;

namespace {

constexpr std::int64_t kHidden = 64, kWidth = 192, kVocabulary = 8192, kTokens = 2 * 128;
constexpr std::uint32_t kLayers = 6;

model::Architecture small_llama() {
  model::Architecture a;
  a.family = "llama", a.vocab = kVocabulary, a.hidden = kHidden;
  model::Layer l;
  l.attention.heads = 4, l.attention.kv_heads = 2, l.attention.head_dim = 16, l.mlp.width = kWidth;
  a.layers = {{l, kLayers}};
  return a;
}

StepSettings recomputing() {
  StepSettings s;
  s.modules = ModelSource::kTorchtitan, s.weights = Element::kBF16;
  s.batch = 2, s.sequence = 128, s.checkpoint = true;
  return s;
}

Trace trace_of(const StepSettings& s) { return training_step(small_llama(), s).trace; }
std::uint64_t peak_of(const StepSettings& s) { return find_peak(trace_of(s), {.block = 1}).bytes; }

/// Most storages for which `counts` holds that are allocated at the same time in phases of `kind`.
std::size_t most_at_once(const Trace& t, Phase kind, const std::function<bool(const TraceStorage&)>& counts) {
  std::size_t now = 0, most = 0, phase = 0;
  for (std::size_t i = 0; i < t.events.size(); ++i) {
    while (phase + 1 < t.phases.size() && t.phases[phase + 1].event <= i) ++phase;
    if (!counts(t.storages[t.events[i].storage])) continue;
    now += t.events[i].allocation ? 1 : -1;
    if (t.phases[phase].phase == kind) most = std::max(most, now);
  }
  return most;
}

/// Most storages for which `counts` holds that exist at the same time in phases of `kind`, whenever they were
/// allocated.
std::size_t most_existing(const Trace& t, Phase kind,
                          const std::function<bool(const TraceStorage&)>& counts) {
  std::size_t now = 0, most = 0, phase = 0;
  for (std::size_t i = 0; i < t.events.size(); ++i) {
    while (phase + 1 < t.phases.size() && t.phases[phase + 1].event <= i) ++phase;
    if (counts(t.storages[t.events[i].storage])) now += t.events[i].allocation ? 1 : -1;
    if (t.phases[phase].phase == kind) most = std::max(most, now);
  }
  return most;
}

/// Most bytes that the backward pass of a layer has allocated, its own gradients included.
std::uint64_t most_in_backward_pass(const Trace& t, std::int32_t layer) {
  std::uint64_t now = 0, most = 0;
  std::size_t phase = 0;
  std::vector<bool> counted(t.storages.size());
  for (std::size_t i = 0; i < t.events.size(); ++i) {
    while (phase + 1 < t.phases.size() && t.phases[phase + 1].event <= i) ++phase;
    const auto [index, allocation] = t.events[i];
    const TraceStorage& s = t.storages[index];
    if (allocation) counted[index] = s.layer == layer && t.phases[phase].phase == kBackward;
    if (!counted[index]) continue;
    now = allocation ? now + s.bytes : now - s.bytes;
    most = std::max(most, now);
  }
  return most;
}

std::uint64_t bytes_named(const Trace& t, const std::string& tensor) {
  std::uint64_t bytes = 0;
  for (const TraceStorage& s : t.storages)
    if (t.names[s.tensor] == tensor) bytes += s.bytes;
  return bytes;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(torchtitan)

BOOST_AUTO_TEST_CASE(compiled_layers_do_not_keep_their_last_product) {
  StepSettings s = recomputing();
  s.checkpoint = false, s.selective = true;
  const std::uint64_t eager = peak_of(s);
  s.compiles_layers = true;
  BOOST_TEST(eager - peak_of(s) == kLayers * kTokens * kHidden * 2u);
}

BOOST_AUTO_TEST_CASE(a_compiled_loss_has_the_logits_and_their_gradient_in_the_compute_type) {
  const auto logits = [](const TraceStorage& x) { return x.bytes == kTokens * kVocabulary * 4; };
  const auto narrow = [](const TraceStorage& x) { return x.bytes == kTokens * kVocabulary * 2; };
  StepSettings s = recomputing();
  BOOST_TEST(most_at_once(trace_of(s), kBackward, logits) == 3u);
  s.compiles_layers = s.compiles_loss = true;
  BOOST_TEST(most_at_once(trace_of(s), kBackward, logits) == 0u);
  BOOST_TEST(most_at_once(trace_of(s), kBackward, narrow) == 2u);
}

BOOST_AUTO_TEST_CASE(a_norm_of_separate_operators_keeps_its_input_in_f32) {
  StepSettings s = recomputing();
  const std::uint64_t fused = peak_of(s);
  s.composite_norms = true;
  // The last norm: its input in f32 and the product with 1/rms in bf16, not the input itself.
  BOOST_TEST(peak_of(s) - fused == kTokens * kHidden * 4u);
}

BOOST_AUTO_TEST_CASE(float8_layers_are_gathered_in_one_byte) {
  StepSettings s = recomputing();
  s.fsdp.ranks = 4;
  const std::uint64_t wide = bytes_named(trace_of(s), "gathered weight");
  s.float8_gather = true;
  const std::uint64_t matrices = 2 * kHidden * kHidden + 2 * kHidden * kHidden / 2 + 3 * kHidden * kWidth;
  // Gathered for the forward and the backward pass of two steps.
  BOOST_TEST(wide - bytes_named(trace_of(s), "gathered weight") == 4 * kLayers * matrices);
}

BOOST_AUTO_TEST_CASE(gradients_that_are_kept_are_summed_where_computed_or_per_unit) {
  StepSettings s = recomputing();
  s.fsdp.ranks = 4, s.accumulate = 2, s.fsdp.reduce_every_micro_batch = false;
  const auto matrices = [](const TraceStorage& x) {
    return x.layer == 1 && x.bytes == kHidden * kWidth * 2 &&
           (x.purpose == Purpose::kGradients || x.purpose == Purpose::kBackward);
  };
  BOOST_TEST(most_at_once(trace_of(s), kBackward, matrices) == 1u);
  s.fsdp.sums_by_unit = true;
  BOOST_TEST(most_at_once(trace_of(s), kBackward, matrices) == 3u);
}

BOOST_AUTO_TEST_CASE(tensor_parallel_ranks_divide_matrices_tokens_and_vocabulary) {
  StepSettings s = recomputing();
  s.tensor = 2;
  const Trace t = trace_of(s);
  std::uint64_t weights = 0;
  for (const TraceStorage& x : t.storages)
    if (x.purpose == Purpose::kWeights) weights += x.bytes;
  const std::uint64_t matrices = 3 * kHidden * kHidden + 3 * kHidden * kWidth, norms = 2 * kHidden;
  BOOST_TEST(weights == 2 * (kLayers * (matrices / 2 + norms) + 2 * kVocabulary * kHidden / 2 + kHidden));
  // Log-probabilities, the gradient of the targets, exponentials, and a product.
  const auto logits = [](const TraceStorage& x) { return x.bytes == kTokens * kVocabulary / 2 * 4; };
  BOOST_TEST(most_at_once(t, kBackward, logits) == 4u);
  const auto inputs = [&](const TraceStorage& x) { return x.saved && t.names[x.tensor] == "sum"; };
  BOOST_TEST(most_at_once(t, kForward, inputs) == kLayers);
  for (const TraceStorage& x : t.storages)
    if (inputs(x)) BOOST_TEST(x.bytes == kTokens / 2 * kHidden * 2u);
}

// Llama 3.1 405B with 8 tensor-parallel ranks, in proportion: a quarter of the tokens, an eighth of every
// width.
BOOST_AUTO_TEST_CASE(compiled_layers_in_8_bits_keep_buffers_for_later_tensors) {
  model::Architecture a = small_llama();
  a.hidden = 2048, a.layers.front().count = 2;
  model::Layer& l = a.layers.front().layer;
  l.attention.heads = 16, l.attention.kv_heads = 8, l.attention.head_dim = 128, l.mlp.width = 6656;
  StepSettings s = recomputing();
  s.batch = 4, s.sequence = 1024, s.tensor = 8, s.steps = 1;
  constexpr std::uint64_t kAllTokens = 4096ull * 2048;
  const auto kept = [&](std::uint64_t element_bytes) {
    const Trace t = training_step(a, s).trace;
    return most_at_once(t, kBackward, [&](const TraceStorage& x) {
      return x.bytes == kAllTokens * element_bytes && t.names[x.tensor].starts_with("buffer of all tokens");
    });
  };
  const auto most = [&] { return most_in_backward_pass(training_step(a, s).trace, 1); };
  BOOST_TEST(kept(2) == 0u);
  s.compiles_layers = true;
  BOOST_TEST(kept(2) == 0u);
  s.float8_layers = true;
  BOOST_TEST(kept(2) == 3u);
  BOOST_TEST(kept(1) == 4u);
  // Inductor of torch 2.6 with torchao 0.8, asynchronous tensor parallelism: 8.42 times the tokens in bf16.
  const double counted = 8.424 * kAllTokens * 2;
  BOOST_TEST(static_cast<double>(most()) < counted);
  BOOST_TEST(static_cast<double>(most()) > 0.92 * counted);
  s.tensor = 1;
  BOOST_TEST(kept(2) == 0u);
}

BOOST_AUTO_TEST_CASE(context_parallel_ranks_keep_the_angles_of_all_tokens_twice) {
  StepSettings s = recomputing();
  s.batch = 1, s.sequence = 256;
  const std::uint64_t angles = 256 * 8 * 8;
  BOOST_TEST(bytes_named(trace_of(s), "freqs_cis") == angles);
  s.context = 2;
  BOOST_TEST(bytes_named(trace_of(s), "freqs_cis") == 2 * angles);
  BOOST_TEST(bytes_named(trace_of(s), "token ids") == 128u * 8);
}

BOOST_AUTO_TEST_CASE(ring_attention_gathers_keys_and_values_and_sums_their_gradients_in_f32) {
  StepSettings s = recomputing();
  s.batch = 1, s.sequence = 512;
  // torchtitan repeats the keys and values for every query head.
  constexpr std::uint64_t kRankTokens = 128, kHeads = kRankTokens * kHidden;
  BOOST_TEST(bytes_named(trace_of(s), "keys and values of all ranks") == 0u);
  s.context = 4;
  const Trace t = trace_of(s);
  const auto named = [&](const char* tensor, std::uint64_t bytes) {
    return most_at_once(
        t, kBackward, [&](const TraceStorage& x) { return t.names[x.tensor] == tensor && x.bytes == bytes; });
  };
  BOOST_TEST(named("keys and values", 2 * 2 * kHeads) == 1u);
  BOOST_TEST(named("keys and values of all ranks", 4 * 2 * 2 * kHeads) == 1u);
  BOOST_TEST(named("gradient of the queries, summed", 4 * kHeads) == 1u);
  BOOST_TEST(named("gradients of keys and values, received", 4 * 2 * kHeads) == 1u);
  // Forward pass, recomputation and backward pass of each layer in both steps.
  BOOST_TEST(bytes_named(t, "keys and values of all ranks") == 2 * kLayers * 3 * 4 * 2 * 2 * kHeads);
  BOOST_TEST(bytes_named(t, "output, merged") == 2 * kLayers * 2 * 4 * kHeads);
}

BOOST_AUTO_TEST_CASE(stages_share_the_layers) {
  const auto sizes = [](std::uint32_t layers, std::uint32_t stages, bool ends_count) {
    std::vector<std::uint32_t> out;
    std::uint32_t before = 0;
    for (std::uint32_t i = 0; i < stages; ++i) {
      const auto [begin, end] = layers_of_stage(layers, {stages, i, ends_count});
      BOOST_TEST(begin == before);
      before = end;
      out.push_back(end - begin);
    }
    BOOST_TEST(before == layers);
    return out;
  };
  using Sizes = std::vector<std::uint32_t>;
  const auto each = boost::test_tools::per_element();
  BOOST_TEST(sizes(126, 8, false) == (Sizes{15, 16, 16, 16, 16, 16, 16, 15}), each);
  BOOST_TEST(sizes(126, 8, true) == (Sizes{15, 16, 16, 16, 16, 16, 16, 15}), each);
  BOOST_TEST(sizes(32, 4, false) == (Sizes{8, 8, 8, 8}), each);
  BOOST_TEST(sizes(32, 4, true) == (Sizes{8, 9, 8, 7}), each);
  BOOST_TEST(sizes(5, 1, true) == Sizes{5}, each);
}

BOOST_AUTO_TEST_CASE(a_stage_has_as_many_micro_batches_in_flight_as_stages_follow) {
  for (std::uint32_t index = 0; index < 3; ++index) {
    StepSettings s = recomputing();
    s.fsdp.ranks = 2, s.fsdp.reduces_at_end = true, s.accumulate = 5, s.stage = {3, index, false};
    const Trace t = trace_of(s);
    // Two layers per stage: the output of the first is kept for the second.
    const auto kept = [&](const TraceStorage& x) {
      return x.layer == 0 && x.saved && t.names[x.tensor] == "sum";
    };
    BOOST_TEST(most_at_once(t, kForward, kept) == 3 - index, index);
    const auto count = [&](const char* name) {
      return std::ranges::count_if(t.storages,
                                   [&](const TraceStorage& x) { return t.names[x.tensor] == name; });
    };
    BOOST_TEST(count("received activations") == (index == 0 ? 0 : 5));
    BOOST_TEST(count("received gradients") == (index == 2 ? 0 : 5));
    BOOST_TEST(count("logits of all micro-batches") == (index == 2 ? 2 : 0));  // two steps
    // Each unit is gathered once per step: the embedding or the head, and two layers.
    BOOST_TEST(count("gathered weights") == 2 * (index == 1 ? 2 : 3));
  }
}

BOOST_AUTO_TEST_CASE(versions_of_torch_keep_other_buffers_of_a_stage) {
  const auto trace = [](std::uint32_t index, StageBuffers buffers) {
    StepSettings s = recomputing();
    s.fsdp.ranks = 2, s.fsdp.reduces_at_end = true, s.accumulate = 5,
    s.stage = {.stages = 3, .index = index, .buffers = buffers};
    return trace_of(s);
  };
  const auto most = [](const Trace& t, Phase phase, const char* name, std::int32_t layer) {
    return most_existing(t, phase, [&](const TraceStorage& x) {
      return t.names[x.tensor] == name && x.layer == layer && x.purpose != Purpose::kBackward;
    });
  };
  using enum StageBuffers;
  // The second of three stages has two micro-batches in flight, of five. Its two layers have outputs.
  const Trace all = trace(1, kUntilNextStep), last = trace(1, kOutputsOfLastStage),
              sent = trace(1, kUntilSent);
  BOOST_TEST(most(all, kForward, "received activations", -1) == 5u);
  BOOST_TEST(most(last, kForward, "received activations", -1) == 5u);
  BOOST_TEST(most(sent, kForward, "received activations", -1) == 2u);
  BOOST_TEST(most(last, kForward, "received gradients", -1) == 5u);
  BOOST_TEST(most(sent, kBackward, "received gradients", -1) == 1u);
  // One more inside of the layer, and two in its recomputation.
  BOOST_TEST(most(all, kForward, "sum", 1) == 6u);
  BOOST_TEST(most(last, kForward, "sum", 1) == 3u);
  BOOST_TEST(most(sent, kForward, "sum", 1) == 3u);
  BOOST_TEST(most(last, kBackward, "sum", 1) == 4u);
  BOOST_TEST(most(sent, kBackward, "sum", 1) == 2u);
  BOOST_TEST(most(trace(2, kUntilSent), kBackward, "received activations", -1) == 5u);
  BOOST_TEST(most(trace(2, kUntilSent), kUpdate, "received activations", -1) == 0u);
  for (const StageBuffers b : {kUntilNextStep, kOutputsOfLastStage, kUntilSent})
    BOOST_TEST((bytes_named(trace(2, b), "logits of all micro-batches") == 0) == (b == kUntilSent));
}

// As ScheduleInterleaved1F1B of torch 2.15 orders them.
BOOST_AUTO_TEST_CASE(interleaved_stages_run_as_torch_orders_them) {
  const auto order = [](std::uint32_t rank, std::uint32_t stages, std::uint32_t per_rank,
                        std::uint32_t micro_batches) {
    std::string out;
    for (const StageAction& a :
         schedule_of_rank({.stages = stages, .index = rank, .per_rank = per_rank}, micro_batches))
      out += std::to_string(a.stage) + (a.forward ? "F" : "B");
    return out;
  };
  BOOST_TEST(order(0, 4, 2, 4) == "0F0F1F1F0F1B0F1B1F0B1F0B1B1B0B0B");
  BOOST_TEST(order(1, 4, 2, 4) == "0F0F1F1B1F1B0F0B0F0B1F1B1F1B0B0B");
  BOOST_TEST(order(3, 8, 2, 4) == "0F0F0F0F1F1B1F1B1F1B1F1B0B0B0B0B");
  BOOST_TEST(order(0, 2, 1, 3) == "0F0F0B0F0B0B");
}

BOOST_AUTO_TEST_CASE(a_rank_with_two_stages_reduces_the_gradients_of_each_after_its_last_micro_batch) {
  StepSettings s = recomputing();
  s.fsdp.ranks = 2, s.fsdp.reduces_at_end = true, s.accumulate = 4;
  s.stage = {.stages = 4, .index = 1, .buffers = StageBuffers::kUntilSent, .per_rank = 2};
  // 6 layers in stages of 1, 2, 2 and 1: this rank has the second and the last.
  const Trace t = trace_of(s);
  const auto exist = [&](const char* name, Phase phase) {
    return most_existing(t, phase, [&](const TraceStorage& x) { return t.names[x.tensor] == name; });
  };
  const auto count = [&](const char* name) {
    return std::ranges::count_if(t.storages,
                                 [&](const TraceStorage& x) { return t.names[x.tensor] == name; });
  };
  BOOST_TEST(count("received activations") == 2 * 2 * 4);
  BOOST_TEST(count("received gradients") == 2 * 4);
  // Three layers and the head, in each of two steps.
  BOOST_TEST(count("gradients to reduce") == 2 * 4);
  BOOST_TEST(exist("gradients to reduce", kBackward) == 1u);
  // The stage with the head has ended before the other begins its last backward passes.
  const std::uint64_t both = peak_of(s);
  s.stage.per_rank = 1, s.stage.stages = 2;
  BOOST_TEST(peak_of(s) != both);
}

BOOST_AUTO_TEST_CASE(stages_of_2024_keep_the_input_of_their_last_reduction_until_the_next_step) {
  StepSettings s = recomputing();
  s.fsdp.ranks = 2, s.fsdp.reduces_at_end = true, s.accumulate = 5, s.stage = {3, 1, false};
  const auto most = [&](Phase phase) {
    const Trace t = trace_of(s);
    return most_existing(t, phase,
                         [&](const TraceStorage& x) { return t.names[x.tensor] == "gradients to reduce"; });
  };
  BOOST_TEST(most(kForward) == 0u);
  BOOST_TEST(most(kUpdate) == 0u);
  s.fsdp.keeps_last_reduction = true;
  BOOST_TEST(most(kForward) == 1u);
  BOOST_TEST(most(kUpdate) == 1u);
  BOOST_TEST(most(kBackward) == 1u);
}

BOOST_AUTO_TEST_SUITE_END()
