// The run that verify trains when no run file is given: a byte-level model so small that all checks take
// seconds. The child of GPU-003 trains it too, whatever the run file says.
#pragma once

namespace trainhost::verify {

/// TOML, without an [output] table.
const char* builtin_run_toml();

}  // namespace trainhost::verify
