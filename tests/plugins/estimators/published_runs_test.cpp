// The replay of torchtune compared with the runs that its README publishes, on one GPU and eight. Settings:
// docs/published-runs.md.
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <cstdio>
#include <functional>
#include <span>

#include "core/frameworks/trace/evaluate.hpp"
#include "core/model/presets.hpp"
#include "plugins/estimators/pytorch/report.hpp"

using namespace trainhost;

namespace {

struct Run {
  const char* name;
  double measured_gib;  // peak of torch's active bytes
  double replay_gib;    // as documented
  const char* preset;
  std::function<void(RunSpec&, pytorch::Options&)> set;
};

constexpr double kGiB = 1u << 30;
constexpr std::uint32_t kLoraQv = frameworks::kLoraQ | frameworks::kLoraV;
constexpr std::uint32_t kLoraMlp = frameworks::kLoraGate | frameworks::kLoraUp | frameworks::kLoraDown;

/// Two packed sequences, activation checkpointing, logits in chunks, fused AdamW, compiled.
RunSpec usual(std::uint32_t tokens) {
  RunSpec r;
  r.micro_batch = 2, r.seq_len = tokens;
  r.weight = r.compute = DType::kBF16, r.master = DType::kNone;
  r.recompute = Recompute::kFull;
  return r;
}

pytorch::Options usual_options() {
  pytorch::Options o;
  o.framework = pytorch::Framework::kTorchtune;
  o.loop = frameworks::OptimizerLoop::kFused;
  o.loss = frameworks::LossKind::kChunkedLogits;
  o.compile = true;
  return o;
}

void adapters(RunSpec& r, bool nf4, std::uint32_t rank, std::uint32_t targets) {
  r.mode = nf4 ? RunMode::kQlora : RunMode::kLora;
  r.memory.frozen = nf4 ? DType::kNF4 : DType::kBF16;
  r.lora_rank = rank, r.lora_targets = targets;
}

const Run kRuns[] = {
    {"8B full, 4090", 18.9, 19.21, "llama-3.1-8b",
     [](RunSpec& r, pytorch::Options& o) {
       r.optimizer = Optimizer::kAdamW8bit;
       o.paged_optimizer = o.update_in_backward = true;
     }},
    {"8B full, A6000", 37.4, 36.73, "llama-3.1-8b",
     [](RunSpec& r, pytorch::Options& o) {
       r.optimizer = Optimizer::kAdamW8bit, r.recompute = Recompute::kNone;
       o.paged_optimizer = o.update_in_backward = true;
     }},
    {"8B LoRA, 4090", 16.2, 17.22, "llama-3.1-8b",
     [](RunSpec& r, pytorch::Options&) { adapters(r, false, 8, kLoraQv); }},
    {"8B LoRA, A6000", 30.3, 30.21, "llama-3.1-8b",
     [](RunSpec& r, pytorch::Options&) {
       adapters(r, false, 8, kLoraQv);
       r.recompute = Recompute::kNone;
     }},
    {"8B QLoRA, 4090", 7.4, 7.67, "llama-3.1-8b",
     [](RunSpec& r, pytorch::Options&) {
       adapters(r, true, 8, kLoraQv | frameworks::kLoraK | frameworks::kLoraO | kLoraMlp);
     }},
    {"70B LoRA, 8 A100", 27.6, 30.17, "llama-3.1-70b",
     [](RunSpec& r, pytorch::Options&) {
       adapters(r, false, 16, kLoraQv | frameworks::kLoraK);
       r.parallel.data = 8, r.parallel.zero = 3;
     }},
    // Published in GB. One row of Alpaca, whose length does not decide: the peak is at the first layer.
    {"405B QLoRA, 8 A100", 41.72, 42.84, "llama-3.1-405b",
     [](RunSpec& r, pytorch::Options&) {
       adapters(r, true, 16, kLoraQv | frameworks::kLoraK | frameworks::kLoraO | kLoraMlp);
       r.micro_batch = 1, r.seq_len = 1024, r.parallel.data = 8, r.parallel.zero = 3;
     }},
    {"3B packed", 60.0, 59.95, "llama-3.2-3b",
     [](RunSpec& r, pytorch::Options& o) {
       r.recompute = Recompute::kNone;
       o.loss = frameworks::LossKind::kPlain, o.compile = false;
     }},
    {"3B compile", 51.0, 50.98, "llama-3.2-3b",
     [](RunSpec& r, pytorch::Options& o) {
       r.recompute = Recompute::kNone;
       o.loss = frameworks::LossKind::kPlain;
     }},
    {"3B chunked cross entropy", 42.9, 42.43, "llama-3.2-3b",
     [](RunSpec& r, pytorch::Options&) { r.recompute = Recompute::kNone; }},
    {"3B activation checkpointing", 24.9, 24.92, "llama-3.2-3b", [](RunSpec&, pytorch::Options&) {}},
    {"3B optimizer in backward", 23.1, 22.72, "llama-3.2-3b",
     [](RunSpec&, pytorch::Options& o) { o.update_in_backward = true; }},
    {"3B activation offloading", 21.8, 21.40, "llama-3.2-3b",
     [](RunSpec& r, pytorch::Options& o) {
       o.update_in_backward = true;
       r.memory.activations_in = Tier::kPinned;
     }},
    {"3B 8-bit AdamW", 17.6, 17.54, "llama-3.2-3b",
     [](RunSpec& r, pytorch::Options& o) {
       o.torch_of_2024 = true;
       o.update_in_backward = true;
       r.optimizer = Optimizer::kAdamW8bit;
       r.memory.activations_in = Tier::kPinned;
     }},
    {"3B LoRA", 8.5, 8.86, "llama-3.2-3b",
     [](RunSpec& r, pytorch::Options&) {
       adapters(r, false, 64, kLoraQv | frameworks::kLoraO | kLoraMlp);
       r.memory.activations_in = Tier::kPinned;
     }},
    {"3B QLoRA", 4.6, 4.96, "llama-3.2-3b",
     [](RunSpec& r, pytorch::Options&) {
       adapters(r, true, 64, kLoraQv | frameworks::kLoraO | kLoraMlp);
       r.memory.activations_in = Tier::kPinned;
     }},
};

/// README of torchtune, May to September 2024: reserved GB, 4 sequences of 2,048 tokens, Llama 2 7B on RTX
/// 4090.
struct RunOf2024 {
  const char* name;
  double measured_gb, plan_gb;
  std::function<void(RunSpec&, pytorch::Options&)> set;
};

const RunOf2024 kRunsOf2024[] = {
    {"7B QLoRA", 12.3, 12.72,
     [](RunSpec& r, pytorch::Options& o) {
       adapters(r, true, 8, kLoraQv | frameworks::kLoraK | frameworks::kLoraO | kLoraMlp);
       o.compile = true;
     }},
    {"7B LoRA", 21.3, 21.42, [](RunSpec& r, pytorch::Options&) { adapters(r, false, 8, kLoraQv); }},
    {"7B LoRA, 2 GPUs", 16.2, 16.69,
     [](RunSpec& r, pytorch::Options&) {
       adapters(r, false, 8, kLoraQv);
       r.parallel.data = 2, r.parallel.zero = 3;
     }},
    // On an A100 (pull request 961).
    {"7B full", 22.3, 21.98,
     [](RunSpec&, pytorch::Options& o) { o.paged_optimizer = o.update_in_backward = true; }},
    {"7B full, 4 GPUs", 24.1, 24.31,
     [](RunSpec& r, pytorch::Options&) { r.parallel.data = 4, r.parallel.zero = 3; }},
};

model::Architecture architecture(const char* preset) {
  const ModelSpec* trained = find_model_preset(preset);
  return model::from_model(trained ? *trained : *model::find_planned_preset(preset));
}

/// Two of the models have no preset.
model::Architecture litgpt_architecture(const std::string& name) {
  if (name == "phi-1.5")
    return model::from_config(R"({"model_type": "phi", "vocab_size": 51200, "hidden_size": 2048,
      "intermediate_size": 8192, "num_hidden_layers": 24, "num_attention_heads": 32,
      "max_position_embeddings": 2048})",
                              name);
  if (name == "stablelm-base-alpha-3b")
    return model::from_config(R"({"model_type": "gpt_neox", "vocab_size": 50688, "hidden_size": 4096,
      "intermediate_size": 16384, "num_hidden_layers": 16, "num_attention_heads": 32,
      "max_position_embeddings": 4096})",
                              name);
  return architecture(name.c_str());
}

}  // namespace

BOOST_AUTO_TEST_SUITE(published_runs)

BOOST_AUTO_TEST_CASE(the_replay_of_torchtune_is_close_to_its_published_runs) {
  double sum = 0;
  for (const Run& run : kRuns) {
    RunSpec r = usual(std::string(run.name).starts_with("3B") ? 4096 : 2048);
    pytorch::Options o = usual_options();
    run.set(r, o);
    std::vector<std::string> notes;
    const model::Architecture a = architecture(run.preset);
    frameworks::StepSettings s = pytorch::step_settings(a, r, o, notes);
    s.machine.cublas_workspace = 8'519'680;  // compute capability 8.0 and 8.9
    const frameworks::Trace trace = frameworks::training_step(a, s).trace;
    const double gib = static_cast<double>(frameworks::find_peak(trace).bytes) / kGiB;
    const double error = 100 * (gib / run.measured_gib - 1);
    std::printf("%-28s %6.1f GiB measured, %6.2f GiB by the replay, %+5.1f %%\n", run.name, run.measured_gib,
                gib, error);
    sum += std::abs(error);
    BOOST_TEST_CONTEXT(run.name) {
      BOOST_TEST(std::abs(gib - run.replay_gib) < 0.006, gib);
      BOOST_TEST(std::abs(error) < 9.5, error);
      // The upper bounds, without the context that torch does not count.
      std::uint64_t bound = 0;
      for (const MemoryEntry& e : pytorch::report(a, r, o).entries)
        if (e.component != Component::kRuntime) bound += e.at_peak() + (e.hi - e.bytes);
      BOOST_TEST(static_cast<double>(bound) / kGiB >= run.measured_gib);
    }
  }
  BOOST_TEST(sum / static_cast<double>(std::size(kRuns)) < 3);
}

/// Settings of the recipes of torchtune 0.2, eager and recomputed.
pytorch::Options options_of_2024() {
  pytorch::Options o;
  o.framework = pytorch::Framework::kTorchtune;
  o.moved_logits = true;
  o.loss = frameworks::LossKind::kMovedLogits;
  o.products.capability = 80;
  return o;
}

BOOST_AUTO_TEST_CASE(the_reserved_memory_that_torchtune_published_in_2024_is_planned) {
  for (const RunOf2024& run : kRunsOf2024) {
    RunSpec r = usual(2048);
    r.micro_batch = 4;
    r.device_budget = 25'340'307'046;  // of an RTX 4090
    pytorch::Options o = options_of_2024();
    run.set(r, o);
    std::uint64_t reserved = 0;
    for (const MemoryEntry& e : pytorch::report(architecture("llama-2-7b"), r, o).entries)
      if (e.component != Component::kRuntime) reserved += e.at_peak();
    const double gb = static_cast<double>(reserved) / 1e9, error = 100 * (gb / run.measured_gb - 1);
    std::printf("%-28s %6.1f GB reserved, %6.2f GB planned, %+5.1f %%\n", run.name, run.measured_gb, gb,
                error);
    BOOST_TEST_CONTEXT(run.name) {
      BOOST_TEST(std::abs(gb - run.plan_gb) < 0.006, gb);
      BOOST_TEST(std::abs(error) < 3.5, error);
    }
  }
}

// Pull request 961 of torchtune: 20.2 GB allocated by rows of 2,048 zeros, PagedAdamW in the backward pass.
BOOST_AUTO_TEST_CASE(the_allocated_memory_of_full_training_in_torchtune_of_2024_is_replayed) {
  RunSpec r = usual(2048);
  r.micro_batch = 4;
  pytorch::Options o = options_of_2024();
  o.paged_optimizer = o.update_in_backward = true;
  std::vector<std::string> notes;
  const model::Architecture a = architecture("llama-2-7b");
  frameworks::StepSettings s = pytorch::step_settings(a, r, o, notes);
  s.machine.cublas_workspace = 8'519'680;
  const frameworks::Trace trace = frameworks::training_step(a, s).trace;
  const double gb = static_cast<double>(frameworks::find_peak(trace).bytes) / 1e9;
  BOOST_TEST(std::abs(gb - 20.2) < 0.1, gb);
}

// The longest example of Alpaca has `tokens` tokens in the model's tokenizer. It is in the first micro-batch.
// On several devices later micro-batches, which are shorter, exist beside the gradients of all layers: litgpt
// issue 159 states that all of a run but the longest example of 1,079 tokens had at most 650.
struct LitgptRun {
  const char* model;
  std::uint32_t tokens, micro_batch;
  double measured_gb, replay_gb;
  bool nf4 = false, double_quantized = false;
  std::uint32_t devices = 1;
};

constexpr double kLaterTokens = 650.0 / 1079;

std::uint64_t peak_of(const model::Architecture& a, const frameworks::StepSettings& s) {
  return frameworks::find_peak(frameworks::training_step(a, s).trace).bytes;
}

/// The larger peak of the first micro-batch, which finds no gradients, and of the later ones.
std::uint64_t peak_of_unequal_lengths(const model::Architecture& a, frameworks::StepSettings s) {
  frameworks::StepSettings first = s;
  first.longest_is_first = true, first.steps = 1;
  s.sequence = static_cast<std::uint32_t>(std::lround(s.sequence * kLaterTokens));
  return std::max(peak_of(a, first), peak_of(a, s));
}

void compare(std::span<const LitgptRun> runs, double most, double mean) {
  double sum = 0;
  for (const LitgptRun& run : runs) {
    RunSpec r;
    r.micro_batch = run.micro_batch, r.seq_len = run.tokens;
    r.weight = r.compute = DType::kBF16;
    adapters(r, run.nf4, 8, kLoraQv);
    r.memory.double_quantized = run.double_quantized;
    if (run.devices > 1) {
      r.parallel.data = run.devices, r.parallel.zero = 3, r.recompute = Recompute::kFull;
      r.accumulate = 128 / run.micro_batch;
    }
    pytorch::Options o;
    o.framework = pytorch::Framework::kLitgpt;
    o.litgpt_release = pytorch::LitgptRelease::k2023;
    std::vector<std::string> notes;
    const model::Architecture a = litgpt_architecture(run.model);
    frameworks::StepSettings s = pytorch::step_settings(a, r, o, notes);
    s.machine.cublas_workspace = 8'519'680;
    const double gb =
        static_cast<double>(run.devices > 1 ? peak_of_unequal_lengths(a, s) : peak_of(a, s)) / 1e9;
    const double error = 100 * (gb / run.measured_gb - 1);
    std::printf("litgpt %-22s %u devices, %u x %u %6.2f GB measured, %6.2f GB by the replay, %+5.1f %%\n",
                run.model, run.devices, run.micro_batch, run.tokens, run.measured_gb, gb, error);
    sum += std::abs(error);
    BOOST_TEST_CONTEXT(run.model << ' ' << run.micro_batch) {
      BOOST_TEST(std::abs(gb - run.replay_gb) < 0.006, gb);
      BOOST_TEST(std::abs(error) < most, error);
      std::uint64_t bound = 0;
      for (const MemoryEntry& e : pytorch::report(a, r, o).entries)
        if (e.component != Component::kRuntime) bound += e.at_peak() + (e.hi - e.bytes);
      BOOST_TEST(static_cast<double>(bound) / 1e9 >= run.measured_gb);
    }
  }
  BOOST_TEST(sum / static_cast<double>(runs.size()) < mean);
}

BOOST_AUTO_TEST_CASE(the_replay_of_litgpt_is_close_to_its_published_runs) {
  constexpr LitgptRun kOneDevice[] = {{"phi-1.5", 1044, 1, 4.82, 4.81},
                                      {"phi-1.5", 1044, 2, 6.76, 6.76},
                                      {"phi-1.5", 1044, 4, 10.68, 10.67},
                                      {"phi-1.5", 1044, 1, 3.78, 3.78, true},
                                      {"phi-1.5", 1044, 1, 3.72, 3.72, true, true},
                                      {"stablelm-base-alpha-3b", 1034, 1, 9.69, 9.70},
                                      {"stablelm-base-alpha-3b", 1034, 2, 12.10, 12.10},
                                      {"stablelm-base-alpha-3b", 1034, 4, 16.92, 16.90},
                                      {"stablelm-base-alpha-3b", 1034, 1, 6.35, 6.35, true},
                                      {"stablelm-base-alpha-3b", 1034, 1, 6.19, 6.19, true, true},
                                      {"llama-2-7b", 1304, 1, 21.30, 21.25},
                                      {"llama-2-7b", 1304, 2, 29.07, 28.99},
                                      {"llama-2-7b", 1304, 1, 14.14, 14.10, true},
                                      {"llama-2-7b", 1304, 1, 13.84, 13.79, true, true},
                                      {"llama-2-13b", 1304, 1, 38.12, 37.98},
                                      {"llama-2-13b", 1304, 1, 23.14, 23.09, true},
                                      {"llama-2-13b", 1304, 1, 22.55, 22.49, true, true}};
  compare(kOneDevice, 0.5, 0.2);
}

// FSDP1 whose flat parameters hold frozen and trained weights, and 32 to 128 micro-batches that add to the
// gradients of all of them.
BOOST_AUTO_TEST_CASE(the_replay_of_litgpt_on_several_devices_is_close_to_its_published_runs) {
  constexpr LitgptRun kDevices[] = {{"phi-1.5", 1044, 1, 4.86, 4.88, false, false, 2},
                                    {"phi-1.5", 1044, 2, 5.05, 5.07, false, false, 2},
                                    {"phi-1.5", 1044, 4, 5.88, 5.83, false, false, 2},
                                    {"stablelm-base-alpha-3b", 1034, 1, 12.75, 12.77, false, false, 2},
                                    {"stablelm-base-alpha-3b", 1034, 2, 12.94, 12.97, false, false, 2},
                                    {"stablelm-base-alpha-3b", 1034, 4, 13.45, 13.39, false, false, 2},
                                    {"llama-2-7b", 1304, 1, 22.18, 22.19, false, false, 2},
                                    {"llama-2-7b", 1304, 2, 22.47, 22.50, false, false, 2},
                                    {"llama-2-7b", 1304, 4, 23.39, 23.36, false, false, 2},
                                    {"llama-2-13b", 1304, 1, 35.57, 35.56, false, false, 4}};
  compare(kDevices, 1, 0.3);
}

BOOST_AUTO_TEST_SUITE_END()
