// Encodes texts with a tokenizer of trainhost, for tests/interop/tokenizers_test.py and as a benchmark.
//   interop_encode_texts TOKENIZER TEXTS [special|pieces|time]
// TEXTS and the output are binary, little-endian: for each text uint32 length and bytes; for each result
// uint32 count and int32 ids, uint32 length and bytes of the decoded text. `special`: names of special tokens
// are found. `pieces`: the text arrives in pieces that begin short. `time`: prints MB per second of CPU time
// instead.
#include <cstdio>
#include <cstring>
#include <ctime>
#include <fstream>
#include <iterator>

#include "core/base/error.hpp"
#include "core/data/dataset.hpp"

using namespace trainhost;

namespace {

std::vector<std::int32_t> encode_in_pieces(const tokenizer::Tokenizer& t, std::string_view text) {
  std::vector<std::int32_t> ids;
  for (std::size_t at = 0, wanted = 300; at < text.size();) {
    std::size_t end = std::min(text.size(), at + wanted);
    while (end < text.size() && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
    const std::size_t used =
        t.encode_next(text.substr(at, end - at), tokenizer::Names::kText, at == 0, end == text.size(), ids);
    wanted = used == 0 ? wanted * 2 : 300;
    at += used;
  }
  return ids;
}

void put(std::string& out, const void* data, std::size_t bytes, std::uint32_t count) {
  out.append(reinterpret_cast<const char*>(&count), sizeof count);
  out.append(static_cast<const char*>(data), bytes);
}

/// CPU time, because others may use the machine.
double seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc < 3) return 2;
    const std::string mode = argc > 3 ? argv[3] : "";
    const double start = seconds();
    const auto t = data::make_tokenizer(argv[1]);
    const double loaded = seconds();
    std::ifstream file(argv[2], std::ios::binary);
    const std::string all(std::istreambuf_iterator<char>(file), {});
    const double begin = seconds();
    std::string out;
    std::uint64_t bytes = 0, tokens = 0;
    for (std::size_t at = 0; at < all.size();) {
      std::uint32_t size = 0;
      std::memcpy(&size, all.data() + at, sizeof size);
      const std::string_view text = std::string_view(all).substr(at + sizeof size, size);
      at += sizeof size + size;
      const auto names = mode == "special" ? tokenizer::Names::kSpecial : tokenizer::Names::kText;
      const auto ids = mode == "pieces" ? encode_in_pieces(*t, text) : t->encode(text, names);
      bytes += size, tokens += ids.size();
      if (mode == "time") continue;
      const std::string decoded = t->decode(ids);
      put(out, ids.data(), ids.size() * sizeof ids[0], static_cast<std::uint32_t>(ids.size()));
      put(out, decoded.data(), decoded.size(), static_cast<std::uint32_t>(decoded.size()));
    }
    if (mode == "time")
      std::printf("%.1f MB/s (%.3f MB, %.0f ms to load, %llu ids)\n",
                  static_cast<double>(bytes) / 1e6 / (seconds() - begin), static_cast<double>(bytes) / 1e6,
                  (loaded - start) * 1e3, static_cast<unsigned long long>(tokens));
    else
      std::fwrite(out.data(), 1, out.size(), stdout);
    return 0;
  } catch (const Error& e) {
    std::fprintf(stderr, "%s\n", e.full().c_str());
    return static_cast<int>(e.code());
  }
}
