// A vendor library that may be missing: opened with dlopen at first use; its functions are looked up by name,
// because the front end links no vendor library. RTLD_NOW | RTLD_LOCAL: a missing symbol is an error here,
// not a crash later. Never closed, because a driver may have started threads and installed handlers.
#pragma once
#include <dlfcn.h>
#include <stdlib.h>

#include <mutex>
#include <string>

namespace trainhost::cuda {

class VendorLibrary {
 public:
  /// file: a soname. variable: an environment variable that replaces it with another file (tests set it to a
  /// fake library).
  VendorLibrary(const char* file, const char* variable) : file_(file), variable_(variable) {}

  /// The file that open() would open now.
  std::string name() const {
    const char* other =
        secure_getenv(variable_);  // null in a set-uid program: the environment must not choose code
    return other && *other ? other : file_;
  }

  /// Opens the library if it is not open. Returns false on failure, with the loader's message in `why`; the
  /// next call tries again. Thread-safe.
  bool open(std::string& why) {
    std::lock_guard lock(mutex_);
    const std::string file = name();
    if (handle_ && file == opened_) return true;
    void* handle = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!handle) {
      const char* text = dlerror();
      why = text ? text : file + ": dlopen failed";
      return false;
    }
    handle_ = handle;
    opened_ = file;
    return true;
  }

  /// The function with that name, as a function pointer of type F; nullptr if the library has none or is not
  /// open.
  template <class F>
  F find(const char* symbol) const {
    std::lock_guard lock(mutex_);
    return reinterpret_cast<F>(handle_ ? dlsym(handle_, symbol) : nullptr);
  }

 private:
  const char *file_, *variable_;
  mutable std::mutex mutex_;
  std::string opened_;      // file of handle_
  void* handle_ = nullptr;  // null: not open
};

}  // namespace trainhost::cuda
