// Reading records: kinds, keys, JSON Lines, arrays and CSV, broken records and their positions.
#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <cstring>
#include <random>

#include "core/records/record_reader.hpp"

using namespace trainhost;
using namespace trainhost::records;

namespace {

/// Gives the text in pieces of `piece` bytes.
ReadBytes bytes_of(std::string text, std::size_t piece = SIZE_MAX) {
  return [text, piece, at = std::size_t{0}](std::span<char> out) mutable {
    const std::size_t n = std::min({piece, out.size(), text.size() - at});
    std::memcpy(out.data(), text.data() + at, n);
    at += n;
    return n;
  };
}

struct Result {
  std::vector<Record> records;
  std::vector<std::uint64_t> lines;
  RecordCounts counts;
  std::string error;  // of OnError::kStop
};

Result read(const std::string& text, RecordFormat format = RecordFormat::kJson,
            OnError on_error = OnError::kStop, const RecordKeys& keys = {}, std::size_t piece = SIZE_MAX) {
  Result r;
  const auto reader = open_records(bytes_of(text, piece), format, "f");
  try {
    read_records(*reader, keys, on_error, r.counts, [&](Record& record, const Where& where) {
      r.records.push_back(record), r.lines.push_back(where.line);
    });
  } catch (const Error& e) {
    r.error = e.full();
  }
  return r;
}

void check_error(const std::string& text, const std::string& part,
                 RecordFormat format = RecordFormat::kJson) {
  const std::string error = read(text, format).error;
  BOOST_TEST(error.find(part) != std::string::npos, "'" << part << "' in: " << error);
}

std::string turns(const Record& r) {
  std::string all;
  for (const Message& m : r.messages)
    all += m.role.substr(0, 1) + (m.trained ? "" : "-") + ":" + m.content + "|";
  return all;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(records_reading)

BOOST_AUTO_TEST_CASE(every_kind_of_record_is_recognized_by_its_keys) {
  const Result r = read(R"({"text": "a \u00e9\n"}
{"prompt": "p", "completion": "c", "id": 3}
{"instruction": "i", "input": "x", "output": "o", "text": "all of it"}

{"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}, {"role": "assistant", "content": "a"}]}
{"conversations": [{"from": "human", "value": "u"}, {"from": "gpt", "value": "a"}]}
{"conversations": [{"role": "user", "content": "u"}, {"role": "assistant", "content": "a"}]}
{"prompt": [{"role": "user", "content": "u"}, {"role": "assistant", "content": "old"}, {"role": "user", "content": "v"}], "completion": [{"role": "assistant", "content": "new"}]}
{"messages": [{"role": "user", "content": [{"type": "text", "text": "u"}, {"type": "text", "text": "v"}]}, {"role": "assistant", "content": "a", "weight": 0, "reasoning_content": "r"}], "tools": []})");
  BOOST_TEST(r.error == "");
  BOOST_REQUIRE(r.records.size() == 8u);
  BOOST_TEST(r.records[0].text == "a \xC3\xA9\n");
  BOOST_TEST((r.records[1].kind == RecordKind::kCompletion));
  BOOST_TEST(r.records[1].text + r.records[1].completion == "pc");
  BOOST_TEST(turns(r.records[2]) == "u:i|a:o|");
  BOOST_TEST(r.records[2].input == "x");
  BOOST_TEST(turns(r.records[3]) == "s:s|u:u|a:a|");
  BOOST_TEST(turns(r.records[4]) == "u:u|a:a|");
  BOOST_TEST(turns(r.records[5]) == "u:u|a:a|");
  BOOST_TEST(turns(r.records[6]) == "u-:u|a-:old|u-:v|a:new|");
  BOOST_TEST(turns(r.records[7]) == "u:uv|a-:a|");
  BOOST_TEST(r.records[7].messages[1].reasoning == "r");
  const std::vector<std::uint64_t> lines{1, 2, 3, 5, 6, 7, 8, 9};
  BOOST_TEST(r.lines == lines);
}

BOOST_AUTO_TEST_CASE(keys_can_be_renamed) {
  RecordKeys keys;
  keys.text = "body", keys.messages = "dialog", keys.role = "who", keys.content = "what";
  const Result r = read(R"({"body": "t"}
{"dialog": [{"who": "user", "what": "u"}, {"who": "bot", "what": "a"}]})",
                        RecordFormat::kJson, OnError::kStop, keys);
  BOOST_TEST(r.error == "");
  BOOST_REQUIRE(r.records.size() == 2u);
  BOOST_TEST(turns(r.records[1]) == "u:u|a:a|");
}

BOOST_AUTO_TEST_CASE(a_broken_record_is_reported_with_its_position) {
  check_error("{\"text\": \"a\"}\n{\"text\": }\n", "f:2:10: ");
  check_error("{\"text\": \"a\"}\n\n{\"text\": 3}", "f:3:10: 'text' is a number; expected a text");
  check_error("{\"txt\": \"a\"}", "f:1:1: the record has 'txt'; expected one of 'messages'");
  check_error("[1]", "f:1: the record is a number; expected an object");
  check_error("{\"text\": \" \\n\"}", "'text' is empty");
  check_error("{\"text\": \"\xFF\"}", "UTF-8");
  check_error(R"({"prompt": "p", "completions": "c"})",
              "'prompt' without 'completion'; did you mean 'completions'?");
  check_error(R"({"instruction": "p"})", "'instruction' without 'output'");
  // Names of other data sets: the message states the setting that reads them.
  check_error(R"({"instruction": "p", "context": "", "response": "r"})",
              "'instruction' without 'output'; data.keys.output = \"response\" reads 'response'");
  check_error(R"({"prompt": "p", "response": "r"})",
              "'prompt' without 'completion'; data.keys.completion = \"response\" reads 'response'");
  check_error(R"({"question": "q", "answer": "a"})",
              "; data.keys.instruction = \"question\" and data.keys.output = \"answer\" read this record");
  check_error(R"({"question": "q", "choices": ["a"]})", "; data.keys sets other names");
  const std::string preference =
      "the record is a preference ('chosen', 'rejected'), and trainhost trains on one answer; ";
  check_error(R"({"prompt": "p", "chosen": "c", "rejected": "r"})",
              preference + "data.keys.completion = \"chosen\" trains on the chosen one");
  check_error(R"({"chosen": [], "rejected": []})", preference + "data.keys.messages = \"chosen\"");
  check_error(R"({"chosen": "c", "rejected": "r"})", preference + "data.keys.text = \"chosen\"");
  check_error(R"({"messages": []})", "f:1:14: 'messages' is empty");
  check_error(R"({"messages": [{"role": "user", "content": ""}]})", "'content' is empty");
  check_error(R"({"messages": [{"role": "usr", "content": "x"}]})",
              "role 'usr' is unknown; expected system, user or assistant; did you mean 'user'?");
  check_error(R"({"messages": [{"role": "user", "content": "x"}, {"role": "user", "content": "y"}]})",
              "message 2 of 2: role 'user' follows 'user'; expected 'assistant'");
  check_error(R"({"messages": [{"role": "assistant", "content": "x"}]})",
              "message 1 of 1: role 'assistant' begins the conversation; expected 'user'");
  check_error(R"({"messages": [{"role": "user", "content": "x"}, {"role": "system", "content": "y"}]})",
              "message 2 of 2: role 'system' is only possible for the first message");
  check_error(R"({"messages": [{"role": "user", "content": "x"}]})", "no message of the assistant");
  check_error(R"({"messages": [{"role": "tool", "content": "x"}]})", "tool calls are not supported");
  check_error(R"({"tools": [{"type": "function"}], "messages": []})",
              "'tools': tool calls are not supported; remove the key");
  check_error(R"({"conversations": [], "tools": "[{}]"})", "'tools': tool calls are not supported");
  check_error(R"({"messages": [], "tools": "[]"})", "'messages' is empty");
  check_error(R"({"prompt": "p", "completion": [1]})", "expected two texts or two lists of messages");
}

BOOST_AUTO_TEST_CASE(the_first_ten_broken_records_are_listed) {
  std::string text;
  for (int i = 0; i < 30; ++i) text += i % 2 ? "{\"text\": \"a\"}\n" : "{\"text\": 1}\n";
  const Result stop = read(text);
  BOOST_TEST(stop.records.size() == 0u);
  BOOST_TEST(stop.error.find("15 broken records:\n  f:1:10: 'text' is a number") == 0u, stop.error);
  BOOST_TEST(stop.error.find("; also lines 3, 5, 7, 9, 11, 13, 15, 17, 19 and 5 more") != std::string::npos,
             stop.error);
  BOOST_TEST(stop.error.find("--set data.on_error=skip") != std::string::npos);
  const Result skip = read(text, RecordFormat::kJson, OnError::kSkip);
  BOOST_TEST(skip.error == "");
  BOOST_TEST(skip.records.size() == 15u);
  BOOST_TEST(skip.counts.read == 15u);
  BOOST_TEST(skip.counts.broken == 15u);
  BOOST_TEST(skip.counts.first_broken.size() == 10u);
}

BOOST_AUTO_TEST_CASE(a_single_broken_record_is_one_line_with_its_position) {
  const std::string skip = ": --set data.on_error=skip, or --on-error skip of `trainhost eval`";
  BOOST_TEST(read("{\"text\": \"a\"}\n{\"text\": \"b").error ==
             "f:2:10: unterminated string (the file is truncated: copy it again; or leave the record out" +
                 skip + ")");
  // Only the last record can be cut off.
  BOOST_TEST(read("{\"text\": \"a\"\n{\"text\": \"b\"}\n").error ==
             "f:1:13: expected ',' or '}', found the end of the text (correct it, or leave it out" + skip +
                 ")");
  BOOST_TEST(read("{\"text\": 1}").error.starts_with("f:1:10: 'text' is a number"));
}

BOOST_AUTO_TEST_CASE(broken_records_with_equal_messages_share_a_line) {
  std::string text;
  for (int i = 0; i < 1234; ++i) text += i == 2 ? "{\"txt\": 1}\n" : "{\"text\": 1}\n";
  const std::string many = read(text).error;
  BOOST_TEST(many.find("1,234 broken records:\n") == 0u, many);
  BOOST_TEST(many.find("f:1:10: ") != std::string::npos, many);
  BOOST_TEST(
      many.find("; also lines 2, 4, 5, 6, 7, 8, 9, 10, 11 and 1,223 more\n  f:3:1: ") != std::string::npos,
      many);
  BOOST_TEST(std::ranges::count(many, '\n') == 3);  // the last begins the hint
  const std::string two = read("{\"text\": 1}\n{\"text\": 1}\n").error;
  BOOST_TEST(two.find("; also line 2") != std::string::npos, two);
  // Elements of one array in one line have the same number.
  const std::string array = read("[{\"text\": 1}, {\"text\": 1}, {\"text\": 1}]").error;
  BOOST_TEST(array.find("; also lines 1 and 1 more") != std::string::npos, array);
  // Of more than ten different messages the first ten are listed.
  std::string values;
  for (int i = 0; i < 12; ++i)
    values += "{\"messages\": [{\"role\": \"r" + std::to_string(i) + "\", \"content\": \"x\"}]}\n";
  const std::string different = read(values).error;
  BOOST_TEST(different.find("\n  and 2 with other messages") != std::string::npos, different);
}

BOOST_AUTO_TEST_CASE(an_array_is_read_element_by_element) {
  const Result r =
      read("\xEF\xBB\xBF [\n  {\"text\": \"a ] , \\\" {\"},\n  {\"text\":\n \"b\"} , {\"text\": \"c\"}\n]\n");
  BOOST_TEST(r.error == "");
  BOOST_REQUIRE(r.records.size() == 3u);
  BOOST_TEST(r.records[0].text == "a ] , \" {");
  BOOST_TEST(r.lines[1] == 3u);
  const Result skip =
      read("[{\"text\": \"a\"}, {\"text\": x}, {\"text\": \"c\"}]", RecordFormat::kJson, OnError::kSkip);
  BOOST_TEST(skip.records.size() == 2u);
  BOOST_TEST(skip.counts.broken == 1u);
  check_error("[{\"text\": \"a\"},\n{\"text\":\n 3}]", "f:3:2: 'text' is a number");
  check_error("[{\"text\": \"a\"}", "the array is not closed");
  check_error("[{\"text\": \"a\"}] x", "text after the end of the array");
  BOOST_TEST(read("[]").error == "");
  BOOST_TEST(read("").error == "");
}

BOOST_AUTO_TEST_CASE(csv_has_quoted_fields_with_any_text) {
  const Result r =
      read("prompt,completion,note\r\np,\"c, \"\"q\"\"\nnext\",n\r\nq,d,\r\n", RecordFormat::kCsv);
  BOOST_TEST(r.error == "");
  BOOST_REQUIRE(r.records.size() == 2u);
  BOOST_TEST(r.records[0].completion == "c, \"q\"\nnext");
  BOOST_TEST(r.lines[1] == 4u);
  BOOST_TEST(read("text\ta\nx,y\tz", RecordFormat::kTsv).records.at(0).text == "x,y");
  check_error("text\na,b\n", "f:2: the row has 2 fields, but the header has 1", RecordFormat::kCsv);
  check_error("text\n\"a\nb", "f:2: a quoted field is not closed", RecordFormat::kCsv);
  check_error("text\n\"a\" b\nc", "f:2: text after a quoted field", RecordFormat::kCsv);
  check_error("text,text\na,b", "two columns are named 'text'", RecordFormat::kCsv);
  check_error("messages\na", "expected a list of messages, which a CSV file cannot have", RecordFormat::kCsv);
  const Result skip = read("text\n\"a\" b\nc\n", RecordFormat::kCsv, OnError::kSkip);
  BOOST_TEST(skip.records.size() == 1u);
}

BOOST_AUTO_TEST_CASE(the_size_of_the_pieces_that_are_read_does_not_matter) {
  std::string text = "[";
  for (int i = 0; i < 40; ++i)
    text += std::string(i ? ",\n" : "") + "{\"text\": \"" +
            std::string(static_cast<std::size_t>(i + 1), 'x') + "\\n\"}";
  const std::string lines = "{\"text\": \"a\"}\r\n\r\n{\"text\": \"b\"}";
  for (const std::size_t piece : {1u, 2u, 7u, 100u}) {
    const Result r = read(text + "]", RecordFormat::kJson, OnError::kStop, {}, piece);
    BOOST_TEST(r.error == "");
    BOOST_REQUIRE(r.records.size() == 40u);
    BOOST_TEST(r.records[39].text.size() == 41u);
    BOOST_TEST(r.lines[39] == 40u);
    BOOST_TEST(read(lines, RecordFormat::kJson, OnError::kStop, {}, piece).records.size() == 2u);
    BOOST_TEST(
        read("text\r\n\"a\r\nb\"\r\n", RecordFormat::kCsv, OnError::kStop, {}, piece).records.at(0).text ==
        "a\r\nb");
  }
}

/// Every record is either read or counted as broken, and no input makes the reader loop or read out of
/// bounds.
BOOST_AUTO_TEST_CASE(damaged_files_end_with_a_message) {
  const std::string good =
      "[{\"text\": \"a\"}, {\"messages\": [{\"role\": \"user\", \"content\": \"x\\u00e9\"}, "
      "{\"role\": \"assistant\", \"content\": \"y\"}]}]\n";
  std::mt19937 random(5);
  for (int i = 0; i < 3000; ++i) {
    std::string text = good;
    for (unsigned k = 0; k <= random() % 3; ++k)
      text[random() % text.size()] = "[]{},\"\\\n\0x"[random() % 10];
    for (RecordFormat format : {RecordFormat::kJson, RecordFormat::kCsv}) {
      const Result r = read(text, format, OnError::kSkip);
      BOOST_REQUIRE(r.error == "");
      BOOST_REQUIRE(r.counts.read + r.counts.broken < 50);
      BOOST_REQUIRE(r.counts.read == r.records.size());
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()
