// Writes PNG without a library: the filter "Up" makes equal rows zero, and the deflate stream has fixed codes
// and matches of distance 3: runs of equal pixels.
#include <array>

#include "core/report/picture.hpp"

namespace trainhost::report {
namespace {

constexpr std::size_t kPixel = 3;  // bytes

/// RFC 1951: bits from the lowest; Huffman codes with their highest bit first.
class DeflateBits {
 public:
  void bits(std::uint32_t value, unsigned n) {
    held_ |= static_cast<std::uint64_t>(value) << filled_;
    for (filled_ += n; filled_ >= 8; filled_ -= 8, held_ >>= 8) out_ += static_cast<char>(held_ & 0xff);
  }
  void code(std::uint32_t value, unsigned n) {
    std::uint32_t reversed = 0;
    for (unsigned i = 0; i < n; ++i) reversed |= ((value >> i) & 1u) << (n - 1 - i);
    bits(reversed, n);
  }
  /// A literal byte, the end (256), or a length code, of the fixed table.
  void symbol(std::uint32_t s) {
    if (s < 144)
      code(0x30 + s, 8);
    else if (s < 256)
      code(0x190 + s - 144, 9);
    else if (s < 280)
      code(s - 256, 7);
    else
      code(0xc0 + s - 280, 8);
  }
  std::string finish() {
    if (filled_) bits(0, 8 - filled_);
    return std::move(out_);
  }

 private:
  std::string out_;
  std::uint64_t held_ = 0;
  unsigned filled_ = 0;
};

/// Length code, extra bits and their value for a match of 3 to 258 bytes.
void write_run(DeflateBits& out, unsigned length) {
  unsigned extra = 0, base = 3, symbol = 257;
  if (length == 258)
    symbol = 285, base = 258;
  else
    for (;; symbol += 4, ++extra) {  // groups of four codes; the first two groups have no extra bits
      const unsigned step = 1u << (extra < 2 ? 0 : extra - 1), span = 4 * step;
      if (length < base + span) {
        symbol += (length - base) / step;
        base += (length - base) / step * step;
        extra = extra < 2 ? 0 : extra - 1;
        break;
      }
      base += span;
    }
  out.symbol(symbol);
  if (extra) out.bits(length - base, extra);
  out.code(2, 5);  // distance 3
}

std::string deflated(std::string_view data) {
  DeflateBits out;
  out.bits(1, 1);  // the last block
  out.bits(1, 2);  // fixed codes
  for (std::size_t i = 0; i < data.size();) {
    std::size_t run = 0;
    while (i >= kPixel && run < 258 && i + run < data.size() && data[i + run] == data[i + run - kPixel])
      ++run;
    if (run > 2)
      write_run(out, static_cast<unsigned>(run));
    else
      out.symbol(static_cast<unsigned char>(data[i]));
    i += run > 2 ? run : 1;
  }
  out.symbol(256);
  return out.finish();
}

std::string big_endian(std::uint32_t v) {
  return {static_cast<char>(v >> 24), static_cast<char>(v >> 16), static_cast<char>(v >> 8),
          static_cast<char>(v)};
}

std::uint32_t crc32(std::string_view data) {
  static const std::array<std::uint32_t, 256> table = [] {
    std::array<std::uint32_t, 256> t{};
    for (std::uint32_t n = 0; n < 256; ++n) {
      std::uint32_t c = n;
      for (int k = 0; k < 8; ++k) c = c & 1 ? 0xedb88320u ^ (c >> 1) : c >> 1;
      t[n] = c;
    }
    return t;
  }();
  std::uint32_t c = 0xffffffffu;
  for (const char b : data) c = table[(c ^ static_cast<unsigned char>(b)) & 0xff] ^ (c >> 8);
  return ~c;
}

std::uint32_t adler32(std::string_view data) {
  std::uint32_t a = 1, b = 0;
  for (const char c : data) {
    a = (a + static_cast<unsigned char>(c)) % 65521;
    b = (b + a) % 65521;
  }
  return b << 16 | a;
}

std::string chunk(std::string_view type, std::string_view data) {
  const std::string body = std::string(type) + std::string(data);
  return big_endian(static_cast<std::uint32_t>(data.size())) + body + big_endian(crc32(body));
}

}  // namespace

std::string png_file(const Pixels& p) {
  std::string rows;
  const std::size_t row = p.width * 3;
  rows.reserve(p.height * (row + 1));
  for (std::size_t y = 0; y < p.height; ++y) {
    rows += '\2';  // filter "Up": minus the row above
    for (std::size_t i = 0; i < row; ++i)
      rows += static_cast<char>(p.rgb[y * row + i] - (y ? p.rgb[(y - 1) * row + i] : 0));
  }
  const std::string header = big_endian(static_cast<std::uint32_t>(p.width)) +
                             big_endian(static_cast<std::uint32_t>(p.height)) +
                             std::string("\x08\x02\0\0\0", 5);  // 8 bits, RGB, no interlace
  return "\x89PNG\r\n\x1a\n" + chunk("IHDR", header) +
         chunk("IDAT", "\x78\x01" + deflated(rows) + big_endian(adler32(rows))) + chunk("IEND", {});
}

}  // namespace trainhost::report
