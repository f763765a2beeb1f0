// Tokenizer from a SentencePiece .model file, with libsentencepiece. Adds no begin or end tokens. The only
// file that uses the library; without it, sentencepiece_absent.cpp is compiled instead.
#include <sentencepiece_processor.h>

#include <algorithm>
#include <cassert>
#include <map>
#include <new>
#include <optional>

#include "core/base/error.hpp"
#include "core/base/text.hpp"
#include "core/tokenizer/loaders.hpp"
#include "core/tokenizer/tokenizer_config.hpp"

namespace trainhost::tokenizer {
namespace {

// Iterates over the fields of one level of a protocol buffer; nullopt at the end or if it is malformed. The
// library does not expose its parsed model, and this is all that is needed of the format.
class ProtoFields {
 public:
  explicit ProtoFields(std::string_view bytes) : rest_(bytes) {}
  struct Field {
    std::uint64_t number = 0, value = 0;  // value of a varint field
    std::string_view bytes;               // content of a length-delimited field
  };
  /// Every length is compared with the bytes that remain before it is used, so no field reaches outside the
  /// file. Groups (wire types 3 and 4) are obsolete and rejected.
  std::optional<Field> next() {
    Field f;
    std::uint64_t key = 0, length = 0;
    if (rest_.empty() || !varint(key)) return std::nullopt;
    f.number = key >> 3;
    switch (key & 7) {
      case 0:
        return varint(f.value) ? std::optional(f) : std::nullopt;
      case 1:
        return skip(8, f);
      case 2:
        return varint(length) ? skip(length, f) : std::nullopt;
      case 5:
        return skip(4, f);
      default:
        return std::nullopt;
    }
  }

 private:
  /// At most ten bytes of seven bits, as the format allows; a longer number ends the loop and is malformed.
  bool varint(std::uint64_t& v) {
    v = 0;
    for (unsigned shift = 0; shift < 64 && !rest_.empty(); shift += 7) {
      const auto byte = static_cast<unsigned char>(rest_.front());
      rest_.remove_prefix(1);
      v |= static_cast<std::uint64_t>(byte & 127) << shift;
      if (byte < 128) return true;
    }
    return false;
  }
  std::optional<Field> skip(std::uint64_t n, Field& f) {
    if (n > rest_.size()) return std::nullopt;
    f.bytes = rest_.substr(0, static_cast<std::size_t>(n));
    rest_.remove_prefix(static_cast<std::size_t>(n));
    return f;
  }
  std::string_view rest_;
};

// ModelProto.trainer_spec (field 2), model_type (field 3); unigram is the default of the enum.
std::string model_type(std::string_view model) {
  std::uint64_t type = 1;
  ProtoFields top(model);
  while (const auto f = top.next()) {
    if (f->number != 2) continue;
    ProtoFields spec(f->bytes);
    while (const auto g = spec.next())
      if (g->number == 3) type = g->value;
  }
  switch (type) {
    case 1:
      return "unigram";
    case 2:
      return "bpe";
    case 3:
      return "word";
    case 4:
      return "char";
    default:
      return "model";
  }
}

// The library does not check damaged files everywhere, so a file with an invalid outer structure is rejected
// first: its fields must tile the file exactly, and there must be pieces (field 1).
bool well_formed(std::string_view model) {
  std::size_t pieces = 0, seen = 0;
  ProtoFields top(model);
  while (const auto f = top.next()) {
    pieces += f->number == 1;
    seen = static_cast<std::size_t>(f->bytes.data() ? f->bytes.data() + f->bytes.size() - model.data() : 0);
  }
  return pieces > 0 && seen == model.size();
}

/// Owns the model. encode() and decode() are const in the library and may be called from several threads.
class SentencePiece final : public Tokenizer {
 public:
  SentencePiece(std::string_view model, std::string_view config, const std::string& file) : file_(file) {
    const auto damaged = [&](const std::string& why) {
      return usage_error("tokenizer " + file + " is not a SentencePiece model" + why);
    };
    if (!well_formed(model))
      throw damaged(model.empty() ? ": it is empty" : ": it is damaged or has another format");
    // Loaded from memory, not by path: the bytes that were checked are the bytes that are parsed.
    // The library has a status, but the trie that it builds throws.
    try {
      const auto status = processor_.LoadFromSerializedProto(absl::string_view(model.data(), model.size()));
      if (!status.ok()) throw damaged(": " + escaped(status.message()));
    } catch (const std::bad_alloc&) {
      throw;
    } catch (const Error&) {
      throw;
    } catch (const std::exception& e) {
      throw damaged(": " + escaped(e.what(), 200));
    }
    assert(processor_.GetPieceSize() > 0);  // the library rejects a model without an unknown piece
    name_ = "SentencePiece " + model_type(model);
    for (int id = 0; id < processor_.GetPieceSize(); ++id)
      if (processor_.IsControl(id) && !processor_.IdToPiece(id).empty())
        controls_[id] = processor_.IdToPiece(id);
    const TokenizerConfig names = read_tokenizer_config(config, file);
    const auto add = [&](const std::string& text, std::optional<std::int32_t> usual,
                         std::vector<std::int32_t>& ids) {
      const auto id = text.empty() ? usual : id_of(text);
      if (id) ids.push_back(*id);
    };
    if (names.adds_bos) add(names.bos, bos(), before_);
    if (names.adds_eos) add(names.eos, eos(), after_);
  }

  std::uint64_t vocab() const override { return static_cast<std::uint64_t>(processor_.GetPieceSize()); }
  std::string name() const override { return name_; }

  /// A piece of a long text is encoded as if it were a text, and each gets what marks the start of one.
  std::size_t encode_next(std::string_view text, Names, bool, bool last,
                          std::vector<std::int32_t>& ids) const override {
    const std::size_t end = piece_end(text, last);
    std::vector<int> piece;
    const auto status = processor_.Encode(absl::string_view(text.data(), end), &piece);
    require_ok(status, "encode the text");
    ids.insert(ids.end(), piece.begin(), piece.end());
    return end;
  }

  /// Control symbols ("<s>") are found in parts with Names::kSpecial; the text between them is encoded as
  /// one.
  PartIds encode_parts(std::span<const Part> parts) const override {
    PartIds out;
    std::string text;                // since the last control symbol
    std::vector<std::size_t> inner;  // ends of parts in it
    const auto flush = [&] {
      const std::vector<std::int32_t> all = encode(text);
      for (std::size_t end : inner) {
        const std::vector<std::int32_t> prefix = encode(std::string_view(text).substr(0, end));
        const auto same = std::mismatch(prefix.begin(), prefix.end(), all.begin(), all.end());
        out.ends.push_back(out.ids.size() + static_cast<std::size_t>(same.first - prefix.begin()));
      }
      out.ids.insert(out.ids.end(), all.begin(), all.end());
      text.clear(), inner.clear();
    };
    for (const Part& p : parts) {
      std::string_view rest = p.text;
      while (p.names == Names::kSpecial && !rest.empty()) {
        const auto [at, symbol] = first_control(rest);
        if (!symbol) break;
        text += rest.substr(0, at);
        flush();
        out.ids.push_back(*symbol);
        rest.remove_prefix(at + controls_.at(*symbol).size());
      }
      text += rest;
      inner.push_back(text.size());
    }
    flush();
    return out;
  }

  std::optional<std::int32_t> id_of(std::string_view token) const override {
    const int id = processor_.PieceToId(absl::string_view(token.data(), token.size()));
    if (processor_.IdToPiece(id) != token) return std::nullopt;
    return id;
  }
  bool special(std::int32_t id) const override { return controls_.count(id) > 0; }
  std::vector<std::int32_t> before() const override { return before_; }
  std::vector<std::int32_t> after() const override { return after_; }
  std::optional<std::int32_t> bos() const override { return given(processor_.bos_id()); }
  std::optional<std::int32_t> eos() const override { return given(processor_.eos_id()); }

  std::string decode(std::span<const std::int32_t> ids) const override {
    // The library indexes its table with the id and does not check it.
    for (std::int32_t id : ids)
      if (id < 0 || static_cast<std::uint64_t>(id) >= vocab())
        throw usage_error("token id " + std::to_string(id) + " is outside the " + std::to_string(vocab()) +
                          " pieces of " + file_);
    std::string text;
    const auto status = processor_.Decode(std::vector<int>(ids.begin(), ids.end()), &text);
    require_ok(status, "decode the ids");
    return text;
  }

 private:
  void require_ok(const sentencepiece::util::Status& status, const char* doing) const {
    if (!status.ok())
      throw run_error("tokenizer " + file_ + " cannot " + doing + ": " + escaped(status.message()));
  }

  static std::optional<std::int32_t> given(int id) {
    return id < 0 ? std::nullopt : std::optional<std::int32_t>(id);
  }
  /// The first control symbol of a text, the longest of those that start there.
  std::pair<std::size_t, std::optional<std::int32_t>> first_control(std::string_view text) const {
    std::size_t at = std::string_view::npos, length = 0;
    std::optional<std::int32_t> first;
    for (const auto& [id, piece] : controls_)
      if (const std::size_t found = text.find(piece);
          found != std::string_view::npos && (found < at || (found == at && piece.size() > length)))
        at = found, length = piece.size(), first = id;
    return {at, first};
  }

  std::string file_;
  std::map<std::int32_t, std::string> controls_;  // control symbols by id
  std::vector<std::int32_t> before_, after_;
  sentencepiece::SentencePieceProcessor processor_;
  std::string name_;
};

}  // namespace

std::unique_ptr<Tokenizer> load_sentencepiece(std::string_view model, std::string_view config,
                                              const std::string& file) {
  return std::make_unique<SentencePiece>(model, config, file);
}

}  // namespace trainhost::tokenizer
