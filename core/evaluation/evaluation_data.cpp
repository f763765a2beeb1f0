// See evaluation_data.hpp. Questions: questions.cpp.
#include "core/evaluation/evaluation_data.hpp"

#include <algorithm>
#include <cassert>

#include "core/base/error.hpp"
#include "core/base/text.hpp"
#include "core/data/documents.hpp"
#include "core/data/encode_file.hpp"
#include "core/evaluation/questions.hpp"

namespace trainhost::evaluation {
namespace {

namespace fs = std::filesystem;

/// Adds each window that contains a scored id as a job of document `entry`, or of a document of its own.
/// Returns the number of scored ids.
std::uint64_t add_windows(EvaluationData& d, const std::vector<std::int32_t>& ids,
                          const std::vector<std::uint8_t>& scored, const EvaluationOptions& o,
                          std::size_t entry, bool window_is_document) {
  std::uint64_t all = 0;
  for (const Window& w : windows_of(ids.size(), o.window, o.stride)) {
    ScoredText t;
    const auto begin = static_cast<std::ptrdiff_t>(w.begin), end = static_cast<std::ptrdiff_t>(w.end);
    t.ids.assign(ids.begin() + begin, ids.begin() + end);
    t.scored.assign(scored.begin() + begin, scored.begin() + end);
    std::fill_n(t.scored.begin(), w.first_scored - w.begin, std::uint8_t{0});
    const auto tokens = static_cast<std::uint64_t>(std::count(t.scored.begin(), t.scored.end(), 1));
    if (tokens == 0) continue;
    all += tokens;
    if (window_is_document) d.documents.push_back({d.documents.size(), 0, tokens, 0});
    d.jobs.push_back({window_is_document ? d.documents.size() - 1 : entry, {}});
    d.jobs.back().texts.push_back(std::move(t));
  }
  return all;
}

/// The begin tokens of the tokenizer, then the text. The first id is not scored.
void read_text(EvaluationData& d, const data::InputFile& file, const tokenizer::Tokenizer& tokenizer,
               const EvaluationOptions& o) {
  std::vector<std::int32_t> ids = tokenizer.before();
  const std::size_t before = ids.size();
  data::encode_file(
      file, tokenizer, o.records.special_tokens ? tokenizer::Names::kSpecial : tokenizer::Names::kText,
      [&](std::span<const std::int32_t> more) { ids.insert(ids.end(), more.begin(), more.end()); });
  file.require_unchanged();
  if (ids.size() == before) throw usage_error("data file " + data::in_quotes(d.file) + " is empty");
  if (ids.size() < 2)
    throw usage_error("data file " + data::in_quotes(d.file) +
                      " has a single token; the first token of a text is not scored");
  std::vector<std::uint8_t> scored(ids.size(), 1);
  std::fill_n(scored.begin(), std::max<std::size_t>(1, before), std::uint8_t{0});
  d.text_bytes = file.size() - (before ? 0 : tokenizer.decode({ids.data(), 1}).size());
  d.ids = ids.size();
  d.divided = ids.size() > o.window;
  d.ids_hash = fnv1a({reinterpret_cast<const char*>(ids.data()), ids.size() * sizeof ids[0]});
  add_windows(d, ids, scored, o, 0, true);
}

void read_documents(EvaluationData& d, const tokenizer::Tokenizer& tokenizer, const EvaluationOptions& o) {
  data::DocumentEncoder encoder(tokenizer, o.records);
  std::uint64_t record = 0;
  data::read_record_files({d.file}, o.records, d.counts, [&](records::Record& r, const Where& where) {
    const std::uint64_t number = record++;
    data::Document document = encoder.encode(r);
    std::uint64_t bytes = 0;
    for (const records::Part& p : encoder.parts(r)) bytes += p.trained && !p.special ? p.text.size() : 0;
    d.ids += document.ids.size();
    d.ids_hash = fnv1a(
        {reinterpret_cast<const char*>(document.ids.data()), document.ids.size() * sizeof document.ids[0]},
        d.ids_hash);
    if (!document.ids.empty() && document.trained[0]) {
      document.trained[0] = 0;
      bytes -= std::min<std::uint64_t>(bytes, tokenizer.decode({document.ids.data(), 1}).size());
    }
    const std::uint64_t tokens = add_windows(d, document.ids, document.trained, o, d.documents.size(), false);
    if (tokens == 0) {
      ++d.left_out;
      return;
    }
    d.divided += document.ids.size() > o.window;
    d.documents.push_back({number, where.line, tokens, bytes});
  });
  d.missing_tokens.assign(encoder.missing_tokens().begin(), encoder.missing_tokens().end());
  if (d.documents.empty())
    throw usage_error(
        "data file " + data::in_quotes(d.file) + " has no document with a token that is counted in the loss",
        "`trainhost data show FILE` marks what is counted; --loss-on all counts everything");
}

}  // namespace

std::vector<Window> windows_of(std::size_t ids, std::uint32_t window, std::uint32_t stride) {
  assert(window >= 2 && stride >= 1 && stride < window);
  std::vector<Window> all;
  if (ids < 2) return all;
  for (std::size_t begin = 0, done = 1;; begin += stride) {
    const std::size_t end = std::min<std::size_t>(ids, begin + window);
    all.push_back({begin, end, done});
    done = end;
    if (end == ids) return all;
  }
}

EvaluationData read_evaluation_data(const fs::path& file, const tokenizer::Tokenizer& tokenizer,
                                    const EvaluationOptions& options) {
  EvaluationData d;
  d.file = file;
  data::refuse_tables(file);
  if (!options.shots_from.empty()) {
    data::refuse_tables(options.shots_from);
    if (!data::is_record_file(options.shots_from) ||
        !first_record_has_choices(options.shots_from, options.choice_keys))
      throw usage_error("data file " + data::in_quotes(options.shots_from) + " has no questions with choices",
                        "--shots-from FILE names a file as those that are evaluated");
  }
  if (file.extension() == ".bin")
    throw usage_error(
        "data file " + data::in_quotes(file) + " contains token ids; eval reads texts and records",
        "give the text from which the ids were made");
  if (!data::is_record_file(file)) {
    data::require_text(file, "");
    d.kind = FileKind::kText;
    read_text(d, data::InputFile(file), tokenizer, options);
  } else if (first_record_has_choices(file, options.choice_keys)) {
    d.kind = FileKind::kQuestions;
    read_questions(d, tokenizer, options);
  } else {
    d.kind = FileKind::kRecords;
    read_documents(d, tokenizer, options);
  }
  return d;
}

}  // namespace trainhost::evaluation
