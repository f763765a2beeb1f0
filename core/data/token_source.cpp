// Opens what a run reads: the built-in stories, or files of text and token ids, with their validation part.
// Decides only; reading is token_files.cpp's, telling stories.cpp's, tokenizing tokenizer.cpp's.
#include <algorithm>
#include <cmath>
#include <system_error>

#include "core/base/error.hpp"
#include "core/base/text.hpp"
#include "core/data/stories.hpp"
#include "core/data/token_files.hpp"
#include "core/data/tokenizer.hpp"

namespace trainhost::data {
namespace fs = std::filesystem;
namespace {

void require_sample(const std::string& what, std::uint64_t tokens, std::uint32_t seq_len) {
  if (tokens > seq_len) return;
  throw usage_error(what + " has " + format_count(tokens) + " tokens; one sample of data.seq_len = " +
                        format_count(seq_len) + " needs " + format_count(std::uint64_t{seq_len} + 1),
                    "a longer text, a smaller data.seq_len, or another data.valid_fraction");
}

// A text that needs tokenizing becomes a token file in the cache, named after the content of text and model,
// so that a changed text or model never meets an old file. Written whole or not at all; a damaged one is
// written anew.
class TokenCache {
 public:
  TokenCache(const Tokenizer& tokenizer, const OpenOptions& o)
      : tokenizer_(tokenizer), folder_(o.cache_dir), vocab_(o.vocab) {
    if (folder_.empty())
      throw usage_error("text needs tokenizing, but there is no folder to keep the result in");
    model_hash_ = content_hash(InputFile(o.tokenizer));
  }

  std::unique_ptr<Tokens> tokens(const InputFile& text) const {
    const std::string key =
        content_hash("1 " + std::to_string(kEncodePiece) + " " + content_hash(text) + " " + model_hash_);
    const fs::path path = folder_ / (key + ".bin");
    if (auto kept = kept_tokens(path)) return kept;
    std::error_code ec;
    fs::create_directories(folder_, ec);
    if (ec)
      throw run_error("folder " + in_quotes(folder_) + " for tokenized text cannot be made: " + ec.message());
    TokenWriter writer(path, needs_uint32(tokenizer_.vocab()), true);
    encode_file(text, tokenizer_, [&](std::span<const std::int32_t> ids) { writer.append(ids); });
    if (writer.count() == 0)
      throw usage_error("data file " + in_quotes(text.path()) + " has no tokens under " + tokenizer_.name());
    writer.commit();
    InputFile file(path);
    const TokenLayout layout = bin_layout(file, "", vocab_);
    return file_tokens(std::move(file), layout, vocab_);
  }

 private:
  std::unique_ptr<Tokens> kept_tokens(const fs::path& path) const {
    std::error_code ec;
    if (!fs::exists(path, ec)) return nullptr;
    try {
      InputFile file(path);
      const TokenLayout layout = bin_layout(file, "", vocab_);
      const bool ours = layout.form == TokenForm::kLlmcUint16 || layout.form == TokenForm::kLlmcUint32;
      return ours ? file_tokens(std::move(file), layout, vocab_) : nullptr;
    } catch (const Error&) {
      return nullptr;
    }
  }

  const Tokenizer& tokenizer_;
  fs::path folder_;
  std::uint64_t vocab_;
  std::string model_hash_;
};

class FileOpener {
 public:
  explicit FileOpener(const OpenOptions& o) : o_(o) {}

  std::unique_ptr<Tokens> open(const std::vector<fs::path>& paths) {
    std::vector<std::unique_ptr<Tokens>> parts;
    for (const fs::path& p : paths) parts.push_back(open_one(p));
    return joined(std::move(parts));
  }

 private:
  std::unique_ptr<Tokens> open_one(const fs::path& path) {
    InputFile file(path);
    if (file.size() == 0) throw usage_error("data file " + in_quotes(path) + " is empty");
    if (path.extension() == ".bin") {
      const TokenLayout layout = bin_layout(file, o_.dtype, o_.vocab);
      return file_tokens(std::move(file), layout, o_.vocab);
    }
    if (o_.tokenizer == "bytes") {
      const TokenLayout layout{TokenForm::kBytes, 1, 0, file.size()};
      return file_tokens(std::move(file), layout, o_.vocab);
    }
    return cache().tokens(file);
  }

  // The tokenizer is loaded for the first text that needs it, never for token files alone.
  TokenCache& cache() {
    if (cache_) return *cache_;
    tokenizer_ = make_tokenizer(o_.tokenizer);
    if (tokenizer_->vocab() > o_.vocab)
      throw usage_error("tokenizer " + in_quotes(o_.tokenizer) + " has " + format_count(tokenizer_->vocab()) +
                            " pieces, but model.vocab_size is " + format_count(o_.vocab),
                        "set model.vocab_size = " + std::to_string(tokenizer_->vocab()));
    return cache_.emplace(*tokenizer_, o_);
  }

  const OpenOptions& o_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::optional<TokenCache> cache_;
};

Source open_stories(const OpenOptions& o) {
  if (o.valid_fraction != 0)
    throw usage_error(
        "data.valid_fraction cannot be used with the built-in text, which has a validation part of its own",
        "name a text in data.train");
  if (o.tokenizer != "bytes")
    throw usage_error(
        "the built-in text is read by bytes, but data.tokenizer is '" + escaped(o.tokenizer) + "'",
        "name a text in data.train");
  if (o.vocab < 128)
    throw usage_error("the built-in text needs model.vocab_size of 128 or more, not " +
                      std::to_string(o.vocab));
  const std::uint64_t windows = valid_windows(o.seq_len);
  const Floor floor = story_floor(o.seed, StoryStream::kValid, windows, o.seq_len);
  return {"stories", story_tokens(o.seed, StoryStream::kTrain, kTrainWindows, o.seq_len),
          story_tokens(o.seed, StoryStream::kValid, windows, o.seq_len), floor.nats, floor.error};
}

std::string source_name(const std::vector<fs::path>& paths) {
  return paths.size() == 1 ? paths.front().filename().string() : std::to_string(paths.size()) + " files";
}

void split_validation(Source& s, double fraction) {
  if (!(fraction > 0 && fraction < 1))
    throw usage_error("data.valid_fraction is " + std::to_string(fraction) +
                      "; it must be at least 0 and below 1");
  const std::uint64_t all = s.train->size();
  const auto last = static_cast<std::uint64_t>(static_cast<double>(all) * fraction);
  std::tie(s.train, s.valid) = split_last(std::move(s.train), std::min(last, all));
}

}  // namespace

Source open_source(const OpenOptions& o) {
  if (o.seq_len == 0) throw usage_error("data.seq_len is 0: a sample needs at least one token");
  if (o.train.empty() && !o.valid.empty())
    throw usage_error("data.valid is given without data.train", "name the training text too");
  if (o.train.empty()) return open_stories(o);
  if (!o.valid.empty() && o.valid_fraction != 0)
    throw usage_error("data.valid and data.valid_fraction exclude each other");
  FileOpener opener(o);
  Source s{source_name(o.train), opener.open(o.train), nullptr, std::nullopt, std::nullopt};
  s.untold =
      o.tokenizer == "bytes" && o.vocab > 256 &&
      std::any_of(o.train.begin(), o.train.end(), [](const fs::path& p) { return p.extension() == ".bin"; });
  if (!o.valid.empty())
    s.valid = opener.open(o.valid);
  else if (o.valid_fraction != 0)
    split_validation(s, o.valid_fraction);
  require_sample("the training text '" + escaped(s.name) + "'", s.train->size(), o.seq_len);
  if (s.valid)
    require_sample(o.valid.empty() ? "the validation part of '" + escaped(s.name) + "'"
                                   : "the validation text '" + escaped(source_name(o.valid)) + "'",
                   s.valid->size(), o.seq_len);
  return s;
}

// Files are read where they lie and stories are told on demand, so no source holds tokens. The tests compare
// this with held_bytes() of every kind of source.
std::uint64_t planned_held_bytes(const OpenOptions&) { return 0; }

}  // namespace trainhost::data
