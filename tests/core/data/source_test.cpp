// Opening the data of a run: texts by bytes, raw and llm.c token files, several files, validation data, and
// errors. SentencePiece: tokenizer_test.cpp.
#include <sys/stat.h>

#include <boost/test/unit_test.hpp>
#include <cmath>
#include <iterator>
#include <map>
#include <numeric>
#include <random>

#include "core/data/data_files.hpp"
#include "core/data/dataset.hpp"
#include "core/data/stories.hpp"
#include "core/data/token_files.hpp"
#include "tests/core/data/data_files.hpp"

using namespace trainhost;
using namespace trainhost::data;

namespace {

OpenOptions options(std::vector<std::filesystem::path> train, std::uint64_t vocab = 256,
                    std::uint32_t seq_len = 4) {
  OpenOptions o;
  o.train = std::move(train);
  o.vocab = vocab;
  o.seq_len = seq_len;
  return o;
}

std::string open_failure(const OpenOptions& o) {
  return failure([&] { open_source(o); });
}

template <class Id>
std::string llmc(std::int32_t magic, std::int32_t version, std::int32_t count, const std::vector<Id>& ids) {
  std::vector<std::int32_t> head(256);
  head[0] = magic, head[1] = version, head[2] = count;
  return std::string(reinterpret_cast<const char*>(head.data()), 1024) +
         std::string(reinterpret_cast<const char*>(ids.data()), ids.size() * sizeof(Id));
}

}  // namespace

BOOST_AUTO_TEST_SUITE(data_source)

BOOST_AUTO_TEST_CASE(reading_reports_how_far_it_is_and_ends_when_it_is_cancelled) {
  const Folder f;
  std::string records;
  for (int i = 0; i < 20'000; ++i) records += "{\"text\": \"number " + std::to_string(i) + "\"}\n";
  for (const auto& [name, text] : {std::pair{"a.txt", std::string(1 << 20, 'x')}, {"b.jsonl", records}}) {
    OpenOptions o = options({f.text(name, text)});
    o.identify = true;
    o.cache_dir = f / (std::string("cache-") + name);
    struct Phase {
      std::uint64_t calls = 0, done = 0, total = 0;
    };
    std::map<std::string, Phase> phases;
    o.progress = [&](std::string_view what, std::uint64_t done, std::uint64_t total) {
      Phase& p = phases[std::string(what)];
      BOOST_TEST(done >= p.done);
      BOOST_TEST((p.calls == 0 || total == p.total));
      ++p.calls, p.done = done, p.total = total;
    };
    open_source(o);
    for (const auto& [what, p] : phases) {
      BOOST_TEST(p.done == p.total, what);
      BOOST_TEST(p.calls > 1u, what);
    }
    BOOST_TEST(phases["reading " + std::string(name)].total == text.size());
    const std::string tokenizing = "tokenizing " + std::string(name);
    BOOST_TEST((phases.count(tokenizing) == 1) == (std::string(name) == "b.jsonl"));
    std::filesystem::remove_all(o.cache_dir);
    o.cancelled = [] { return true; };
    BOOST_CHECK_THROW(open_source(o), Cancelled);
  }
}

BOOST_AUTO_TEST_CASE(the_ids_of_a_text_by_bytes_are_its_bytes) {
  const Folder f;
  const Source s = open_source(options({f.text("a.txt", "Hello, w\xC3\xB6rld\r\n")}));
  BOOST_TEST(s.name == "a.txt");
  BOOST_TEST(!s.valid);
  BOOST_TEST(!s.entropy_nats.has_value());
  const std::vector<std::int32_t> expected{'H',  'e',  'l', 'l', 'o', ',',  ' ', 'w',
                                           0xC3, 0xB6, 'r', 'l', 'd', '\r', '\n'};
  BOOST_TEST(all_ids(*s.train) == expected);
  std::int32_t one[1];
  s.train->read(7, one);
  BOOST_TEST(one[0] == 'w');
}

BOOST_AUTO_TEST_CASE(raw_ids_are_uint16_and_uint32_by_vocabulary_or_dtype) {
  const Folder f;
  const auto narrow = f.ids<std::uint16_t>("n.bin", {1, 2, 65535, 4, 5, 6});
  const auto wide = f.ids<std::uint32_t>("w.bin", {1, 70000, 3, 128255, 5, 6});
  const std::vector<std::int32_t> as_narrow{1, 2, 65535, 4, 5, 6}, as_wide{1, 70000, 3, 128255, 5, 6};
  BOOST_TEST(all_ids(*open_source(options({narrow}, 65536)).train) == as_narrow);
  BOOST_TEST(all_ids(*open_source(options({wide}, 128256)).train) == as_wide);
  OpenOptions o = options({narrow}, 128256);
  o.dtype = "uint16";
  BOOST_TEST(all_ids(*open_source(o).train) == as_narrow);
  o = options({f.ids<std::uint32_t>("w2.bin", {1, 7, 3, 12, 5})}, 256);
  o.dtype = "uint32";
  BOOST_TEST(open_source(o).train->size() == 5u);
  BOOST_TEST(!open_source(o).unknown_text);  // 256 ids are bytes
  BOOST_TEST(open_source(options({narrow}, 65536)).unknown_text);
  o.dtype = "unit16";
  check_says(open_failure(o), {"data.dtype is 'unit16'", "did you mean 'uint16'"});
}

BOOST_AUTO_TEST_CASE(long_files_read_the_same_in_parts_as_at_once) {
  const Folder f;
  std::vector<std::uint16_t> ids(50'001);
  for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<std::uint16_t>(i * 7919 % 50'000);
  const Source s = open_source(options({f.ids("x.bin", ids)}, 50'000));
  const std::vector<std::int32_t> expected(ids.begin(), ids.end());
  BOOST_TEST(all_ids(*s.train) == expected);
  std::vector<std::int32_t> part(9001);
  s.train->read(40'000, part);
  BOOST_TEST(std::equal(part.begin(), part.end(), expected.begin() + 40'000));
}

BOOST_AUTO_TEST_CASE(llmc_files_are_recognised_by_their_magic_number) {
  const Folder f;
  const std::vector<std::int32_t> expected{9, 8, 7, 6, 5};
  const auto gpt2 = f.text("gpt2.bin", llmc<std::uint16_t>(20240520, 1, 5, {9, 8, 7, 6, 5}));
  const auto llama3 = f.text("llama3.bin", llmc<std::uint32_t>(20240801, 7, 5, {9, 8, 7, 6, 5}));
  BOOST_TEST(all_ids(*open_source(options({gpt2}, 50'257)).train) == expected);
  BOOST_TEST(all_ids(*open_source(options({gpt2}, 100'000)).train) ==
             expected);  // the header takes precedence over the dtype rule
  BOOST_TEST(all_ids(*open_source(options({llama3}, 10)).train) == expected);
}

BOOST_AUTO_TEST_CASE(inconsistent_llmc_headers_are_rejected) {
  const Folder f;
  const std::vector<std::uint16_t> ids{9, 8, 7, 6, 5};
  check_says(open_failure(options({f.text("v.bin", llmc(20240520, 2, 5, ids))})),
             {"v.bin", "magic number 20240520", "version 2", "expected version 1"});
  check_says(open_failure(options({f.text("c.bin", llmc(20240520, 1, 6, ids))})),
             {"c.bin", "counts 6 tokens", "1,036 bytes", "has 1,034 bytes"});
  check_says(open_failure(options({f.text("m.bin", llmc(20240520, 1, 4, ids))})),
             {"m.bin", "counts 4 tokens", "1,032 bytes", "has 1,034 bytes"});
  check_says(open_failure(options({f.text("n.bin", llmc(20240520, 1, -5, ids))})),
             {"n.bin", "counts -5 tokens"});
  check_says(open_failure(options({f.text("h.bin", llmc(20240520, 1, 5, ids).substr(0, 100))})),
             {"h.bin", "100 bytes", "1024 of an llm.c header"});
  OpenOptions o = options({f.text("d.bin", llmc(20240520, 1, 5, ids))});
  o.dtype = "uint32";
  check_says(open_failure(o), {"d.bin", "contains uint16", "data.dtype is uint32"});
}

BOOST_AUTO_TEST_CASE(an_id_outside_the_vocabulary_names_file_byte_and_id) {
  const Folder f;
  const auto reading = [](const OpenOptions& o) {
    const Source s = open_source(o);
    return failure([&] { all_ids(*s.train); });
  };
  check_says(reading(options({f.ids<std::uint16_t>("a.bin", {1, 2, 3, 300, 5})})),
             {"a.bin", "byte 6", "token id 300", "vocabulary of 256"});
  check_says(reading(options({f.ids<std::uint16_t>("b.bin", {256, 2, 3, 4, 5})})),
             {"b.bin", "byte 0", "token id 256"});
  check_says(reading(options({f.ids<std::uint32_t>("c.bin", {1, 2, 3, 4, 0xFFFFFFFF})}, 70'000)),
             {"c.bin", "byte 16", "token id 4294967295"});
  check_says(reading(options({f.text("d.bin", llmc<std::uint16_t>(20240520, 1, 5, {1, 2, 3, 4, 999}))})),
             {"d.bin", "byte 1032", "token id 999"});
  check_says(reading(options({f.text("e.txt", "abc~def")}, 126)),
             {"e.txt", "byte 3: byte 126", "vocabulary of 126", "model.vocab_size = 256"});
}

// An invalid id in any kind of file fails exactly the reads that include it.
BOOST_AUTO_TEST_CASE(invalid_ids_are_found_at_every_offset) {
  const Folder f;
  std::mt19937 random(1);
  for (int round = 0; round < 200; ++round) {
    const std::size_t n = 5 + random() % 6000, bad = random() % n;
    const bool wide = round % 2;
    std::vector<std::uint32_t> ids(n);
    for (auto& id : ids) id = random() % 1000;
    ids[bad] = 1000 + random() % 60'000;
    OpenOptions o = options(
        {wide ? f.ids("x.bin", ids) : f.ids("x.bin", std::vector<std::uint16_t>(ids.begin(), ids.end()))},
        1000);
    o.dtype = wide ? "uint32" : "uint16";
    const Source s = open_source(o);
    std::vector<std::int32_t> before(bad), after(n - bad - 1);
    s.train->read(0, before);
    s.train->read(bad + 1, after);
    check_says(failure([&] { all_ids(*s.train); }),
               {"byte " + std::to_string(bad * (wide ? 4 : 2)) + ": token id " + std::to_string(ids[bad])});
  }
}

BOOST_AUTO_TEST_CASE(several_files_are_concatenated) {
  const Folder f;
  const Source s = open_source(
      options({f.text("a.txt", "abc"), f.ids<std::uint16_t>("b.bin", {1, 2}), f.text("c.txt", "xyz!")}));
  const std::vector<std::int32_t> expected{'a', 'b', 'c', 1, 2, 'x', 'y', 'z', '!'};
  BOOST_TEST(s.name == "3 files");
  BOOST_TEST(all_ids(*s.train) == expected);
  for (std::size_t first = 0; first < expected.size(); ++first)
    for (std::size_t n = 0; first + n <= expected.size(); ++n) {
      std::vector<std::int32_t> part(n);
      s.train->read(first, part);
      BOOST_TEST(std::equal(part.begin(), part.end(), expected.begin() + static_cast<long>(first)));
    }
}

BOOST_AUTO_TEST_CASE(validation_data_are_separate_files_or_the_last_part) {
  const Folder f;
  OpenOptions o = options({f.text("a.txt", "0123456789abcdefghij")});
  o.valid_fraction = 0.3;
  Source s = open_source(o);
  BOOST_TEST(s.train->size() == 14u);
  BOOST_TEST(s.valid->size() == 6u);
  std::vector<std::int32_t> joined = all_ids(*s.train);
  for (std::int32_t id : all_ids(*s.valid)) joined.push_back(id);
  BOOST_TEST(std::string(joined.begin(), joined.end()) == "0123456789abcdefghij");
  o.valid_fraction = 0;
  o.valid = {f.text("v.txt", "vwxyz")};
  s = open_source(o);
  BOOST_TEST(s.train->size() == 20u);
  BOOST_TEST(s.valid->size() == 5u);
  o.valid_fraction = 0.5;
  check_says(open_failure(o), {"cannot be combined"});
}

// A sample does not cross from one source to the next, and each source has its own end for validation.
BOOST_AUTO_TEST_CASE(texts_with_weights_are_mixed) {
  const Folder f;
  OpenOptions o = options({f.text("a.txt", std::string(41, 'a')), f.text("b.txt", std::string(90, 'b')),
                           f.text("c.txt", std::string(31, 'b'))},
                          256, 10);
  o.weights = {1, 3}, o.source_files = {1, 2};
  Source s = open_source(o);
  BOOST_REQUIRE(s.train_samples->parts().size() == 2u);
  BOOST_TEST(s.train_samples->parts()[0].samples == 4u);
  BOOST_TEST(s.train_samples->parts()[1].samples == 12u);
  for (std::uint64_t i = 0; i < 16; ++i) {
    std::vector<std::int32_t> tokens(10), targets(10);
    s.train_samples->read(i, tokens, targets);
    BOOST_TEST((tokens == std::vector<std::int32_t>(10, i < 4 ? 'a' : 'b')));
    BOOST_TEST((targets == tokens));
  }
  check_says(s.notes.at(0), {"mixture: a.txt is 25% of the samples", "4 samples 1 time"});
  check_says(s.notes.at(1), {"2 files is 75%"});
  o.valid_fraction = 0.5;
  s = open_source(o);
  std::vector<std::int32_t> expected(21, 'a');
  expected.resize(82, 'b');
  BOOST_TEST(all_ids(*s.train) == expected);
  BOOST_TEST(s.valid->size() == 80u);
}

BOOST_AUTO_TEST_CASE(texts_too_short_for_a_sample_are_rejected_with_numbers) {
  const Folder f;
  OpenOptions o = options({f.text("a.txt", "0123456789")}, 256, 10);
  check_says(open_failure(o), {"training text 'a.txt'", "10 tokens", "seq_len = 10", "needs 11"});
  o.seq_len = 9;
  BOOST_TEST(open_source(o).train->size() == 10u);
  o.seq_len = 6;
  o.valid_fraction = 0.3;
  check_says(open_failure(o), {"validation part of 'a.txt'", "3 tokens", "needs 7"});
  o.valid_fraction = 0.7;
  check_says(open_failure(o), {"training text", "3 tokens", "needs 7"});
  for (double wrong : {-0.1, 1.0, 1.5, std::nan("")}) {
    o.valid_fraction = wrong;
    check_says(open_failure(o), {"data.valid_fraction is"});
  }
  o.valid_fraction = 0;
  o.valid = {f.text("v.txt", "123")};
  check_says(open_failure(o), {"validation text 'v.txt'", "3 tokens"});
}

BOOST_AUTO_TEST_CASE(invalid_data_files_are_rejected_by_name) {
  const Folder f;
  f.text("input.txt", "some text");
  std::filesystem::create_directory(f / "folder");
  BOOST_REQUIRE(::mkfifo((f / "pipe").c_str(), 0600) == 0);
  check_says(open_failure(options({f / "inptu.txt"})),
             {"inptu.txt", "does not exist", "did you mean 'input.txt'"});
  check_says(open_failure(options({f / "folder"})), {"folder", "is a folder"});
  check_says(open_failure(options({f / "pipe"})), {"pipe", "not a regular file"});
  check_says(open_failure(options({f.text("empty.txt", "")})), {"empty.txt", "is empty"});
  check_says(open_failure(options({f.text("empty.bin", "")})), {"empty.bin", "is empty"});
  check_says(open_failure(options({f.text("odd.bin", "12345678901")})),
             {"odd.bin", "11 bytes", "not a multiple of the size of uint16"});
  check_says(open_failure(options({f.text("odd32.bin", "12345678901234")}, 70'000)),
             {"odd32.bin", "14 bytes", "not a multiple of the size of uint32"});
  check_says(open_failure(options({f.text("bad\nname.txt", "")})), {"bad\\x0aname.txt"});
  OpenOptions o;
  o.valid = {f / "input.txt"};
  check_says(open_failure(o), {"data.valid is given without data.train"});
  check_says(open_failure(options({f / "input.txt"}, 256, 0)), {"data.seq_len is 0"});
}

BOOST_AUTO_TEST_CASE(a_file_that_shrinks_during_the_run_is_an_error_not_a_crash) {
  const Folder f;
  const Source s = open_source(options({f.text("a.txt", std::string(10'000, 'x'))}));
  std::filesystem::resize_file(f / "a.txt", 5000);
  check_says(failure([&] { all_ids(*s.train); }, Exit::kFailed),
             {"a.txt", "ends at byte 5000", "had 10000 bytes"});
}

BOOST_AUTO_TEST_CASE(without_files_the_built_in_text_is_opened_with_its_entropy) {
  OpenOptions o;
  o.seq_len = 128;
  const Source s = open_source(o);
  BOOST_TEST(s.name == "stories");
  BOOST_TEST(s.train->size() == kTrainWindows * 128 + 1);
  BOOST_TEST(s.valid->size() == 512u * 128 + 1);
  const StoryEntropy entropy = story_entropy(o.seed, StoryStream::kValid, 512, 128);
  BOOST_TEST(*s.entropy_nats == entropy.nats);
  BOOST_TEST(*s.entropy_error == entropy.error);
  BOOST_TEST(Order(s.train->size(), 128, true, 1).samples() == kTrainWindows);
  BOOST_TEST(Order(s.valid->size(), 128, false, 1).samples() == 512u);
  o.seq_len = 4096;
  BOOST_TEST(open_source(o).valid->size() == 16u * 4096 + 1);
}

BOOST_AUTO_TEST_CASE(keys_that_do_not_apply_to_the_built_in_text_are_rejected) {
  OpenOptions o;
  o.valid_fraction = 0.1;
  check_says(open_failure(o), {"data.valid_fraction", "built-in text"});
  o = {};
  o.tokenizer = "some.model";
  check_says(open_failure(o), {"data.tokenizer", "some.model"});
  o = {};
  o.vocab = 100;
  check_says(open_failure(o), {"vocab_size >= 128", "100"});
}

BOOST_AUTO_TEST_CASE(no_source_keeps_tokens_in_memory_as_planned) {
  const Folder f;
  const std::vector<OpenOptions> all{OpenOptions{}, options({f.text("a.txt", "0123456789")}),
                                     options({f.ids<std::uint16_t>("b.bin", {1, 2, 3, 4, 5}), f / "a.txt"})};
  for (OpenOptions o : all)
    for (double fraction : {0.0, 0.5}) {
      if (!o.train.empty()) o.valid_fraction = fraction, o.seq_len = 3;
      const Source s = open_source(o);
      BOOST_TEST(s.train->held_bytes() + (s.valid ? s.valid->held_bytes() : 0) == planned_held_bytes(o));
    }
}

BOOST_AUTO_TEST_CASE(an_output_file_is_written_completely_or_not_at_all) {
  const Folder f;
  const std::string old = "old", fresh = "fresh content";
  f.text("x", old);
  {
    OutputFile out(f / "x");
    out.append(std::as_bytes(std::span(fresh)));
    BOOST_TEST(read_file(f / "x") == old);
  }
  BOOST_TEST(read_file(f / "x") == old);
  {
    OutputFile out(f / "x");
    out.append(std::as_bytes(std::span(fresh)));
    out.overwrite(0, std::as_bytes(std::span("F", 1)));
    out.commit();
  }
  BOOST_TEST(read_file(f / "x") == "Fresh content");
  BOOST_TEST(std::distance(std::filesystem::directory_iterator(f / ""), {}) == 1);
  check_says(failure([&] { OutputFile(f / "no/such/x"); }, Exit::kFailed),
             {"no/such/x", "cannot be created"});
}

BOOST_AUTO_TEST_SUITE_END()
