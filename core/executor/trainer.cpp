// Defaults for a class of kernels.
#include "core/executor/trainer.hpp"

#include <algorithm>

namespace trainhost::executor {

TrainerTraits default_traits(const char* id, const ModelSpec& model, const RunSpec& run) {
  constexpr std::uint64_t kLogitBytes = 64ull << 20;
  const std::uint64_t tokens = run.tokens_per_micro_batch();
  const std::uint64_t fit =
      std::max<std::uint64_t>(1, kLogitBytes / (4 * std::max<std::uint64_t>(1, model.vocab)));
  TrainerTraits p;
  p.trainer = id;
  p.alignment = 64;
  p.threads = 1;
  p.slots = 1;
  p.head_chunk_tokens = static_cast<std::uint32_t>(std::min(fit, tokens));
  p.attention_tile_q = 1;
  p.attention_tile_k = std::max(1u, run.seq_len);
  p.f32_storage = true;
  return p;
}

void require_f32_on_one_rank(const char* id, const RunSpec& r) {
  const auto reject = [&](const std::string& what) {
    throw abi::StatusError(TH_E_UNSUPPORTED,
                           std::string("the ") + id + " trainer supports only f32 on one rank: " + what);
  };
  if (r.compute != DType::kF32 || r.weight != DType::kF32 || r.grad != DType::kF32 || r.moment != DType::kF32)
    reject("train.precision must be \"fp32\"");
  if (const PlannedOnly b = planned_only_setting(r)) reject(b.key + " = " + b.value);
  // They know no part of a vocabulary.
  if (r.parallel.tensor > 1) reject("parallel.tensor = " + std::to_string(r.parallel.tensor));
  // The kernels of kernels.hpp have no product of an adapter, and no optimizer that works on whole matrices
  // or codes.
  if (r.optimizer == Optimizer::kAdamW8bit || r.optimizer == Optimizer::kAdafactor ||
      r.optimizer == Optimizer::kMuon)
    reject("its optimizers are adamw, sgd, sgd-momentum and lion, not " + std::string(name(r.optimizer)));
  if (trains_adapters(r)) reject("it trains no adapters ([lora])");
  // They compute every gradient.
  if (!r.trainable.empty()) reject("it trains all weights (train.freeze, train.only)");
}

void require_one_document(const char* id, const RunSpec& r) {
  if (r.document_mask)
    throw abi::StatusError(
        TH_E_UNSUPPORTED, std::string("the ") + id + " trainer cannot keep the documents of a sequence apart",
        "set data.packing = false");
}

}  // namespace trainhost::executor
