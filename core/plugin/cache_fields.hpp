// Lines of fields, for the registry's cache and for what a probing child is told and answers: tabs between
// fields, with a backslash before what would end one. No types and no nesting: who writes a line knows what
// it reads.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace trainhost::plugin {

/// One line without its end.
std::string join_fields(const std::vector<std::string>& fields);

/// The fields of one line; what join_fields() made comes back unchanged, anything else as some list of texts.
std::vector<std::string> split_fields(std::string_view line);

/// The lines of a text, without their ends.
std::vector<std::string_view> lines_of(std::string_view text);

}  // namespace trainhost::plugin
