// Opens the training and validation data of a run: the built-in text, or files of text and token ids. Reading
// is in token_files.cpp, the built-in text in stories.cpp, tokenizing in tokenizer.cpp.
#include <algorithm>
#include <cmath>
#include <span>
#include <system_error>

#include "core/base/error.hpp"
#include "core/base/json_value.hpp"
#include "core/base/plural.hpp"
#include "core/base/text.hpp"
#include "core/data/content_hashes.hpp"
#include "core/data/documents.hpp"
#include "core/data/encode_file.hpp"
#include "core/data/record_source.hpp"
#include "core/data/stories.hpp"
#include "core/data/token_files.hpp"
#include "core/records/record_json.hpp"

namespace trainhost::data {
namespace fs = std::filesystem;
namespace {

/// S inputs and S targets shifted by one need S + 1 tokens.
void require_sample(const std::string& what, std::uint64_t tokens, std::uint32_t seq_len) {
  if (tokens > seq_len) return;
  throw usage_error(what + " has " + plural(tokens, "token") + "; a sample of data.seq_len = " +
                        format_count(seq_len) + " needs " + format_count(std::uint64_t{seq_len} + 1),
                    "use a longer text, a smaller data.seq_len or another data.valid_fraction");
}

/// Ids of a token file that was made from `text`. Reading fails when the text is written to, as it does for a
/// text by bytes: a run resumed later would be refused, because the content of its data differs. The text is
/// not kept open: a run may have as many texts as a process may have open files.
class TokenizedText final : public Tokens {
 public:
  TokenizedText(const InputFile& text, std::unique_ptr<Tokens> ids)
      : text_(text.path()), opened_(text.state()), ids_(std::move(ids)) {}
  std::uint64_t size() const override { return ids_->size(); }
  std::uint64_t held_bytes() const override { return ids_->held_bytes(); }
  void read(std::uint64_t first, std::span<std::int32_t> out) const override {
    require_unchanged(text_, opened_);
    ids_->read(first, out);
  }

 private:
  fs::path text_;
  FileState opened_;
  std::unique_ptr<Tokens> ids_;
};

// Tokenized texts are cached as token files whose name is the hash of text and tokenizer model, so a changed
// text or model never uses an old file. Beside KEY.bin, KEY.xxh3 has the hash of its content, which is
// compared each time it is opened: a damaged file is written again. The cache may be shared by concurrent
// runs: both write the same content, and each rename is complete.
class TokenCache {
 public:
  TokenCache(const Tokenizer& tokenizer, const OpenOptions& o)
      : tokenizer_(tokenizer),
        options_(o),
        folder_(o.cache_dir),
        vocab_(o.vocab),
        names_(o.records.special_tokens ? tokenizer::Names::kSpecial : tokenizer::Names::kText) {
    if (folder_.empty()) throw usage_error("the text must be tokenized, but no cache folder is set");
    model_hash_ = content_hash(InputFile(o.tokenizer));
  }

  /// Leading "1" in the key: the version of the encoding. A change of the piece length changes the tokens at
  /// the ends of pieces, so it is part of the key, too.
  std::string key(const InputFile& text) const {
    const std::string version = tokenizer_.version();
    return content_hash("1 " + std::to_string(kEncodePiece) + " " +
                        content_hash(text, reading("reading ", text)) + " " + model_hash_ +
                        (version.empty() ? "" : " " + version) +
                        (names_ == tokenizer::Names::kSpecial ? " special" : ""));
  }

  std::unique_ptr<Tokens> tokens(const InputFile& text, const std::string& key,
                                 std::vector<std::string>& notes) const {
    const fs::path path = folder_ / (key + ".bin");
    if (auto cached = cached_tokens(text, path, notes)) return cached;
    std::error_code ec;
    fs::create_directories(folder_, ec);
    if (ec)
      throw run_error("folder " + in_quotes(folder_) +
                      " for tokenized text cannot be created: " + ec.message());
    remove_abandoned(folder_);
    TokenWriter writer(path, needs_uint32(tokenizer_.vocab()), true);
    encode_file(
        text, tokenizer_, names_, [&](std::span<const std::int32_t> ids) { writer.append(ids); },
        kEncodePiece, reading("tokenizing ", text));
    if (writer.count() == 0)
      throw usage_error("data file " + in_quotes(text.path()) + " has no tokens under " + tokenizer_.name());
    text.require_unchanged();
    writer.commit();
    // The file just written is opened like any other, so the ids are checked again when they are read.
    InputFile file(path);
    write_hash_beside(path, reading("reading tokens of ", text, file.size()));
    const TokenFormat format = bin_format(file, "", vocab_);
    return file_tokens(std::move(file), format, vocab_);
  }

 private:
  /// Null if there is no usable file. Errors are not reported: the text is then tokenized again, and a real
  /// problem of the folder shows up there.
  std::unique_ptr<Tokens> cached_tokens(const InputFile& text, const fs::path& path,
                                        std::vector<std::string>& notes) const {
    std::error_code ec;
    if (!fs::exists(path, ec)) return nullptr;
    try {
      InputFile file(path);
      if (agrees_with_hash_beside(file, reading("reading tokens of ", text, file.size()))) {
        const TokenFormat format = bin_format(file, "", vocab_);
        return file_tokens(std::move(file), format, vocab_);
      }
    } catch (const Error&) {
    }
    notes.push_back("the tokenized text " + in_quotes(path) +
                    " was incomplete or damaged and is written again");
    return nullptr;
  }

  OnRead reading(const char* what, const InputFile& text) const { return reading(what, text, text.size()); }
  OnRead reading(const char* what, const InputFile& text, std::uint64_t bytes) const {
    return report_reading(options_, what + text.path().filename().string(), bytes);
  }

  const Tokenizer& tokenizer_;
  const OpenOptions& options_;
  fs::path folder_;
  std::uint64_t vocab_;
  tokenizer::Names names_;
  std::string model_hash_;
};

/// True if the first line of a text is a JSON object with the keys of a record.
bool begins_with_record(const InputFile& file, const records::RecordKeys& keys) {
  std::string text(std::min<std::uint64_t>(file.size(), std::uint64_t{1} << 16), '\0');
  file.read(0, std::as_writable_bytes(std::span(text)));
  if (!text.starts_with('{')) return false;
  try {
    (void)records::record_of(parse_json(text.substr(0, text.find('\n'))), keys);
    return true;
  } catch (const JsonError&) {
    return false;
  }
}

/// Opens the files of a run. The tokenizer is loaded at most once and shared by training and validation text.
class FileOpener {
 public:
  explicit FileOpener(const OpenOptions& o) : o_(o) {}

  /// `content`: gets one hash per file.
  std::unique_ptr<Tokens> open(const std::vector<fs::path>& paths, std::string* content = nullptr) {
    content_ = content;
    std::vector<std::unique_ptr<Tokens>> parts;
    for (const fs::path& p : paths) parts.push_back(open_one(p));
    return joined(std::move(parts));
  }

  std::vector<std::string> notes;

 private:
  /// The extension decides, not the content: a text may begin with any bytes.
  std::unique_ptr<Tokens> open_one(const fs::path& path) {
    InputFile file(path);
    if (file.size() == 0) throw usage_error("data file " + in_quotes(path) + " is empty");
    if (path.extension() == ".bin") {
      const TokenFormat format = bin_format(file, o_.dtype, o_.vocab);
      if (content_) *content_ += std::string(name(format.form)) + " " + hash_of(file) + "\n";
      return file_tokens(std::move(file), format, o_.vocab);
    }
    if (!o_.any_text) {
      require_text(path, "data.tokenizer = \"bytes\"");
      if (begins_with_record(file, o_.records.keys))
        notes.push_back("data file " + in_quotes(path) +
                        " begins with a record, and is read as text because of its name: name it .jsonl to "
                        "train on its records");
    }
    if (o_.tokenizer == "bytes") {
      const TokenFormat format{TokenForm::kBytes, 1, 0, file.size()};
      if (content_) *content_ += "bytes " + hash_of(file) + "\n";
      return file_tokens(std::move(file), format, o_.vocab);
    }
    const std::string key = cache().key(file);
    if (content_) *content_ += "tokens " + key + "\n";
    auto ids = cache().tokens(file, key, notes);
    return std::make_unique<TokenizedText>(file, std::move(ids));
  }

  std::string hash_of(const InputFile& file) const {
    return kept_content_hash(file, o_.cache_dir,
                             report_reading(o_, "reading " + file.path().filename().string(), file.size()));
  }

  // Loads the tokenizer for the first text that needs it; token files do not need it.
  TokenCache& cache() {
    if (cache_) return *cache_;
    tokenizer_ = tokenizer_for(o_, notes);
    // TokenCache keeps a reference to *tokenizer_, which this object owns and never replaces.
    return cache_.emplace(*tokenizer_, o_);
  }

  const OpenOptions& o_;
  std::string* content_ = nullptr;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::optional<TokenCache> cache_;
};

void add_samples(Source& s, std::uint32_t seq_len) {
  s.tokens = s.train->size();
  if (s.sources.empty()) s.sources = {{s.name, 0, s.tokens}};
  if (!s.train_samples) s.train_samples = stream_samples(*s.train, seq_len);
  if (s.valid) s.valid_samples = stream_samples(*s.valid, seq_len);
}

/// The built-in text is always tokenized by bytes and all its characters are ASCII; its exact entropy holds
/// only for that tokenization.
Source open_stories(const OpenOptions& o) {
  if (o.valid_fraction != 0)
    throw usage_error(
        "data.valid_fraction cannot be combined with the built-in text, which has its own validation text",
        "set data.train");
  if (o.tokenizer != "bytes")
    throw usage_error(
        "the built-in text is tokenized by bytes, but data.tokenizer is '" + escaped(o.tokenizer) + "'",
        "set data.train");
  if (o.vocab < 128)
    throw usage_error("the built-in text requires model.vocab_size >= 128, got " + std::to_string(o.vocab));
  const std::uint64_t windows = valid_windows(o.seq_len);
  // About 10 ms for the default sequence length.
  const StoryEntropy entropy = story_entropy(o.seed, StoryStream::kValid, windows, o.seq_len);
  Source s;
  s.name = "stories";
  s.train = story_tokens(o.seed, StoryStream::kTrain, kTrainWindows, o.seq_len);
  s.valid = story_tokens(o.seed, StoryStream::kValid, windows, o.seq_len);
  s.entropy_nats = entropy.nats, s.entropy_error = entropy.error;
  add_samples(s, o.seq_len);
  return s;
}

/// The last part, not random samples: neighbouring samples of one document would be in both parts.
void split_validation(Source& s, double fraction) {
  if (!(fraction > 0 && fraction < 1))
    throw usage_error("data.valid_fraction is " + std::to_string(fraction) + "; expected a number in [0, 1)");
  const std::uint64_t all = s.train->size();
  // Rounded down; min() because the product is a double and may round up above 2^53.
  const auto last = static_cast<std::uint64_t>(static_cast<double>(all) * fraction);
  std::tie(s.train, s.valid) = split_last(std::move(s.train), std::min(last, all));
}

/// Files that are mixed: each source has its own samples, and its own end that is used for validation.
void open_mixture(Source& s, FileOpener& opener, const OpenOptions& o) {
  std::vector<std::unique_ptr<Tokens>> train, valid;
  std::vector<std::uint64_t> sizes;
  for (std::size_t i = 0, first = 0; i < o.source_files.size(); first += o.source_files[i++]) {
    const std::vector<fs::path> files(
        o.train.begin() + static_cast<std::ptrdiff_t>(first),
        o.train.begin() + static_cast<std::ptrdiff_t>(first + o.source_files[i]));
    Source one;
    std::string content;
    one.train = opener.open(files, o.identify ? &content : nullptr);
    if (o.identify) s.content += weight_line(o.weights[i], content);
    if (o.valid_fraction != 0) split_validation(one, o.valid_fraction), valid.push_back(std::move(one.valid));
    require_sample("the training text '" + escaped(source_name(files)) + "'", one.train->size(), o.seq_len);
    sizes.push_back(one.train->size());
    s.sources.push_back({source_name(files), 0, one.train->size()});
    train.push_back(std::move(one.train));
  }
  s.train = joined(std::move(train));
  if (!valid.empty()) s.valid = joined(std::move(valid));
  std::vector<std::unique_ptr<Samples>> samples;
  std::uint64_t at = 0;
  for (const std::uint64_t size : sizes)
    samples.push_back(stream_samples(*s.train, o.seq_len, at, size)), at += size;
  s.train_samples = joined_samples(std::move(samples), o.weights);
}

}  // namespace

std::string source_name(const std::vector<fs::path>& paths) {
  return paths.size() == 1 ? paths.front().filename().string() : std::to_string(paths.size()) + " files";
}

void require_text(const fs::path& path, const std::string& bytes) {
  struct Format {
    const char *extension, *name, *hint;
  };
  static constexpr const char* kConvert = "write its texts into a .txt file";
  static constexpr const char* kRecords =
      "data.train reads its records; `trainhost data stats` counts their tokens";
  static constexpr Format kFormats[] = {
      {".jsonl", "JSON Lines", kRecords},
      {".ndjson", "JSON Lines", kRecords},
      {".json", "JSON", kRecords},
      {".csv", "a table", kRecords},
      {".tsv", "a table", kRecords},
      {".parquet", "a Parquet table", kConvert},
      {".arrow", "an Arrow table", kConvert},
      {".gz", "compressed", "decompress it first"},
      {".zst", "compressed", "decompress it first"},
      {".xz", "compressed", "decompress it first"},
      {".bz2", "compressed", "decompress it first"},
      {".zip", "an archive", "unpack it first"},
      {".tar", "an archive", "unpack it first"},
      {".npy", "a NumPy array", "write its ids as uint16 or uint32 into a .bin file"},
      {".safetensors", "a file of tensors", "give a text or a .bin file of token ids"},
      {".pt", "a pickle", "give a text or a .bin file of token ids"}};
  std::string extension = path.extension().string();
  for (char& c : extension) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
  for (const Format& f : kFormats)
    if (extension == f.extension)
      throw usage_error("data file " + in_quotes(path) + " is " + f.name + ", which is not read as text",
                        f.hint + (bytes.empty() ? "" : "; " + bytes + " reads its raw bytes"));
}

/// Errors about combinations of keys come before any file is opened, so that the first message is the most
/// useful one.
Source open_source(const OpenOptions& o) {
  if (o.seq_len == 0) throw usage_error("data.seq_len is 0; expected at least 1");
  if (o.train.empty() && !o.valid.empty())
    throw usage_error("data.valid is given without data.train", "set data.train");
  if (o.train.empty()) return open_stories(o);
  if (!o.valid.empty() && o.valid_fraction != 0)
    throw usage_error("data.valid and data.valid_fraction cannot be combined");
  if (!o.any_text)
    for (const auto* paths : {&o.train, &o.valid}) std::for_each(paths->begin(), paths->end(), refuse_tables);
  const auto any_records = [](const std::vector<fs::path>& paths) {
    return std::any_of(paths.begin(), paths.end(), is_record_file);
  };
  if (any_records(o.train) || any_records(o.valid)) return open_record_source(o);
  FileOpener opener(o);
  Source s;
  s.name = source_name(o.train);
  if (o.weights.empty())
    s.train = opener.open(o.train, o.identify ? &s.content : nullptr);
  else
    open_mixture(s, opener, o);
  if (o.identify) s.content = content_hash(s.content);
  // Generated ids cannot be printed as text: a .bin file does not name its tokenizer, and ids above 255 show
  // that it is not bytes.
  s.unknown_text =
      o.tokenizer == "bytes" && o.vocab > 256 &&
      std::any_of(o.train.begin(), o.train.end(), [](const fs::path& p) { return p.extension() == ".bin"; });
  if (!o.valid.empty()) {
    s.valid = opener.open(o.valid, o.identify ? &s.valid_content : nullptr);
    if (o.identify) s.valid_content = content_hash(s.valid_content);
  } else if (o.valid_fraction != 0 && o.weights.empty()) {
    split_validation(s, o.valid_fraction);
  }
  require_sample("the training text '" + escaped(s.name) + "'", s.train->size(), o.seq_len);
  if (s.valid)
    require_sample(o.valid.empty() ? "the validation part of '" + escaped(s.name) + "'"
                                   : "the validation text '" + escaped(source_name(o.valid)) + "'",
                   s.valid->size(), o.seq_len);
  s.notes = std::move(opener.notes);
  add_samples(s, o.seq_len);
  note_mixture(s);
  return s;
}

// Files are read on demand and the built-in text is generated on demand, so no source stores tokens. The
// tests compare this with held_bytes() of every kind of source.
std::uint64_t planned_held_bytes(const OpenOptions&) { return 0; }

}  // namespace trainhost::data
