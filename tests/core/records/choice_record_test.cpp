// Questions with choices: the layouts of common data sets, and what is wrong with others.
#include <boost/test/unit_test.hpp>

#include "core/records/choice_record.hpp"

using namespace trainhost;
using namespace trainhost::records;

namespace {

ChoiceRecord choice(const std::string& text, const ChoiceKeys& keys = {}) {
  return choice_record_of(parse_json(text), keys);
}

void check_choice_layout(const std::string& text, const ChoiceKeys& keys = {}) {
  BOOST_TEST(has_choices(parse_json(text), keys), text);
  const ChoiceRecord r = choice(text, keys);
  BOOST_TEST(r.question == "Q", text);
  BOOST_TEST((r.choices == std::vector<std::string>{"x", "y", "z"}), text);
  BOOST_TEST(r.answer == 2u, text);
}

void check_choice_error(const std::string& text, const std::string& part) {
  try {
    choice(text);
    BOOST_ERROR("no error: " << text);
  } catch (const JsonError& e) {
    BOOST_TEST(std::string(e.what()).find(part) != std::string::npos, "'" << part << "' in: " << e.what());
  }
}

}  // namespace

BOOST_AUTO_TEST_SUITE(choice_records)

BOOST_AUTO_TEST_CASE(layouts_of_common_data_sets_are_read) {
  check_choice_layout(R"({"question": "Q", "subject": "s", "choices": ["x", "y", "z"], "answer": 2})");
  check_choice_layout(R"({"ctx_a": "c", "ctx": "Q", "endings": ["x", "y", "z"], "label": "2"})");
  check_choice_layout(
      R"({"question": "Q", "choices": {"text": ["x", "y", "z"], "label": ["A", "B", "C"]}, "answerKey": "C"})");
  check_choice_layout(
      R"({"question": "Q", "choices": {"text": ["x", "y", "z"], "label": ["1", "2", "3"]}, "answerKey": "3"})");
  check_choice_layout(
      R"({"question": "Q", "choices": {"text": ["x", "y", "z"], "label": [1, 2, 3]}, "answerKey": 3})");
  check_choice_layout(
      R"({"question": {"stem": "Q", "choices": [{"text": "x", "label": "A"}, {"text": "y", "label": "B"},
                   {"text": "z", "label": "C"}]}, "answerKey": "C"})");
  check_choice_layout(
      R"({"question_stem": "Q", "choices": [{"text": "x"}, {"text": "y"}, {"text": "z"}], "answer": "C"})");
  check_choice_layout(
      R"({"question": "Q", "options": {"A": "x", "B": "y", "C": "z"}, "answer": "a text", "answer_idx": "C"})");
  check_choice_layout(R"({"query": "Q", "choices": ["x", "y", "z"], "gold": 2})");
  check_choice_layout(R"({"prompt": "Q", "options": ["x", "y", "z"], "answer": "z"})");
  check_choice_layout(R"({"a": "Q", "question": "no", "b": ["x", "y", "z"], "c": 2})", {"a", "b", "c"});
  BOOST_TEST(!has_choices(parse_json(R"({"prompt": "Q", "completion": "x"})"), {}));
  BOOST_TEST(!has_choices(parse_json(R"({"choices": ["x"]})"), {"", "b", ""}));
  BOOST_TEST(choice(R"({"question": "", "choices": ["x", "y"], "answer": 0})").question == "");
}

BOOST_AUTO_TEST_CASE(an_answer_that_can_be_read_in_two_ways_is_an_error) {
  // The text of the first choice, and the index of the second.
  check_choice_error(R"({"question": "Q", "choices": ["1", "5"], "answer": "1"})", "index of choice 2");
  BOOST_TEST(choice(R"({"question": "Q", "choices": ["1", "5"], "answer": 1})").answer == 1u);
  BOOST_TEST(choice(R"({"question": "Q", "choices": ["0", "1"], "answer": "1"})").answer == 1u);
  BOOST_TEST(choice(R"({"question": "Q", "choices": ["1", "5"], "answer": "5"})").answer == 1u);
}

BOOST_AUTO_TEST_CASE(errors_name_the_key_and_the_value) {
  check_choice_error(R"([])", "the record is a list");
  check_choice_error(R"({"choices": ["x", "y"], "answer": 0})", "no question: 'choices', 'answer'");
  check_choice_error(R"({"question": 3, "choices": ["x", "y"], "answer": 0})", "'question' is a number");
  check_choice_error(R"({"question": "Q", "answer": 0})", "no choices");
  check_choice_error(R"({"question": "Q", "choices": "x", "answer": 0})",
                     "'choices' is a text; expected a list");
  check_choice_error(R"({"question": "Q", "choices": ["x"], "answer": 0})",
                     "has 1 choice; expected at least two");
  check_choice_error(R"({"question": "Q", "choices": ["x", " "], "answer": 0})", "'choices' is empty");
  check_choice_error(R"({"question": "Q", "choices": ["x", 7], "answer": 0})", "'choices' is a number");
  check_choice_error(R"({"question": "Q", "choices": {"text": ["x", "y"], "label": ["A"]}, "answer": 0})",
                     "2 texts and 1 labels");
  check_choice_error(
      R"({"question": "Q", "choices": [{"text": "x", "label": "A"}, {"text": "y"}], "answer": 0})",
      "only some");
  check_choice_error(R"({"question": "Q", "choices": ["x", "y"]})", "no answer");
  check_choice_error(R"({"question": "Q", "choices": ["x", "y"], "answer": 2})",
                     "'2'; expected an index from 0 to 1");
  check_choice_error(R"({"question": "Q", "choices": ["x", "y"], "answer": -1})", "'-1'");
  check_choice_error(R"({"question": "Q", "choices": ["x", "y"], "answer": "C"})", "'C'; expected an index");
  check_choice_error(R"({"question": "Q", "choices": ["x", "y"], "answer": [0]})", "'answer' is a list");
  check_choice_error(R"({"question": "Q", "choices": ["x", "y"], "answer": true})", "'answer' is a boolean");
  check_choice_error(R"({"question": "Q", "options": {"P": "x", "R": "y"}, "answer": "T"})",
                     "expected one of 'P', 'R'");
}

BOOST_AUTO_TEST_SUITE_END()
