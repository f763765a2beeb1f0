// A vendor library that may not be there: opened at first use, kept for the life of the process, its
// functions looked up by name. The front links none of them.
#pragma once
#include <mutex>
#include <string>

namespace trainhost::cuda {

class VendorLibrary {
 public:
  /// `file`: a soname; the environment variable `variable` names another (tests put a small library of their
  /// own there).
  VendorLibrary(const char* file, const char* variable) : file_(file), variable_(variable) {}

  /// What would be opened now.
  std::string name() const;

  /// Opens it, if that has not been done. false: `why` says it in the loader's words; the next call tries
  /// again.
  bool open(std::string& why);

  /// The function of that name, as F; nullptr when the library has none. Only after open().
  template <class F>
  F find(const char* symbol) const {
    return reinterpret_cast<F>(address(symbol));
  }

 private:
  void* address(const char* symbol) const;
  const char *file_, *variable_;
  mutable std::mutex mutex_;
  std::string opened_;
  void* handle_ = nullptr;
};

}  // namespace trainhost::cuda
