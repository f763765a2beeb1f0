// The replay of a training loop of one's own with models of transformers 5, compared with what the validation
// of fitcheck-llm 0.3.1 measured on a Tesla T4: peaks of allocated and of reserved bytes. Settings, and what
// deviates: docs/published-runs.md ("A training loop of one's own").
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <cstdio>

#include "core/base/error.hpp"
#include "core/model/presets.hpp"
#include "plugins/estimators/pytorch/settings.hpp"

using namespace trainhost;

namespace {

constexpr AttentionMemory kEager = AttentionMemory::kMaterialised, kSdpa = AttentionMemory::kFlash;

struct MeasuredLoop {
  const char* model;
  DType base;  // of the frozen weights
  AttentionMemory attention;
  std::uint32_t sequences, tokens, rank;
  double allocated, reserved;              // MiB
  double allocated_error, reserved_error;  // of the replay, percent, as documented
};

// One sequence length and base after the other; the first two models have as many heads of keys as of
// queries.
constexpr MeasuredLoop kMeasuredLoops[] = {
    {"smollm2-1.7b", DType::kF16, kSdpa, 4, 1024, 32, 6528.748, 7094, 0.00, 0.0},
    {"smollm2-1.7b", DType::kF16, kSdpa, 1, 2048, 32, 4976.982, 5398, 0.00, 0.0},
    {"smollm2-1.7b", DType::kF16, kEager, 4, 1024, 32, 6536.748, 7734, 0.00, 3.3},
    {"smollm2-1.7b", DType::kF16, kEager, 1, 2048, 32, 5706.232, 7146, 0.00, -3.6},
    {"smollm2-1.7b", DType::kNF4, kSdpa, 4, 1024, 32, 5281.271, 5940, 0.00, -1.7},
    {"smollm2-1.7b", DType::kNF4, kSdpa, 1, 2048, 32, 3345.756, 3796, -0.00, -2.6},
    {"smollm2-1.7b", DType::kNF4, kEager, 4, 1024, 32, 5297.271, 6996, 0.00, -0.8},
    {"smollm2-1.7b", DType::kNF4, kEager, 1, 2048, 32, 4323.006, 4820, -0.00, 14.3},
    {"deepseek-coder-1.3b", DType::kNF4, kSdpa, 1, 1024, 16, 1971.736, 2172, -1.15, 1.7},
    {"deepseek-coder-1.3b", DType::kNF4, kEager, 1, 1024, 16, 1975.486, 2274, -1.13, 0.5},
    {"smollm2-135m", DType::kF16, kSdpa, 2, 512, 32, 1026.919, 1070, -0.37, 0.0},
    {"smollm2-135m", DType::kF16, kSdpa, 1, 4096, 32, 3148.107, 3284, -0.00, 0.0},
    {"smollm2-135m", DType::kF16, kEager, 2, 512, 32, 1027.294, 1104, -0.30, 0.0},
    {"smollm2-135m", DType::kF16, kEager, 1, 4096, 32, 3180.107, 4476, -0.00, -6.4},
    {"smollm2-135m", DType::kNF4, kSdpa, 2, 512, 32, 1063.814, 1194, -0.20, -5.5},
    {"smollm2-135m", DType::kNF4, kSdpa, 1, 4096, 32, 3576.751, 3784, 0.00, -0.4},
    {"smollm2-135m", DType::kNF4, kEager, 2, 512, 32, 1067.189, 1192, -0.33, -4.5},
    {"smollm2-135m", DType::kNF4, kEager, 1, 4096, 32, 3679.267, 5224, -0.02, -0.5},
    {"smollm2-360m", DType::kF16, kSdpa, 1, 4096, 32, 3754.777, 3912, -0.78, -0.4},
    {"smollm2-360m", DType::kF16, kEager, 1, 4096, 32, 4908.512, 7304, -0.37, -6.5},
    {"smollm2-360m", DType::kNF4, kSdpa, 1, 4096, 32, 4017.842, 4518, -0.21, -3.4},
    {"smollm2-360m", DType::kNF4, kEager, 1, 4096, 32, 5687.154, 8164, -0.28, -2.5},
    {"tinyllama-1.1b", DType::kF16, kSdpa, 2, 512, 32, 2756.193, 2880, -0.18, 0.0},
    {"tinyllama-1.1b", DType::kF16, kSdpa, 2, 1024, 32, 3287.834, 3532, -0.09, 0.0},
    {"tinyllama-1.1b", DType::kF16, kSdpa, 2, 2048, 32, 4354.115, 4696, -0.05, 0.0},
    {"tinyllama-1.1b", DType::kF16, kEager, 2, 512, 32, 2757.193, 2908, -0.18, 0.0},
    {"tinyllama-1.1b", DType::kF16, kEager, 2, 1024, 32, 3518.084, 4226, -0.06, -8.9},
    {"tinyllama-1.1b", DType::kF16, kEager, 2, 2048, 32, 6616.115, 7662, -0.03, -6.7},
    {"tinyllama-1.1b", DType::kNF4, kSdpa, 2, 512, 32, 1849.319, 2054, -1.38, 1.8},
    {"tinyllama-1.1b", DType::kNF4, kSdpa, 1, 1024, 32, 1843.073, 2034, -1.03, 2.8},
    {"tinyllama-1.1b", DType::kNF4, kSdpa, 2, 1024, 32, 2531.585, 2896, -0.93, -0.3},
    {"tinyllama-1.1b", DType::kNF4, kSdpa, 4, 1024, 32, 3895.608, 4886, -0.50, -6.2},
    {"tinyllama-1.1b", DType::kNF4, kSdpa, 8, 1024, 32, 6631.655, 8038, -0.29, -1.4},
    {"tinyllama-1.1b", DType::kNF4, kSdpa, 12, 1024, 32, 9371.702, 11258, -0.25, 0.0},
    {"tinyllama-1.1b", DType::kNF4, kSdpa, 2, 2048, 32, 3895.866, 4750, -0.49, -3.5},
    {"tinyllama-1.1b", DType::kNF4, kEager, 2, 512, 32, 1850.319, 2216, -1.32, -1.8},
    {"tinyllama-1.1b", DType::kNF4, kEager, 1, 1024, 32, 2020.448, 2356, -1.11, 4.0},
    {"tinyllama-1.1b", DType::kNF4, kEager, 2, 1024, 32, 2876.335, 3666, -0.73, -0.4},
    {"tinyllama-1.1b", DType::kNF4, kEager, 4, 1024, 32, 4589.608, 6172, -0.42, -2.0},
    {"tinyllama-1.1b", DType::kNF4, kEager, 8, 1024, 32, 8017.905, 11032, -0.23, -1.6},
    {"tinyllama-1.1b", DType::kNF4, kEager, 2, 2048, 32, 6650.991, 7840, -0.25, -2.7},
    {"llama-3.2-1b", DType::kNF4, kSdpa, 1, 1024, 16, 3723.084, 4026, -0.08, -3.1},
    {"llama-3.2-1b", DType::kNF4, kEager, 1, 1024, 16, 3728.084, 4058, -0.11, 0.9},
    {"qwen2.5-1.5b", DType::kF16, kSdpa, 2, 1024, 32, 7401.810, 7766, -0.09, 0.3},
    {"qwen2.5-1.5b", DType::kF16, kSdpa, 1, 2048, 32, 7402.317, 7766, -0.09, 0.3},
    {"qwen2.5-1.5b", DType::kF16, kEager, 2, 1024, 32, 7405.810, 7910, -0.09, 0.6},
    {"qwen2.5-1.5b", DType::kF16, kEager, 1, 2048, 32, 7410.317, 8122, -0.09, 1.0},
    {"qwen2.5-1.5b", DType::kNF4, kSdpa, 1, 1024, 16, 4235.154, 5212, -0.62, -15.8},
    {"qwen2.5-1.5b", DType::kNF4, kSdpa, 2, 1024, 32, 6827.666, 7400, -0.31, -2.9},
    {"qwen2.5-1.5b", DType::kNF4, kSdpa, 1, 2048, 32, 6831.174, 7604, -0.34, -5.5},
    {"qwen2.5-1.5b", DType::kNF4, kEager, 1, 1024, 16, 4235.779, 5060, -0.54, -12.0},
    {"qwen2.5-1.5b", DType::kNF4, kEager, 2, 1024, 32, 6838.541, 7548, -0.35, -3.2},
    {"qwen2.5-1.5b", DType::kNF4, kEager, 1, 2048, 32, 6850.049, 7584, -0.39, -1.0},
    {"llama-3.2-3b", DType::kNF4, kSdpa, 1, 1024, 16, 5495.035, 6268, -0.09, -6.4},
    {"llama-3.2-3b", DType::kNF4, kEager, 1, 1024, 16, 5498.535, 6212, -0.08, -5.6},
    {"mistral-7b-v0.3", DType::kNF4, kSdpa, 1, 1024, 16, 6056.275, 6400, -0.82, 0.1},
    {"mistral-7b-v0.3", DType::kNF4, kEager, 1, 1024, 16, 6190.584, 6740, -0.19, 0.5},
    {"qwen2.5-7b", DType::kNF4, kSdpa, 1, 1024, 16, 10585.814, 11880, -0.11, -4.6},
    {"qwen2.5-7b", DType::kNF4, kEager, 1, 1024, 16, 10584.768, 11746, -0.06, -2.5},
};

/// A model in f16, or prepared for training in 4 bits, without mixed precision; adapters of q, k, v and o in
/// f32; AdamW; checkpoints that are not reentrant.
struct Loop {
  RunSpec run;
  pytorch::Options options;
};

Loop loop_of(const MeasuredLoop& m) {
  Loop l;
  RunSpec& r = l.run;
  r.micro_batch = m.sequences, r.seq_len = m.tokens;
  r.weight = r.compute = DType::kF32, r.master = DType::kNone;
  r.recompute = Recompute::kFull;
  r.mode = m.base == DType::kNF4 ? RunMode::kQlora : RunMode::kLora;
  r.memory.frozen = m.base;
  r.memory.attention = m.attention;
  r.lora_rank = m.rank;
  r.lora_targets = frameworks::kLoraQ | frameworks::kLoraK | frameworks::kLoraV | frameworks::kLoraO;
  l.options.name = "transformers", l.options.by_accelerate = true;
  l.options.kept_logits = frameworks::KeptLogits::kBackward;
  if (m.base == DType::kNF4) l.options.product_type = frameworks::Element::kF16;
  l.options.products.capability = 75;
  return l;
}

model::Architecture architecture_of(const char* preset) {
  const ModelSpec* trained = find_model_preset(preset);
  return model::from_model(trained ? *trained : *model::find_planned_preset(preset));
}

std::uint64_t peak_of(const char* preset, const Loop& l, std::vector<std::string>* notes = nullptr) {
  const model::Architecture a = architecture_of(preset);
  std::vector<std::string> said;
  return frameworks::CalculatedStep(a, pytorch::step_settings(a, l.run, l.options, notes ? *notes : said))
      .peak_bytes();
}

std::string refusal(const Loop& l) {
  try {
    peak_of("smollm2-135m", l);
    return "";
  } catch (const Error& e) {
    return e.what();
  }
}

constexpr MeasuredLoop kSmall = {"smollm2-135m", DType::kNF4, kSdpa, 2, 512, 8, 0, 0, 0, 0};

}  // namespace

BOOST_AUTO_TEST_SUITE(own_loop_runs)

BOOST_AUTO_TEST_CASE(the_replay_of_a_loop_is_near_its_published_runs) {
  double sum = 0, sum_reserved = 0;
  for (const MeasuredLoop& m : kMeasuredLoops) {
    const model::Architecture a = architecture_of(m.model);
    const Loop l = loop_of(m);
    std::vector<std::string> notes;
    frameworks::CalculatedStep step(a, pytorch::step_settings(a, l.run, l.options, notes));
    const auto percent = [](std::uint64_t planned, double measured) {
      return 100 * (static_cast<double>(planned) / (1 << 20) / measured - 1);
    };
    const double error = percent(step.peak_bytes(), m.allocated),
                 reserved = percent(step.replay({}, 0).reserved, m.reserved);
    std::printf("%-19s %2u x %4u: %+.2f %%, %+.1f %%\n", m.model, m.sequences, m.tokens, error, reserved);
    BOOST_TEST(std::abs(error - m.allocated_error) < 0.006, m.model << ": " << error);
    BOOST_TEST(std::abs(reserved - m.reserved_error) < 0.06, m.model << ": " << reserved);
    sum += std::abs(error), sum_reserved += std::abs(reserved);
  }
  std::printf("mean: allocated %.2f %%, reserved %.1f %%\n", sum / std::size(kMeasuredLoops),
              sum_reserved / std::size(kMeasuredLoops));
}

BOOST_AUTO_TEST_CASE(kept_logits_are_those_of_the_head_in_its_type) {
  for (const DType base : {DType::kNF4, DType::kF16}) {
    Loop l = loop_of(kSmall);
    if (base == DType::kF16)
      l.run.mode = RunMode::kLora, l.run.memory.frozen = base, l.options.product_type = {};
    const std::uint64_t kept = peak_of("smollm2-135m", l);
    l.options.kept_logits = frameworks::KeptLogits::kLoop;
    BOOST_TEST(peak_of("smollm2-135m", l) == kept);  // the peak is in the backward pass
    l.options.kept_logits = frameworks::KeptLogits::kNone;
    // prepare_model_for_kbit_training() casts the head to f32.
    const std::uint64_t logits = 2ull * 512 * 49152 * (base == DType::kNF4 ? 4 : 2);
    BOOST_TEST(peak_of("smollm2-135m", l) + logits == kept);
  }
}

BOOST_AUTO_TEST_CASE(settings_of_a_loop_without_effect_are_refused) {
  BOOST_TEST(refusal(loop_of(kSmall)) == "");
  Loop l = loop_of(kSmall);
  using pytorch::Framework;
  for (const auto& [name, framework] : {std::pair{"axolotl", Framework::kPlain},
                                        {"torchtune", Framework::kTorchtune},
                                        {"litgpt", Framework::kLitgpt},
                                        {"megatron", Framework::kMegatron},
                                        {"torchtitan", Framework::kTorchtitan}}) {
    l = loop_of(kSmall);
    l.options.name = name, l.options.framework = framework;
    l.options.product_type.reset();
    BOOST_TEST(refusal(l).find("plan.keep_logits of " + std::string(name) +
                               ": its own training loop keeps the loss only") != std::string::npos,
               refusal(l));
    if (framework == Framework::kPlain) continue;
    l.options.kept_logits = frameworks::KeptLogits::kNone;
    l.options.product_type = frameworks::Element::kF16;
    BOOST_TEST(refusal(l).find("plan.quant_compute of " + std::string(name)) != std::string::npos,
               refusal(l));
  }
  l = loop_of(kSmall), l.options.liger.loss = true;
  BOOST_TEST(refusal(l).find("no logits are materialised") != std::string::npos);
  l = loop_of(kSmall), l.run.compute = DType::kBF16;
  BOOST_TEST(refusal(l).find("plan.quant_compute: it is the type of products over a base in 4 bits without "
                             "mixed precision") != std::string::npos);
}

// Of devices before compute capability 8.0.
BOOST_AUTO_TEST_CASE(sdpa_of_older_devices_materialises_the_scores_in_bf16_only) {
  const auto peak = [](DType compute, std::uint32_t capability, const char* expected) {
    Loop l = loop_of(kSmall);
    l.options.product_type.reset();
    l.run.micro_batch = 1, l.run.seq_len = 8192;
    l.options.kept_logits = frameworks::KeptLogits::kNone;
    l.run.compute = l.run.weight = compute;
    l.options.products.capability = capability;
    std::vector<std::string> notes;
    const std::uint64_t bytes = peak_of("smollm2-135m", l, &notes);
    const bool said = std::ranges::any_of(
        notes, [&](const std::string& n) { return n.find(expected) != std::string::npos; });
    BOOST_TEST((*expected ? said
                          : std::ranges::none_of(notes,
                                                 [](const std::string& n) {
                                                   return n.find("Compute capability") != std::string::npos;
                                                 })),
               expected);
    return bytes;
  };
  // The scores of the nine heads of a layer in f32; at their peak there are four such tensors.
  const std::uint64_t scores = 9ull * 8192 * 8192 * 4;
  const std::uint64_t flash = peak(DType::kBF16, 80, "");
  BOOST_TEST(peak(DType::kBF16, 75, "has no kernel of SDPA for bf16: the scores") > flash + scores);
  BOOST_TEST(peak(DType::kF16, 75, "SDPA takes the memory-efficient kernel") < flash + scores / 4);
  Loop l = loop_of(kSmall);
  l.options.flash_attention_2 = true;
  BOOST_TEST(refusal(l).find("plan.attention = \"flash_attention_2\" on compute capability 7.5") !=
             std::string::npos);
  l.options.products.capability = 80;
  BOOST_TEST(refusal(l) == "");
}

// Head and loss of TRL, which multiplies tiles.
BOOST_AUTO_TEST_CASE(the_fused_head_of_trl_keeps_no_logits) {
  constexpr std::uint64_t kVocabulary = 49152, kHidden = 576, kTokens = 8192;
  const auto largest = [](RunMode mode, bool tiled) {
    Loop l = loop_of(kSmall);
    l.run.mode = mode, l.run.seq_len = kTokens, l.run.micro_batch = 1;
    l.run.compute = DType::kBF16, l.run.weight = l.run.memory.frozen = DType::kBF16;
    l.options.kept_logits = frameworks::KeptLogits::kNone, l.options.product_type.reset();
    l.options.products.capability = 90;
    l.options.tiled_loss = tiled;
    const model::Architecture a = architecture_of("smollm2-135m");
    std::vector<std::string> notes;
    frameworks::CalculatedStep step(a, pytorch::step_settings(a, l.run, l.options, notes));
    std::vector<std::uint64_t> bytes;
    for (const frameworks::TraceStorage& s : step.trace().storages)
      if (s.purpose == frameworks::Purpose::kLogits) bytes.push_back(s.bytes);
    std::ranges::sort(bytes, std::greater());
    return bytes;
  };
  BOOST_TEST(largest(RunMode::kLora, false).front() == kTokens * kVocabulary * 4);
  // A tile in bf16, in the forward and in the backward pass of a step.
  const auto lora = largest(RunMode::kLora, true);
  constexpr std::uint64_t kTile = 4096 * 32768 * 2;
  BOOST_TEST(std::ranges::count(lora, kTile) == 2);
  BOOST_TEST(lora[2] == (kTokens - 1) * kHidden * 4);  // gradient of the hidden states, in f32
  // The gradient of the head is summed in f32.
  const auto full = largest(RunMode::kFull, true);
  BOOST_TEST(std::ranges::count(full, kVocabulary * kHidden * 4) == 1);
  Loop l = loop_of(kSmall);
  l.options.tiled_loss = true;
  BOOST_TEST(refusal(l).find("plan.keep_logits with this plan.cross_entropy") != std::string::npos);
  l.options.kept_logits = frameworks::KeptLogits::kNone;
  BOOST_TEST(refusal(l) == "");
  // Sharded as accelerate does it, and in an older release.
  l.options.name = "transformers", l.options.by_accelerate = true;
  l.run.mode = RunMode::kLora, l.run.compute = DType::kBF16, l.run.memory.frozen = DType::kBF16;
  l.options.product_type.reset();
  l.run.parallel.data = 2, l.run.parallel.zero = 3;
  BOOST_TEST(refusal(l) == "");
  l.options.release = frameworks::TransformersRelease::k454;
  BOOST_TEST(refusal(l).find("the fused head of TRL in transformers") != std::string::npos);
}

// accelerate converts what a model returns in mixed precision; a loop of PyTorch does not.
BOOST_AUTO_TEST_CASE(logits_that_accelerate_returns_in_mixed_precision_are_f32) {
  constexpr std::uint64_t kVocabulary = 49152, kTokens = 512;
  const auto kept = [](const char* name, DType compute) {
    Loop l = loop_of(kSmall);
    l.run.mode = RunMode::kFull, l.run.seq_len = kTokens, l.run.micro_batch = 1;
    l.run.compute = compute, l.run.weight = DType::kF32, l.run.master = DType::kNone;
    l.options.name = name, l.options.kept_logits = frameworks::KeptLogits::kLoop;
    l.options.product_type.reset();
    l.options.products.capability = 90;
    const model::Architecture a = architecture_of("smollm2-135m");
    std::vector<std::string> notes;
    const auto bytes = [&](frameworks::KeptLogits until) {
      l.options.kept_logits = until;
      frameworks::StepSettings s = pytorch::step_settings(a, l.run, l.options, notes);
      s.optimizer = Optimizer::kSgd;
      return frameworks::CalculatedStep(a, s).peak_bytes();
    };
    return bytes(frameworks::KeptLogits::kLoop) - bytes(frameworks::KeptLogits::kNone);
  };
  constexpr std::uint64_t kElements = kVocabulary * kTokens;
  BOOST_TEST(kept("pytorch", DType::kBF16) == 2 * kElements);
  BOOST_TEST(kept("transformers", DType::kBF16) == 4 * kElements);
  BOOST_TEST(kept("transformers", DType::kF32) == 4 * kElements);
}

BOOST_AUTO_TEST_SUITE_END()
