// See storage.hpp.
#include "core/executor/storage.hpp"

#include <string>

#include "core/abi/error_guard.hpp"
#include "core/base/text.hpp"

namespace trainhost::executor {

ArenaStorage::ArenaStorage(const th_host* host, const step::Program& program,
                           const placement::MemoryPlan& plan, Allocator* own)
    : host_(host), plan_(plan), own_(own), tier_(static_cast<std::uint32_t>(program.traits.tier)) {
  if (plan.arena_bytes == 0) return;
  const std::uint64_t alignment = program.traits.alignment;
  base_ = static_cast<std::byte*>(own ? own->take(plan.arena_bytes, alignment)
                                      : host->alloc(host, plan.arena_bytes, alignment, tier_, "arena"));
  if (!base_)
    throw abi::StatusError(program.traits.tier == Tier::kDevice ? TH_E_DEVICE_OOM : TH_E_HOST_OOM,
                           "cannot allocate " + format_bytes(plan.arena_bytes) + " for the arena of the run",
                           "reduce train.micro_batch, or set train.recompute = \"full\"", plan.arena_bytes);
  if (own && host->took) host->took(host, static_cast<std::int64_t>(plan.arena_bytes), tier_, "arena");
}

ArenaStorage::~ArenaStorage() {
  if (!base_) return;
  if (!own_) {
    host_->release(host_, base_);
    return;
  }
  own_->give_back(base_);
  if (host_->took) host_->took(host_, -static_cast<std::int64_t>(plan_.arena_bytes), tier_, "arena");
}

}  // namespace trainhost::executor
