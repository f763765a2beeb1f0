// The estimator of PyTorch for runs of Unsloth, and the longest sequences that Unsloth publishes
// (docs/published-runs.md, "Unsloth").
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <cstdio>

#include "core/model/presets.hpp"
#include "tests/plugins/estimators/pytorch_runs.hpp"
#include "tests/plugins/estimators/report_notes.hpp"

using namespace trainhost;
using namespace trainhost::test;
using frameworks::Purpose;

namespace {

using Options = std::map<std::string, std::string>;

constexpr std::uint32_t kAllTargets = 127;
const Options kUnsloth = {{"framework", "unsloth"}};

ModelSpec llama_70b() {
  ModelSpec m = llama_8b();
  m.hidden = 8192, m.layers = 80, m.heads = 64, m.intermediate = 28672;
  return m;
}

/// As its notebooks have it.
RunSpec qlora(std::uint32_t tokens) {
  RunSpec r = mixed_precision();
  r.mode = RunMode::kQlora;
  r.memory.frozen = DType::kNF4, r.memory.double_quantized = true;
  r.lora_rank = 32, r.lora_targets = kAllTargets;
  r.optimizer = Optimizer::kAdamW8bit;
  r.micro_batch = 1, r.seq_len = tokens;
  r.recompute = Recompute::kFull;
  r.memory.activations_in = Tier::kHost;
  r.memory.cross_entropy = CrossEntropy::kFused;
  return r;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(unsloth_runs)

// QLoRA of rank 32 on all linear layers, one sequence (docs.unsloth.ai, "Unsloth Benchmarks", December 2024).
// Devices in GB of 10^9 bytes.
BOOST_AUTO_TEST_CASE(published_longest_sequences_need_the_memory_of_their_devices) {
  struct {
    ModelSpec model;
    std::uint32_t tokens;
    double gigabytes;
  } const runs[] = {{llama_8b(), 2972, 8},    {llama_8b(), 21848, 12},  {llama_8b(), 40724, 16},
                    {llama_8b(), 78475, 24},  {llama_8b(), 153977, 40}, {llama_8b(), 191728, 48},
                    {llama_8b(), 342733, 80}, {llama_70b(), 12106, 48}, {llama_70b(), 89389, 80}};
  double sum = 0;
  for (const auto& run : runs) {
    RunSpec r = qlora(run.tokens);
    r.device_budget = static_cast<std::uint64_t>(run.gigabytes * 1e9);
    const MemoryReport report = estimate(r, kUnsloth, run.model);
    const double error =
        100 * (static_cast<double>(report.tier_bytes(Tier::kDevice)) / 1e9 / run.gigabytes - 1);
    std::printf("%u layers, %u tokens: %.2f of %.0f GB (%+.1f %%)\n", run.model.layers, run.tokens,
                static_cast<double>(report.tier_bytes(Tier::kDevice)) / 1e9, run.gigabytes, error);
    BOOST_TEST(std::abs(error) < 5.5, run.model.layers << ' ' << run.tokens << ": " << error << " %");
    sum += std::abs(error) / static_cast<double>(std::size(runs));
  }
  BOOST_TEST(sum < 4);
}

BOOST_AUTO_TEST_CASE(a_layer_keeps_what_its_functions_save_and_writes_gradients_over_it) {
  RunSpec r = qlora(1536);
  r.recompute = Recompute::kNone, r.memory.activations_in = Tier::kDevice;
  const model::Architecture a = model::from_model(llama_8b());
  pytorch::Options o;
  o.name = "unsloth";
  std::vector<std::string> notes;
  const frameworks::TrainingStep step = frameworks::training_step(a, pytorch::step_settings(a, r, o, notes));
  const std::uint64_t n = 1536, h = 4096, i = 14336;
  // Inputs of both norms and their results, q, k, v and output with all heads, gate and up, all in bf16;
  // 1/rms of two norms and a log-sum-exp per head in f32; the state of random numbers. Of the second layer:
  // the input of the first norm needs no gradient.
  const std::uint64_t saved = 2 * n * (4 * h + 4 * h + 2 * i) + 4 * n * (2 + 32) + 3 * 8;
  BOOST_TEST(step.saved_bytes.at(2) == saved);
  // Tensors of a gradient's size that the backward pass of a layer allocates in both steps.
  const auto allocated = [&](std::string_view module, std::uint64_t bytes) {
    return std::ranges::count_if(step.trace.storages, [&](const frameworks::TraceStorage& s) {
      return s.layer == 1 && s.purpose == Purpose::kBackward && s.bytes == bytes &&
             step.trace.names[s.module] == module;
    });
  };
  BOOST_TEST(allocated("mlp", 2 * n * h) == 0);
  BOOST_TEST(allocated("mlp", 2 * n * i) == 2);
  BOOST_TEST(allocated("self_attn.qkv", 2 * n * h) == 0);
  BOOST_TEST(allocated("input_layernorm", 2 * n * h) == 0);
  BOOST_TEST(allocated("self_attn.o_proj", 2 * n * h) == 2);
  // Rotation: gradients of q and of k, whose heads are a quarter.
  BOOST_TEST(allocated("rotary_emb", 2 * n * h) == 2);
  BOOST_TEST(allocated("rotary_emb", 2 * n * h / 4) == 2);
}

// tools/oracle/unsloth.py runs the functions of Unsloth with fake tensors: bytes that a layer saves, and that
// its backward pass allocates beyond them. Attention is a function without temporary tensors there.
BOOST_AUTO_TEST_CASE(a_layer_saves_and_allocates_what_pytorch_counts) {
  struct {
    std::uint32_t tokens, hidden, heads, kv_heads, head_dim, intermediate, rank;
    double dropout;
    std::uint64_t saved, peak;
  } const facts[] = {{1536, 4096, 32, 8, 128, 14336, 32, 0, 188'952'576, 168'755'200},
                     {512, 2048, 16, 16, 128, 5632, 8, 0, 28'348'416, 29'589'504},
                     {4096, 1024, 16, 4, 64, 2816, 64, 0, 113'541'120, 32'833'536},
                     {777, 3072, 24, 8, 128, 8192, 16, 0, 63'732'648, 65'274'432},
                     {1536, 4096, 32, 8, 128, 14336, 32, 0.05, 248'721'408, 212'795'392},
                     {512, 2048, 16, 16, 128, 5632, 8, 0.05, 37'523'456, 35'356'672},
                     {4096, 1024, 16, 4, 64, 2816, 64, 0.05, 150'241'280, 70'680'576},
                     {777, 3072, 24, 8, 128, 8192, 16, 0.05, 84'419'496, 78'004'800}};
  for (const auto& f : facts) {
    ModelSpec m = llama_8b();
    m.layers = 3, m.hidden = f.hidden, m.heads = f.heads, m.kv_heads = f.kv_heads, m.head_dim = f.head_dim;
    m.intermediate = f.intermediate;
    RunSpec r = qlora(f.tokens);
    r.lora_rank = f.rank;
    r.recompute = Recompute::kNone, r.memory.activations_in = Tier::kDevice;
    const model::Architecture a = model::from_model(m);
    pytorch::Options o;
    o.name = "unsloth", o.lora_dropout = f.dropout;
    std::vector<std::string> notes;
    frameworks::StepSettings s = pytorch::step_settings(a, r, o, notes);
    s.machine.kernel_temporaries = false;
    const frameworks::TrainingStep step = frameworks::training_step(a, s);
    // The state of random numbers of attention is saved too.
    BOOST_TEST(step.saved_bytes.at(2) == f.saved + 3 * 8, f.tokens << ": " << step.saved_bytes.at(2));
    // From the first tensor that the backward pass allocates for the second layer to the last.
    const frameworks::Trace& t = step.trace;
    const auto phase = std::ranges::find(t.phases, kBackward, &frameworks::TracePhase::phase);
    std::int64_t now = 0, peak = 0;
    bool begun = false;
    for (std::size_t i = phase->event; i < t.events.size(); ++i) {
      const frameworks::TraceStorage& storage = t.storages[t.events[i].storage];
      if (storage.layer == 0 && t.events[i].allocation) break;
      begun |= storage.layer == 1 && t.events[i].allocation;
      if (!begun) continue;
      now += t.events[i].allocation ? static_cast<std::int64_t>(storage.bytes)
                                    : -static_cast<std::int64_t>(storage.bytes);
      peak = std::max(peak, now);
    }
    BOOST_TEST(peak == static_cast<std::int64_t>(f.peak), f.tokens << ": " << peak << " and " << f.peak);
  }
}

BOOST_AUTO_TEST_CASE(inputs_of_layers_are_in_host_memory_and_two_of_them_on_the_device) {
  const RunSpec r = qlora(8192);
  RunSpec kept = r;
  kept.memory.activations_in = Tier::kDevice;
  const std::uint64_t input = 8192ull * 4096 * 2, layers = 32;
  const MemoryReport with = estimate(r, kUnsloth), without = estimate(kept, kUnsloth);
  // Blocks of a power of two, and the first blocks of 200 buffers.
  BOOST_TEST(with.tier_bytes(Tier::kPinned) == layers * input + (200ull * 256 << 10));
  BOOST_TEST(without.tier_bytes(Tier::kPinned) == 0u);
  // All inputs but that of the last layer; two staging buffers. At the peak of `without`, in the last layer,
  // the gradients of the other layers' adapters do not exist.
  const std::uint64_t gradients = (layers - 1) * (83'886'080 / layers) * 4;
  const auto allocated = [](const MemoryReport& m) {
    return m.tier_bytes(Tier::kDevice) - m.component_bytes(Tier::kDevice, Component::kFragmentation);
  };
  BOOST_TEST(allocated(without) - allocated(with) == (layers - 1 - 2) * input - gradients);
  // Inputs of 2 MiB stay.
  BOOST_TEST(estimate(qlora(256), kUnsloth).tier_bytes(Tier::kPinned) == 0u);
}

BOOST_AUTO_TEST_CASE(logits_of_few_rows_are_computed_in_tiles_on_small_devices) {
  RunSpec r = qlora(2048);
  const auto logits = [&](std::uint64_t gigabytes) {
    r.device_budget = gigabytes << 30;
    return bytes_of(estimate(r, kUnsloth), Purpose::kLogits);
  };
  const std::uint64_t n = 2047, h = 4096;
  // 512 rows of all logits in f32, against tiles of 16,384 columns for all rows and their gradient.
  const std::uint64_t chunk = 512ull * 128256 * 4, tile = n * (16384 + h) * 4;
  BOOST_TEST(logits(80) > chunk);
  BOOST_TEST(logits(80) < chunk + (64u << 20));
  BOOST_TEST(logits(24) > tile);
  BOOST_TEST(logits(24) < tile + (64u << 20));
}

BOOST_AUTO_TEST_CASE(copies_of_keys_are_noted_where_heads_share_them) {
  ModelSpec m = llama_8b();
  BOOST_TEST(has_note(estimate(qlora(2048), kUnsloth, m), "xformers, which copies keys and values"));
  m.kv_heads = m.heads;
  BOOST_TEST(has_note(estimate(qlora(2048), kUnsloth, m), "Attention is that of xformers."));
}

// Its functions contain the dropout (UNSLOTH_FUSED_LORA_DROPOUT): a byte for each element of the input of
// each matrix, and no buffer for a dequantized weight.
BOOST_AUTO_TEST_CASE(dropout_keeps_a_mask_of_the_input_of_each_matrix) {
  RunSpec r = qlora(2048);
  r.recompute = Recompute::kNone, r.memory.activations_in = Tier::kDevice;
  const auto bytes = [&](const char* dropout, Purpose p) {
    return bytes_of(estimate(r, {{"framework", "unsloth"}, {"lora_dropout", dropout}}), p);
  };
  const std::uint64_t h = 4096, i = 14336, masks = 2048 * (6 * h + i);
  // The peaks are at different times.
  const std::uint64_t more = bytes("0.1", Purpose::kActivations) - bytes("0", Purpose::kActivations);
  BOOST_TEST(more >= 32 * masks);
  BOOST_TEST(more < 33 * masks + 4 * 2048 * i);
  BOOST_TEST(bytes("0", Purpose::kBuffers) - bytes("0.1", Purpose::kBuffers) == 2 * h * i);
}

BOOST_AUTO_TEST_CASE(checkpoints_of_unsloth_are_reentrant) {
  const auto peak = [](const Options& o) { return estimate(qlora(2048), o).total_bytes(); };
  const Options same = {{"framework", "unsloth"}, {"checkpoint_reentrant", "true"}},
                other = {{"framework", "unsloth"}, {"checkpoint_reentrant", "false"}};
  BOOST_TEST(peak(kUnsloth) == peak(same));
  BOOST_CHECK_EXCEPTION(peak(other), plugin::PluginError, [](const plugin::PluginError& e) {
    return std::string(e.what()).find("the checkpoints of Unsloth are reentrant") != std::string::npos;
  });
}

BOOST_AUTO_TEST_CASE(other_runs_of_unsloth_are_refused_with_the_reason) {
  RunSpec r = qlora(2048);
  // Phi-4-mini has no copy with the modules of Llama.
  check_refused(r, kUnsloth, "the family 'phi3' with Unsloth", *model::find_planned_preset("phi-4-mini"));
  check_refused(r, kUnsloth, "each layer is compiled as one region",
                *model::find_planned_preset("gemma-3-1b"));
  check_refused(r, kUnsloth, "attention with capped scores is compiled",
                *model::find_planned_preset("gemma-2-2b"));
  check_refused(r, {{"framework", "unsloth"}, {"cross_entropy", "plain"}}, "its own loss computes the head");
  r.memory.frozen = DType::kI8;
  check_refused(r, kUnsloth, "lora.base = \"int8\" with Unsloth");
  r = mixed_precision();
  check_refused(r, kUnsloth, "full training with Unsloth");
}

BOOST_AUTO_TEST_CASE(phi_4_is_planned_as_the_copy_with_the_modules_of_llama) {
  const ModelSpec phi = *model::find_planned_preset("phi-4");
  ModelSpec llama = llama_8b();
  llama.vocab = 100352, llama.hidden = 5120, llama.layers = 40, llama.heads = 40, llama.kv_heads = 10;
  llama.head_dim = 128, llama.intermediate = 17920;
  const MemoryReport copy = estimate(qlora(4096), kUnsloth, phi),
                     same = estimate(qlora(4096), kUnsloth, llama);
  BOOST_TEST(copy.total_bytes() == same.total_bytes());
  BOOST_TEST(has_note(copy, "Unsloth loads a copy of Phi-3 and Phi-4"));
  BOOST_TEST(!has_note(same, "copy of Phi-3"));
}

// q, k and v of Qwen2 have biases, which LoRA_QKV does not know.
BOOST_AUTO_TEST_CASE(matrices_with_biases_are_computed_by_peft) {
  const auto activations = [](const char* family) {
    RunSpec r = qlora(4096);
    r.recompute = Recompute::kNone, r.memory.activations_in = Tier::kDevice;
    ModelSpec m = llama_8b();
    m.family = family, m.qkv_bias = m.family == "qwen2";
    return bytes_of(estimate(r, kUnsloth, m), Purpose::kActivations);
  };
  BOOST_TEST(activations("qwen2") > activations("llama"));
  BOOST_TEST(activations("mistral") == activations("llama"));
}

BOOST_AUTO_TEST_SUITE_END()
