// Which tokens of texts, records and questions are scored, and which files are refused. The tokenizer is that
// of bytes, so ids can be read as text.
#include <boost/test/unit_test.hpp>

#include "core/base/error.hpp"
#include "core/evaluation/evaluation_data.hpp"
#include "core/evaluation/questions.hpp"
#include "tests/support/files.hpp"

namespace trainhost::evaluation {
namespace {

using test::has;
using test::TemporaryDirectory;

std::string text_of(const ScoredText& t, bool scored) {
  std::string all;
  for (std::size_t i = 0; i < t.ids.size(); ++i)
    if (!scored || t.scored[i]) all += static_cast<char>(t.ids[i]);
  return all;
}

std::string message_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.full();
  }
  return "no error";
}

struct EvaluationFixture {
  TemporaryDirectory t;
  std::unique_ptr<tokenizer::Tokenizer> bytes = data::make_tokenizer("bytes");
  EvaluationOptions options;
  EvaluationData read(const std::string& name, const std::string& content) {
    return read_evaluation_data(t.write(name, content), *bytes, options);
  }
  std::string error(const std::string& name, const std::string& content) {
    return message_of([&] { read(name, content); });
  }
};

BOOST_FIXTURE_TEST_SUITE(evaluation_data, EvaluationFixture)

BOOST_AUTO_TEST_CASE(every_id_but_the_first_is_scored_once_with_the_context_of_the_stride) {
  for (std::size_t n = 0; n < 40; ++n)
    for (std::uint32_t window = 2; window < 14; ++window)
      for (std::uint32_t stride = 1; stride < window; ++stride) {
        std::vector<int> times(n);
        for (const Window& w : windows_of(n, window, stride)) {
          BOOST_REQUIRE(w.begin < w.first_scored && w.first_scored < w.end && w.end <= n);
          BOOST_REQUIRE(w.end - w.begin <= window);
          for (std::size_t i = w.first_scored; i < w.end; ++i) {
            ++times[i];
            // All ids before it, or as many as window - stride.
            BOOST_REQUIRE(w.begin == 0 || i - w.begin >= window - stride);
          }
        }
        for (std::size_t i = 0; i < n; ++i) BOOST_REQUIRE(times[i] == (i > 0));
      }
}

BOOST_AUTO_TEST_CASE(a_text_is_one_sequence_of_windows) {
  options.window = 6, options.stride = 4;
  const EvaluationData d = read("a.txt", "abcdefghij");
  BOOST_TEST((d.kind == FileKind::kText));
  BOOST_REQUIRE(d.jobs.size() == 2u);
  BOOST_TEST(text_of(d.jobs[0].texts[0], false) == "abcdef");
  BOOST_TEST(text_of(d.jobs[0].texts[0], true) == "bcdef");
  BOOST_TEST(text_of(d.jobs[1].texts[0], false) == "efghij");
  BOOST_TEST(text_of(d.jobs[1].texts[0], true) == "ghij");
  BOOST_TEST(d.ids == 10u);
  BOOST_TEST(d.text_bytes == 9u);  // of the first byte nothing is known
  BOOST_TEST(d.documents.size() == 2u);
}

BOOST_AUTO_TEST_CASE(tokens_of_records_that_training_counts_are_scored) {
  const std::string records =
      "{\"prompt\": \"ab\", \"completion\": \"cd\"}\n{\"text\": \"xyz\"}\n{\"text\": \"q\"}\n";
  EvaluationData d = read("a.jsonl", records);
  BOOST_TEST((d.kind == FileKind::kRecords));
  BOOST_REQUIRE(d.documents.size() == 2u);
  BOOST_TEST(d.left_out == 1u);  // one byte, and nothing before it
  BOOST_TEST(text_of(d.jobs[0].texts[0], true) == "cd");
  BOOST_TEST(text_of(d.jobs[1].texts[0], true) == "yz");
  BOOST_TEST(d.documents[1].line == 2u);
  BOOST_TEST(d.documents[1].record == 1u);
  BOOST_TEST(d.documents[0].bytes == 2u);
  BOOST_TEST(d.documents[1].bytes == 2u);
  options.records.loss_on = records::LossOn::kAll;
  d = read("a.jsonl", records);
  BOOST_TEST(text_of(d.jobs[0].texts[0], true) == "bcd");

  options.window = 4, options.stride = 2;
  d = read("long.jsonl", R"({"prompt": "abcdefg", "completion": "hij"})");
  BOOST_TEST(d.divided == 1u);
  BOOST_TEST(d.documents.size() == 1u);
  BOOST_TEST(d.documents[0].tokens == 9u);

  options.records.loss_on = records::LossOn::kCompletions;
  d = read("long.jsonl", R"({"prompt": "abcdefg", "completion": "hij"})");
  BOOST_REQUIRE(d.jobs.size() == 2u);  // windows without a scored id are not computed
  BOOST_TEST(text_of(d.jobs[0].texts[0], false) == "efgh");
  BOOST_TEST(text_of(d.jobs[0].texts[0], true) == "h");
  BOOST_TEST(text_of(d.jobs[1].texts[0], true) == "ij");
}

BOOST_AUTO_TEST_CASE(white_space_between_question_and_choice_belongs_to_the_choice) {
  options.question_format = "Q: {}\nA:";
  EvaluationData d = read("a.jsonl", R"({"question": "one", "choices": ["x", "yz"], "answer": 1})");
  BOOST_TEST((d.kind == FileKind::kQuestions));
  BOOST_REQUIRE(d.jobs.size() == 1u);
  BOOST_TEST(text_of(d.jobs[0].texts[1], false) == "Q: one\nA: yz");
  BOOST_TEST(text_of(d.jobs[0].texts[1], true) == " yz");
  BOOST_TEST(d.questions[0].answer == 1u);
  BOOST_TEST((d.questions[0].bytes == std::vector<std::size_t>{1, 2}));
  options.question_format = "{}", options.delimiter = "";
  d = read("a.jsonl", R"({"question": "one \n", "choices": ["ä", "yz"], "answer": "B"})");
  BOOST_TEST(text_of(d.jobs[0].texts[0], true) == " \n\xC3\xA4");
  BOOST_TEST((d.questions[0].characters == std::vector<std::size_t>{1, 2}));
  BOOST_TEST((d.questions[0].bytes == std::vector<std::size_t>{2, 2}));
}

BOOST_AUTO_TEST_CASE(answered_questions_precede_each_question_but_their_own) {
  const std::string three =
      "{\"question\": \"one\", \"choices\": [\"x\", \"y\"], \"answer\": 1}\n"
      "{\"question\": \"two\", \"choices\": [\"x\", \"z\"], \"answer\": 0}\n"
      "{\"question\": \"six\", \"choices\": [\"v\", \"w\"], \"answer\": 0}\n";
  options.question_format = "Q: {}\nA:", options.shots = 1;
  EvaluationData d = read("a.jsonl", three);
  BOOST_REQUIRE(d.jobs.size() == 3u);
  BOOST_TEST(text_of(d.jobs[0].texts[0], false) == "Q: two\nA: x\n\nQ: one\nA: x");
  BOOST_TEST(text_of(d.jobs[1].texts[1], false) == "Q: one\nA: y\n\nQ: two\nA: z");
  BOOST_TEST(text_of(d.jobs[2].texts[1], false) == "Q: one\nA: y\n\nQ: six\nA: w");
  BOOST_TEST(text_of(d.jobs[2].texts[1], true) == " w");
  options.shots = 3;
  BOOST_TEST(has(error("a.jsonl", three), "has 3 questions, too few for --shots 3"));
  // From another file even the same question is an example.
  options.shots_from = t.write("train.jsonl", three);
  d = read("b.jsonl", three);
  BOOST_TEST(text_of(d.jobs[0].texts[0], false) ==
             "Q: one\nA: y\n\nQ: two\nA: x\n\nQ: six\nA: v\n\nQ: one\nA: x");
  options.shots_from = t.write("train.txt", "no questions");
  BOOST_TEST(has(error("b.jsonl", three), "has no questions with choices"));
  options.shots_from.clear(), options.shots = 1;
  BOOST_TEST(has(error("c.jsonl", "{]\n" + three), "c.jsonl:1:2"));
}

BOOST_AUTO_TEST_CASE(the_beginning_of_a_question_is_dropped_where_it_does_not_fit) {
  options.window = 4, options.stride = 2;
  const EvaluationData d = read("a.jsonl",
                                "{\"question\": \"abcdef\", \"choices\": [\"x\", \"yz\"], \"answer\": 1}\n"
                                "{\"question\": \"ab\", \"choices\": [\"x\", \"y\"], \"answer\": 1}\n");
  BOOST_TEST(d.truncated == 1u);
  BOOST_TEST(text_of(d.jobs[0].texts[0], false) == "def x");  // four ids before the last one
  BOOST_TEST(text_of(d.jobs[0].texts[0], true) == " x");
  BOOST_TEST(text_of(d.jobs[1].texts[0], false) == "ab x");
  options.window = 2, options.stride = 1;
  BOOST_TEST(has(error("b.jsonl", R"({"question": "a", "choices": ["x", "yz"], "answer": 1})"),
                 "b.jsonl:1: the choice ' yz' has 3 tokens, and the window only 2"));
}

BOOST_AUTO_TEST_CASE(broken_records_are_listed_and_can_be_left_out) {
  std::string lines;
  for (int i = 0; i < 12; ++i)
    lines += R"({"question": "Q", "choices": ["x", "y"], "answer": 7})"
             "\n";
  const std::string good = R"({"question": "Q", "choices": ["x", "y"], "answer": 1})"
                           "\n";
  const std::string message = error("a.jsonl", good + lines);
  BOOST_TEST(has(message, "12 broken records"), message);
  BOOST_TEST(has(message, "a.jsonl:2:52: 'answer' is '7'"), message);
  BOOST_TEST(has(message, "; also lines 3, 4, 5, 6, 7, 8, 9, 10, 11 and 2 more"), message);
  BOOST_TEST(has(message, "--on-error skip"), message);
  // The first object that can be parsed decides the kind.
  BOOST_TEST(has(error("a.jsonl", "{broken\n" + good), "a.jsonl:1:2"));
  options.records.on_error = records::OnError::kSkip;
  const EvaluationData d = read("a.jsonl", "{broken\n" + good + lines + good);
  BOOST_TEST(d.questions.size() == 2u);
  BOOST_TEST(d.counts.broken == 13u);
  BOOST_TEST(d.questions[1].line == 15u);
  BOOST_TEST(has(error("b.jsonl", lines), "has no question that can be used; 12 broken records"));
}

BOOST_AUTO_TEST_CASE(files_without_anything_to_score_are_refused) {
  BOOST_TEST(has(error("a.txt", ""), "is empty"));
  BOOST_TEST(has(error("a.txt", "x"), "has a single token; the first token of a text is not scored"));
  BOOST_TEST(has(error("a.jsonl", ""), "has no record"));
  BOOST_TEST(has(error("a.jsonl", R"({"text": "x"})"), "no document with a token that is counted"));
  BOOST_TEST(has(error("a.bin", "xx"), "contains token ids; eval reads texts and records"));
  BOOST_TEST(has(error("a.parquet", "xx"), "is a Parquet table"));
  BOOST_TEST(has(error("a.gz", "xx"), "decompress it first"));
  BOOST_TEST(has(message_of([&] { read_evaluation_data(t / "b.txt", *bytes, options); }), "b.txt"));
  BOOST_TEST(has(error("a.jsonl", R"({"question": "", "choices": ["x", "y"], "answer": 0})"),
                 "the question is empty, and the tokenizer has no begin and no end token"));
  // Lists do not fit in a CSV file.
  BOOST_TEST(has(error("a.csv", "question,choices,answer\nQ,x,0\n"), "a.csv:2: 'choices' is a text"));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace trainhost::evaluation
