// A file to evaluate a model on, as token ids: the windows of a text, the documents of records, the choices
// of questions. Which tokens are scored, and what is left out, is decided here; no model is needed.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "core/data/dataset.hpp"
#include "core/evaluation/token_scorer.hpp"
#include "core/records/choice_record.hpp"

namespace trainhost::evaluation {

struct EvaluationOptions {
  std::uint32_t window = 1024;  // ids of a window, from 2
  std::uint32_t stride = 512;   // ids by which windows are apart, from 1 to window - 1
  data::RecordOptions records;  // on_error also for questions
  records::ChoiceKeys choice_keys;
  std::string delimiter = " ";         // between question and choice
  std::string question_format = "{}";  // the text in place of {} is the question
};

enum class FileKind { kText, kRecords, kQuestions };

/// A document of records, or a window of a text.
struct Document {
  std::uint64_t record = 0;  // number in the file, from 0: of the document or the window
  std::uint32_t line = 0;    // of the record; 0 in a text
  std::uint64_t tokens = 0;  // that are scored
  std::uint64_t bytes =
      0;  // of the text that is scored, without special tokens of a chat template; 0 in a text
};

struct Question {
  std::uint64_t record = 0;
  std::uint32_t line = 0;
  std::size_t answer = 0;
  std::vector<std::size_t> characters, bytes;  // of each choice, without delimiter
};

/// Jobs are in the order of documents or questions; Job::entry is the index of theirs.
struct EvaluationData {
  std::filesystem::path file;
  FileKind kind = FileKind::kText;
  std::vector<Job> jobs;
  std::vector<Document> documents;  // of text and records
  std::vector<Question> questions;
  std::uint64_t ids = 0;         // of the file, scored or not
  std::uint64_t text_bytes = 0;  // of a text: bytes that are scored
  std::uint64_t divided = 0;     // documents longer than the window
  std::uint64_t truncated = 0;   // questions whose beginning does not fit the window
  std::uint64_t left_out = 0;    // documents without a token to score
  records::RecordCounts counts;
  std::uint64_t ids_hash = 0;               // equal for equal ids
  std::vector<std::string> missing_tokens;  // of the chat template, not in the vocabulary
};

/// [first id, end) and the first scored id of each window of a text of `ids` ids: window i begins at i *
/// stride, and scores the ids that no window before it has. Id 0 is in no score: nothing is before it.
struct Window {
  std::size_t begin = 0, end = 0, first_scored = 0;
};
std::vector<Window> windows_of(std::size_t ids, std::uint32_t window, std::uint32_t stride);

/// Reads and tokenizes a file. `vocab`: of the model. A file with the name of records has questions if its
/// first record has choices. Throws usage_error for a file that is empty, is no text, has broken records (see
/// RecordOptions::on_error) or nothing to score; the errors of data::InputFile.
EvaluationData read_evaluation_data(const std::filesystem::path& file, const tokenizer::Tokenizer& tokenizer,
                                    const EvaluationOptions& options);

}  // namespace trainhost::evaluation
