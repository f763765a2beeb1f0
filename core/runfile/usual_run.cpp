// See usual_run.hpp.
#include "core/runfile/usual_run.hpp"

#include <algorithm>
#include <utility>

#include "core/runfile/combinations.hpp"

namespace trainhost::runfile {

std::vector<RunConfig::Assumed> assume_usual_run(Settings& s, bool usual, std::uint64_t max_positions) {
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
  std::vector<RunConfig::Assumed> assumed;
  const auto assume = [&](const char* key, Value v) {
    if (s.given(key)) return;
    assumed.push_back({key, toml_value(v)});
    s.set(key, std::move(v));
  };
  if (usual || adapts(s)) assume("train.precision", text_value("bf16"));
  const std::string framework = s.given("plan.framework") ? s.text("plan.framework") : "";
  if ((framework == "fsdp2" || framework == "torchtitan" || framework == "torchtune" ||
       framework == "litgpt") &&
      u32(s, "parallel.data") > 1) {
    assume("parallel.zero", integer(3));  // what its data-parallel ranks are for
    if (framework == "litgpt") assume("train.recompute", text_value("full"));
  }
  if (s.given("model.path") && framework.empty()) {
    // 16 sequences per step; three epochs, AdamW's betas and no weight decay as transformers' Trainer; the
    // learning rates are those of LoRA's and of full fine-tuning in PEFT's and TRL's examples.
    constexpr std::uint64_t kFineTuningTokens = 1024;
    assume("train.precision", text_value("bf16"));
    assume("data.seq_len",
           integer(max_positions ? std::min(kFineTuningTokens, max_positions) : kFineTuningTokens));
    assume("train.micro_batch", integer(2));
    assume("train.grad_accum", integer(8));
    if (!s.given("train.steps")) assume("train.epochs", number(3));
    assume("optimizer.lr", number(adapts(s) ? 2e-4 : 2e-5));
    Value betas;
    betas.kind = Value::Kind::kList;
    betas.items = {number(0.9), number(0.999)};
    assume("optimizer.betas", std::move(betas));
    assume("optimizer.weight_decay", number(0));
  }
  if (!usual) return assumed;
  assume("data.seq_len", integer(max_positions ? std::min(kUsualTokens, max_positions) : kUsualTokens));
  assume("train.micro_batch", integer(1));
  return assumed;
}

}  // namespace trainhost::runfile
