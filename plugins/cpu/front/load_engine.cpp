// Uses dlopen with RTLD_NOW | RTLD_LOCAL: a missing symbol is an error here, not a crash later, and
// OpenBLAS's symbols are not visible to other libraries. See load_engine.hpp.
#include "plugins/cpu/front/load_engine.hpp"

#include <dlfcn.h>

#include "plugins/common/engine_loader.hpp"
#include "plugins/cpu/common/cpu_traits.hpp"
#include "plugins/cpu/front/core_type.hpp"

namespace trainhost::cpu {
namespace {

plugins::EngineLoader& loader() {
  static plugins::EngineLoader instance({kId, "cpu-openblas.so", "trainhost_cpu_engine",
                                         "rebuild with OpenBLAS installed",
                                         reinterpret_cast<const void*>(&engine)});
  return instance;
}

}  // namespace

const plugins::EngineTable& engine(const th_host* host) {
  return loader().table([&](const std::filesystem::path& path) {
    const CoreChoice choice = choose_core(best_core_type(), environment("OPENBLAS_CORETYPE"),
                                          environment("TRAINHOST_HONOUR_CORETYPE").value_or("") == "1");
    if (!choice.note.empty() && host && host->log) host->log(host, TH_LOG_INFO, kId, choice.note.c_str());
    // OpenBLAS reads its environment variables only while it is loaded.
    OpenBlasEnvironment during_load(choice.core);
    void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!library) {
      const char* why = dlerror();
      plugins::unavailable(why ? why : "dlopen failed", "install OpenBLAS (libopenblas0-pthread)");
    }
    return library;
  });
}

const plugins::EngineTable& loaded_engine() { return loader().loaded(); }

}  // namespace trainhost::cpu
