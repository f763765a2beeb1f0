// Selects the kernel tables at run time, by the features of the CPU or by TRAINHOST_CPU_ISA. Compiled for
// baseline x86-64, because it runs before the features are known: a wider instruction here would end the
// process on an older CPU. The tables: kernels_isa.cpp and bf16_*.cpp, compiled once per instruction set.
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <string>
#include <vector>

#include "core/base/error.hpp"
#include "core/base/text.hpp"
#include "plugins/cpu/kernels/bf16.hpp"
#include "plugins/cpu/kernels/kernel_table.hpp"

namespace trainhost::cpu {
// One namespace per instruction set, because all are linked into one library. A compiler that does not know
// AVX512_BF16 or AMX leaves those two out.
namespace scalar {
extern const Kernels table;
extern const Bf16Kernels bf16_table;
}  // namespace scalar
namespace avx2 {
extern const Kernels table;
extern const Bf16Kernels bf16_table;
}  // namespace avx2
namespace avx512 {
extern const Kernels table;
extern const Bf16Kernels bf16_table;
}  // namespace avx512
#ifdef TRAINHOST_AVX512_BF16
namespace avx512_bf16 {
extern const Bf16Kernels bf16_table;
}
#endif
#ifdef TRAINHOST_AMX
namespace amx {
extern const Bf16Kernels bf16_table;
}
#endif

namespace {

// The levels x86-64-v3 and x86-64-v4, by their vector features. __builtin_cpu_supports() also checks that the
// operating system saves the wide registers.
bool runs_v3() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2");
}
bool runs_v4() {
  return runs_v3() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512cd");
}

// Leaf 7: bit 5 of eax of subleaf 1 is AVX512_BF16; bits 22 and 24 of edx of subleaf 0 are AMX-BF16 and
// AMX-TILE.
unsigned leaf7(unsigned subleaf, int which) {
  unsigned r[4] = {};
  __get_cpuid_count(7, subleaf, &r[0], &r[1], &r[2], &r[3]);
  return r[which];
}
[[maybe_unused]] bool runs_avx512_bf16() { return runs_v4() && (leaf7(1, 0) >> 5 & 1); }
// A process must request the AMX tile registers; the operating system may refuse.
[[maybe_unused]] bool runs_amx() {
  constexpr long kRequestPermission = 0x1023, kTileData = 18;
  return runs_avx512_bf16() && (leaf7(0, 3) >> 22 & 1) && (leaf7(0, 3) >> 24 & 1) &&
         syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

[[maybe_unused]] bool has_slow_vdpbf16ps() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0, most = 0;
  if (!__get_cpuid(0, &most, &ebx, &ecx, &edx)) return false;
  const bool intel = ebx == signature_INTEL_ebx && ecx == signature_INTEL_ecx && edx == signature_INTEL_edx;
  if (!__get_cpuid(1, &eax, &ebx, &ecx, &edx)) return false;
  return vdpbf16ps_is_slow(intel, eax);
}

template <class Table>
/// The tables that this CPU can run, from narrow to wide.
struct Runnable {
  std::array<const Table*, 5> table{};
  std::size_t count = 0;
  void add(bool runs, const Table& t) {
    if (runs) table[count++] = &t;
  }
  const Table* named(const std::string& name) const {
    for (std::size_t i = 0; i < count; ++i)
      if (name == table[i]->name) return table[i];
    return nullptr;
  }
  const Table& widest() const { return *table[count - 1]; }
};
const Runnable<Kernels>& runnable() {
  static const auto all = [] {
    Runnable<Kernels> r;
    // Narrow to wide: the last one that runs is selected.
    r.add(true, scalar::table);
    r.add(runs_v3(), avx2::table);
    r.add(runs_v4(), avx512::table);
    return r;
  }();
  return all;
}
const Runnable<Bf16Kernels>& runnable_bf16() {
  static const auto all = [] {
    Runnable<Bf16Kernels> r;
    r.add(true, scalar::bf16_table);
    r.add(runs_v3(), avx2::bf16_table);
#ifdef TRAINHOST_AVX512_BF16
    const bool slow = has_slow_vdpbf16ps();
    r.add(slow && runs_avx512_bf16(), avx512_bf16::bf16_table);
    r.add(runs_v4(), avx512::bf16_table);
    r.add(!slow && runs_avx512_bf16(), avx512_bf16::bf16_table);
#else
    r.add(runs_v4(), avx512::bf16_table);
#endif
#ifdef TRAINHOST_AMX
    r.add(runs_amx(), amx::bf16_table);
#endif
    return r;
  }();
  return all;
}

// "" = not forced. The last two names select how bf16 is multiplied; everything else is AVX-512.
std::string forced() {
  const char* wanted = std::getenv("TRAINHOST_CPU_ISA");
  if (!wanted || !*wanted) return "";
  const std::vector<std::string> known = {"scalar", "avx2", "avx512", "avx512_bf16", "amx"};
  if (std::find(known.begin(), known.end(), wanted) == known.end())
    throw usage_error("TRAINHOST_CPU_ISA=" + escaped(wanted) +
                      ": expected scalar, avx2, avx512, avx512_bf16 or amx" + did_you_mean(wanted, known));
  // The list of bf16 tables has every name; the other list lacks the last two.
  if (!runnable_bf16().named(wanted))
    throw usage_error("TRAINHOST_CPU_ISA=" + std::string(wanted) + ": not supported by this CPU");
  return wanted;
}

}  // namespace

bool vdpbf16ps_is_slow(bool intel, unsigned signature) {
  // Family and model with their extended parts, as CPUID leaf 1 combines them.
  const unsigned family = signature >> 8 & 15, model = (signature >> 4 & 15) | (signature >> 12 & 0xf0);
  constexpr unsigned kCooperLake = 85;  // also Skylake and Cascade Lake, which lack the instruction
  return intel && family == 6 && model != kCooperLake;
}

const Kernels* const* runnable_kernels(std::size_t* count) {
  *count = runnable().count;
  return runnable().table.data();
}
const Bf16Kernels* const* runnable_bf16_kernels(std::size_t* count) {
  *count = runnable_bf16().count;
  return runnable_bf16().table.data();
}

const Kernels& select_kernels() {
  // "avx512_bf16" and "amx" name no table here. A CPU that has them has AVX-512, so the widest one is
  // selected.
  const Kernels* named = runnable().named(forced());
  return named ? *named : runnable().widest();
}
bool select_own_products(const Kernels& kernels) {
  const char* wanted = std::getenv("TRAINHOST_CPU_PRODUCTS");
  if (!wanted || !*wanted) return kernels.own_large_products;
  const std::string name = wanted;
  if (name != "own" && name != "openblas")
    throw usage_error("TRAINHOST_CPU_PRODUCTS=" + escaped(name) + ": expected own or openblas" +
                      did_you_mean(name, std::vector<std::string>{"own", "openblas"}));
  return name == "own";
}
const Bf16Kernels& select_bf16_kernels() {
  const Bf16Kernels* named = runnable_bf16().named(forced());
  return named ? *named : runnable_bf16().widest();
}

}  // namespace trainhost::cpu
