// The functions behind `trainhost data info` and `trainhost data tokenize`; see data_tools.hpp. Texts are
// read in pieces, so a file may be larger than memory.
#include "core/data/data_tools.hpp"

#include <algorithm>
#include <array>
#include <cassert>
#include <cmath>
#include <unordered_map>

#include "core/base/error.hpp"
#include "core/base/text.hpp"
#include "core/data/encode_file.hpp"
#include "core/data/token_files.hpp"

namespace trainhost::data {
namespace fs = std::filesystem;
namespace {

// Counts how often each id occurs. Two tables: an array of 2^18 counters (2 MiB), which is one addition per
// token for nearly every vocabulary, and a hash map for larger ids of 32-bit files, which may be any number.
class IdCounter {
 public:
  explicit IdCounter(std::uint64_t vocab) : vocab_(vocab), low_(kLow) {}

  void add(std::span<const std::int32_t> ids) {
    // s_.tokens is the index of the current id here, since it is incremented afterwards.
    for (std::int32_t id : ids) {
      if (vocab_ != 0 && static_cast<std::uint64_t>(id) >= vocab_ && s_.outside++ == 0)
        s_.first_outside = s_.tokens;
      ++s_.tokens;
      if (static_cast<std::uint32_t>(id) < kLow)
        ++low_[static_cast<std::size_t>(id)];
      else
        ++high_[id];
    }
  }

  /// Sorted twice: by id for the extremes and a sum in a fixed order, then stably by count, so that ties stay
  /// ordered by id and the output does not depend on the hash map.
  Scan statistics(std::size_t top) {
    std::vector<IdCount> counts;
    for (std::size_t id = 0; id < low_.size(); ++id)
      if (low_[id] > 0) counts.push_back({static_cast<std::int32_t>(id), low_[id]});
    for (const auto& [id, count] : high_) counts.push_back({id, count});
    s_.distinct = counts.size();
    if (counts.empty()) return s_;
    std::sort(counts.begin(), counts.end(), [](const IdCount& a, const IdCount& b) { return a.id < b.id; });
    s_.min_id = counts.front().id;
    assert(s_.distinct > 0 && s_.tokens > 0);
    s_.max_id = counts.back().id;
    for (const IdCount& c : counts) {
      const double p = static_cast<double>(c.count) / static_cast<double>(s_.tokens);
      // Shannon entropy of the unigram distribution in nats per token.
      s_.entropy_nats -= p * std::log(p);
    }
    std::stable_sort(counts.begin(), counts.end(),
                     [](const IdCount& a, const IdCount& b) { return a.count > b.count; });
    counts.resize(std::min(counts.size(), top));
    s_.top = std::move(counts);
    return s_;
  }

 private:
  static constexpr std::uint32_t kLow = 1 << 18;  // ids counted in an array; most vocabularies are smaller
  std::uint64_t vocab_;
  std::vector<std::uint64_t> low_;
  std::unordered_map<std::int32_t, std::uint64_t> high_;
  Scan s_;
};

/// Ids outside the vocabulary are counted, not rejected: this command is how a user finds them.
FileInfo file_info(const fs::path& path, const InfoOptions& o, const Tokenizer* tokenizer) {
  InputFile file(path);
  if (file.size() == 0) throw usage_error("data file " + in_quotes(path) + " is empty");
  FileInfo f;
  f.file = path;
  f.bytes = file.size();
  std::uint64_t header = 0;
  if (path.extension() != ".bin" && tokenizer) {
    IdCounter counter(o.vocab);
    encode_file(file, *tokenizer, tokenizer::Names::kSpecial,
                [&](std::span<const std::int32_t> ids) { counter.add(ids); });
    f.form = "text by " + tokenizer->name();
    f.scan = counter.statistics(o.top);
  } else {
    const TokenFormat format = path.extension() == ".bin" ? bin_format(file, o.dtype, o.vocab)
                                                          : TokenFormat{TokenForm::kBytes, 1, 0, file.size()};
    header = format.first_byte;
    f.form = name(format.form);
    // UINT64_MAX instead of the vocabulary, so that reading does not throw at the first id outside.
    f.scan = scan(*file_tokens(std::move(file), format, UINT64_MAX), o.vocab, o.top);
    if (f.scan.first_outside) f.first_outside_byte = format.first_byte + *f.scan.first_outside * format.width;
  }
  if (f.scan.tokens > 0)
    f.bytes_per_token = static_cast<double>(f.bytes - header) / static_cast<double>(f.scan.tokens);
  return f;
}

}  // namespace

Scan scan(const Tokens& tokens, std::uint64_t vocab, std::size_t top) {
  IdCounter counter(vocab);
  std::array<std::int32_t, 4096> ids;
  for (std::uint64_t at = 0; at < tokens.size();) {
    const auto n = static_cast<std::size_t>(std::min<std::uint64_t>(ids.size(), tokens.size() - at));
    tokens.read(at, std::span(ids).first(n));
    counter.add(std::span(ids).first(n));
    at += n;
  }
  return counter.statistics(top);
}

std::vector<FileInfo> info(const InfoOptions& o) {
  std::unique_ptr<Tokenizer> tokenizer;  // null for bytes, whose ids are the bytes of the file
  if (o.tokenizer != "bytes") tokenizer = make_tokenizer(o.tokenizer);
  std::vector<FileInfo> all;
  for (const fs::path& p : o.files) all.push_back(file_info(p, o, tokenizer.get()));
  return all;
}

/// The order protects existing files: all inputs are opened and checked before the writer is created, and the
/// output is renamed into its place only after the last id.
Tokenized tokenize_to_bin(const std::vector<fs::path>& texts, const std::string& tokenizer,
                          const fs::path& out, const std::string& dtype, bool any_text) {
  const std::vector<std::string> dtypes{"uint16", "uint32"};
  if (!dtype.empty() && dtype != "uint16" && dtype != "uint32")
    throw usage_error("dtype is '" + escaped(dtype) + "'; expected uint16 or uint32" +
                      did_you_mean(dtype, dtypes));
  if (texts.empty()) throw usage_error("no text file is given");
  if (out.extension() != ".bin") throw usage_error("token file " + in_quotes(out) + " must end in .bin");
  const std::unique_ptr<Tokenizer> t = make_tokenizer(tokenizer);
  const bool wide = dtype.empty() ? needs_uint32(t->vocab()) : dtype == "uint32";
  std::vector<InputFile> files;
  for (const fs::path& p : texts) {
    files.emplace_back(p);
    if (p.extension() == ".bin")
      throw usage_error("data file " + in_quotes(p) + " already contains token ids (extension .bin)");
    if (files.back().size() == 0) throw usage_error("data file " + in_quotes(p) + " is empty");
    if (!any_text) require_text(p, "--tokenizer=bytes");
  }
  // No llm.c header: tools other than llm.c expect raw ids.
  TokenWriter writer(out, wide, false);
  Tokenized result;
  result.notes = t->notes();
  for (const InputFile& file : files) {
    encode_file(file, *t, tokenizer::Names::kSpecial,
                [&](std::span<const std::int32_t> ids) { writer.append(ids); });
    result.text_bytes += file.size();
  }
  writer.commit();
  result.tokens = writer.count();
  result.file_bytes = writer.count() * (wide ? 4 : 2);
  result.dtype = wide ? "uint32" : "uint16";
  return result;
}

}  // namespace trainhost::data
