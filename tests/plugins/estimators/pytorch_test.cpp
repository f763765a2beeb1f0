// The estimator of PyTorch: its settings of a run allocate what PyTorch's counters report
// (tests/golden/oracle), its report adds up, and it refuses what it does not describe. Also the plugin
// through the host.
#include <algorithm>
#include <array>
#include <boost/test/unit_test.hpp>
#include <functional>
#include <random>

#include "core/model/presets.hpp"
#include "tests/plugins/estimators/pytorch_runs.hpp"
#include "tests/plugins/estimators/report_notes.hpp"

using namespace trainhost;
namespace tp = trainhost::plugin;
using frameworks::Purpose;
using nlohmann::json;
using namespace trainhost::test;

BOOST_AUTO_TEST_SUITE(pytorch_estimator)

BOOST_AUTO_TEST_CASE(the_settings_of_a_run_allocate_what_pytorch_counts) {
  BOOST_TEST(compare_peaks(test::oracle_records()) == 500u);
}

BOOST_AUTO_TEST_CASE(the_weights_of_every_described_preset_are_its_parameters) {
  std::size_t described = 0;
  const auto check = [&](const ModelSpec& m) {
    if (!frameworks::has_builder(m.family)) return;
    const model::Architecture a = model::from_model(m);
    std::uint64_t bytes = 0;
    RunSpec run;
    run.seq_len = 16;
    std::vector<std::string> notes;
    const frameworks::Trace trace =
        frameworks::training_step(a, pytorch::step_settings(a, run, {}, notes)).trace;
    for (const frameworks::TraceStorage& s : trace.storages)
      if (s.purpose == Purpose::kWeights) bytes += s.bytes;
    BOOST_TEST(bytes == 4 * model::count(a).total, m.name);
    ++described;
  };
  for (const ModelSpec& m : model_presets()) check(m);
  for (const ModelSpec& m : model::planned_presets()) check(m);
  BOOST_TEST(described > 20u);
}

BOOST_AUTO_TEST_CASE(the_report_adds_up_and_names_its_parts) {
  const MemoryReport r = estimate(mixed_precision());
  const std::uint64_t parameters = 8'030'261'248;
  BOOST_TEST(r.component_bytes(Component::kWeights) == 4 * parameters);
  BOOST_TEST(r.component_bytes(Component::kGradients) == 4 * parameters);
  BOOST_TEST(r.component_bytes(Component::kOptimizerState) == 8 * parameters);
  // Square roots of AdamW foreach, a workspace of cuBLAS in each of two threads, token ids and two tables of
  // rotary frequencies.
  BOOST_TEST(r.component_bytes(Component::kWorkspace) == 4 * parameters + (64u << 20) + 8 * 2048 + 2 * 512);
  BOOST_TEST(r.component_bytes(Component::kRuntime) == 512u << 20);
  BOOST_TEST(r.entries.back().formula == "assumed; plan.runtime replaces it");
  const MemoryReport measured = estimate(mixed_precision(), {{"runtime", "629145600"}});
  BOOST_TEST(measured.component_bytes(Component::kRuntime) == 600u << 20);
  BOOST_TEST(measured.entries.back().formula == "plan.runtime");
  std::uint64_t at_peak = 0;
  for (const MemoryEntry& e : r.entries) {
    BOOST_TEST((e.claim == Claim::kApproximation));
    BOOST_TEST(e.bytes >= e.at_peak());
    at_peak += e.at_peak();
  }
  BOOST_TEST(at_peak == r.tier_bytes(Tier::kDevice));
  // Kept for the backward pass although the peak is in the optimizer step.
  BOOST_TEST(bytes_of(r, Purpose::kActivations) > 9'000'000'000u);
  BOOST_TEST(has_note(r, "Mixed precision: the weights are f32, and autocast computes in bf16"));
  BOOST_TEST(has_note(r, "Peak: optimizer step in step 1"));
  BOOST_TEST(has_note(r, "Largest tensors at the peak: embed_tokens weight 1.96 GiB"));
  BOOST_TEST(has_note(r, "Not counted: NCCL"));
}

BOOST_AUTO_TEST_CASE(the_optimizer_is_that_of_the_framework_unless_named) {
  const auto temporaries = [](std::map<std::string, std::string> options) {
    return bytes_of(estimate(mixed_precision(), std::move(options)), Purpose::kUpdate);
  };
  BOOST_TEST(temporaries({}) == 4u * 8'030'261'248);
  BOOST_TEST(temporaries({{"framework", "pytorch"}}) == 4u * 8'030'261'248);
  BOOST_TEST(temporaries({{"framework", "transformers"}}) == 0u);
  BOOST_TEST(temporaries({{"optimizer_implementation", "fused"}}) == 0u);
  BOOST_TEST(temporaries({{"framework", "transformers"}, {"optimizer_implementation", "foreach"}}) ==
             4u * 8'030'261'248);
  // One parameter after the other: two temporaries of the largest.
  BOOST_TEST(temporaries({{"optimizer_implementation", "for-loop"}}) == 2u * 4 * 128256 * 4096);
}

BOOST_AUTO_TEST_CASE(weights_in_bf16_alone_have_moments_in_bf16) {
  RunSpec r = mixed_precision();
  r.master = DType::kNone;
  const MemoryReport report = estimate(r);
  BOOST_TEST(report.component_bytes(Component::kWeights) == 2u * 8'030'261'248);
  BOOST_TEST(report.component_bytes(Component::kOptimizerState) == 4u * 8'030'261'248);
  BOOST_TEST(has_note(report, "Gradients and moments have the type of the weights"));
}

BOOST_AUTO_TEST_CASE(several_ranks_have_buckets_as_large_as_the_gradients) {
  RunSpec r = mixed_precision();
  r.parallel.data = 8;
  const MemoryReport report = estimate(r);
  BOOST_TEST(report.component_bytes(Component::kCommunication) == 4u * 8'030'261'248);
  r.mode = RunMode::kLora, r.lora_rank = 8, r.lora_targets = frameworks::kLoraQ;
  // Only adapters are reduced: 32 layers with two matrices each.
  BOOST_TEST(estimate(r).component_bytes(Component::kCommunication) ==
             full_blocks(4u * 32 * 8 * (4096 + 4096)));
}

BOOST_AUTO_TEST_CASE(recomputation_keeps_one_input_of_each_layer) {
  const std::uint64_t inputs = 32ull * 2048 * 4096;
  RunSpec r = mixed_precision();
  r.recompute = Recompute::kFull;
  const std::uint64_t mixed = bytes_of(estimate(r), Purpose::kActivations);
  // Autocast keeps a bf16 copy of every linear layer's weight until the end of the forward pass.
  const std::uint64_t copies = 2u * (8'030'261'248 - 2ull * 128256 * 4096);  // in the layers
  BOOST_TEST(mixed > 4 * inputs + copies - (1u << 20));
  r.master = DType::kNone;  // without autocast
  const std::uint64_t recomputed = bytes_of(estimate(r), Purpose::kActivations);
  r.recompute = Recompute::kNone;
  const std::uint64_t all = bytes_of(estimate(r), Purpose::kActivations);
  BOOST_TEST(recomputed > 2 * inputs);
  BOOST_TEST(recomputed < all / 5);
}

BOOST_AUTO_TEST_CASE(later_micro_batches_are_like_the_second) {
  const model::Architecture a = model::from_model(llama_8b());
  RunSpec r = mixed_precision();
  r.accumulate = 64;
  std::vector<std::string> notes;
  frameworks::StepSettings s = pytorch::step_settings(a, r, {}, notes);
  BOOST_TEST(s.accumulate == 2u);
  const auto reserved = [&](std::uint32_t micro_batches) {
    s.accumulate = micro_batches;
    return frameworks::replay_allocator(frameworks::training_step(a, s).trace).reserved;
  };
  BOOST_TEST(reserved(2) == reserved(5));
}

BOOST_AUTO_TEST_CASE(a_run_that_fits_after_cached_memory_is_returned_fits) {
  RunSpec r = mixed_precision();
  const MemoryReport unlimited = estimate(r);
  const std::uint64_t gaps = unlimited.component_bytes(Component::kFragmentation);
  BOOST_TEST(gaps > 1u << 30);
  r.device_budget = unlimited.total_bytes() - gaps / 2;
  const MemoryReport limited = estimate(r);
  BOOST_TEST(limited.total_bytes() <= r.device_budget);
  BOOST_TEST(has_note(limited, "returns its cached memory to the driver"));
  // Below what is allocated nothing helps, and the report is that of a device with enough memory.
  r.device_budget = unlimited.total_bytes() - gaps - 1;
  BOOST_TEST(estimate(r).total_bytes() == unlimited.total_bytes());
  const MemoryReport expandable = estimate(mixed_precision(), {{"allocator", "expandable_segments:True"}});
  BOOST_TEST(expandable.component_bytes(Component::kFragmentation) < gaps / 2);
}

BOOST_AUTO_TEST_CASE(dropout_of_gpt2_is_that_of_its_config) {
  const ModelSpec gpt2 = *model::find_planned_preset("gpt2");
  ModelSpec without = gpt2;
  without.config_json.insert(without.config_json.find('{') + 1,
                             R"("resid_pdrop": 0.0, "embd_pdrop": 0, "attn_pdrop": 0.0, )");
  RunSpec r;
  r.seq_len = 512;
  BOOST_TEST(bytes_of(estimate(r, {}, gpt2), Purpose::kActivations) >
             bytes_of(estimate(r, {}, without), Purpose::kActivations));
}

BOOST_AUTO_TEST_CASE(what_is_not_described_is_refused_with_the_reason) {
  struct Row {
    const char* message;
    std::function<void(RunSpec&)> set;
  };
  const Row rows[] = {
      {"inference: it replays a training step", [](RunSpec& r) { r.mode = RunMode::kInference; }},
      {"plan.weights = \"fp8\"", [](RunSpec& r) { r.weight = DType::kF8; }},
      {"train.precision = \"fp8\"", [](RunSpec& r) { r.compute = DType::kF8; }},
      {"plan.moments = \"bf16\": gradients and moments of torch.optim have the type of the parameter",
       [](RunSpec& r) { r.moment = DType::kBF16; }},
      {"plan.gradients = \"bf16\"", [](RunSpec& r) { r.grad = DType::kBF16; }},
      {"parallel.tensor = 2: this run is data-parallel only", [](RunSpec& r) { r.parallel.tensor = 2; }},
      {"parallel.pipeline = 4", [](RunSpec& r) { r.parallel.pipeline = 4; }},
      {"parallel.context = 2", [](RunSpec& r) { r.parallel.context = 2; }},
      {"parallel.expert = 2", [](RunSpec& r) { r.parallel.expert = 2; }},
      {"parallel.zero = 3: a plain PyTorch run shards nothing; FSDP2 is the framework fsdp2",
       [](RunSpec& r) { r.parallel.data = 8, r.parallel.zero = 3; }},
      {"lora.dora", [](RunSpec& r) { r.mode = RunMode::kLora, r.lora_rank = 8, r.memory.dora = true; }},
      {"plan.cross_entropy = \"in-place\"",
       [](RunSpec& r) { r.memory.cross_entropy = CrossEntropy::kInPlace; }},
      {"plan.offload_weights", [](RunSpec& r) { r.memory.weights_in = Tier::kPinned; }},
      {"plan.offload_optimizer", [](RunSpec& r) { r.memory.optimizer_in = Tier::kHost; }},
      {"plan.offload_activations", [](RunSpec& r) { r.memory.activations_in = Tier::kPinned; }},
      {"selective recomputation", [](RunSpec& r) { r.recompute = Recompute::kSelective; }},
      {"train.recompute_every = 4",
       [](RunSpec& r) { r.recompute = Recompute::kFull, r.memory.recompute_every = 4; }},
      {"optimizer.name = \"muon\": its temporaries are not replayed",
       [](RunSpec& r) { r.optimizer = Optimizer::kMuon; }},
      {"optimizer.name = \"adafactor\"", [](RunSpec& r) { r.optimizer = Optimizer::kAdafactor; }},
  };
  tp::Registry plugins = registry();
  for (const Row& row : rows) {
    RunSpec r = mixed_precision();
    row.set(r);
    BOOST_TEST_CONTEXT(row.message) {
      BOOST_TEST(plugins.estimator("pytorch").match(llama_8b(), r) > 0);
      BOOST_CHECK_EXCEPTION(plugins.estimator("pytorch").estimate(llama_8b(), r, nullptr), tp::PluginError,
                            [&](const tp::PluginError& e) {
                              const std::string text = e.what();
                              BOOST_TEST(text.starts_with("the estimator 'pytorch' does not describe "),
                                         text);
                              BOOST_TEST(text.find(row.message) != text.npos, text);
                              return e.status() == "unsupported";
                            });
    }
  }
  const ModelSpec mixtral = *model::find_planned_preset("mixtral-8x7b-v0.1");
  RunSpec r = mixed_precision();
  r.mode = RunMode::kLora, r.lora_rank = 8;
  // Adapters of experts: what peft refuses, and what was not compared.
  constexpr std::uint32_t kExperts = frameworks::kLoraGate | frameworks::kLoraUp | frameworks::kLoraDown;
  const auto refused = [&](const ModelSpec& m, const RunSpec& run, const char* what) {
    BOOST_CHECK_EXCEPTION(
        plugins.estimator("pytorch").estimate(m, run, nullptr), tp::PluginError,
        [&](const tp::PluginError& e) { return std::string(e.what()).find(what) != std::string::npos; });
  };
  r.lora_targets = frameworks::kLoraUp;
  refused(mixtral, r, "adapters of one of gate_proj and up_proj of experts");
  r.lora_targets = kExperts;
  refused(*model::find_planned_preset("gpt-oss-20b"), r, "adapters of the experts of gpt-oss alone");
  const auto report = [&](const ModelSpec& m) {
    return plugins.estimator("pytorch").estimate(m, r, nullptr);
  };
  BOOST_TEST(
      has_note(report(mixtral), "Adapters of experts: peft 0.21 makes a copy of all experts of a layer"));
  BOOST_TEST(
      has_note(report(mixtral), "whose adapter has rank 16, more than the number of trained parameters"));
  r.lora_targets |= frameworks::kLoraQ;
  BOOST_TEST(has_note(report(*model::find_planned_preset("gpt-oss-20b")),
                      "The experts of gpt-oss have no adapters"));
  r.lora_targets = kExperts;
  RunSpec dropped = r;
  dropped.memory.lora_dropout = 0.05;
  refused(mixtral, dropped, "lora.dropout with adapters of experts: peft refuses it");
  BOOST_TEST(plugins.estimator("pytorch").match(*model::find_planned_preset("opt-30b"), r) == 0);
  // Bits of the LM head and of the embedding, which a run of trainhost has; alone they would train nothing.
  for (const std::uint32_t bit : {128u, 256u}) {
    r.lora_targets = bit;
    BOOST_CHECK_EXCEPTION(estimate(r), tp::PluginError, [](const tp::PluginError& e) {
      return e.status() == "unsupported" &&
             std::string(e.what()).find("does not describe adapters of the ") != std::string::npos;
    });
  }
}

BOOST_AUTO_TEST_CASE(sizes_that_cannot_be_summed_are_refused) {
  RunSpec r = mixed_precision();
  r.micro_batch = 1 << 20, r.seq_len = 1 << 24;
  BOOST_CHECK_EXCEPTION(estimate(r), tp::PluginError, [](const tp::PluginError& e) {
    return e.status() == "unsupported" && std::string(e.what()).find("63 bits") != std::string::npos;
  });
  r.micro_batch = 1, r.seq_len = 1 << 18;
  BOOST_TEST(estimate(r).total_bytes() > std::uint64_t{1} << 40);
}

BOOST_AUTO_TEST_CASE(a_wrong_option_is_a_mistake_and_not_a_run_that_is_not_described) {
  for (const auto& [key, value] : {std::pair{"allocator", "max_split_size_mb:x"},
                                   {"optimizer_implementation", "foreach2"},
                                   {"runtime", "much"}})
    BOOST_CHECK_EXCEPTION(estimate(mixed_precision(), {{key, value}}), tp::PluginError,
                          [](const tp::PluginError& e) { return e.status() != "unsupported"; });
  // By the key of the run file.
  BOOST_CHECK_EXCEPTION(
      estimate(mixed_precision(), {{"framework", "torchtitan"}, {"framework_version", "0.9"}}),
      tp::PluginError, [](const tp::PluginError& e) {
        return std::string(e.what()).starts_with(
            "plan.framework_version = 0.9: expected 0.0, 0.1, 0.2 or 0.2.0");
      });
  BOOST_CHECK_EXCEPTION(
      estimate(mixed_precision(), {{"framework", "transformers"}, {"framework_version", "4.58"}}),
      tp::PluginError, [](const tp::PluginError& e) {
        return e.status() != "unsupported" &&
               std::string(e.what()).starts_with("plan.framework_version = \"4.58\": of transformers");
      });
}

BOOST_AUTO_TEST_CASE(older_releases_of_transformers_have_their_own_loss_and_defaults) {
  RunSpec r = mixed_precision();
  r.recompute = Recompute::kFull;
  r.master = DType::kNone;
  const auto of = [&](const char* release) {
    return estimate(r, {{"framework", "transformers"}, {"framework_version", release}});
  };
  const MemoryReport newest = of("5.24"), older = of("4.57"), oldest = of("4.48.1");
  BOOST_TEST(oldest.total_bytes() > newest.total_bytes());
  BOOST_TEST(
      has_note(oldest, "transformers 4.48.1 (plan.framework_version): the loss copies the logits in f32"));
  BOOST_TEST(has_note(oldest, "an eager step (transformers 4.48.1, torch 2.15"));
  BOOST_TEST(has_note(older, "Checkpoints are reentrant, which is the default of transformers 4"));
  BOOST_TEST(!has_note(older, "the loss copies"));
  BOOST_TEST(!has_note(newest, "plan.framework_version"));
}

BOOST_AUTO_TEST_CASE(workspaces_of_cublas_are_those_of_the_device) {
  const auto of = [&](const char* capability) {
    return estimate(mixed_precision(), {{"framework", "transformers"}, {"compute_capability", capability}})
        .total_bytes();
  };
  constexpr std::uint64_t kDifference = 2 * ((32 << 20) - (8320 << 10));
  BOOST_TEST(estimate(mixed_precision(), {{"framework", "transformers"}}).total_bytes() == of("90"));
  BOOST_TEST(of("90") - of("80") <= kDifference);  // the allocator may round
  BOOST_TEST(of("80") < of("90"));
  for (const char* blackwell : {"100", "103", "120"}) BOOST_TEST(of(blackwell) == of("90"), blackwell);
  BOOST_TEST(of("89") == of("80"));
  // AMD: two of hipBLASLt with 76 MiB each.
  const auto workspaces = [&](const char* capability) {
    return estimate(mixed_precision(), {{"framework", "transformers"}, {"compute_capability", capability}})
        .component_bytes(Component::kWorkspace);
  };
  BOOST_TEST(workspaces("0") - workspaces("90") == 2 * (std::uint64_t{76 - 32} << 20));
  BOOST_TEST(
      has_note(estimate(mixed_precision(), {{"framework", "transformers"}, {"compute_capability", "0"}}),
               "An AMD device: workspaces are those of hipBLASLt, 76 MiB"));
}

BOOST_AUTO_TEST_CASE(names_of_kernels_and_modules_may_have_spaces_between_them) {
  RunSpec r = mixed_precision();
  const auto of = [&](const char* kernels) {
    return estimate(r,
                    {{"framework", "transformers"}, {"cross_entropy", "liger"}, {"liger_kernels", kernels}})
        .total_bytes();
  };
  BOOST_TEST(of("rms_norm, swiglu") == of("rms_norm,swiglu"));
  BOOST_TEST(of(" rms_norm ,swiglu ") == of("rms_norm,swiglu"));
  BOOST_TEST(of("rms_norm") != of("rms_norm,swiglu"));
  for (const char* wrong : {"rms_norm,,swiglu", "rms_norm, ", "rms norm"})
    BOOST_CHECK_THROW(of(wrong), tp::PluginError);
}

// axolotl sets PYTORCH_ALLOC_CONF, and the launcher of LLaMA-Factory where it starts several ranks.
BOOST_AUTO_TEST_CASE(frameworks_that_set_the_allocator_have_expandable_segments) {
  const auto of = [&](const char* framework, const char* allocator, std::uint32_t ranks) {
    RunSpec r = mixed_precision();
    r.parallel.data = ranks;
    std::map<std::string, std::string> options = {{"framework", framework}};
    if (*allocator) options["allocator"] = allocator;
    return estimate(r, options).total_bytes();
  };
  constexpr const char *kOn = "expandable_segments:True", *kOff = "expandable_segments:False";
  for (const std::uint32_t ranks : {1u, 2u}) {
    BOOST_TEST(of("axolotl", kOn, ranks) != of("axolotl", kOff, ranks));
    BOOST_TEST(of("axolotl", "", ranks) == of("axolotl", kOn, ranks));
    BOOST_TEST(of("llama-factory", "", ranks) == of("llama-factory", ranks > 1 ? kOn : kOff, ranks));
    BOOST_TEST(of("transformers", "", ranks) == of("transformers", kOff, ranks));
  }
}

// Replays are kept, and end early where only the verdict is asked for: each verdict is that of a step and an
// allocator that nothing else has used, in whatever order budgets are asked for.
BOOST_AUTO_TEST_CASE(verdicts_are_those_of_a_step_that_is_calculated_anew) {
  std::mt19937 random(15);
  std::size_t fits = 0, exceeds = 0, same_bytes = 0;
  const auto choose = [&](auto... values) {
    const std::array all{values...};
    return all[random() % all.size()];
  };
  const auto presets = model_presets();
  const model::Architecture whole =
      model::from_model(*std::ranges::find(presets, "llama-3.2-1b", &ModelSpec::name));
  for (int round = 0; round < 25; ++round) {
    model::Architecture a = whole;
    a.layers.front().count = choose(2u, 3u, 6u, 9u);
    RunSpec run;
    run.seq_len = choose(256u, 512u, 1000u);
    run.micro_batch = choose(1u, 2u), run.accumulate = choose(1u, 2u);
    run.weight = run.compute = DType::kBF16, run.master = DType::kF32;
    run.recompute = choose(Recompute::kNone, Recompute::kFull);
    run.memory.cross_entropy = CrossEntropy::kPlain;
    pytorch::Options options;
    if (choose(0, 1)) {
      options.framework = pytorch::Framework::kDeepSpeed, options.name = "deepspeed";
      run.parallel.zero = choose(1u, 2u, 3u), run.parallel.data = choose(2u, 8u);
      run.grad = DType::kBF16;
    }
    std::vector<std::string> notes;
    const frameworks::StepSettings s = pytorch::step_settings(a, run, options, notes);
    const frameworks::Trace t = frameworks::training_step(a, s).trace;
    const std::uint64_t reserved = frameworks::replay_allocator(t, options.allocator).reserved,
                        peak = frameworks::find_peak(t).bytes;
    std::vector<std::uint64_t> budgets = {peak / 4,
                                          peak / 2,
                                          peak - 512,
                                          peak + options.runtime,
                                          (peak + reserved) / 2 + options.runtime,
                                          reserved + options.runtime - 1,
                                          reserved + options.runtime,
                                          2 * reserved + options.runtime};
    std::ranges::shuffle(budgets, random);
    for (const std::uint64_t budget : budgets) {
      run.device_budget = budget;
      pytorch::Options asked = options;
      asked.only_if_it_fits = true, asked.verdict_only = choose(0, 1);
      const std::uint64_t bytes = pytorch::report(a, run, asked).tier_bytes(Tier::kDevice);
      const std::uint64_t capacity = budget > options.runtime ? budget - options.runtime : 0;
      const bool expected =
          capacity >= peak && !frameworks::replay_allocator(t, options.allocator, capacity).out_of_memory;
      BOOST_TEST((bytes <= budget) == expected, "round " << round << ", budget " << budget);
      expected ? ++fits : ++exceeds;
      if (capacity >= reserved) same_bytes += bytes == reserved + options.runtime;
    }
  }
  BOOST_TEST(fits >= 50u);
  BOOST_TEST(exceeds >= 75u);
  BOOST_TEST(same_bytes == 50u);
}

// What the measured runs of transformers_runs_test.cpp had. Its kernels need no mask for a window, and read
// grouped heads as they are, which SDPA of older releases does not.
BOOST_AUTO_TEST_CASE(the_package_flash_attn_has_no_masks_and_repeats_nothing) {
  ModelSpec m = llama_8b();
  m.vocab = 1000;  // so that a layer sets the peak
  RunSpec r = mixed_precision();
  r.recompute = Recompute::kFull, r.micro_batch = 8;
  const auto total = [&](const char* attention, const char* release) {
    return estimate(r,
                    {{"framework", "transformers"}, {"attention", attention}, {"framework_version", release}},
                    m)
        .tier_bytes(Tier::kDevice);
  };
  BOOST_TEST(total("flash", "5") == total("flash_attention_2", "5"));
  BOOST_TEST(total("flash", "4.48") > total("flash_attention_2", "4.48"));
  // With a window SDPA has a mask in every release.
  m = *find_model_preset("mistral-7b-v0.1");
  r.seq_len = 8192, r.micro_batch = 1;
  r.mode = RunMode::kLora, r.memory.frozen = DType::kBF16, r.lora_rank = 8, r.lora_targets = 1;
  r.recompute = Recompute::kNone;
  BOOST_TEST(total("flash", "5") > total("flash_attention_2", "5"));
  // It has no kernels for f32.
  r = {};
  r.weight = r.compute = DType::kF32, r.master = DType::kNone, r.seq_len = 128;
  const auto of = [&](const char* framework) {
    return estimate(r, {{"framework", framework}, {"attention", "flash_attention_2"}});
  };
  BOOST_TEST(has_note(of("transformers"),
                      "Attention is planned with SDPA: flash-attn (plan.attention) has no kernels"));
  const auto is_of_transformers = [](const plugin::PluginError& e) {
    return std::string(e.what()).find("it is a setting of models of transformers") != std::string::npos;
  };
  BOOST_CHECK_EXCEPTION(of("torchtitan"), plugin::PluginError, is_of_transformers);
  for (const char* framework : {"litgpt", "torchtune", "unsloth"})
    BOOST_CHECK_EXCEPTION(estimate(r, {{"framework", framework}, {"norms", "fp32"}}), plugin::PluginError,
                          is_of_transformers);
}

BOOST_AUTO_TEST_SUITE_END()
