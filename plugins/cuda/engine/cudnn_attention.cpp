// The graphs of attention. They consist of single operations in an order that cuDNN recognises as attention
// and fuses into its kernels. Their translation to descriptors: cudnn_graph.cpp. Own kernels for the same
// operations: kernels/attention.cu. See cudnn_attention.hpp.
#include "plugins/cuda/engine/cudnn_attention.hpp"

#include <cmath>
#include <limits>

#include "plugins/cuda/common/attention_choice.hpp"

namespace trainhost::cuda {
namespace cudnn {
namespace {

constexpr DataType kHalf = DataType::kBFloat16, kFull = DataType::kFloat;

/// The dimensions of a shape, and views of the tensors of the step program.
struct Views {
  std::int64_t b, h, g, s, d, width;
  explicit Views(const AttentionShape& a)
      : b(a.sequences), h(a.heads), g(a.kv_heads), s(a.seq), d(a.d), width(a.width()) {}

  Dims scores() const { return {b, h, s, s}; }
  Dims rows() const { return {b, h, s, 1}; }
  /// `heads` heads of qkv or its gradient.
  Tensor& part(Graph& graph, std::int64_t heads) const {
    return graph.memory(kHalf, {b, heads, s, d}, {s * width, d, width, 1});
  }
  /// The same, transposed: [b, heads, d, s].
  Tensor& transposed(Graph& graph, std::int64_t heads) const {
    return graph.memory(kHalf, {b, heads, d, s}, {s * width, d, 1, width});
  }
  /// o or its gradient: [tokens, heads * d].
  Tensor& output(Graph& graph) const { return graph.memory(kHalf, {b, h, s, d}, {s * h * d, d, h * d, 1}); }
  Tensor& statistics(Graph& graph) const { return graph.memory(kFull, rows(), packed(rows())); }
};

/// Scores, with those that the mask excludes replaced by -inf: keys after the query, and with a window also
/// keys `window` or more positions before it. The indices of each step are those of its own operand: cuDNN
/// does not recognise the pattern otherwise.
Tensor& mask(Graph& graph, const Views& v, std::uint32_t window, Tensor& scores) {
  const auto index = [&](Tensor& of, std::int64_t axis) -> Tensor& {
    return graph.pointwise(PointwiseMode::kGenIndex, of, nullptr, graph.scratch(v.scores(), DataType::kInt32),
                           nullptr, kFull, axis);
  };
  const auto keep = [&](PointwiseMode compare, Tensor& left, Tensor& right, Tensor& x) -> Tensor& {
    Tensor& kept = graph.pointwise(compare, left, &right, graph.scratch(v.scores(), DataType::kBoolean),
                                   nullptr, DataType::kBoolean);
    return graph.pointwise(PointwiseMode::kBinarySelect, x,
                           &graph.constant(-std::numeric_limits<float>::infinity()),
                           graph.scratch(v.scores()), &kept);
  };
  Tensor& query = index(scores, 2);
  Tensor& causal = keep(PointwiseMode::kCmpGe, query, index(scores, 3), scores);
  if (window == 0 || window >= v.s) return causal;
  Tensor& row = index(causal, 2);
  Tensor& end =
      graph.pointwise(PointwiseMode::kAdd, index(causal, 3), &graph.constant(static_cast<float>(window)),
                      graph.scratch(v.scores()), nullptr, kFull, 3);
  return keep(PointwiseMode::kCmpGt, end, row, causal);
}

std::string text(const char* pass, const AttentionShape& s) {
  return std::string("attention ") + pass + " of " + std::to_string(s.sequences) + " sequences of " +
         std::to_string(s.seq) + " tokens, " + std::to_string(s.heads) + " heads, " +
         std::to_string(s.kv_heads) + " key/value heads of size " + std::to_string(s.d);
}

float scale_of(const AttentionShape& s) { return 1.0f / std::sqrt(static_cast<float>(s.d)); }

/// An engine for the deterministic backward pass on Blackwell: the library proposes others first. Numbers of
/// the engine and its knobs are those of NVIDIA's cudnn-frontend for each version.
EngineChoice backward_engine(int compute_capability) {
  if (compute_capability / 10 != 10) return {};
  const std::int64_t engine = compute_capability > 103 ? 17 : 5;
  if (library().cudnnGetVersion() < 92300) return {engine, {{24, 31}, {14, 2}}};
  return {engine, {{40, 3}, {41, 2}, {24, 2}, {38, 0}, {27, 0}, {14, 2}}};
}

}  // namespace

Plan forward_plan(const AttentionShape& a, const Target& target, std::uint64_t workspace_limit) {
  const Views v(a);
  Graph graph;
  // In the order of the addresses in CudnnAttention::forward().
  Tensor &q = v.part(graph, v.h), &kt = v.transposed(graph, v.g), &value = v.part(graph, v.g),
         &o = v.output(graph), &lse = v.statistics(graph);
  Tensor& products = graph.matmul(q, kt, graph.scratch(v.scores()));
  Tensor& scaled =
      graph.pointwise(PointwiseMode::kMul, products, &graph.constant(scale_of(a)), graph.scratch(v.scores()));
  Tensor& scores = mask(graph, v, a.window, scaled);
  Tensor& largest = graph.reduce(ReduceMode::kMax, scores, graph.scratch(v.rows()));
  Tensor& shifted = graph.pointwise(PointwiseMode::kSub, scores, &largest, graph.scratch(v.scores()));
  Tensor& weights = graph.pointwise(PointwiseMode::kExp, shifted, nullptr, graph.scratch(v.scores()));
  Tensor& sum = graph.reduce(ReduceMode::kAdd, weights, graph.scratch(v.rows()));
  Tensor& log_sum = graph.pointwise(PointwiseMode::kLog, sum, nullptr, graph.scratch(v.rows()));
  graph.pointwise(PointwiseMode::kAdd, largest, &log_sum, lse);
  Tensor& p = graph.pointwise(PointwiseMode::kDiv, weights, &sum, graph.scratch(v.scores(), kHalf));
  graph.matmul(p, value, o);
  return Plan(std::move(graph), target, {}, workspace_limit, text("forward", a));
}

// With p = exp(scores - lse) and delta = sum over d of d_o * o:
//   dv = p^T d_o,  ds = scale * p * (d_o v^T - delta),  dk = ds^T q,  dq = ds k
Plan backward_plan(const AttentionShape& a, const Target& target, int compute_capability,
                   std::uint64_t workspace_limit) {
  const Views v(a);
  Graph graph;
  // In the order of the addresses in CudnnAttention::backward().
  Tensor &q = v.part(graph, v.h), &kt = v.transposed(graph, v.g), &vt = v.transposed(graph, v.g),
         &o = v.output(graph), &d_o = v.output(graph), &lse = v.statistics(graph),
         &delta = v.statistics(graph), &dq = v.part(graph, v.h), &dk = v.part(graph, v.g),
         &dv = v.part(graph, v.g);
  const Dims heads = {v.b, v.h, v.s, v.d};
  const auto on_scores = [&](PointwiseMode mode, Tensor& x, Tensor* with) -> Tensor& {
    return graph.pointwise(mode, x, with, graph.scratch(v.scores()));
  };
  const auto transpose = [&](Tensor& x) -> Tensor& {
    return graph.reshape(x, graph.scratch(v.scores(), {v.h * v.s * v.s, v.s * v.s, 1, v.s}, kHalf));
  };
  /// left^T right, summed over the query heads that share a key/value head.
  const auto group_gradient = [&](Tensor& left, Tensor& right, Tensor& out) {
    if (v.h == v.g) return void(graph.matmul(left, right, out));
    graph.reduce(ReduceMode::kAdd, graph.matmul(left, right, graph.scratch(heads, kHalf)), out);
  };

  Tensor& products = graph.pointwise(PointwiseMode::kMul, d_o, &o, graph.scratch(heads));
  Tensor& sums = graph.reduce(ReduceMode::kAdd, products, graph.scratch(v.rows()));
  graph.pointwise(PointwiseMode::kMul, sums, &graph.constant(1.0f), delta);

  Tensor& scale = graph.constant(scale_of(a));
  Tensor& raw = graph.matmul(q, kt, graph.scratch(v.scores()));
  Tensor& shifted = on_scores(PointwiseMode::kSub, on_scores(PointwiseMode::kMul, raw, &scale), &lse);
  Tensor& p = on_scores(PointwiseMode::kExp, mask(graph, v, a.window, shifted), nullptr);
  group_gradient(transpose(p), d_o, dv);

  Tensor& dp = graph.matmul(d_o, vt, graph.scratch(v.scores()));
  Tensor& from_p = on_scores(PointwiseMode::kMul, on_scores(PointwiseMode::kSub, dp, &delta), &p);
  Tensor& ds = on_scores(PointwiseMode::kMul, from_p, &scale);
  group_gradient(transpose(ds), q, dk);
  Tensor& k = graph.reshape(kt, graph.scratch({v.b, v.g, v.s, v.d}, {v.s * v.width, v.d, v.width, 1}, kHalf));
  graph.matmul(ds, k, dq);
  return Plan(std::move(graph), target, backward_engine(compute_capability), workspace_limit,
              text("backward", a));
}

}  // namespace cudnn

CudnnAttention::CudnnAttention(const step::Program& program, int compute_capability,
                               std::uint32_t backward_sequences)
    : backward_sequences_(backward_sequences),
      workspace_limit_(cudnn_workspace_bytes(program.model, program.run, backward_sequences_)) {
  const cudnn::Functions& f = cudnn::library();
  cudnn::check(f.cudnnCreate(&handle_), "creating a cuDNN handle");
  const ModelSpec& m = program.model;
  try {
    for (std::uint32_t layer = 0; layer < m.layers; ++layer) {
      AttentionShape s{program.run.micro_batch, program.run.seq_len, m.heads, m.kv_heads, m.head_dim,
                       m.window(layer)};
      if (const Key key(s.sequences, s.window); !forward_.contains(key))
        forward_.emplace(key, cudnn::forward_plan(s, {handle_}, workspace_limit_));
      s.sequences = backward_sequences_;
      const Key key(s.sequences, s.window);
      if (program.run.mode == RunMode::kInference || backward_.contains(key)) continue;
      backward_.emplace(key, cudnn::backward_plan(s, {handle_}, compute_capability, workspace_limit_));
    }
  } catch (...) {
    f.cudnnDestroy(handle_);
    throw;
  }
}

CudnnAttention::~CudnnAttention() {
  forward_.clear(), backward_.clear();  // before the handle
  cudnn::library().cudnnDestroy(handle_);
}

void CudnnAttention::forward(cudaStream_t stream, const AttentionShape& s, const Bf16* qkv, Bf16* o,
                             float* lse) {
  Bf16* q = const_cast<Bf16*>(qkv);  // cuDNN's interface has no const; it reads q, k and v only
  Bf16 *k = q + std::size_t{s.heads} * s.d, *v = k + std::size_t{s.kv_heads} * s.d;
  void* const at[] = {q, k, v, o, lse};
  cudnn::check(cudnn::library().cudnnSetStream(handle_, stream), "selecting the stream of cuDNN");
  forward_.at(Key(s.sequences, s.window)).run(handle_, at, workspace_);
}

void CudnnAttention::backward(cudaStream_t stream, const AttentionShape& s, const Bf16* d_o, const Bf16* o,
                              const float* lse, const Bf16* qkv, float* delta, Bf16* dqkv) {
  const auto writable = []<class T>(const T* p) { return const_cast<T*>(p); };
  const std::size_t keys = std::size_t{s.heads} * s.d, values = keys + std::size_t{s.kv_heads} * s.d;
  cudnn::Plan& plan = backward_.at(Key(backward_sequences_, s.window));
  cudnn::check(cudnn::library().cudnnSetStream(handle_, stream), "selecting the stream of cuDNN");
  for (std::uint32_t first = 0; first < s.sequences; first += backward_sequences_) {
    const std::size_t token = std::size_t{first} * s.seq, in_qkv = token * s.width(),
                      in_o = token * s.heads * s.d, row = token * s.heads;
    Bf16 *q = writable(qkv) + in_qkv, *dq = dqkv + in_qkv;
    void* const at[] = {
        q,           q + keys, q + values, writable(o) + in_o, writable(d_o) + in_o, writable(lse) + row,
        delta + row, dq,       dq + keys,  dq + values};
    plan.run(handle_, at, workspace_);
  }
}

std::string CudnnAttention::version() {
  return "cuDNN " + cudnn::version_text(cudnn::library().cudnnGetVersion());
}

}  // namespace trainhost::cuda
