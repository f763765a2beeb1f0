// Tries the engines from the newest to the oldest and reports why none can be used. Uses dlopen with RTLD_NOW
// | RTLD_LOCAL: a missing symbol is an error here, not a crash later, and cuBLAS's symbols are not visible to
// other libraries. Finding the file: plugins/common/engine_loader.cpp; the device: device_checks.cpp. See
// load_engine.hpp.
#include "plugins/cuda/front_end/load_engine.hpp"

#include <dlfcn.h>

#include <array>
#include <cassert>
#include <filesystem>
#include <mutex>
#include <optional>
#include <stdexcept>

#include "core/abi/error_guard.hpp"
#include "plugins/common/engine_loader.hpp"
#include "plugins/cuda/common/device_requirements.hpp"
#include "plugins/cuda/front_end/cuda_driver.hpp"

namespace trainhost::cuda {
namespace {

// dladdr() maps it to the file of the plugin, beside which the engines are.
const void* own() { return reinterpret_cast<const void*>(&select_engine); }

struct Candidate {
  int major;           // of the CUDA toolkit that it is built with
  const char* file;    // in ../engines
  const char* cublas;  // what pip calls the package with cuBLAS of that version
  plugins::EngineLoader loader;
};

/// The newest first.
std::array<Candidate, 2>& candidates() {
  constexpr const char *kEntry = "trainhost_cuda_engine", *kNewest = "cuda-cublas-13.so",
                       *kOldest = "cuda-cublas-12.so";
  static std::array<Candidate, 2> all = {
      {{kNewestMajor, kNewest, "nvidia-cublas", plugins::EngineLoader({"cuda", kNewest, kEntry, "", own()})},
       {kOldestMajor, kOldest, "nvidia-cublas-cu12",
        plugins::EngineLoader({"cuda", kOldest, kEntry, "", own()})}}};
  return all;
}

/// Why an engine cannot be used, the easiest to repair first: that one gives the hint.
enum class Obstacle { kBroken, kLibrary, kDriver, kFile };
struct Reason {
  Obstacle obstacle;
  std::string text, hint;
};

void* open_library(const std::filesystem::path& path) {
  if (void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
  const char* text = dlerror();
  throw std::runtime_error(text ? text : path.string() + ": dlopen failed");
}

/// Loads the engine, or says why it cannot be used with this driver. The driver is checked first: an engine
/// that it does not support is not loaded.
std::optional<Reason> try_to_load(Candidate& c, int driver_version, const plugins::EngineTable*& table) {
  if (!c.loader.present())
    return Reason{Obstacle::kFile, std::string("engines/") + c.file + " is missing",
                  c.major == kOldestMajor ? "install the engine for CUDA 12 ('tools/dev cuda12' builds it)"
                                          : "reinstall trainhost, or build it with 'tools/dev build'"};
  const int least = least_driver_version(c.major);
  if (driver_version < least)
    return Reason{Obstacle::kDriver,
                  "the NVIDIA driver supports CUDA " + cuda_version_text(driver_version) + ", " +
                      cuda_version_text(least) + " is needed",
                  std::string("update the NVIDIA driver to ") + least_driver_branch(c.major) + " or newer"};
  try {
    table = &c.loader.table(open_library);
    return std::nullopt;
    // The loader's own errors: a file of another build.
  } catch (const abi::StatusError& e) {
    return Reason{Obstacle::kBroken, e.what(), e.hint};
  } catch (const std::runtime_error& e) {
    const std::string why = e.what();
    // dlopen() names the library that it does not find; the engine needs cuBLAS beyond those of the system.
    const bool blas = why.find("libcublas") != why.npos;
    return Reason{Obstacle::kLibrary, why,
                  blas ? "install cuBLAS of CUDA " + std::to_string(c.major) +
                             " (of the CUDA toolkit, or pip's " + c.cublas +
                             "), and add its lib folder to LD_LIBRARY_PATH if it is not found"
                       : "install the library, or add its folder to LD_LIBRARY_PATH"};
  }
}

[[noreturn]] void none_usable(const std::array<Reason, 2>& reasons) {
  // Both reasons are stated, but one hint: that of the obstacle which is removed most easily.
  const bool second = reasons[1].obstacle < reasons[0].obstacle;
  const Reason &easiest = reasons[second], &other = reasons[!second];
  std::string hint = easiest.hint;
  // A driver can often be updated only by an administrator, so the alternative is named too.
  if (easiest.obstacle == Obstacle::kDriver) hint += "; or " + other.hint;
  plugins::unavailable("no CUDA engine can be used: CUDA " + std::to_string(kNewestMajor) + ": " +
                           reasons[0].text + "; CUDA " + std::to_string(kOldestMajor) + ": " +
                           reasons[1].text,
                       hint);
}

std::mutex g_for_runs_mutex;  // of g_for_runs
std::optional<Engine> g_for_runs;

}  // namespace

void require_engine_file() {
  for (const Candidate& c : candidates())
    if (c.loader.present()) return;
#if defined(TRAINHOST_CUDA_OFF)
  plugins::unavailable("this build has no CUDA engine: it was configured with TRAINHOST_CUDA=OFF",
                       "configure it with -DTRAINHOST_CUDA=ON");
#elif defined(TRAINHOST_CUDA_ENGINE)
  plugins::unavailable("the engine " + candidates()[0].loader.path().string() + " is missing, and so is " +
                           candidates()[1].file,
                       "reinstall trainhost, or build it with 'tools/dev build'");
#else
  plugins::unavailable("this build has no CUDA engine: the CUDA toolkit was not found when it was built",
                       "install the CUDA toolkit (nvcc and cuBLAS) and build again");
#endif
}

Engine select_engine(int driver_version) {
  std::array<Reason, 2> reasons;
  Engine engine;
  for (std::size_t i = 0; i < reasons.size(); ++i) {
    Candidate& c = candidates()[i];
    std::optional<Reason> why = try_to_load(c, driver_version, engine.table);
    if (!why) {
      engine.file = c.file;
      return engine;
    }
    // Kept although an older engine works: `plugins list -v` says why the newer one does not.
    engine.skipped = "CUDA " + std::to_string(c.major) + ": " + why->text;
    reasons[i] = std::move(*why);
  }
  none_usable(reasons);
}

Engine select_engine_for_runs(int driver_version) {
  std::lock_guard lock(g_for_runs_mutex);
  // A failure leaves it empty, and the next call tries again.
  if (!g_for_runs) g_for_runs = select_engine(driver_version);
  return *g_for_runs;
}

const plugins::EngineTable& loaded_engine() {
  std::lock_guard lock(g_for_runs_mutex);
  assert(g_for_runs && g_for_runs->table);  // an instance exists, so an engine was selected for it
  return *g_for_runs->table;
}

}  // namespace trainhost::cuda
