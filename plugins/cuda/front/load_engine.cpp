// Uses dlopen with RTLD_NOW | RTLD_LOCAL: a missing symbol is an error here, not a crash later, and cuBLAS's
// symbols are not visible to other libraries. Loading the engine creates no CUDA context. See
// load_engine.hpp.
#include "plugins/cuda/front/load_engine.hpp"

#include <dlfcn.h>

#include <string>

#include "plugins/common/engine_loader.hpp"

namespace trainhost::cuda {
namespace {

plugins::EngineLoader& loader() {
  static plugins::EngineLoader instance({"cuda", "cuda-cublas.so", "trainhost_cuda_engine",
                                         "build the engine with 'tools/dev build', or reinstall both files",
                                         reinterpret_cast<const void*>(&engine)});
  return instance;
}

void* open(const std::filesystem::path& path) {
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library) return library;
  const char* text = dlerror();
  const std::string why = text ? text : path.string() + ": dlopen failed";
  const bool blas = why.find("libcublas") != std::string::npos;
  plugins::unavailable("the cuda engine cannot be loaded: " + why,
                       blas ? "install cuBLAS of the CUDA toolkit that the engine was built with, or add its "
                              "lib folder to LD_LIBRARY_PATH"
                            : "install the libraries of the CUDA toolkit that the engine was built with");
}

}  // namespace

void require_engine_built() {
#if defined(TRAINHOST_CUDA_OFF)
  plugins::unavailable("this build has no CUDA engine: it was configured with TRAINHOST_CUDA=OFF",
                       "configure it with -DTRAINHOST_CUDA=ON");
#elif !defined(TRAINHOST_CUDA_ENGINE)
  plugins::unavailable("this build has no CUDA engine: the CUDA toolkit was not found when it was built",
                       "install the CUDA toolkit (nvcc and cuBLAS) and build again");
#endif
}

const plugins::EngineTable& engine() {
  require_engine_built();
  return loader().table(open);
}

const plugins::EngineTable& loaded_engine() { return loader().loaded(); }

}  // namespace trainhost::cuda
