// tokenizer.json compared with ids and texts that the `tokenizers` package has computed (tokenizers.json,
// written by tests/interop/tokenizers_test.py --fixture); long texts in pieces; bad files.
#include <boost/test/unit_test.hpp>
#include <fstream>
#include <iterator>
#include <map>

#include "core/base/error.hpp"
#include "core/base/json_value.hpp"
#include "core/tokenizer/loaders.hpp"

using namespace trainhost;
using namespace trainhost::tokenizer;

namespace {

using Ids = std::vector<std::int32_t>;

const JsonValue& fixture() {
  static const JsonValue value = [] {
    std::ifstream in(std::string(TRAINHOST_SOURCE_DIR) + "/tests/core/tokenizer/tokenizers.json");
    return parse_json(std::string(std::istreambuf_iterator<char>(in), {}));
  }();
  return value;
}

std::unique_ptr<Tokenizer> load(const std::string& json, const std::string& config = "") {
  return load_tokenizer_json(json, config, "'t.json'");
}

const Tokenizer& fixture_tokenizer(const std::string& kind) {
  static std::map<std::string, std::unique_ptr<Tokenizer>> loaded;
  auto& t = loaded[kind];
  if (!t) t = load(fixture().find("kinds")->find(kind)->find("tokenizer")->dump());
  return *t;
}

Ids ids_of(const JsonValue& list) {
  Ids ids;
  for (const JsonValue& v : list.elements) ids.push_back(static_cast<std::int32_t>(v.integer));
  return ids;
}

std::string failure(const std::string& json, const std::string& config = "") {
  try {
    load(json, config);
  } catch (const Error& e) {
    BOOST_TEST(static_cast<int>(e.code()) == static_cast<int>(Exit::kUsage));
    return e.full();
  }
  return "no error";
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

/// All texts of the fixture with spaces, newlines and nothing between them, many times.
std::string long_text(std::size_t bytes) {
  std::string text;
  for (std::size_t i = 0; text.size() < bytes; ++i) {
    const auto& texts = fixture().find("texts")->elements;
    text += texts[i * 7 % texts.size()].string;
    text += std::array{" ", "\n", "", "  "}[i % 4];
  }
  return text;
}

/// The ids of a text that arrives in pieces of `piece` bytes, or more where no cut is found.
Ids in_pieces(const Tokenizer& t, std::string_view text, std::size_t piece, std::size_t& longest) {
  Ids ids;
  std::size_t wanted = piece;
  for (std::size_t at = 0; at < text.size();) {
    std::size_t end = std::min(text.size(), at + wanted);
    while (end < text.size() && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
    const std::size_t used =
        t.encode_next(text.substr(at, end - at), Names::kText, at == 0, end == text.size(), ids);
    longest = std::max(longest, end - at);
    wanted = used == 0 ? wanted * 2 : piece;
    at += used;
  }
  return ids;
}

const char* const kModel =
    R"("model":{"type":"BPE","vocab":{"a":0,"b":1,"ab":2,"<s>":3,"Ġ":4},"merges":["a b"]}})";

}  // namespace

BOOST_AUTO_TEST_SUITE(tokenizer_json)

BOOST_AUTO_TEST_CASE(ids_and_texts_are_those_of_the_tokenizers_package) {
  const auto& texts = fixture().find("texts")->elements;
  BOOST_TEST(texts.size() > 40u);
  for (const JsonMember& kind : fixture().find("kinds")->members) {
    const Tokenizer& t = fixture_tokenizer(kind.key);
    std::size_t special = 0;
    for (std::size_t i = 0; i < texts.size(); ++i) {
      const std::string& text = texts[i].string;
      const Ids expected = ids_of(kind.value.find("ids")->elements[i]);
      BOOST_TEST(t.encode(text) == expected, kind.key << ": " << text);
      const JsonValue* other = kind.value.find("special")->find(std::to_string(i));
      special += other != nullptr;
      BOOST_TEST(t.encode(text, Names::kSpecial) == (other ? ids_of(*other) : expected),
                 kind.key << ": " << text);
      const std::string& decoded = kind.value.find("decoded")->elements[i].string;
      // The package replaces bytes that are not UTF-8.
      BOOST_TEST((has(decoded, "\xEF\xBF\xBD") || t.decode(expected) == decoded), kind.key << ": " << text);
    }
    Ids around = t.before();
    const Ids a = t.encode("a"), after = t.after();
    around.insert(around.end(), a.begin(), a.end());
    around.insert(around.end(), after.begin(), after.end());
    BOOST_TEST(around == ids_of(*kind.value.find("around")), kind.key);
    BOOST_TEST((special > 0 || kind.key == "llama3" || kind.key == "unigram_bytes"), kind.key);
  }
}

BOOST_AUTO_TEST_CASE(a_text_in_pieces_has_the_ids_of_the_whole) {
  const std::string text = long_text(30'000);
  for (const JsonMember& kind : fixture().find("kinds")->members) {
    const Tokenizer& t = fixture_tokenizer(kind.key);
    const Ids whole = t.encode(text);
    for (std::size_t piece : {150u, 700u, 5000u}) {
      std::size_t longest = 0;
      BOOST_TEST((in_pieces(t, text, piece, longest) == whole), kind.key << " " << piece);
      BOOST_TEST(longest <= 8 * piece + 2000, kind.key << " needs " << longest << " bytes at once");
    }
  }
}

BOOST_AUTO_TEST_CASE(a_word_that_depends_on_text_far_behind_it_is_not_divided) {
  const auto t =
      load(R"({"pre_tokenizer":{"type":"Split","pattern":{"Regex":"q(?=x*y)|qx|[^q]"},"behavior":"Isolated"},
                          "model":{"type":"BPE","vocab":{"q":0,"x":1,"y":2,"qx":3},"merges":["q x"]}})");
  std::string text;
  for (int i = 0; i < 5; ++i) text += "q" + std::string(400, 'x') + (i % 2 ? "y" : "");
  std::size_t longest = 0;
  BOOST_TEST((in_pieces(*t, text, 150, longest) == t->encode(text)));
}

BOOST_AUTO_TEST_CASE(added_tokens_take_white_space_and_keep_to_words) {
  const auto t = load(R"({"added_tokens":[{"id":5,"content":"L","lstrip":true,"normalized":false},
                          {"id":6,"content":"R","rstrip":true,"normalized":false},
                          {"id":7,"content":"W","single_word":true,"normalized":false}],
                          "model":{"type":"BPE","vocab":{"a":0," ":1,"W":2,"L":3,"R":4},"merges":[]}})");
  BOOST_TEST(t->encode("a  L  a") == (Ids{0, 3, 1, 1, 0}));
  BOOST_TEST(t->encode("a  R  a") == (Ids{0, 1, 1, 4, 0}));
  BOOST_TEST(t->encode("R L") == (Ids{4, 3}));
  BOOST_TEST(t->encode("aW W") == (Ids{0, 2, 1, 2}));
  BOOST_TEST(t->encode("W a") == (Ids{2, 1, 0}));
}

// What a chunk boundary changes if it is placed carelessly.
BOOST_AUTO_TEST_CASE(pieces_that_are_cut_anywhere_have_other_ids) {
  const Tokenizer& t = fixture_tokenizer("llama3");
  const std::string text = long_text(5000);
  std::size_t differ = 0;
  for (std::size_t at = 1; at < 300; ++at) {
    if ((static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) continue;
    Ids joined = t.encode(std::string_view(text).substr(0, at));
    const Ids rest = t.encode(std::string_view(text).substr(at));
    joined.insert(joined.end(), rest.begin(), rest.end());
    differ += joined != t.encode(text);
  }
  BOOST_TEST(differ > 20u);
}

BOOST_AUTO_TEST_CASE(damaged_files_are_rejected_or_encode_within_the_vocabulary) {
  for (const char* kind : {"qwen", "mistral", "t5"}) {
    const std::string good = fixture().find("kinds")->find(kind)->find("tokenizer")->dump();
    std::uint64_t random = 1;
    const auto next = [&] {
      return random = random * 6364136223846793005ULL + 1442695040888963407ULL, random >> 33;
    };
    int rejected = 0;
    for (int i = 0; i < 150; ++i) {
      std::string json = good;
      if (i % 3 == 0) json.resize(next() % json.size());
      // Most of a file is vocabulary; its start is everything else.
      for (int k = 0; i % 3 && k < 3; ++k)
        json[next() % (i % 2 ? json.size() : 900)] = static_cast<char>(next());
      try {
        const auto t = load(json);
        for (std::int32_t id : t->encode("ab 12 \xC3\xA9 <s>", Names::kSpecial))
          BOOST_TEST((id >= 0 && static_cast<std::uint64_t>(id) < t->vocab()));
      } catch (const Error& e) {
        ++rejected;
        BOOST_TEST(has(e.full(), "t.json"), e.full());
      }
    }
    BOOST_TEST(rejected >= 50);
  }
}

BOOST_AUTO_TEST_CASE(what_is_not_supported_is_named_with_what_is) {
  const std::string model = kModel;
  std::string e = failure(R"({"normalizer":{"type":"BertNormalizer"},)" + model);
  BOOST_TEST(e ==
             "tokenizer 't.json': normalizer 'BertNormalizer' is not supported; supported: NFC, NFD, NFKC, "
             "NFKD, Lowercase, StripAccents, Replace, Prepend, Strip, Precompiled, Sequence");
  e = failure(R"({"pre_tokenizer":{"type":"Sequence","pretokenizers":[{"type":"UnicodeScripts"}]},)" + model);
  BOOST_TEST(has(e, "pre_tokenizer 'UnicodeScripts' is not supported; supported: ByteLevel, Split"), e);
  e = failure(R"({"model":{"type":"WordPiece","vocab":{"a":0}}})");
  BOOST_TEST(has(e, "model 'WordPiece' is not supported; supported: BPE, Unigram"), e);
  e = failure(R"({"decoder":{"type":"CTC"},)" + model);
  BOOST_TEST(has(e, "decoder 'CTC' is not supported; supported: ByteLevel, Metaspace"), e);
  e = failure(R"({"post_processor":{"type":"Other"},)" + model);
  BOOST_TEST(has(e, "post_processor 'Other' is not supported; supported: TemplateProcessing"), e);
  e = failure(
      R"({"pre_tokenizer":{"type":"Split","pattern":{"Regex":"[a-z&&[^b]]"},"behavior":"Isolated"},)" +
      model);
  BOOST_TEST(has(e, "has the pattern '[a-z&&[^b]]', which is not understood: intersections"), e);
  e = failure(R"({"pre_tokenizer":{"type":"Split","pattern":{"Regex":"(a"},"behavior":"Isolated"},)" + model);
  BOOST_TEST(has(e, "which is not understood: missing closing parenthesis"), e);
  e = failure(R"({"normalizer":{"type":"Precompiled","precompiled_charsmap":"AAAA!"},)" + model);
  BOOST_TEST(has(e, "precompiled_charsmap that cannot be read: it is not base64"), e);
  e = failure(R"({"model":{"type":"BPE","end_of_word_suffix":"</w>","vocab":{"a":0},"merges":[]}})");
  BOOST_TEST(has(e, "end_of_word_suffix, which is not supported"), e);
}

BOOST_AUTO_TEST_CASE(mistakes_are_reported_with_their_place) {
  BOOST_TEST(has(failure("{}"), "there is no \"model\"; is this a tokenizer.json?"));
  const std::string placed = failure("{\n \"model\": {\"vocab\": {\"a\": -1}}}");
  BOOST_TEST(has(placed, "'t.json', line 2, column "), placed);
  BOOST_TEST(!has(placed, "truncated"), placed);
  const std::string cut = failure("{\n \"model\": {\"vocab\": {\"a");
  BOOST_TEST(has(cut, "the file is truncated: copy or download it again"), cut);
  BOOST_TEST(has(failure(R"({"model":{"type":"BPE","vocab":{"a":9999999},"merges":[]}})"),
                 "the id 9999999 is above"));
  BOOST_TEST(
      has(failure(R"({"model":{"type":"BPE","vocab":{"a":0},"merges":["a b c"]}})"), "the merge 'a b c'"));
  BOOST_TEST(has(failure(R"({"model":{"type":"BPE","vocab":{"a":0},"merges":["a b"]}})"),
                 "merge 1, 'a b', names a token that is not in the vocabulary"));
  BOOST_TEST(has(failure(R"({"model":{"type":"BPE","unk_token":"?","vocab":{"a":0},"merges":[]}})"),
                 "unk_token '?'"));
  BOOST_TEST(has(failure(R"({"model":{"type":"Unigram","unk_id":1,"vocab":[["a",0]]}})"), "unk_id 1"));
  BOOST_TEST(has(failure(R"({"model":{"type":"BPE","vocab":{},"merges":[]}})"), "the vocabulary is empty"));
  BOOST_TEST(has(failure("{" + std::string(kModel), R"({"eos_token":"</s>"})"),
                 "eos_token '</s>' of tokenizer_config.json"));
  BOOST_TEST(
      has(failure("{" + std::string(kModel), "{"), "tokenizer_config.json beside 't.json' is not JSON"));
  const auto unigram = load(R"({"model":{"type":"Unigram","vocab":[["a",0]]}})");
  BOOST_CHECK_THROW(unigram->encode("b"), Error);
  BOOST_CHECK_THROW(unigram->encode("\xFF"), Error);
  const Ids outside{5};
  BOOST_CHECK_THROW(unigram->decode(outside), Error);
}

BOOST_AUTO_TEST_CASE(names_of_begin_and_end_come_from_tokenizer_config) {
  const auto t = load("{\"truncation\":{\"max_length\":5}," + std::string(kModel),
                      R"({"bos_token":{"content":"<s>"},"eos_token":"a"})");
  BOOST_TEST(*t->bos() == 3);
  BOOST_TEST(*t->eos() == 0);
  BOOST_TEST(t->vocab() == 5u);
  BOOST_TEST(*t->id_of("ab") == 2);
  BOOST_TEST(!t->id_of("abc"));
  BOOST_TEST(t->notes().size() == 1u);
  BOOST_TEST(has(t->notes()[0], "truncation of tokenizer 't.json' is ignored"));
  BOOST_TEST(!load("{" + std::string(kModel))->eos());
}

BOOST_AUTO_TEST_SUITE_END()
