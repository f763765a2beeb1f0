// The size of a buffer as a formula in symbols and in this run's numbers:
// "B*S*(A+2K)*D*4 = 4*128*(32+2*8)*128*4". Tests evaluate both sides and compare them with the bytes.
//   V vocab  H hidden  L layers  A heads  K kv heads  D head dim  I intermediate  S seq_len  B micro-batch
//   C head chunk  T threads  W slots  Q, R tiles of queries and keys  N bytes of a library's work space or a
//   transfer
#pragma once
#include <cstdint>
#include <string>

#include "core/step/program.hpp"

namespace trainhost::step {

/// Formula for `count` buffers of the role and size of b. A role without an entry in the tables gives numbers
/// only.
std::string formula(const Program& p, const Buffer& b, std::uint64_t count = 1);

}  // namespace trainhost::step
