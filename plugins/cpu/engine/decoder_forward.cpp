// The arithmetic of decoder.hpp: a forward pass over rows of several sequences. Work is divided by shape
// only, so the bits of a row do not depend on the number of threads.
#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstring>

#include "core/abi/error_guard.hpp"
#include "plugins/cpu/engine/decoder.hpp"
#include "plugins/cpu/engine/decoder_sizes.hpp"

namespace trainhost::cpu {
namespace {

constexpr std::uint64_t kTaskBytes =
    128 << 10;  // of weights per task: long enough to stream, many enough to balance

}  // namespace

const void* Decoder::weight_row(const void* w, std::uint64_t element) const {
  return static_cast<const std::byte*>(w) + element * (bf16_ ? 2 : 4);
}

float* Decoder::cached(float* cache, std::uint32_t layer, std::uint32_t sequence,
                       std::uint32_t kv_head) const {
  const std::uint64_t index = (std::uint64_t{layer} * options_.sequences + sequence) * m_.kv_heads + kv_head;
  return cache + index * options_.context * m_.head_dim;
}

/// f(first, count, worker) on parts of the rows. One row is processed by the calling thread: waking another
/// one costs more than the work.
template <class F>
void Decoder::over_rows(std::uint64_t rows, F&& f) {
  constexpr std::uint64_t kRows = 8;
  pool_.run(static_cast<std::uint32_t>((rows + kRows - 1) / kRows),
            [&](std::uint32_t task, std::uint32_t worker) {
              const std::uint64_t first = task * kRows;
              f(first, std::min(kRows, rows - first), worker);
            });
}

/// Also checks the rows: they index tables.
void Decoder::split_into_runs(std::span<const abi::DecodeRow> rows) {
  const auto bad = [](std::size_t row, const std::string& what) {
    throw abi::StatusError(TH_E_ARG, "row " + std::to_string(row) + ": " + what);
  };
  if (rows.empty() || rows.size() > options_.rows)
    throw abi::StatusError(
        TH_E_ARG, std::to_string(rows.size()) + " rows, expected 1 to " + std::to_string(options_.rows));
  if (missing_ > 0)
    throw abi::StatusError(TH_E_STATE, std::to_string(missing_) + " elements of weights were not loaded");
  runs_.clear();
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const abi::DecodeRow& r = rows[i];
    if (r.token < 0 || static_cast<std::uint64_t>(r.token) >= m_.vocab)
      bad(i,
          "token " + std::to_string(r.token) + " is outside the vocabulary of " + std::to_string(m_.vocab));
    if (r.sequence >= options_.sequences) bad(i, "there is no sequence " + std::to_string(r.sequence));
    if (r.position >= options_.context)
      bad(i, "position " + std::to_string(r.position) + " is outside the context of " +
                 std::to_string(options_.context));
    if (!runs_.empty() && runs_.back().sequence == r.sequence) {
      Run& run = runs_.back();
      if (r.position != run.position + run.rows) bad(i, "positions of a sequence must be consecutive");
      ++run.rows;
      continue;
    }
    for (const Run& run : runs_)
      if (run.sequence == r.sequence) bad(i, "rows of a sequence must be neighbours");
    if (r.position > lengths_[r.sequence])
      bad(i, "position " + std::to_string(r.position) + " after " + std::to_string(lengths_[r.sequence]) +
                 " positions");
    runs_.push_back({static_cast<std::uint32_t>(i), 1, r.sequence, r.position});
  }
}

void Decoder::embed(std::span<const abi::DecodeRow> rows) {
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const void* from = weight_row(b_.embed, static_cast<std::uint64_t>(rows[i].token) * m_.hidden);
    float* to = b_.x + i * m_.hidden;
    if (bf16_)
      kernels_.widen(m_.hidden, static_cast<const std::uint16_t*>(from), to);
    else
      std::memcpy(to, from, m_.hidden * sizeof(float));
  }
}

void Decoder::norm(std::uint64_t rows, const float* x, const float* weight, float* y) {
  over_rows(rows, [&](std::uint64_t first, std::uint64_t count, std::uint32_t) {
    kernels_.rms_norm(count, m_.hidden, x + first * m_.hidden, weight, static_cast<float>(m_.norm_eps),
                      y + first * m_.hidden, b_.rstd + first);
  });
}

/// Columns [j, j + count) of y += x w^T: blocks of w are packed, and multiplied with all rows of x.
void Decoder::multiply_panel(std::uint64_t m, std::uint64_t n, std::uint64_t k, const void* w,
                             std::uint64_t j, std::uint64_t count, const float* x, float* y, float* work) {
  const std::uint64_t width = kernels_.panel_width(kPanelWidth);
  float *packed = work, *wide = work + kPanelInner * kPanelWidth;
  assert(count <= width && width <= kPanelWidth);
  for (std::uint64_t p = 0; p < k; p += kPanelInner) {
    const std::uint64_t inner = std::min(kPanelInner, k - p);
    if (bf16_) {
      for (std::uint64_t i = 0; i < count; ++i)
        kernels_.widen(inner, static_cast<const std::uint16_t*>(w) + (j + i) * k + p, wide + i * inner);
      kernels_.pack_transposed(count, inner, wide, inner, width, packed);
    } else {
      kernels_.pack_transposed(count, inner, static_cast<const float*>(w) + j * k + p, k, width, packed);
    }
    kernels_.product_packed(m, count, inner, x + p, k, packed, inner, width, true, y + j, n);
  }
}

/// y[m, n] = x[m, k] w[n, k]^T + bias, or += if `add`.
void Decoder::linear(std::uint64_t m, std::uint64_t n, std::uint64_t k, const void* w, const float* bias,
                     bool add, const float* x, float* y) {
  const bool packs = m > kDotRows;
  if (bf16_ && !packs) {
    for (std::uint64_t r = 0; r < m; ++r) kernels_.order_for_dots(k, x + r * k, b_.ordered + r * k);
    x = b_.ordered;
  }
  const std::uint64_t step = packs ? kernels_.panel_width(kPanelWidth)
                                   : std::max<std::uint64_t>(8, kTaskBytes / (k * (bf16_ ? 2 : 4)) / 8 * 8);
  pool_.run(static_cast<std::uint32_t>((n + step - 1) / step), [&](std::uint32_t task, std::uint32_t worker) {
    const std::uint64_t j = task * step, count = std::min(step, n - j);
    for (std::uint64_t r = 0; r < m; ++r) {
      float* row = y + r * n + j;
      if (!add) std::memset(row, 0, count * sizeof(float));
      if (bias) kernels_.add(count, bias + j, row);
    }
    if (packs)
      multiply_panel(m, n, k, w, j, count, x, y, b_.panels + worker * kPanelFloats);
    else
      kernels_.dots(m, count, k, weight_row(w, j * k), bf16_, x, k, y + j, n);
  });
}

/// Norms of q and k, their rotation, and the copy of k and v to the cache, for one row of a run.
void Decoder::rotate_and_cache(const Run& run, std::uint32_t row, std::uint32_t layer) {
  const DecoderLayer& d = b_.layers[layer];
  const std::uint32_t position = run.position + row, size = m_.head_dim;
  float* q = b_.qkv + (run.first_row + std::uint64_t{row}) * m_.qkv_width();
  float *k = q + m_.q_width(), *v = k + m_.kv_width();
  const auto normalise = [&](float* heads, std::uint32_t count, const float* weight) {
    float rstd[1];
    for (std::uint32_t h = 0; h < count; ++h)
      kernels_.rms_norm(1, size, heads + std::uint64_t{h} * size, weight, static_cast<float>(m_.norm_eps),
                        heads + std::uint64_t{h} * size, rstd);
  };
  if (m_.qk_norm) normalise(q, m_.heads, d.q_norm), normalise(k, m_.kv_heads, d.k_norm);
  kernels_.rope(1, m_.heads + m_.kv_heads, size, m_.qkv_width(), q, b_.rope, position, options_.context,
                1.0f);
  for (std::uint32_t h = 0; h < m_.kv_heads; ++h) {
    const std::uint64_t at = std::uint64_t{position} * size;
    std::memcpy(cached(b_.keys, layer, run.sequence, h) + at, k + std::uint64_t{h} * size,
                size * sizeof(float));
    std::memcpy(cached(b_.values, layer, run.sequence, h) + at, v + std::uint64_t{h} * size,
                size * sizeof(float));
  }
}

/// Rows [first, first + rows) of a run, for the heads that share a key/value head. For one row these heads
/// are the rows of the score matrix, so that the cache is read once; for a block of rows each head by itself.
void Decoder::attend_head(const Run& run, std::uint32_t first, std::uint32_t rows, std::uint32_t layer,
                          std::uint32_t kv_head, std::uint32_t worker) {
  const std::uint32_t group = m_.heads / m_.kv_heads, size = m_.head_dim, window = m_.window(layer),
                      q0 = run.position + first, end = q0 + rows,
                      begin = window && q0 + 1 > window ? q0 + 1 - window : 0;
  const float* keys = cached(b_.keys, layer, run.sequence, kv_head) + std::uint64_t{begin} * size;
  const float* values = cached(b_.values, layer, run.sequence, kv_head) + std::uint64_t{begin} * size;
  const bool heads_as_rows = rows == 1;
  const std::uint32_t count = heads_as_rows ? group : rows, columns = end - begin;
  const std::uint64_t ld_q = heads_as_rows ? size : m_.qkv_width(),
                      ld_o = heads_as_rows ? size : m_.q_width();
  float* scores = b_.scores + worker * score_floats(m_, options_.context);
  float *maxima = scores + std::uint64_t{count} * columns, *sums = maxima + count, *lse = sums + count;
  AttentionTile tile{};
  tile.rows = count, tile.cols = columns, tile.ld = columns, tile.k0 = begin;
  // With heads as rows every key up to the position of the row is visible to all of them.
  tile.q0 = q0, tile.window = window;
  if (heads_as_rows) tile.q0 = end + count, tile.window = 0;
  tile.scale = 1.0f / std::sqrt(static_cast<float>(size));
  for (std::uint32_t h = 0; h < (heads_as_rows ? 1 : group); ++h) {
    const std::uint64_t head = (std::uint64_t{kv_head} * group + h) * size, row = run.first_row + first;
    const float* q = b_.qkv + row * m_.qkv_width() + head;
    float* out = b_.attn + row * m_.q_width() + head;
    std::memset(scores, 0, std::uint64_t{count} * columns * sizeof(float));
    kernels_.dots(count, columns, size, keys, false, q, ld_q, scores, columns);
    kernels_.softmax_tile(tile, scores, maxima, sums, true, out, ld_o, size);
    kernels_.product(count, size, columns, scores, columns, false, values, size, false, out, ld_o,
                     b_.product_work + worker * kProductWork);
    kernels_.softmax_finish(count, size, out, ld_o, maxima, sums, lse, 1);
  }
}

void Decoder::attend(std::uint32_t layer) {
  for (const Run& run : runs_) {
    if (runs_.size() > 1 && run.rows == 1) continue;  // below, all of them together
    const std::uint32_t blocks = (run.rows + kDecodeQueries - 1) / kDecodeQueries;
    pool_.run(blocks * m_.kv_heads, [&](std::uint32_t task, std::uint32_t worker) {
      const std::uint32_t first = task / m_.kv_heads * kDecodeQueries;
      attend_head(run, first, std::min(kDecodeQueries, run.rows - first), layer, task % m_.kv_heads, worker);
    });
  }
  if (runs_.size() > 1)
    pool_.run(static_cast<std::uint32_t>(runs_.size()) * m_.kv_heads,
              [&](std::uint32_t task, std::uint32_t worker) {
                const Run& run = runs_[task / m_.kv_heads];
                if (run.rows == 1) attend_head(run, 0, 1, layer, task % m_.kv_heads, worker);
              });
}

void Decoder::forward(std::span<const abi::DecodeRow> rows, float* logits) {
  FlushDenormals mode;
  split_into_runs(rows);
  const std::uint64_t m = rows.size(), hidden = m_.hidden, inner = m_.intermediate;
  // A cancelled call has overwritten positions from the start of its rows on.
  for (const Run& run : runs_) lengths_[run.sequence] = run.position;
  embed(rows);
  for (std::uint32_t l = 0; l < m_.layers; ++l) {
    if (host_->cancelled && host_->cancelled(host_))
      throw abi::StatusError(TH_E_CANCELLED, "the user stopped the generation");
    const DecoderLayer& d = b_.layers[l];
    norm(m, b_.x, d.norm1, b_.h);
    linear(m, m_.qkv_width(), hidden, d.qkv, d.qkv_bias, false, b_.h, b_.qkv);
    for (const Run& run : runs_)
      over_rows(run.rows, [&](std::uint64_t first, std::uint64_t count, std::uint32_t) {
        for (std::uint64_t r = first; r < first + count; ++r)
          rotate_and_cache(run, static_cast<std::uint32_t>(r), l);
      });
    attend(l);
    linear(m, hidden, m_.q_width(), d.o, d.o_bias, true, b_.attn, b_.x);
    norm(m, b_.x, d.norm2, b_.h);
    linear(m, 2 * inner, hidden, d.gate_up, d.gate_up_bias, false, b_.h, b_.gate_up);
    over_rows(m, [&](std::uint64_t first, std::uint64_t count, std::uint32_t) {
      kernels_.swiglu(count, inner, b_.gate_up + first * 2 * inner, b_.act + first * inner);
    });
    linear(m, hidden, inner, d.down, d.down_bias, true, b_.act, b_.x);
  }
  std::uint64_t wanted = 0;
  for (std::uint64_t r = 0; r < m; ++r)
    if (rows[r].wants_logits)
      std::memmove(b_.x + wanted++ * hidden, b_.x + r * hidden, hidden * sizeof(float));
  for (const Run& run : runs_) lengths_[run.sequence] = run.position + run.rows;
  if (!wanted) return;
  norm(wanted, b_.x, b_.final_norm, b_.h);
  linear(wanted, m_.vocab, hidden, b_.head, nullptr, false, b_.h, logits);
}

}  // namespace trainhost::cpu
