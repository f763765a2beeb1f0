// See nccl_ranks.hpp.
#include "plugins/cuda/engine/nccl_ranks.hpp"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <optional>
#include <set>
#include <thread>
#include <tuple>
#include <vector>

#include "core/abi/error_guard.hpp"
#include "core/executor/rank_operations.hpp"
#include "core/step/operands.hpp"
#include "plugins/cuda/engine/cuda_errors.hpp"
#include "plugins/cuda/engine/streams_events.hpp"

namespace trainhost::cuda {
namespace {

using nccl::Result;
using Clock = std::chrono::steady_clock;

constexpr std::size_t kMostGroups = 3;
constexpr std::chrono::milliseconds kForOthers{1000};

/// What every rank tells the others before they connect.
struct Introduction {
  std::int32_t version = 0;  // of NCCL; 0: it cannot be used on this rank
  std::int32_t device = 0;
  char uuid[16] = {};
  char machine[64] = {};
  // By group: digest of the collective operations of its program, and the id, which the first rank makes.
  std::uint64_t operations[kMostGroups] = {};
  nccl::UniqueId id[kMostGroups]{};
};

/// The groups that the ranks of a run form. A group of all ranks is the same for all purposes.
std::vector<RankGroup> groups_of(const Parallelism& p) {
  std::vector<RankGroup> all = {{}};
  if (p.data > 1 && p.tensor > 1) all.insert(all.end(), {{p.tensor, 1}, {p.data, p.tensor}});
  return all;
}

/// The index of the group of an operation, of which there are one or three.
std::size_t group_index(const step::Op& op, std::size_t groups) {
  if (groups == 1 || op.kind == step::OpKind::kSumScalars) return 0;
  return op.flags & step::kAmongTensorRanks ? 1 : 2;
}

/// FNV-1a of kind and size of every collective operation of a group, which all its ranks must have in the
/// same order. TP ranks differ in those among DP ranks: only the first adds a bias, and so gathers it.
std::uint64_t digest_of_collectives(const step::Program& p, std::size_t group, std::size_t groups) {
  std::uint64_t h = 0xcbf29ce484222325;
  const auto add = [&h](std::uint64_t value) { h = (h ^ value) * 0x100000001b3; };
  double no_buffer[step::kScalarCount];
  for (const step::Op& op : p.ops) {
    if (!executor::RankOperations::contains(op.kind) || group_index(op, groups) != group) continue;
    add(static_cast<std::uint64_t>(op.kind));
    if (op.kind != step::OpKind::kWait) add(executor::collective_of(p, op, no_buffer).count);
  }
  return h;
}

nccl::Type type_of(DType t) {
  switch (t) {
    case DType::kF32:
      return nccl::Type::kF32;
    case DType::kF64:
      return nccl::Type::kF64;
    case DType::kI32:
      return nccl::Type::kI32;
    case DType::kBF16:
      return nccl::Type::kBF16;
    default:
      return nccl::Type::kU8;
  }
}

std::string text_of(const Introduction& i) {
  return "device " + std::to_string(i.device) + " on " + std::string(i.machine, ::strnlen(i.machine, 64));
}

/// The first two ranks with one GPU. Different machines have different UUIDs.
std::optional<std::pair<std::size_t, std::size_t>> ranks_with_one_gpu(const std::vector<Introduction>& all) {
  for (std::size_t b = 1; b < all.size(); ++b)
    for (std::size_t a = 0; a < b; ++a)
      if (std::memcmp(all[a].uuid, all[b].uuid, sizeof all[a].uuid) == 0) return std::pair{a, b};
  return std::nullopt;
}

}  // namespace

std::unique_ptr<NcclRanks> NcclRanks::of(const th_host* host, const step::Program& program, int device,
                                         const std::string& device_name) {
  const Parallelism& p = program.run.parallel;
  if (program.run.mode == RunMode::kInference || p.data * p.tensor == 1) return nullptr;
  auto ranks = executor::HostRanks::of(host);
  executor::require_ranks_of_run(program, ranks.get());
  std::unique_ptr<NcclRanks> out(new NcclRanks(std::move(ranks), program));
  out->connect(device, device_name);
  return out;
}

NcclRanks::NcclRanks(std::unique_ptr<executor::HostRanks> host, const step::Program& program)
    : host_(std::move(host)), program_(program) {
  for (const RankGroup& g : groups_of(program.run.parallel))
    groups_.push_back({g, member_of(g, rank(), ranks())});
}

/// A rank that cannot go on tells the others so, which would wait for it.
void NcclRanks::connect(int device, const std::string& device_name) {
  std::vector<Introduction> all(ranks());
  Introduction& own = all[rank()];
  std::exception_ptr failed;
  try {
    cudaDeviceProp properties{};
    check(cudaGetDeviceProperties(&properties, device), "querying the device");
    static_assert(sizeof properties.uuid == sizeof own.uuid);
    std::memcpy(own.uuid, &properties.uuid, sizeof own.uuid);
    own.device = device;
    for (std::size_t g = 0; g < groups_.size(); ++g)
      own.operations[g] = digest_of_collectives(program_, g, groups_.size());
    ::gethostname(own.machine, sizeof own.machine - 1);
    // NCCL can add in the switch (NVLink SHARP), in an order that differs from call to call. A value that the
    // user has set stays. NCCL reads its variables when it makes its first communicator.
    ::setenv("NCCL_NVLS_ENABLE", "0", 0);
    nccl_ = nccl::library();
    for (std::size_t g = 0; g < groups_.size(); ++g)
      if (groups_[g].here.number == 0) require_complete(nccl_.f.ncclGetUniqueId(&own.id[g]), "making an id");
    own.version = nccl_.version;
  } catch (...) {
    failed = std::current_exception();
  }
  Collective exchange;
  exchange.kind = CollectiveKind::kAllGather, exchange.dtype = DType::kU8;
  exchange.data = all.data(), exchange.count = all.size() * sizeof(Introduction);
  exchange.piece = sizeof(Introduction);
  host_->run(exchange);
  if (failed) std::rethrow_exception(failed);
  for (std::size_t r = 0; r < all.size(); ++r) {
    if (all[r].version == 0)
      throw abi::StatusError(TH_E_UNAVAILABLE, "rank " + std::to_string(r) + " cannot use NCCL");
    if (all[r].version != all[0].version)
      throw abi::StatusError(TH_E_UNAVAILABLE, "the ranks have different versions of NCCL: rank 0 has " +
                                                   nccl::Library{{}, all[0].version}.text() + ", rank " +
                                                   std::to_string(r) + " has " +
                                                   nccl::Library{{}, all[r].version}.text());
  }
  for (std::uint32_t r = 1; r < all.size(); ++r)
    for (std::size_t g = 0; g < groups_.size(); ++g) {
      const std::uint32_t first = member_of(groups_[g].of, r, ranks()).first;
      if (all[r].operations[g] == all[first].operations[g]) continue;
      throw abi::StatusError(
          TH_E_ARG,
          "rank " + std::to_string(r) + " recomputes other layers than rank " + std::to_string(first) +
              ": their devices have different free memory",
          "set memory.budget, so that all ranks choose the same layers, or train.recompute");
    }
  if (const auto two = ranks_with_one_gpu(all))
    throw abi::StatusError(
        TH_E_ARG,
        "ranks " + std::to_string(two->first) + " and " + std::to_string(two->second) +
            " use one GPU: " + text_of(all[two->second]) + " (" + device_name + ")",
        "start no more processes on a machine than it has GPUs; CUDA_VISIBLE_DEVICES must not "
        "hide them, and plugin.cuda.device must not be set");
  // One after the other, in the same order on all ranks.
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    const GroupMember& here = groups_[g].here;
    nccl::Config config;
    require_complete(
        nccl_.f.ncclCommInitRankConfig(&groups_[g].comm, static_cast<int>(here.count), all[here.first].id[g],
                                       static_cast<int>(here.number), &config),
        "connecting the ranks");
  }
}

NcclRanks::~NcclRanks() {
  // In an error of this rank alone the others do not come.
  constexpr std::uint64_t kLimitMs = 5000;
  bool together = std::uncaught_exceptions() == 0;
  for (Group& g : groups_) {
    if (!g.comm) continue;
    try {
      Result state = Result::kInProgress;
      if (together && nccl_.f.ncclCommFinalize(g.comm) != Result::kInProgress) state = Result::kSuccess;
      const auto done = [&] {
        return nccl_.f.ncclCommGetAsyncError(g.comm, &state) != Result::kSuccess ||
               state != Result::kInProgress;
      };
      if (together && poll(done, kLimitMs) && state == Result::kSuccess) {
        nccl_.f.ncclCommDestroy(g.comm);
        continue;
      }
    } catch (...) {  // the device is lost
    }
    together = false;
    nccl_.f.ncclCommAbort(g.comm);
  }
}

bool NcclRanks::connected() const {
  return std::ranges::all_of(groups_, [](const Group& g) { return g.comm != nullptr; });
}

/// The first state that is not success among the communicators that exist; an error before one that is in
/// progress.
Result NcclRanks::state() const {
  Result all = Result::kSuccess;
  for (const Group& g : groups_) {
    if (!g.comm) continue;
    Result one = Result::kSuccess;
    if (const Result asked = nccl_.f.ncclCommGetAsyncError(g.comm, &one); asked != Result::kSuccess)
      one = asked;
    if (one != Result::kSuccess && (all == Result::kSuccess || all == Result::kInProgress)) all = one;
  }
  return all;
}

/// TP or DP ranks that are all ranks have the communicator of all.
const NcclRanks::Group& NcclRanks::group_of(const Collective& c) const {
  for (const Group& g : groups_)
    if (c.group.width == g.of.width && (g.of.width == 0 || c.group.stride == g.of.stride)) return g;
  assert(c.group.width == ranks() || c.group.width <= 1);
  return groups_.front();
}

/// Asks until done() is true; false after limit_ms (0: never). Without a pause at first, because most waits
/// are short; then with pauses, because a processor may have other work.
bool NcclRanks::poll(const std::function<bool()>& done, std::uint64_t limit_ms) {
  const auto begin = Clock::now();
  constexpr std::chrono::milliseconds kBusy{5};
  for (;;) {
    if (done()) return true;
    const auto waited = Clock::now() - begin;
    if (limit_ms > 0 && waited > std::chrono::milliseconds(limit_ms)) return false;
    if (waited < kBusy)
      ::sched_yield();
    else
      std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
}

/// The other ranks learn of it by their own errors or timeouts; the host ends them.
void NcclRanks::fail(const std::string& why) {
  for (Group& g : groups_)
    if (g.comm) nccl_.f.ncclCommAbort(std::exchange(g.comm, nullptr));
  throw abi::StatusError(TH_E_IO, why, "NCCL_DEBUG=WARN prints what NCCL reports");
}

/// Waits for a call that did not block, of any communicator: the end of a group of operations is one of
/// several.
void NcclRanks::require_complete(Result r, const char* what) {
  const auto asked = [&] { return (r = state()) != Result::kInProgress; };
  if (r == Result::kInProgress && !poll(asked, host_->timeout_ms()))
    fail(std::string("waited ") + std::to_string(host_->timeout_ms() / 1000) + " s for other ranks while " +
         what + " by NCCL");
  if (r == Result::kSuccess) return;
  // The connection to a rank that has ended fails too: who that is, the launcher or the communicator of the
  // host reports, and ends this process.
  std::this_thread::sleep_for(kForOthers);
  const char *error = nccl_.f.ncclGetErrorString(r),
             *last = nccl_.f.ncclGetLastError(groups_.empty() ? nullptr : groups_.front().comm);
  fail(std::string("NCCL failed while ") + what + ": " + (error ? error : "") +
       (last && *last ? std::string(": ") + last : ""));
}

void NcclRanks::wait_for(cudaStream_t stream, const char* what) {
  if (!connected()) fail("an operation of NCCL has failed before");
  cudaError_t status = cudaErrorNotReady;
  Result now = Result::kSuccess;
  auto asked_nccl = Clock::now();
  const bool in_time = poll(
      [&] {
        status = cudaStreamQuery(stream);
        if (status != cudaErrorNotReady) return true;
        // What another rank's failure becomes here: an error of the connection.
        if (Clock::now() - asked_nccl < std::chrono::milliseconds(10)) return false;
        asked_nccl = Clock::now();
        now = state();
        return now != Result::kSuccess && now != Result::kInProgress;
      },
      host_->timeout_ms());
  if (now != Result::kSuccess && now != Result::kInProgress) require_complete(now, what);
  if (!in_time)
    fail("waited " + std::to_string(host_->timeout_ms() / 1000) + " s for other ranks while " + what +
         " (see whether all of them run; parallel.timeout sets the time)");
  check(status, what);
}

/// The whole pieces of N ranks by one operation; uneven ones by one per piece.
void NcclRanks::queue_one(const DeviceCollective& c, cudaStream_t stream) {
  if (c.count == 0) return;  // of a gradient of which these TP ranks have no shard
  const auto& f = nccl_.f;
  const Group& group = group_of(c);
  const nccl::Comm comm = group.comm;
  const std::uint64_t size = size_of(c.dtype), n = group.here.count;
  auto* data = static_cast<std::byte*>(c.data);
  const nccl::Type type = type_of(c.dtype);
  const nccl::Sum op = c.reduction == Reduction::kMax ? nccl::Sum::kMax : nccl::Sum::kSum;
  const auto done = [&](Result r) { require_complete(r, "starting an operation"); };
  const bool even = c.count == c.piece * n;
  const auto piece = [&](std::uint64_t r) {
    const std::uint64_t first = std::min(c.count, c.piece * r);
    return Shard{first, std::min(c.piece, c.count - first)};
  };
  const Shard mine = piece(group.here.number);
  std::byte* const here = data + mine.first * size;
  const void* const own = c.own ? c.own : here;
  switch (c.kind) {
    case CollectiveKind::kAllReduce:
      return done(f.ncclAllReduce(data, data, c.count, type, op, comm, stream));
    case CollectiveKind::kBroadcast:
      return done(f.ncclBroadcast(data, data, c.count, type, static_cast<int>(c.root), comm, stream));
    case CollectiveKind::kReduceScatter:
      if (even) return done(f.ncclReduceScatter(data, here, c.piece, type, op, comm, stream));
      for (std::uint64_t r = 0; r < n; ++r)
        if (const Shard s = piece(r); s.count > 0)
          done(f.ncclReduce(data + s.first * size, data + s.first * size, s.count, type, op,
                            static_cast<int>(r), comm, stream));
      return;
    case CollectiveKind::kAllGather:
      if (even) return done(f.ncclAllGather(own, data, c.piece, type, comm, stream));
      for (std::uint64_t r = 0; r < n; ++r)
        if (const Shard s = piece(r); s.count > 0)
          done(f.ncclBroadcast(r == group.here.number ? own : data + s.first * size, data + s.first * size,
                               s.count, type, static_cast<int>(r), comm, stream));
  }
}

void NcclRanks::queue(std::span<const DeviceCollective> group, cudaStream_t stream) {
  if (!connected()) fail("an operation of NCCL has failed before");
  require_complete(nccl_.f.ncclGroupStart(), "starting an operation");
  for (const DeviceCollective& c : group) queue_one(c, stream);
  require_complete(nccl_.f.ncclGroupEnd(), "starting an operation");
}

void NcclRanks::warm_up() {
  using step::OpKind;
  std::vector<DeviceCollective> operations;
  std::set<std::tuple<CollectiveKind, DType, std::uint64_t, const Group*>> known;
  std::uint64_t bytes = 0;
  double no_buffer[step::kScalarCount];
  for (const step::Op& op : program_.ops) {
    if (!executor::RankOperations::contains(op.kind) || op.kind == OpKind::kWait) continue;
    DeviceCollective c{executor::collective_of(program_, op, no_buffer), nullptr};
    if (!known.emplace(c.kind, c.dtype, c.count, &group_of(c)).second) continue;
    operations.push_back(c), bytes = std::max(bytes, c.count * size_of(c.dtype));
  }
  void* memory = nullptr;
  check(cudaMalloc(&memory, bytes), "allocating memory to connect the ranks");
  const auto free_memory = [&] { ignore(cudaFree(memory)); };
  try {
    const Stream stream;
    check(cudaMemsetAsync(memory, 0, bytes, stream), "connecting the ranks");
    for (DeviceCollective& c : operations) c.data = memory, queue({&c, 1}, stream);
    wait_for(stream, "connecting the ranks");
  } catch (...) {
    free_memory();
    throw;
  }
  free_memory();
}

}  // namespace trainhost::cuda
