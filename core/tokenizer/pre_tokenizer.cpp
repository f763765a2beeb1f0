// See pre_tokenizer.hpp. The meaning of each type is that of the `tokenizers` package 0.23.
#include "core/tokenizer/pre_tokenizer.hpp"

#include <algorithm>
#include <array>
#include <cassert>
#include <stdexcept>

#include "core/base/text.hpp"
#include "core/tokenizer/unicode.hpp"

namespace trainhost::tokenizer {
namespace {

constexpr const char* kGpt2 = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

/// Code point of each byte in the byte-level alphabet: printable Latin-1 stands for itself, the other bytes
/// for U+0100 and following.
const std::array<std::uint16_t, 256>& byte_characters() {
  static const auto table = [] {
    std::array<std::uint16_t, 256> t{};
    std::uint16_t next = 256;
    for (std::uint16_t b = 0; b < 256; ++b)
      t[b] = (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE ? b : next++;
    return t;
  }();
  return table;
}

}  // namespace

bool bytes_of(std::string_view text, std::string& bytes) {
  static const auto table = [] {
    std::array<std::int16_t, 512> t;
    t.fill(-1);
    for (std::int16_t b = 0; b < 256; ++b) t[byte_characters()[static_cast<std::size_t>(b)]] = b;
    return t;
  }();
  bytes.clear();
  for (std::size_t at = 0; at < text.size(); at += utf8_length(text[at])) {
    const std::uint32_t c = code_point(text, at);
    if (c >= table.size() || table[c] < 0) return false;
    bytes += static_cast<char>(table[c]);
  }
  return true;
}

void append_byte_level(std::string& out, std::string_view bytes) {
  for (char b : bytes) append_utf8(out, byte_characters()[static_cast<unsigned char>(b)]);
}

PreTokenizer::PreTokenizer(const Component& component) {
  add(component, true);
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    const Step& s = steps_[i];
    can_resume_ = can_resume_ && s.pattern.can_resume();
    // The first step knows whether the text continues a segment; a word of a later step does not.
    if (s.kind == Kind::kAddSpace || (s.kind == Kind::kMetaspace && s.prefix == Prefix::kAlways))
      resumes_at_space_ = resumes_at_space_ || i > 0;
  }
}

void PreTokenizer::add_split(Pattern pattern, Behavior behavior, bool inverted) {
  Step s;
  s.pattern = std::move(pattern);
  s.behavior = behavior;
  s.inverted = inverted;
  steps_.push_back(std::move(s));
}

void PreTokenizer::add(const Component& c, bool last) {
  const std::string type = c.type();
  const auto behavior = [&](const char* absent) {
    const JsonValue* given = c.json.find("behavior");
    const std::string b = given && given->is_string() ? given->string : absent;
    if (b == "Isolated") return Behavior::kIsolated;
    if (b == "Removed") return Behavior::kRemoved;
    if (b == "Contiguous") return Behavior::kContiguous;
    if (b == "MergedWithPrevious") return Behavior::kMergedWithPrevious;
    if (b == "MergedWithNext") return Behavior::kMergedWithNext;
    c.reject("has the behavior '" + escaped(b) +
             "'; supported: Isolated, Removed, Contiguous, MergedWithPrevious, MergedWithNext");
  };
  if (type == "Sequence") {
    const std::vector<Component> parts = c.sequence("pretokenizers");
    for (std::size_t i = 0; i < parts.size(); ++i) add(parts[i], last && i + 1 == parts.size());
  } else if (type == "ByteLevel") {
    if (c.boolean("add_prefix_space", true)) {
      Step s;
      s.kind = Kind::kAddSpace;
      steps_.push_back(s);
    }
    if (c.boolean("use_regex", true)) add_split(Pattern(kGpt2), Behavior::kIsolated, false);
    if (last) {
      bytes_ = true;
    } else {
      Step s;
      s.kind = Kind::kMapBytes;
      steps_.push_back(s);
    }
  } else if (type == "Split") {
    const Behavior b = behavior("");
    add_split(c.pattern(), b, c.boolean("invert", false));
    steps_.back().is_literal = c.json.find("pattern")->find("String") != nullptr;
  } else if (type == "Digits") {
    add_split(Pattern(c.boolean("individual_digits", false) ? R"(\p{N})" : R"(\p{N}+)"), Behavior::kIsolated,
              false);
  } else if (type == "Punctuation") {
    add_split(Pattern(R"([\p{P}$+<=>^`|~])"), behavior("Isolated"), false);
  } else if (type == "Whitespace") {
    add_split(Pattern(R"(\w+|[^\w\s]+)"), Behavior::kRemoved, true);
  } else if (type == "WhitespaceSplit") {
    add_split(Pattern(R"(\s)"), Behavior::kRemoved, false);
  } else if (type == "Metaspace") {
    Step s;
    s.kind = Kind::kMetaspace;
    s.replacement = c.text("replacement");
    if (s.replacement.empty() || utf8_length(s.replacement[0]) != s.replacement.size())
      c.reject("has the replacement '" + escaped(s.replacement) + "', which is not one character");
    const JsonValue* scheme = c.json.find("prepend_scheme");
    const std::string prefix = scheme && scheme->is_string() ? scheme->string : "always";
    if (prefix != "always" && prefix != "first" && prefix != "never")
      c.reject("has the prepend_scheme '" + escaped(prefix) + "'; supported: always, first, never");
    s.prefix = prefix == "always" ? Prefix::kAlways : prefix == "first" ? Prefix::kFirst : Prefix::kNever;
    if (!c.boolean("add_prefix_space", true)) s.prefix = Prefix::kNever;
    s.splits = c.boolean("split", true);
    steps_.push_back(std::move(s));
  } else {
    c.reject_type("ByteLevel, Split, Digits, Punctuation, Whitespace, WhitespaceSplit, Metaspace, Sequence");
  }
}

void PreTokenizer::run(std::size_t step, const Word& word, WordSink& sink) const {
  if (word.text.empty()) return;
  if (step == steps_.size()) {
    sink.take(word);
    return;
  }
  switch (steps_[step].kind) {
    case Kind::kSplit:
      run_split(step, word, sink);
      return;
    case Kind::kMetaspace:
      run_metaspace(step, word, sink);
      return;
    case Kind::kAddSpace: {
      if (word.text[0] == ' ' || !word.begins_segment) {
        run(step + 1, word, sink);
        return;
      }
      const std::string text = " " + std::string(word.text);
      Word next = word;
      next.text = text;
      next.added += 1;
      run(step + 1, next, sink);
      return;
    }
    case Kind::kMapBytes: {
      std::string text;
      append_byte_level(text, word.text);
      Word next = word;
      next.text = text;
      next.mapped = true;
      run(step + 1, next, sink);
      return;
    }
  }
}

void PreTokenizer::run_split(std::size_t step, const Word& word, WordSink& sink) const {
  const Step& s = steps_[step];
  const std::string_view text = word.text;
  std::size_t counted = 0, characters = 0;  // of a mapped text, whose characters are bytes
  const auto pass = [&](std::size_t begin, std::size_t end, bool open) {
    if (begin == end) return;
    Word next = word;
    next.text = text.substr(begin, end - begin);
    if (begin > 0) {
      // Bytes in front of the text are part of the first word.
      std::size_t bytes = begin;
      if (word.mapped) {
        for (; counted < begin; ++counted)
          characters += (static_cast<unsigned char>(text[counted]) & 0xC0) != 0x80;
        bytes = characters;
      }
      next.begin = word.begin + bytes - std::min(bytes, word.added);
      next.added = 0;
      next.begins_segment = true;
      next.begins_text = false;
    }
    next.open = open;
    run(step + 1, next, sink);
  };
  const bool at_once = s.behavior == Behavior::kIsolated || s.behavior == Behavior::kRemoved;

  struct Piece {
    std::size_t begin, end;
    bool match;
  };
  std::vector<Piece> pieces;  // only unless at_once
  const auto piece = [&](std::size_t begin, std::size_t end, bool match, bool open) {
    match ^= s.inverted;
    if (!at_once)
      pieces.push_back({begin, end, match});
    else if (s.behavior == Behavior::kIsolated || !match)
      pass(begin, end, open);
  };
  std::size_t done = 0;
  Pattern::Match m;
  for (std::size_t from = 0; from <= text.size();) {
    const Pattern::Result result = s.pattern.find(text, from, word.open, m);
    if (result == Pattern::Result::kUndecided && at_once) return;
    if (result == Pattern::Result::kUndecided) break;
    if (result == Pattern::Result::kNone) break;
    if (done != m.begin) piece(done, m.begin, false, false);
    if (m.begin != m.end) piece(m.begin, m.end, true, false);
    done = from = m.end;
    if (m.begin == m.end) from += m.end < text.size() ? utf8_length(text[m.end]) : 1;
  }
  if (done != text.size()) piece(done, text.size(), false, word.open);
  if (at_once) return;

  // A match joins its neighbour, unless that neighbour is a match itself.
  std::vector<Piece> joined;
  const bool with_next = s.behavior == Behavior::kMergedWithNext;
  if (with_next) std::reverse(pieces.begin(), pieces.end());
  bool before = false;
  for (const Piece& p : pieces) {
    const bool joins = s.behavior == Behavior::kContiguous ? p.match == before : p.match && !before;
    if (joins && !joined.empty()) {
      joined.back().begin = std::min(joined.back().begin, p.begin);
      joined.back().end = std::max(joined.back().end, p.end);
    } else {
      joined.push_back(p);
    }
    before = p.match;
  }
  if (with_next) std::reverse(joined.begin(), joined.end());
  // More text may join the last piece. Pieces at a literal text are the same wherever a text is cut.
  if (word.open && !s.is_literal && !joined.empty()) joined.pop_back();
  for (const Piece& p : joined) pass(p.begin, p.end, word.open && p.end == text.size());
}

/// Spaces become the replacement, and every replacement starts a word, unless the text is not split.
void PreTokenizer::run_metaspace(std::size_t step, const Word& word, WordSink& sink) const {
  const Step& s = steps_[step];
  const std::string_view text = word.text, mark = s.replacement;
  const bool prefix = s.prefix != Prefix::kNever && word.begins_segment &&
                      (s.prefix == Prefix::kAlways || word.begins_text) && text[0] != ' ' &&
                      !text.starts_with(mark);
  std::string part = prefix ? std::string(mark) : "";
  Word next = word;
  next.added = part.size() + word.added;
  next.replaced = true;
  std::size_t begin = 0;  // of the part
  const auto pass = [&](std::size_t end, bool open) {
    if (part.empty()) return;
    next.text = part;
    next.open = open;
    run(step + 1, next, sink);
    begin = end;
    part.clear();
    next.added = 0;
    next.begin = word.begin + begin - std::min(begin, word.added);
    next.begins_segment = true;
    next.begins_text = false;
  };
  for (std::size_t at = 0; at < text.size();) {
    const bool space = text[at] == ' ' || text.substr(at).starts_with(mark);
    const std::size_t length = space && text[at] != ' ' ? mark.size() : utf8_length(text[at]);
    if (space && s.splits) pass(at, false);
    part.append(space ? mark : text.substr(at, length));
    at += length;
  }
  pass(text.size(), word.open);
}

}  // namespace trainhost::tokenizer
