// The table of checks, in the order of docs/memory-model.md. A new contract needs one function in its own
// file, its declaration in contract_table.hpp and one row here. A row "ID/word" is selected together with ID.
#include "core/verify/contract_table.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/error.hpp"
#include "core/base/text.hpp"

namespace trainhost::verify {

std::span<const Check> checks() {
  // clang-format off
  static const std::vector<Check> kChecks = {
      // Memory. Columns: id, title, function, needs_trainer, decides.
      {"MEM-001", "parameters: the trainer saves P elements", check_parameters},
      {"MEM-002", "activations: at most M_act*B bytes under recompute \"full\"", check_activations},
      {"MEM-002/run", "activations: the same under the run's recompute policy (reported only)", check_activations_run, true, false},
      {"MEM-003", "whole run: at most M_total bytes", check_whole_run},
      {"MEM-004", "weights: exactly P*b_w bytes", check_weight_bytes},
      {"MEM-005", "AdamW moments: exactly P*8 bytes", check_optimizer_bytes},
      {"MEM-EXACT-001", "closed form of P is exact for every small model", check_small_models, false},
      // Results of any trainer.
      {"REF-001", "losses, gradients, updates and generated logits equal the reference in double", check_reference},
      // The CUDA trainer.
      {"GPU-001", "loss equals the CPU trainer's at every step", check_loss},
      {"GPU-002", "training changes every tensor; saved weights are those trained", check_weight_sync},
      {"GPU-003", "without CUDA a run trains on the CPU and reports the reason", check_fallback, false},
      {"GPU-004", "hybrid: device utilization above 0.70", check_utilization},
      {"GPU-005", "hybrid: three transfers per micro-batch, overlapped with compute", check_transfers},
      {"GPU-006", "loss and weights stay finite; one norm clips all gradients", check_clipping},
      {"GPU-007", "optimizers use the hyper-parameters of the run file", check_hyper_parameters},
      {"GPU-008", "no copy reads bytes that a kernel has not finished writing", check_copy_order},
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
      throw usage_error(fmt::format("no check '{}'", escaped(w, 80)) + did_you_mean(w, known),
                        fmt::format("checks: {}", fmt::join(known, ", ")), {"--only"});
  std::vector<const Check*> out;
  for (const Check& c : checks())
    if (wanted.empty() || std::any_of(wanted.begin(), wanted.end(), [&](const std::string& w) {
          return c.id == w || c.id.starts_with(w + "/");
        }))
      out.push_back(&c);
  return out;
}

const char* status_name(Status s) {
  return s == Status::kHeld ? "held" : s == Status::kFalsified ? "falsified" : "skipped";
}

}  // namespace trainhost::verify
