// See plugin_library.hpp. Boost.DLL facts that decided the calls here: the mode must name "now" (a lazy
// library dies at its first call), the path must be absolute (a bare name means the working directory), the
// error_code says "bad file descriptor" for everything (the text is in dlerror), and RTLD_NODELETE passes
// through as a mode.
#include "core/plugin/plugin_library.hpp"

#include <dlfcn.h>
#include <elf.h>
#include <fmt/format.h>
#include <link.h>

#include <boost/dll/shared_library.hpp>
#include <vector>  // Boost.DLL 1.74 forgets it
#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

#include "core/abi/error_guard.hpp"
#include "core/base/text.hpp"
#include "core/plugin/adapt.hpp"
#include "core/plugin/known_fields.hpp"
#include "core/plugin/mapped_file.hpp"
#include "core/plugin/plugin.hpp"
#include "core/plugin/rejection.hpp"

namespace trainhost::plugin {
namespace {

constexpr std::size_t kMaxDescription = 256;
constexpr const char* kCatch = "a bug of the plugin: catch it inside, th::guard does";

std::string text_at(const char* s) {
  return s ? std::string(s, ::strnlen(s, kMaxDescription)) : std::string();
}

boost::dll::shared_library map_library(const std::filesystem::path& file) {
  namespace dll = boost::dll;
  auto mode = dll::load_mode::rtld_now | dll::load_mode::rtld_local |
              static_cast<dll::load_mode::type>(RTLD_NODELETE);
  std::error_code failed;
  ::dlerror();
  dll::shared_library library;
  try {
    library.load(dll::fs::path(file), mode, failed);
  } catch (...) {
    throw Refused("load", "exception", "an exception left its static initialisation", kCatch);
  }
  if (failed) {
    const char* text = ::dlerror();
    throw Refused("load", "dlopen", "cannot be loaded: " + escaped(text ? text : failed.message(), 1000),
                  "ldd -r on the file shows what is missing");
  }
  return library;
}

/// The beginning of its dynamic section: an address that is surely inside the file's mapping.
const void* base_of(const boost::dll::shared_library& library) {
  struct link_map* own = nullptr;
  return ::dlinfo(library.native(), RTLD_DI_LINKMAP, &own) == 0 && own ? own->l_ld : nullptr;
}

using Entry = const th_plugin* (*)();

/// The entry function, and only if it is a function and this library's own: dlsym also finds data and
/// dependencies.
Entry find_entry(const boost::dll::shared_library& library) {
  const char* const want = "export it with TH_PLUGIN, or as const th_plugin *" TH_ENTRY_NAME "(void)";
  if (!library.has(TH_ENTRY_NAME))
    throw Refused("load", "no_entry", fmt::format("has no function {}", TH_ENTRY_NAME), want);
  void* address = ::dlsym(library.native(), TH_ENTRY_NAME);
  Dl_info info{};
  void* symbol = nullptr;
  struct link_map* own = nullptr;
  bool known = ::dladdr1(address, &info, &symbol, RTLD_DL_SYMENT) != 0 && symbol;
  if (known && ELF64_ST_TYPE(static_cast<const Elf64_Sym*>(symbol)->st_info) != STT_FUNC)
    throw Refused("load", "no_entry", fmt::format("{} is no function there", TH_ENTRY_NAME), want);
  if (known && ::dlinfo(library.native(), RTLD_DI_LINKMAP, &own) == 0 && own &&
      reinterpret_cast<std::uintptr_t>(info.dli_fbase) != own->l_addr)
    throw Refused(
        "load", "no_entry",
        fmt::format("{} belongs to a library that it depends on, {}", TH_ENTRY_NAME, info.dli_fname), want);
  return reinterpret_cast<Entry>(address);
}

/// For a start() that said what happened and not what to do about it.
const char* advice(th_status s) {
  switch (s) {
    case TH_E_ARG:
      return "look at its table [plugin.ID] in the run file";
    case TH_E_UNSUPPORTED:
    case TH_E_UNAVAILABLE:
      return "its documentation says what it needs on a machine";
    case TH_E_HOST_OOM:
    case TH_E_DEVICE_OOM:
      return "free some memory and run the command again";
    case TH_E_IO:
    case TH_E_DEVICE_LOST:
      return "repair that and run the command again";
    default:
      return "a bug of the plugin: its author should know";
  }
}

th_plugin read_table(Entry entry) {
  const th_plugin* raw = nullptr;
  try {
    raw = entry();
  } catch (...) {
    throw Refused("load", "exception", fmt::format("an exception left {}", TH_ENTRY_NAME), kCatch);
  }
  th_plugin head = known_part<th_plugin>(raw, TH_UP_TO(th_plugin, abi_minor), "plugin table");
  if (head.abi_major != TH_ABI_MAJOR)
    throw Refused("abi", "major",
                  fmt::format("speaks version {}.{} of the plugin interface; this program speaks {}.{}",
                              head.abi_major, head.abi_minor, TH_ABI_MAJOR, TH_ABI_MINOR),
                  head.abi_major > TH_ABI_MAJOR
                      ? "a newer trainhost is needed, or a build against this program's SDK"
                      : "build it against this program's SDK");
  return known_part<th_plugin>(raw, TH_UP_TO(th_plugin, get), "plugin table");
}

void check_description(const th_plugin& t, const Manifest& m) {
  if (!t.get)
    throw Refused("abi", "slot", "its plugin table has no get(), which is mandatory",
                  "a bug of the plugin: TH_PLUGIN makes a whole table");
  if (text_at(t.id) != m.id)
    throw Refused("abi", "id",
                  fmt::format("calls itself '{}' and its manifest says '{}'", escaped(text_at(t.id)), m.id),
                  "give table and manifest the same id");
  if (text_at(t.version) != m.version)
    throw Refused("abi", "version",
                  fmt::format("says version '{}' and its manifest says '{}'", escaped(text_at(t.version)),
                              escaped(m.version)),
                  "give table and manifest the same version");
  const std::string abi = fmt::format("{}.{}", t.abi_major, t.abi_minor);
  if (!m.abi.empty() && m.abi != abi)
    throw Refused(
        "abi", "minor",
        fmt::format("speaks version {} of the plugin interface and its manifest says {}", abi, m.abi),
        "build it with the headers that its manifest names, or leave abi out there");
}

}  // namespace

FpMode::FpMode() : before_(0) {
#if defined(__SSE2__)
  before_ = _mm_getcsr();
#endif
}

bool FpMode::restore() {
#if defined(__SSE2__)
  constexpr std::uint32_t kFlags = 0x3f;  // sticky exception flags: any arithmetic sets them
  std::uint32_t now = _mm_getcsr();
  if ((now & ~kFlags) == (before_ & ~kFlags)) return false;
  _mm_setcsr(before_);
  return true;
#else
  return false;
#endif
}

Library::Library(Manifest manifest, std::shared_ptr<HostContext> context)
    : manifest_(std::move(manifest)), host_(std::move(context), manifest_.id) {}

std::shared_ptr<Library> Library::open(const std::filesystem::path& file, const FileId& id,
                                       const Manifest& manifest, std::shared_ptr<HostContext> context) {
  const SeenFile seen(file, id);
  std::shared_ptr<Library> l(new Library(manifest, context));
  FpMode mode;
  try {
    context->enter("load");
    boost::dll::shared_library mapped =
        map_library(file);  // RTLD_NODELETE: closing the handle unmaps nothing
    seen.require_mapped_at(base_of(mapped));
    l->table_ = read_table(find_entry(mapped));
    check_description(l->table_, manifest);
    l->view_ = AbiView(l->table_.abi_minor);
    l->host_.fit(l->view_);
    context->enter("start");
    l->start();
  } catch (...) {
    mode.restore();
    throw;
  }
  l->keep_fp_mode(mode, "load");
  return l;
}

void Library::start() {
  if (!table_.start) return;
  auto room = answer<th_error>();
  const th_error& error = room.value;
  th_status s;
  try {
    s = table_.start(host_.get(), room.get());
  } catch (...) {
    throw Refused("start", "exception", "an exception left its start()", kCatch);
  }
  if (s != TH_OK) {
    const abi::Told told = abi::told(error);
    const std::string why =
        told.message.empty()
            ? fmt::format("its start() failed without a message: {} ({})", abi::status_name(s), s)
            : told.message;
    throw Refused("start", std::string(abi::status_name(s)), abi::prefix(told.native) + why,
                  !told.hint.empty() ? told.hint
                  : told.message.empty()
                      ? "a bug of the plugin: a start() that fails says why in the th_error"
                      : advice(s),
                  {told.native.domain, told.native.code});
  }
  started_ = true;
}

void Library::refuse_unseen(const std::string& field) const {
  throw PluginError(Exit::kUsage, "unsupported",
                    fmt::format("plugin {} was built for interface {}.{} and does not know {}", id(),
                                TH_ABI_MAJOR, view_.minor(), field),
                    "build it again with this program's SDK, or leave that setting out", 0);
}

const void* Library::interface(const char* interface_id) const {
  try {
    return table_.get(interface_id);
  } catch (...) {
    throw Refused("abi", "exception", "an exception left its get()", kCatch);
  }
}

void Library::keep_fp_mode(FpMode& before, const char* call) const {
  if (!before.restore() || warned_.exchange(true)) return;
  host_.context().log(
      TH_LOG_WARN, id(),
      fmt::format("the plugin changed the floating-point mode in {} (denormals to zero, most likely by "
                  "-ffast-math); undone, now and whenever it happens again",
                  call));
}

void check_interfaces(const Library& library) {
  for (const std::string& id : library.manifest().interfaces)
    if (!library.interface(id.c_str()))
      throw Refused(
          "abi", "interfaces",
          fmt::format("its manifest lists the interface {} and its get() does not know it", escaped(id)),
          "return its table from get(), or take it off the list");
}

void Library::warn_once(const std::string& text) const {
  if (!told_.exchange(true)) host_.context().log(TH_LOG_WARN, id(), text);
}

Library::~Library() {
  if (!started_ || !table_.stop) return;
  try {
    table_.stop();
  } catch (...) {  // at the end there is nobody left to tell
  }
}

}  // namespace trainhost::plugin
