// See context.hpp.
#include "core/verify/context.hpp"

#include "core/data/dataset.hpp"
#include "core/planning/resolve_run.hpp"
#include "core/training/batches.hpp"

namespace trainhost::verify {

BatchSource Context::text_batches() {
  if (!text_batches_) {
    auto source = std::make_shared<data::Source>(data::open_source(planning::open_options(run)));
    auto batches = std::make_shared<training::Batches>(*source->train_samples, run);
    // The function owns the source, because Batches only refers to it.
    text_batches_ = [source, batches](std::uint64_t t, std::span<std::int32_t> tokens,
                                      std::span<std::int32_t> targets) { batches->fill(t, tokens, targets); };
  }
  return text_batches_;
}

// Fewer key-value heads than query heads and two micro-batches per step, because mistakes show first in such
// shapes. grad_clip keeps its default, so that GPU-001 compares clipped updates too.
const char* builtin_run_toml() {
  return R"([model]
hidden_size = 64
num_hidden_layers = 2
num_attention_heads = 2
num_key_value_heads = 1
intermediate_size = 176

[data]
seq_len = 64

[train]
micro_batch = 2
grad_accum = 2
steps = 100

[optimizer]
lr = 1e-3

)";
}

}  // namespace trainhost::verify
