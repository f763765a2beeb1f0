// See record_tools.hpp.
#include "core/data/record_tools.hpp"

#include <algorithm>
#include <bit>
#include <span>

#include "core/base/error.hpp"
#include "core/base/text.hpp"
#include "core/data/documents.hpp"

namespace trainhost::data {
namespace {

void require_records(const RecordToolOptions& o) {
  for (const std::filesystem::path& f : o.files) {
    refuse_tables(f);
    if (std::error_code ec; std::filesystem::is_directory(f, ec))
      throw usage_error("data file " + in_quotes(f) + " is a folder", "name the files in it");
    if (!is_record_file(f))
      throw usage_error("data file " + in_quotes(f) + " has no records; expected .jsonl, .json, .csv or .tsv",
                        "`trainhost data info` reports the tokens of texts and token files");
  }
}

std::uint64_t counted_in(std::span<const std::uint8_t> trained) {
  return trained.empty() ? 0 : static_cast<std::uint64_t>(std::count(trained.begin() + 1, trained.end(), 1));
}

/// Tokens and hash of each document.
struct Lengths {
  std::vector<std::uint32_t> tokens;
  std::vector<std::uint64_t> hashes;

  void append(const Lengths& more) {
    tokens.insert(tokens.end(), more.tokens.begin(), more.tokens.end());
    hashes.insert(hashes.end(), more.hashes.begin(), more.hashes.end());
  }
  /// Sets quantiles and duplicates: copies of equal hashes after the first one of each. Sorts both.
  void summarize(RecordStats& s) {
    std::sort(tokens.begin(), tokens.end());
    const auto quantile = [&](std::size_t hundredths) {
      return tokens.empty() ? 0 : tokens[(tokens.size() - 1) * hundredths / 100];
    };
    s.shortest = quantile(0), s.median = quantile(50), s.p90 = quantile(90), s.p99 = quantile(99);
    s.longest = quantile(100);
    std::sort(hashes.begin(), hashes.end());
    std::uint64_t distinct = 0;
    for (std::size_t i = 0; i < hashes.size(); ++i) distinct += i == 0 || hashes[i] != hashes[i - 1];
    s.duplicates = hashes.size() - distinct;
  }
};

/// Adds what is a sum over the documents.
void add_sums(RecordStats& all, const RecordStats& s) {
  all.documents += s.documents, all.tokens += s.tokens, all.counted += s.counted;
  all.truncated += s.truncated, all.truncated_tokens += s.truncated_tokens, all.untrained += s.untrained;
  for (std::size_t i = 0; i < all.histogram.size(); ++i) all.histogram[i] += s.histogram[i];
}

/// What ends the reading of records after the last one that is needed.
struct Enough {};

}  // namespace

RecordStatsOfFiles record_stats(const RecordToolOptions& o) {
  require_records(o);
  const std::unique_ptr<Tokenizer> tokenizer = make_tokenizer(o.tokenizer);
  DocumentEncoder encoder(*tokenizer, o.records);
  RecordStatsOfFiles out;
  Lengths all;
  for (const std::filesystem::path& file : o.files) {
    RecordStats s;
    Lengths lengths;
    const std::uint64_t read = out.all.counts.read, broken = out.all.counts.broken;
    read_record_files({file}, o.records, out.all.counts, [&](records::Record& record, const Where&) {
      const Document d = encoder.encode(record);
      const std::size_t size = d.ids.size();
      const std::size_t most = o.seq_len && !d.divisible ? std::size_t{o.seq_len} + 1 : size;
      ++s.documents;
      s.tokens += size;
      s.counted += counted_in(d.trained);
      if (size > most) ++s.truncated, s.truncated_tokens += size - most;
      s.untrained += counted_in(std::span(d.trained).first(std::min(size, most))) == 0;
      lengths.tokens.push_back(static_cast<std::uint32_t>(size));
      ++s.histogram[static_cast<std::size_t>(std::bit_width(size))];
      lengths.hashes.push_back(fnv1a({reinterpret_cast<const char*>(d.ids.data()), size * sizeof d.ids[0]}));
    });
    s.counts.read = out.all.counts.read - read, s.counts.broken = out.all.counts.broken - broken;
    lengths.summarize(s);
    add_sums(out.all, s);
    all.append(lengths);
    out.files.push_back(std::move(s));
  }
  all.summarize(out.all);
  if (encoder.chat_template()) out.all.chat_template = encoder.chat_template()->name;
  out.all.missing_tokens.assign(encoder.missing_tokens().begin(), encoder.missing_tokens().end());
  return out;
}

LongestRecord longest_record(const RecordToolOptions& o, std::uint64_t enough) {
  require_records(o);
  const std::unique_ptr<Tokenizer> tokenizer = make_tokenizer(o.tokenizer);
  DocumentEncoder encoder(*tokenizer, o.records);
  records::RecordCounts counts;
  LongestRecord longest;
  try {
    read_record_files(o.files, o.records, counts, [&](records::Record& record, const Where&) {
      longest.tokens = std::max<std::uint64_t>(longest.tokens, encoder.encode(record).ids.size());
      ++longest.records;
      if (longest.tokens >= enough) throw Enough{};
    });
  } catch (const Enough&) {
  }
  return longest;
}

ShownRecords show_records(const RecordToolOptions& o, std::uint64_t first, std::uint64_t count) {
  require_records(o);
  const std::unique_ptr<Tokenizer> tokenizer = make_tokenizer(o.tokenizer);
  DocumentEncoder encoder(*tokenizer, o.records);
  ShownRecords shown;
  std::uint64_t number = 0;
  try {
    read_record_files(o.files, o.records, shown.counts, [&](records::Record& record, const Where& where) {
      if (++number < first) return;
      const Document d = encoder.encode(record);
      shown.records.push_back({where, encoder.parts(record), d.ids.size(), counted_in(d.trained)});
      if (shown.records.size() >= count) throw Enough{};
    });
  } catch (const Enough&) {
  }
  if (shown.records.empty())
    throw usage_error("there is no record " + format_count(first) + ": the files have " +
                      format_count(number));
  return shown;
}

}  // namespace trainhost::data
