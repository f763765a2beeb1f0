// Reading one component of tokenizer.json ("normalizer", "pre_tokenizer", ...) from its JSON value, with
// errors that name file, component and what is supported.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "core/base/json_value.hpp"
#include "core/tokenizer/pattern.hpp"

namespace trainhost::tokenizer {

/// A JSON object with a "type", and its place for messages.
struct Component {
  const JsonValue& json;
  const std::string& file;  // "'DIR/tokenizer.json'"
  const char* kind;         // "normalizer"

  std::string type() const;
  /// Errors: usage_error if the member is missing or has another type.
  std::string text(std::string_view key) const;
  /// `absent`: the value if the member is missing or null.
  bool boolean(std::string_view key, bool absent) const;
  std::size_t count(std::string_view key) const;
  /// The members of a Sequence.
  std::vector<Component> sequence(std::string_view key) const;
  /// "pattern": {"String": ...} or {"Regex": ...}.
  Pattern pattern() const;
  [[noreturn]] void reject(const std::string& what) const;
  /// `supported`: the types that are, separated by commas.
  [[noreturn]] void reject_type(const char* supported) const;
};

}  // namespace trainhost::tokenizer
