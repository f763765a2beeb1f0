// NCCL, loaded at run time: NVIDIA ships it apart from the CUDA toolkit, and only runs of several ranks need
// it. The part of its interface that is used, without its header; numbers are those of every NCCL 2.
#pragma once
#include <cstddef>
#include <string>

namespace trainhost::cuda::nccl {

/// Oldest version with communicators that do not block (ncclCommInitRankConfig), by which a wait for other
/// ranks can end; 3 and newer may change the interface.
inline constexpr int kLeastVersion = 21400, kEndVersion = 30000;

using Comm = struct ncclComm*;
using Stream = void*;  // cudaStream_t
enum class Result : int { kSuccess = 0, kInProgress = 7 };
enum class Type : int { kU8 = 1, kI32 = 2, kF32 = 7, kF64 = 8, kBF16 = 9 };
enum class Sum : int { kSum = 0, kMax = 2 };

struct UniqueId {
  char bytes[128];
};

/// ncclConfig_t of 2.14, which newer versions accept: a field of a later version has its default.
struct Config {
  std::size_t size = sizeof(Config);
  unsigned magic = 0xcafebeef, version = kLeastVersion;
  int blocking = 0;
};

/// Documented in the user guide of NCCL.
struct Functions {
  Result (*ncclGetVersion)(int*);
  const char* (*ncclGetErrorString)(Result);
  const char* (*ncclGetLastError)(Comm);
  Result (*ncclGetUniqueId)(UniqueId*);
  Result (*ncclCommInitRankConfig)(Comm*, int ranks, UniqueId, int rank, Config*);
  Result (*ncclCommGetAsyncError)(Comm, Result*);
  Result (*ncclCommFinalize)(Comm);
  Result (*ncclCommDestroy)(Comm);
  Result (*ncclCommAbort)(Comm);
  Result (*ncclAllReduce)(const void* from, void* to, std::size_t count, Type, Sum, Comm, Stream);
  Result (*ncclReduceScatter)(const void* from, void* to, std::size_t each, Type, Sum, Comm, Stream);
  Result (*ncclReduce)(const void* from, void* to, std::size_t count, Type, Sum, int root, Comm, Stream);
  Result (*ncclAllGather)(const void* from, void* to, std::size_t each, Type, Comm, Stream);
  Result (*ncclBroadcast)(const void* from, void* to, std::size_t count, Type, int root, Comm, Stream);
  Result (*ncclGroupStart)();
  Result (*ncclGroupEnd)();
};

struct Library {
  Functions f{};
  int version = 0;
  std::string text() const;  // "NCCL 2.27.3"
};

/// The functions of libnccl.so.2, which the first call loads: from LD_LIBRARY_PATH or the system's folders.
/// The environment variable TRAINHOST_NCCL names another file. Never unloaded. Throws abi::StatusError
/// (TH_E_UNAVAILABLE) if the library or a function is missing, or the version is not supported; the next call
/// tries again.
const Library& library();

}  // namespace trainhost::cuda::nccl
