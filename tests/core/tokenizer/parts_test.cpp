// Texts made of parts, as chat templates render them, and text decoded id by id.
#include <boost/test/unit_test.hpp>

#include "core/tokenizer/loaders.hpp"

using namespace trainhost::tokenizer;

namespace {

using Ids = std::vector<std::int32_t>;

/// Words of letters with the space before them; runs of newlines.
std::unique_ptr<Tokenizer> chat_tokenizer() {
  return load_tokenizer_json(
      R"({"added_tokens":[{"id":0,"content":"<|s|>","special":true,"normalized":false},
                          {"id":1,"content":"<tool>","special":false,"normalized":false}],
          "pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false},"decoder":{"type":"ByteLevel"},
          "model":{"type":"BPE","vocab":{"<|s|>":0,"<tool>":1,"a":2,"b":3,"Ġ":4,"Ċ":5,"ab":6,"ĠĊ":7,"ĊĊ":8,"<":9,
          "|":10,"s":11,">":12,"Ã":13,"©":14},"merges":["a b","Ġ Ċ","Ċ Ċ"]}})",
      "", "'t.json'");
}

}  // namespace

BOOST_AUTO_TEST_SUITE(tokenizer_parts)

BOOST_AUTO_TEST_CASE(special_tokens_are_found_only_in_parts_that_may_name_them) {
  const auto t = chat_tokenizer();
  const Part parts[] = {
      {"<|s|>", Names::kSpecial}, {"ab<|s|><tool>", Names::kText}, {"<|s|>\n", Names::kSpecial}};
  const PartIds ids = t->encode_parts(parts);
  BOOST_TEST(ids.ids == (Ids{0, 6, 9, 10, 11, 10, 12, 1, 0, 5}));
  BOOST_TEST(ids.ends == (std::vector<std::size_t>{1, 8, 10}));
  // A name is not put together from two parts, unless both may name tokens.
  const Part split[] = {{"<|", Names::kSpecial}, {"s|>", Names::kText}};
  BOOST_TEST(t->encode_parts(split).ids == (Ids{9, 10, 11, 10, 12}));
  const Part both[] = {{"<|", Names::kSpecial}, {"s|>", Names::kSpecial}};
  BOOST_TEST(t->encode_parts(both).ids == Ids{0});
  BOOST_TEST(t->encode_parts(both).ends == (std::vector<std::size_t>{0, 1}));
}

BOOST_AUTO_TEST_CASE(an_id_that_two_parts_make_belongs_to_the_later) {
  const auto t = chat_tokenizer();
  const Part parts[] = {
      {"<|s|>a", Names::kSpecial}, {"bab", Names::kText}, {"", Names::kText}, {"b", Names::kText}};
  const PartIds ids = t->encode_parts(parts);
  BOOST_TEST(ids.ids == t->encode("<|s|>ababb", Names::kSpecial));
  BOOST_TEST(ids.ids == (Ids{0, 6, 6, 3}));
  BOOST_TEST(ids.ends == (std::vector<std::size_t>{1, 3, 3, 4}));
  BOOST_TEST(ids.text_ends == (std::vector<std::size_t>{2, 3, 3, 4}));
  BOOST_TEST(t->encode_parts({}).ends.empty());
  const Part nothing[] = {{""}};
  BOOST_TEST(t->encode_parts(nothing).ends == std::vector<std::size_t>{0});
}

// "abc" has the ids a, bc, although "ab" alone has the id ab: only bc has text of both parts.
BOOST_AUTO_TEST_CASE(ids_around_the_end_of_a_part_are_found_by_their_text) {
  const auto t = load_tokenizer_json(
      R"({"pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false},"decoder":{"type":"ByteLevel"},
          "model":{"type":"BPE","vocab":{"a":0,"b":1,"c":2,"ab":3,"bc":4},"merges":["b c","a b"]}})",
      "", "'t.json'");
  const Part parts[] = {{"ab"}, {"c"}, {"ab"}};
  const PartIds ids = t->encode_parts(parts);
  BOOST_TEST(ids.ids == (Ids{0, 4, 3}));
  BOOST_TEST(ids.ends == (std::vector<std::size_t>{1, 2, 3}));
  BOOST_TEST(ids.text_ends == (std::vector<std::size_t>{2, 2, 3}));
}

BOOST_AUTO_TEST_CASE(text_is_decoded_as_soon_as_characters_are_complete) {
  const auto t = chat_tokenizer();
  TextDecoder text(*t);
  BOOST_TEST(text.next(6) == "ab");
  BOOST_TEST(text.next(13) == "");
  BOOST_TEST(text.rest() == "\xC3");
  BOOST_TEST(text.next(14) == "\xC3\xA9");
  BOOST_TEST(text.next(0) == "");  // special
  BOOST_TEST(text.next(1) == "<tool>");
  BOOST_TEST(text.rest() == "");
  // Bytes that never become a character are not kept for ever.
  std::string bytes;
  for (int i = 0; i < 40; ++i) bytes += text.next(13);
  BOOST_TEST(bytes.size() >= 32u);
}

BOOST_AUTO_TEST_CASE(spaces_between_words_of_a_metaspace_tokenizer_are_kept) {
  const auto t = load_tokenizer_json(
      R"({"pre_tokenizer":{"type":"Metaspace","replacement":"▁"},"decoder":{"type":"Metaspace","replacement":"▁"},
          "model":{"type":"Unigram","unk_id":0,"vocab":[["<unk>",0],["▁a",-1],["b",-2],["▁",-3]]}})",
      "", "'t.json'");
  const Ids ids = t->encode("a ab a");
  TextDecoder text(*t);
  std::string joined;
  for (std::int32_t id : ids) joined += text.next(id);
  BOOST_TEST(joined == "a ab a");
  TextDecoder continued(*t, ids);
  BOOST_TEST(continued.next(1) == " a");
}

BOOST_AUTO_TEST_SUITE_END()
