// Choices of a schedule: splitmix64, the same on every machine.
#pragma once
#include <bit>
#include <cstdint>

namespace emu {

struct Random {
  std::uint64_t state;
  std::uint64_t next() {
    std::uint64_t z = (state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  std::uint64_t below(std::uint64_t n) { return next() % n; }
  /// The number of one of the bits that are set; there is one.
  unsigned bit_of(std::uint32_t bits) {
    for (std::uint64_t skip = below(static_cast<unsigned>(std::popcount(bits))); skip > 0; --skip)
      bits &= bits - 1;
    return static_cast<unsigned>(std::countr_zero(bits));
  }
};

}  // namespace emu
