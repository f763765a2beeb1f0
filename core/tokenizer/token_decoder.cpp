// See token_decoder.hpp. The meaning of each type is that of the `tokenizers` package 0.23, which replaces
// bytes that are not UTF-8 by U+FFFD.
#include "core/tokenizer/token_decoder.hpp"

#include <algorithm>

#include "core/base/text.hpp"
#include "core/tokenizer/pre_tokenizer.hpp"
#include "core/tokenizer/unicode.hpp"

namespace trainhost::tokenizer {
namespace {

std::string joined(const std::vector<std::string>& tokens) {
  std::string text;
  for (const std::string& t : tokens) text += t;
  return text;
}

void replace_metaspace(std::vector<std::string>& tokens, const std::string& mark, bool drops_first) {
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    std::string out;
    for (std::size_t at = 0; at < tokens[i].size();) {
      const std::string_view rest = std::string_view(tokens[i]).substr(at);
      if (rest.starts_with(mark)) {
        if (i > 0 || !drops_first) out += ' ';
        at += mark.size();
      } else {
        out += rest[0];
        ++at;
      }
    }
    tokens[i] = std::move(out);
  }
}

void join_byte_tokens(std::vector<std::string>& tokens) {
  std::vector<std::string> out;
  bool in_bytes = false;
  const auto digit = [](char c) {
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                  : -1;
  };
  for (std::string& t : tokens) {
    const bool byte =
        t.size() == 6 && t.starts_with("<0x") && t[5] == '>' && digit(t[3]) >= 0 && digit(t[4]) >= 0;
    if (!byte) {
      out.push_back(std::move(t));
    } else {
      if (!in_bytes) out.emplace_back();
      out.back() += static_cast<char>(digit(t[3]) * 16 + digit(t[4]));
    }
    in_bytes = byte;
  }
  tokens = std::move(out);
}

/// Removes up to `start` and `stop` times the content from the ends of every token.
void strip(std::vector<std::string>& tokens, const std::string& content, std::size_t start,
           std::size_t stop) {
  for (std::string& t : tokens) {
    std::string_view v = t;
    for (std::size_t i = 0; i < start && v.starts_with(content); ++i) v.remove_prefix(content.size());
    for (std::size_t i = 0; i < stop && v.ends_with(content); ++i) v.remove_suffix(content.size());
    t = std::string(v);
  }
}

}  // namespace

TokenDecoder::TokenDecoder(const Component& component) { add(component); }

void TokenDecoder::add(const Component& c) {
  const std::string type = c.type();
  using Tokens = std::vector<std::string>;
  if (type == "Sequence") {
    for (const Component& part : c.sequence("decoders")) add(part);
  } else if (type == "ByteLevel") {
    steps_.push_back([](Tokens& tokens) {
      std::string text, bytes;
      for (const std::string& t : tokens) text += bytes_of(t, bytes) ? bytes : t;
      tokens = {std::move(text)};
    });
  } else if (type == "Metaspace") {
    const JsonValue* scheme = c.json.find("prepend_scheme");
    const bool drops =
        !(scheme && scheme->is_string() && scheme->string == "never") && c.boolean("add_prefix_space", true);
    steps_.push_back(
        [mark = c.text("replacement"), drops](Tokens& tokens) { replace_metaspace(tokens, mark, drops); });
  } else if (type == "Replace") {
    const Pattern pattern = c.pattern();
    steps_.push_back([pattern, content = c.text("content")](Tokens& tokens) {
      for (std::string& t : tokens) {
        if (!valid_utf8(t)) continue;  // bytes that a step before has made
        std::string out;
        Pattern::Match m;
        std::size_t done = 0;
        while (pattern.find(t, done, false, m) == Pattern::Result::kMatch && m.end > m.begin) {
          out.append(t, done, m.begin - done).append(content);
          done = m.end;
        }
        t = out.append(t, done);
      }
    });
  } else if (type == "ByteFallback") {
    steps_.push_back(join_byte_tokens);
  } else if (type == "Fuse") {
    steps_.push_back([](Tokens& tokens) { tokens = {joined(tokens)}; });
  } else if (type == "Strip") {
    steps_.push_back([content = c.text("content"), start = c.count("start"),
                      stop = c.count("stop")](Tokens& tokens) { strip(tokens, content, start, stop); });
  } else {
    c.reject_type("ByteLevel, Metaspace, Replace, ByteFallback, Fuse, Strip, Sequence");
  }
}

std::string TokenDecoder::decode(std::vector<std::string> tokens) const {
  if (steps_.empty()) {
    std::string text;
    for (std::size_t i = 0; i < tokens.size(); ++i) text += (i ? " " : "") + tokens[i];
    return text;
  }
  for (const Step& step : steps_) step(tokens);
  return joined(tokens);
}

}  // namespace trainhost::tokenizer
