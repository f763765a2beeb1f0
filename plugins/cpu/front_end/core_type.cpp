// Environment variables are shared by the whole process, so they are changed only during one dlopen and
// restored to their previous values, unset ones included. See core_type.hpp.
#include "plugins/cpu/front_end/core_type.hpp"

#include <cstdlib>

namespace trainhost::cpu {
namespace {

constexpr const char *kCore = "OPENBLAS_CORETYPE", *kThreads = "OPENBLAS_NUM_THREADS";

void restore(const char* name, const std::optional<std::string>& value) {
  if (value)
    setenv(name, value->c_str(), 1);
  else
    unsetenv(name);
}

// Vector width class of an OpenBLAS core type: 2: AVX-512; 1: AVX2; 0: others.
int vector_class(const std::string& core) {
  for (const char* c :
       {"SkylakeX", "Cooperlake", "SapphireRapids", "SKYLAKEX", "COOPERLAKE", "SAPPHIRERAPIDS"})
    if (core == c) return 2;
  for (const char* c : {"Haswell", "Zen", "Excavator", "HASWELL", "ZEN", "EXCAVATOR"})
    if (core == c) return 1;
  return 0;
}

}  // namespace

std::optional<std::string> environment(const char* name) {
  const char* v = std::getenv(name);
  return v ? std::optional<std::string>(v) : std::nullopt;
}

OpenBlasEnvironment::OpenBlasEnvironment(const std::string& core)
    : core_before_(environment(kCore)), threads_before_(environment(kThreads)) {
  if (!core.empty()) setenv(kCore, core.c_str(), 1);
  setenv(kThreads, "1", 1);  // no worker threads of its own: the engine has a pool
}

OpenBlasEnvironment::~OpenBlasEnvironment() {
  restore(kCore, core_before_);
  restore(kThreads, threads_before_);
}

CoreChoice choose_core(const std::string& best, const std::optional<std::string>& pinned, bool honour) {
  if (best.empty()) return {};
  if (!pinned || pinned->empty()) return {best, ""};
  if (honour || vector_class(*pinned) >= vector_class(best)) return {};
  return {best, "OPENBLAS_CORETYPE=" + *pinned + " would use slower kernels than this CPU has; loading " +
                    best + " instead (TRAINHOST_HONOUR_CORETYPE=1 keeps your value)"};
}

}  // namespace trainhost::cpu
