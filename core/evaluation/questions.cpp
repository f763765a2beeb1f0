// See questions.hpp.
#include "core/evaluation/questions.hpp"

#include <algorithm>

#include "core/base/error.hpp"
#include "core/base/text.hpp"
#include "core/data/documents.hpp"
#include "core/records/choice_record.hpp"

namespace trainhost::evaluation {
namespace {

namespace fs = std::filesystem;
using tokenizer::Names;

/// Counts UTF-8 characters: the bytes that are not continuation bytes.
std::size_t count_characters(const std::string& text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

std::string with_question(const std::string& format, const std::string& question) {
  const std::size_t at = format.find("{}");
  return format.substr(0, at) + question + format.substr(at + 2);
}

}  // namespace

bool first_record_has_choices(const fs::path& path, const records::ChoiceKeys& keys) {
  const data::InputFile file(path);
  const auto reader = records::open_records(data::reader_of(file),
                                            records::format_of(path.filename().string()), path.string());
  bool found = false;
  while (true) try {
      reader->next([&](const JsonValue& object) { found = records::has_choices(object, keys); });
      return found;
    } catch (const records::RecordError&) {  // reported when the file is read
    }
}

ScoredText choice_ids(const tokenizer::Tokenizer& tokenizer, std::string context, std::string choice,
                      std::uint32_t window, bool& truncated) {
  const std::size_t end = context.find_last_not_of(" \t\n\r\v\f") + 1;  // npos + 1 is 0
  choice.insert(0, context, end);
  context.resize(end);
  ScoredText t;
  t.ids = tokenizer.before();
  if (t.ids.empty() && context.empty()) {
    const auto first = tokenizer.bos() ? tokenizer.bos() : tokenizer.eos();
    if (!first)
      throw records::RecordError("the question is empty, and the tokenizer has no begin and no end token");
    t.ids.push_back(*first);
  }
  const std::size_t alone = t.ids.size() + tokenizer.encode(context, Names::kSpecial).size();
  const std::vector<std::int32_t> all = tokenizer.encode(context + choice, Names::kSpecial);
  t.ids.insert(t.ids.end(), all.begin(), all.end());
  if (t.ids.size() <= alone)
    throw records::RecordError("the choice '" + escaped(choice, 60) + "' adds no token to the question");
  const std::size_t scored = t.ids.size() - alone;
  if (scored > window)
    throw records::RecordError("the choice '" + escaped(choice, 60) + "' has " + format_count(scored) +
                               " tokens, and the window only " + format_count(window));
  t.scored.assign(alone, 0);
  t.scored.resize(t.ids.size(), 1);
  const std::size_t most = std::size_t{window} + 1;
  truncated = t.ids.size() > most;
  if (truncated) {
    const auto drop = static_cast<std::ptrdiff_t>(t.ids.size() - most);
    t.ids.erase(t.ids.begin(), t.ids.begin() + drop);
    t.scored.erase(t.scored.begin(), t.scored.begin() + drop);
  }
  return t;
}

std::vector<std::string> answered_questions(const fs::path& evaluated, const EvaluationOptions& o) {
  const bool own = o.shots_from.empty();
  const fs::path path = own ? evaluated : o.shots_from;
  const std::size_t wanted = std::size_t{o.shots} + own;
  struct Enough {};  // ends the reading
  const data::InputFile file(path);
  const auto reader = records::open_records(data::reader_of(file),
                                            records::format_of(path.filename().string()), path.string());
  std::vector<std::string> shots;
  records::ChoiceRecord record;
  records::RecordCounts counts;
  try {
    records::read_objects(
        *reader, o.records.on_error, counts,
        [&](const JsonValue& object) { record = records::choice_record_of(object, o.choice_keys); },
        [&](const Where&) {
          shots.push_back(with_question(o.question_format, record.question) + o.delimiter +
                          record.choices[record.answer] + "\n\n");
          if (shots.size() == wanted) throw Enough{};
        });
  } catch (const Enough&) {
  }
  if (shots.size() < wanted)
    throw usage_error("data file " + data::in_quotes(path) + " has " + format_count(shots.size()) +
                          " questions, too few for --shots " + std::to_string(o.shots) +
                          (own ? " before each other question" : ""),
                      own ? "--shots-from FILE takes the examples from another file" : "");
  return shots;
}

void read_questions(EvaluationData& d, const tokenizer::Tokenizer& tokenizer, const EvaluationOptions& o) {
  const data::InputFile file(d.file);
  const auto reader = records::open_records(data::reader_of(file),
                                            records::format_of(d.file.filename().string()), d.file.string());
  records::ChoiceRecord record;
  std::uint64_t number = 0;
  const std::vector<std::string> shots = o.shots ? answered_questions(d.file, o) : std::vector<std::string>();
  // The first ones; of the file itself without the question that is asked.
  const auto examples_before = [&](std::uint64_t question) {
    std::string all;
    std::uint32_t count = 0;
    for (std::size_t i = 0; i < shots.size() && count < o.shots; ++i)
      if (!o.shots_from.empty() || i != question) all += shots[i], ++count;
    return all;
  };
  records::read_objects(
      *reader, o.records.on_error, d.counts,
      [&](const JsonValue& object) { record = records::choice_record_of(object, o.choice_keys); },
      [&](const Where& where) {
        Question q;
        q.record = number++, q.line = where.line, q.answer = record.answer;
        Job job;
        job.entry = d.questions.size();
        bool truncated = false;
        const std::string context =
            examples_before(q.record) + with_question(o.question_format, record.question);
        for (const std::string& choice : record.choices) {
          bool this_one = false;
          job.texts.push_back(choice_ids(tokenizer, context, o.delimiter + choice, o.window, this_one));
          truncated |= this_one;
          q.characters.push_back(count_characters(choice));
          q.bytes.push_back(choice.size());
        }
        d.truncated += truncated;
        for (const ScoredText& t : job.texts) {
          d.ids += t.ids.size();
          d.ids_hash = fnv1a({reinterpret_cast<const char*>(t.ids.data()), t.ids.size() * sizeof t.ids[0]},
                             d.ids_hash);
        }
        d.questions.push_back(std::move(q));
        d.jobs.push_back(std::move(job));
      });
  file.require_unchanged();
  if (d.questions.empty())
    throw usage_error("data file " + data::in_quotes(d.file) + " has no question" +
                      (d.counts.broken ? " that can be used; " + d.counts.message() : ""));
}

}  // namespace trainhost::evaluation
