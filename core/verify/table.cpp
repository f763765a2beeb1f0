// The one table of checks. A new contract is one function in a file of its own and one row here; MEM-001 to MEM-005
// go above these rows, in the order of CONTRACTS.md.
#include <fmt/format.h>

#include <algorithm>

#include "core/base/error.hpp"
#include "core/base/text.hpp"
#include "core/verify/check.hpp"
#include "core/verify/gpu.hpp"

namespace trainhost::verify {

std::span<const Check> checks() {
  // clang-format off
  static const std::vector<Check> kChecks = {
      // -- CONTRACTS.md section 1: memory (MEM-...). A row that is only reported has decides = false.
      // -- CONTRACTS.md section 5: the CUDA trainer's contract.
      {"GPU-001", "the loss equals the CPU trainer's at every step", check_loss},
      {"GPU-002", "training changes every tensor; the weight sync is exact", check_weight_sync},
      {"GPU-003", "without CUDA a run falls back to the CPU, says why, succeeds", check_fallback, false},
      {"GPU-004", "hybrid: the device computes most of the time", check_utilization},
      {"GPU-005", "hybrid: three transfers a micro-batch, hidden behind compute", check_transfers},
      {"GPU-006", "everything stays finite; one norm clips all gradients", check_clipping},
      {"GPU-007", "every optimizer uses the run file's numbers", check_hyper_parameters},
      {"GPU-008", "no copy overtakes the kernel that it reads from", check_order},
  };
  // clang-format on
  return kChecks;
}

std::vector<const Check*> select(const std::string& only) {
  std::vector<std::string> known, wanted;
  for (const Check& c : checks()) known.push_back(c.id);
  for (std::size_t at = 0; at <= only.size();) {
    const std::size_t end = std::min(only.find(',', at), only.size());
    if (end > at) wanted.push_back(only.substr(at, end - at));
    at = end + 1;
  }
  for (const std::string& w : wanted)
    if (std::find(known.begin(), known.end(), w) == known.end())
      throw usage_error(fmt::format("there is no check '{}'", escaped(w, 80)) + did_you_mean(w, known),
                        fmt::format("checks: {}", fmt::join(known, ", ")), {"--only"});
  std::vector<const Check*> out;
  for (const Check& c : checks())
    if (wanted.empty() || std::find(wanted.begin(), wanted.end(), c.id) != wanted.end()) out.push_back(&c);
  return out;
}

const char* word(Status s) { return s == Status::kHeld ? "held" : s == Status::kFalsified ? "falsified" : "skipped"; }

}  // namespace trainhost::verify
