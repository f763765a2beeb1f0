// See normalizer.hpp. The meaning of each type is that of the `tokenizers` package 0.23.
#include "core/tokenizer/normalizer.hpp"

#include <stdexcept>

#include "core/tokenizer/charsmap.hpp"
#include "core/tokenizer/unicode.hpp"

namespace trainhost::tokenizer {
namespace {

void append_replaced(std::string& out, std::string_view text, const Pattern& pattern,
                     const std::string& content) {
  Pattern::Match m;
  std::size_t done = 0;
  for (std::size_t from = 0; pattern.find(text, from, false, m) == Pattern::Result::kMatch;) {
    out.append(text.substr(done, m.begin - done)).append(content);
    done = m.end;
    from = m.end;
    if (m.begin == m.end) {  // an empty match: the search goes on behind the next character
      if (m.end >= text.size()) break;
      from += utf8_length(text[m.end]);
    }
  }
  out.append(text.substr(done));
}

std::string_view stripped(std::string_view text, bool left, bool right) {
  while (left && !text.empty() && white_space(code_point(text, 0))) text.remove_prefix(utf8_length(text[0]));
  while (right && !text.empty()) {
    const std::size_t at = last_character(text, text.size());
    if (!white_space(code_point(text, at))) break;
    text = text.substr(0, at);
  }
  return text;
}

}  // namespace

Normalizer::Normalizer(const Component& component) { add(component); }

void Normalizer::add(const Component& c) {
  const std::string type = c.type();
  const auto form = [&](NormalForm f) {
    steps_.push_back(
        [f](std::string& out, std::string_view text, SegmentEdges) { append_normal_form(out, text, f); });
  };
  if (type == "Sequence") {
    for (const Component& part : c.sequence("normalizers")) add(part);
  } else if (type == "NFC") {
    form(NormalForm::kC);
  } else if (type == "NFD") {
    form(NormalForm::kD);
  } else if (type == "NFKC") {
    form(NormalForm::kKC);
  } else if (type == "NFKD") {
    form(NormalForm::kKD);
  } else if (type == "Lowercase") {
    steps_.push_back(
        [](std::string& out, std::string_view text, SegmentEdges) { append_lowercase(out, text); });
  } else if (type == "StripAccents") {
    steps_.push_back(
        [](std::string& out, std::string_view text, SegmentEdges) { append_without_marks(out, text); });
  } else if (type == "Replace") {
    Pattern pattern = c.pattern();
    can_resume_ = can_resume_ && pattern.can_resume();
    steps_.push_back([pattern = std::move(pattern), content = c.text("content")](
                         std::string& out, std::string_view text, SegmentEdges) {
      append_replaced(out, text, pattern, content);
    });
  } else if (type == "Prepend") {
    steps_.push_back(
        [prefix = c.text("prepend")](std::string& out, std::string_view text, SegmentEdges edges) {
          if (edges.at_start && !text.empty()) out = prefix;
          out.append(text);
        });
  } else if (type == "Strip") {
    steps_.push_back([left = c.boolean("strip_left", true), right = c.boolean("strip_right", true)](
                         std::string& out, std::string_view text, SegmentEdges edges) {
      out = stripped(text, left && edges.at_start, right && edges.at_end);
    });
  } else if (type == "Precompiled") {
    try {
      steps_.push_back(
          [map = Charsmap(c.text("precompiled_charsmap"))](std::string& out, std::string_view text,
                                                           SegmentEdges) { map.append_replaced(out, text); });
    } catch (const std::invalid_argument& e) {
      c.reject(std::string("has a precompiled_charsmap that cannot be read: ") + e.what());
    }
  } else {
    c.reject_type(
        "NFC, NFD, NFKC, NFKD, Lowercase, StripAccents, Replace, Prepend, Strip, Precompiled, Sequence");
  }
}

std::string_view Normalizer::apply(std::string_view text, SegmentEdges edges, std::string& buffer) const {
  std::string previous;
  for (const Step& step : steps_) {
    previous.swap(buffer);
    if (&step != steps_.data()) text = previous;
    buffer.clear();
    step(buffer, text, edges);
    text = buffer;
  }
  return text;
}

}  // namespace trainhost::tokenizer
