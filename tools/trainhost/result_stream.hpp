// Where --json goes. Standard output must then be one JSON document (or one object per line), also if a
// plugin or a library prints something itself.
#pragma once
#include <cstdio>

namespace trainhost::cli {

/// The stream for the JSON of a command: stdout, until reserve_stdout_for_json() is called.
std::FILE* result_stream() noexcept;

/// From now on only result_stream() is standard output; what others write to file descriptor 1, in this
/// process or in its children, goes to standard error. Called once, before plugins are loaded. Without a free
/// file descriptor nothing changes.
void reserve_stdout_for_json() noexcept;

}  // namespace trainhost::cli
