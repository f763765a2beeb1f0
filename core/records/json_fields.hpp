// Reads text fields of a JSON object; errors name the key and the value. Internal to core/records.
#pragma once
#include <string>
#include <string_view>

#include "core/base/json_value.hpp"

namespace trainhost::records {

/// The first 60 bytes of the text, escaped and in quotation marks.
std::string quote(std::string_view text);
/// "a number", "an object".
const char* kind_name(const JsonValue& v);
/// The first eight keys as "'a', 'b'"; "no key" for an empty object.
std::string keys_of(const JsonValue& object);

/// The value of `key`. Throws JsonError: "`with` without `key`", with a key of a similar name.
const JsonValue& required(const JsonValue& object, const std::string& key, std::string_view with);
/// Throws JsonError if the value is not a text; nonempty_text_in() also if it is empty or white space.
std::string text_in(const JsonValue& v, std::string_view key);
std::string nonempty_text_in(const JsonValue& v, std::string_view key);

}  // namespace trainhost::records
