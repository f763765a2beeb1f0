// Loads cuDNN, turns its errors into exceptions, and owns its descriptors. Contains no graph:
// cudnn_graph.cpp. A run without attention = "cudnn" never gets here. See cudnn_library.hpp.
#include "plugins/cuda/engine/cudnn_library.hpp"

#include <dlfcn.h>
#include <stdlib.h>

#include <map>
#include <mutex>

#include "core/abi/error_guard.hpp"
#include "plugins/cuda/engine/cuda_errors.hpp"

namespace trainhost::cuda::cudnn {
namespace {

constexpr const char* kHint =
    "install cuDNN 9.19 or newer for this CUDA version (pip install nvidia-cudnn-cu13) and add its lib "
    "folder "
    "to LD_LIBRARY_PATH, or set plugin.cuda.attention = \"own\"";

// The user has asked for cuDNN by name, so its absence is an error of the run and not a reason to use other
// kernels, whose results have other bits.
[[noreturn]] void unavailable(const std::string& why) {
  throw abi::StatusError(TH_E_UNAVAILABLE, "plugin.cuda.attention = \"cudnn\": " + why, kHint);
}

// Loads by name: the library is a distributor that opens its parts itself, next to its own file.
Functions load(const std::string& file) {
  void* handle = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!handle) {
    const char* text = dlerror();
    unavailable(text ? text : file + ": dlopen failed");
  }
  Functions f{};
  const auto find = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(handle, name));
    if (!function) unavailable(file + " has no function " + name);
  };
#define TRAINHOST_FIND(name) find(f.name, #name)
  // The version is checked before the other functions: an older library would be reported as one that lacks
  // them.
  TRAINHOST_FIND(cudnnGetVersion);
  const std::size_t version = f.cudnnGetVersion();
  if (version < kLeastVersion || version >= kEndVersion)
    unavailable(file + " is cuDNN " + version_text(version) + ", supported are " +
                version_text(kLeastVersion) + " and newer versions of cuDNN 9");
  TRAINHOST_FIND(cudnnGetErrorString);
  TRAINHOST_FIND(cudnnGetLastErrorString);
  TRAINHOST_FIND(cudnnCreate);
  TRAINHOST_FIND(cudnnDestroy);
  TRAINHOST_FIND(cudnnSetStream);
  TRAINHOST_FIND(cudnnBackendCreateDescriptor);
  TRAINHOST_FIND(cudnnBackendDestroyDescriptor);
  TRAINHOST_FIND(cudnnBackendFinalize);
  TRAINHOST_FIND(cudnnBackendSetAttribute);
  TRAINHOST_FIND(cudnnBackendGetAttribute);
  TRAINHOST_FIND(cudnnBackendExecute);
#undef TRAINHOST_FIND
  return f;
}

}  // namespace

std::string version_text(std::size_t v) {
  return std::to_string(v / 10000) + "." + std::to_string(v / 100 % 100) + "." + std::to_string(v % 100);
}

const Functions& library() {
  // By file name, because tests replace the library in one process. A failed load is not kept: the next call
  // tries again.
  static std::mutex mutex;
  static std::map<std::string, Functions> loaded;        // by file; entries keep their address
  const char* other = secure_getenv("TRAINHOST_CUDNN");  // null in a set-uid program
  const std::string file = other && *other ? other : "libcudnn.so.9";
  // Held while the library is loaded, so that it is loaded once.
  std::lock_guard lock(mutex);
  const auto known = loaded.find(file);
  return known != loaded.end() ? known->second : loaded.emplace(file, load(file)).first->second;
}

void check(Status status, const std::string& what) {
  if (status == 0) return;
  // As for cuBLAS: if the device is lost, cuDNN may return any status.
  std::size_t free_bytes = 0, total_bytes = 0;
  if (const cudaError_t runtime = cudaMemGetInfo(&free_bytes, &total_bytes); device_lost(runtime))
    trainhost::cuda::check(runtime, what);
  const Functions& f = library();
  char reason[256] = "";
  f.cudnnGetLastErrorString(reason, sizeof reason);
  const std::string error =
      what + ": " + f.cudnnGetErrorString(status) + (*reason ? ": " + std::string(reason) : "");
  const auto fail = [&](th_status code, const char* hint) {
    throw abi::StatusError(code, error, hint).of("cudnn", status);
  };
  if (status == kDeviceAllocationFailed) fail(TH_E_DEVICE_OOM, "reduce train.micro_batch");
  if (status == kHostAllocationFailed) fail(TH_E_HOST_OOM, "");
  if (status / 1000 * 1000 == kNotSupported) fail(TH_E_UNSUPPORTED, "set plugin.cuda.attention = \"own\"");
  // The CUDA error is the cause, if there is one; check() returns if not.
  if (status / 1000 * 1000 == kExecutionFailed) trainhost::cuda::check(cudaGetLastError(), what);
  fail(TH_E_INTERNAL, "");
}

Object::Object(DescriptorType type) : f_(&library()) {
  check(f_->cudnnBackendCreateDescriptor(type, &d_), "creating a cuDNN descriptor");
}

Object::~Object() {
  if (d_) f_->cudnnBackendDestroyDescriptor(d_);  // the status is of no use in a destructor
}

Object& Object::set_values(Attribute a, ValueType type, std::int64_t count, const void* values) {
  check(f_->cudnnBackendSetAttribute(d_, a, type, count, values),
        "setting the cuDNN attribute " + std::to_string(static_cast<int>(a)));
  return *this;
}

void Object::finalize(const std::string& what) { check(try_finalize(), what); }

Status Object::try_finalize() { return f_->cudnnBackendFinalize(d_); }

std::int64_t Object::get(Attribute a, ValueType type, std::int64_t requested, void* values) const {
  std::int64_t count = 0;
  check(f_->cudnnBackendGetAttribute(d_, a, type, requested, &count, values),
        "reading the cuDNN attribute " + std::to_string(static_cast<int>(a)));
  return count;
}

}  // namespace trainhost::cuda::cudnn
