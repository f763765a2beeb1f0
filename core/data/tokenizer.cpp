// The byte tokenizer, selection of a tokenizer, and encoding of long texts in pieces. SentencePiece:
// sentencepiece.cpp, or sentencepiece_absent.cpp if the library is missing.
#include "core/data/tokenizer.hpp"

#include <algorithm>
#include <cassert>

#include "core/base/error.hpp"
#include "core/base/text.hpp"

namespace trainhost::data {
namespace {

class ByteTokenizer final : public Tokenizer {
 public:
  std::uint64_t vocab() const override { return 256; }
  std::string name() const override { return "bytes"; }
  std::vector<std::int32_t> encode(std::string_view text) const override {
    std::vector<std::int32_t> ids(text.size());
    std::transform(text.begin(), text.end(), ids.begin(),
                   [](char c) { return static_cast<unsigned char>(c); });
    return ids;
  }
  std::string decode(std::span<const std::int32_t> ids) const override {
    std::string text;
    text.reserve(ids.size());
    for (std::int32_t id : ids) {
      if (id < 0 || id > 255)
        throw usage_error("token id " + std::to_string(id) +
                          " is not a byte: ids of the byte tokenizer are below 256");
      text += static_cast<char>(id);
    }
    return text;
  }
};

// Length of the first piece of `text`, from 1 to its size. Only the second half is searched for a newline: a
// piece must stay large enough that its ends do not matter. Without one, the cut is before the last UTF-8
// character, which may be incomplete.
std::size_t piece_end(std::string_view text, bool is_last) {
  if (is_last) return text.size();
  const std::size_t newline = text.rfind('\n');
  if (newline != std::string_view::npos && newline >= text.size() / 2) return newline + 1;
  std::size_t end = text.size();
  for (int back = 0; back < 4 && end > 1; ++back) {
    --end;
    // Bytes 10xxxxxx continue a character; any other byte starts one.
    if ((static_cast<unsigned char>(text[end]) & 0xC0) != 0x80) return end;  // start of the last character
  }
  // Four continuation bytes in a row are not UTF-8; the caller rejects the piece.
  return text.size();
}

}  // namespace

std::unique_ptr<Tokenizer> make_tokenizer(const std::string& what) {
  if (what == "bytes") return std::make_unique<ByteTokenizer>();
  const std::vector<std::string> known{"bytes"};
  const std::string hint = "bytes, or the path of a SentencePiece .model";
  if (what.empty()) throw usage_error("data.tokenizer is empty; expected " + hint);
  // Only the extension is checked here, so that a misspelt word is not reported as a missing file.
  if (!what.ends_with(".model"))
    throw usage_error("data.tokenizer '" + escaped(what) + "' is unknown; expected " + hint +
                      did_you_mean(what, known));
  return load_sentencepiece(what);
}

void encode_file(const InputFile& file, const Tokenizer& tokenizer,
                 const std::function<void(std::span<const std::int32_t>)>& take, std::size_t piece_bytes) {
  const bool needs_utf8 = tokenizer.name() != "bytes";
  std::string text;
  for (std::uint64_t at = 0; at < file.size();) {
    text.resize(static_cast<std::size_t>(std::min<std::uint64_t>(piece_bytes, file.size() - at)));
    file.read(at, std::as_writable_bytes(std::span(text)));
    // The bytes after the end of the piece are read again with the next one.
    text.resize(piece_end(text, at + text.size() == file.size()));
    if (needs_utf8 && !valid_utf8(text))
      throw usage_error("data file " + in_quotes(file.path()) + " is not UTF-8 between bytes " +
                            std::to_string(at) + " and " + std::to_string(at + text.size()) + ", which " +
                            tokenizer.name() + " needs",
                        "convert the file, or use data.tokenizer = \"bytes\"");
    assert(!text.empty());
    take(tokenizer.encode(text));
    at += text.size();
  }
}

}  // namespace trainhost::data
