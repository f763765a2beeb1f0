// dlopen with RTLD_NOW | RTLD_LOCAL: a missing symbol is a reason here, not a crash later, and OpenBLAS's names stay
// out of everybody else's way. The library stays loaded for the life of the process.
#include "plugins/cpu/front/engine_file.hpp"

#include <dlfcn.h>

#include <atomic>
#include <filesystem>
#include <mutex>
#include <string>

#include "core/bridge/guard.hpp"
#include "plugins/cpu/common/profile.hpp"
#include "plugins/cpu/front/core_type.hpp"

namespace trainhost::cpu {
namespace {

std::atomic<const EngineTable*> g_table{nullptr};
std::mutex g_loading;

[[noreturn]] void unavailable(const std::string& why, const std::string& hint = {}) {
  throw bridge::StatusError(TH_E_UNAVAILABLE, why, hint);
}

std::filesystem::path engine_path() {
  Dl_info self{};
  if (!dladdr(reinterpret_cast<const void*>(&engine), &self) || !self.dli_fname)
    unavailable("the cpu plugin cannot find its own file");
  std::filesystem::path file = std::filesystem::weakly_canonical(self.dli_fname);
  return file.parent_path().parent_path() / "engines" / "cpu-openblas.so";
}

const EngineTable* load(const th_host* host) {
  const std::filesystem::path file = engine_path();
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(file, ignored))
    unavailable("the engine " + file.string() + " is missing", "rebuild with OpenBLAS installed");
  const CoreChoice choice = choose_core(best_core_type(), environment("OPENBLAS_CORETYPE"),
                                        environment("TRAINHOST_HONOUR_CORETYPE").value_or("") == "1");
  if (!choice.note.empty() && host && host->log) host->log(host, TH_LOG_INFO, kId, choice.note.c_str());
  void* library = nullptr;
  {
    OpenBlasEnvironment around(choice.core);
    library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  }
  if (!library) {
    const char* why = dlerror();
    unavailable(why ? why : "dlopen failed", "install OpenBLAS (libopenblas0-pthread)");
  }
  auto entry = reinterpret_cast<EngineEntry>(dlsym(library, kEngineSymbol));
  const EngineTable* table = entry ? entry() : nullptr;
  if (!table || table->abi != kEngineAbi)
    unavailable("the engine " + file.string() + " is of another build than the plugin", "reinstall both files together");
  return table;
}

}  // namespace

const EngineTable& engine(const th_host* host) {
  if (const EngineTable* t = g_table.load(std::memory_order_acquire)) return *t;
  std::lock_guard lock(g_loading);
  if (!g_table.load(std::memory_order_relaxed)) g_table.store(load(host), std::memory_order_release);
  return *g_table.load(std::memory_order_relaxed);
}

const EngineTable& loaded_engine() { return *g_table.load(std::memory_order_acquire); }

}  // namespace trainhost::cpu
