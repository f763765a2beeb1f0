// See usual_run.hpp.
#include "core/runfile/usual_run.hpp"

#include <algorithm>
#include <optional>
#include <utility>

#include "core/model/framework_release.hpp"
#include "core/model/presets.hpp"
#include "core/runfile/combinations.hpp"

namespace trainhost::runfile {

namespace {

/// Full training in bf16 without f32 weights, which is the default of
/// - transformers 5: from_pretrained() loads a model in the type of its checkpoint (dtype="auto"), and
///   nothing casts it afterwards. Where config.json states no type, the checkpoint is assumed to be in bf16,
///   as those of today; those of GPT-2 are in f32;
/// - axolotl, which loads a model in the type of `bf16`;
/// - Unsloth (full_finetuning), unless float32_mixed_precision is true;
/// - litgpt, whose default precision is bf16-true.
/// accelerate casts what FSDP shards to f32.
bool trains_in_half_alone(const Settings& s, const ModelSpec& model) {
  for (const char* key : {"plan.weights", "plan.gradients", "plan.moments"})
    if (s.given(key)) return false;
  if (adapts(s) || s.text("plan.mode") == "inference" || s.text("train.precision") != "bf16") return false;
  const std::string framework = s.given("plan.framework") ? s.text("plan.framework") : "";
  if (framework == "litgpt") return true;
  if (u32(s, "parallel.zero") != 0) return false;
  if (framework == "axolotl" || framework == "unsloth") return true;
  if (framework != "transformers") return false;
  // Without torch_dtype, transformers 4 loads a model in f32.
  if (is_transformers_4(framework, s.given("plan.framework_version") ? s.text("plan.framework_version") : ""))
    return false;
  const std::optional<DType> stored = model_config_dtype(model);
  return stored ? *stored != DType::kF32 : model.family != "gpt2";
}

bool is_quantized(const Settings& s) {
  const std::string base = s.given("lora.base") ? s.text("lora.base") : "";
  return base == "nf4" || base == "int8";
}

/// Recomputation of every layer ("gradient checkpointing") is the default of
/// - LLaMA-Factory (disable_gradient_checkpointing = false);
/// - prepare_model_for_kbit_training() of peft, which transformers and TRL call for quantized weights.
bool recomputes_by_default(const Settings& s, const std::string& framework) {
  if (s.text("plan.mode") == "inference") return false;
  if (framework == "llama-factory") return true;
  return is_quantized(s) && (framework == "transformers" || framework == "pytorch" || framework == "fsdp2" ||
                             framework == "deepspeed");
}

}  // namespace

std::vector<RunConfig::Assumed> assume_usual_run(Settings& s, bool usual, const ModelSpec& model) {
  const std::uint64_t max_positions = model.max_positions;
  constexpr std::uint64_t kUsualTokens = 2048;
  const auto integer = [](std::uint64_t v) {
    Value value;
    value.kind = Value::Kind::kInteger;
    value.integer = static_cast<std::int64_t>(v);
    value.number = static_cast<double>(v);
    return value;
  };
  const auto number = [](double v) {
    Value value;
    value.kind = Value::Kind::kNumber;
    value.number = v;
    return value;
  };
  const auto pair = [&](double first, double second) {
    Value value;
    value.kind = Value::Kind::kList;
    value.items = {number(first), number(second)};
    return value;
  };
  Value yes;
  yes.kind = Value::Kind::kBool;
  yes.boolean = true;
  std::vector<RunConfig::Assumed> assumed;
  const auto assume = [&](const char* key, Value v) {
    if (s.given(key)) return;
    assumed.push_back({key, toml_value(v)});
    s.set(key, std::move(v));
  };
  // Before compute capability 8.0, mixed precision is that of fp16.
  const DevicePreset* device =
      s.given("memory.device") ? find_device_preset(s.text("memory.device")) : nullptr;
  std::string framework = s.given("plan.framework") ? s.text("plan.framework") : "";
  if (framework == "trainhost") framework.clear();  // as if it were not given
  // Recipes of torchtune refuse fp16; the default of litgpt is bf16 wherever PyTorch can emulate it.
  const bool emulates = framework == "torchtune" || framework == "litgpt" || framework == "torchtitan";
  const char* half =
      !emulates && device && device->bf16_tflops == 0 && device->fp16_tflops > 0 ? "fp16" : "bf16";
  if (usual || adapts(s)) assume("train.precision", text_value(half));
  const bool several = u32(s, "parallel.data") > 1;
  if (framework == "fsdp2" || framework == "deepspeed" ||
      (several && (framework == "torchtitan" || framework == "torchtune" || framework == "litgpt"))) {
    // What data-parallel ranks are for; FSDP2 and DeepSpeed do the same on one of them. DeepSpeed leaves
    // packed weights whole in stage 2.
    assume("parallel.zero", integer(framework == "deepspeed" && is_quantized(s) ? 2 : 3));
    if (framework == "litgpt") assume("train.recompute", text_value("full"));
  }
  if (framework == "unsloth" && s.text("plan.mode") != "inference") {
    // use_gradient_checkpointing = "unsloth", the default of FastLanguageModel: its checkpoints move the
    // inputs of the layers to host memory.
    assume("train.recompute", text_value("full"));
    if (s.text("train.recompute") == "full") assume("plan.offload_activations", text_value("cpu"));
    // r and target_modules of FastLanguageModel.get_peft_model().
    if (adapts(s)) {
      assume("lora.rank", integer(16));
      assume("lora.targets", text_value("all-linear"));
    }
  }
  // activation_checkpoint.mode = "selective" is the default of its JobConfig (0.1 to 0.2.2).
  if (framework == "torchtitan" && s.text("plan.mode") != "inference")
    assume("train.recompute", text_value("selective"));
  // Its tensor parallelism divides the tokens too; there is no setting.
  if (framework == "torchtitan" && u32(s, "parallel.tensor") > 1) assume("parallel.sequence", yes);
  if (recomputes_by_default(s, framework)) assume("train.recompute", text_value("full"));
  if (trains_in_half_alone(s, model)) assume("plan.master", text_value("none"));
  // gpt-oss of transformers has no SDPA, because its softmax has a sink: its scores exist.
  if (model.family == "gpt_oss" && (framework == "transformers" || framework == "pytorch"))
    assume("plan.attention", text_value("materialised"));
  const bool adapters = adapts(s), tunes = s.given("model.path");
  if (framework.empty()) {
    // Chen et al. 2023: a learning rate 3 to 10 times smaller than AdamW's, and as much more weight decay.
    // Its updates have the size of the learning rate in every element.
    if (s.text("optimizer.name") == "lion") {
      assume("optimizer.lr", number(!tunes ? 4e-4 : adapters ? 2e-5 : 2e-6));
      assume("optimizer.betas", pair(0.9, 0.99));
      if (!tunes) assume("optimizer.weight_decay", number(1));
    }
    // Relative to the RMS of a tensor, which is small; torch's defaults otherwise. B of an adapter starts at
    // 0.
    if (s.text("optimizer.name") == "adafactor") {
      assume("optimizer.lr", number(!tunes || adapters ? 1e-2 : 1e-3));
      assume("optimizer.eps", number(1e-3));
      assume("optimizer.weight_decay", number(0));
    }
    // Momentum of torch.optim.Muon; AdamW of the other tensors has the same.
    if (s.text("optimizer.name") == "muon") assume("optimizer.betas", pair(0.95, tunes ? 0.999 : 0.95));
  }
  if (tunes && framework.empty()) {
    // 16 sequences per step; three epochs, AdamW's betas and no weight decay as transformers' Trainer; the
    // learning rates are those of LoRA's and of full fine-tuning in PEFT's and TRL's examples.
    constexpr std::uint64_t kFineTuningTokens = 1024;
    assume("train.precision", text_value("bf16"));
    assume("data.seq_len",
           integer(max_positions ? std::min(kFineTuningTokens, max_positions) : kFineTuningTokens));
    assume("train.micro_batch", integer(2));
    assume("train.grad_accum", integer(8));
    if (!s.given("train.steps")) assume("train.epochs", number(3));
    assume("optimizer.lr", number(adapters ? 2e-4 : 2e-5));
    assume("optimizer.betas", pair(0.9, 0.999));
    assume("optimizer.weight_decay", number(0));
  }
  if (!usual) return assumed;
  assume("data.seq_len", integer(max_positions ? std::min(kUsualTokens, max_positions) : kUsualTokens));
  assume("train.micro_batch", integer(1));
  return assumed;
}

}  // namespace trainhost::runfile
