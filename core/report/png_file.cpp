// Writes PNG: the filter "Up" makes equal rows zero, and zlib compresses them.
#include <zlib.h>

#include "core/report/picture.hpp"

namespace trainhost::report {
namespace {

std::string big_endian(std::size_t v) {
  return {static_cast<char>(v >> 24), static_cast<char>(v >> 16), static_cast<char>(v >> 8),
          static_cast<char>(v)};
}

const Bytef* bytes_of(const std::string& s) { return reinterpret_cast<const Bytef*>(s.data()); }

/// Length, type, data, and the checksum of type and data.
std::string chunk(std::string_view type, std::string_view data) {
  const std::string body = std::string(type) + std::string(data);
  return big_endian(data.size()) + body + big_endian(crc32_z(0, bytes_of(body), body.size()));
}

std::string compressed(const std::string& data) {
  uLongf size = compressBound(data.size());
  std::string out(size, '\0');
  if (compress(reinterpret_cast<Bytef*>(out.data()), &size, bytes_of(data), data.size()) != Z_OK)
    throw std::bad_alloc();  // zlib's only error where the output has the size of compressBound()
  out.resize(size);
  return out;
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
  const std::string header =
      big_endian(p.width) + big_endian(p.height) + std::string("\x08\x02\0\0\0", 5);  // 8 bits, RGB
  return "\x89PNG\r\n\x1a\n" + chunk("IHDR", header) + chunk("IDAT", compressed(rows)) + chunk("IEND", {});
}

}  // namespace trainhost::report
