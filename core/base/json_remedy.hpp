// What is wrong in a file that is not valid JSON, and what to do about it.
#pragma once
#include <string>
#include <string_view>

#include "core/base/json_reader.hpp"

namespace trainhost {

/// Whether the text ends before its value does: the error is at its end, or in the word or string that ends
/// it.
bool is_truncated_json(std::string_view text, const JsonError& e);

/// Whether the error is a comma before a closing bracket, which YAML allows and JSON does not.
bool is_trailing_comma(std::string_view text, const JsonError& e);

/// The remedy for a text that parse_json() rejects with `e`; "" where the error says enough.
std::string json_remedy(std::string_view text, const JsonError& e);

}  // namespace trainhost
