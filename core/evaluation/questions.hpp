// Questions with choices as token ids, as EleutherAI's lm-evaluation-harness makes them. Internal to
// core/evaluation.
#pragma once
#include <filesystem>
#include <string>

#include "core/evaluation/evaluation_data.hpp"

namespace trainhost::evaluation {

/// Whether the first object of the file that can be parsed has choices. False for a file without an object.
bool first_record_has_choices(const std::filesystem::path& file, const records::ChoiceKeys& keys);

/// The ids of a context followed by a choice. White space at the end of the context belongs to the choice.
/// Both are encoded as one text, whose ids after as many as the context has alone are scored. The begin
/// tokens of the tokenizer are in front; a context that is empty without them is the begin or else the end
/// token. At most `window` + 1 ids are kept, and `truncated` is set if the first ones were dropped. Throws
/// RecordError without an id to score, and with more than `window` of them.
ScoredText choice_ids(const tokenizer::Tokenizer& tokenizer, std::string context, std::string choice,
                      std::uint32_t window, bool& truncated);

/// Fills questions, jobs and counts of `d`.
void read_questions(EvaluationData& d, const tokenizer::Tokenizer& tokenizer, const EvaluationOptions& o);

}  // namespace trainhost::evaluation
