// The programs that a shell script starts: found by the words of their commands, and named where their
// options are not known.
#pragma once
#include <string>
#include <string_view>

namespace trainhost::framework_files {

/// Names what plans inference, in the hints of errors for files that train nothing.
inline constexpr const char* kPlanInference =
    "give the files of a training run; --model=MODEL --set plan.mode=inference plans inference";

/// True if `words` are words of a command: not in a comment, and not in a path.
bool names_program(const std::string& text, std::string_view words);

/// Throws for a script that starts a program with options of its own, which may have names that others have.
void check_program(const std::string& path, const std::string& text);

/// Throws for a script without options of a training run.
[[noreturn]] void reject_script(const std::string& path, const std::string& text);

}  // namespace trainhost::framework_files
