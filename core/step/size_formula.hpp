// What a buffer's size is made of, in the symbols of the contracts and then in this run's numbers:
// "B*S*(A+2K)*D*4 = 4*128*(32+2*8)*128*4". For people and reports; tests evaluate both sides and compare them
// with the bytes.
//   V vocab  H hidden  L layers  A heads  K kv heads  D head dim  I intermediate  S seq_len  B micro-batch
//   C head chunk  T threads  W slots  Q, R tiles of queries and keys  N what a library or a transfer asks for
#pragma once
#include <cstdint>
#include <string>

#include "core/step/program.hpp"

namespace trainhost::step {

/// `count` buffers of this one's role and size, as a product. A role that no table lists gives plain numbers,
/// once.
std::string formula(const Program& p, const Buffer& b, std::uint64_t count = 1);

}  // namespace trainhost::step
