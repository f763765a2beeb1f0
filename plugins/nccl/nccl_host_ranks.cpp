// See nccl_host_ranks.hpp. A reduction gathers the elements of all ranks and adds them on the host, in the
// order of the ranks, which NCCL's own sums do not promise.
#include "plugins/nccl/nccl_host_ranks.hpp"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include "core/abi/error_guard.hpp"
#include "core/base/types.hpp"
#include "plugins/common/ordered_sums.hpp"
#include "plugins/nccl/rendezvous.hpp"

namespace trainhost::nccl {
namespace {

using abi::StatusError;
using cuda::nccl::Result;
using cuda::nccl::Type;

constexpr std::uint64_t kLargestChunk = 64 << 10, kSmallestChunk = 256;
constexpr std::chrono::milliseconds kForWatch{1000};
constexpr std::uint64_t kBuffer = 16 << 20;  // at most, for all ranks of a round

}  // namespace

HostRanks::HostRanks(const LaunchVariables& launch, std::uint64_t timeout_ms)
    : launch_(launch), timeout_ms_(timeout_ms) {
  connect(timeout_ms);
}

void HostRanks::connect(std::uint64_t timeout_ms) {
  Rendezvous rendezvous(launch_, timeout_ms);
  try {
    rendezvous.together([&] {
      if (ranks() > 1)
        watch_.emplace(launch_, [&](const auto& make) { return rendezvous.of_first("watch", make); });
      // NCCL can add in the switch (NVLink SHARP), in an order that differs from call to call. It reads its
      // variables when it makes its first communicator, which is this one. A value of the user stays.
      ::setenv("NCCL_NVLS_ENABLE", "0", 0);
      nccl_ = cuda::nccl::library();
      // Without LOCAL_RANK the launcher shows each process its device, or there is one per machine.
      device_.emplace(launch_.local_rank.value_or(0));
      chunk_ = std::clamp(kBuffer / ranks() / kSmallestChunk * kSmallestChunk, kSmallestChunk, kLargestChunk);
      device_->allocate(chunk_ * (ranks() + std::uint64_t{1}));
      const Device::Current current(*device_);
      char host[256] = "";
      ::gethostname(host, sizeof host - 1);
      const Meeting m = rendezvous.meet({host, device_->uuid(), device_->index()}, [&] {
        cuda::nccl::UniqueId id;
        require_complete(nccl_.f.ncclGetUniqueId(&id), "making an id");
        return id;
      });
      local_rank_ = m.local_rank, local_ranks_ = m.local_ranks;
      cuda::nccl::Config config;
      require_complete(nccl_.f.ncclCommInitRankConfig(&comm_, static_cast<int>(ranks()), m.id,
                                                      static_cast<int>(rank()), &config),
                       "connecting the ranks", [&] { rendezvous.require_no_failure(); });
      if (watch_) watch_->set_connected();
    });
  } catch (...) {
    if (comm_) nccl_.f.ncclCommAbort(std::exchange(comm_, nullptr));
    throw;
  }
}

HostRanks::~HostRanks() {
  watch_.reset();
  if (!comm_) return;
  try {
    const Device::Current current(*device_);
    constexpr std::uint64_t kLimitMs = 5000;
    timeout_ms_ = kLimitMs;
    Result r = nccl_.f.ncclCommFinalize(comm_);
    if (poll([&] { return (r == Result::kInProgress ? r = state() : r) != Result::kInProgress; }) &&
        r == Result::kSuccess)
      nccl_.f.ncclCommDestroy(comm_);
    else
      nccl_.f.ncclCommAbort(comm_);
  } catch (...) {  // the device is lost
  }
}

Result HostRanks::state() const {
  if (!comm_) return Result::kSuccess;
  Result one = Result::kSuccess;
  const Result asked = nccl_.f.ncclCommGetAsyncError(comm_, &one);
  return asked == Result::kSuccess ? one : asked;
}

/// Asks until done() is true; false after the timeout of the run. Without a pause at first: most waits are
/// short. look: called a few times per second.
bool HostRanks::poll(const std::function<bool()>& done, const std::function<void()>& look) {
  const auto begin = Clock::now();
  auto looked = begin;
  constexpr std::chrono::milliseconds kBusy{5}, kLook{200};
  for (;;) {
    if (done()) return true;
    const auto now = Clock::now();
    if (timeout_ms_ > 0 && now - begin > std::chrono::milliseconds(timeout_ms_)) return false;
    if (look && now - looked > kLook) look(), looked = now;
    if (now - begin < kBusy)
      ::sched_yield();
    else
      std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
}

void HostRanks::fail(const std::string& why) {
  if (comm_) nccl_.f.ncclCommAbort(std::exchange(comm_, nullptr));
  throw StatusError(TH_E_IO, why, "NCCL_DEBUG=WARN prints what NCCL reports");
}

void HostRanks::require_complete(Result r, const char* what, const std::function<void()>& look) {
  const auto asked = [&] { return (r = state()) != Result::kInProgress; };
  const std::string seconds = std::to_string(timeout_ms_ / 1000) + " s";
  if (r == Result::kInProgress && !poll(asked, look))
    fail("waited " + seconds + " for other ranks while " + what + " by NCCL");
  if (r == Result::kSuccess) return;
  // The connection to a rank that has ended fails too: RankWatch reports it better, and ends this process.
  if (watch_) std::this_thread::sleep_for(kForWatch);
  const char *error = nccl_.f.ncclGetErrorString(r), *last = nccl_.f.ncclGetLastError(comm_);
  fail(std::string("NCCL failed while ") + what + ": " + (error ? error : "") +
       (last && *last ? std::string(": ") + last : ""));
}

std::uint64_t HostRanks::start(const th_collective& c) {
  if (!operation_name(c.kind))
    throw StatusError(TH_E_ARG, "no collective operation has the number " + std::to_string(c.kind));
  const bool reduces = c.kind == TH_ALL_REDUCE || c.kind == TH_REDUCE_SCATTER;
  if (c.stream) throw StatusError(TH_E_UNSUPPORTED, "this communicator sends host memory only");
  if (reduces && !is_reduced(c.dtype)) throw StatusError(TH_E_ARG, "elements of this type cannot be added");
  if (c.width > 1 && c.width != ranks())
    throw StatusError(TH_E_UNSUPPORTED,
                      "groups of " + std::to_string(c.width) + " of " + std::to_string(ranks()) +
                          " ranks exchange host memory by MPI only",
                      "start the run with mpirun");
  if (c.kind != TH_BROADCAST && c.count > 0 && c.width != 1 && c.piece < (c.count + ranks() - 1) / ranks())
    throw StatusError(TH_E_ARG, "the pieces of the ranks do not cover the elements");
  if (c.root >= ranks()) throw StatusError(TH_E_ARG, "rank " + std::to_string(c.root) + " does not exist");
  if (!failure_.empty()) throw StatusError(TH_E_IO, failure_);
  try {
    if (c.width != 1 && c.count > 0 && ranks() > 1) execute(c);
  } catch (const std::exception& e) {
    failure_ = e.what();
  }
  return ++last_ticket_;
}

void HostRanks::wait(std::uint64_t ticket) {
  if (ticket > last_ticket_) throw StatusError(TH_E_ARG, "no operation was started with this ticket");
  if (!failure_.empty()) throw StatusError(TH_E_IO, failure_);
}

void HostRanks::abort(std::int32_t code) {
  if (watch_) watch_->report_failure();
  std::_Exit(code);
}

/// What every rank sends, `bytes` of each, one after the other in the host buffer behind the first chunk.
/// `own`: of this rank, of which there may be fewer.
void HostRanks::gather(const std::byte* own, std::uint64_t own_bytes, std::uint64_t bytes,
                       const char* operation) {
  if (own_bytes > 0) std::memcpy(device_->host_memory(), own, own_bytes);
  device_->copy_to_device(0, bytes);
  require_complete(nccl_.f.ncclAllGather(device_->memory(), device_->memory() + chunk_, bytes, Type::kU8,
                                         comm_, device_->stream()),
                   "starting an operation");
  device_->copy_to_host(chunk_, bytes * ranks());
  finish(operation);
}

void HostRanks::broadcast(const th_collective& c, std::uint64_t bytes) {
  auto* data = static_cast<std::byte*>(c.data);
  const bool sends = c.root == rank();
  for (std::uint64_t at = 0; at < bytes; at += chunk_) {
    const std::uint64_t n = std::min(chunk_, bytes - at);
    if (sends) std::memcpy(device_->host_memory(), data + at, n);
    device_->copy_to_device(0, n);
    require_complete(nccl_.f.ncclBroadcast(device_->memory(), device_->memory(), n, Type::kU8,
                                           static_cast<int>(c.root), comm_, device_->stream()),
                     "starting an operation");
    device_->copy_to_host(0, n);
    finish("broadcast");
    if (!sends) std::memcpy(data + at, device_->host_memory(), n);
  }
}

/// Waits for the queued work of a round.
void HostRanks::finish(const char* operation) {
  auto asked_nccl = Clock::now();
  Result now = Result::kSuccess;
  const bool in_time = poll([&] {
    if (device_->is_idle()) return true;
    // What another rank's failure becomes here: an error of the connection.
    if (Clock::now() - asked_nccl < std::chrono::milliseconds(10)) return false;
    asked_nccl = Clock::now(), now = state();
    return now != Result::kSuccess && now != Result::kInProgress;
  });
  if (now != Result::kSuccess && now != Result::kInProgress) require_complete(now, operation);
  if (!in_time)
    fail("waited " + std::to_string(timeout_ms_ / 1000) + " s for other ranks in " + operation +
         " (see whether all of them run; parallel.timeout sets the time)");
}

void HostRanks::execute(const th_collective& c) {
  if (!comm_) fail("an operation of NCCL has failed before");
  const Device::Current current(*device_);
  const std::uint64_t size = size_of(static_cast<DType>(c.dtype));
  auto* data = static_cast<std::byte*>(c.data);
  const char* const name = operation_name(c.kind);
  if (c.kind == TH_BROADCAST) return broadcast(c, c.count * size);
  const std::byte* const gathered = device_->host_memory() + chunk_;
  const std::uint64_t most = chunk_ / size;  // elements of a rank in a round
  if (c.kind == TH_ALL_GATHER) {
    for (std::uint64_t skip = 0; skip < c.piece; skip += most) {
      const std::uint64_t round = std::min(most, c.piece - skip);
      const auto part = [&](std::uint64_t r) {  // first element, number
        const std::uint64_t first = std::min(c.count, c.piece * r + skip);
        return std::pair{first, std::min({round, c.count - first, c.piece})};
      };
      const auto [first, count] = part(rank());
      gather(data + first * size, count * size, round * size, name);
      for (std::uint32_t r = 0; r < ranks(); ++r) {
        const auto [at, n] = part(r);
        if (r != rank() && n > 0) std::memcpy(data + at * size, gathered + r * round * size, n * size);
      }
    }
    return;
  }
  std::vector<const void*> from(ranks());
  for (std::uint64_t first = 0; first < c.count; first += most) {
    const std::uint64_t n = std::min(most, c.count - first);
    gather(data + first * size, n * size, n * size, name);
    for (std::uint32_t r = 0; r < ranks(); ++r) from[r] = gathered + r * n * size;
    combine_elements(c.dtype, from, data + first * size, n, c.reduction == TH_REDUCE_MAX);
  }
}

}  // namespace trainhost::nccl
