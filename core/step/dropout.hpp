// Which elements of an adapter's input are dropped (lora.dropout). The mask is a function of the seed, the
// product, the micro-batch and the element, by the counter-based generator Philox4x32-10 (Salmon et al.
// 2011). So it is the same in the forward and the backward pass, in every recompute policy, for any number of
// threads and after a resume, and is never stored.
#pragma once
#include <array>
#include <cstdint>

namespace trainhost::step {

/// Four random words of 32 bits for a counter of 128 bits and a key of 64.
inline std::array<std::uint32_t, 4> philox4x32_10(std::array<std::uint32_t, 4> c,
                                                  std::array<std::uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t a = std::uint64_t{0xD2511F53} * c[0], b = std::uint64_t{0xCD9E8D57} * c[2];
    c = {static_cast<std::uint32_t>(b >> 32) ^ c[1] ^ key[0], static_cast<std::uint32_t>(b),
         static_cast<std::uint32_t>(a >> 32) ^ c[3] ^ key[1], static_cast<std::uint32_t>(a)};
    key[0] += 0x9E3779B9, key[1] += 0xBB67AE85;
  }
  return c;
}

/// An element is dropped if its random word is smaller; else it is multiplied by the scale. 0 <= rate < 1.
inline std::uint32_t dropped_below(double rate) { return static_cast<std::uint32_t>(rate * 4294967296.0); }
inline float kept_scale(double rate) { return static_cast<float>(1.0 / (1.0 - rate)); }

/// The mask of one product's input in one micro-batch. Element [row, column] has word column % 4 of the
/// counter {column / 4, row, lower half of micro_batch, product << 16 | bits 32 to 47 of micro_batch}.
class DropoutMask {
 public:
  /// rate: fraction of dropped elements, 0 <= rate < 1. product: 4 * layer + AdapterGroup. micro_batch:
  /// counted from the first one of the run.
  DropoutMask(std::uint64_t seed, double rate, std::uint32_t product, std::uint64_t micro_batch)
      : key_{static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)},
        micro_low_(static_cast<std::uint32_t>(micro_batch)),
        product_and_micro_high_(product << 16 | static_cast<std::uint32_t>(micro_batch >> 32 & 0xffff)),
        dropped_below_(dropped_below(rate)),
        scale_(kept_scale(rate)) {}

  /// f(i, factor) for the columns first + i of a row: 0, or 1 / (1 - rate) for an element that is kept.
  template <class F>
  void for_row(std::uint64_t row, std::uint64_t first, std::uint64_t columns, F&& f) const {
    for (std::uint64_t group = first / 4, end = first + columns; 4 * group < end; ++group) {
      const std::array<std::uint32_t, 4> words =
          philox4x32_10({static_cast<std::uint32_t>(group), static_cast<std::uint32_t>(row), micro_low_,
                         product_and_micro_high_},
                        key_);
      for (std::uint64_t i = 0; i < 4; ++i)
        if (const std::uint64_t c = 4 * group + i; c >= first && c < end)
          f(c - first, words[i] < dropped_below_ ? 0.0f : scale_);
    }
  }

 private:
  std::array<std::uint32_t, 2> key_;
  std::uint32_t micro_low_, product_and_micro_high_, dropped_below_;
  float scale_;
};

}  // namespace trainhost::step
