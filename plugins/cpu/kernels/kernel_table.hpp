// The table of vector kernels: loops over rows that OpenBLAS does not have. The same sources are compiled
// once per instruction set (kernels_isa.cpp), and one table is chosen at run time (select_kernels.cpp).
// Arguments are plain pointers, rows and columns, row-major; no threads, plans or named tensors. Bits depend
// only on the table and the arguments.
#pragma once
#include <cstddef>
#include <cstdint>

namespace trainhost::cpu {

/// Mask of an attention tile. Row i is the query at position q0 + i, column j the key at position k0 + j.
struct AttentionTile {
  std::uint32_t rows, cols;  // of the tile
  std::uint32_t ld;          // floats between rows of the score tile
  std::uint32_t q0, k0;      // positions of the tile's first row and column
  std::uint32_t window;      // keys per query, its own position included; 0 = all up to it
  float scale;               // 1/sqrt(D)
  // Of row i: the first key of its document; null: all keys are of one document.
  const std::int32_t* starts = nullptr;
};

/// Constants of one AdamW update, the same for every element.
struct AdamConstants {
  float grad_scale;  // clip factor
  float beta1, one_minus_beta1, beta2, one_minus_beta2;
  float decay;           // w is multiplied by it first: 1 - lr * weight_decay, or 1
  float step_size;       // lr / (1 - beta1^t)
  float inv_sqrt_bias2;  // 1 / sqrt(1 - beta2^t)
  float eps;
};

/// Constants of one Lion update.
struct LionConstants {
  float grad_scale;  // clip factor
  float beta1, one_minus_beta1, beta2, one_minus_beta2;
  float decay, lr;
};

/// The codes of 8-bit moments: core/step/moment_codes.hpp.
struct MomentTables {
  const float *value, *highest;  // [256]
  const std::uint8_t* first;     // [65536]
};
/// One block of an 8-bit moment: its codes and its scale.
struct MomentBlock {
  std::uint8_t* codes;
  float* scale;
};

/// Constants of one Adafactor update of a tensor.
struct AdafactorConstants {
  float grad_scale;  // clip factor
  float smallest;    // lower bound of the second moment, eps1^2
  float decay, step;
};

/// Constants of one SGD update.
struct SgdConstants {
  float grad_scale, momentum, decay, lr;
};

/// Inner elements that a small product processes at a time, and the longest side of a tile whose operands may
/// be copied.
inline constexpr std::uint64_t kProductInner = 128, kProductSide = 256;
/// Floats of workspace that product() may use: one copy of this size per operand.
inline constexpr std::uint64_t kProductWork = 2 * kProductInner * (kProductSide + 16);

/// A large product processes at most this many inner elements and columns at a time: a packed block of 576
/// KiB, which stays in an L2 cache of 1 MiB. The rows of the left operand are packed in groups.
inline constexpr std::uint64_t kLargeInner = 384, kLargeColumns = 384, kLargeGroup = 48;
/// Rows and columns of a tile of C are multiples of these: whole register tiles of every instruction set.
inline constexpr std::uint64_t kLargeRowStep = 12, kLargeColumnStep = 32;
inline constexpr std::uint64_t kLargePanels = kLargeInner * kLargeColumns;
inline constexpr std::uint64_t kLargeStrips = kLargeInner * kLargeGroup;

/// Rows of an operand that will be packed after a large product, which fetches their cache lines into the L2
/// cache as long as it has time: `rows` rows in memory of `floats` elements, `ld` floats apart.
struct LargeAhead {
  const float* at = nullptr;
  std::uint64_t rows = 0, floats = 0, ld = 0;
};

/// A bfloat16: the upper half of an f32.
using Bf16 = std::uint16_t;

/// Loops over rows of activations and weights that are stored as T, float or Bf16. Arithmetic and sums are
/// f32; results are rounded once, when they are stored.
template <class T>
struct RowKernels {
  // y[r] = x[r] * rstd[r] * w, rstd = 1/sqrt(mean(x^2) + eps).  x, y: [rows, n], packed. x may be y.
  void (*rms_norm)(std::uint64_t rows, std::uint64_t n, const T* x, const T* w, float eps, T* y, float* rstd);
  // dx[r] (= or +=) gradient through the norm; gw[n] += sum over rows. x, dy, dx: [rows, n], packed. dx may
  // be dy.
  void (*rms_norm_bwd)(std::uint64_t rows, std::uint64_t n, const T* dy, const T* x, const float* rstd,
                       const T* w, T* dx, bool add, float* gw);
  // Rotates `heads` heads of D at the start of each row of `ld` elements by the angles in table[pos] =
  // cos[D/2] | sin[D/2]. Row r has position (first_pos + r) % period; sign -1 is the inverse rotation.
  void (*rope)(std::uint64_t rows, std::uint32_t heads, std::uint32_t d, std::uint64_t ld, T* x,
               const float* table, std::uint64_t first_pos, std::uint64_t period, float sign);
  // a[r, n] = silu(gu[r, 0..n)) * gu[r, n..2n)
  void (*swiglu)(std::uint64_t rows, std::uint64_t n, const T* gu, T* a);
  // gu is overwritten with its gradient, computed from da[r, n].
  void (*swiglu_bwd)(std::uint64_t rows, std::uint64_t n, const T* da, T* gu);
  // delta[r] = dot(a[r], b[r]) over d columns
  void (*row_dots)(std::uint32_t rows, std::uint32_t d, const T* a, std::uint64_t lda, const T* b,
                   std::uint64_t ldb, float* delta);
  // -log softmax(row)[target]; with `gradient` row becomes (softmax - onehot) * scale, else it is
  // unchanged.
  double (*cross_entropy)(std::uint64_t n, T* row, std::int32_t target, float scale, bool gradient);
  // cross_entropy() of a row of which other ranks have the rest. top: the maximum; returns the sum of exp(row
  // - top); row is undefined afterwards.
  float (*row_sum_exp)(std::uint64_t n, T* row, float* top);
  // row = exp(row - top) * factor
  void (*scaled_exp)(std::uint64_t n, T* row, float top, float factor);
  // dst[n] += sum over rows of src[rows, n] with ld
  void (*column_sums)(std::uint64_t rows, std::uint64_t n, const T* src, std::uint64_t ld, float* dst);
  // dst[n] += src[n]
  void (*add)(std::uint64_t n, const T* src, float* dst);
  // y[j] = dot(w[j], x) (+ y[j] if add), for rows j of w[n, k]
  void (*gemv)(std::uint64_t n, std::uint64_t k, const T* w, const T* x, bool add, float* y);

  // squares[r] = sum over k columns of (w[r] + scale * b[r] a)^2, in double. w: [rows, k], a: [rank, k],
  // b: [rows, rank], packed.
  void (*adapted_squares)(std::uint64_t rows, std::uint64_t k, std::uint64_t rank, const T* w, const T* a,
                          const T* b, float scale, double* squares);
  // y[r] = (factor - less) * x[r] (+ bias) (+ residual[r]), [rows, n], packed. bias and residual may be null;
  // residual may be y.
  void (*dora)(std::uint64_t rows, std::uint64_t n, const T* x, const float* factor, float less,
               const T* bias, const T* residual, T* y);
  // n columns of rows of ld elements: sums[n] += dy * x; product = (factor - 1) * dy, unless it is null; x =
  // factor * dy.
  void (*dora_bwd)(std::uint64_t rows, std::uint64_t n, std::uint64_t ld, const T* dy, T* x,
                   const float* factor, T* product, float* sums);
  // squares[j] = sum over rows r of (w[r, j] + scale * sum of a[r, q] b[q, j])^2, in double. w: [rows, n] and
  // b: [rank, n] with ld elements per row, a: [rows, rank], packed. n <= 64.
  void (*adapted_column_squares)(std::uint64_t rows, std::uint64_t n, std::uint64_t rank, std::uint64_t ld,
                                 const T* w, const T* a, const T* b, float scale, double* squares);
};

struct Kernels : RowKernels<float> {
  RowKernels<Bf16> bf16;
  const char* name;  // "scalar", "avx2", "avx512"
  // Large products by large_product() (true) or by OpenBLAS: the one that was faster (plugins/cpu/README.md).
  bool own_large_products;

  // One step of the online softmax of a score tile s (raw q.k products, becomes probabilities). m, l: running
  // maximum and sum of each row; o[rows, d] with ldo is rescaled. first: m, l and o have no contents yet (o
  // is not rescaled).
  void (*softmax_tile)(const AttentionTile& t, float* s, float* m, float* l, bool first, float* o,
                       std::uint64_t ldo, std::uint32_t d);
  // o[r] /= l[r]; lse[r * lse_ld] = m[r] + log(l[r])
  void (*softmax_finish)(std::uint32_t rows, std::uint32_t d, float* o, std::uint64_t ldo, const float* m,
                         const float* l, float* lse, std::uint64_t lse_ld);
  // s (raw products) becomes p = exp(s*scale - lse), dp becomes ds = p * (dp - delta) * scale; 0 where
  // masked.
  void (*softmax_bwd_tile)(const AttentionTile& t, float* s, float* dp, const float* lse,
                           std::uint64_t lse_ld, const float* delta);
  // dst[r] += src (broadcast over rows); dst[rows, n] with ld
  void (*add_bias)(std::uint64_t rows, std::uint64_t n, const float* src, float* dst, std::uint64_t ld);
  // Sum of squares in double.
  double (*sum_squares)(std::uint64_t n, const float* x);
  // y[r, j] += dot(w[j], x[r]) for rows j of w[n, k], which is f32, or bfloat16 if `bf16`; then x has the
  // order of order_for_dots(). x[m, k] has rows of ldx, y[m, n] rows of ldy.
  void (*dots)(std::uint64_t m, std::uint64_t n, std::uint64_t k, const void* w, bool bf16, const float* x,
               std::uint64_t ldx, float* y, std::uint64_t ldy);
  // A row of n elements in the order in which dots() multiplies it with bfloat16.
  void (*order_for_dots)(std::uint64_t n, const float* x, float* to);
  // to[n] = from[n], bfloat16 to f32
  void (*widen)(std::uint64_t n, const Bf16* from, float* to);
  // to[n] = from[n], rounded to bfloat16, to nearest, ties to even
  void (*narrow)(std::uint64_t n, const float* from, Bf16* to);
  // c[rows, cols] = scale * sums (+ bias) (+ residual), rounded; bias [cols] and residual, with rows of ld as
  // c, may be null; residual may be c.
  void (*store_sums)(std::uint64_t rows, std::uint64_t cols, const float* sums, std::uint64_t ld_sums,
                     float scale, const Bf16* bias, const Bf16* residual, Bf16* c, std::uint64_t ld);

  // C[m,n] = A[m,k] B[k,n] (+ C if add), row-major; A is a[k,m] if `transposed`. work: kProductWork
  // floats.
  void (*product)(std::uint64_t m, std::uint64_t n, std::uint64_t k, const float* a, std::uint64_t lda,
                  bool transposed, const float* b, std::uint64_t ldb, bool add, float* c, std::uint64_t ldc,
                  float* work);
  // Width of the panels that a right operand of n columns is packed into.
  std::uint64_t (*panel_width)(std::uint64_t n);
  // Packs w[n,k]^T, or b[k,n], into panels [ceil(n / width)][k][width]; the last one may be partly used.
  // Packing columns from j on (a multiple of width) to packed + j*k gives the same panels.
  void (*pack_transposed)(std::uint64_t n, std::uint64_t k, const float* w, std::uint64_t ldw,
                          std::uint64_t width, float* packed);
  void (*pack)(std::uint64_t n, std::uint64_t k, const float* b, std::uint64_t ldb, std::uint64_t width,
               float* packed);
  // C[m,n] = A[m,k] times packed panels (+ C if add). The panels were packed with packed_k >= k inner
  // elements and at least n columns.
  void (*product_packed)(std::uint64_t m, std::uint64_t n, std::uint64_t k, const float* a, std::uint64_t lda,
                         const float* packed, std::uint64_t packed_k, std::uint64_t width, bool add, float* c,
                         std::uint64_t ldc);

  // Packs b[n,k], or b[k,n] if inner_is_row, for large_product(): n <= kLargeColumns, k <= kLargeInner.
  // panels: kLargePanels floats.
  void (*large_pack)(std::uint64_t n, std::uint64_t k, const float* b, std::uint64_t ldb, bool inner_is_row,
                     float* panels);
  // C[m,n] = A[m,k] times packed panels (+ addend[m,n]); A is a[k,m] if inner_is_row. addend: null, C itself,
  // or another matrix with rows of ld_addend, 0 for a row that is added to every row. strips: kLargeStrips
  // floats. next_left, next_right: what the caller will pack next.
  void (*large_product)(std::uint64_t m, std::uint64_t n, std::uint64_t k, const float* a, std::uint64_t lda,
                        bool inner_is_row, const float* panels, const float* addend, std::uint64_t ld_addend,
                        float* c, std::uint64_t ldc, float* strips, const LargeAhead& next_left,
                        const LargeAhead& next_right);
  // Runs FMAs on registers and returns their FLOPs: the peak of a core. *use receives their sum.
  double (*fma_loop)(std::uint64_t rounds, float* use);
  // The same of register tiles of large products, with operands in the L1 cache: the bound of products at the
  // clock at which they run, which can be lower.
  double (*tile_loop)(std::uint64_t rounds, float* use);

  // out[i] = table[code i] * scale of its block of 64 elements; code 2i is in the high half of codes[i]. n
  // elements from the start of a block; table has 16 values, scales one per block.
  void (*dequantize_nf4)(std::uint64_t n, const unsigned char* codes, const float* table, const float* scales,
                         float* out);

  void (*adamw)(std::uint64_t n, const float* g, float* w, float* m, float* v, const AdamConstants& c);
  void (*sgd)(std::uint64_t n, const float* g, float* w, const SgdConstants& c);
  void (*sgd_momentum)(std::uint64_t n, const float* g, float* w, float* m, const SgdConstants& c);
  // One block of at most 256 elements.
  void (*adamw_8bit)(std::uint64_t n, const float* g, float* w, const MomentBlock& m, const MomentBlock& v,
                     const MomentTables& m_codes, const MomentTables& v_codes, const AdamConstants& c);
  // sums[n] += g[n]^2
  void (*add_squares)(std::uint64_t n, const float* g, double* sums);
  // u = g * grad_scale / sqrt(max(factor * moment, smallest)). Returns the sum of u^2.
  double (*adafactor_squares)(std::uint64_t n, const float* g, const float* moment, float factor,
                              const AdafactorConstants& c);
  // w = decay * w - step * u
  void (*adafactor)(std::uint64_t n, const float* g, const float* moment, float factor, float* w,
                    const AdafactorConstants& c);
  // m = beta m + (1 - beta) g; x = (1 - beta) g + beta m, with g scaled. Returns the sum of x^2.
  double (*muon_momentum)(std::uint64_t n, const float* g, float* m, float* x, float beta,
                          float one_minus_beta, float grad_scale);
  // w = decay * w - step * x
  void (*muon_apply)(std::uint64_t n, const float* x, float* w, float decay, float step);
  void (*lion)(std::uint64_t n, const float* g, float* w, float* m, const LionConstants& c);
};

/// The widest table that this CPU can run, or the one named by TRAINHOST_CPU_ISA = scalar | avx2 | avx512.
/// Throws usage_error if the name is unknown or the CPU cannot run the table.
const Kernels& select_kernels();

/// kernels.own_large_products, or what TRAINHOST_CPU_PRODUCTS = own | openblas demands. Throws usage_error
/// for another value.
bool select_own_products(const Kernels& kernels);

/// Tables that this CPU can run, narrowest first.
const Kernels* const* runnable_kernels(std::size_t* count);

}  // namespace trainhost::cpu
