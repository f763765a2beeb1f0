// See choice_record.hpp.
#include "core/records/choice_record.hpp"

#include <algorithm>
#include <charconv>
#include <optional>
#include <span>

#include "core/records/json_fields.hpp"

namespace trainhost::records {
namespace {

using Names = std::vector<std::string>;

const Names& question_names() {
  static const Names names = {"question", "query", "ctx", "prompt", "context", "question_stem"};
  return names;
}
const Names& choices_names() {
  static const Names names = {"choices", "endings", "options"};
  return names;
}
const Names& answer_names() {
  static const Names names = {"answerKey", "answer_idx", "answer_index", "answer", "label", "gold"};
  return names;
}

struct Field {
  std::string key;
  const JsonValue* value = nullptr;
};

/// The value of `key`, or of the first of the usual names where it is "".
Field find_field(const JsonValue& object, const std::string& key, const Names& usual) {
  for (const std::string& name : key.empty() ? usual : Names{key})
    if (const JsonValue* v = object.find(name); v && !v->is_null()) return {name, v};
  return {};
}

Field required_field(const JsonValue& object, const std::string& key, const Names& usual, const char* what) {
  const Field f = find_field(object, key, usual);
  if (f.value) return f;
  std::string expected;
  for (const std::string& name : key.empty() ? usual : Names{key})
    expected += (expected.empty() ? "" : ", ") + quote(name);
  throw JsonError(object.begin, std::string("the record has no ") + what + ": " + keys_of(object) +
                                    "; expected " + (key.empty() ? "one of " : "") + expected);
}

/// {"stem", "choices"} of a question that is an object.
const JsonValue* choices_in_question(const JsonValue& object, const ChoiceKeys& keys) {
  const Field question = find_field(object, keys.question, question_names());
  return question.value && question.value->is_object() ? question.value->find("choices") : nullptr;
}

struct Choices {
  std::vector<std::string> texts, labels;  // labels: one per text, or none
};

/// A label is a text or a number.
std::string label_in(const JsonValue& v) {
  return v.kind == JsonValue::Kind::kInteger ? std::to_string(v.integer) : text_in(v, "label");
}

Choices choices_in(const JsonValue& v, const std::string& key) {
  Choices c;
  const auto list_in = [&](const char* name) -> const std::vector<JsonValue>& {
    const std::string field = name;  // GCC 13 takes the result for a reference to a temporary text
    const JsonValue& list = required(v, field, key);
    if (!list.is_array())
      throw JsonError(list.begin, quote(name) + " is " + kind_name(list) + "; expected a list");
    return list.elements;
  };
  if (v.is_object() && v.find("text")) {
    for (const JsonValue& text : list_in("text")) c.texts.push_back(nonempty_text_in(text, "text"));
    for (const JsonValue& label : list_in("label")) c.labels.push_back(label_in(label));
    if (c.labels.size() != c.texts.size())
      throw JsonError(v.begin, quote(key) + " has " + std::to_string(c.texts.size()) + " texts and " +
                                   std::to_string(c.labels.size()) + " labels");
  } else if (v.is_object()) {
    for (const JsonMember& m : v.members)
      c.labels.push_back(m.key), c.texts.push_back(nonempty_text_in(m.value, m.key));
  } else if (v.is_array()) {
    for (const JsonValue& choice : v.elements) {
      c.texts.push_back(choice.is_object() ? nonempty_text_in(required(choice, "text", key), "text")
                                           : nonempty_text_in(choice, key));
      if (const JsonValue* label = choice.find("label")) c.labels.push_back(label_in(*label));
    }
    if (!c.labels.empty() && c.labels.size() != c.texts.size())
      throw JsonError(v.begin, "only some choices of " + quote(key) + " have a label");
  } else {
    throw JsonError(v.begin, quote(key) + " is " + kind_name(v) + "; expected a list of texts");
  }
  if (c.texts.size() < 2)
    throw JsonError(v.begin, quote(key) + " has " + std::to_string(c.texts.size()) +
                                 (c.texts.size() == 1 ? " choice" : " choices") + "; expected at least two");
  return c;
}

std::optional<std::size_t> index_of(const std::vector<std::string>& texts, const std::string& text) {
  const auto found = std::find(texts.begin(), texts.end(), text);
  if (found == texts.end()) return std::nullopt;
  return static_cast<std::size_t>(found - texts.begin());
}

/// An index from 0, or a letter.
std::optional<std::size_t> position_of(const std::string& answer, std::size_t choices) {
  std::size_t index = 0;
  const char* end = answer.data() + answer.size();
  if (answer.size() == 1 && answer[0] >= 'A' && answer[0] <= 'Z')
    index = static_cast<std::size_t>(answer[0] - 'A');
  else if (const auto [at, ec] = std::from_chars(answer.data(), end, index); ec != std::errc{} || at != end)
    return std::nullopt;
  if (index >= choices) return std::nullopt;
  return index;
}

std::size_t answer_in(const Field& field, const Choices& c) {
  const JsonValue& v = *field.value;
  const bool number = v.kind == JsonValue::Kind::kInteger;
  const std::string answer = number ? std::to_string(v.integer) : text_in(v, field.key);
  if (const auto labelled = index_of(c.labels, answer)) return *labelled;
  const auto position = position_of(answer, c.texts.size());
  const auto text = number ? std::nullopt : index_of(c.texts, answer);
  if (position && text && *position != *text)
    throw JsonError(v.begin, quote(field.key) + " is " + quote(answer) + ", which is the text of choice " +
                                 std::to_string(*text + 1) + " and the index of choice " +
                                 std::to_string(*position + 1) + "; write the index as a number");
  if (position) return *position;
  if (text) return *text;
  std::string labels;
  for (const std::string& label : c.labels) labels += (labels.empty() ? "" : ", ") + quote(label);
  throw JsonError(v.begin, quote(field.key) + " is " + quote(answer) + "; expected " +
                               (labels.empty() ? "an index from 0 to " + std::to_string(c.texts.size() - 1) +
                                                     ", a letter, or the text of a choice"
                                               : "one of " + labels));
}

}  // namespace

bool has_choices(const JsonValue& object, const ChoiceKeys& keys) {
  return find_field(object, keys.choices, choices_names()).value || choices_in_question(object, keys);
}

ChoiceRecord choice_record_of(const JsonValue& object, const ChoiceKeys& keys) {
  if (!object.is_object())
    throw JsonError(object.begin, std::string("the record is ") + kind_name(object) + "; expected an object");
  const Field question = required_field(object, keys.question, question_names(), "question");
  Field choices;
  ChoiceRecord r;
  if (const JsonValue* inner = choices_in_question(object, keys)) {
    r.question = text_in(required(*question.value, "stem", question.key), "stem");
    choices = {"choices", inner};
  } else {
    r.question = text_in(*question.value, question.key);
    choices = required_field(object, keys.choices, choices_names(), "choices");
  }
  Choices c = choices_in(*choices.value, choices.key);
  r.answer = answer_in(required_field(object, keys.answer, answer_names(), "answer"), c);
  r.choices = std::move(c.texts);
  return r;
}

}  // namespace trainhost::records
