// Chooses OpenBLAS's kernels, which is possible only while OpenBLAS is loaded, by its environment variables:
// they are set before the load and restored afterwards.
#pragma once
#include <optional>
#include <string>

namespace trainhost::cpu {

/// During its lifetime OPENBLAS_CORETYPE is `core` ("": unchanged) and OPENBLAS_NUM_THREADS is 1.
class OpenBlasEnvironment {
 public:
  explicit OpenBlasEnvironment(const std::string& core);
  ~OpenBlasEnvironment();
  OpenBlasEnvironment(const OpenBlasEnvironment&) = delete;

 private:
  std::optional<std::string> core_before_, threads_before_;
};

struct CoreChoice {
  std::string core;  // value for OPENBLAS_CORETYPE; "" = unchanged
  std::string note;  // log line if a slower value of the user is overridden; else ""
};
/// Decides from the CPU's features (`best`), the user's value and TRAINHOST_HONOUR_CORETYPE=1 (`honour`).
/// Pure.
CoreChoice choose_core(const std::string& best, const std::optional<std::string>& pinned, bool honour);

std::optional<std::string> environment(const char* name);

}  // namespace trainhost::cpu
