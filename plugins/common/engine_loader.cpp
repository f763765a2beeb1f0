// Locates the engine from the address of a function of the plugin, so that a copied or installed pair of
// files works from any folder. Opens no library itself: the front ends do. See engine_loader.hpp.
#include "plugins/common/engine_loader.hpp"

#include <dlfcn.h>

#include "core/abi/error_guard.hpp"

namespace trainhost::plugins {

void unavailable(const std::string& why, const std::string& hint) {
  throw abi::StatusError(TH_E_UNAVAILABLE, why, hint);
}

std::filesystem::path EngineLoader::path() const {
  Dl_info self{};
  if (!dladdr(file_.own, &self) || !self.dli_fname)
    unavailable(std::string("the ") + file_.plugin + " plugin cannot find its own file");
  // Resolves symbolic links first: ../engines must be found relative to the file itself.
  const std::filesystem::path plugin = std::filesystem::weakly_canonical(self.dli_fname);
  return plugin.parent_path().parent_path() / "engines" / file_.file;
}

bool EngineLoader::present() const {
  std::error_code ignored;
  return std::filesystem::is_regular_file(path(), ignored);
}

const EngineTable* EngineLoader::load(const std::function<void*(const std::filesystem::path&)>& open) const {
  const std::filesystem::path file = path();
  if (!present()) unavailable("the engine " + file.string() + " is missing", file_.when_missing);
  // A file of another build may have a table of another layout: only `abi`, its first member, is read before
  // the comparison.
  const auto entry = reinterpret_cast<EngineEntry>(dlsym(open(file), file_.symbol));
  const EngineTable* table = entry ? entry() : nullptr;
  if (!table || table->abi != kEngineAbi)
    unavailable("the engine " + file.string() + " does not belong to this build of the plugin",
                "reinstall both files together");
  return table;
}

const EngineTable& EngineLoader::table(const std::function<void*(const std::filesystem::path&)>& open) {
  // Double-checked locking: after the first success no call takes the lock.
  if (const EngineTable* t = table_.load(std::memory_order_acquire)) return *t;
  std::lock_guard lock(loading_);
  if (!table_.load(std::memory_order_relaxed)) table_.store(load(open), std::memory_order_release);
  return *table_.load(std::memory_order_relaxed);
}

}  // namespace trainhost::plugins
