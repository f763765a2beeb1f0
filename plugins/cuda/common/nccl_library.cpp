// See nccl_library.hpp.
#include "plugins/cuda/common/nccl_library.hpp"

#include <dlfcn.h>
#include <stdlib.h>

#include <map>
#include <mutex>
#include <type_traits>

#include "core/abi/error_guard.hpp"

namespace trainhost::cuda::nccl {
namespace {

constexpr const char* kHint =
    "install NCCL 2.14 or newer for this CUDA version (libnccl2; pip install nvidia-nccl-cu13) and add its "
    "lib "
    "folder to LD_LIBRARY_PATH";

[[noreturn]] void unavailable(const std::string& why) {
  throw abi::StatusError(TH_E_UNAVAILABLE, "several ranks need NCCL: " + why, kHint);
}

std::string version_text(int v) {
  return std::to_string(v / 10000) + "." + std::to_string(v / 100 % 100) + "." + std::to_string(v % 100);
}

Library load(const std::string& file) {
  void* handle = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!handle) {
    const char* text = dlerror();
    unavailable(text ? text : file + ": dlopen failed");
  }
  Library out;
  const auto find = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(handle, name));
    if (!function) unavailable(file + " has no function " + name);
  };
#define TRAINHOST_FIND(name) find(out.f.name, #name)
  // The version is checked before the other functions: an older library would be reported as one that lacks
  // them.
  TRAINHOST_FIND(ncclGetVersion);
  if (out.f.ncclGetVersion(&out.version) != Result::kSuccess) unavailable(file + " does not say its version");
  if (out.version < kLeastVersion || out.version >= kEndVersion)
    unavailable(file + " is NCCL " + version_text(out.version) + ", supported are " +
                version_text(kLeastVersion) + " and newer versions of NCCL 2");
  TRAINHOST_FIND(ncclGetErrorString);
  TRAINHOST_FIND(ncclGetLastError);
  TRAINHOST_FIND(ncclGetUniqueId);
  TRAINHOST_FIND(ncclCommInitRankConfig);
  TRAINHOST_FIND(ncclCommGetAsyncError);
  TRAINHOST_FIND(ncclCommFinalize);
  TRAINHOST_FIND(ncclCommDestroy);
  TRAINHOST_FIND(ncclCommAbort);
  TRAINHOST_FIND(ncclAllReduce);
  TRAINHOST_FIND(ncclReduceScatter);
  TRAINHOST_FIND(ncclReduce);
  TRAINHOST_FIND(ncclAllGather);
  TRAINHOST_FIND(ncclBroadcast);
  TRAINHOST_FIND(ncclGroupStart);
  TRAINHOST_FIND(ncclGroupEnd);
#undef TRAINHOST_FIND
  return out;
}

}  // namespace

std::string Library::text() const { return "NCCL " + version_text(version); }

const Library& library() {
  // By file name, because tests replace the library in one process. A failed load is not kept.
  static std::mutex mutex;
  static std::map<std::string, Library> loaded;         // entries keep their address
  const char* other = secure_getenv("TRAINHOST_NCCL");  // null in a set-uid program
  const std::string file = other && *other ? other : "libnccl.so.2";
  std::lock_guard lock(mutex);
  const auto known = loaded.find(file);
  return known != loaded.end() ? known->second : loaded.emplace(file, load(file)).first->second;
}

}  // namespace trainhost::cuda::nccl
