// dlopen with RTLD_NOW | RTLD_LOCAL: a missing symbol is a reason here, not a crash later, and cuBLAS's names stay out of
// everybody else's way. The library stays loaded for the life of the process. Loading it makes no context.
#include "plugins/cuda/front/engine_file.hpp"

#include <dlfcn.h>

#include <atomic>
#include <filesystem>
#include <mutex>
#include <string>

#include "core/bridge/guard.hpp"

namespace trainhost::cuda {
namespace {

std::atomic<const EngineTable*> g_table{nullptr};
std::mutex g_loading;

[[noreturn]] void unavailable(const std::string& why, const std::string& hint = {}) {
  throw bridge::StatusError(TH_E_UNAVAILABLE, why, hint);
}

std::filesystem::path engine_path() {
  Dl_info self{};
  if (!dladdr(reinterpret_cast<const void*>(&engine), &self) || !self.dli_fname)
    unavailable("the cuda plugin cannot find its own file");
  const std::filesystem::path file = std::filesystem::weakly_canonical(self.dli_fname);
  return file.parent_path().parent_path() / "engines" / "cuda-cublas.so";
}

const EngineTable* load() {
  require_engine_built();
  const std::filesystem::path file = engine_path();
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(file, ignored))
    unavailable("the engine " + file.string() + " is missing", "build it again with the CUDA toolkit installed, or reinstall both files");
  void* library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    const char* text = dlerror();
    const std::string why = text ? text : file.string() + ": dlopen failed";
    const bool blas = why.find("libcublas") != std::string::npos;
    unavailable("the cuda engine cannot be loaded: " + why,
                blas ? "install cuBLAS of the CUDA toolkit that this was built with, or add its lib folder to LD_LIBRARY_PATH"
                     : "install the CUDA toolkit's libraries that this was built with");
  }
  auto entry = reinterpret_cast<EngineEntry>(dlsym(library, kEngineSymbol));
  const EngineTable* table = entry ? entry() : nullptr;
  if (!table || table->abi != kEngineAbi)
    unavailable("the engine " + file.string() + " is of another build than the plugin", "reinstall both files together");
  return table;
}

}  // namespace

void require_engine_built() {
#if defined(TRAINHOST_CUDA_OFF)
  unavailable("this build has no CUDA engine: it was configured with TRAINHOST_CUDA=OFF", "configure it with -DTRAINHOST_CUDA=ON");
#elif !defined(TRAINHOST_CUDA_ENGINE)
  unavailable("this build has no CUDA engine: the CUDA toolkit was not found when it was built",
              "install the CUDA toolkit (nvcc and cuBLAS) and build again");
#endif
}

const EngineTable& engine() {
  if (const EngineTable* t = g_table.load(std::memory_order_acquire)) return *t;
  std::lock_guard lock(g_loading);
  if (!g_table.load(std::memory_order_relaxed)) g_table.store(load(), std::memory_order_release);
  return *g_table.load(std::memory_order_relaxed);
}

const EngineTable& loaded_engine() { return *g_table.load(std::memory_order_acquire); }

}  // namespace trainhost::cuda
