// NF4, the 4-bit type of QLoRA (Dettmers et al. 2023), in the form of bitsandbytes: blocks of 64 consecutive
// elements are divided by their largest magnitude, the scale of the block, and each quotient becomes the
// index of the nearest of 16 values. With double quantization the scales, less their mean, are 8-bit indices
// of the dynamic map (dynamic_map.hpp) in blocks of 256. Every matrix of the model is quantized by itself, in
// row-major order.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace trainhost {
struct RunSpec;
struct TensorInfo;
}  // namespace trainhost

namespace trainhost::nf4 {

inline constexpr std::uint64_t kBlock = 64, kScaleBlock = 256;

/// Quantiles of the normal distribution, ascending; value 7 is 0.
inline constexpr std::array<float, 16> kValues = {
    -1.0f,
    -0.6961928009986877f,
    -0.5250730514526367f,
    -0.39491748809814453f,
    -0.28444138169288635f,
    -0.18477343022823334f,
    -0.09105003625154495f,
    0.0f,
    0.07958029955625534f,
    0.16093020141124725f,
    0.24611230194568634f,
    0.33791524171829224f,
    0.44070982933044434f,
    0.5626170039176941f,
    0.7229568362236023f,
    1.0f,
};

/// Where the parts of one quantized tensor are. Without double quantization: f32 scales [blocks], then codes.
/// With it: f32 mean of the scales, f32 scales of the scales [scale_blocks], 8-bit scales [blocks], codes. No
/// padding, so the f32 values may be unaligned. Codes: element 2i is in the high half of byte i.
struct Layout {
  std::uint64_t elements = 0, blocks = 0;
  std::uint64_t scale_blocks = 0;       // 0: no double quantization
  std::uint64_t scales = 0, codes = 0;  // offsets in bytes
  std::uint64_t bytes = 0;
  bool doubled() const { return scale_blocks != 0; }
};
/// `elements` must be positive. Throws Error if the size overflows.
Layout layout(std::uint64_t elements, bool double_quantized);

/// True if the run stores this tensor in NF4: the frozen matrices of the layers, in QLoRA. Embedding, head,
/// norms and biases keep the type of the run.
bool is_quantized(const RunSpec& r, const TensorInfo& t);

/// Quantizes the blocks from `first_block` on: writes their codes to `to`, and their scales to
/// absmax[first_block], ... `values` has whole blocks; only the last block of the tensor may be shorter.
/// Values must be finite. Blocks are independent, in any order.
void quantize_blocks(const Layout& l, std::uint64_t first_block, std::span<const float> values, std::byte* to,
                     float* absmax);
/// Stores the scales of all blocks; after the last quantize_blocks(). Overwrites absmax [blocks]. The mean is
/// summed in double and rounded once; torch sums in f32, in an order that depends on the CPU.
void store_scales(const Layout& l, float* absmax, std::byte* to);

/// The scales of blocks [first_block, first_block + out.size()).
void read_scales(const Layout& l, const std::byte* from, std::uint64_t first_block, std::span<float> out);
/// The element values of blocks [first_block, ...), until `out` is full: whole blocks, the last one of the
/// tensor may be shorter. A plain loop; trainers have faster ones with the same bits.
void dequantize_blocks(const Layout& l, const std::byte* from, std::uint64_t first_block,
                       std::span<float> out);

}  // namespace trainhost::nf4
