// See record_source.hpp.
#include "core/data/record_source.hpp"

#include <algorithm>
#include <cstdio>
#include <iterator>

#include "core/base/error.hpp"
#include "core/base/plural.hpp"
#include "core/base/text.hpp"
#include "core/data/content_hashes.hpp"
#include "core/data/documents.hpp"
#include "core/data/encode_file.hpp"
#include "core/data/grammar.hpp"
#include "core/data/sequence_file.hpp"

namespace trainhost::data {
namespace fs = std::filesystem;
namespace {

/// True for the fraction of all documents that is used for validation.
bool is_for_validation(const Document& d, std::uint64_t seed, double fraction) {
  const std::string_view bytes(reinterpret_cast<const char*>(d.ids.data()), d.ids.size() * sizeof d.ids[0]);
  const std::uint64_t hash = KeyedRandom::mix(fnv1a(bytes) ^ KeyedRandom::mix(seed + 0x76616c6964ULL));
  return static_cast<double>(hash >> 11) * 0x1p-53 < fraction;
}

std::string three_digits(double x) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g", x);
  return text;
}

std::string percent(std::uint64_t part, std::uint64_t all) {
  return three_digits(all ? 100.0 * static_cast<double>(part) / static_cast<double>(all) : 0.0) + "%";
}

/// One line for the user: what is trained on, and what is not.
std::string note_of(const std::string& name, const SequenceCounts& c, const OpenOptions& o) {
  std::string text = escaped(name) + ": " + plural(c.documents, "document") + " in " +
                     plural(c.sequences, "sequence") + (o.records.packing ? " (packed)" : "") + ", " +
                     plural(c.tokens, "token") + ", " + percent(c.counted, c.tokens) +
                     " of them counted in the loss, " +
                     percent(c.padding, c.sequences * (std::uint64_t{o.seq_len} + 1)) + " padding";
  if (c.truncated)
    text += "; " + format_count(c.truncated) + " truncated at data.seq_len = " + format_count(o.seq_len) +
            " (" + plural(c.truncated_tokens, "token") + " cut off)";
  if (c.untrained)
    text += "; " + format_count(c.untrained) + " left out, because no token is counted in the loss";
  if (c.broken) text += "; " + plural(c.broken, "broken record") + " left out";
  return text;
}

class RecordFiles {
 public:
  RecordFiles(const OpenOptions& o, std::vector<std::string>& notes)
      : o_(o), tokenizer_(tokenizer_for(o, notes)), encoder_(*tokenizer_, o.records) {
    if (o.cache_dir.empty()) throw usage_error("records must be tokenized, but no cache folder is set");
  }

  /// Hash of everything that the sequences of these files depend on.
  std::string key(const std::vector<fs::path>& files, double fraction) const {
    const RecordOptions& r = o_.records;
    const records::RecordKeys& k = r.keys;
    std::string all = "sequences 1 " + std::to_string(o_.seq_len) + " " + std::to_string(r.packing) + " " +
                      std::to_string(static_cast<int>(r.loss_on)) + " " +
                      std::to_string(static_cast<int>(r.on_error)) + " " + std::to_string(fraction) + " " +
                      (fraction > 0 ? std::to_string(o_.seed) : "") + (r.special_tokens ? " special" : "") +
                      "\n";
    for (const std::string* name : {&k.text, &k.prompt, &k.completion, &k.instruction, &k.input, &k.output,
                                    &k.messages, &k.role, &k.content})
      all += *name + "\n";
    all += o_.tokenizer == "bytes" ? "bytes" : content_hash(InputFile(o_.tokenizer));
    all += " " + tokenizer_->version();
    // The rule of a tokenizer.json is in its hash; that of a .model is in tokenizer_config.json.
    if (fs::path(o_.tokenizer).extension() == ".model")
      for (const auto& added : {tokenizer_->before(), tokenizer_->after()})
        for (const std::int32_t id : added) all += " " + std::to_string(id);
    all += "\n" + (encoder_.chat_template() ? records::fingerprint(*encoder_.chat_template()) : "") + "\n";
    for (const fs::path& f : files) {
      all += std::to_string(static_cast<int>(records::format_of(f.filename().string()))) + " " + hash_of(f) +
             "\n";
    }
    return content_hash(all);
  }

  /// The sequences of the files; with a fraction also those for validation, and then `valid` gets them.
  std::unique_ptr<Samples> open(const std::vector<fs::path>& files, const std::string& key, double fraction,
                                SequenceCounts& counts, std::unique_ptr<Samples>* valid,
                                SequenceCounts* valid_counts, std::vector<std::string>& notes) {
    const fs::path train_file = o_.cache_dir / (key + ".bin");
    const fs::path valid_file = o_.cache_dir / (content_hash(key + " valid") + ".bin");
    auto train = cached(source_name(files), train_file, counts, notes);
    if (valid) *valid = cached(source_name(files), valid_file, *valid_counts, notes);
    if (train && (!valid || *valid)) return train;
    write(files, train_file, valid ? &valid_file : nullptr, fraction, notes);
    if (!encoder_.missing_tokens().empty()) {
      std::string names;
      for (const std::string& t : encoder_.missing_tokens()) names += (names.empty() ? "" : ", ") + t;
      notes.push_back("tokenizer " + tokenizer_->name() + " has no special token " + escaped(names) +
                      " of the chat template '" + encoder_.chat_template()->name + "': encoded as text");
    }
    if (valid) *valid = open_sequences(InputFile(valid_file), o_.seq_len, o_.vocab, *valid_counts);
    return open_sequences(InputFile(train_file), o_.seq_len, o_.vocab, counts);
  }

 private:
  std::string hash_of(const fs::path& path) const {
    const InputFile file(path);
    return kept_content_hash(file, o_.cache_dir,
                             report_reading(o_, "reading " + path.filename().string(), file.size()));
  }

  /// Null if there is no usable file; it is then written again.
  std::unique_ptr<Samples> cached(const std::string& name, const fs::path& path, SequenceCounts& counts,
                                  std::vector<std::string>& notes) const {
    std::error_code ec;
    if (!fs::exists(path, ec)) return nullptr;
    try {
      InputFile file(path);
      if (agrees_with_hash_beside(file, report_reading(o_, "reading sequences of " + name, file.size())))
        return open_sequences(std::move(file), o_.seq_len, o_.vocab, counts);
    } catch (const Error&) {
    }
    notes.push_back("the sequences in " + in_quotes(path) +
                    " were incomplete or damaged and are written again");
    return nullptr;
  }

  void write(const std::vector<fs::path>& files, const fs::path& train_file, const fs::path* valid_file,
             double fraction, std::vector<std::string>& notes) {
    std::error_code ec;
    fs::create_directories(o_.cache_dir, ec);
    if (ec)
      throw run_error("folder " + in_quotes(o_.cache_dir) +
                      " for tokenized records cannot be created: " + ec.message());
    remove_abandoned(o_.cache_dir);
    const bool wide = needs_uint32(tokenizer_->vocab());
    SequenceWriter train(train_file, o_.seq_len, wide, o_.records.packing);
    std::optional<SequenceWriter> valid;
    if (valid_file) valid.emplace(*valid_file, o_.seq_len, wide, o_.records.packing);
    records::RecordCounts counts;
    std::uint64_t bytes = 0;
    for (const fs::path& f : files) bytes += InputFile(f).size();
    read_record_files(
        files, o_.records, counts,
        [&](records::Record& record, const Where&) {
          if (o_.cancelled && o_.cancelled()) throw Cancelled{};
          const Document d = encoder_.encode(record);
          (valid && is_for_validation(d, o_.seed, fraction) ? *valid : train).add(d);
        },
        report_reading(o_, "tokenizing " + source_name(files), bytes));
    if (counts.broken) notes.push_back(counts.message());
    train.commit(counts.broken);
    const auto write_hash = [&](const fs::path& file) {
      write_hash_beside(
          file, report_reading(o_, "reading sequences of " + source_name(files), InputFile(file).size()));
    };
    write_hash(train_file);
    if (!valid) return;
    valid->commit();
    write_hash(*valid_file);
  }

  const OpenOptions& o_;
  std::unique_ptr<Tokenizer> tokenizer_;
  DocumentEncoder encoder_;
};

/// A text has no documents, so its tokens cannot be in one order with those of records.
void require_only_records(const std::vector<fs::path>& files) {
  for (const fs::path& f : files)
    if (!is_record_file(f))
      throw usage_error(
          "data file " + in_quotes(f) + " has no records, but others of data.train and data.valid have",
          "write its documents as records: one line {\"text\": ...} for each");
}

void require_sequences(const std::string& what, const Samples& samples, const SequenceCounts& c) {
  if (samples.size() > 0) return;
  throw usage_error(
      what + " has no document with a token that is counted in the loss" +
          (c.truncated ? ": " + format_count(c.truncated) + " were truncated before it" : ""),
      "`trainhost data show FILE` shows what is trained; use a larger data.seq_len, more records, or "
      "another data.valid_fraction");
}

}  // namespace

std::unique_ptr<Tokenizer> tokenizer_for(const OpenOptions& o, std::vector<std::string>& notes) {
  std::unique_ptr<Tokenizer> tokenizer = make_tokenizer(o.tokenizer);
  if (tokenizer->vocab() > o.vocab && o.tokenizer != "bytes")
    throw usage_error("tokenizer " + in_quotes(o.tokenizer) + " has " + format_count(tokenizer->vocab()) +
                          " ids, but model.vocab_size is " + format_count(o.vocab),
                      "use the tokenizer of this model; one that starts from random weights can have "
                      "model.vocab_size = " +
                          std::to_string(tokenizer->vocab()));
  // A vocabulary is padded by less than a tenth.
  if (o.tokenizer != "bytes" && tokenizer->vocab() < o.vocab - o.vocab / 10)
    notes.push_back("tokenizer " + in_quotes(o.tokenizer) + " has " + format_count(tokenizer->vocab()) +
                    " ids, and the model " + format_count(o.vocab) +
                    ": it may be the tokenizer of another model");
  for (std::string& note : tokenizer->notes()) notes.push_back(std::move(note));
  return tokenizer;
}

std::string weight_line(double weight, const std::string& content) {
  char text[48];
  std::snprintf(text, sizeof text, "weight %.17g ", weight);
  return text + content + "\n";
}

void note_mixture(Source& s) {
  const std::span<const MixturePart> parts = s.train_samples->parts();
  double weights = 0;
  for (const MixturePart& p : parts) weights += p.weight;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const double share = parts[i].weight / weights;
    const double passes =
        share * static_cast<double>(s.train_samples->size()) / static_cast<double>(parts[i].samples);
    s.notes.push_back("mixture: " + escaped(s.sources[i].name) + " is " + three_digits(100 * share) +
                      "% of the samples; one pass reads its " + plural(parts[i].samples, "sample") + " " +
                      three_digits(passes) + (passes == 1 ? " time" : " times"));
  }
}

/// One source after the other, so that each has its own sequences and its own documents for validation.
static Source open_record_mixture(const OpenOptions& o) {
  Source all;
  all.name = source_name(o.train);
  std::vector<std::unique_ptr<Samples>> train, valid;
  std::string content;
  for (std::size_t i = 0, first = 0; i < o.source_files.size(); first += o.source_files[i++]) {
    OpenOptions of_source = o;
    of_source.weights.clear(), of_source.source_files.clear();
    of_source.train.assign(o.train.begin() + static_cast<std::ptrdiff_t>(first),
                           o.train.begin() + static_cast<std::ptrdiff_t>(first + o.source_files[i]));
    if (i > 0) of_source.valid.clear();  // data.valid is read once
    Source one = open_record_source(of_source);
    all.tokens += one.tokens;
    all.sources.push_back(one.sources.front());
    content += weight_line(o.weights[i], one.content);
    train.push_back(std::move(one.train_samples));
    if (one.valid_samples) valid.push_back(std::move(one.valid_samples));
    if (i == 0) all.valid_content = one.valid_content;
    std::move(one.notes.begin(), one.notes.end(), std::back_inserter(all.notes));
  }
  if (o.identify) all.content = content_hash(content);
  all.train_samples = joined_samples(std::move(train), o.weights);
  if (!valid.empty()) all.valid_samples = joined_samples(std::move(valid));
  note_mixture(all);
  return all;
}

Source open_record_source(const OpenOptions& o) {
  if (!o.weights.empty()) return open_record_mixture(o);
  require_only_records(o.train);
  require_only_records(o.valid);
  Source s;
  RecordFiles files(o, s.notes);
  s.name = source_name(o.train);
  SequenceCounts counts, valid_counts;
  const bool splits = o.valid_fraction > 0;
  const std::string key = files.key(o.train, o.valid_fraction);
  s.train_samples = files.open(o.train, key, o.valid_fraction, counts, splits ? &s.valid_samples : nullptr,
                               &valid_counts, s.notes);
  require_sequences("the training data '" + escaped(s.name) + "'", *s.train_samples, counts);
  s.notes.push_back("data " + note_of(s.name, counts, o));
  if (o.identify) s.content = key;
  if (!o.valid.empty()) {
    const std::string valid_key = files.key(o.valid, 0);
    s.valid_samples = files.open(o.valid, valid_key, 0, valid_counts, nullptr, nullptr, s.notes);
    if (o.identify) s.valid_content = valid_key;
  }
  if (s.valid_samples) {
    const std::string name = splits ? "validation part of " + s.name : source_name(o.valid);
    require_sequences("the validation data '" + escaped(name) + "'", *s.valid_samples, valid_counts);
    s.notes.push_back("data " + note_of(name, valid_counts, o));
  }
  s.tokens = counts.tokens;
  s.sources = {{s.name, counts.documents, counts.tokens}};
  return s;
}

}  // namespace trainhost::data
