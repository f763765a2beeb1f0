// Converts questions with choices to token ids by the rules of EleutherAI's lm-evaluation-harness. Internal
// to core/evaluation.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "core/evaluation/evaluation_data.hpp"

namespace trainhost::evaluation {

/// Whether the first object of the file that can be parsed has choices. False for a file without an object.
bool first_record_has_choices(const std::filesystem::path& file, const records::ChoiceKeys& keys);

/// The ids of a context followed by a choice. White space at the end of the context is moved to the choice.
/// Both are encoded as one text. If the context alone has n ids, the ids from n on are scored. The begin
/// tokens of the tokenizer come first; without them, an empty context is replaced by the begin or end token.
/// At most `window` + 1 ids are kept; `truncated` is set if ids at the start were dropped. Throws RecordError
/// if no id is scored, or more than `window`.
ScoredText choice_ids(const tokenizer::Tokenizer& tokenizer, std::string context, std::string choice,
                      std::uint32_t window, bool& truncated);

/// The first EvaluationOptions::shots questions of a file, and one more if they are from the evaluated file
/// itself, each with its answer as it precedes a question: formatted, delimiter, answer, empty line. Throws
/// usage_error if the file has fewer questions, or a broken one before the last of them.
std::vector<std::string> answered_questions(const std::filesystem::path& evaluated,
                                            const EvaluationOptions& o);

/// Fills questions, jobs and counts of `d`.
void read_questions(EvaluationData& d, const tokenizer::Tokenizer& tokenizer, const EvaluationOptions& o);

}  // namespace trainhost::evaluation
