// Tokenizers and the data tools: bytes, SentencePiece models trained by the test, published models if they
// are present, the cache of tokenized texts, `data info` and `data tokenize`.
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <map>
#include <numeric>
#if TRAINHOST_HAS_SENTENCEPIECE
#include <sentencepiece_trainer.h>
#endif

#include "core/data/data_tools.hpp"
#include "core/data/dataset.hpp"
#include "core/data/encode_file.hpp"
#include "core/data/stories.hpp"
#include "core/data/token_files.hpp"
#include "tests/core/data/data_files.hpp"

using namespace trainhost;
using namespace trainhost::data;
namespace fs = std::filesystem;

namespace {

const fs::path kShared = fs::path(TRAINHOST_SOURCE_DIR) / "../shared/data";

bool absent(const fs::path& p) {
  if (fs::exists(p)) return false;
  BOOST_TEST_MESSAGE("skipped: " << p << " is not here");
  return true;
}

#if TRAINHOST_HAS_SENTENCEPIECE
// A model of 400 pieces trained on stories, once for all cases. Keeps newlines and spaces as they are, so
// that decoding gives back the text; `bpe` with byte fallback, as LLaMA's.
const fs::path& small_model(const std::string& type) {
  static const Folder folder;
  static std::map<std::string, fs::path> made;
  fs::path& model = made[type];
  if (!model.empty()) return model;
  const fs::path text = folder.text("train.txt", story_text(1, StoryStream::kTrain, 0, 60'000));
  const auto status = sentencepiece::SentencePieceTrainer::Train(
      "--input=" + text.string() + " --model_prefix=" + (folder / type).string() + " --model_type=" + type +
      " --vocab_size=500 --byte_fallback=true --normalization_rule_name=identity "
      "--remove_extra_whitespaces=false"
      " --hard_vocab_limit=false --minloglevel=2 --num_threads=1");
  BOOST_REQUIRE_MESSAGE(status.ok(), status.ToString());
  return model = folder / (type + ".model");
}

/// A piece of a ModelProto; type 1 is a normal one, 2 the unknown one.
std::string piece(const std::string& text, char type) {
  const std::string fields = "\x0a" + std::string(1, static_cast<char>(text.size())) + text +
                             std::string("\x15\0\0\x80\xbf", 5) + "\x18" + type;
  return "\x0a" + std::string(1, static_cast<char>(fields.size())) + fields;
}

const std::string kSpecs = "\x12\x02\x18\x01";  // trainer_spec: unigram
#endif

}  // namespace

BOOST_AUTO_TEST_SUITE(data_tokenizer)

BOOST_AUTO_TEST_CASE(bytes_are_their_own_ids) {
  const auto t = make_tokenizer("bytes");
  BOOST_TEST(t->vocab() == 256u);
  BOOST_TEST(t->name() == "bytes");
  std::string all(256, '\0');
  std::iota(all.begin(), all.end(), '\0');
  const auto ids = t->encode(all);
  BOOST_TEST(ids.back() == 255);
  BOOST_TEST(t->decode(ids) == all);
  for (std::int32_t id : {256, -1}) {
    const std::vector<std::int32_t> wrong{65, id};
    check_says(failure([&] { t->decode(wrong); }), {"token id " + std::to_string(id) + " is not a byte"});
  }
}

BOOST_AUTO_TEST_CASE(unknown_tokenizers_are_rejected_with_the_known_ones) {
  check_says(failure([] { make_tokenizer("byte"); }), {"'byte'", "did you mean 'bytes'"});
  check_says(failure([] { make_tokenizer("gpt2"); }),
             {"'gpt2'", "bytes, or the path of a SentencePiece .model or a tokenizer.json"});
  check_says(failure([] { make_tokenizer(""); }), {"data.tokenizer is empty"});
}

BOOST_AUTO_TEST_CASE(pieces_of_a_long_text_end_at_newlines_and_characters) {
  const Folder f;
  std::string text;
  for (int i = 0; i < 300; ++i)
    text += "line " + std::to_string(i) + (i % 3 ? "\n" : " \xE2\x82\xAC\xE2\x82\xAC ");
  const InputFile file(f.text("t.txt", text));
  const auto bytes = make_tokenizer("bytes");
  for (std::size_t piece : {5u, 7u, 64u, 1000u, 100'000u}) {
    std::vector<std::int32_t> joined;
    encode_file(
        file, *bytes, tokenizer::Names::kText,
        [&](std::span<const std::int32_t> ids) {
          BOOST_TEST(!ids.empty());
          BOOST_TEST((ids.front() & 0xC0) != 0x80);  // never within a character
          joined.insert(joined.end(), ids.begin(), ids.end());
        },
        piece);
    BOOST_TEST(bytes->decode(joined) == text);
  }
}

BOOST_AUTO_TEST_CASE(a_text_by_bytes_becomes_a_raw_file_that_reads_back) {
  const Folder f;
  const auto a = f.text("a.txt", "hello "), b = f.text("b.txt", "world\n");
  const Tokenized t = tokenize_to_bin({a, b}, "bytes", f / "out.bin");
  BOOST_TEST(t.tokens == 12u);
  BOOST_TEST(t.text_bytes == 12u);
  BOOST_TEST(t.file_bytes == fs::file_size(f / "out.bin"));
  BOOST_TEST(t.dtype == "uint16");
  OpenOptions o;
  o.train = {f / "out.bin"};
  o.seq_len = 3;
  const auto ids = all_ids(*open_source(o).train);
  BOOST_TEST(std::string(ids.begin(), ids.end()) == "hello world\n");
  BOOST_TEST(tokenize_to_bin({a}, "bytes", f / "wide.bin", "uint32").file_bytes == 24u);
}

BOOST_AUTO_TEST_CASE(tokenizing_rejects_ambiguous_arguments) {
  const Folder f;
  const auto a = f.text("a.txt", "hello");
  check_says(failure([&] { tokenize_to_bin({a}, "bytes", f / "out.txt"); }), {"out.txt", "must end in .bin"});
  check_says(failure([&] { tokenize_to_bin({f.text("x.bin", "ab")}, "bytes", f / "out.bin"); }),
             {"x.bin", "already contains token ids"});
  check_says(failure([&] { tokenize_to_bin({f.text("x.jsonl", "ab")}, "bytes", f / "out.bin"); }),
             {"x.jsonl", "JSON Lines", "--tokenizer=bytes reads its raw bytes"});
  BOOST_TEST(tokenize_to_bin({f / "x.jsonl"}, "bytes", f / "raw.bin", "", true).tokens == 2u);
  check_says(failure([&] { tokenize_to_bin({f.text("e.txt", "")}, "bytes", f / "out.bin"); }),
             {"e.txt", "is empty"});
  check_says(failure([&] { tokenize_to_bin({}, "bytes", f / "out.bin"); }), {"no text"});
  check_says(failure([&] { tokenize_to_bin({a}, "bytes", f / "out.bin", "int8"); }),
             {"'int8'", "uint16 or uint32"});
  BOOST_TEST(!fs::exists(f / "out.bin"));
}

BOOST_AUTO_TEST_CASE(info_counts_what_is_in_a_file) {
  const Folder f;
  InfoOptions o;
  o.files = {f.text("a.txt", "aabbbc\n"), f.ids<std::uint16_t>("b.bin", {5, 5, 5, 900})};
  o.vocab = 256;
  o.top = 2;
  const std::vector<FileInfo> all = info(o);
  BOOST_REQUIRE(all.size() == 2u);
  const FileInfo &a = all[0], &b = all[1];
  BOOST_TEST(a.form == "text by bytes");
  BOOST_TEST(a.bytes == 7u);
  BOOST_TEST(a.bytes_per_token == 1.0);
  BOOST_TEST(a.scan.tokens == 7u);
  BOOST_TEST(a.scan.distinct == 4u);
  BOOST_TEST(a.scan.min_id == '\n');
  BOOST_TEST(a.scan.max_id == 'c');
  BOOST_REQUIRE(a.scan.top.size() == 2u);
  BOOST_TEST(a.scan.top[0].id == 'b');
  BOOST_TEST(a.scan.top[0].count == 3u);
  BOOST_TEST(a.scan.top[1].id == 'a');
  const double nats = -(3 / 7. * std::log(3 / 7.) + 2 / 7. * std::log(2 / 7.) + 2 / 7. * std::log(1 / 7.));
  BOOST_TEST(a.scan.entropy_nats == nats, boost::test_tools::tolerance(1e-12));
  BOOST_TEST(!a.first_outside_byte.has_value());
  BOOST_TEST(b.form == "raw uint16");
  BOOST_TEST(b.bytes_per_token == 2.0);
  BOOST_TEST(b.scan.max_id == 900);
  BOOST_TEST(b.scan.outside == 1u);
  BOOST_TEST(*b.first_outside_byte == 6u);
}

BOOST_AUTO_TEST_CASE(info_of_an_empty_file_is_an_error) {
  const Folder f;
  InfoOptions o;
  o.files = {f.text("empty.txt", "")};
  check_says(failure([&] { info(o); }), {"empty.txt", "is empty"});
}

BOOST_AUTO_TEST_CASE(very_large_ids_are_counted) {
  const Folder f;
  InfoOptions o;
  o.files = {f.ids<std::uint32_t>("a.bin", {2'000'000'000, 1, 2'000'000'000, 300'000})};
  o.dtype = "uint32";
  const Scan s = info(o).front().scan;
  BOOST_TEST(s.distinct == 3u);
  BOOST_TEST(s.max_id == 2'000'000'000);
  BOOST_TEST(s.top.front().id == 2'000'000'000);
  BOOST_TEST(s.outside == 0u);
}

BOOST_AUTO_TEST_CASE(a_file_whose_name_says_that_it_is_not_text_is_only_read_as_bytes) {
  const Folder f;
  OpenOptions o;
  o.seq_len = 2;
  for (const auto& [name, format] :
       {std::pair{"a.pt", "pickle"}, {"a.GZ", "compressed"}, {"a.npy", "NumPy"}}) {
    o.train = {f.text(name, "some text")};
    o.any_text = false;
    check_says(failure([&] { open_source(o); }),
               {name, format, "data.tokenizer = \"bytes\" reads its raw bytes"});
    o.any_text = true;
    BOOST_TEST(open_source(o).train->size() == 9u);
  }
}

BOOST_AUTO_TEST_CASE(the_same_content_is_the_same_source_and_another_form_is_not) {
  const Folder f;
  OpenOptions o;
  o.seq_len = 2, o.identify = true, o.cache_dir = f / "cache";
  const auto content = [&](std::vector<fs::path> train) {
    o.train = std::move(train);
    return open_source(o).content;
  };
  const auto a = f.text("a.txt", "abcd"), same = f.text("b.txt", "abcd"), c = f.text("c.txt", "abce"),
             ids = f.text("d.bin", "abcdefgh");
  BOOST_TEST(content({a}) == content({same}));
  BOOST_TEST(content({a}) != content({c}));
  BOOST_TEST(content({a, c}) != content({c, a}));
  const std::string narrow = content({ids});
  o.dtype = "uint32", o.vocab = 2'000'000'000, o.seq_len = 1;
  BOOST_TEST(content({ids}) != narrow);
}

#if TRAINHOST_HAS_SENTENCEPIECE

BOOST_AUTO_TEST_CASE(a_newly_trained_model_round_trips_text) {
  for (const std::string type : {"bpe", "unigram"}) {
    const auto t = make_tokenizer(small_model(type).string());
    BOOST_TEST(t->name() == "SentencePiece " + type);
    BOOST_TEST(t->vocab() > 300u);
    BOOST_TEST(t->vocab() <= 500u);
    for (const std::string& text :
         {std::string("Mia lives in the old mill."), std::string("two\n\nlines  and spaces "),
          std::string("unseen \xE6\x97\xA5\xE6\x9C\xAC"), story_text(9, StoryStream::kValid, 3, 400)}) {
      const auto ids = t->encode(text);
      BOOST_TEST(t->decode(ids) == text);
      for (std::int32_t id : ids) BOOST_REQUIRE((id >= 0 && static_cast<std::uint64_t>(id) < t->vocab()));
    }
    BOOST_TEST(t->encode("").empty());
    BOOST_TEST(t->encode("Mia lives in the old mill.").size() < 20u);
    for (std::int32_t id : {static_cast<std::int32_t>(t->vocab()), -1}) {
      const std::vector<std::int32_t> wrong{3, id};
      check_says(failure([&] { t->decode(wrong); }), {"token id " + std::to_string(id), type + ".model"});
    }
  }
}

// The ids of transformers 5.24 (AutoTokenizer) for the same files: the model alone adds nothing.
BOOST_AUTO_TEST_CASE(a_model_gets_begin_and_end_tokens_as_tokenizer_config_says) {
  const Folder f;
  fs::copy_file(small_model("bpe"), f / "tokenizer.model");
  using Ids = std::vector<std::int32_t>;
  struct Added {
    const char* config;
    Ids before, after;
  };
  for (const Added& a :
       {Added{"{}", {}, {}},
        {R"({"tokenizer_class": "LlamaTokenizer"})", {}, {}},
        {R"({"add_bos_token": true})", {1}, {}},
        {R"({"add_bos_token": true, "add_eos_token": true, "bos_token": {"content": "<s>"}})", {1}, {2}},
        {R"({"add_bos_token": true, "bos_token": "</s>"})", {2}, {}},
        {R"({"add_bos_token": true, "bos_token": null})", {1}, {}},
        {R"({"add_bos_token": "yes", "add_eos_token": false})", {}, {}}}) {
    f.text("tokenizer_config.json", a.config);
    const auto t = make_tokenizer((f / "tokenizer.model").string());
    BOOST_TEST((t->before() == a.before), a.config);
    BOOST_TEST((t->after() == a.after), a.config);
    BOOST_TEST((t->encode("a") == make_tokenizer(small_model("bpe").string())->encode("a")));
  }
  f.text("tokenizer_config.json", "{");
  check_says(failure([&] { make_tokenizer((f / "tokenizer.model").string()); }),
             {"tokenizer_config.json beside", "tokenizer.model' is not JSON", "at byte 1"});
}

BOOST_AUTO_TEST_CASE(files_that_are_not_models_are_rejected_by_name) {
  const Folder f;
  check_says(failure([&] { make_tokenizer((f / "none.model").string()); }), {"none.model", "does not exist"});
  check_says(failure([&] { make_tokenizer(f.text("empty.model", "").string()); }), {"empty.model", "empty"});
  check_says(
      failure([&] { make_tokenizer(f.text("text.model", "this is no model, but a text\n").string()); }),
      {"text.model", "not a SentencePiece model"});
  check_says(failure([&] { make_tokenizer(f.text("zero.model", std::string(5000, '\0')).string()); }),
             {"zero.model", "not a SentencePiece model"});
}

// Found by fuzzing: the library throws exceptions of its own for a piece that begins with a zero byte.
BOOST_AUTO_TEST_CASE(a_model_that_makes_the_library_throw_is_rejected_by_name) {
  const Folder f;
  make_tokenizer(f.text("good.model", piece("<unk>", 2) + piece("ab", 1) + kSpecs).string());
  const std::string zero = piece("<unk>", 2) + piece(std::string("\0b", 2), 1) + kSpecs;
  check_says(failure([&] { make_tokenizer(f.text("zero.model", zero).string()); }),
             {"zero.model", "is not a SentencePiece model: "});
  // This one it returns as a status.
  const std::string twice = piece("<unk>", 2) + piece("ab", 1) + piece("ab", 1) + kSpecs;
  check_says(failure([&] { make_tokenizer(f.text("twice.model", twice).string()); }),
             {"twice.model", "is not a SentencePiece model: "});
}

BOOST_AUTO_TEST_CASE(the_type_of_a_model_is_in_its_name) {
  const Folder f;
  const std::string pieces = piece("<unk>", 2) + piece("a", 1) + piece("\xe2\x96\x81", 1);
  // The last field of trainer_spec wins; fields of other kinds are skipped.
  const std::pair<std::string, const char*> specs[] = {{"\x18\x01", "unigram"},
                                                       {"\x18\x02", "bpe"},
                                                       {"\x18\x03", "word"},
                                                       {"\x18\x04", "char"},
                                                       {"", "unigram"}};
  for (const auto& [spec, name] : specs) {
    const std::string model = pieces + "\x12" + static_cast<char>(spec.size()) + spec;
    BOOST_TEST(make_tokenizer(f.text("x.model", model).string())->name() ==
               std::string("SentencePiece ") + name);
  }
}

// Fields 1000 and above are unknown to the library. Each text is one field after a good model.
BOOST_AUTO_TEST_CASE(a_model_whose_fields_do_not_tile_the_file_is_rejected) {
  const Folder f;
  const auto opened = [&](const std::string& field) {
    const fs::path p = f.text("x.model", piece("<unk>", 2) + piece("a", 1) + kSpecs + field);
    return make_tokenizer(p.string())->vocab();
  };
  BOOST_TEST(opened("\xc2\x3e\x03"
                    "abc") == 2u);  // 3 bytes follow
  BOOST_TEST(opened("\xc1\x3e"
                    "12345678") == 2u);
  BOOST_TEST(opened("\xc5\x3e"
                    "1234") == 2u);
  for (const std::string& bad :
       {std::string("\xc2\x3e\x04"
                    "abc"),
        std::string("\xc1\x3e"
                    "1234567"),
        std::string("\xc5\x3e"
                    "123"),
        std::string("\xc3\x3e"), std::string("\xc6\x3e"), std::string("\xc2"), std::string("\xc2\x3e"),
        std::string("\xc0\x3e"), "\x82" + std::string(9, '\x80') + "\x03" + "abc", std::string(12, '\xff'),
        "\xc2\x3e" + std::string(9, '\xff') + "\x7f"})
    check_says(failure([&] { opened(bad); }), {"x.model", "it is damaged or has another format"});
  // Field 1 is a number instead of a piece.
  check_says(failure([&] { make_tokenizer(f.text("x.model", "\x08\x01" + kSpecs).string()); }),
             {"x.model", "is not a SentencePiece model: "});
  check_says(failure([&] { make_tokenizer(f.text("x.model", kSpecs).string()); }),
             {"damaged or has another format"});
}

BOOST_AUTO_TEST_CASE(a_text_without_tokens_and_a_cache_that_cannot_be_made_are_errors) {
  const Folder f;
  OpenOptions o;
  o.tokenizer =
      f.text("x.model", piece("<unk>", 2) + piece("a", 1) + piece("\xe2\x96\x81", 1) + kSpecs).string();
  o.seq_len = 1, o.cache_dir = f / "cache";
  o.train = {f.text("a.txt", "   ")};  // white space is removed
  check_says(failure([&] { open_source(o); }), {"a.txt", "has no tokens under SentencePiece unigram"});
  BOOST_TEST(std::distance(fs::directory_iterator(o.cache_dir), {}) == 0);
  o.train = {f.text("b.txt", "a a a")};
  o.cache_dir = f / "a.txt/cache";
  check_says(failure([&] { open_source(o); }, Exit::kFailed),
             {"a.txt/cache' for tokenized text cannot be created: Not a directory"});
}

// A truncated or changed model is rejected or still works; it never crashes the process.
BOOST_AUTO_TEST_CASE(damaged_models_never_crash) {
  const Folder f;
  const std::string good = read_file(small_model("bpe"));
  int rejected = 0;
  const auto attempt = [&](const std::string& model) {
    const fs::path p = f.text("damaged.model", model);
    try {
      const auto t = make_tokenizer(p.string());
      t->decode(t->encode("Mia lives in the old mill."));
    } catch (const Error& e) {
      ++rejected;
      BOOST_TEST(std::string(e.what()).find("damaged.model") != std::string::npos);
    }
  };
  for (std::size_t i = 0; i < 60; ++i) attempt(good.substr(0, good.size() * i / 60));
  BOOST_TEST(rejected >= 55);
  std::uint64_t random = 1;
  for (int i = 0; i < 200; ++i) {
    std::string model = good;
    for (int k = 0; k < 1 + i % 4; ++k) {
      random = random * 6364136223846793005ULL + 1442695040888963407ULL;
      model[(random >> 33) % model.size()] = static_cast<char>(random >> 20);
    }
    attempt(model);
  }
}

BOOST_AUTO_TEST_CASE(what_a_killed_process_left_is_removed_and_what_is_being_written_is_not) {
  Folder f;
  const fs::path left = f.text("key.bin.aB3dE9", "half"), other = f.text("notes.bin.tar.gz", "mine"),
                 short_name = f.text("key.bin.12345", "mine");
  OutputFile writing(f / "key.bin");
  remove_abandoned(f / "");
  BOOST_TEST(!fs::exists(left));
  BOOST_TEST(fs::exists(other));
  BOOST_TEST(fs::exists(short_name));
  writing.commit();
  BOOST_TEST(fs::exists(f / "key.bin"));
  remove_abandoned(f / "nowhere");
}

BOOST_AUTO_TEST_CASE(tokenizing_ends_when_it_is_cancelled_and_leaves_no_file) {
  const Folder f;
  OpenOptions o;
  o.train = {f.text("a.txt", story_text(2, StoryStream::kTrain, 1, 5000))};
  o.tokenizer = small_model("bpe").string();
  o.vocab = 500, o.seq_len = 16, o.cache_dir = f / "cache";
  o.cancelled = [asked = 0]() mutable { return ++asked > 1; };  // the first time the text is hashed
  BOOST_CHECK_THROW(open_source(o), Cancelled);
  BOOST_TEST(std::distance(fs::directory_iterator(o.cache_dir), {}) == 0);
  o.cancelled = [] { return false; };
  BOOST_TEST(open_source(o).train->size() > 100u);
}

BOOST_AUTO_TEST_CASE(a_tokenized_text_is_cached_by_the_content_of_text_and_model) {
  const Folder f;
  const std::string text = story_text(2, StoryStream::kTrain, 1, 5000);
  OpenOptions o;
  o.train = {f.text("a.txt", text)};
  o.tokenizer = small_model("bpe").string();
  o.vocab = 500;
  o.seq_len = 16;
  o.cache_dir = f / "cache/deep";
  const auto t = make_tokenizer(o.tokenizer);
  const auto expected = t->encode(text);
  const auto cached = [&] {
    return std::count_if(fs::directory_iterator(o.cache_dir), {},
                         [](const fs::directory_entry& e) { return e.path().extension() == ".bin"; });
  };
  Source s = open_source(o);
  BOOST_TEST(all_ids(*s.train) == expected);
  BOOST_TEST(s.train->held_bytes() == planned_held_bytes(o));
  BOOST_TEST(cached() == 1);
  const fs::path kept =
      std::find_if(fs::directory_iterator(o.cache_dir), {}, [](const fs::directory_entry& e) {
        return e.path().extension() == ".bin";
      })->path();
  const auto first_time = fs::last_write_time(kept);
  o.train = {f.text("same.txt", text)};  // a different name, the same content
  BOOST_TEST(all_ids(*open_source(o).train) == expected);
  BOOST_TEST(cached() == 1);
  BOOST_TEST((fs::last_write_time(kept) == first_time));
  o.train = {f.text("a.txt", text + "!")};
  BOOST_TEST(open_source(o).train->size() > expected.size());
  BOOST_TEST(cached() == 2);
  o.tokenizer = small_model("unigram").string();
  open_source(o);
  BOOST_TEST(cached() == 3);
  o.tokenizer = small_model("bpe").string();
  o.train = {f / "same.txt"};
  fs::resize_file(kept, fs::file_size(kept) - 2);  // damaged: must be written again
  BOOST_TEST(all_ids(*open_source(o).train) == expected);
  BOOST_TEST(cached() == 3);
  {  // one flipped bit in an id that stays valid
    std::fstream file(kept, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(1100);
    const int byte = file.get();
    file.seekp(1100);
    file.put(static_cast<char>(byte ^ 1));
  }
  s = open_source(o);
  BOOST_TEST(all_ids(*s.train) == expected);
  BOOST_TEST(s.notes.size() == 1u);
  BOOST_TEST(open_source(o).notes.empty());
  fs::remove(fs::path(kept).replace_extension(".xxh3"));
  BOOST_TEST(open_source(o).notes.size() == 1u);
}

BOOST_AUTO_TEST_CASE(a_text_that_is_written_to_while_its_tokens_are_read_is_an_error) {
  const Folder f;
  OpenOptions o;
  o.train = {f.text("a.txt", story_text(2, StoryStream::kTrain, 1, 5000))};
  o.tokenizer = small_model("bpe").string();
  o.vocab = 500;
  o.seq_len = 16;
  o.cache_dir = f / "cache";
  for (int opened = 0; opened < 2; ++opened) {  // tokenized, then read from the cache
    const Source s = open_source(o);
    BOOST_TEST(!all_ids(*s.train).empty());
    std::ofstream(o.train.front(), std::ios::app) << "more";
    check_says(failure([&] { all_ids(*s.train); }, Exit::kFailed), {"a.txt", "was changed during the run"});
    f.text("a.txt", story_text(2, StoryStream::kTrain, 1, 5000));
  }
  // The ids are those of the text that was opened.
  const Source s = open_source(o);
  const auto ids = all_ids(*s.train);
  fs::rename(f / "a.txt", f / "old.txt");
  BOOST_TEST(all_ids(*s.train) == ids);
  f.text("a.txt", "another text");
  BOOST_TEST(all_ids(*s.train) == ids);
}

BOOST_AUTO_TEST_CASE(a_model_larger_than_the_vocabulary_is_rejected_before_any_text_is_read) {
  const Folder f;
  OpenOptions o;
  o.train = {f.text("a.txt", "Mia lives in the old mill.")};
  o.tokenizer = small_model("bpe").string();
  o.cache_dir = f / "cache";
  check_says(failure([&] { open_source(o); }),
             {"bpe.model", "ids, but model.vocab_size is 256", "can have model.vocab_size = 500"});
  o.vocab = 1000;
  o.cache_dir.clear();
  check_says(failure([&] { open_source(o); }), {"no cache folder"});
  BOOST_TEST(!fs::exists(f / "cache"));
}

BOOST_AUTO_TEST_CASE(a_text_that_is_not_utf8_is_rejected_with_its_offset) {
  const Folder f;
  OpenOptions o;
  o.train = {f.text("latin1.txt", "caf\xE9 au lait, a text in another encoding")};
  o.tokenizer = small_model("bpe").string();
  o.vocab = 500;
  o.seq_len = 4;
  o.cache_dir = f / "cache";
  check_says(failure([&] { open_source(o); }), {"latin1.txt", "not UTF-8 between bytes 0 and", "bytes"});
}

BOOST_AUTO_TEST_CASE(the_data_tools_work_with_a_model) {
  const Folder f;
  const std::string text = story_text(2, StoryStream::kTrain, 1, 20'000);
  const auto a = f.text("a.txt", text);
  const Tokenized t = tokenize_to_bin({a}, small_model("bpe").string(), f / "a.bin");
  InfoOptions o;
  o.files = {a};
  o.tokenizer = small_model("bpe").string();
  const FileInfo from_text = info(o).front();
  BOOST_TEST(from_text.form == "text by SentencePiece bpe");
  BOOST_TEST(from_text.scan.tokens == t.tokens);
  BOOST_TEST(from_text.bytes_per_token > 2.0);
  o.files = {f / "a.bin"};
  BOOST_TEST(info(o).front().scan.entropy_nats == from_text.scan.entropy_nats);
}

BOOST_AUTO_TEST_CASE(published_models_load_and_round_trip_text) {
  const fs::path mistral = kShared / "tokenizers/mistral_v1/tokenizer.model",
                 botchan = kShared / "tokenizers/spm_botchan_1000/test_model.model";
  const fs::path english = kShared / "corpus/tinyshakespeare.txt",
                 japanese = kShared / "corpus/wagahai_ja.txt";
  if (absent(mistral) || absent(botchan) || absent(english) || absent(japanese)) return;
  const auto bpe = make_tokenizer(mistral.string()), unigram = make_tokenizer(botchan.string());
  BOOST_TEST(bpe->vocab() == 32'000u);
  BOOST_TEST(bpe->name() == "SentencePiece bpe");
  BOOST_TEST(unigram->vocab() == 1000u);
  BOOST_TEST(unigram->name() == "SentencePiece unigram");
  const std::vector<std::int32_t> hello{22557, 1526};  // "Hello world" in this vocabulary
  BOOST_TEST(bpe->encode("Hello world") == hello);
  for (const fs::path& p : {english, japanese}) {
    const std::string text = read_file(p).substr(0, 30'000);
    const std::string whole = text.substr(0, text.rfind('\n') + 1);
    BOOST_TEST((bpe->decode(bpe->encode(whole)) == whole), p);
  }
  const Folder f;
  OpenOptions o;
  o.train = {english};
  o.tokenizer = mistral.string();
  o.vocab = 32'000;
  o.valid_fraction = 0.1;
  o.cache_dir = f / "cache";
  const Source s = open_source(o);
  BOOST_TEST_MESSAGE("tinyshakespeare: " << s.train->size() + s.valid->size() << " tokens");
  BOOST_TEST(s.train->size() + s.valid->size() < 400'000u);
}

#elif TRAINHOST_NO_SENTENCEPIECE

BOOST_AUTO_TEST_CASE(without_the_library_a_model_is_rejected_with_a_hint) {
  check_says(failure([] { make_tokenizer("x.model"); }),
             {"x.model", "built without", "libsentencepiece-dev"});
}

#endif

BOOST_AUTO_TEST_SUITE_END()
