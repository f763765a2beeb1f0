// The estimator of PyTorch on torchtune and litgpt, which have modules of their own: what it plans, and what
// it refuses. torchtitan: torchtitan_settings_test.cpp.
#include <boost/test/unit_test.hpp>

#include "core/model/presets.hpp"
#include "tests/plugins/estimators/pytorch_runs.hpp"
#include "tests/plugins/estimators/report_notes.hpp"

using namespace trainhost;
using namespace trainhost::test;

BOOST_AUTO_TEST_SUITE(own_modules)

// A setting of sharded weights is named where no rank has a part of them.
BOOST_AUTO_TEST_CASE(settings_of_sharded_weights_without_effect_are_noted) {
  RunSpec r = mixed_precision();
  r.recompute = Recompute::kFull;
  const auto torchtune = [&] {
    return estimate(r, {{"framework", "torchtune"}, {"separate_ends", "true"}}, llama_8b());
  };
  BOOST_TEST(has_note(torchtune(), "plan.separate_ends has no effect on one device"));
  const auto transformers = [&](std::map<std::string, std::string> o) {
    o["framework"] = "transformers";
    return estimate(r, std::move(o), llama_8b());
  };
  BOOST_TEST(has_note(transformers({{"fsdp_version", "1"}}), "plan.fsdp_version has no effect: one device"));
  BOOST_TEST(
      has_note(transformers({{"ddp_bucket", "1048576"}}), "plan.ddp_bucket has no effect: one device"));
  r.parallel.data = 8;
  const MemoryReport ddp = transformers({{"fsdp_version", "1"},
                                         {"use_orig_params", "false"},
                                         {"no_sync", "false"},
                                         {"gradient_as_bucket_view", "true"}});
  BOOST_TEST(has_note(ddp, "plan.no_sync has no effect: with parallel.zero = 0"));
  BOOST_TEST(!has_note(ddp, "plan.gradient_as_bucket_view has no effect"));
  BOOST_TEST(has_note(ddp, "plan.fsdp_version has no effect: with parallel.zero = 0"));
  BOOST_TEST(has_note(ddp, "plan.use_orig_params has no effect: with parallel.zero = 0"));
  r.parallel.zero = 3;
  BOOST_TEST(!has_note(torchtune(), "has no effect"));
  BOOST_TEST(!has_note(transformers({{"fsdp_version", "1"}, {"no_sync", "false"}}), "has no effect"));
  BOOST_TEST(has_note(transformers({{"ddp_bucket", "1048576"}}),
                      "plan.ddp_bucket has no effect: the state is sharded"));
}

BOOST_AUTO_TEST_CASE(frameworks_that_train_models_of_transformers_name_their_own_version) {
  const auto of = [](const char* framework) {
    return estimate(mixed_precision(), {{"framework", framework}}, llama_8b());
  };
  BOOST_TEST(has_note(of("axolotl"), "an eager step (axolotl 0.19, transformers 5.23,"));
  BOOST_TEST(has_note(of("llama-factory"), "an eager step (LLaMA-Factory 0.9.5, transformers 5.23,"));
  BOOST_TEST(has_note(of("transformers"), "an eager step (transformers 5.23,"));
}

BOOST_AUTO_TEST_CASE(a_note_says_what_older_devices_materialise) {
  RunSpec r = mixed_precision();
  r.master = DType::kNone;
  const auto of = [&](const char* framework, const char* capability) {
    return estimate(r, {{"framework", framework}, {"compute_capability", capability}}, llama_8b());
  };
  for (const char* framework : {"torchtune", "litgpt"}) {
    const std::string note = "Compute capability 7.5 has no kernel of SDPA for bf16";
    BOOST_TEST(has_note(of(framework, "75"), note));
    BOOST_TEST(has_note(of(framework, "75"), std::string(framework) + " has no f16"));
    BOOST_TEST(!has_note(of(framework, "80"), note));
    BOOST_TEST(of(framework, "75").total_bytes() > of(framework, "80").total_bytes());
  }
  r.master = DType::kF32, r.memory.cross_entropy = CrossEntropy::kInPlace;
  r.micro_batch = 2;
  // 32 layers x 2 sequences x 32 heads x 2,048 x 2,048 probabilities of 2 bytes.
  const std::string kept = "16.0 GiB of probabilities are kept by a rank for each micro-batch in flight";
  BOOST_TEST(has_note(of("megatron", "75"), kept));
  BOOST_TEST(!has_note(of("megatron", "80"), "no fused attention"));
  r.parallel.tensor = 4, r.parallel.sequence = true, r.parallel.pipeline = 2;
  BOOST_TEST(has_note(of("megatron", "75"), "materialise the scores, which are not counted: 2.00 GiB"));
  r.recompute = Recompute::kFull;
  BOOST_TEST(has_note(of("megatron", "75"), "They exist for one layer at a time"));
}

// Until August 2024 the recipes kept a copy of all logits in f32 but those of the last token, and used FSDP1.
BOOST_AUTO_TEST_CASE(torchtune_of_early_2024_has_its_own_loss_and_units) {
  using Options = std::map<std::string, std::string>;
  const Options old{{"framework", "torchtune"}, {"framework_version", "0.2"}};
  RunSpec r = mixed_precision();
  r.recompute = Recompute::kFull, r.micro_batch = 2;
  const auto logits = [&](const Options& options) {
    return estimate(r, options).component_bytes(Component::kLogits);
  };
  // The peak is in the optimizer step, where nothing else is kept. A single row needs no copy.
  BOOST_TEST(logits({{"framework", "torchtune"}, {"cross_entropy", "plain"}}) < 1024u);
  BOOST_TEST(logits(old) == full_blocks(4ull * 2 * (r.seq_len - 1) * llama_8b().vocab));
  BOOST_TEST(has_note(estimate(r, old), "torchtune 0.2"));
  const auto refused = [&](const std::string& key, const std::string& value, const std::string& what) {
    Options options = old;
    options[key] = value;
    check_refused(r, options, what);
  };
  refused("cross_entropy", "chunked", "its losses in chunks began with 0.3");
  check_refused(r, old, "only Llama and Mistral of that release", *model::find_planned_preset("gpt2"));
  r.parallel.data = 2, r.parallel.zero = 3;
  BOOST_TEST(has_note(estimate(r, old), "FSDP1: 2 ranks; every layer and the model are units, in bf16"));
  refused("separate_ends", "true", "memory_efficient_fsdp_wrap");
  r.mode = RunMode::kQlora, r.memory.frozen = DType::kNF4, r.lora_rank = 8, r.lora_targets = 127;
  check_refused(r, old, "FSDP1 does not shard them");
}

BOOST_AUTO_TEST_CASE(torchtune_is_replayed_and_refused_where_it_was_not_compared) {
  RunSpec r = mixed_precision();
  r.recompute = Recompute::kFull;
  using Options = std::map<std::string, std::string>;
  const auto estimate_torchtune = [](const RunSpec& run, std::map<std::string, std::string> options = {},
                                     const ModelSpec& m = llama_8b()) {
    options["framework"] = "torchtune";
    return estimate(run, std::move(options), m);
  };
  const MemoryReport plain = estimate_torchtune(r);
  BOOST_TEST(plain.component_bytes(Component::kWeights) == 2u * 8'030'261'248);
  BOOST_TEST(has_note(plain, "without a copy in f32"));
  // A gradient is freed when its parameter is updated.
  const MemoryReport inside = estimate_torchtune(r, {{"optimizer_in_backward", "true"}});
  BOOST_TEST(inside.component_bytes(Component::kGradients) <
             plain.component_bytes(Component::kGradients) / 4);
  r.optimizer = Optimizer::kAdamW8bit;
  const std::uint64_t bytes = estimate_torchtune(r).component_bytes(Component::kOptimizerState);
  BOOST_TEST(bytes > 2u * 8'030'261'248);
  BOOST_TEST(bytes < 2.1 * 8'030'261'248);
  // The compiled step of the embedding: one f32 number per block of 256 elements. With torch 2.5 a value in
  // f32, and clones of all that it changes, twice.
  const auto update_bytes = [&](const Options& o) {
    return bytes_of(estimate_torchtune(r, o), frameworks::Purpose::kUpdate);
  };
  constexpr std::uint64_t kEmbedding = 128256 * 4096;
  BOOST_TEST(update_bytes({}) <= 2 * 4 * kEmbedding / 256);
  BOOST_TEST(update_bytes({{"framework_version", "0.4"}}) >= 12 * kEmbedding + 256'000'000);
  BOOST_TEST(
      estimate_torchtune(r, {{"optimizer_paged", "true"}}).component_bytes(Component::kOptimizerState) <
      bytes / 10);
  const auto refused = [&](const std::string& what, const auto& set, const ModelSpec& m = llama_8b()) {
    RunSpec run = mixed_precision();
    std::map<std::string, std::string> options{{"framework", "torchtune"}};
    set(run, options);
    check_refused(run, options, what, m);
  };
  refused(
      "of its models Llama, Mistral, Qwen 2, Qwen 3, Gemma", [](RunSpec&, Options&) {},
      *model::find_planned_preset("gpt2"));
  // Gemma 2 takes no packed rows; NF4 weights of it were not compared.
  BOOST_TEST(has_note(estimate_torchtune(mixed_precision(), {}, *model::find_planned_preset("gemma-2-2b")),
                      "rows are not packed"));
  BOOST_TEST(estimate_torchtune(mixed_precision(), {}, *model::find_planned_preset("gemma-2b"))
                 .component_bytes(Component::kWeights) == 2u * 2'506'172'416);
  refused(
      "NF4 weights of Gemma and Phi-3 in torchtune",
      [](RunSpec& run, Options&) {
        run.mode = RunMode::kQlora, run.lora_rank = 8, run.lora_targets = 1;
        run.memory.frozen = DType::kNF4;
      },
      *model::find_planned_preset("phi-3-mini-4k"));
  refused("train.precision other than",
          [](RunSpec& run, Options&) { run.compute = run.weight = DType::kF32; });
  refused("a gradient is freed before the next micro-batch",
          [](RunSpec& run, Options& o) { run.accumulate = 2, o["optimizer_in_backward"] = "true"; });
  refused("plan.offload_activations without recomputation",
          [](RunSpec& run, Options&) { run.memory.activations_in = Tier::kPinned; });
  refused("fsdp_cpu_offload of its distributed recipes", [](RunSpec& run, Options&) {
    run.memory.weights_in = Tier::kPinned;
    run.parallel.data = 8, run.parallel.zero = 3;
  });
  // CPUOffloadPolicy: the device has what is gathered, the host the shards.
  RunSpec offloaded = mixed_precision();
  offloaded.recompute = Recompute::kFull;
  offloaded.parallel.data = 8, offloaded.parallel.zero = 3;
  const MemoryReport kept = estimate_torchtune(offloaded);
  offloaded.memory.weights_in = offloaded.memory.optimizer_in = Tier::kPinned;
  const MemoryReport moved = estimate_torchtune(offloaded, {{"offload_gradients", "cpu"}});
  BOOST_TEST(has_note(moved, "fsdp_cpu_offload"));
  // Embedding and head, 1 GiB each, are freed with their units.
  const MemoryReport apart =
      estimate_torchtune(offloaded, {{"offload_gradients", "cpu"}, {"separate_ends", "true"}});
  BOOST_TEST(has_note(apart, "the embedding, the head and the model are units"));
  BOOST_TEST(apart.tier_bytes(Tier::kDevice) + (1u << 30) < moved.tier_bytes(Tier::kDevice));
  // Weights and moments: 6 bytes per element.
  const std::uint64_t part = 8'030'261'248 / 8;
  BOOST_TEST(moved.tier_bytes(Tier::kDevice) + 5 * part < kept.tier_bytes(Tier::kDevice));
  BOOST_TEST(moved.tier_bytes(Tier::kHost) == 4 * part);
  BOOST_TEST(moved.tier_bytes(Tier::kPinned) >= 4 * part);
  refused("with several ranks in torchtune", [](RunSpec& run, Options&) { run.parallel.data = 8; });
  BOOST_CHECK_EXCEPTION(estimate(mixed_precision(), {{"execution", "compile"}}), plugin::PluginError,
                        [](const plugin::PluginError& e) { return e.status() == "unsupported"; });
}

BOOST_AUTO_TEST_CASE(runs_of_litgpt_are_replayed_and_others_of_it_are_refused) {
  const ModelSpec llama = *find_model_preset("llama-2-7b");
  RunSpec r = mixed_precision();
  r.mode = RunMode::kLora, r.lora_rank = 8, r.lora_targets = frameworks::kLoraQ | frameworks::kLoraV;
  const auto estimate_litgpt = [](const RunSpec& run, const ModelSpec& m) {
    return estimate(run, {{"framework", "litgpt"}, {"cross_entropy", "plain"}}, m);
  };
  const MemoryReport report = estimate_litgpt(r, llama);
  // 4,194,304 trained parameters, and their moments.
  BOOST_TEST(report.component_bytes(Component::kWeights) == 2u * (6'738'415'616 + 4'194'304));
  BOOST_TEST(report.component_bytes(Component::kOptimizerState) == 4u * 4'194'304);
  BOOST_TEST(has_note(report, "litgpt has weights and moments in bf16"));
  RunSpec wide = r;
  wide.memory.frozen = DType::kF32;
  const MemoryReport mixed = estimate_litgpt(wide, llama);
  BOOST_TEST(mixed.component_bytes(Component::kWeights) == 4u * (6'738'415'616 + 4'194'304));
  BOOST_TEST(has_note(mixed, "f32 and autocast to bf16 (bf16-mixed)"));
  wide.memory.frozen = DType::kNone, wide.compute = wide.weight = DType::kF32;
  BOOST_TEST(has_note(estimate_litgpt(wide, llama), "every tensor in f32 (32-true)"));
  RunSpec full = r;
  full.mode = RunMode::kFull, full.lora_rank = full.lora_targets = 0;
  BOOST_TEST(estimate_litgpt(full, llama_8b()).component_bytes(Component::kOptimizerState) ==
             4u * model::count(model::from_model(llama_8b())).total);
  RunSpec sharded = r;
  sharded.parallel.data = 8, sharded.parallel.zero = 3, sharded.recompute = Recompute::kFull;
  BOOST_TEST(has_note(estimate_litgpt(sharded, llama_8b()), "FSDP2: 8 ranks"));
  // Before August 2025 a layer had one flat parameter.
  const MemoryReport flat =
      estimate(sharded, {{"framework", "litgpt"}, {"cross_entropy", "plain"}, {"framework_version", "0.5"}},
               llama_8b());
  BOOST_TEST(has_note(flat, "FSDP1: 8 ranks"));
  BOOST_TEST(has_note(flat, "one flat parameter of frozen and trained weights"));
  const auto refused = [&](const std::string& what, const auto& set, const ModelSpec& m) {
    RunSpec run = r;
    set(run);
    check_refused(run, {{"framework", "litgpt"}, {"cross_entropy", "plain"}}, what, m);
  };
  refused(
      "this base of litgpt", [](RunSpec& run) { run.mode = RunMode::kQlora, run.memory.frozen = DType::kI8; },
      llama);
  refused(
      "these lora.targets in litgpt", [](RunSpec& run) { run.lora_targets = frameworks::kLoraUp; }, llama);
  refused(
      "recomputation in litgpt", [](RunSpec& run) { run.recompute = Recompute::kFull; }, llama);
  refused(
      "several ranks without recomputation", [](RunSpec& run) { run.parallel.data = 2; }, llama);
  refused(
      "parallel.zero = 0 with several ranks",
      [](RunSpec& run) { run.parallel.data = 2, run.recompute = Recompute::kFull; }, llama);
  refused(
      "plan.moments = \"bf16\"",
      [](RunSpec& run) {
        run.mode = RunMode::kFull, run.lora_rank = run.lora_targets = 0;
        run.weight = DType::kF32, run.moment = DType::kBF16;
      },
      llama);
  refused(
      "NF4 weights in f32",
      [](RunSpec& run) {
        run.mode = RunMode::kQlora, run.memory.frozen = DType::kNF4, run.compute = DType::kF32;
      },
      llama);
  refused(
      "lora.base = \"fp16\" in litgpt", [](RunSpec& run) { run.memory.frozen = DType::kF16; }, llama);
  refused(
      "a precision other than \"bf16\" and \"fp32\"",
      [](RunSpec& run) {
        run.mode = RunMode::kFull, run.lora_rank = run.lora_targets = 0, run.compute = DType::kF16;
      },
      llama);
  check_refused(r, {{"framework", "litgpt"}, {"cross_entropy", "plain"}, {"execution", "compile"}},
                "plan.execution = \"compile\"", llama);
  const ModelSpec gemma = *model::find_planned_preset("gemma-2-2b");
  refused(
      "this model in litgpt", [](RunSpec&) {}, gemma);
  r.mode = RunMode::kQlora, r.memory.frozen = DType::kNF4;
  const std::uint64_t linear = 6'738'415'616 - 32000ull * 4096 - 65 * 4096;  // with the head
  const std::uint64_t nf4 = estimate_litgpt(r, llama).component_bytes(Component::kWeights);
  const std::uint64_t embedding = 2 * 32000ull * 4096;  // bytes; counted as it was and as it replaces itself
  BOOST_TEST(nf4 > 2 * embedding + linear / 2 + linear / 16);  // a scale of 4 bytes per 64 elements
  BOOST_TEST(nf4 < 2 * embedding + linear / 2 + linear / 16 + 30'000'000);
}

BOOST_AUTO_TEST_CASE(full_training_in_litgpt_allocates_what_pytorch_counts) {
  std::size_t cases = 0, sharded = 0;
  for (const nlohmann::json& record : test::oracle_records("litgpt-full")) {
    const nlohmann::json& c = record.at("case");
    const bool shards = c.contains("fsdp");
    RunSpec r = run_of(c);
    // As core/framework_files writes bf16-mixed; run_of() has bf16-true and 32-true.
    if (c.at("precision") == "autocast" || (shards && c.at("fsdp").at("param") == "bf16"))
      r.compute = DType::kBF16, r.weight = DType::kF32, r.master = DType::kNone;
    if (shards) r.parallel.data = c.at("fsdp").at("world"), r.parallel.zero = 3;
    pytorch::Options o = options_of(c);
    o.framework = pytorch::Framework::kLitgpt;
    BOOST_TEST_CONTEXT("case " << record.at("n") << ": " << c.dump())
    BOOST_TEST(replayed_peak(c, r, o) == measured_peak(record));
    ++cases;
    sharded += shards ? 1 : 0;
  }
  BOOST_TEST(cases == 36u);
  BOOST_TEST(sharded >= 28u);
}

BOOST_AUTO_TEST_CASE(litgpt_shards_full_training_by_flat_parameters) {
  RunSpec r = mixed_precision();
  r.parallel.data = 8, r.parallel.zero = 3, r.recompute = Recompute::kFull;
  const auto of = [&] { return estimate(r, {{"framework", "litgpt"}, {"cross_entropy", "plain"}}); };
  const std::uint64_t parameters = model::count(model::from_model(llama_8b())).total;
  const auto moments = [](const MemoryReport& report) {
    return report.component_bytes(Component::kOptimizerState);
  };
  const MemoryReport narrow = of();
  BOOST_TEST(has_note(narrow, "FSDP1: 8 ranks"));
  BOOST_TEST(has_note(narrow, "(bf16-true)"));
  BOOST_TEST(moments(narrow) >= 2u * 2 * parameters / 8);
  BOOST_TEST(moments(narrow) < 2u * 2 * parameters / 8 + (1u << 20));
  r.weight = DType::kF32, r.master = DType::kNone;
  const MemoryReport mixed = of();
  BOOST_TEST(has_note(mixed, "(bf16-mixed)"));
  BOOST_TEST(moments(mixed) >= 2u * 4 * parameters / 8);
  BOOST_TEST(moments(mixed) < 2u * 4 * parameters / 8 + (1u << 20));
}

BOOST_AUTO_TEST_CASE(a_distributed_optimizer_of_one_rank_divides_nothing) {
  RunSpec r = mixed_precision();
  r.grad = DType::kF32, r.moment = DType::kF32;
  r.memory.cross_entropy = CrossEntropy::kInPlace;
  r.parallel.zero = 1;
  const auto notes = [&](std::uint32_t data) {
    r.parallel.data = data;
    return estimate(r, {{"framework", "megatron"}});
  };
  BOOST_TEST(has_note(notes(1), "nothing is divided, because there is one data and context rank"));
  BOOST_TEST(has_note(notes(2), "main weights and moments are divided over 2 ranks (data and context)."));
}

BOOST_AUTO_TEST_SUITE_END()
