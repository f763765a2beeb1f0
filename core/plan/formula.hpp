// What a buffer's size is made of, in the symbols of the contracts: "L*B*S*(A+2K)*D*4". For people and
// reports; tests evaluate the text and compare it with the bytes.
//   V vocab  H hidden  L layers  A heads  K kv heads  D head dim  I intermediate  S seq_len  B micro-batch
//   C head chunk  T threads  W slots  Q, R tiles of queries and keys  N vendor workspace
#pragma once
#include <cstdint>
#include <string>

#include "core/plan/program.hpp"

namespace trainhost::plan {

/// `count` buffers of this one's role and size, as a product. A role that no table lists gives plain numbers.
std::string formula(const Program& p, const Buffer& b, std::uint64_t count = 1);

}  // namespace trainhost::plan
