// See loaded_library.hpp. Boost.DLL maps the file; other questions go directly to the dynamic linker. Maps it
// as the host does (RTLD_NOW, RTLD_LOCAL), so that what passes here loads there.
#include "core/plugin_validator/loaded_library.hpp"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>

#include <boost/dll/shared_library.hpp>
#include <cstring>
#include <deque>
#include <vector>  // Boost.DLL 1.74 forgets it

#include "core/base/text.hpp"
#include "core/plugin_validator/validator_check.hpp"

namespace trainhost::plugin_validator {
namespace {

/// What both sides know of a foreign struct, the rest zero. `size` gets the other side's struct_size.
/// A smaller struct_size leaves the rest zero, that is, functions null; a larger one is cut.
template <class T>
T known(const void* from, std::uint32_t& size) {
  T t{};
  std::memcpy(&size, from, sizeof size);
  std::memcpy(&t, from, size < sizeof(T) ? size : sizeof(T));
  return t;
}

}  // namespace

std::string LoadedLibrary::map(const std::filesystem::path& file, Mapping how) {
  namespace dll = boost::dll;
  static std::deque<dll::shared_library>
      libraries;  // of the process: as the host does, nothing is ever closed by itself
  dll::shared_library& library = libraries.emplace_back();
  const auto stay =
      how == Mapping::kForever ? static_cast<dll::load_mode::type>(RTLD_NODELETE) : dll::load_mode::type{};
  std::error_code failed;
  // Clears an older error text.
  ::dlerror();
  try {
    library.load(dll::fs::path(file), dll::load_mode::rtld_now | dll::load_mode::rtld_local | stay, failed);
    // Thrown by a constructor of the plugin through dlopen().
  } catch (...) {
    return "an exception left its static initialisation";
  }
  if (failed) {
    const char* text = ::dlerror();
    return escaped(text ? text : failed.message(), 1000);
  }
  // The deque owns the library; `this` only refers to it.
  handle_ = library.native();
  close_ = [&library] { library.unload(); };
  return "";
}

void LoadedLibrary::unmap() {
  if (close_) close_();
  handle_ = nullptr, close_ = nullptr;
}

LoadedLibrary::Entry LoadedLibrary::entry(std::string& why) const {
  void* address = ::dlsym(handle_, TH_ENTRY_NAME);
  if (!address) return why = "it has no function " TH_ENTRY_NAME, nullptr;
  // RTLD_DI_LINKMAP and RTLD_DL_SYMENT tell what dlsym() does not: the kind of the symbol and the library
  // that defines it.
  Dl_info info{};
  void* symbol = nullptr;
  struct link_map* own = nullptr;
  // Without information about the symbol its kind cannot be checked.
  if (::dladdr1(address, &info, &symbol, RTLD_DL_SYMENT) == 0 || !symbol)
    return reinterpret_cast<Entry>(address);
  if (ELF64_ST_TYPE(static_cast<const Elf64_Sym*>(symbol)->st_info) != STT_FUNC)
    return why = TH_ENTRY_NAME " is data, not a function", nullptr;
  // dlsym() searches the dependencies too: a library that links another plugin would give that plugin's
  // entry.
  if (::dlinfo(handle_, RTLD_DI_LINKMAP, &own) == 0 && own &&
      reinterpret_cast<std::uintptr_t>(info.dli_fbase) != own->l_addr)
    return why = fmt::format(TH_ENTRY_NAME " is defined by a library that it depends on, {}",
                             escaped(info.dli_fname)),
           nullptr;
  return reinterpret_cast<Entry>(address);
}

th_plugin LoadedLibrary::table() const {
  std::string why;
  const Entry e = entry(why);
  if (!e) throw CheckFailed(why);
  const th_plugin* raw = e();
  if (!raw) throw CheckFailed("its entry returned null");
  std::uint32_t size = 0;
  return known<th_plugin>(raw, size);
}

const void* LoadedLibrary::interface(const char* id) const {
  // get() is optional until C-024 has passed.
  const th_plugin t = table();
  return t.get ? t.get(id) : nullptr;
}

th_estimator LoadedLibrary::estimator() const {
  const void* raw = interface(TH_ESTIMATOR_ID);
  if (!raw) throw CheckFailed("get() returned null for " TH_ESTIMATOR_ID);
  std::uint32_t size = 0;
  return known<th_estimator>(raw, size);
}

th_trainer LoadedLibrary::trainer() const {
  const void* raw = interface(TH_TRAINER_ID);
  if (!raw) throw CheckFailed("get() returned null for " TH_TRAINER_ID);
  std::uint32_t size = 0;
  return known<th_trainer>(raw, size);
}

}  // namespace trainhost::plugin_validator
