// The child of runner.hpp: reads which checks to run from standard input, runs them in turn, writes a line
// before and after each to its record. Ends itself when one check takes longer than it may.
#pragma once

namespace trainhost::plugin_validator {

/// The whole life of the child process. Never returns.
[[noreturn]] void run_worker();

}  // namespace trainhost::plugin_validator
