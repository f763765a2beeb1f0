// See sample_runs.hpp. Random numbers are made from the bits of mt19937_64, which gives the same values with
// every standard library; its distributions do not.
#include "core/numerics/sample_runs.hpp"

#include <cmath>
#include <random>

#include "core/model/tensors.hpp"

namespace trainhost::numerics {
namespace {

/// Sequences of 11 tokens, 2 layers, 2 micro-batches of 2 sequences: gradients are overwritten and added to.
SampleRun make_sample(const char* family, const char* what, std::uint32_t heads, std::uint32_t kv_heads) {
  SampleRun s;
  s.what = std::string(family) + ", " + what;
  ModelSpec& m = s.model;
  m.family = family, m.name = kSampleName;
  m.vocab = 29, m.hidden = 12, m.layers = 2, m.heads = heads, m.kv_heads = kv_heads, m.head_dim = 4;
  m.intermediate = 10, m.max_positions = 32;
  RunSpec& r = s.run;
  r.micro_batch = 2, r.accumulate = 2, r.seq_len = 11;
  r.optimizer = Optimizer::kSgd, r.weight_decay = 0, r.clip_norm = 0;
  return s;
}

std::vector<SampleRun> make_all() {
  std::vector<SampleRun> all;
  const auto add = [&](SampleRun s, auto change) {
    change(s);
    all.push_back(std::move(s));
  };
  add(make_sample("llama", "all biases, grouped heads, llama3 rope scaling", 4, 2), [](SampleRun& s) {
    s.model.qkv_bias = s.model.o_bias = s.model.mlp_bias = true;
    // A short original context and a small theta: one frequency is kept, one is scaled.
    s.model.rope = {RopeKind::kLlama3, 4.0, 1.0, 4.0, 16}, s.model.rope_theta = 50;
  });
  add(make_sample("llama", "tied, linear rope scaling, recompute full", 3, 3), [](SampleRun& s) {
    s.model.tied = true;
    s.model.rope.kind = RopeKind::kLinear, s.model.rope.factor = 2;
    s.run.recompute = Recompute::kFull;
  });
  add(make_sample("mistral", "sliding window", 2, 1), [](SampleRun& s) { s.model.sliding_window = 4; });
  add(make_sample("qwen2", "tied, window from layer 1, recompute selective", 4, 2), [](SampleRun& s) {
    s.model.qkv_bias = s.model.tied = true;
    s.model.sliding_window = 5, s.model.first_window_layer = 1;
    s.run.recompute = Recompute::kSelective;
  });
  add(make_sample("qwen3", "q/k norm", 4, 2), [](SampleRun& s) { s.model.qk_norm = true; });
  return all;
}

/// Uniform with mean 0 and standard deviation 1.
double next_value(std::mt19937_64& random) {
  return (static_cast<double>(random() >> 11) * 0x1p-52 - 1) * std::sqrt(3.0);
}

}  // namespace

const std::vector<SampleRun>& sample_runs() {
  static const std::vector<SampleRun> all = make_all();
  return all;
}

Tensors generate_weights(const ModelSpec& m, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  Tensors all;
  for (const TensorInfo& t : tensors(m)) {
    const bool norm = t.rank == 1 && !t.name.ends_with(".bias");
    // The embedding has rows of standard deviation 1, so that it is not small beside what layers add.
    const double spread = t.rank == 1                    ? 0.3
                          : t.role == TensorRole::kEmbed ? (m.tied ? 0.5 : 1.0)
                                                         : 1 / std::sqrt(static_cast<double>(t.dim[1]));
    for (std::uint64_t i = 0; i < t.elements(); ++i)
      all[t.name].push_back(static_cast<float>((norm ? 1 : 0) + spread * next_value(random)));
  }
  return all;
}

Batch generate_batch(const ModelSpec& m, const RunSpec& run, std::uint32_t sequences, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  Batch b;
  b.seq = run.seq_len;
  for (std::size_t i = 0; i < std::size_t{sequences} * run.seq_len; ++i) {
    b.tokens.push_back(static_cast<std::int32_t>(random() % m.vocab));
    const auto target = static_cast<std::int32_t>(random() % m.vocab);
    b.targets.push_back(i < run.seq_len && i % 5 == 4 ? -100 : target);
  }
  return b;
}

}  // namespace trainhost::numerics
