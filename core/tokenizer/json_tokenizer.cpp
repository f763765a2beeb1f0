// The tokenizer of a tokenizer.json: finds added tokens, normalizes and splits the text between them, encodes
// the words; and finds out where a long text can be cut. The parts are read in tokenizer_json.cpp.
#include <algorithm>
#include <cassert>
#include <deque>

#include "core/base/error.hpp"
#include "core/base/text.hpp"
#include "core/tokenizer/loaders.hpp"
#include "core/tokenizer/tokenizer_config.hpp"
#include "core/tokenizer/tokenizer_json.hpp"
#include "core/tokenizer/unicode.hpp"

namespace trainhost::tokenizer {
namespace {

/// A text can be cut before the byte `text` of a segment's normalized text; `ids` are before it.
struct Mark {
  std::size_t text = 0, ids = 0;
};

/// Encodes the words of one segment. With `marks`: notes where the words start that are behind `marks_from`.
class Encoder final : public WordSink {
 public:
  Encoder(const Model& model, std::string_view text, std::vector<std::int32_t>& ids, std::vector<Mark>* marks,
          std::size_t marks_from)
      : model_(model), text_(text), ids_(ids), marks_(marks), marks_from_(marks_from) {}

  void take(const Word& word) override {
    if (!marks_ || word.begin + word.text.size() < marks_from_) {
      model_.encode(word.text, ids_, nullptr);
      return;
    }
    if (word.added == 0) marks_->push_back({word.begin, ids_.size()});
    cuts_.clear();
    model_.encode(word.text, ids_, word.mapped ? nullptr : &cuts_);
    std::size_t in_word = word.added, at = word.begin;  // the same place in the word and in the text
    for (const Cut& cut : cuts_) {
      while (in_word < cut.byte) {
        // A space became the replacement, which has three bytes in every published tokenizer.
        const std::size_t in_text = utf8_length(text_[at]);
        in_word += word.replaced && text_[at] == ' ' ? utf8_length(word.text[in_word]) : in_text;
        at += in_text;
      }
      if (in_word == cut.byte) marks_->push_back({at, cut.ids});
    }
  }

 private:
  const Model& model_;
  std::string_view text_;
  std::vector<std::int32_t>& ids_;
  std::vector<Mark>* marks_;
  std::size_t marks_from_;
  std::vector<Cut> cuts_;
};

class JsonTokenizer final : public Tokenizer {
 public:
  JsonTokenizer(TokenizerJson parts, std::string_view config, std::string file);

  std::string name() const override { return std::string("tokenizer.json ") + parts_.model->type(); }
  std::uint64_t vocab() const override { return parts_.tokens.size(); }
  std::size_t encode_next(std::string_view text, Names names, bool first, bool last,
                          std::vector<std::int32_t>& ids) const override;
  PartIds encode_parts(std::span<const Part> parts) const override;
  std::string decode(std::span<const std::int32_t> ids) const override;
  std::vector<std::int32_t> before() const override { return parts_.before; }
  std::vector<std::int32_t> after() const override { return parts_.after; }
  std::optional<std::int32_t> id_of(std::string_view token) const override {
    const auto at = parts_.ids.find(std::string(token));
    return at == parts_.ids.end() ? std::nullopt : std::optional(at->second);
  }
  bool special(std::int32_t id) const override {
    return id >= 0 && static_cast<std::size_t>(id) < special_.size() &&
           special_[static_cast<std::size_t>(id)];
  }
  std::optional<std::int32_t> bos() const override { return bos_; }
  std::optional<std::int32_t> eos() const override { return eos_; }
  std::vector<std::string> notes() const override { return parts_.notes; }
  std::string version() const override { return Pattern::unicode_version() + ", " + unicode_version(); }

 private:
  using Allowed = std::function<bool(std::size_t, std::size_t)>;
  /// A text between added tokens.
  struct Segment {
    std::string_view text;
    bool begins_segment = true, begins_text = true;
    bool open = false;                  // more text may follow
    std::size_t marks_from = SIZE_MAX;  // of its bytes; SIZE_MAX: no marks
  };
  void encode_segment(const Segment& s, const Allowed& allowed, std::vector<std::int32_t>& ids,
                      std::vector<Mark>* marks, std::string& normalized) const;
  std::optional<Mark> find_cut(const Segment& s, const std::vector<Mark>& marks, std::string_view normalized,
                               std::size_t limit) const;
  bool may_cut(std::string_view text, std::size_t at) const;
  void require_utf8(std::string_view text) const;
  std::optional<std::int32_t> token_in(const std::string& text, const char* key) const;

  TokenizerJson parts_;
  std::string file_;
  TokenFinder plain_, normalized_;  // point into parts_.added
  std::deque<std::string> normal_names_;
  std::vector<bool> special_;
  std::optional<std::int32_t> bos_, eos_;
  std::size_t margin_ = 64;  // bytes at the end of a text that is not complete, in which nothing is cut
};

JsonTokenizer::JsonTokenizer(TokenizerJson parts, std::string_view config, std::string file)
    : parts_(std::move(parts)), file_(std::move(file)), special_(parts_.tokens.size()) {
  for (const AddedToken& t : parts_.added) {
    special_[static_cast<std::size_t>(t.id)] = t.special;
    if (!t.normalized) {
      plain_.add(t.content, t);
      continue;
    }
    std::string buffer;
    normal_names_.emplace_back(parts_.normalizer.apply(t.content, {}, buffer));
    normalized_.add(normal_names_.back(), t);
  }
  margin_ += std::max(plain_.longest(), normalized_.longest());
  const TokenizerConfig names = read_tokenizer_config(config, file_);
  bos_ = token_in(names.bos, "bos_token");
  eos_ = token_in(names.eos, "eos_token");
}

std::optional<std::int32_t> JsonTokenizer::token_in(const std::string& text, const char* key) const {
  if (text.empty()) return std::nullopt;
  const auto id = id_of(text);
  if (!id)
    throw usage_error("the " + std::string(key) + " '" + escaped(text) +
                      "' of tokenizer_config.json is not in the vocabulary of " + file_);
  return id;
}

void JsonTokenizer::require_utf8(std::string_view text) const {
  if (!valid_utf8(text))
    throw usage_error("a text that is not UTF-8 cannot be encoded by " + name() + " " + file_);
}

void JsonTokenizer::encode_segment(const Segment& s, const Allowed& allowed, std::vector<std::int32_t>& ids,
                                   std::vector<Mark>* marks, std::string& buffer) const {
  if (s.text.empty()) return;
  const std::string_view text = parts_.normalizer.apply(s.text, {s.begins_segment, !s.open}, buffer);
  // Marks are wanted near the end; normalization changes lengths, so that the same distance is an estimate.
  const std::size_t from_end = marks ? s.text.size() - std::min(s.marks_from, s.text.size()) : 0;
  Encoder encoder(*parts_.model, text, ids, marks, text.size() - std::min(text.size(), from_end));
  const auto split = [&](std::size_t begin, std::size_t end, bool open) {
    if (begin == end) return;
    Word word;
    word.text = text.substr(begin, end - begin);
    word.begin = begin;
    word.begins_segment = s.begins_segment || begin > 0;
    word.begins_text = s.begins_text && begin == 0;
    word.open = open;
    parts_.pre_tokenizer.split(word, encoder);
  };
  std::size_t done = 0;
  while (const auto m = normalized_.find(text, done, done, allowed)) {
    split(done, m->begin, false);
    ids.push_back(m->token->id);
    done = m->end;
  }
  split(done, text.size(), s.open);
}

/// True if nothing that is in front of a text may depend on the character before `at`, and nothing behind it
/// on being the start of a text.
bool JsonTokenizer::may_cut(std::string_view text, std::size_t at) const {
  if (at == 0 || at >= text.size() || (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) return false;
  // White space before a cut would belong to a token behind it.
  if (white_space(code_point(text, last_character(text, at)))) return false;
  const bool space = text[at] == ' ' || text[at] == '\n' || text[at] == '\t' || text[at] == '\r';
  if (parts_.pre_tokenizer.resumes_at_space()) return text[at] == ' ';
  // Normal forms join no character with an ASCII one behind it; other steps may change runs of white space.
  if (!parts_.normalizer.empty() || plain_.single_words() || normalized_.single_words()) return space;
  return true;
}

/// The last place at or before `limit` bytes where the segment can be cut: `text` is a byte of its text.
std::optional<Mark> JsonTokenizer::find_cut(const Segment& s, const std::vector<Mark>& marks,
                                            std::string_view normalized, std::size_t limit) const {
  constexpr int kTries = 64;  // each normalizes the text behind it
  int tries = 0;
  std::string buffer;
  const std::size_t first = std::min(s.marks_from, s.text.size());
  for (std::size_t at = std::min(limit, s.text.size()); at > first && tries < kTries; --at) {
    if (!may_cut(s.text, at)) continue;
    std::size_t place = at;
    if (!parts_.normalizer.empty()) {
      ++tries;
      const std::string_view behind = parts_.normalizer.apply(s.text.substr(at), {false, !s.open}, buffer);
      if (!normalized.ends_with(behind)) continue;
      place = normalized.size() - behind.size();
    }
    const auto mark = std::lower_bound(marks.begin(), marks.end(), place,
                                       [](const Mark& m, std::size_t p) { return m.text < p; });
    if (mark != marks.end() && mark->text == place) return Mark{at, mark->ids};
  }
  return std::nullopt;
}

std::size_t JsonTokenizer::encode_next(std::string_view text, Names names, bool first, bool last,
                                       std::vector<std::int32_t>& ids) const {
  require_utf8(text);
  constexpr std::size_t kWindow = 64 << 10;  // bytes at the end in which a cut is searched
  const bool cuts = !last && parts_.normalizer.can_resume() && parts_.pre_tokenizer.can_resume();
  if (!last && (!cuts || text.size() <= margin_)) return 0;
  const std::size_t limit = text.size() - (last ? 0 : margin_), window = limit - std::min(limit, kWindow);
  const std::size_t ids_before = ids.size();
  const Allowed allowed = [&](std::size_t, std::size_t) { return names == Names::kSpecial; };
  Mark best;  // `text` is a byte of the whole text
  std::string normalized;
  std::vector<Mark> marks;
  const auto segment = [&](std::size_t begin, std::size_t end, bool open) {
    Segment s;
    s.text = text.substr(begin, end - begin);
    s.begins_segment = first || begin > 0;
    s.begins_text = first && begin == 0;
    s.open = open;
    marks.clear();
    const bool marked = cuts && end > window;
    if (marked) s.marks_from = window - std::min(window, begin);
    encode_segment(s, allowed, ids, marked ? &marks : nullptr, normalized);
    if (!marked || begin >= limit) return;
    if (const auto cut = find_cut(s, marks, parts_.normalizer.empty() ? s.text : normalized, limit - begin))
      best = {begin + cut->text, cut->ids};
  };
  std::size_t done = 0;
  while (const auto m = plain_.find(text, done, done, allowed)) {
    segment(done, m->begin, false);
    ids.push_back(m->token->id);
    done = m->end;
  }
  segment(done, text.size(), !last);
  if (last) return text.size();
  ids.resize(best.text == 0 ? ids_before : best.ids);
  return best.text;
}

/// Segments are encoded as in the joined text. A part that ends within a segment ends between two ids if the
/// segment up to there has the same ids. Else the ids around its end are found by the lengths of their texts,
/// where these add up to the segment: transformers' char_to_token() gives the same. Where they do not (a
/// normalizer changed the text), the first id that differs is one of the next part.
PartIds JsonTokenizer::encode_parts(std::span<const Part> parts) const {
  std::string text;
  std::vector<std::size_t> ends;                             // of parts, in the text
  std::vector<std::pair<std::size_t, std::size_t>> special;  // ranges in which special tokens are found
  for (const Part& p : parts) {
    const std::size_t begin = text.size();
    text += p.text;
    ends.push_back(text.size());
    if (p.names == Names::kText) continue;
    if (!special.empty() && special.back().second == begin)
      special.back().second = text.size();
    else
      special.emplace_back(begin, text.size());
  }
  require_utf8(text);
  const Allowed allowed = [&](std::size_t begin, std::size_t end) {
    return std::any_of(special.begin(), special.end(),
                       [&](const auto& range) { return range.first <= begin && end <= range.second; });
  };
  PartIds out;
  std::string buffer;
  std::vector<std::int32_t> prefix;
  const auto segment = [&](std::size_t begin, std::size_t end) {
    Segment s;
    s.begins_text = begin == 0;
    s.text = std::string_view(text).substr(begin, end - begin);
    // Added tokens of the normalized text are allowed by their place in the segment, which may be shifted.
    const Allowed in_segment = [&](std::size_t a, std::size_t b) { return allowed(begin + a, begin + b); };
    const std::size_t count = out.ids.size();
    encode_segment(s, in_segment, out.ids, nullptr, buffer);
    while (out.ends.size() < ends.size() && ends[out.ends.size()] < end) {
      const std::size_t part = ends[out.ends.size()];
      prefix.clear();
      if (part > begin) {
        s.text = std::string_view(text).substr(begin, part - begin);
        encode_segment(s, in_segment, prefix, nullptr, buffer);
      }
      const auto same = std::mismatch(prefix.begin(), prefix.end(),
                                      out.ids.begin() + static_cast<std::ptrdiff_t>(count), out.ids.end());
      std::size_t first = count + static_cast<std::size_t>(same.first - prefix.begin()), last = first;
      if (same.first != prefix.end()) {
        std::vector<std::size_t> id_ends;  // in the segment
        for (std::size_t i = count; i < out.ids.size(); ++i)
          id_ends.push_back((id_ends.empty() ? 0 : id_ends.back()) + decode({&out.ids[i], 1}).size());
        if (id_ends.back() == end - begin) {
          const auto behind = [&](std::size_t at) {  // the first id that ends behind the byte
            return count + static_cast<std::size_t>(std::upper_bound(id_ends.begin(), id_ends.end(), at) -
                                                    id_ends.begin());
          };
          first = behind(part - begin), last = behind(part - begin - 1) + 1;
        }
      }
      out.ends.push_back(first);
      out.text_ends.push_back(last);
    }
  };
  std::size_t done = 0;
  while (const auto m = plain_.find(text, done, done, allowed)) {
    segment(done, m->begin);
    // A part that ends before or within the name of a token is before it; one that ends in white space that
    // the token takes is behind it.
    const auto pass = [&](std::size_t limit) {
      while (out.ends.size() < ends.size() && ends[out.ends.size()] < limit)
        out.ends.push_back(out.ids.size()), out.text_ends.push_back(out.ids.size());
    };
    pass(m->name_end);
    out.ids.push_back(m->token->id);
    done = m->end;
    pass(m->end);
  }
  segment(done, text.size());
  while (out.ends.size() < ends.size())
    out.ends.push_back(out.ids.size()), out.text_ends.push_back(out.ids.size());
  return out;
}

std::string JsonTokenizer::decode(std::span<const std::int32_t> ids) const {
  std::vector<std::string> tokens;
  tokens.reserve(ids.size());
  for (std::int32_t id : ids) {
    if (id < 0 || static_cast<std::size_t>(id) >= parts_.tokens.size())
      throw usage_error("token id " + std::to_string(id) + " is outside the " + std::to_string(vocab()) +
                        " ids of tokenizer " + file_);
    // An id between others that no token has decodes to nothing.
    if (const std::string& t = parts_.tokens[static_cast<std::size_t>(id)]; !t.empty()) tokens.push_back(t);
  }
  return parts_.decoder.decode(std::move(tokens));
}

}  // namespace

std::unique_ptr<Tokenizer> load_tokenizer_json(std::string_view json, std::string_view config,
                                               const std::string& file) {
  return std::make_unique<JsonTokenizer>(read_tokenizer_json(json, file), config, file);
}

}  // namespace trainhost::tokenizer
