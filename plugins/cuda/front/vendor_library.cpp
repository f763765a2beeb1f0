// dlopen with RTLD_NOW | RTLD_LOCAL: a missing symbol is a reason here, not a crash later. Never closed: a
// vendor's driver has threads and handlers of its own by then.
#include "plugins/cuda/front/vendor_library.hpp"

#include <dlfcn.h>
#include <stdlib.h>

namespace trainhost::cuda {

std::string VendorLibrary::name() const {
  const char* other = secure_getenv(variable_);  // nothing from the environment decides for a set-uid program
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
