// See host_ranks.hpp.
#include "core/executor/host_ranks.hpp"

#include "core/abi/error_guard.hpp"

namespace trainhost::executor {
namespace {

template <class F>
void call(F&& f) {
  th_error e{};
  e.struct_size = sizeof e;
  if (const th_status s = f(&e); s != TH_OK) throw abi::StatusError(s, e.message, e.hint);
}

}  // namespace

std::unique_ptr<HostRanks> HostRanks::of(const th_host* host) {
  const void* table = host && host->extension ? host->extension(host, TH_RANKS_ID) : nullptr;
  return table ? std::unique_ptr<HostRanks>(new HostRanks(static_cast<const th_ranks*>(table))) : nullptr;
}

std::uint64_t HostRanks::start(const Collective& c) {
  th_collective out{};
  out.struct_size = sizeof out;
  out.kind = static_cast<std::uint32_t>(c.kind), out.dtype = static_cast<std::uint32_t>(c.dtype);
  out.reduction = static_cast<std::uint32_t>(c.reduction), out.root = c.root;
  out.data = c.data, out.count = c.count, out.piece = c.piece;
  out.scratch = c.scratch, out.scratch_bytes = c.scratch_bytes;
  out.width = c.group.width, out.stride = c.group.stride;
  std::uint64_t ticket = 0;
  call([&](th_error* e) { return ranks_->start(ranks_, &out, &ticket, e); });
  return ticket;
}

void HostRanks::wait(std::uint64_t ticket) {
  call([&](th_error* e) { return ranks_->wait(ranks_, ticket, e); });
}

}  // namespace trainhost::executor
