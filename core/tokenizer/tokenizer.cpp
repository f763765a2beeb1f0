// The byte tokenizer, and the parts of the interface that all tokenizers share.
#include "core/tokenizer/tokenizer.hpp"

#include <algorithm>
#include <cassert>

#include "core/base/error.hpp"
#include "core/tokenizer/loaders.hpp"

namespace trainhost::tokenizer {
namespace {

class ByteTokenizer final : public Tokenizer {
 public:
  std::uint64_t vocab() const override { return 256; }
  std::string name() const override { return "bytes"; }
  std::size_t encode_next(std::string_view text, Names, bool, bool last,
                          std::vector<std::int32_t>& ids) const override {
    const std::size_t end = piece_end(text, last);
    for (char c : text.substr(0, end)) ids.push_back(static_cast<unsigned char>(c));
    return end;
  }
  PartIds encode_parts(std::span<const Part> parts) const override {
    PartIds out;
    for (const Part& p : parts) {
      encode_next(p.text, p.names, true, true, out.ids);
      out.ends.push_back(out.ids.size());
    }
    return out;
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
  std::optional<std::int32_t> id_of(std::string_view token) const override {
    if (token.size() != 1) return std::nullopt;
    return static_cast<unsigned char>(token[0]);
  }
  bool special(std::int32_t) const override { return false; }
};

/// True if the text ends within a UTF-8 character, or in U+FFFD, by which SentencePiece replaces the bytes of
/// an incomplete one. Text that is not UTF-8 counts as complete.
bool incomplete(std::string_view text) {
  if (text.ends_with("\xEF\xBF\xBD")) return true;
  for (std::size_t back = 1; back <= std::min<std::size_t>(3, text.size()); ++back) {
    const auto c = static_cast<unsigned char>(text[text.size() - back]);
    if ((c & 0xC0) == 0x80) continue;
    const std::size_t need = c >= 0xF0 ? 4 : c >= 0xE0 ? 3 : c >= 0xC0 ? 2 : 1;
    return need > back;
  }
  return false;
}

constexpr std::size_t kMaxWaiting = 8;  // ids that may stay incomplete; more are no UTF-8

}  // namespace

std::unique_ptr<Tokenizer> make_bytes() { return std::make_unique<ByteTokenizer>(); }

/// Only the second half is searched for a newline: a piece must stay large enough that its ends do not
/// matter. Without one, the cut is before the last UTF-8 character, which may be incomplete.
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

std::vector<std::int32_t> Tokenizer::encode(std::string_view text, Names names) const {
  std::vector<std::int32_t> ids;
  [[maybe_unused]] const std::size_t used = encode_next(text, names, true, true, ids);
  assert(used == text.size());
  return ids;
}

/// A few ids are enough: no decoder looks further back than to the start of a character or a word.
TextDecoder::TextDecoder(const Tokenizer& tokenizer, std::span<const std::int32_t> before)
    : tokenizer_(tokenizer) {
  const std::span<const std::int32_t> last = before.last(std::min(before.size(), kMaxWaiting));
  ids_.assign(last.begin(), last.end());
  printed_ids_ = ids_.size();
}

/// Decoded together with the ids before it, because tokenizers may join a token with the one before it, and
/// drop the space in front of the first one.
std::string TextDecoder::next(std::int32_t id) {
  if (tokenizer_.special(id)) return {};
  ids_.push_back(id);
  const std::string context = tokenizer_.decode(std::span(ids_).first(printed_ids_));
  std::string text = tokenizer_.decode(ids_);
  if (text.size() <= context.size() || (incomplete(text) && ids_.size() - printed_ids_ < kMaxWaiting))
    return {};
  ids_.erase(ids_.begin(), ids_.begin() + static_cast<std::ptrdiff_t>(printed_ids_));
  printed_ids_ = ids_.size();
  return text.substr(context.size());
}

std::string TextDecoder::rest() const {
  const std::string context = tokenizer_.decode(std::span(ids_).first(printed_ids_));
  const std::string text = tokenizer_.decode(ids_);
  return text.size() > context.size() ? text.substr(context.size()) : "";
}

}  // namespace trainhost::tokenizer
