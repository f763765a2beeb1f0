// Mistakes in the text of framework files: JSON that is no JSON, quotation marks, bytes that are no text.
#include <boost/test/unit_test.hpp>

#include "tests/core/framework_files/settings_of.hpp"

using namespace trainhost;
using testing::error_of;
using testing::read_text;

namespace {

const std::vector<runfile::Override> kModel = {{"model.preset", "gpt2"}, {"data.seq_len", "64"}};
const std::string kDeepSpeed =
    "{\"zero_optimization\": {\"stage\": 0},\n \"train_micro_batch_size_per_gpu\": 1}";

}  // namespace

BOOST_AUTO_TEST_SUITE(framework_files_json_mistakes)

BOOST_AUTO_TEST_CASE(truncated_json_names_the_line_where_the_text_ends) {
  const std::string copy = " (the file is truncated: copy it again)";
  // DeepSpeed, TrainingArguments and config.json, cut off in a string, behind a comma, in a number, in a
  // word.
  BOOST_TEST(error_of("d.json", "{\"zero_optimization\": {\"stage\": 2},\n \"bf16\": {\"enab") ==
             "d.json:2: not valid JSON: unterminated string" + copy);
  BOOST_TEST(error_of("t.json", "{\"model_name_or_path\": \"gpt2\",\n \"bf16\": true,\n") ==
             "t.json:2: not valid JSON: expected a string, found the end of the text" + copy);
  BOOST_TEST(error_of("config.json", "{\"model_type\": \"llama\",\n \"hidden_size\": 40") ==
             "config.json:2: not valid JSON: expected ',' or '}', found the end of the text" + copy);
  BOOST_TEST(error_of("d.json", "{\"bf16\":\n {\"enabled\": tru") ==
             "d.json:2: not valid JSON: expected a value, found 'tru'" + copy);
  // At any byte: an error in the last line, and never one of another line.
  for (std::size_t n = 1; n < kDeepSpeed.size(); ++n) {
    const std::string text = kDeepSpeed.substr(0, n), error = error_of("d.json", text, kModel);
    const std::string line = text.find_last_not_of(" \n") > text.find('\n') && text.find('\n') != text.npos
                                 ? "d.json:2: "
                                 : "d.json:1: ";
    BOOST_TEST((error.starts_with(line) && error.ends_with(copy)), n << ": " << error);
  }
  BOOST_TEST(error_of("d.json", kDeepSpeed, kModel) == "");
}

BOOST_AUTO_TEST_CASE(a_comma_before_a_bracket_is_refused_in_json_and_not_in_yaml) {
  const auto remedy = [](const char* bracket) {
    return std::string(" (remove the comma before '") + bracket + "': JSON has none behind the last value)";
  };
  BOOST_TEST(error_of("t.json", "{\"per_device_train_batch_size\": 1,\n}\n", kModel) ==
             "t.json:2: not valid JSON: expected a string, found '}'" + remedy("}"));
  BOOST_TEST(error_of("t.json", "{\"per_device_train_batch_size\": 1, \"report_to\": [1,]}", kModel) ==
             "t.json:1: not valid JSON: expected a value, found ']'" + remedy("]"));
  // The name does not decide: text in braces is JSON unless it is named YAML.
  BOOST_TEST(error_of("t", "{\"per_device_train_batch_size\": 1,}", kModel) != "");
  BOOST_TEST(error_of("t.yaml", "{\"per_device_train_batch_size\": 1,}", kModel) == "");
}

// With hjson, with which DeepSpeed reads its file: whatever keys of DeepSpeed it has.
BOOST_AUTO_TEST_CASE(comments_and_commas_before_brackets_are_read_in_files_of_deepspeed) {
  const char* kAlike[] = {
      "{\"train_micro_batch_size_per_gpu\": 1,}", "// mine\n{\"train_micro_batch_size_per_gpu\": 1}",
      "# mine\n{\"train_micro_batch_size_per_gpu\": 1 /* one\nper GPU */}",
      "{\"train_micro_batch_size_per_gpu\": 1, // one\n \"bf16\": {\"enabled\": true,},#x\n}"};
  for (const char* text : kAlike) {
    BOOST_TEST(error_of("d.json", text, kModel) == "", text);
    BOOST_TEST(testing::by_key(read_text("d.json", text, kModel)).count("train.micro_batch") == 1, text);
  }
  BOOST_TEST(error_of("d.json", "{\"bf16\": {\"enabled\": true,}, \"wandb\": {\"team\": \"http://a#b\"},}",
                      {{"model.preset", "gpt2"}, {"data.seq_len", "64"}, {"train.micro_batch", "1"}}) == "");
  // The positions are those of the text with its comments.
  BOOST_TEST(testing::by_key(read_text("d.json",
                                       "/* a\n b */ {\"bf16\": // c\n {\"enabled\": true}, \"x\": 1, "
                                       "\"train_micro_batch_size_per_gpu\": 3}",
                                       kModel))
                 .at("train.micro_batch") == "3 @3");
  // Only in files of this kind.
  BOOST_TEST(error_of("t.json", "// mine\n{\"per_device_train_batch_size\": 1}", kModel) ==
             "t.json:1: not valid JSON: expected a value, found '//' (remove the comment: JSON has none)");
  BOOST_TEST(error_of("t.json", "{\"per_device_train_batch_size\": 1 # one\n}", kModel)
                 .ends_with(" (remove the comment: JSON has none)"));
}

BOOST_AUTO_TEST_CASE(line_ends_of_windows_and_a_byte_order_mark_are_read) {
  const std::string yaml = "per_device_train_batch_size: 2\r\nbf16: true\r\n";
  for (const std::string& text : {yaml, "\xef\xbb\xbf" + yaml})
    BOOST_TEST(testing::by_key(read_text("t.yaml", text, kModel)).at("train.micro_batch") == "2 @1");
  for (const std::string& text : {"\xef\xbb\xbf" + kDeepSpeed, "{\r\n" + kDeepSpeed.substr(1)})
    BOOST_TEST(error_of("d.json", text, kModel) == "");
}

BOOST_AUTO_TEST_CASE(bytes_that_are_no_text_are_named) {
  BOOST_TEST(error_of("a.yaml", std::string("\x7f"
                                            "ELF\0\1",
                                            6))
                 .starts_with("a.yaml:1: this is a binary file ("));
  BOOST_TEST(error_of("a.json", std::string("a\0b", 3)).starts_with("a.json:1: this is a binary file ("));
}

BOOST_AUTO_TEST_CASE(quotation_marks_and_tabs_have_a_remedy) {
  BOOST_TEST(error_of("t.yaml", "bf16: true\nmodel_name_or_path: \"gpt2\nmax_length: 512\n") ==
             "t.yaml:2: the quotation mark is not closed (add \" behind the value)");
  BOOST_TEST(error_of("t.yaml", "bf16: true\noutput_dir: 'x\n") ==
             "t.yaml:2: the quotation mark is not closed (add ' behind the value)");
  BOOST_TEST(error_of("t.yaml", "bf16: true\noutput_dir: 'it''s'\nrun_name: \"a\\\"b\"\n", kModel) == "");
  for (const char* path : {"C:\\models\\m", "C:\\Users\\m", "D:\\xlm"})
    BOOST_TEST(error_of("t.yaml", "bf16: true\nmodel_name_or_path: \"" + std::string(path) + "\"\n")
                   .ends_with(" (a path of Windows: write '/' for '\\', or put it in single quotes)"),
               path);
  BOOST_TEST(error_of("t.yaml", "bf16: true\n\toptim: sgd\n").starts_with("t.yaml:2: "));
  BOOST_TEST(error_of("t.yaml", "fsdp_config: {a: 1, b: [1, 2\n").starts_with("t.yaml:2: "));
}

BOOST_AUTO_TEST_SUITE_END()
