// Selection of a tokenizer by the name of its file, and encoding of long texts in pieces.
#include "core/data/encode_file.hpp"

#include <algorithm>
#include <cassert>

#include "core/base/error.hpp"
#include "core/base/text.hpp"
#include "core/data/dataset.hpp"
#include "core/tokenizer/loaders.hpp"

namespace trainhost::data {
namespace fs = std::filesystem;
namespace {

/// Bytes at the end of a text that are the start of a character and not all of it.
std::size_t incomplete_bytes(std::string_view text) {
  for (std::size_t back = 1; back <= std::min<std::size_t>(3, text.size()); ++back) {
    const auto c = static_cast<unsigned char>(text[text.size() - back]);
    if ((c & 0xC0) == 0x80) continue;
    const std::size_t length = c >= 0xF0 ? 4 : c >= 0xE0 ? 3 : c >= 0xC0 ? 2 : 1;
    return length > back ? back : 0;
  }
  return 0;
}

/// Far above any published file; bounds the memory that a wrong path can cost.
constexpr std::uint64_t kLargestModel = std::uint64_t{256} << 20;

/// The content of tokenizer_config.json in the folder of a tokenizer, "" if there is none.
std::string config_beside(const fs::path& tokenizer) {
  const fs::path file = tokenizer.parent_path() / "tokenizer_config.json";
  std::error_code ec;
  return fs::exists(file, ec) ? read_whole(file, kLargestModel) : "";
}

}  // namespace

std::unique_ptr<Tokenizer> make_tokenizer(const std::string& what) {
  if (what == "bytes") return tokenizer::make_bytes();
  const std::vector<std::string> known{"bytes"};
  const std::string hint = "bytes, or the path of a SentencePiece .model or a tokenizer.json";
  if (what.empty()) throw usage_error("data.tokenizer is empty; expected " + hint);
  const fs::path path = what;
  if (path.extension() == ".json")
    return tokenizer::load_tokenizer_json(read_whole(path, kLargestModel), config_beside(path),
                                          in_quotes(path));
  // Only the extension is checked here, so that a misspelt word is not reported as a missing file.
  if (path.extension() != ".model")
    throw usage_error("data.tokenizer '" + escaped(what) + "' is unknown; expected " + hint +
                      did_you_mean(what, known));
  return tokenizer::load_sentencepiece(read_whole(path, kLargestModel), config_beside(path), in_quotes(path));
}

void encode_file(const InputFile& file, const Tokenizer& tokenizer, tokenizer::Names names,
                 const std::function<void(std::span<const std::int32_t>)>& take, std::size_t piece_bytes,
                 const OnRead& on_read) {
  const bool needs_utf8 = tokenizer.name() != "bytes";
  std::string text;
  std::vector<std::int32_t> ids;
  std::size_t wanted = piece_bytes;
  for (std::uint64_t at = 0; at < file.size();) {
    text.resize(static_cast<std::size_t>(std::min<std::uint64_t>(wanted, file.size() - at)));
    file.read(at, std::as_writable_bytes(std::span(text)));
    const bool last = at + text.size() == file.size();
    if (needs_utf8 && !last) text.erase(text.size() - incomplete_bytes(text));
    if (needs_utf8 && !valid_utf8(text))
      throw usage_error("data file " + in_quotes(file.path()) + " is not UTF-8 between bytes " +
                            std::to_string(at) + " and " + std::to_string(at + text.size()) + ", which " +
                            tokenizer.name() + " needs",
                        "convert the file, or use data.tokenizer = \"bytes\"");
    ids.clear();
    // The bytes after the end of the piece are read again with the next one.
    const std::size_t used = tokenizer.encode_next(text, names, at == 0, last, ids);
    assert(used <= text.size() && (used > 0 || !last));
    if (used == 0) {
      if (wanted >= kLongestPiece)
        throw usage_error("data file " + in_quotes(file.path()) + " has no place between bytes " +
                              std::to_string(at) + " and " + std::to_string(at + text.size()) + " at which " +
                              tokenizer.name() + " can divide it",
                          "divide the file into texts of less than 256 MiB");
      wanted = std::min(kLongestPiece, std::max<std::size_t>(wanted, 64) * 2);
      continue;
    }
    take(ids);
    at += used;
    if (on_read) on_read(at);
    wanted = piece_bytes;
  }
}

}  // namespace trainhost::data
