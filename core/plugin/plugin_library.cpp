// See plugin_library.hpp. Properties of Boost.DLL that matter here: the mode must contain "now" (a lazily
// bound library fails at its first call), the path must be absolute (a bare name means the working
// directory), error_code is "bad file descriptor" for every failure (the text is in dlerror), and
// RTLD_NODELETE can be passed as a mode.
#include "core/plugin/plugin_library.hpp"

#include <dlfcn.h>
#include <elf.h>
#include <fmt/format.h>
#include <link.h>

#include <boost/dll/shared_library.hpp>
#include <vector>  // Boost.DLL 1.74 forgets it
#if defined(__SSE2__)
#include <xmmintrin.h>

#include <cassert>
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

// Longest id or version that is compared; a table without a NUL is not read beyond it.
constexpr std::size_t kMaxDescription = 256;
constexpr const char* kCatch = "a bug in the plugin: catch exceptions inside it, for example with th::guard";
constexpr const char* kFreeMemory = "free some memory and run the command again";

/// Texts of the table may lack a NUL.
std::string text_at(const char* s) {
  return s ? std::string(s, ::strnlen(s, kMaxDescription)) : std::string();
}

/// Throws the Rejection for the exception that is being handled. One that is due to too little memory says
/// nothing about the plugin.
[[noreturn]] void reject_exception(const char* stage, const std::string& call) {
  try {
    throw;
  } catch (const std::bad_alloc&) {
    throw Rejection(stage, "host_oom", call + " ran out of host memory", kFreeMemory);
  } catch (...) {
    throw Rejection(stage, "exception", call + " threw an exception", kCatch);
  }
}

/// From here on code of the plugin runs: its static constructors. They may throw, and the exception arrives
/// here, because dlopen is an ordinary call.
boost::dll::shared_library map_library(const std::filesystem::path& file) {
  namespace dll = boost::dll;
  auto mode = dll::load_mode::rtld_now | dll::load_mode::rtld_local |
              static_cast<dll::load_mode::type>(RTLD_NODELETE);
  std::error_code failed;
  // Clears an older message, so that the text below belongs to this call.
  ::dlerror();
  dll::shared_library library;
  try {
    library.load(dll::fs::path(file), mode, failed);
  } catch (...) {
    reject_exception("load", "its static initialisation");
  }
  if (failed) {
    const char* text = ::dlerror();
    throw Rejection("load", "dlopen", "it cannot be loaded: " + escaped(text ? text : failed.message(), 1000),
                    "run ldd -r on the file to see what is missing");
  }
  return library;
}

/// The address of its dynamic section, which is inside the mapping of the file.
const void* base_of(const boost::dll::shared_library& library) {
  struct link_map* own = nullptr;
  return ::dlinfo(library.native(), RTLD_DI_LINKMAP, &own) == 0 && own ? own->l_ld : nullptr;
}

using Entry = const th_plugin* (*)();

/// The entry function. Must be a function of this library: dlsym also finds data and symbols of dependencies,
/// and calling data would crash.
Entry find_entry(const boost::dll::shared_library& library) {
  const char* const want = "export it with TH_PLUGIN, or as const th_plugin *" TH_ENTRY_NAME "(void)";
  if (!library.has(TH_ENTRY_NAME))
    throw Rejection("load", "no_entry", fmt::format("it has no function {}", TH_ENTRY_NAME), want);
  void* address = ::dlsym(library.native(), TH_ENTRY_NAME);
  Dl_info info{};
  void* symbol = nullptr;
  struct link_map* own = nullptr;
  bool known = ::dladdr1(address, &info, &symbol, RTLD_DL_SYMENT) != 0 && symbol;
  if (known && ELF64_ST_TYPE(static_cast<const Elf64_Sym*>(symbol)->st_info) != STT_FUNC)
    throw Rejection("load", "no_entry", fmt::format("{} is not a function", TH_ENTRY_NAME), want);
  if (known && ::dlinfo(library.native(), RTLD_DI_LINKMAP, &own) == 0 && own &&
      reinterpret_cast<std::uintptr_t>(info.dli_fbase) != own->l_addr)
    throw Rejection(
        "load", "no_entry",
        fmt::format("{} is defined by a library that it depends on, {}", TH_ENTRY_NAME, info.dli_fname),
        want);
  return reinterpret_cast<Entry>(address);
}

/// The hint for a failing start() that gave a message but no hint.
const char* advice(th_status s) {
  switch (s) {
    case TH_E_ARG:
      return "check its table [plugin.ID] in the run file";
    case TH_E_UNSUPPORTED:
    case TH_E_UNAVAILABLE:
      return "see its documentation for what it requires";
    case TH_E_HOST_OOM:
    case TH_E_DEVICE_OOM:
      return kFreeMemory;
    case TH_E_IO:
    case TH_E_DEVICE_LOST:
      return "fix the cause and run the command again";
    default:
      return "a bug in the plugin: report it to its author";
  }
}

/// First only the version, which has the same place in every major version, then the table: the layout of
/// another major version is unknown.
th_plugin read_table(Entry entry) {
  const th_plugin* raw = nullptr;
  try {
    raw = entry();
  } catch (...) {
    reject_exception("load", TH_ENTRY_NAME);
  }
  th_plugin head = copy_known_fields<th_plugin>(raw, TH_SIZE_UP_TO(th_plugin, abi_minor), "plugin table");
  if (head.abi_major != TH_ABI_MAJOR)
    throw Rejection("abi", "major",
                    fmt::format("it uses plugin interface {}.{}; this program supports {}.{}", head.abi_major,
                                head.abi_minor, TH_ABI_MAJOR, TH_ABI_MINOR),
                    head.abi_major > TH_ABI_MAJOR
                        ? "install a newer trainhost, or build the plugin with the SDK of this program"
                        : "build it with the SDK of this program");
  return copy_known_fields<th_plugin>(raw, TH_SIZE_UP_TO(th_plugin, get), "plugin table");
}

/// Table and manifest are written in one place by TH_PLUGIN. A difference means that the file was assembled
/// from two builds.
void validate_description(const th_plugin& t, const Manifest& m) {
  if (!t.get)
    throw Rejection("abi", "slot", "its plugin table has no get(), which is mandatory",
                    "a bug in the plugin: TH_PLUGIN creates a complete table");
  if (text_at(t.id) != m.id)
    throw Rejection("abi", "id",
                    fmt::format("its table has the id '{}', its manifest '{}'", escaped(text_at(t.id)), m.id),
                    "use the same id in both");
  if (text_at(t.version) != m.version)
    throw Rejection("abi", "version",
                    fmt::format("its table has the version '{}', its manifest '{}'",
                                escaped(text_at(t.version)), escaped(m.version)),
                    "use the same version in both");
  const std::string abi = fmt::format("{}.{}", t.abi_major, t.abi_minor);
  if (!m.abi.empty() && m.abi != abi)
    throw Rejection("abi", "minor",
                    fmt::format("it uses plugin interface {}, but its manifest requires {}", abi, m.abi),
                    "build it with the SDK of that version, or remove abi from the manifest");
}

}  // namespace

/// MXCSR controls rounding and denormals for the whole thread. A library built with -ffast-math changes it in
/// a constructor, and training on the CPU would then give other bits.
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

/// Order: the file that was validated must be the one that is mapped; then table, version, start(). The
/// floating-point mode is restored whether or not any of them fails.
std::shared_ptr<Library> Library::open(const std::filesystem::path& file, const FileId& id,
                                       const Manifest& manifest, std::shared_ptr<HostContext> context) {
  const MappedFileCheck seen(file, id);
  std::shared_ptr<Library> l(new Library(manifest, context));
  FpMode mode;
  try {
    context->enter("load");
    boost::dll::shared_library mapped =
        map_library(file);  // RTLD_NODELETE: closing the handle unmaps nothing
    seen.require_mapped_at(base_of(mapped));
    l->table_ = read_table(find_entry(mapped));
    validate_description(l->table_, manifest);
    l->view_ = AbiView(l->table_.abi_minor);
    l->host_.shrink(l->view_);
    context->enter("start");
    l->start();
    // Nothing is unmapped: threads or handlers that the plugin started may still use its code.
  } catch (...) {
    mode.restore();
    throw;
  }
  l->restore_fp_mode(mode, "load");
  return l;
}

/// A plugin without start() needs no setup. start() may call the host table, so the table is complete before.
void Library::start() {
  assert(!started_);
  if (!table_.start) return;
  auto result = make_result<th_error>();
  const th_error& error = result.value;
  th_status s;
  try {
    s = table_.start(host_.get(), result.get());
  } catch (...) {
    reject_exception("start", "its start()");
  }
  if (s != TH_OK) {
    const abi::ErrorText text = abi::read_error(error);
    const std::string why =
        text.message.empty()
            ? fmt::format("its start() failed without a message: {} ({})", abi::status_name(s), s)
            : text.message;
    throw Rejection("start", std::string(abi::status_name(s)), abi::prefix(text.native) + why,
                    !text.hint.empty() ? text.hint
                    : text.message.empty()
                        ? "a bug in the plugin: a failing start() must fill in the message of th_error"
                        : advice(s),
                    {text.native.domain, text.native.code});
  }
  started_ = true;
}

/// The run sets a field that the plugin cannot know; calling it anyway would ignore the setting silently.
void Library::throw_unseen_field(const std::string& field) const {
  throw PluginError(Exit::kUsage, "unsupported",
                    fmt::format("plugin {} was built for plugin interface {}.{}, which does not have {}",
                                id(), TH_ABI_MAJOR, view_.minor(), field),
                    "rebuild it with the SDK of this program, or remove that setting", 0);
}

const void* Library::interface(const char* interface_id) const {
  try {
    return table_.get(interface_id);
  } catch (...) {
    reject_exception("abi", "its get()");
  }
}

/// Warns once per library, not per call.
void Library::restore_fp_mode(FpMode& before, const char* call) const {
  if (!before.restore() || warned_fp_mode_.exchange(true)) return;
  host_.context().log(TH_LOG_WARN, id(),
                      fmt::format("the plugin changed the floating-point mode in {} (flush denormals to "
                                  "zero, probably -ffast-math); the host restores the mode after every call",
                                  call));
}

void validate_interfaces(const Library& library) {
  for (const std::string& id : library.manifest().interfaces)
    if (!library.interface(id.c_str()))
      throw Rejection(
          "abi", "interfaces",
          fmt::format("its manifest lists the interface {}, but get() returns null for it", escaped(id)),
          "return its table from get(), or remove it from the list");
}

void Library::warn_once(const std::string& text) const {
  if (!warned_once_.exchange(true)) host_.context().log(TH_LOG_WARN, id(), text);
}

/// stop() is called only after a successful start(). The code stays mapped until the process ends
/// (RTLD_NODELETE).
Library::~Library() {
  if (!started_ || !table_.stop) return;
  try {
    table_.stop();
  } catch (...) {  // an exception at the end has nowhere to be reported
  }
}

}  // namespace trainhost::plugin
