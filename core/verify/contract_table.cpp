// The one table of checks, in the order of CONTRACTS.md. A new contract is one function in a file of its own
// and one row here. A row "ID/word" goes with ID: it is chosen where ID is.
#include <fmt/format.h>

#include <algorithm>

#include "core/base/error.hpp"
#include "core/base/text.hpp"
#include "core/verify/contract_check.hpp"
#include "core/verify/gpu_checks.hpp"
#include "core/verify/memory_checks.hpp"

namespace trainhost::verify {

std::span<const Check> checks() {
  // clang-format off
  static const std::vector<Check> kChecks = {
      // -- CONTRACTS.md section 1: memory (MEM-...). A row that is only reported has decides = false.
      {"MEM-001", "P is the number of elements that the trainer saves", check_parameters},
      {"MEM-002", "recompute full: activations stay within M_act*B", check_activations},
      {"MEM-002/run", "the run's own recompute policy (reported, decides nothing)", check_activations_run, true, false},
      {"MEM-003", "the whole run stays within M_total", check_whole_run},
      {"MEM-004", "weights take P*b_w bytes", check_weight_bytes},
      {"MEM-005", "AdamW's moments take P*8 bytes", check_optimizer_bytes},
      {"MEM-EXACT-001", "the closed form is exact for every small model", check_small_box, false},
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
    if (wanted.empty() || std::any_of(wanted.begin(), wanted.end(), [&](const std::string& w) {
          return c.id == w || c.id.starts_with(w + "/");
        }))
      out.push_back(&c);
  return out;
}

const char* word(Status s) {
  return s == Status::kHeld ? "held" : s == Status::kFalsified ? "falsified" : "skipped";
}

}  // namespace trainhost::verify
