// See tokenizer_json.hpp. Vocabulary and merges are read as a stream, because their trees would need several
// hundred megabytes; everything else is small and read as a tree.
#include "core/tokenizer/tokenizer_json.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <set>
#include <stdexcept>

#include "core/base/error.hpp"
#include "core/base/text.hpp"

namespace trainhost::tokenizer {
namespace {

constexpr std::size_t kMaxToken = 1 << 16;        // bytes of a token's text
constexpr std::uint64_t kMaxId = (1u << 22) - 1;  // 4 million ids; the largest vocabularies have 0.3
constexpr unsigned kDepth = 32;

/// The number as the `tokenizers` package reads it: the first 19 or 20 digits as a double, multiplied or
/// divided by a power of ten. That may be off by one in the last place, and such differences decide between
/// splits of a word whose exact scores are equal. `number` is a number in JSON's grammar.
double score_of(std::string_view number) {
  const bool negative = number.starts_with('-');
  std::uint64_t digits = 0;
  int exponent = 0;
  bool fraction = false, full = false;
  std::size_t i = negative;
  for (; i < number.size() && number[i] != 'e' && number[i] != 'E'; ++i) {
    if (number[i] == '.') {
      fraction = true;
      continue;
    }
    const auto digit = static_cast<std::uint64_t>(number[i] - '0');
    full = full || digits > (UINT64_MAX - digit) / 10;
    if (!full) digits = digits * 10 + digit;
    exponent += (full ? 1 : 0) - (fraction ? 1 : 0);
  }
  if (i < number.size()) {
    int written = 0;
    std::from_chars(number.data() + i + (number[i + 1] == '+' ? 2 : 1), number.data() + number.size(),
                    written);
    exponent += std::clamp(written, -1000, 1000);
  }
  const auto power = [](int n) {
    double p = 0;
    const std::string text = "1e" + std::to_string(n);
    std::from_chars(text.data(), text.data() + text.size(), p);
    return p;
  };
  auto value = static_cast<double>(digits);
  for (; exponent < -308 && value != 0; exponent += 308) value /= 1e308;
  if (value != 0)
    value = exponent < 0 ? value / power(-exponent) : value * (exponent > 308 ? HUGE_VAL : power(exponent));
  return negative ? -value : value;
}

class Reader {
 public:
  Reader(std::string_view json, const std::string& file) : text_(json), file_(file) {}

  TokenizerJson read() {
    JsonReader in(text_, kDepth);
    in.open_object();
    std::string key;
    std::set<std::string> seen;
    while (in.next_member(key, kMaxToken)) {
      if (!seen.insert(key).second) throw JsonError(in.key_at(), "duplicate key \"" + escaped(key) + "\"");
      if (key == "model")
        read_model(in);
      else
        others_[key] = tree(in);
    }
    in.finish('\0');
    if (!seen.count("model")) throw JsonError(0, "there is no \"model\"; is this a tokenizer.json?");
    return assemble();
  }

 private:
  JsonValue tree(JsonReader& in) {
    const std::uint64_t begin = in.at();
    in.skip_value();
    try {
      return parse_json(text_.substr(begin, in.end() - begin), kDepth);
    } catch (const JsonError& e) {
      throw JsonError(begin + e.at, e.what());
    }
  }

  void read_model(JsonReader& in) {
    in.open_object();
    std::string key;
    std::set<std::string> seen;
    while (in.next_member(key, kMaxToken)) {
      if (!seen.insert(key).second) throw JsonError(in.key_at(), "duplicate key \"" + escaped(key) + "\"");
      if (key == "vocab" && in.peek() == '{') {
        read_vocab(in);
      } else if (key == "vocab") {
        read_pieces(in);
      } else if (key == "merges") {
        read_merges(in);
      } else {
        model_.options[key] = tree(in);
      }
    }
    model_.type = model_.options.text_of("type");
    // Old files have no type; only BPE has merges.
    if (model_.type.empty())
      model_.type = seen.count("merges") ? "BPE" : model_.pieces.empty() ? "WordPiece" : "Unigram";
  }

  void read_vocab(JsonReader& in) {
    in.open_object();
    std::string token;
    while (in.next_member(token, kMaxToken)) {
      const std::uint64_t at = in.at(), id = in.integer();
      if (id > kMaxId)
        throw JsonError(at, "the id " + std::to_string(id) + " is above " + std::to_string(kMaxId));
      model_.vocab.emplace_back(token, static_cast<std::int32_t>(id));
    }
  }

  void read_pieces(JsonReader& in) {
    in.open_array();
    while (in.next_element()) {
      in.open_array();
      if (!in.next_element()) throw JsonError(in.end(), "expected [text, score]");
      std::string text = in.string(kMaxToken);
      if (!in.next_element()) throw JsonError(in.end(), "expected [text, score]");
      const std::string_view number = in.number();
      const double score = score_of(number);
      if (!std::isfinite(score) || in.next_element()) throw JsonError(in.end(), "expected [text, score]");
      model_.pieces.emplace_back(std::move(text), score);
      if (model_.pieces.size() > kMaxId) throw JsonError(in.end(), "more than 4 million pieces");
    }
  }

  /// "a b" in old files, ["a", "b"] in new ones.
  void read_merges(JsonReader& in) {
    in.open_array();
    while (in.next_element()) {
      const std::uint64_t at = in.at();
      if (in.peek() == '"') {
        const std::string both = in.string(2 * kMaxToken);
        const std::size_t space = both.find(' ');
        if (space == std::string::npos || both.find(' ', space + 1) != std::string::npos)
          throw JsonError(at,
                          "the merge '" + escaped(both) + "' is not two tokens with a space between them");
        model_.merges.emplace_back(both.substr(0, space), both.substr(space + 1));
        continue;
      }
      in.open_array();
      std::string parts[2];
      for (std::string& part : parts) {
        if (!in.next_element()) throw JsonError(at, "a merge has two tokens");
        part = in.string(kMaxToken);
      }
      if (in.next_element()) throw JsonError(at, "a merge has two tokens");
      model_.merges.emplace_back(std::move(parts[0]), std::move(parts[1]));
    }
  }

  const JsonValue* other(const char* key) const {
    const JsonValue* v = others_.find(key);
    return v && !v->is_null() ? v : nullptr;
  }
  Component component(const char* key) const { return {*other(key), file_, key}; }
  [[noreturn]] void reject(const std::string& what) const {
    throw usage_error("tokenizer " + file_ + ": " + what);
  }

  void add_token(const std::string& text, std::int32_t id) {
    const auto at = static_cast<std::size_t>(id);
    if (at >= out_.tokens.size()) out_.tokens.resize(at + 1);
    out_.tokens[at] = text;
    out_.ids[text] = id;
  }

  TokenizerJson assemble() {
    if (other("normalizer")) out_.normalizer = Normalizer(component("normalizer"));
    if (other("pre_tokenizer")) out_.pre_tokenizer = PreTokenizer(component("pre_tokenizer"));
    if (other("decoder")) out_.decoder = TokenDecoder(component("decoder"));
    make_model();
    if (const JsonValue* added = other("added_tokens")) read_added(*added);
    if (out_.tokens.empty()) reject("the vocabulary is empty");
    if (other("post_processor")) read_post_processor(component("post_processor"));
    for (const char* key : {"truncation", "padding"})
      if (other(key))
        out_.notes.push_back(std::string(key) + " of tokenizer " + file_ +
                             " is ignored: data.seq_len decides");
    if (const JsonValue* dropout = model_.options.find("dropout"); dropout && dropout->number > 0)
      out_.notes.push_back("dropout of tokenizer " + file_ +
                           " is ignored: every text has the same ids each time");
    return std::move(out_);
  }

  void make_model() {
    const bool bytes = out_.pre_tokenizer.bytes();
    if (model_.type == "BPE") {
      for (const auto& [token, id] : model_.vocab) add_token(token, id);
      out_.model = make_bpe(model_, bytes, file_);
    } else if (model_.type == "Unigram") {
      std::int32_t id = 0;
      for (const auto& [text, score] : model_.pieces) add_token(text, id++);
      out_.model = make_unigram(model_, bytes, file_);
    } else {
      reject("model '" + escaped(model_.type) + "' is not supported; supported: BPE, Unigram");
    }
  }

  /// Tokens keep the id of the vocabulary if they are in it, as in the `tokenizers` package.
  void read_added(const JsonValue& added) {
    if (!added.is_array()) reject("added_tokens is not a list");
    for (const JsonValue& t : added.elements) {
      const JsonValue *content = t.find("content"), *id = t.find("id");
      if (!content || !content->is_string() || !id || id->kind != JsonValue::Kind::kInteger ||
          id->integer < 0 || id->integer > static_cast<std::int64_t>(kMaxId))
        reject("an entry of added_tokens has no content or no id");
      if (content->string.empty()) continue;
      AddedToken token;
      token.content = content->string;
      const auto known = out_.ids.find(token.content);
      token.id = known == out_.ids.end() ? static_cast<std::int32_t>(id->integer) : known->second;
      const auto flag = [&](const char* key, bool absent) {
        const JsonValue* v = t.find(key);
        return v && v->kind == JsonValue::Kind::kBool ? v->boolean : absent;
      };
      token.special = flag("special", false);
      token.single_word = flag("single_word", false);
      token.lstrip = flag("lstrip", false);
      token.rstrip = flag("rstrip", false);
      token.normalized = flag("normalized", !token.special);
      add_token(token.content, token.id);
      out_.added.push_back(std::move(token));
    }
  }

  std::int32_t id_in(const Component& c, const JsonValue* token) const {
    const auto at = token && token->is_string() ? out_.ids.find(token->string) : out_.ids.end();
    if (at == out_.ids.end()) c.reject("names a token that is not in the vocabulary");
    return at->second;
  }

  /// What is put around one text. Rules about offsets and about pairs of texts do not matter here.
  void read_post_processor(const Component& c) {
    const std::string type = c.type();
    if (type == "Sequence") {
      for (const Component& part : c.sequence("processors")) read_post_processor(part);
    } else if (type == "TemplateProcessing") {
      read_template(c);
    } else if (type == "RobertaProcessing" || type == "BertProcessing") {
      for (const char* key : {"cls", "sep"}) {
        const JsonValue* pair = c.json.find(key);
        if (!pair || !pair->is_array() || pair->elements.empty())
          c.reject("has no \"" + std::string(key) + "\"");
        auto& side = key[0] == 'c' ? out_.before : out_.after;
        side.insert(key[0] == 'c' ? side.begin() : side.end(), id_in(c, &pair->elements[0]));
      }
    } else if (type != "ByteLevel") {
      c.reject_type("TemplateProcessing, ByteLevel, RobertaProcessing, BertProcessing, Sequence");
    }
  }

  void read_template(const Component& c) {
    const JsonValue *single = c.json.find("single"), *special = c.json.find("special_tokens");
    if (!single || !single->is_array()) c.reject("has no list \"single\"");
    std::vector<std::int32_t> before, after;
    bool passed = false;  // the text itself
    for (const JsonValue& part : single->elements) {
      if (const JsonValue* sequence = part.find("Sequence")) {
        if (passed || sequence->text_of("id") != "A") c.reject("has another \"single\" than one text A");
        passed = true;
        continue;
      }
      const JsonValue* token = part.find("SpecialToken");
      const JsonValue* entry = token && special ? special->find(token->text_of("id")) : nullptr;
      const JsonValue* ids = entry ? entry->find("ids") : nullptr;
      if (!ids || !ids->is_array()) c.reject("names a token that is not in \"special_tokens\"");
      for (const JsonValue& id : ids->elements) {
        if (id.kind != JsonValue::Kind::kInteger || id.integer < 0 ||
            static_cast<std::uint64_t>(id.integer) >= out_.tokens.size())
          c.reject("has an id outside the vocabulary");
        (passed ? after : before).push_back(static_cast<std::int32_t>(id.integer));
      }
    }
    if (!passed) c.reject("has no text A in \"single\"");
    out_.before.insert(out_.before.begin(), before.begin(), before.end());
    out_.after.insert(out_.after.end(), after.begin(), after.end());
  }

  std::string_view text_;
  const std::string& file_;
  ModelData model_;
  JsonValue others_ = JsonValue::object();
  TokenizerJson out_;
};

}  // namespace

TokenizerJson read_tokenizer_json(std::string_view json, const std::string& file) {
  try {
    return Reader(json, file).read();
  } catch (const JsonError& e) {
    const Where at = JsonPositions(json, "").where(e.at);
    // A whole one is an object, so it ends with a brace.
    const std::size_t last = json.find_last_not_of(" \t\r\n");
    const bool is_truncated = last == json.npos || json[last] != '}';
    throw usage_error("tokenizer " + file + ", line " + std::to_string(at.line) + ", column " +
                          std::to_string(at.column) + ": " + e.what(),
                      is_truncated ? "the file is truncated: copy or download it again" : "");
  }
}

}  // namespace trainhost::tokenizer
