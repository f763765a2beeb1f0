// Converts a file on which a model is evaluated to token ids: windows of a text, documents of records,
// choices of questions. Decides which ids are scored and which are left out. Runs no model
// (token_scorer.hpp).
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
  std::uint32_t stride = 512;   // ids from the start of a window to that of the next, from 1 to window - 1
  data::RecordOptions records;  // on_error applies to questions too
  records::ChoiceKeys choice_keys;
  std::string delimiter = " ";         // between question and choice
  std::string question_format = "{}";  // {} is replaced by the question
  std::uint32_t shots = 0;           // answered questions before each question, from the begin of shots_from
  std::filesystem::path shots_from;  // "" = the file itself, without the question that is asked
};

enum class FileKind { kText, kRecords, kQuestions };

/// A document of records, or a window of a text.
struct Document {
  std::uint64_t record = 0;  // index of the document or window in the file
  std::uint32_t line = 0;    // in which the record begins, from 1; 0 for a text
  std::uint64_t tokens = 0;  // scored ids
  // Bytes of the scored text, without special tokens of a chat template. 0 for a text: see text_bytes.
  std::uint64_t bytes = 0;
};

struct Question {
  std::uint64_t record = 0;                    // index of the question in the file
  std::uint32_t line = 0;                      // in which the record begins, from 1
  std::size_t answer = 0;                      // index of the right choice
  std::vector<std::size_t> characters, bytes;  // length of each choice, without delimiter
};

/// Jobs have the order of documents or questions; Job::entry is the index in one of these two vectors.
struct EvaluationData {
  std::filesystem::path file;
  FileKind kind = FileKind::kText;
  std::vector<Job> jobs;
  std::vector<Document> documents;  // of text and records
  std::vector<Question> questions;
  std::uint64_t ids = 0;         // all ids of the file, scored or not
  std::uint64_t text_bytes = 0;  // scored bytes of a text
  std::uint64_t divided = 0;     // documents longer than the window
  std::uint64_t truncated = 0;   // questions longer than the window, whose first ids are dropped
  std::uint64_t left_out = 0;    // documents without a token to score
  records::RecordCounts counts;
  std::uint64_t ids_hash = 0;               // hash of all ids, to compare two tokenizations
  std::vector<std::string> missing_tokens;  // special tokens of the chat template that the vocabulary lacks
};

/// One window: ids [begin, end), of which [first_scored, end) are scored.
struct Window {
  std::size_t begin = 0, end = 0, first_scored = 0;
};
/// The windows of a text with `ids` ids. Window i begins at i * stride and scores the ids that no earlier
/// window contains. Id 0 is never scored, because no id precedes it.
std::vector<Window> windows_of(std::size_t ids, std::uint32_t window, std::uint32_t stride);

/// Reads and tokenizes a file. A record file (data::is_record_file()) contains questions if its first record
/// has choices. Throws usage_error for a file that is empty, is not text, contains broken records (see
/// RecordOptions::on_error) or nothing to score, and the errors of data::InputFile.
EvaluationData read_evaluation_data(const std::filesystem::path& file, const tokenizer::Tokenizer& tokenizer,
                                    const EvaluationOptions& options);

}  // namespace trainhost::evaluation
