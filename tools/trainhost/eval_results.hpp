// The results of `trainhost eval` as text and JSON: of one model, or of two and their differences.
#pragma once
#include <string>
#include <vector>

#include "core/base/json_value.hpp"
#include "core/evaluation/scores.hpp"

namespace trainhost::cli {

/// A file and what a model scores on it.
struct FileScores {
  evaluation::EvaluationData data;
  evaluation::Scores scores;
};

/// The results on one file. `of_model`: the scores of one model, or of two; differences are the second minus
/// the first.
std::string eval_table(const std::vector<const FileScores*>& of_model);
JsonValue eval_json(const std::vector<const FileScores*>& of_model);

/// A line of JSON per window, document or question.
std::string eval_details(const FileScores& f, const std::string& model);

}  // namespace trainhost::cli
