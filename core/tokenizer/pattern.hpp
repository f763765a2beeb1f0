// Regular expressions of tokenizer.json, which are written for Oniguruma, with PCRE2 and its JIT compiler.
#pragma once
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

namespace trainhost::tokenizer {

/// Thread-safe. Texts must be valid UTF-8.
class Pattern {
 public:
  enum class Result { kNone, kMatch, kUndecided };
  struct Match {
    std::size_t begin = 0, end = 0;
  };

  /// Throws std::invalid_argument with the reason if the expression is not understood.
  explicit Pattern(std::string_view regex);
  /// Finds this text and nothing else.
  static Pattern literal(std::string_view text);

  /// The first match from byte `from` on. `open`: more text may follow `text`; the result is kUndecided if it
  /// could change then. Error(kFailed) if PCRE2 gives up.
  Result find(std::string_view text, std::size_t from, bool open, Match& match) const;
  /// False if a match depends on the text before its start: a text is then not cut.
  bool can_resume() const { return can_resume_; }

  /// "Unicode 14.0.0": the version of the tables of PCRE2.
  static std::string unicode_version();

 private:
  Pattern() = default;
  std::shared_ptr<void> code_;  // a pcre2_code
  std::string literal_;         // instead of code_
  bool jit_ = false, can_resume_ = true;
};

}  // namespace trainhost::tokenizer
