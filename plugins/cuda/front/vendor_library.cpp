// Uses dlopen with RTLD_NOW | RTLD_LOCAL: a missing symbol is an error here, not a crash later. The library
// is never closed, because a driver may have started threads and installed handlers. See vendor_library.hpp.
#include "plugins/cuda/front/vendor_library.hpp"

#include <dlfcn.h>
#include <stdlib.h>

namespace trainhost::cuda {

std::string VendorLibrary::name() const {
  const char* other =
      secure_getenv(variable_);  // null in a set-uid program: the environment must not choose code
  return other && *other ? other : file_;
}

bool VendorLibrary::open(std::string& why) {
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

void* VendorLibrary::address(const char* symbol) const {
  std::lock_guard lock(mutex_);
  return handle_ ? dlsym(handle_, symbol) : nullptr;
}

}  // namespace trainhost::cuda
