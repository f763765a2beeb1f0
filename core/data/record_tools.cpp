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
    if (!is_record_file(f))
      throw usage_error("data file " + in_quotes(f) + " has no records; expected .jsonl, .json, .csv or .tsv",
                        "`trainhost data info` reports the tokens of texts and token files");
  }
}

std::uint64_t counted_in(std::span<const std::uint8_t> trained) {
  return trained.empty() ? 0 : static_cast<std::uint64_t>(std::count(trained.begin() + 1, trained.end(), 1));
}

/// Copies of equal hashes after the first one of each.
std::uint64_t count_duplicates(std::vector<std::uint64_t>& hashes) {
  std::sort(hashes.begin(), hashes.end());
  return static_cast<std::uint64_t>(hashes.end() - std::unique(hashes.begin(), hashes.end()));
}

/// What ends the reading of records after the last one that is needed.
struct Enough {};

}  // namespace

RecordStats record_stats(const RecordToolOptions& o) {
  require_records(o);
  const std::unique_ptr<Tokenizer> tokenizer = make_tokenizer(o.tokenizer);
  DocumentEncoder encoder(*tokenizer, o.records);
  RecordStats s;
  std::vector<std::uint32_t> lengths;
  std::vector<std::uint64_t> hashes;
  read_record_files(o.files, o.records, s.counts, [&](records::Record& record, const Where&) {
    const Document d = encoder.encode(record);
    const std::size_t size = d.ids.size();
    const std::size_t most = o.seq_len && !d.divisible ? std::size_t{o.seq_len} + 1 : size;
    ++s.documents;
    s.tokens += size;
    s.counted += counted_in(d.trained);
    if (size > most) ++s.truncated, s.truncated_tokens += size - most;
    s.untrained += counted_in(std::span(d.trained).first(std::min(size, most))) == 0;
    lengths.push_back(static_cast<std::uint32_t>(size));
    ++s.histogram[static_cast<std::size_t>(std::bit_width(lengths.back()))];
    hashes.push_back(fnv1a({reinterpret_cast<const char*>(d.ids.data()), size * sizeof d.ids[0]}));
  });
  std::sort(lengths.begin(), lengths.end());
  const auto quantile = [&](std::size_t hundredths) {
    return lengths.empty() ? 0 : lengths[(lengths.size() - 1) * hundredths / 100];
  };
  s.shortest = quantile(0), s.median = quantile(50), s.p90 = quantile(90), s.p99 = quantile(99);
  s.longest = quantile(100);
  s.duplicates = count_duplicates(hashes);
  if (encoder.chat_template()) s.chat_template = encoder.chat_template()->name;
  s.missing_tokens.assign(encoder.missing_tokens().begin(), encoder.missing_tokens().end());
  return s;
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

std::vector<ShownRecord> show_records(const RecordToolOptions& o, std::uint64_t first, std::uint64_t count) {
  require_records(o);
  const std::unique_ptr<Tokenizer> tokenizer = make_tokenizer(o.tokenizer);
  DocumentEncoder encoder(*tokenizer, o.records);
  records::RecordCounts counts;
  std::vector<ShownRecord> shown;
  std::uint64_t number = 0;
  try {
    read_record_files(o.files, o.records, counts, [&](records::Record& record, const Where& where) {
      if (++number < first) return;
      const Document d = encoder.encode(record);
      shown.push_back({where, encoder.parts(record), d.ids.size(), counted_in(d.trained)});
      if (shown.size() >= count) throw Enough{};
    });
  } catch (const Enough&) {
  }
  if (shown.empty())
    throw usage_error("there is no record " + format_count(first) + ": the files have " +
                      format_count(number));
  return shown;
}

}  // namespace trainhost::data
