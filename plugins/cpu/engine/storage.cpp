// The one allocation of the CPU trainer.
#include "plugins/cpu/engine/storage.hpp"

#include <string>

#include "core/base/text.hpp"
#include "core/bridge/guard.hpp"

namespace trainhost::cpu {

ArenaStorage::ArenaStorage(const th_host* host, const plan::Program& program, const plan::MemoryPlan& plan)
    : host_(host), plan_(plan) {
  if (plan.arena_bytes == 0) return;
  base_ = static_cast<std::byte*>(host->alloc(host, plan.arena_bytes, program.profile.alignment,
                                              static_cast<std::uint32_t>(program.profile.tier), "arena"));
  if (!base_)
    throw bridge::StatusError(TH_E_HOST_OOM, "no " + format_bytes(plan.arena_bytes) + " of memory for the arena of the run",
                              "a smaller train.micro_batch, or train.recompute = \"full\"", plan.arena_bytes);
}

ArenaStorage::~ArenaStorage() {
  if (base_) host_->release(host_, base_);
}

}  // namespace trainhost::cpu
