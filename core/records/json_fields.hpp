// Fields of a JSON object as texts, with errors that name the key and the value. Internal to core/records.
#pragma once
#include <string>
#include <string_view>

#include "core/base/json_value.hpp"

namespace trainhost::records {

/// The text in quotation marks, escaped and at most 60 bytes of it.
std::string quote(std::string_view text);
/// "a number", "an object".
const char* kind_name(const JsonValue& v);
/// "'a', 'b'", at most eight; "no key".
std::string keys_of(const JsonValue& object);

/// The value of `key`. Throws JsonError: "`with` without `key`", with a key of a similar name.
const JsonValue& required(const JsonValue& object, const std::string& key, std::string_view with);
/// Throws JsonError if the value is no text; nonempty_text_in() also if it has only white space.
std::string text_in(const JsonValue& v, std::string_view key);
std::string nonempty_text_in(const JsonValue& v, std::string_view key);

}  // namespace trainhost::records
