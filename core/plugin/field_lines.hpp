// Lines of tab-separated fields with backslash escapes, for the registry's cache and for messages between a
// process and its child. No types and no nesting: writer and reader agree on the order of fields.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace trainhost::plugin {

/// One line, without the newline.
std::string join_fields(const std::vector<std::string>& fields);

/// The fields of one line. Inverse of join_fields(); any other input gives some list of texts, never an
/// error.
std::vector<std::string> split_fields(std::string_view line);

/// The lines of a text, without newlines.
std::vector<std::string_view> lines_of(std::string_view text);

}  // namespace trainhost::plugin
