// Records as the data of a run: tokens and masks of documents, their sequences, the cache, validation,
// statistics. Reading and rendering: tests/core/records.
#include <boost/test/unit_test.hpp>
#include <map>
#include <numeric>
#include <random>

#include "core/data/data_files.hpp"
#include "core/data/dataset.hpp"
#include "core/data/documents.hpp"
#include "core/data/record_tools.hpp"
#include "core/data/sequence_file.hpp"
#include "tests/core/data/data_files.hpp"

using namespace trainhost;
using namespace trainhost::data;

namespace {

/// Bytes, two special tokens, and an end.
class SpecialBytes final : public Tokenizer {
 public:
  std::uint64_t vocab() const override { return 260; }
  std::string name() const override { return "special bytes"; }
  std::string decode(std::span<const std::int32_t>) const override { return ""; }
  std::size_t encode_next(std::string_view text, tokenizer::Names, bool, bool,
                          std::vector<std::int32_t>& ids) const override {
    for (char c : text) ids.push_back(static_cast<unsigned char>(c));
    return text.size();
  }
  tokenizer::PartIds encode_parts(std::span<const tokenizer::Part> parts) const override {
    tokenizer::PartIds out;
    for (const tokenizer::Part& p : parts) {
      for (std::string_view rest = p.text; !rest.empty();) {
        const std::string_view name = rest.substr(0, rest.starts_with("<|im_") ? rest.find('>') + 1 : 0);
        if (p.names == tokenizer::Names::kSpecial && id_of(name)) {
          out.ids.push_back(*id_of(name)), rest.remove_prefix(name.size());
          continue;
        }
        encode_next(rest.substr(0, 1), p.names, false, true, out.ids), rest.remove_prefix(1);
      }
      out.ends.push_back(out.ids.size());
    }
    return out;
  }
  std::optional<std::int32_t> id_of(std::string_view text) const override {
    return text == "<|im_start|>" ? std::optional(256)
           : text == "<|im_end|>" ? std::optional(257)
                                  : std::nullopt;
  }
  bool special(std::int32_t id) const override { return id >= 256; }
  std::vector<std::int32_t> before() const override { return {259}; }
  std::optional<std::int32_t> eos() const override { return 258; }
};

/// Ids as text: special ones in brackets, trained ones in braces.
std::string shown_ids(const Document& d) {
  std::string text;
  for (std::size_t i = 0; i < d.ids.size(); ++i) {
    const std::string id = d.ids[i] < 256 ? std::string(1, static_cast<char>(d.ids[i]))
                                          : "<" + std::to_string(d.ids[i] - 256) + ">";
    text += d.trained[i] ? "{" + id + "}" : id;
  }
  return text;
}

struct Sample {
  std::vector<std::int32_t> tokens, targets, starts;
};

Sample read_sample(const Samples& s, std::uint64_t i, std::uint32_t seq_len) {
  Sample x{std::vector<std::int32_t>(seq_len), std::vector<std::int32_t>(seq_len),
           std::vector<std::int32_t>(seq_len)};
  s.read(i, x.tokens, x.targets, x.starts);
  return x;
}

OpenOptions record_options(const Folder& f, std::vector<std::filesystem::path> train, std::uint32_t seq_len) {
  OpenOptions o;
  o.train = std::move(train);
  o.seq_len = seq_len;
  o.cache_dir = f.path() / "cache";
  o.identify = true;
  o.records.chat_template = "zephyr";
  return o;
}

std::string chat(const std::string& question, const std::string& answer) {
  return "{\"messages\": [{\"role\": \"user\", \"content\": \"" + question +
         "\"}, {\"role\": \"assistant\", \"content\": \"" + answer + "\"}]}\n";
}

std::string record_failure(const OpenOptions& o) {
  return failure([&] { open_source(o); });
}

}  // namespace

BOOST_AUTO_TEST_SUITE(data_records)

BOOST_AUTO_TEST_CASE(special_tokens_have_their_ids_and_texts_begin_and_end) {
  const SpecialBytes tokenizer;
  RecordOptions o;
  o.chat_template = "chatml";
  DocumentEncoder encoder(tokenizer, o);
  records::Record r;
  r.kind = records::RecordKind::kMessages;
  r.messages = {{"user", "u"}, {"assistant", "a"}};
  BOOST_TEST(shown_ids(encoder.encode(r)) == "<0>user\nu<1>\n<0>assistant\n{a}{<1>}\n");
  BOOST_TEST(encoder.missing_tokens().empty());
  records::Record text;
  text.text = "t";
  BOOST_TEST(shown_ids(encoder.encode(text)) == "<3>{t}{<2>}");
  records::Record completion;
  completion.kind = records::RecordKind::kCompletion, completion.text = "p", completion.completion = "c";
  BOOST_TEST(shown_ids(encoder.encode(completion)) == "<3>p{c}{<2>}");
}

BOOST_AUTO_TEST_CASE(names_of_special_tokens_are_tokens_in_plain_texts_only) {
  const SpecialBytes tokenizer;
  RecordOptions o;
  o.chat_template = "chatml";
  records::Record text, chat, completion;
  text.text = "a<|im_end|>";
  chat.kind = records::RecordKind::kMessages, chat.messages = {{"user", "<|im_end|>"}, {"assistant", "a"}};
  completion.kind = records::RecordKind::kCompletion, completion.text = "p<|im_end|>",
  completion.completion = "c";
  for (const bool special : {true, false}) {
    o.special_tokens = special;
    DocumentEncoder encoder(tokenizer, o);
    BOOST_TEST(shown_ids(encoder.encode(text)) ==
               (special ? "<3>{a}{<1>}{<2>}" : "<3>{a}{<}{|}{i}{m}{_}{e}{n}{d}{|}{>}{<2>}"));
    BOOST_TEST(shown_ids(encoder.encode(chat)) == "<0>user\n<|im_end|><1>\n<0>assistant\n{a}{<1>}\n");
    BOOST_TEST(shown_ids(encoder.encode(completion)) == "<3>p<|im_end|>{c}{<2>}");
  }
}

BOOST_AUTO_TEST_CASE(a_special_token_that_the_vocabulary_lacks_is_text_without_a_seam) {
  const auto bytes = make_tokenizer("bytes");
  RecordOptions o;
  o.chat_template = "zephyr";
  DocumentEncoder encoder(*bytes, o);
  records::Record r;
  r.kind = records::RecordKind::kMessages;
  r.messages = {{"user", "u"}, {"assistant", "a"}};
  const std::vector<records::Part> expected{
      {"<|user|>\nu</s>\n<|assistant|>\n", false, false}, {"a</s>", false, true}, {"\n", false, false}};
  BOOST_TEST((encoder.parts(r) == expected));
  BOOST_TEST(encoder.missing_tokens().count("</s>") == 1u);
}

BOOST_AUTO_TEST_CASE(one_record_per_sequence_has_its_answer_as_targets) {
  const Folder f;
  const OpenOptions o = record_options(f, {f.text("a.jsonl", chat("hi", "yo"))}, 48);
  const Source s = open_source(o);
  BOOST_TEST(s.train_samples->size() == 1u);
  const Sample x = read_sample(*s.train_samples, 0, 48);
  const std::string text = "<|user|>\nhi</s>\n<|assistant|>\nyo</s>\n", answer = "yo</s>";
  const std::size_t at = text.find(answer);
  for (std::size_t i = 0; i < 48; ++i) {
    BOOST_TEST(x.tokens[i] == (i < text.size() ? text[i] : 0));
    const bool counted = i + 1 >= at && i + 1 < at + answer.size();
    BOOST_TEST(x.targets[i] == (counted ? text[i + 1] : kNotCounted), i);
    BOOST_TEST(x.starts[i] == static_cast<int>(i < text.size() ? 0 : text.size()));
  }
}

/// Every target of every document appears once, next to the tokens before it, whatever the packing.
BOOST_AUTO_TEST_CASE(packing_keeps_every_document_whole_and_every_target_once) {
  std::mt19937 random(3);
  for (const std::uint32_t seq_len : {5u, 16u, 33u})
    for (const bool packing : {false, true}) {
      const Folder f;
      SequenceWriter writer(f.path() / "s.bin", seq_len, packing, packing);
      std::map<std::vector<std::int32_t>, int> expected, found;
      std::uint64_t tokens = 0, counted = 0;
      for (int n = 0; n < 300; ++n) {
        Document d;
        d.ids.resize(1 + random() % (2 * seq_len));
        d.trained.resize(d.ids.size());
        for (auto& id : d.ids) id = static_cast<std::int32_t>(1 + random() % 500);
        for (auto& t : d.trained) t = random() % 3 == 0;
        writer.add(d);
        const std::size_t size = std::min<std::size_t>(d.ids.size(), seq_len + 1);
        std::vector<std::int32_t> entry(d.ids.begin(), d.ids.begin() + static_cast<std::ptrdiff_t>(size));
        const std::int32_t last = entry.back();
        entry.pop_back();  // a target only, if it is one
        bool any = false;
        std::vector<std::int32_t> targets;
        for (std::size_t i = 1; i < size; ++i) {
          const std::int32_t id = i + 1 == size ? last : entry[i];
          targets.push_back(d.trained[i] ? id : kNotCounted);
          any |= d.trained[i] != 0;
        }
        if (!any) continue;
        tokens += size;
        for (std::int32_t t : targets) counted += t != kNotCounted;
        entry.insert(entry.end(), targets.begin(), targets.end());
        ++expected[entry];
      }
      const SequenceCounts c = writer.commit(7);
      BOOST_TEST(c.tokens == tokens);
      BOOST_TEST(c.counted == counted);
      SequenceCounts read_counts;
      const auto samples = open_sequences(InputFile(f.path() / "s.bin"), seq_len, 501, read_counts);
      BOOST_TEST(read_counts.broken == 7u);
      BOOST_TEST(read_counts.padding == c.padding);
      BOOST_TEST(samples->size() == c.sequences);
      BOOST_TEST(c.sequences * (seq_len + 1) == c.tokens + c.padding);
      BOOST_TEST(packing == (c.sequences < c.documents));
      for (std::uint64_t i = 0; i < samples->size(); ++i) {
        const Sample x = read_sample(*samples, i, seq_len);
        BOOST_TEST(x.starts[0] == 0);
        for (std::size_t first = 0; first < seq_len;) {
          std::size_t end = first + 1;
          while (end < seq_len && x.starts[end] == static_cast<int>(first)) ++end;
          // The last token of a document that ends within the sequence is also an input, without a target.
          std::size_t inputs = end - first;
          if (x.tokens[first] != 0) {
            const bool whole = end == seq_len;
            if (!whole) BOOST_TEST(x.targets[end - 1] == kNotCounted);
            for (const std::size_t n : whole ? std::vector<std::size_t>{inputs, inputs - 1}
                                             : std::vector<std::size_t>{inputs - 1}) {
              std::vector<std::int32_t> entry(x.tokens.begin() + static_cast<std::ptrdiff_t>(first),
                                              x.tokens.begin() + static_cast<std::ptrdiff_t>(first + n));
              entry.insert(entry.end(), x.targets.begin() + static_cast<std::ptrdiff_t>(first),
                           x.targets.begin() + static_cast<std::ptrdiff_t>(first + n));
              if (expected.count(entry)) {
                ++found[entry];
                break;
              }
            }
          }
          first = end;
        }
      }
      BOOST_TEST((found == expected), "seq_len " << seq_len << ", packing " << packing);
    }
}

BOOST_AUTO_TEST_CASE(a_long_text_is_divided_and_a_long_conversation_is_truncated) {
  const Folder f;
  const std::string text = "abcdefghijk";
  OpenOptions o = record_options(f, {f.text("a.jsonl", "{\"text\": \"" + text + "\"}\n")}, 4);
  Source s = open_source(o);
  BOOST_TEST(s.train_samples->size() == 3u);
  std::string targets;
  for (std::uint64_t i = 0; i < 3; ++i)
    for (std::int32_t t : read_sample(*s.train_samples, i, 4).targets)
      if (t != kNotCounted) targets += static_cast<char>(t);
  BOOST_TEST(targets == text.substr(1));
  // 29 characters precede the first answer, so "yo<" remains of it, and nothing of the second one.
  o = record_options(f, {f.text("b.jsonl", chat("h", "yo") + chat("a longer question", "y"))}, 31);
  s = open_source(o);
  BOOST_TEST(s.train_samples->size() == 1u);
  BOOST_REQUIRE(s.notes.size() == 2u);
  check_says(s.notes[1], {"b.jsonl: 1 document in 1 sequence",
                          "2 truncated at data.seq_len = 31 (23 tokens cut off)", "1 left out"});
  o.seq_len = 10;
  check_says(record_failure(o),
             {"no document with a token that is counted", "2 were truncated", "data show"});
}

BOOST_AUTO_TEST_CASE(sequences_are_cached_until_anything_they_depend_on_changes) {
  const Folder f;
  OpenOptions o = record_options(f, {f.text("a.jsonl", chat("hi", "yo") + chat("x", "y"))}, 64);
  const std::string content = open_source(o).content;
  const auto files = [&] {
    std::size_t n = 0;
    for (const auto& e : std::filesystem::directory_iterator(o.cache_dir))
      n += e.path().extension() == ".bin";
    return n;
  };
  BOOST_TEST(files() == 1u);
  BOOST_TEST(open_source(o).content == content);
  BOOST_TEST(files() == 1u);
  const auto check_changes = [&](OpenOptions changed) {
    BOOST_TEST(open_source(changed).content != content);
  };
  OpenOptions p = o;
  p.records.packing = true, check_changes(p), p = o;
  p.records.special_tokens = false, check_changes(p), p = o;
  p.records.loss_on = records::LossOn::kAll, check_changes(p), p = o;
  p.records.chat_template = "chatml", check_changes(p), p = o;
  p.seq_len = 65, check_changes(p), p = o;
  p.records.keys.text = "t", check_changes(p), p = o;
  p.valid_fraction = 0.5;
  BOOST_TEST(files() == 7u);
  // A damaged file is written again.
  for (const auto& e : std::filesystem::directory_iterator(o.cache_dir))
    if (e.path().extension() == ".bin") std::filesystem::resize_file(e.path(), 100);
  const Source s = open_source(o);
  BOOST_TEST(s.notes.size() == 3u);
  check_says(s.notes[0], {"damaged and are written again"});
  BOOST_TEST(read_sample(*s.train_samples, 1, 64).tokens[9] == 'x');
}

BOOST_AUTO_TEST_CASE(record_files_with_weights_are_mixed) {
  const Folder f;
  std::string a, b;
  for (int i = 0; i < 10; ++i) a += chat("a" + std::to_string(i), "x");
  for (int i = 0; i < 40; ++i) b += chat("b" + std::to_string(i), "y");
  OpenOptions o = record_options(f, {f.text("a.jsonl", a), f.text("b.jsonl", b)}, 64);
  const Source together = open_source(o);
  BOOST_TEST(together.train_samples->parts().empty());
  o.weights = {3, 1}, o.source_files = {1, 1};
  const Source s = open_source(o);
  BOOST_TEST(s.content != together.content);
  BOOST_REQUIRE(s.train_samples->size() == 50u);
  BOOST_REQUIRE(s.train_samples->parts().size() == 2u);
  BOOST_TEST(s.train_samples->parts()[0].samples == 10u);
  const auto name_of = [](const Source& from, std::uint64_t i) {
    const std::vector<std::int32_t> t = read_sample(*from.train_samples, i, 64).tokens;
    return std::string(t.begin(), t.end());
  };
  const Order order = Order::of(*s.train_samples, true, 1);
  int of_a = 0;
  for (std::uint64_t p = 0; p < 40; ++p)
    of_a += name_of(s, order.sample(p)).find("a" + std::to_string(order.sample(p))) != std::string::npos;
  BOOST_TEST(of_a == 30);
  check_says(s.notes[s.notes.size() - 2],
             {"mixture: a.jsonl is 75% of the samples", "10 samples 3.75 times"});
  check_says(s.notes.back(), {"b.jsonl is 25%", "40 samples 0.312 times"});
  OpenOptions other = o;
  other.weights = {1, 1};
  BOOST_TEST(open_source(other).content != s.content);
  // Documents for validation are selected in each source.
  o.valid_fraction = 0.5;
  const Source split = open_source(o);
  BOOST_TEST(split.train_samples->size() + split.valid_samples->size() == 50u);
  BOOST_TEST(split.valid_samples->size() > 10u);
  BOOST_TEST(split.train_samples->parts()[0].samples < 10u);
}

BOOST_AUTO_TEST_CASE(validation_takes_whole_documents_and_equal_ones_together) {
  const Folder f;
  std::string lines;
  for (int i = 0; i < 400; ++i) lines += chat("question " + std::to_string(i % 200), "a");
  OpenOptions o = record_options(f, {f.text("a.jsonl", lines)}, 64);
  o.valid_fraction = 0.25;
  const auto numbers = [](const Samples& s) {
    std::map<std::string, int> all;
    for (std::uint64_t i = 0; i < s.size(); ++i) {
      const std::vector<std::int32_t> tokens = read_sample(s, i, 64).tokens;
      ++all[std::string(tokens.begin() + 18, tokens.begin() + 21)];
    }
    return all;
  };
  const Source s = open_source(o);
  const auto train = numbers(*s.train_samples), valid = numbers(*s.valid_samples);
  BOOST_TEST(s.train_samples->size() + s.valid_samples->size() == 400u);
  BOOST_TEST(valid.size() > 30u);
  BOOST_TEST(valid.size() < 70u);
  for (const auto& [number, count] : valid) {
    BOOST_TEST(count == 2);
    BOOST_TEST(train.count(number) == 0u);
  }
  o.seed = 2;
  BOOST_TEST((numbers(*open_source(o).valid_samples) != valid));
}

BOOST_AUTO_TEST_CASE(broken_records_stop_or_are_left_out_with_their_lines) {
  const Folder f;
  OpenOptions o = record_options(
      f, {f.text("a.jsonl", chat("hi", "yo") + "{]\n" + chat("x", "y") + "{\"text\": 1}\n")}, 64);
  check_says(record_failure(o),
             {"2 broken records", "a.jsonl:2:2:", "a.jsonl:4:10: 'text' is a number", "data.on_error"});
  BOOST_TEST(!std::filesystem::exists(o.cache_dir / "x"));
  o.records.on_error = records::OnError::kSkip;
  for (int i = 0; i < 2; ++i) {  // the second time from the cache
    const Source s = open_source(o);
    BOOST_TEST(s.train_samples->size() == 2u);
    check_says(s.notes.back(), {"2 broken records left out"});
    if (i == 0) check_says(s.notes[0], {"a.jsonl:4:10:"});
  }
  // A template without system messages.
  o = record_options(
      f,
      {f.text("b.jsonl",
              "{\"messages\": [{\"role\": \"system\", \"content\": \"s\"}, {\"role\": \"user\", "
              "\"content\": \"u\"}, {\"role\": \"assistant\", \"content\": \"a\"}]}\n")},
      64);
  o.records.chat_template = "gemma";
  check_says(record_failure(o), {"b.jsonl:1: the chat template 'gemma' has no system messages"});
}

BOOST_AUTO_TEST_CASE(files_that_cannot_be_read_as_records_are_refused) {
  const Folder f;
  const auto chats = f.text("a.jsonl", chat("hi", "yo"));
  check_says(record_failure(record_options(f, {chats, f.text("b.txt", "text")}, 8)),
             {"b.txt", "has no records"});
  check_says(record_failure(record_options(f, {f.text("c.parquet", "PAR1")}, 8)),
             {"c.parquet' is a Parquet table", "pandas.read_parquet('c.parquet').to_json('c.jsonl'"});
  check_says(record_failure(record_options(f, {f.text("d.jsonl", "\n\n")}, 8)), {"d.jsonl' has no record"});
  OpenOptions o = record_options(f, {chats}, 64);
  o.records.chat_template = "auto";
  check_says(record_failure(o),
             {"conversations need a chat template", "data.chat_template", "chatml", "zephyr"});
  o.cache_dir.clear();
  check_says(record_failure(o), {"no cache folder"});
}

/// The choices of data.chat_template name every built-in template.
BOOST_AUTO_TEST_CASE(the_run_file_knows_every_chat_template) {
  std::ifstream in(TRAINHOST_SOURCE_DIR "/core/runfile/schema.cpp");
  const std::string schema((std::istreambuf_iterator<char>(in)), {});
  std::string choices = "\"auto";
  for (const std::string& name : records::chat_template_names()) choices += "|" + name;
  BOOST_TEST(schema.find(choices + "\"") != std::string::npos, choices);
}

BOOST_AUTO_TEST_CASE(the_chat_template_of_the_model_is_used) {
  const Folder f, model;
  const std::string zephyr =
      "{% for message in messages %}{% if message['role'] == 'user' %}{{ '<|user|>\\n' + "
      "message['content'] + eos_token }}{% else %}{{ '<|assistant|>\\n' + eos_token }}{% endif %}";
  std::string escaped_jinja;
  for (char c : zephyr) escaped_jinja += c == '\\' ? "\\\\" : std::string(1, c);
  model.text("tokenizer_config.json",
             R"({"eos_token": {"content": "<end>"}, "chat_template": ")" + escaped_jinja + "\"}");
  OpenOptions o = record_options(f, {f.text("a.jsonl", chat("hi", "yo"))}, 64);
  o.records.chat_template = "auto";
  o.records.model_folders = {f.path(), model.path()};
  const std::vector<std::int32_t> tokens = read_sample(*open_source(o).train_samples, 0, 64).tokens;
  BOOST_TEST(std::string(tokens.begin(), tokens.begin() + 17) == "<|user|>\nhi<end>\n");
  model.text("chat_template.jinja", "{{ messages }}");
  check_says(record_failure(o),
             {"chat_template.jinja' is not one of the built-in ones", "data.chat_template"});
  model.text("tokenizer_config.json", "{\"eos_token\": }");
  check_says(failure([&] { open_source(o); }), {"expected a value"});
}

BOOST_AUTO_TEST_CASE(statistics_count_lengths_duplicates_and_truncation) {
  const Folder f;
  std::string lines = "{]\n";
  for (int i = 0; i < 10; ++i) lines += chat("q", std::string(static_cast<std::size_t>(1 + i % 5), 'a'));
  RecordToolOptions o;
  o.files = {f.text("a.jsonl", lines)};
  o.records.chat_template = "zephyr", o.records.on_error = records::OnError::kSkip;
  o.seq_len = 35;
  const RecordStats s = record_stats(o).all;
  BOOST_TEST(s.documents == 10u);
  BOOST_TEST(s.shortest == 35u);
  BOOST_TEST(s.longest == 39u);
  BOOST_TEST(s.median == 37u);
  BOOST_TEST(s.tokens == 2u * (35 + 36 + 37 + 38 + 39));
  BOOST_TEST(s.counted == 2u * (5 + 6 + 7 + 8 + 9));
  BOOST_TEST(s.duplicates == 5u);
  BOOST_TEST(s.histogram[6] == 10u);
  BOOST_TEST(s.truncated == 6u);  // longer than 36
  BOOST_TEST(s.truncated_tokens == 2u * (1 + 2 + 3));
  BOOST_TEST(s.counts.broken == 1u);
  const auto shown = show_records(o, 2, 1).records;
  BOOST_REQUIRE(shown.size() == 1u);
  BOOST_TEST(shown[0].where.line == 3u);
  BOOST_TEST(shown[0].tokens == 36u);
  BOOST_TEST(shown[0].counted == 6u);
  check_says(failure([&] { show_records(o, 11, 1); }), {"no record 11", "have 10"});
  o.files = {f.text("a.txt", "x")};
  check_says(failure([&] { record_stats(o); }), {"a.txt", "has no records", "data info"});
}

BOOST_AUTO_TEST_CASE(statistics_of_several_files_add_up_and_find_duplicates_across_them) {
  const Folder f;
  RecordToolOptions o;
  o.files = {f.text("a.jsonl", chat("q", "a") + chat("q", "a") + chat("q", "bbb")),
             f.text("b.jsonl", "{]\n" + chat("q", "a") + chat("q", "ccccc"))};
  o.records.chat_template = "zephyr", o.records.on_error = records::OnError::kSkip;
  const RecordStatsOfFiles s = record_stats(o);
  BOOST_REQUIRE(s.files.size() == 2u);
  const RecordStats &a = s.files[0], &b = s.files[1];
  BOOST_TEST(a.documents == 3u);
  BOOST_TEST(b.documents == 2u);
  BOOST_TEST(s.all.documents == 5u);
  BOOST_TEST(s.all.tokens == a.tokens + b.tokens);
  BOOST_TEST(s.all.counted == a.counted + b.counted);
  BOOST_TEST(a.duplicates == 1u);
  BOOST_TEST(b.duplicates == 0u);
  BOOST_TEST(s.all.duplicates == 2u);
  BOOST_TEST(a.counts.broken == 0u);
  BOOST_TEST(b.counts.broken == 1u);
  BOOST_TEST(s.all.counts.first_broken.size() == 1u);
  BOOST_TEST(a.longest == 37u);
  BOOST_TEST(s.all.longest == b.longest);
  BOOST_TEST(s.all.median == 35u + 0u);
}

BOOST_AUTO_TEST_SUITE_END()
