// Token ids to train on, and which of them make sample i of step t: a pure function of the seed and the step,
// so that resuming needs no state. Sources: text by bytes or by SentencePiece, raw .bin, llm.c .bin, the
// built-in stories.
#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace trainhost::data {

/// A text as token ids. Thread-safe for reading. Errors: Error(kUsage) naming file and offset of a bad id.
class Tokens {
 public:
  virtual ~Tokens() = default;
  virtual std::uint64_t size() const = 0;
  /// Copies ids [first, first + out.size()) as int32. Range must lie inside.
  virtual void read(std::uint64_t first, std::span<std::int32_t> out) const = 0;
  /// Bytes held in memory of our own (0 for mapped files): part of the plan.
  virtual std::uint64_t held_bytes() const = 0;
};

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  virtual std::uint64_t vocab() const = 0;
  virtual std::vector<std::int32_t> encode(std::string_view text) const = 0;
  virtual std::string decode(std::span<const std::int32_t> ids) const = 0;
  virtual std::string name() const = 0;  // "bytes", "SentencePiece bpe"
};
/// "bytes", or the path of a SentencePiece .model.
std::unique_ptr<Tokenizer> make_tokenizer(const std::string& what);

struct Source {
  std::string name;                      // "stories", "input.txt", "3 files"
  std::unique_ptr<Tokens> train, valid;  // valid may be null
  std::optional<double> entropy_nats;   // per token, of the built-in text's validation part under the grammar
  std::optional<double> entropy_error;  // one standard error of that mean over the windows
  bool untold = false;  // ids of a .bin that are no bytes, without a tokenizer: nobody knows what they say
};

struct OpenOptions {
  std::vector<std::filesystem::path> train, valid;  // both empty = the built-in stories
  double valid_fraction = 0;
  std::string tokenizer = "bytes";
  std::string dtype;          // of .bin files: "", "uint16", "uint32"
  std::uint64_t vocab = 256;  // ids must be below
  std::uint64_t seed = 1337;
  std::uint32_t seq_len = 256;      // windows of the built-in validation text
  std::filesystem::path cache_dir;  // where tokenized text goes as a .bin, so that it is mapped, not held
};
Source open_source(const OpenOptions& o);

/// Bytes that open_source() would hold in memory, without opening anything: for `plan`.
std::uint64_t planned_held_bytes(const OpenOptions& o);

/// Order of samples. N tokens have floor((N-1)/S) samples; sample i is tokens [i*S, i*S+S), its targets one
/// further.
class Order {
 public:
  Order(std::uint64_t tokens, std::uint32_t seq_len, bool shuffled, std::uint64_t seed);
  std::uint64_t samples() const { return samples_; }
  /// Which sample stands at position p of the endless sequence (p = (t-1)*n + k). Shuffled: a fresh
  /// permutation of all samples every epoch, computed in O(1) memory (a keyed bijection), never a stored
  /// table.
  std::uint64_t sample(std::uint64_t position) const;

 private:
  std::uint64_t samples_;
  std::uint32_t seq_len_;
  bool shuffled_;
  std::uint64_t seed_;
};

}  // namespace trainhost::data
