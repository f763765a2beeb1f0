// The interface of core/data: token ids to train on, and the order of samples, which is a pure function of
// seed and position, so resuming needs no state. Sources: text tokenized by core/tokenizer, raw .bin files,
// llm.c's .bin files, records (conversations, prompts, documents), the built-in text.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/base/phase_sink.hpp"
#include "core/records/chat_template.hpp"
#include "core/records/record_reader.hpp"
#include "core/tokenizer/tokenizer.hpp"

namespace trainhost::data {

/// A text as token ids. Thread-safe for reading. Errors: Error(kUsage) with file and offset of an invalid id.
class Tokens {
 public:
  virtual ~Tokens() = default;
  virtual std::uint64_t size() const = 0;
  /// Copies ids [first, first + out.size()) as int32; the range must be within [0, size()).
  virtual void read(std::uint64_t first, std::span<std::int32_t> out) const = 0;
  /// Host memory that the ids occupy, in bytes; part of the plan. 0 if they are read from a file or
  /// generated.
  virtual std::uint64_t held_bytes() const = 0;
};

using tokenizer::Tokenizer;
/// `what`: "bytes", or the path of a SentencePiece .model or of a tokenizer.json (any name that ends in
/// .json). Errors: Error(kUsage) on anything else.
std::unique_ptr<Tokenizer> make_tokenizer(const std::string& what);

/// A target that is not counted in the loss; the value is that of the SDK and of PyTorch.
inline constexpr std::int32_t kNotCounted = -100;

/// One source of a mixture.
struct MixturePart {
  std::uint64_t samples = 0;
  double weight = 0;  // its share of the order is weight / sum of all weights
};

/// Training sequences of seq_len tokens. Thread-safe for reading. Errors: those of reading files.
class Samples {
 public:
  virtual ~Samples() = default;
  virtual std::uint64_t size() const = 0;
  /// Fills tokens [seq_len] and targets [seq_len] of one sample. A target is the token after its position, or
  /// kNotCounted. starts [seq_len], or empty: the index of the first token of each token's document, before
  /// which the token must not attend to any other.
  virtual void read(std::uint64_t sample, std::span<std::int32_t> tokens, std::span<std::int32_t> targets,
                    std::span<std::int32_t> starts = {}) const = 0;
  /// The sources that are mixed, whose samples follow each other in [0, size()). Empty: one source.
  virtual std::span<const MixturePart> parts() const { return {}; }
};
/// The samples of a continuous text, which must outlive them: sample i has the inputs [i*S, i*S+S) and the
/// targets [i*S+1, i*S+S+1). The whole text counts as one document, cut at the ends of samples.
std::unique_ptr<Samples> stream_samples(const Tokens& tokens, std::uint32_t seq_len);
/// The same of tokens [first, first + count).
std::unique_ptr<Samples> stream_samples(const Tokens& tokens, std::uint32_t seq_len, std::uint64_t first,
                                        std::uint64_t count);
/// The samples of several sources, each with at least one. `weights`: one per source; empty: the sources
/// follow each other and are not mixed.
std::unique_ptr<Samples> joined_samples(std::vector<std::unique_ptr<Samples>> sources,
                                        const std::vector<double>& weights = {});

/// How records (.jsonl, .json, .csv, .tsv) become sequences.
struct RecordOptions {
  records::RecordKeys keys;
  records::OnError on_error = records::OnError::kStop;
  records::LossOn loss_on = records::LossOn::kCompletions;
  std::string chat_template = "auto";  // the name of a built-in one, or that of the model
  /// Folders that may have the tokenizer_config.json or chat_template.jinja of the model, in this order.
  std::vector<std::filesystem::path> model_folders;
  bool packing = false;  // several documents in one sequence
  // Names of special tokens in plain texts ("<|endoftext|>") are special tokens, as transformers reads them;
  // in conversations and prompts they are text.
  bool special_tokens = true;
};

/// One source of the training data: the files of one weight, or all files.
struct SourceFiles {
  std::string name;             // "chat.jsonl", "3 files"
  std::uint64_t documents = 0;  // of records, after truncation; 0: a text
  std::uint64_t tokens = 0;     // for training
};

struct Source {
  std::string name;  // "stories", "input.txt", "3 files"
  std::unique_ptr<Tokens> train,
      valid;  // of texts and token files; valid is null if there is no validation text
  std::unique_ptr<Samples> train_samples, valid_samples;  // of every source; valid_samples: null as above
  std::uint64_t tokens = 0;                               // for training
  std::vector<SourceFiles> sources;     // in the order of train_samples->parts(); one if nothing is mixed
  std::optional<double> entropy_nats;   // built-in text: exact entropy per token of the validation text
  std::optional<double> entropy_error;  // its standard error over the windows
  bool unknown_text = false;            // ids of a .bin file without a tokenizer cannot be decoded to text
  std::string content;             // hash over the training files and the tokenizer, if OpenOptions::identify
  std::string valid_content;       // the same of OpenOptions::valid; "" without
  std::vector<std::string> notes;  // what the user should know, for example that a damaged file was replaced
};

struct OpenOptions {
  std::vector<std::filesystem::path> train, valid;  // both empty = the built-in text
  // Weights of the sources that are mixed, and the number of files of each, consecutive in `train`. Empty:
  // all files are one source.
  std::vector<double> weights;
  std::vector<std::size_t> source_files;
  double valid_fraction = 0;
  std::string tokenizer = "bytes";
  std::string dtype;          // of .bin files: "", "uint16", "uint32"
  std::uint64_t vocab = 256;  // every id must be below
  std::uint64_t seed = 1337;
  std::uint32_t seq_len = 256;      // window length of the built-in text
  std::filesystem::path cache_dir;  // folder for tokenized text, which is then read from there
  bool identify = false;            // compute Source::content; reads every file once
  bool any_text = false;  // also read files as text whose names say that they are something else (.gz)
  RecordOptions records;
  std::function<bool()> cancelled;  // asked while files are read; true: open_source() throws Cancelled
  PhaseSink progress;               // how far reading and tokenizing is
};
/// What open_source() throws when OpenOptions::cancelled says so. Nothing was written.
struct Cancelled {};
Source open_source(const OpenOptions& o);

/// For functions of this module that read a file: reports `what` to o.progress, and throws Cancelled where
/// o.cancelled says so. `o` must outlive it.
inline OnRead report_reading(const OpenOptions& o, std::string what, std::uint64_t total_bytes) {
  return [&o, what = std::move(what), total_bytes](std::uint64_t bytes) {
    if (o.cancelled && o.cancelled()) throw Cancelled{};
    if (o.progress) o.progress(what, bytes, total_bytes);
  };
}

/// Throws usage_error if the name of a file says that it is not text: the model would learn the syntax of the
/// format, or compressed bytes, and nothing would look wrong. `bytes`: the setting that reads it all the
/// same; "" = none.
void require_text(const std::filesystem::path& path, const std::string& bytes);

/// Host memory in bytes that open_source() would need, without opening anything; for plans.
std::uint64_t planned_held_bytes(const OpenOptions& o);

/// Order of samples. N tokens have floor((N-1)/S) samples of S = seq_len tokens. Inputs of sample i are
/// tokens [i*S, i*S+S); its targets are tokens [i*S+1, i*S+S+1).
class Order {
 public:
  Order(std::uint64_t tokens, std::uint32_t seq_len, bool shuffled, std::uint64_t seed);
  /// The order of `samples` samples, at least one.
  static Order of_samples(std::uint64_t samples, bool shuffled, std::uint64_t seed);
  /// The order of these samples; sources that are mixed alternate in the proportion of their weights. Each
  /// has an order of its own, which repeats only after all its samples; samples() is the sum over the
  /// sources.
  static Order of(const Samples& samples, bool shuffled, std::uint64_t seed);
  std::uint64_t samples() const { return samples_; }
  /// The sample at `position` of the endless sequence: position = (t-1)*n + k for sample k of n in step t.
  /// Shuffled: every epoch is a new permutation of all samples, computed in O(1) memory as a keyed bijection.
  std::uint64_t sample(std::uint64_t position) const;

 private:
  Order(bool shuffled, std::uint64_t seed) : shuffled_(shuffled), seed_(seed) {}
  std::uint64_t samples_ = 0;
  bool shuffled_;
  std::uint64_t seed_;
  // Of a mixture, by source: its order, the index of its first sample, and its share of the positions that
  // the sources before it leave, in units of 2^-32.
  std::vector<Order> orders_;
  std::vector<std::uint64_t> firsts_, shares_;
};

}  // namespace trainhost::data
