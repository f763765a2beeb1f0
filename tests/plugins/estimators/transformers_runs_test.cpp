// The replay of transformers 4 compared with what the benchmarks of fms-acceleration measured on A100 with 80
// GB: peaks of torch.cuda.max_memory_allocated(), to the byte. Settings, and runs that are not here:
// docs/published-runs.md ("transformers 4").
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <cstdio>

#include "core/base/error.hpp"
#include "core/model/presets.hpp"
#include "plugins/estimators/pytorch/settings.hpp"

using namespace trainhost;

namespace {

/// kQloraOfTrl: as SFTTrainer of TRL 0.13 prepares it.
enum class Trained : std::uint8_t { kFull, kLora, kQlora, kQloraOfTrl };

struct MeasuredStep {
  const char* model;
  Trained kind;
  std::uint32_t gpus, sequences;  // of 4,096 tokens, per GPU
  std::uint64_t measured;         // bytes
  double error;                   // of the replay, percent, as documented
  const char* release = nullptr;  // none: 4.48.1, or 4.45.2 for Granite
};

constexpr MeasuredStep kMeasuredSteps[] = {
    {"mistral-7b-v0.1", Trained::kFull, 1, 4, 72'434'837'504, 0.0},
    {"mistral-7b-v0.1", Trained::kFull, 1, 8, 72'435'230'720, 0.0},
    {"mistral-7b-v0.1", Trained::kFull, 2, 2, 36'225'939'968, 0.0},
    {"mistral-7b-v0.1", Trained::kFull, 2, 4, 36'226'136'576, 0.0},
    {"mistral-7b-v0.1", Trained::kLora, 1, 4, 26'704'571'904, -0.01},
    {"mistral-7b-v0.1", Trained::kLora, 1, 8, 38'742'912'512, -0.01},
    {"mistral-7b-v0.1", Trained::kQlora, 1, 4, 16'373'838'336, -0.01},
    {"mistral-7b-v0.1", Trained::kQlora, 1, 8, 28'412'178'944, -0.01},
    {"mistral-7b-v0.1", Trained::kLora, 2, 2, 15'144'870'400, 0.0},
    {"mistral-7b-v0.1", Trained::kLora, 2, 4, 21'959'827'968, 0.0},
    {"mistral-7b-v0.1", Trained::kQlora, 2, 2, 9'424'594'432, 0.0},
    {"mistral-7b-v0.1", Trained::kQlora, 2, 4, 15'970'067'968, 0.0},
    {"llama-2-70b", Trained::kQlora, 1, 4, 68'126'381'056, -0.02},
    {"llama-2-70b", Trained::kQlora, 2, 2, 46'685'287'936, 0.0},
    {"mistral-7b-v0.1", Trained::kQloraOfTrl, 1, 4, 20'669'338'112, -0.01},
    {"mistral-7b-v0.1", Trained::kQloraOfTrl, 1, 8, 37'002'646'016, -0.01},
    {"mixtral-8x7b-v0.1", Trained::kQloraOfTrl, 1, 4, 42'794'268'160, -0.68},
    {"mixtral-8x7b-v0.1", Trained::kQloraOfTrl, 1, 8, 60'545'920'512, -0.54},
    {"PowerLM-3b", Trained::kQloraOfTrl, 1, 4, 18'174'161'920, -0.03},
    {"PowerLM-3b", Trained::kQloraOfTrl, 1, 8, 34'177'070'080, -0.01},
    {"mixtral-8x7b-v0.1", Trained::kLora, 2, 2, 57'554'708'992, -0.03},
    {"mixtral-8x7b-v0.1", Trained::kLora, 2, 4, 64'851'605'504, -0.06},
    {"mixtral-8x7b-v0.1", Trained::kQlora, 1, 4, 36'731'843'072, 0.0},
    {"mixtral-8x7b-v0.1", Trained::kQlora, 1, 8, 48'770'183'680, 0.0},
    {"mixtral-8x7b-v0.1", Trained::kQlora, 2, 2, 21'126'185'472, -0.02},
    {"mixtral-8x7b-v0.1", Trained::kQlora, 2, 4, 28'154'534'912, -0.08},
    {"PowerLM-3b", Trained::kFull, 1, 4, 35'134'836'736, -0.03},
    {"PowerLM-3b", Trained::kFull, 1, 8, 47'059'390'976, -0.02},
    {"PowerLM-3b", Trained::kFull, 2, 2, 17'626'672'128, -0.31},
    {"PowerLM-3b", Trained::kFull, 2, 4, 23'781'051'904, -0.08},
    {"PowerLM-3b", Trained::kLora, 2, 2, 10'321'519'104, -0.03},
    {"PowerLM-3b", Trained::kLora, 2, 4, 16'819'665'408, -0.05},
    {"PowerLM-3b", Trained::kLora, 1, 4, 20'169'870'848, -0.02},
    {"PowerLM-3b", Trained::kLora, 1, 8, 33'152'880'128, -0.01},
    {"PowerLM-3b", Trained::kQlora, 2, 2, 7'826'759'168, -0.02},
    {"PowerLM-3b", Trained::kQlora, 2, 4, 14'319'836'672, -0.02},
    {"PowerLM-3b", Trained::kQlora, 1, 4, 15'151'677'952, -0.03},
    {"PowerLM-3b", Trained::kQlora, 1, 8, 28'134'687'232, -0.01},
    {"mistral-7b-v0.1", Trained::kFull, 1, 4, 72'434'853'376, 0.0, "4.44.2"},
    {"mistral-7b-v0.1", Trained::kFull, 1, 8, 72'435'246'592, 0.0, "4.44.2"},
    {"mistral-7b-v0.1", Trained::kLora, 1, 4, 25'681'144'320, 0.0, "4.44.2"},
    {"mistral-7b-v0.1", Trained::kLora, 2, 2, 14'975'934'464, 0.0, "4.44.2"},
    {"mistral-7b-v0.1", Trained::kLora, 1, 8, 36'670'876'160, 0.0, "4.44.2"},
    {"mistral-7b-v0.1", Trained::kLora, 2, 4, 21'622'071'296, 0.0, "4.44.2"},
    {"mistral-7b-v0.1", Trained::kQloraOfTrl, 1, 4, 20'556'796'416, -0.01, "4.44.2"},
    {"mistral-7b-v0.1", Trained::kQloraOfTrl, 1, 8, 36'801'860'096, -0.01, "4.44.2"},
    {"mistral-7b-v0.1", Trained::kQlora, 1, 4, 15'323'147'776, 0.01, "4.44.2"},
    {"mistral-7b-v0.1", Trained::kQlora, 2, 2, 9'525'273'600, 0.0, "4.44.2"},
    {"mistral-7b-v0.1", Trained::kQlora, 1, 8, 26'312'879'616, 0.0, "4.44.2"},
    {"mistral-7b-v0.1", Trained::kQlora, 2, 4, 16'171'410'432, 0.0, "4.44.2"},
    {"llama-2-70b", Trained::kQlora, 1, 4, 68'126'422'016, -0.02, "4.44.2"},
    {"llama-2-70b", Trained::kQlora, 2, 2, 46'684'804'608, 0.0, "4.44.2"},
    {"llama-2-70b", Trained::kQlora, 2, 4, 72'625'788'416, 0.0, "4.44.2"},
};

bool is_granite(const MeasuredStep& run) { return std::string_view(run.model) == "PowerLM-3b"; }

model::Architecture architecture_of_step(const MeasuredStep& run) {
  if (!is_granite(run)) {
    const ModelSpec* trained = find_model_preset(run.model);
    return model::from_model(trained ? *trained : *model::find_planned_preset(run.model));
  }
  return model::from_config(R"({"model_type": "granite", "vocab_size": 49152, "hidden_size": 2304,
    "intermediate_size": 9216, "num_hidden_layers": 40, "num_attention_heads": 36, "num_key_value_heads": 36,
    "max_position_embeddings": 4096, "tie_word_embeddings": true, "logits_scaling": 0.25})",
                            run.model);
}

frameworks::StepSettings settings_of_step(const model::Architecture& a, const MeasuredStep& run) {
  RunSpec r;
  r.micro_batch = run.sequences, r.seq_len = 4096;
  r.weight = r.compute = DType::kBF16, r.master = DType::kNone;
  r.recompute = Recompute::kFull;
  if (run.kind != Trained::kFull) {
    const bool packed = run.kind != Trained::kLora;
    r.mode = packed ? RunMode::kQlora : RunMode::kLora;
    r.memory.frozen = packed ? DType::kNF4 : DType::kBF16;
    r.memory.double_quantized = packed;
    // LoRA runs without `bf16` (4.44.2 has it): nothing is in mixed precision.
    if (run.kind == Trained::kLora && !run.release) r.compute = DType::kF32;
    r.lora_rank = 16;
    r.lora_targets = frameworks::kLoraQ | frameworks::kLoraK | frameworks::kLoraV | frameworks::kLoraO;
  }
  if (run.gpus > 1) r.parallel.data = run.gpus, r.parallel.zero = 3;
  pytorch::Options o;
  o.name = "transformers";
  o.by_accelerate = true, o.flat_parameters = run.gpus > 1;
  if (run.gpus > 1) o.backward_prefetch = frameworks::BackwardPrefetch::kBefore;
  o.release_name = run.release ? run.release : is_granite(run) ? "4.45.2" : "4.48.1";
  o.release = pytorch::transformers_release(o.release_name);
  o.loop = frameworks::OptimizerLoop::kForeach;
  o.flash_attention_2 = true;
  o.f32_norms = run.kind == Trained::kQloraOfTrl;
  o.lora_dropout = 0.1;
  o.products.capability = 80;
  std::vector<std::string> notes;
  return pytorch::step_settings(a, r, o, notes);
}

}  // namespace

BOOST_AUTO_TEST_SUITE(transformers_runs)

BOOST_AUTO_TEST_CASE(the_replay_of_transformers_4_is_within_1_percent_of_its_published_runs) {
  for (const MeasuredStep& run : kMeasuredSteps) {
    const model::Architecture a = architecture_of_step(run);
    const frameworks::CalculatedStep step(a, settings_of_step(a, run));
    const double error =
        100 * (static_cast<double>(step.peak_bytes()) / static_cast<double>(run.measured) - 1);
    std::printf("%-12s %u x %u: %+.2f %%\n", run.model, run.gpus, run.sequences, error);
    BOOST_TEST(std::abs(error - run.error) < 0.006, run.model << ": " << error);
  }
}

BOOST_AUTO_TEST_CASE(releases_are_recognised_by_their_numbers) {
  using frameworks::TransformersRelease;
  const std::pair<const char*, TransformersRelease> releases[] = {
      {"4.40", TransformersRelease::k445}, {"4.45.2", TransformersRelease::k445},
      {"4.46", TransformersRelease::k446}, {"4.48.1", TransformersRelease::k446},
      {"4.49", TransformersRelease::k449}, {"4.51.3", TransformersRelease::k449},
      {"4.52", TransformersRelease::k452}, {"4.53.3", TransformersRelease::k452},
      {"4.54", TransformersRelease::k454}, {"4.57.6", TransformersRelease::k454},
      {"5", TransformersRelease::k5},      {"5.24.0", TransformersRelease::k5},
  };
  for (const auto& [text, release] : releases)
    BOOST_TEST((pytorch::transformers_release(text) == release), text);
  for (const char* wrong :
       {"", "4", "4.58", "4.35", "3.5", "6", "4.x", "v4.57", "4.57.", "4.57.6.1", "4.-1", "4.99999999999"})
    BOOST_CHECK_EXCEPTION(pytorch::transformers_release(wrong), Error, [&](const Error& e) {
      return std::string(e.what()).find("plan.framework_version = \"" + std::string(wrong) + "\"") == 0 &&
             e.hint() == "write it as \"4.57\" or \"5\"";
    });
}

// Each sentence of set_release(), and the families that were run in a group of releases.
BOOST_AUTO_TEST_CASE(runs_of_older_releases_that_were_not_compared_are_refused) {
  using frameworks::TransformersRelease;
  const auto refusal = [](const char* preset, TransformersRelease release, auto change) {
    const ModelSpec* trained = find_model_preset(preset);
    const model::Architecture a = model::from_model(trained ? *trained : *model::find_planned_preset(preset));
    RunSpec run;
    run.seq_len = 512, run.micro_batch = 1;
    run.weight = run.compute = run.grad = run.moment = DType::kBF16, run.master = DType::kNone;
    pytorch::Options o;
    o.name = "transformers", o.release = release, o.release_name = "4.x";
    change(run, o);
    std::vector<std::string> notes;
    try {
      pytorch::step_settings(a, run, o, notes);
      return std::string();
    } catch (const Error& e) {
      return std::string(e.what());
    }
  };
  const auto has = [](const std::string& text, const char* words) {
    return text.find(words) != std::string::npos;
  };
  const auto as_it_is = [](RunSpec&, pytorch::Options&) {};
  constexpr auto k445 = TransformersRelease::k445, k446 = TransformersRelease::k446,
                 k449 = TransformersRelease::k449, k454 = TransformersRelease::k454;
  for (const TransformersRelease r : {k445, k446, k449, k454}) {
    BOOST_TEST(refusal("llama-3.2-1b", r, as_it_is) == "");
    BOOST_TEST((refusal("mixtral-8x7b-v0.1", r, as_it_is) == "") == (r != k445));
    BOOST_TEST((refusal("qwen3-30b-a3b", r, as_it_is) == "") == (r == k454));
    const auto adapted = [](RunSpec& run, auto&) {
      run.mode = RunMode::kLora, run.memory.frozen = DType::kBF16, run.lora_rank = 8;
      run.lora_targets = frameworks::kLoraGate | frameworks::kLoraUp;
    };
    BOOST_TEST(has(refusal("mixtral-8x7b-v0.1", r, adapted), "adapters of experts in transformers 4.x"));
    BOOST_TEST(
        has(refusal("llama-3.2-1b", r,
                    [](RunSpec& run, auto&) { run.memory.attention = AttentionMemory::kMaterialised; }),
            "plan.attention = \"materialised\" in transformers 4.x"));
    BOOST_TEST(has(refusal("llama-3.2-1b", r, [](auto&, pytorch::Options& o) { o.liger.loss = true; }),
                   "Liger, Cut Cross Entropy or DPO in transformers 4.x"));
    BOOST_TEST(has(refusal("gemma-2-2b", r, as_it_is), "the family 'gemma2' in transformers 4.x"));
  }
  // The newest has the least number.
  for (const auto& [preset, first] : {std::pair{"qwen2.5-0.5b", k445},
                                      {"mistral-7b-v0.1", k445},
                                      {"phi-3-mini-4k", k446},
                                      {"qwen3-0.6b", k454}})
    for (const TransformersRelease r : {k445, k446, k449, k454})
      BOOST_TEST((refusal(preset, r, as_it_is) == "") == (r <= first), preset << " " << int(r));
}

BOOST_AUTO_TEST_SUITE_END()
