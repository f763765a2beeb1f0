// The interface of core/tokenizer: text to token ids and back. Reads no files: the loaders get the content of
// a file. Which file is which kind of tokenizer: make_tokenizer() of core/data/dataset.hpp.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace trainhost::tokenizer {

/// What names of special tokens ("<|im_start|>") in a text mean. Texts of users are kText; the fixed parts of
/// a chat template are kSpecial. Added tokens that are not special are found in both.
enum class Names { kText, kSpecial };

/// A part of a text, see Tokenizer::encode_parts().
struct Part {
  std::string_view text;
  Names names = Names::kText;
};

/// The ids of a text made of parts.
struct PartIds {
  std::vector<std::int32_t> ids;
  /// One index per part: ids [ends[i-1], ends[i]) are those of part i, and ends.back() == ids.size(). An id
  /// with text of two parts (" wor" + "ld") is one of the later part.
  std::vector<std::size_t> ends;
  /// By part: the end of the ids that have text of the part, shared ones included; at least ends[i]. Empty if
  /// the tokenizer does not know.
  std::vector<std::size_t> text_ends;
};

/// Texts are UTF-8 for every tokenizer but bytes. All functions are const and thread-safe.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  virtual std::string name() const = 0;  // "bytes", "SentencePiece bpe", "tokenizer.json BPE"
  /// Number of ids: the highest id plus one.
  virtual std::uint64_t vocab() const = 0;

  /// The ids of a text, without begin and end tokens: see before() and after().
  std::vector<std::int32_t> encode(std::string_view text, Names names = Names::kText) const;

  /// A text that is larger than memory: appends the ids of a prefix that no later text changes and returns
  /// the length of that prefix; 0 if none is known, the caller then needs a longer text. The ids of
  /// consecutive prefixes are those of encode() of the whole text. `first`: the text starts here. `last`: it
  /// ends here, and all of it is encoded.
  virtual std::size_t encode_next(std::string_view text, Names names, bool first, bool last,
                                  std::vector<std::int32_t>& ids) const = 0;

  /// The ids of the joined text of all parts, and which of them belong to which part. Special tokens are
  /// found only in parts with Names::kSpecial.
  virtual PartIds encode_parts(std::span<const Part> parts) const = 0;

  /// Ids that the tokenizer's own rule (the post_processor of tokenizer.json) puts before and after a text.
  virtual std::vector<std::int32_t> before() const { return {}; }
  virtual std::vector<std::int32_t> after() const { return {}; }

  /// The text of the ids, special tokens included. Bytes that are not a complete UTF-8 character are kept as
  /// they are. Errors: Error(kUsage) for an id outside the vocabulary.
  virtual std::string decode(std::span<const std::int32_t> ids) const = 0;

  /// The id of a token by its name ("<|im_end|>").
  virtual std::optional<std::int32_t> id_of(std::string_view token) const = 0;
  /// True for special tokens, which generated text should not contain.
  virtual bool special(std::int32_t id) const = 0;
  /// The begin and the end of a text, if the tokenizer says which ids these are.
  virtual std::optional<std::int32_t> bos() const { return std::nullopt; }
  virtual std::optional<std::int32_t> eos() const { return std::nullopt; }

  /// What the user should know, for example that truncation in tokenizer.json is ignored.
  virtual std::vector<std::string> notes() const { return {}; }
  /// What the ids depend on besides the tokenizer's file, for example "Unicode 14.0.0"; part of the identity
  /// of tokenized text.
  virtual std::string version() const { return {}; }
};

/// Turns ids that arrive one by one into text. Special tokens are left out.
class TextDecoder {
 public:
  /// `before`: ids whose text is already there, and which the next text depends on.
  explicit TextDecoder(const Tokenizer& tokenizer, std::span<const std::int32_t> before = {});
  /// The text that `id` completes; "" while it ends within a UTF-8 character.
  std::string next(std::int32_t id);
  /// The bytes that are not yet a complete character.
  std::string rest() const;

 private:
  const Tokenizer& tokenizer_;
  std::vector<std::int32_t> ids_;  // those that the next text depends on
  std::size_t printed_ids_ = 0;    // ids_ [0, printed_ids_) are only context
};

}  // namespace trainhost::tokenizer
