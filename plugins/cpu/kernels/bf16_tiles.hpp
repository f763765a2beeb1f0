// The loop over strips and panels that all bf16 kernels share. A file that includes it (inside its own
// namespace) provides: kBlock; kInner; the type Element of packed elements; packed_inner(k), the inner
// elements that a strip of k is filled up to; and  static void block(k, first, inner, left, right, rows,
// cols, add, c, ldc):  a tile of C of kBlock x kBlock, of which only `rows` x `cols` is needed, of `inner` of
// the k packed inner elements, from `first` on. kInner elements at a time, so that a panel stays in the L1
// cache while all strips are processed. Incomplete tiles use `spare`, with the sums so far, so that the bits
// of a sum do not depend on the division of its inner elements.
#pragma once

static void copy_tile(std::uint64_t rows, std::uint64_t cols, const float* from, std::uint64_t ld, float* to,
                      std::uint64_t ld_to) {
  for (std::uint64_t r = 0; r < rows; ++r)
    for (std::uint64_t s = 0; s < cols; ++s) to[r * ld_to + s] = from[r * ld + s];
}

static void multiply(std::uint64_t rows, std::uint64_t cols, std::uint64_t inner, const void* strips,
                     const void* panels, bool add, float* c, std::uint64_t ldc, float* spare) {
  begin_blocks();
  const std::uint64_t k = packed_inner(inner), step = k * kBlock;  // step: elements of a strip or a panel
  for (std::uint64_t p = 0; p < k; p += kInner) {
    const std::uint64_t part = k - p < kInner ? k - p : kInner;
    const bool adds = add || p > 0;
    const auto* right = static_cast<const Element*>(panels);
    for (std::uint64_t j = 0; j < cols; j += kBlock, right += step) {
      const std::uint64_t width = cols - j < kBlock ? cols - j : kBlock;
      const auto* left = static_cast<const Element*>(strips);
      for (std::uint64_t i = 0; i < rows; i += kBlock, left += step) {
        const std::uint64_t height = rows - i < kBlock ? rows - i : kBlock;
        float* to = c + i * ldc + j;
        if (width == kBlock && height == kBlock) {
          block(k, p, part, left, right, kBlock, kBlock, adds, to, ldc);
          continue;
        }
        if (adds) copy_tile(height, width, to, ldc, spare, kBlock);
        block(k, p, part, left, right, height, width, adds, spare, kBlock);
        copy_tile(height, width, spare, kBlock, to, ldc);
      }
    }
  }
  end_blocks();
}
