// A libnccl.so.2 for tests, part of a library that is linked with the emulation: TRAINHOST_NCCL names that
// library. Ranks are processes, or threads of one, that share memory. An operation is three items of a stream
// of the emulation: publish what this rank sends, wait until all ranks have published, combine. So it reads
// its operands only when the stream gets there, and a missing event shows. Sums are added in the order of the
// ranks; other pieces of a reduce-scatter become NaN.
//
// Variables of the environment, of failures of rank R from its operation N on: FAKE_NCCL_STALL=R:N (it never
// publishes), FAKE_NCCL_FAIL=R:N (the call fails); FAKE_NCCL_VERSION.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "core/base/bf16.hpp"
#include "plugins/cuda/common/nccl_library.hpp"
#include "tests/support/cuda/emulation_state.hpp"

#define EXPORT extern "C" __attribute__((visibility("default")))

using trainhost::cuda::nccl::Config;
using trainhost::cuda::nccl::Result;
using trainhost::cuda::nccl::Sum;
using trainhost::cuda::nccl::Type;
using trainhost::cuda::nccl::UniqueId;

namespace {

constexpr int kMostRanks = 8;
constexpr std::size_t kSlotBytes = 1 << 20;
constexpr Result kUnhandledCudaError{1}, kInvalidArgument{4}, kInvalidUsage{5};

struct Shared {
  std::atomic<int> attached;
  std::atomic<std::uint64_t> published[kMostRanks];  // operations
  // By parity of the operation: a rank publishes operation n + 2 after it has combined n + 1, and so after
  // every rank has published n + 1, which it does after combining n.
  std::byte slot[2][kMostRanks][kSlotBytes];
};

enum class Kind { kAllReduce, kReduceScatter, kReduce, kAllGather, kBroadcast };

struct Operation {
  Kind kind;
  const std::byte* from;
  std::byte* to;
  std::size_t count;
  Type type;
  Sum sum;
  int root;
  std::uint64_t number;
};

std::size_t bytes_of(Type t) { return t == Type::kF64 ? 8 : t == Type::kBF16 ? 2 : t == Type::kU8 ? 1 : 4; }

/// True if the variable names this rank and an operation that is not after `number`.
bool is_set(const char* variable, int rank, std::uint64_t number) {
  const char* text = std::getenv(variable);
  int r = 0;
  unsigned long long from = 0;
  return text && std::sscanf(text, "%d:%llu", &r, &from) == 2 && r == rank && number >= from;
}

thread_local int in_groups = 0;

}  // namespace

struct ncclComm {
  int rank = 0, ranks = 0;
  Shared* shared = nullptr;
  std::uint64_t started = 0;
  bool connected = false;
  bool pending = false;  // the last call is not complete yet
  std::atomic<bool> aborted{false};
};

namespace {

using Comm = std::shared_ptr<ncclComm>;

std::mutex g_mutex;
std::map<ncclComm*, Comm>& communicators() {
  static auto& all = *new std::map<ncclComm*, Comm>;
  return all;
}
Comm find(ncclComm* c) {
  std::lock_guard lock(g_mutex);
  const auto at = communicators().find(c);
  return at == communicators().end() ? nullptr : at->second;
}
void forget(ncclComm* c) {
  std::lock_guard lock(g_mutex);
  communicators().erase(c);  // its shared memory stays mapped: queued work may use it
}

std::size_t sent_bytes(const ncclComm& c, const Operation& o) {
  const std::size_t bytes = o.count * bytes_of(o.type);
  if (o.kind == Kind::kBroadcast) return c.rank == o.root ? bytes : 0;
  return o.kind == Kind::kReduceScatter ? bytes * static_cast<std::size_t>(c.ranks) : bytes;
}

void publish(ncclComm& c, const Operation& o) {
  if (c.aborted || is_set("FAKE_NCCL_STALL", c.rank, o.number)) return;
  std::memcpy(c.shared->slot[o.number % 2][c.rank], o.from, sent_bytes(c, o));
  c.shared->published[c.rank] = o.number + 1;
  emu::state().changed.notify_all();
}

bool all_published(const ncclComm& c, const Operation& o) {
  if (c.aborted) return true;
  for (int r = 0; r < c.ranks; ++r)
    if (c.shared->published[r] <= o.number) return false;
  return true;
}

/// to[i] = sum of slot[r][skip + i] over the ranks r.
template <class T>
void add(const ncclComm& c, const Operation& o, std::size_t skip) {
  auto* to = reinterpret_cast<T*>(o.to);
  for (std::size_t i = 0; i < o.count; ++i) {
    T all{};
    for (int r = 0; r < c.ranks; ++r) {
      const T x = reinterpret_cast<const T*>(c.shared->slot[o.number % 2][r])[skip + i];
      all = r == 0 ? x : o.sum == Sum::kMax ? std::max(all, x) : all + x;
    }
    to[i] = all;
  }
}

/// Every sum of two numbers is rounded, as where ranks pass a sum on.
void add_bf16(const ncclComm& c, const Operation& o, std::size_t skip) {
  auto* to = reinterpret_cast<std::uint16_t*>(o.to);
  for (std::size_t i = 0; i < o.count; ++i) {
    float all = 0;
    for (int r = 0; r < c.ranks; ++r) {
      const float x = trainhost::f32_from_bf16(
          reinterpret_cast<const std::uint16_t*>(c.shared->slot[o.number % 2][r])[skip + i]);
      all = r == 0 ? x
                   : trainhost::f32_from_bf16(
                         trainhost::bf16_from_f32(o.sum == Sum::kMax ? std::max(all, x) : all + x));
    }
    to[i] = trainhost::bf16_from_f32(all);
  }
}

void add_typed(const ncclComm& c, const Operation& o, std::size_t skip) {
  if (o.type == Type::kF64)
    add<double>(c, o, skip);
  else if (o.type == Type::kF32)
    add<float>(c, o, skip);
  else if (o.type == Type::kBF16)
    add_bf16(c, o, skip);
  else
    add<std::int32_t>(c, o, skip);
}

void combine(const ncclComm& c, const Operation& o) {
  if (c.aborted) return;
  const std::size_t bytes = o.count * bytes_of(o.type), rank = static_cast<std::size_t>(c.rank);
  const auto& slots = c.shared->slot[o.number % 2];
  switch (o.kind) {
    case Kind::kAllReduce:
      return add_typed(c, o, 0);
    case Kind::kReduce:
      if (c.rank == o.root) add_typed(c, o, 0);
      return;
    case Kind::kReduceScatter: {
      add_typed(c, o, o.count * rank);
      // In place: the other pieces.
      auto* all = const_cast<std::byte*>(o.from);
      if (o.to != all + rank * bytes) return;
      std::memset(all, 0xff, rank * bytes);
      std::memset(o.to + bytes, 0xff, (static_cast<std::size_t>(c.ranks) - rank - 1) * bytes);
      return;
    }
    case Kind::kAllGather:
      for (int r = 0; r < c.ranks; ++r)
        std::memcpy(o.to + static_cast<std::size_t>(r) * bytes, slots[r], bytes);
      return;
    case Kind::kBroadcast:
      std::memcpy(o.to, slots[o.root], bytes);
  }
}

Result start(ncclComm* handle, Operation o, void* stream) {
  const Comm c = find(handle);
  if (!c || !c->connected || c->pending || c->aborted) return kInvalidUsage;
  o.number = c->started++;
  if (is_set("FAKE_NCCL_FAIL", c->rank, o.number)) return kUnhandledCudaError;
  const auto ranks = static_cast<std::size_t>(c->ranks);
  const std::size_t received = o.count * bytes_of(o.type) * (o.kind == Kind::kAllGather ? ranks : 1);
  if (sent_bytes(*c, o) > kSlotBytes) return kInvalidUsage;
  emu::Lock lock(emu::state().mutex);
  CUstream_st* s = emu::stream_of(static_cast<cudaStream_t>(stream));
  if (!s || !emu::on_device(o.from, sent_bytes(*c, o)) || !emu::on_device(o.to, received))
    return kInvalidArgument;
  auto all = std::make_shared<Mark>(Mark{nullptr});
  all->poll = [c, o] { return all_published(*c, o); };
  emu::enqueue(lock, *s,
               {.work = emu::Work::kKernel, .name = "nccl publish", .run = [c, o] { publish(*c, o); }});
  emu::enqueue(lock, *s, {.work = emu::Work::kWait, .name = "nccl wait", .mark = all});
  emu::enqueue(lock, *s,
               {.work = emu::Work::kKernel, .name = "nccl combine", .run = [c, o] { combine(*c, o); }});
  if (in_groups > 0) return Result::kSuccess;
  c->pending = true;
  return Result::kInProgress;
}

const std::byte* bytes_at(const void* p) { return static_cast<const std::byte*>(p); }
std::byte* bytes_at(void* p) { return static_cast<std::byte*>(p); }

}  // namespace

EXPORT Result ncclGetVersion(int* version) {
  const char* text = std::getenv("FAKE_NCCL_VERSION");
  *version = text ? std::atoi(text) : 22703;
  return Result::kSuccess;
}
EXPORT const char* ncclGetErrorString(Result r) {
  return r == kUnhandledCudaError ? "unhandled cuda error" : r == kInvalidUsage ? "invalid usage" : "error";
}
EXPORT const char* ncclGetLastError(ncclComm*) { return "fake"; }

EXPORT Result ncclGetUniqueId(UniqueId* id) {
  static std::atomic<int> made{0};
  std::snprintf(id->bytes, sizeof id->bytes, "/trainhost-fake-nccl-%d-%d", ::getpid(), made++);
  const int fd = ::shm_open(id->bytes, O_CREAT | O_EXCL | O_RDWR, 0600);
  // The rank that connects last removes the name of the shared memory. If they never connect, this process
  // removes it when it ends.
  static std::vector<std::string> names;
  std::lock_guard lock(g_mutex);
  if (names.empty())
    std::atexit([] {
      for (const std::string& name : names) ::shm_unlink(name.c_str());
    });
  names.emplace_back(id->bytes);
  const bool ok = fd >= 0 && ::ftruncate(fd, sizeof(Shared)) == 0;
  if (fd >= 0) ::close(fd);
  return ok ? Result::kSuccess : kUnhandledCudaError;
}

EXPORT Result ncclCommInitRankConfig(ncclComm** out, int ranks, UniqueId id, int rank, Config* config) {
  if (config->magic != 0xcafebeef || config->blocking != 0 || ranks > kMostRanks || rank >= ranks)
    return kInvalidArgument;
  const int fd = ::shm_open(id.bytes, O_RDWR, 0600);
  if (fd < 0) return kInvalidArgument;
  void* memory = ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  ::close(fd);
  if (memory == MAP_FAILED) return kUnhandledCudaError;
  auto c = std::make_shared<ncclComm>();
  c->rank = rank, c->ranks = ranks, c->shared = static_cast<Shared*>(memory);
  if (++c->shared->attached == ranks) ::shm_unlink(id.bytes);
  *out = c.get();
  std::lock_guard lock(g_mutex);
  communicators()[c.get()] = c;
  return Result::kInProgress;
}

EXPORT Result ncclCommGetAsyncError(ncclComm* handle, Result* state) {
  const Comm c = find(handle);
  if (!c) return kInvalidArgument;
  c->connected = c->shared->attached == c->ranks;
  *state = !c->connected || c->pending ? Result::kInProgress : Result::kSuccess;
  c->pending = false;
  return Result::kSuccess;
}

EXPORT Result ncclCommFinalize(ncclComm* handle) {
  const Comm c = find(handle);
  if (!c) return kInvalidArgument;
  c->pending = true;
  return Result::kInProgress;
}
EXPORT Result ncclCommDestroy(ncclComm* handle) { return forget(handle), Result::kSuccess; }
EXPORT Result ncclCommAbort(ncclComm* handle) {
  const Comm c = find(handle);
  if (!c) return kInvalidArgument;
  c->aborted = true;
  forget(handle);
  return Result::kSuccess;
}

EXPORT Result ncclAllReduce(const void* from, void* to, std::size_t n, Type t, Sum s, ncclComm* c,
                            void* stream) {
  return start(c, {Kind::kAllReduce, bytes_at(from), bytes_at(to), n, t, s, 0, 0}, stream);
}
EXPORT Result ncclReduceScatter(const void* from, void* to, std::size_t each, Type t, Sum s, ncclComm* c,
                                void* stream) {
  return start(c, {Kind::kReduceScatter, bytes_at(from), bytes_at(to), each, t, s, 0, 0}, stream);
}
EXPORT Result ncclReduce(const void* from, void* to, std::size_t n, Type t, Sum s, int root, ncclComm* c,
                         void* stream) {
  return start(c, {Kind::kReduce, bytes_at(from), bytes_at(to), n, t, s, root, 0}, stream);
}
EXPORT Result ncclAllGather(const void* from, void* to, std::size_t each, Type t, ncclComm* c, void* stream) {
  return start(c, {Kind::kAllGather, bytes_at(from), bytes_at(to), each, t, Sum::kSum, 0, 0}, stream);
}
EXPORT Result ncclBroadcast(const void* from, void* to, std::size_t n, Type t, int root, ncclComm* c,
                            void* stream) {
  return start(c, {Kind::kBroadcast, bytes_at(from), bytes_at(to), n, t, Sum::kSum, root, 0}, stream);
}
EXPORT Result ncclGroupStart() { return ++in_groups, Result::kSuccess; }
EXPORT Result ncclGroupEnd() { return --in_groups, Result::kSuccess; }
