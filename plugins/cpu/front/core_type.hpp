// Chooses OpenBLAS's kernels before OpenBLAS is loaded, which is the only moment at which they can be chosen:
// by its environment variables, set around the load and put back afterwards.
#pragma once
#include <optional>
#include <string>

namespace trainhost::cpu {

/// While it lives: OPENBLAS_CORETYPE is `core` ("" leaves it), OPENBLAS_NUM_THREADS is 1.
class OpenBlasEnvironment {
 public:
  explicit OpenBlasEnvironment(const std::string& core);
  ~OpenBlasEnvironment();
  OpenBlasEnvironment(const OpenBlasEnvironment&) = delete;

 private:
  std::optional<std::string> core_before_, threads_before_;
};

struct CoreChoice {
  std::string core;  // what OPENBLAS_CORETYPE should be; "" = leave it
  std::string note;  // one line for the log when a pinned, slower choice is overridden; else ""
};
/// From the CPU's features (`best`), the pinned value and whether the user wants the pin honoured
/// (TRAINHOST_HONOUR_CORETYPE=1). Pure.
CoreChoice choose_core(const std::string& best, const std::optional<std::string>& pinned, bool honour);

std::optional<std::string> environment(const char* name);

}  // namespace trainhost::cpu
