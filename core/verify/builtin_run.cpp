// See builtin_run.hpp. Fewer key heads than query heads and two micro-batches an update, so that the shapes
// that go wrong first are among those that are checked. grad_clip stays on: GPU-001 compares clipped updates
// too.
#include "core/verify/builtin_run.hpp"

namespace trainhost::verify {

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
