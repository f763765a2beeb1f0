// What a session really takes: created, initialised, one update, one evaluation and one save, under the
// ledger's eyes. The ledger stands at the boundary through which every buffer is taken and knows nothing of
// any plan. Most trainers take one arena, so the ledger cannot say what a byte is for: that word is the
// trainer's own report's. A byte without such a word counts as what is looked for, so that a trainer gains
// nothing by keeping silent.
#pragma once
#include <cstdint>
#include <initializer_list>
#include <string>

#include "core/base/memory_report.hpp"
#include "core/verify/context.hpp"

namespace trainhost::verify {

struct Footprint {
  RunSpec run;                             // as resolved
  MemoryReport report;                     // the trainer's, of this run
  bool f32_storage = false;                // weights lie in f32 whatever the run computes in
  std::uint64_t ledger_bytes = 0;          // most that was held at one moment, over all tiers
  std::uint64_t runtime_bytes = 0;         // measured beside the ledger, of a trainer in host memory
  std::uint64_t stated_runtime_bytes = 0;  // of a device's context, by the trainer's word
  std::uint64_t weight_elements = 0;       // that save() gave, each tensor once
  std::uint64_t moment_elements = 0;       // of both moments
  std::string repeated;  // tensors that save() gave beyond a tied model's own: "lm_head.weight"

  /// The ledger's peak without what the report gives other names than these.
  std::uint64_t bytes_of(std::initializer_list<Component> names) const;
};

/// How far the session goes. `whole`: with the host's own buffers, as training holds them.
enum class Measured { kCreated, kTrained, kWhole };

/// Arbitrary ids, random weights unless the run brings some. Throws NotJudged where there is no room.
Footprint footprint(Context& context, const runfile::RunConfig& c, const std::string& mode, Measured how);

}  // namespace trainhost::verify
