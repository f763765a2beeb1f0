// Layout, loading and the C functions of decoder.hpp. The layout is one function that is called twice:
// without memory it counts the bytes, with memory it gives the addresses, so that both agree.
#include "plugins/cpu/engine/decoder.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>

#include "core/abi/convert_structs.hpp"
#include "core/abi/error_guard.hpp"
#include "core/base/checked.hpp"
#include "core/base/text.hpp"
#include "core/executor/calls.hpp"
#include "core/model/tensors.hpp"
#include "core/process/cpu_topology.hpp"
#include "plugins/cpu/engine/decoder_sizes.hpp"

namespace trainhost::cpu {
namespace {

/// Hands out parts of a block, each at a multiple of 64 bytes; without a block it only counts.
class BlockParts {
 public:
  explicit BlockParts(std::byte* block) : block_(block) {}
  std::byte* take(std::uint64_t bytes) {
    std::byte* at = block_ ? block_ + used_ : nullptr;
    used_ = checked_add(used_, checked_mul((checked_add(bytes, 63)) / 64, 64));
    return at;
  }
  float* floats(std::uint64_t rows, std::uint64_t cols = 1) {
    return reinterpret_cast<float*>(take(checked_mul(checked_mul(rows, cols), sizeof(float))));
  }
  float* floats_if(bool present, std::uint64_t n) { return present ? floats(n) : nullptr; }
  std::uint64_t used() const { return used_; }

 private:
  std::byte* block_;
  std::uint64_t used_ = 0;
};

DecoderBuffers lay_out(BlockParts& parts, const ModelSpec& m, const abi::DecodeOptions& o,
                       std::uint32_t threads, abi::DecodeMemory& bytes) {
  DecoderBuffers b{};
  const std::uint64_t element = o.weight_type == TH_DT_BF16 ? 2 : 4;
  const auto matrix = [&](std::uint64_t rows, std::uint64_t cols) {
    return parts.take(checked_mul(checked_mul(rows, cols), element));
  };
  b.embed = matrix(m.vocab, m.hidden);
  for (std::uint32_t l = 0; l < m.layers; ++l) {
    DecoderLayer d{};
    d.norm1 = parts.floats(m.hidden);
    d.qkv = matrix(m.qkv_width(), m.hidden);
    d.qkv_bias = parts.floats_if(m.qkv_bias, m.qkv_width());
    d.q_norm = parts.floats_if(m.qk_norm, m.head_dim);
    d.k_norm = parts.floats_if(m.qk_norm, m.head_dim);
    d.o = matrix(m.hidden, m.q_width());
    d.o_bias = parts.floats_if(m.o_bias, m.hidden);
    d.norm2 = parts.floats(m.hidden);
    d.gate_up = matrix(2 * std::uint64_t{m.intermediate}, m.hidden);
    d.gate_up_bias = parts.floats_if(m.mlp_bias, 2 * std::uint64_t{m.intermediate});
    d.down = matrix(m.hidden, m.intermediate);
    d.down_bias = parts.floats_if(m.mlp_bias, m.hidden);
    b.layers.push_back(d);
  }
  b.final_norm = parts.floats(m.hidden);
  b.head = m.tied ? b.embed : matrix(m.vocab, m.hidden);
  bytes.weights = parts.used();

  const std::uint64_t positions =
      checked_mul(checked_mul(std::uint64_t{m.layers} * o.sequences, o.context), m.kv_heads);
  b.keys = parts.floats(positions, m.head_dim);
  b.values = parts.floats(positions, m.head_dim);
  bytes.cache = parts.used() - bytes.weights;

  const std::uint64_t rows = o.rows;
  b.rope = parts.floats(o.context, m.head_dim);
  b.x = parts.floats(rows, m.hidden);
  b.h = parts.floats(rows, m.hidden);
  b.qkv = parts.floats(rows, m.qkv_width());
  b.attn = parts.floats(rows, m.q_width());
  b.gate_up = parts.floats(rows, 2 * std::uint64_t{m.intermediate});
  b.act = parts.floats(rows, m.intermediate);
  b.rstd = parts.floats(rows);
  b.scores = parts.floats(threads, score_floats(m, o.context));
  b.panels = parts.floats(threads, kPanelFloats);
  b.product_work = parts.floats(threads, kProductWork);
  b.ordered =
      parts.floats(kDotRows, std::max({std::uint64_t{m.hidden}, m.q_width(), std::uint64_t{m.intermediate}}));
  bytes.workspace = parts.used() - bytes.weights - bytes.cache;
  return b;
}

void require_options(const abi::DecodeOptions& o) {
  if (o.weight_type != TH_DT_F32 && o.weight_type != TH_DT_BF16)
    throw abi::StatusError(TH_E_UNSUPPORTED, "weights are kept as f32 or bf16 for generation");
  if (!o.sequences || !o.context || !o.rows)
    throw abi::StatusError(TH_E_ARG, "a decoder needs at least one sequence, one position and one row");
}

/// Rounds to nearest, ties to even. Values are finite: the host checks what it loads.
std::uint16_t to_bf16(float value) {
  std::uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return static_cast<std::uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

}  // namespace

abi::DecodeMemory Decoder::memory(const ModelSpec& model, const abi::DecodeOptions& options,
                                  std::uint32_t threads) {
  validate(model);
  require_options(options);
  abi::DecodeMemory bytes{};
  BlockParts parts(nullptr);
  lay_out(parts, model, options, threads, bytes);
  return bytes;
}

Decoder::Decoder(const th_host* host, const ModelSpec& model, const abi::DecodeOptions& options,
                 const Kernels& kernels)
    : host_(host),
      m_(model),
      options_(options),
      bf16_(options.weight_type == TH_DT_BF16),
      kernels_(kernels),
      pool_(host->thread_budget, worker_cpus(host->thread_budget)),
      lengths_(options.sequences) {
  abi::DecodeMemory bytes = memory(model, options, pool_.threads());
  const std::uint64_t total = bytes.weights + bytes.cache + bytes.workspace;
  block_ = static_cast<std::byte*>(host->alloc(host, total, 64, TH_TIER_HOST, "decoder"));
  if (!block_)
    throw abi::StatusError(TH_E_HOST_OOM,
                           "cannot allocate " + format_bytes(total) + " to generate text: " +
                               format_bytes(bytes.weights) + " of weights, " + format_bytes(bytes.cache) +
                               " of keys and values, " + format_bytes(bytes.workspace) + " of workspace",
                           "a shorter context (--context) needs fewer keys and values", total);
  // Weights are read by all workers, and loaded by this thread.
  if (spans_nodes(cpu_places("/", process_cpus()))) divide_pages(pool_, block_, bytes.weights);
  BlockParts parts(block_);
  b_ = lay_out(parts, m_, options_, pool_.threads(), bytes);
  const std::vector<double> inv_freq = rope_inv_freq(m_);
  for (std::uint64_t p = 0; p < options_.context; ++p)
    for (std::size_t i = 0; i < inv_freq.size(); ++i) {
      const double angle = static_cast<double>(p) * inv_freq[i];
      b_.rope[p * m_.head_dim + i] = static_cast<float>(std::cos(angle));
      b_.rope[p * m_.head_dim + inv_freq.size() + i] = static_cast<float>(std::sin(angle));
    }
  runs_.reserve(options_.rows);
  name_tensors();
}

Decoder::~Decoder() { host_->release(host_, block_); }

void Decoder::name_tensors() {
  const std::uint64_t q = m_.q_width(), kv = m_.kv_width(), i = m_.intermediate, h = m_.hidden;
  // Row `row` of a matrix of width `cols`.
  const auto rows_from = [&](void* matrix, std::uint64_t row, std::uint64_t cols) -> void* {
    return static_cast<std::byte*>(matrix) + row * cols * (bf16_ ? 2 : 4);
  };
  for (const TensorInfo& t : tensors(m_)) {
    const DecoderLayer& d = b_.layers[static_cast<std::size_t>(std::max(t.layer, 0))];
    const auto address = [&]() -> void* {
      switch (t.role) {
        case TensorRole::kEmbed:
          return b_.embed;
        case TensorRole::kNorm1:
          return d.norm1;
        case TensorRole::kQ:
          return d.qkv;
        case TensorRole::kK:
          return rows_from(d.qkv, q, h);
        case TensorRole::kV:
          return rows_from(d.qkv, q + kv, h);
        case TensorRole::kQBias:
          return d.qkv_bias;
        case TensorRole::kKBias:
          return d.qkv_bias + q;
        case TensorRole::kVBias:
          return d.qkv_bias + q + kv;
        case TensorRole::kQNorm:
          return d.q_norm;
        case TensorRole::kKNorm:
          return d.k_norm;
        case TensorRole::kO:
          return d.o;
        case TensorRole::kOBias:
          return d.o_bias;
        case TensorRole::kNorm2:
          return d.norm2;
        case TensorRole::kGate:
          return d.gate_up;
        case TensorRole::kUp:
          return rows_from(d.gate_up, i, h);
        case TensorRole::kGateBias:
          return d.gate_up_bias;
        case TensorRole::kUpBias:
          return d.gate_up_bias + i;
        case TensorRole::kDown:
          return d.down;
        case TensorRole::kDownBias:
          return d.down_bias;
        case TensorRole::kFinalNorm:
          return b_.final_norm;
        case TensorRole::kHead:
          return b_.head;
      }
      return nullptr;
    };
    targets_[t.name] = {address(), t.rank == 2, t.elements()};
    missing_ += t.elements();
  }
}

void Decoder::load(const th_tensor& t) {
  const auto bad = [&](const std::string& what) {
    throw abi::StatusError(TH_E_ARG, "tensor " + escaped(t.name ? t.name : "") + ": " + what);
  };
  const auto found = targets_.find(t.name ? t.name : "");
  if (found == targets_.end()) bad("the model has no tensor of this name");
  const Target& to = found->second;
  if (t.dtype != TH_DT_F32) bad("expected f32");
  if (!t.data || t.first > to.elements || t.count > to.elements - t.first)
    bad("the part is outside the tensor of " + std::to_string(to.elements) + " elements");
  const float* from = static_cast<const float*>(t.data);
  if (to.matrix && bf16_)
    std::transform(from, from + t.count, static_cast<std::uint16_t*>(to.data) + t.first, to_bf16);
  else
    std::memcpy(static_cast<float*>(to.data) + t.first, from, t.count * sizeof(float));
  missing_ -= std::min(missing_, t.count);
}

// ---- C functions

namespace {

using executor::guard;
using executor::require;

Decoder& object(abi::DecodeInstance* i) {
  require(i, "instance");
  return *reinterpret_cast<Decoder*>(i);
}

th_status decode_memory(const th_host* host, const th_model* model, const abi::DecodeOptions* options,
                        abi::DecodeMemory* out, th_error* error) {
  return guard(error, [&] {
    require(host, "host"), require(model, "model"), require(options, "options"), require(out, "result");
    *out = Decoder::memory(abi::from_c(*model), *options, std::max(1u, host->thread_budget));
  });
}

th_status decode_create(const th_host* host, const th_model* model, const abi::DecodeOptions* options,
                        abi::DecodeInstance** out, th_error* error) {
  if (out) *out = nullptr;
  return guard(error, [&] {
    require(host, "host"), require(model, "model"), require(options, "options"), require(out, "result");
    *out = reinterpret_cast<abi::DecodeInstance*>(new Decoder(host, abi::from_c(*model), *options));
  });
}

th_status decode_load(abi::DecodeInstance* i, const th_tensor* t, th_error* error) {
  return guard(error, [&] {
    require(t, "tensor");
    object(i).load(*t);
  });
}

th_status decode_forward(abi::DecodeInstance* i, const abi::DecodeRow* rows, std::uint32_t count,
                         float* logits, th_error* error) {
  return guard(error, [&] {
    require(rows, "rows"), require(logits, "logits");
    object(i).forward({rows, count}, logits);
  });
}

void decode_destroy(abi::DecodeInstance* i) { delete reinterpret_cast<Decoder*>(i); }

}  // namespace

const abi::DecodeTable kDecodeTable = {decode_memory, decode_create, decode_load, decode_forward,
                                       decode_destroy};

}  // namespace trainhost::cpu
