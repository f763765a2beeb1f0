// The loop over strips and panels that all bf16 kernels share. A file that includes it (inside its own
// namespace) provides  static void block(blocks, left, right, add, c, ldc):  one whole 32 x 32 tile of C. A
// panel stays in the L1 cache while all strips are processed. Incomplete tiles use `spare`.
#pragma once

static void multiply(std::uint64_t rows, std::uint64_t cols, std::uint64_t blocks,
                     const std::uint16_t* strips, const std::uint16_t* panels, bool add, float* c,
                     std::uint64_t ldc, float* spare) {
  begin_blocks();
  const std::uint64_t step = blocks * kBf16Block * kBf16Block;  // elements of a strip or a panel
  for (std::uint64_t j = 0; j < cols; j += kBf16Block, panels += step) {
    const std::uint64_t width = cols - j < kBf16Block ? cols - j : kBf16Block;
    const std::uint16_t* left = strips;
    for (std::uint64_t i = 0; i < rows; i += kBf16Block, left += step) {
      const std::uint64_t height = rows - i < kBf16Block ? rows - i : kBf16Block;
      float* to = c + i * ldc + j;
      if (width == kBf16Block && height == kBf16Block) {
        block(blocks, left, panels, add, to, ldc);
        continue;
      }
      block(blocks, left, panels, false, spare, kBf16Block);
      for (std::uint64_t r = 0; r < height; ++r)
        for (std::uint64_t s = 0; s < width; ++s)
          to[r * ldc + s] = add ? to[r * ldc + s] + spare[r * kBf16Block + s] : spare[r * kBf16Block + s];
    }
  }
  end_blocks();
}
