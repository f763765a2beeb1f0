// The table of kernels of one instruction set. Compiled once per set: TRAINHOST_KERNEL_SET is its name,
// -march determines kLanes. Includes no standard header with inline functions, because the linker could use
// their code in units for older CPUs. To add a kernel: a row in kernel_table.hpp, its loop in a rows_*.hpp
// file, a line below.
#include <cstddef>
#include <cstdint>

#if defined(__AVX2__)
#include <immintrin.h>
#endif

#include "plugins/cpu/kernels/bf16.hpp"
#include "plugins/cpu/kernels/kernel_table.hpp"

#define TH_STRING_(x) #x
#define TH_STRING(x) TH_STRING_(x)

extern "C" double log(double) noexcept(true);

namespace trainhost::cpu {
namespace TRAINHOST_KERNEL_SET {
#include "plugins/cpu/kernels/simd.hpp"

#include "plugins/cpu/kernels/rows_basic.hpp"  // before the others: they use its dot products

#include "plugins/cpu/kernels/dequantize.hpp"
#include "plugins/cpu/kernels/rows_attention.hpp"
#include "plugins/cpu/kernels/rows_decode.hpp"
#include "plugins/cpu/kernels/rows_dora.hpp"
#include "plugins/cpu/kernels/rows_norm.hpp"
#include "plugins/cpu/kernels/rows_optimizer.hpp"
#include "plugins/cpu/kernels/small_product.hpp"

#include "plugins/cpu/kernels/large_product.hpp"  // after small_product.hpp: it transposes with its squares

#include "plugins/cpu/kernels/bf16_by_f32.hpp"  // uses small_product.hpp

// Of the templates the one whose arguments have the type of the table is chosen.
#define TH_ROW_KERNELS                                                                                  \
  {                                                                                                     \
    rms_norm, rms_norm_bwd, rope, swiglu, swiglu_bwd, row_dots, cross_entropy, row_sum_exp, scaled_exp, \
        column_sums, add, gemv, adapted_squares, dora, dora_bwd, adapted_column_squares                 \
  }
extern const Kernels table;
const Kernels table = {
    TH_ROW_KERNELS,
    TH_ROW_KERNELS,
    TH_STRING(TRAINHOST_KERNEL_SET),
#if defined(__AVX2__)
    true,
#else
    false,
#endif
    softmax_tile,
    softmax_finish,
    softmax_bwd_tile,
    add_bias,
    sum_squares,
    dots,
    order_for_dots,
    widen,
    narrow,
    store_sums,
    product,
    panel_width,
    pack_transposed,
    pack,
    product_packed,
    large_pack,
    large_product,
    fma_loop,
    tile_loop,
    dequantize_nf4,
    adamw,
    sgd,
    sgd_momentum,
    adamw_8bit,
    add_squares,
    adafactor_squares,
    adafactor,
    muon_momentum,
    muon_apply,
    lion,
};

}  // namespace TRAINHOST_KERNEL_SET
}  // namespace trainhost::cpu
