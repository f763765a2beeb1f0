// A vendor library that may be missing: opened with dlopen at first use and never closed; its functions are
// looked up by name. The front end links no vendor library.
#pragma once
#include <mutex>
#include <string>

namespace trainhost::cuda {

class VendorLibrary {
 public:
  /// file: a soname. variable: an environment variable that replaces it with another file (tests set it to a
  /// fake library).
  VendorLibrary(const char* file, const char* variable) : file_(file), variable_(variable) {}

  /// The file that open() would open now.
  std::string name() const;

  /// Opens the library if it is not open. Returns false on failure, with the loader's message in `why`; the
  /// next call tries again. Thread-safe.
  bool open(std::string& why);

  /// The function with that name, as a function pointer of type F; nullptr if the library has none or is not
  /// open.
  template <class F>
  F find(const char* symbol) const {
    return reinterpret_cast<F>(address(symbol));
  }

 private:
  void* address(const char* symbol) const;
  const char *file_, *variable_;
  mutable std::mutex mutex_;
  std::string opened_;      // file of handle_
  void* handle_ = nullptr;  // null: not open
};

}  // namespace trainhost::cuda
