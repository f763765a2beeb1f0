// DeepSpeed: a module of transformers with its engine, ZeRO stage 1 or 2.
#include <algorithm>
#include <array>

#include "core/base/error.hpp"
#include "core/base/text.hpp"
#include "plugins/estimators/pytorch/settings.hpp"

namespace trainhost::pytorch {
namespace {

using frameworks::Element;

void require_types(const RunSpec& r, bool half) {
  if (!half && r.compute != DType::kF32 && r.compute != DType::kTF32)
    reject("train.precision = \"" + std::string(run_file_name(r.compute)) + "\"",
           "kernels of narrower types are not replayed");
  if (r.moment != DType::kF32)
    reject("plan.moments = \"" + std::string(run_file_name(r.moment)) + "\"",
           "bf16_optimizer_states of DeepSpeed is not replayed", "set it to \"fp32\"");
  if (!half) return;
  if (r.weight == DType::kF32)
    reject("plan.weights = \"fp32\" under DeepSpeed",
           "its torch_autocast is not replayed; bf16 and fp16 cast the model",
           "set plan.weights to the type of train.precision");
  if (r.master != DType::kF32 && r.master != DType::kNone)
    reject("plan.master = \"" + std::string(run_file_name(r.master)) + "\"",
           "bf16_master_weights_and_grads of DeepSpeed is not replayed", "set it to \"fp32\"");
}

}  // namespace

void set_deepspeed(const model::Architecture& a, const RunSpec& r, const Options& o,
                   frameworks::StepSettings& s, std::vector<std::string>& notes) {
  constexpr std::array kCompared = {"gemma2",  "gemma3_text", "llama", "mistral",
                                    "mixtral", "phi3",        "qwen2", "qwen3"};
  if (std::find(kCompared.begin(), kCompared.end(), a.family) == kCompared.end())
    reject("DeepSpeed with the family '" + a.family + "'", "its step was not compared with DeepSpeed");
  if (r.mode != RunMode::kFull)
    reject("adapters under DeepSpeed", "partitions of adapters alone are not replayed");
  if (r.parallel.zero != 1 && r.parallel.zero != 2)
    reject("parallel.zero = " + std::to_string(r.parallel.zero) + " with DeepSpeed",
           "its stages 1 and 2 are replayed", "set parallel.zero to 1 or 2");
  const bool half = r.compute == DType::kBF16 || r.compute == DType::kF16;
  require_types(r, half);
  s.weights = !half ? Element::kF32 : r.compute == DType::kF16 ? Element::kF16 : Element::kBF16;
  s.autocast = false;
  s.ddp = false;
  frameworks::ZeroPolicy& z = s.zero;
  z.stage = r.parallel.zero;
  z.ranks = r.parallel.data;
  z.overlap = o.overlap_reduce;
  z.bucket = o.reduce_bucket.value_or(a.hidden * a.hidden);
  notes.push_back("ZeRO " + std::to_string(z.stage) + " on " + std::to_string(z.ranks) +
                  " ranks, for the rank with most gradients; reduce_bucket_size " + format_count(z.bucket) +
                  " elements" + (z.overlap ? ", twice (overlap_comm)" : "") +
                  "; gradients and their reduction have the type of the weights, the optimizer updates f32 "
                  "weights.");
}

}  // namespace trainhost::pytorch
