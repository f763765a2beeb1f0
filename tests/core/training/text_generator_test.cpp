// Generation without a model: a decoder whose logits follow from the ids that it was given shows what is
// computed, in which order, and what stays in the cache. Settings of generation_config.json; files of
// prompts.
#include <boost/test/unit_test.hpp>

#include <cmath>
#include <numeric>

#include "core/data/dataset.hpp"
#include "core/training/generate_text.hpp"
#include "tests/support/files.hpp"

namespace trainhost {
namespace {

using namespace training;
using test::TemporaryDirectory;

/// The most likely token after a sequence is the sum of its last four ids and its length, modulo 256, so it
/// depends on what is in the cache. Refuses rows that a decoder refuses.
struct FakeDecoder final : plugin::Decoder {
  explicit FakeDecoder(std::uint32_t sequences) : cache(sequences) {}
  void load(const plugin::TensorPiece&) override {}
  void forward(std::span<const plugin::DecodeRow> rows, std::span<float> logits) override {
    ++passes;
    std::size_t wanted = 0;
    for (const plugin::DecodeRow& r : rows) {
      std::vector<std::int32_t>& c = cache.at(r.sequence);
      BOOST_REQUIRE(r.position <= c.size());
      c.resize(r.position);
      c.push_back(r.token);
      ++computed;
      if (!r.wants_logits) continue;
      float* at = logits.data() + wanted++ * 256;
      std::fill(at, at + 256, 0.0f);
      const auto last = static_cast<std::ptrdiff_t>(std::min<std::size_t>(4, c.size()));
      at[(std::accumulate(c.end() - last, c.end(), 0) + static_cast<int>(c.size())) % 256] = 9.0f;
    }
  }
  std::vector<std::vector<std::int32_t>> cache;
  std::uint64_t passes = 0, computed = 0;
};

SampleOptions greedy(std::uint32_t tokens = 10) {
  SampleOptions o;
  o.temperature = 0, o.tokens = tokens;
  return o;
}

struct GeneratorFixture {
  explicit GeneratorFixture(std::uint32_t sequences, std::uint32_t context = 64, SampleOptions o = greedy(),
                            std::set<std::int32_t> ends = {})
      : decoder(sequences),
        logits(sequences * 256),
        generator({decoder, *tokenizer, 256, context, 4, sequences, logits}, o, std::move(ends)) {}
  std::unique_ptr<tokenizer::Tokenizer> tokenizer = data::make_tokenizer("bytes");
  FakeDecoder decoder;
  std::vector<float> logits;
  TextGenerator generator;
};

using Prompts = std::vector<std::vector<std::int32_t>>;
const Prompts kPrompts = {{1, 2, 3, 4, 5, 6}, {7}, {200, 3, 77}, {1, 2, 9}, {50, 60}};

BOOST_AUTO_TEST_SUITE(text_generation)

BOOST_AUTO_TEST_CASE(texts_together_are_the_texts_of_each_alone) {
  for (const double temperature : {0.0, 5.0}) {
    SampleOptions o = greedy();
    o.temperature = temperature, o.seed = 40;
    std::vector<std::vector<std::int32_t>> alone;
    for (const auto& p : kPrompts) {
      alone.push_back(GeneratorFixture(1, 64, o).generator.run({&p, 1}, {}, false).front().ids);
      ++o.seed;  // text i has the seed of the options plus i
    }
    o.seed = 40;
    for (const std::uint32_t sequences : {1u, 2u, 3u, 4u}) {
      GeneratorFixture f(sequences, 64, o);
      std::vector<std::size_t> done;
      TextGenerator::Callbacks callbacks;
      callbacks.done = [&](std::size_t i, const Continuation&) { done.push_back(i); };
      const auto together = f.generator.run(kPrompts, callbacks, false);
      BOOST_TEST(done.size() == kPrompts.size());
      for (std::size_t i = 0; i < kPrompts.size(); ++i) {
        BOOST_TEST((together[i].ids == alone[i]), "text " << i << " with " << sequences << " sequences");
        BOOST_TEST(together[i].ids.size() == 10u);
        BOOST_TEST(together[i].prompt_tokens == kPrompts[i].size());
        BOOST_TEST((together[i].finish == Finish::kLength));
      }
      BOOST_TEST(f.generator.speed().new_tokens == 50u);
    }
  }
}

BOOST_AUTO_TEST_CASE(a_prompt_takes_few_passes_and_what_the_cache_has_is_not_computed_again) {
  GeneratorFixture f(1, 64, greedy(3));
  std::vector<std::int32_t> ids(10, 1);
  const Continuation first = f.generator.run({&ids, 1}, {}, false).front();
  BOOST_TEST(f.decoder.passes ==
             3u + 2u);  // 10 ids in passes of 4, then a step for all new tokens but the last
  ids.insert(ids.end(), first.ids.begin(), first.ids.end());
  ids.push_back(8);
  f.decoder.computed = 0;
  const Continuation second = f.generator.run({&ids, 1}, {}, false).front();
  BOOST_TEST(f.decoder.computed == 2u + 2u);  // the third new token and 8
  BOOST_TEST(
      (GeneratorFixture(1, 64, greedy(3)).generator.run({&ids, 1}, {}, false).front().ids == second.ids));
  // The same prompt: its last id is computed again for its logits.
  f.decoder.computed = 0;
  f.generator.run({&ids, 1}, {}, false);
  BOOST_TEST(f.decoder.computed == 1u + 2u);
}

BOOST_AUTO_TEST_CASE(texts_end_at_end_tokens_at_the_context_and_when_stopped) {
  const std::vector<std::int32_t> prompt = {'a', 'b'};
  const Continuation whole = GeneratorFixture(1).generator.run({&prompt, 1}, {}, false).front();
  GeneratorFixture ends(1, 64, greedy(), {whole.ids[4]});
  const Continuation ended = ends.generator.run({&prompt, 1}, {}, false).front();
  BOOST_TEST((ended.finish == Finish::kEndToken));
  BOOST_TEST((ended.ids == std::vector<std::int32_t>(whole.ids.begin(), whole.ids.begin() + 5)));
  // The end token is no text; the first byte of a character without its other bytes becomes U+FFFD.
  const std::string three = ends.tokenizer->decode(std::span(whole.ids).first(3));
  BOOST_TEST(ended.text.starts_with(three.substr(0, 2)));
  BOOST_TEST(ended.text.ends_with("\xEF\xBF\xBD"));

  const Continuation full = GeneratorFixture(1, 6).generator.run({&prompt, 1}, {}, false).front();
  BOOST_TEST((full.finish == Finish::kContextFull));
  BOOST_TEST(full.ids.size() == 4u);
  GeneratorFixture restarts(1, 6);
  const Continuation restarted = restarts.generator.run({&prompt, 1}, {}, true).front();
  BOOST_TEST(restarted.ids.size() == 10u);
  BOOST_TEST(restarts.decoder.cache[0].size() < 6u);

  GeneratorFixture stops(1);
  TextGenerator::Callbacks callbacks;
  std::string text;
  int pieces = 0;
  callbacks.text = [&](std::size_t, const std::string& piece) { text += piece, ++pieces; };
  callbacks.stopped = [&] { return pieces >= 2; };
  const Continuation stopped = stops.generator.run({&prompt, 1}, callbacks, false).front();
  BOOST_TEST((stopped.finish == Finish::kStopped));
  BOOST_TEST(stopped.ids.size() < 10u);
  BOOST_TEST(stopped.text == text);

  for (const std::vector<std::int32_t>& bad : {std::vector<std::int32_t>{}, std::vector<std::int32_t>(64, 1)})
    BOOST_CHECK_THROW(GeneratorFixture(1).generator.run({&bad, 1}, {}, true), Error);
}

BOOST_AUTO_TEST_CASE(a_repetition_penalty_makes_ids_of_the_text_less_likely_once) {
  std::vector<float> logits = {2.0f, -2.0f, 1.0f, -1.0f};
  const std::vector<std::int32_t> ids = {1, 0, 0, 1, 0, 99};
  apply_repetition_penalty(logits, ids, 2.0);
  BOOST_TEST((logits == std::vector<float>{1.0f, -4.0f, 1.0f, -1.0f}));
}

BOOST_AUTO_TEST_CASE(settings_have_the_meaning_of_transformers_and_options_override_them) {
  TemporaryDirectory t;
  t.write("config.json", R"({"eos_token_id": 3})");
  BOOST_TEST(read_generation_settings(t.path()).sample.temperature == 0.8);
  BOOST_TEST((read_generation_settings(t.path()).eos_ids == std::vector<std::int32_t>{3}));
  t.write("generation_config.json", R"({"temperature": 0.6, "eos_token_id": [7, 9]})");
  GenerationSettings s = read_generation_settings(t.path());
  BOOST_TEST(s.sample.temperature == 0);  // without do_sample
  BOOST_TEST((s.eos_ids == std::vector<std::int32_t>{7, 9}));
  t.write(
      "generation_config.json",
      R"({"do_sample": true, "temperature": 0.6, "top_p": 0.9, "repetition_penalty": 1.1, "max_length": 77})");
  s = read_generation_settings(t.path());
  BOOST_TEST(s.sample.temperature == 0.6);
  BOOST_TEST(s.sample.top_k == 50u);  // the default of transformers
  BOOST_TEST(s.sample.top_p == 0.9);
  BOOST_TEST(s.sample.repetition_penalty == 1.1);
  BOOST_TEST(s.max_length == 77u);
  SampleOverrides o;
  BOOST_TEST(sample_options(s, o).temperature == 0.6);
  o.temperature = 0, o.top_k = 5, o.seed = 12, o.tokens = 3;
  BOOST_TEST(sample_options(s, o).temperature == 0);
  BOOST_TEST(sample_options(s, o).top_k == 5u);
  BOOST_TEST(sample_options(s, o).seed == 12u);
  BOOST_TEST(sample_options(s, o).tokens == 3u);
  s.sample.temperature = 0, o.temperature.reset();
  BOOST_TEST(sample_options(s, o).temperature == 1);  // --top-k asks for sampling
}

BOOST_AUTO_TEST_CASE(wrong_settings_and_prompts_are_errors_with_their_place) {
  TemporaryDirectory t;
  t.write("config.json", "{}");
  const auto message = [](const std::function<void()>& f) -> std::string {
    try {
      f();
    } catch (const Error& e) {
      return std::string(e.what()) + " " + std::to_string(e.where().line);
    }
    return "no error";
  };
  for (const char* bad : {R"("temperature": -1)", R"("top_p": 2)", R"("top_k": "x")", R"("do_sample": 1)",
                          R"("eos_token_id": [1, "a"])", R"("repetition_penalty": 0)"}) {
    t.write("generation_config.json", "{\n" + std::string(bad) + "}");
    const std::string got = message([&] { read_generation_settings(t.path()); });
    BOOST_TEST(got.find("expected") != std::string::npos, got);
    BOOST_TEST(got.ends_with(" 2"), got);
  }
  t.write("p.txt", "one\n\n  two\r\nthree");
  BOOST_TEST((read_prompts(t.path() / "p.txt") == std::vector<std::string>{"one", "  two", "three"}));
  t.write("p.jsonl", "{\"prompt\": \"a\\nb\", \"id\": 1}\n\"c\"\n");
  BOOST_TEST((read_prompts(t.path() / "p.jsonl") == std::vector<std::string>{"a\nb", "c"}));
  for (const char* bad : {"{\"text\": \"a\"}", "{\"prompt\": 1}", "[1]", "{\"prompt\": ", "\"\""}) {
    t.write("p.jsonl", "\"fine\"\n" + std::string(bad) + "\n");
    const std::string got = message([&] { read_prompts(t.path() / "p.jsonl"); });
    BOOST_TEST(got.ends_with(" 2"), bad << ": " << got);
  }
  t.write("p.txt", "\n");
  BOOST_TEST(message([&] { read_prompts(t.path() / "p.txt"); }).find("no prompts") != std::string::npos);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace trainhost
