// Reads a question with choices, one of which is right, from a JSON object in the layouts of common data
// sets. Records to train on: record.hpp.
#pragma once
#include <cstddef>
#include <string>
#include <vector>

#include "core/base/json_value.hpp"

namespace trainhost::records {

struct ChoiceRecord {
  std::string question;              // may be empty
  std::vector<std::string> choices;  // at least two, none empty
  std::size_t answer = 0;            // index of the right choice
};

/// The keys of the values. "" = the first of the usual keys that the object contains. Question: question,
/// query, ctx, prompt, context, question_stem. Choices: choices, endings, options. Answer: answerKey,
/// answer_idx, answer_index, answer, label, gold.
struct ChoiceKeys {
  std::string question, choices, answer;
};

/// True if the object contains choices, or has the form {"question": {"stem", "choices"}}.
bool has_choices(const JsonValue& object, const ChoiceKeys& keys);

/// Choices are texts, {"text": [...], "label": [...]}, a list of {"text", "label"}, or an object of label and
/// text. The answer is a label, an index from 0, a letter (A is the first choice), or the text of a choice.
/// Throws JsonError at a value that is missing or wrong, and for an answer that is ambiguous: that names two
/// different choices, for example one by label and another by index.
ChoiceRecord choice_record_of(const JsonValue& object, const ChoiceKeys& keys);

}  // namespace trainhost::records
