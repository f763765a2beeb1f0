// The pre_tokenizer of tokenizer.json: splits a normalized text into words, which the model encodes one by
// one.
#pragma once
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "core/tokenizer/component.hpp"

namespace trainhost::tokenizer {

/// A part of a text, on its way through the steps.
struct Word {
  std::string_view text;
  /// Byte of the whole text at which the word starts. The text of the word may differ from that part: spaces
  /// replaced (`replaced`), and `added` bytes in front of it.
  std::size_t begin = 0, added = 0;
  bool replaced = false;
  bool mapped = false;         // every character stands for one byte
  bool begins_segment = true;  // false: the text continues a segment, so that nothing is put in front of it
  bool begins_text = true;     // no text is before it
  bool open = false;           // its end is not known yet
};

struct WordSink {
  virtual void take(const Word& word) = 0;

 protected:
  ~WordSink() = default;
};

class PreTokenizer {
 public:
  PreTokenizer() = default;  // the whole text is one word
  explicit PreTokenizer(const Component& component);

  /// Calls sink.take() for every word in order. Of an open text, what more text could split in another way is
  /// left out.
  void split(const Word& text, WordSink& sink) const { run(0, text, sink); }

  /// True if the last step is ByteLevel: the words are bytes, and the model's vocabulary must be converted
  /// with bytes_of().
  bool bytes() const { return bytes_; }
  bool can_resume() const { return can_resume_; }
  /// A text may only be cut before a space, because the text behind a cut would get one.
  bool resumes_at_space() const { return resumes_at_space_; }

 private:
  /// What happens to matches and to the text between them.
  enum class Behavior { kIsolated, kRemoved, kContiguous, kMergedWithPrevious, kMergedWithNext };
  enum class Prefix { kNever, kFirst, kAlways };
  enum class Kind { kSplit, kMetaspace, kAddSpace, kMapBytes };
  struct Step {
    Kind kind = Kind::kSplit;
    Pattern pattern = Pattern::literal("");
    Behavior behavior = Behavior::kIsolated;
    bool inverted = false;
    Prefix prefix = Prefix::kAlways;  // Metaspace
    bool splits = true;               // Metaspace
    std::string replacement;          // Metaspace
    bool is_literal = false;
  };
  void add(const Component& component, bool last);
  void add_split(Pattern pattern, Behavior behavior, bool inverted);
  void run(std::size_t step, const Word& word, WordSink& sink) const;
  void run_split(std::size_t step, const Word& word, WordSink& sink) const;
  void run_metaspace(std::size_t step, const Word& word, WordSink& sink) const;

  std::vector<Step> steps_;
  bool bytes_ = false, can_resume_ = true, resumes_at_space_ = false;
};

/// The bytes that a text of the byte-level alphabet stands for ("Ġthe" is " the"); false if a character is
/// not in it.
bool bytes_of(std::string_view text, std::string& bytes);
/// The reverse.
void append_byte_level(std::string& out, std::string_view bytes);

}  // namespace trainhost::tokenizer
