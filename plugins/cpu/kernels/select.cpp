// Chooses the kernel table at run time, from what the CPU can do or from TRAINHOST_CPU_ISA.
#include <array>
#include <cstdlib>
#include <string>
#include <vector>

#include "core/base/error.hpp"
#include "core/base/text.hpp"
#include "plugins/cpu/kernels/kernels.hpp"

namespace trainhost::cpu {
namespace scalar { extern const Kernels table; }
namespace avx2 { extern const Kernels table; }
namespace avx512 { extern const Kernels table; }

namespace {

bool runs_v3() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2");
}
bool runs_v4() {
  return runs_v3() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512cd");
}

struct Runnable {
  std::array<const Kernels*, 3> table{};
  std::size_t count = 0;
  Runnable() {
    table[count++] = &scalar::table;
    if (runs_v3()) table[count++] = &avx2::table;
    if (runs_v4()) table[count++] = &avx512::table;
  }
};
const Runnable& runnable() {
  static const Runnable r;
  return r;
}

}  // namespace

const Kernels* const* runnable_kernels(std::size_t* count) {
  *count = runnable().count;
  return runnable().table.data();
}

const Kernels& select_kernels() {
  const Runnable& r = runnable();
  const char* wanted = std::getenv("TRAINHOST_CPU_ISA");
  if (!wanted || !*wanted) return *r.table[r.count - 1];
  for (std::size_t i = 0; i < r.count; ++i)
    if (std::string(wanted) == r.table[i]->name) return *r.table[i];
  const std::vector<std::string> known = {"scalar", "avx2", "avx512"};
  for (const std::string& k : known)
    if (k == wanted) throw usage_error("TRAINHOST_CPU_ISA=" + k + ": this CPU cannot run it");
  throw usage_error("TRAINHOST_CPU_ISA=" + escaped(wanted) + ": expected scalar, avx2 or avx512" + did_you_mean(wanted, known));
}

}  // namespace trainhost::cpu
