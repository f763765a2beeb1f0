// Level 2: loading and description. Each step of the host's loader, and the lifetime of the tables. The
// checks read tables as the host does: struct_size first, then at most that many bytes, because the other
// side may be of another minor version.
#include <cstring>

#include "core/base/text.hpp"
#include "core/plugin_validator/levels.hpp"
#include "core/plugin_validator/watched_plugin.hpp"

namespace trainhost::plugin_validator {
namespace {

constexpr std::size_t kMaxPrintedText = 256;

// The plugin's own table, not a copy: these checks are about its address and its struct_size.
const th_plugin* raw_table(WatchedPlugin& plugin) {
  std::string why;
  const LoadedLibrary::Entry e = plugin.library().entry(why);
  expect(e != nullptr, "{}", why);
  return e();
}

// By memcpy: a plugin's table may be aligned less than the struct requires.
std::uint32_t size_of(const void* table) {
  std::uint32_t size = 0;
  std::memcpy(&size, table, sizeof size);
  return size;
}

// A text of a table is bounded: a missing terminator must not let the check read on.
std::string text_at(const char* s) { return s ? escaped({s, ::strnlen(s, kMaxPrintedText)}) : "null"; }

void check_entry_returns_table(WatchedPlugin& plugin) {
  // Equality of the address: the content is compared by C-031.
  const th_plugin* t = raw_table(plugin);
  expect(t != nullptr, "its entry returned null; a th_plugin was expected");
  expect(raw_table(plugin) == t, "its entry returned a different table on the second call");
}

// A copy from here on: table() reads as many bytes as both sides know.
void check_major_version(WatchedPlugin& plugin) {
  const th_plugin t = plugin.library().table();
  expect(t.abi_major == TH_ABI_MAJOR, "it uses plugin interface {}.{}; {}.x was expected", t.abi_major,
         t.abi_minor, TH_ABI_MAJOR);
}

void check_table_size(WatchedPlugin& plugin) {
  const std::uint32_t size = size_of(raw_table(plugin));
  expect(size >= sizeof(th_plugin), "its th_plugin has struct_size {}; sizeof(th_plugin), {}, was expected",
         size, sizeof(th_plugin));
}

void check_start_has_stop(WatchedPlugin& plugin) {
  const th_plugin t = plugin.library().table();
  expect(t.get != nullptr, "its table has no get(), which is mandatory");
  // stop() without start() is allowed.
  expect(!t.start || t.stop, "its table has a start() without a stop(), so it cannot free its resources");
}

void check_id_matches_manifest(WatchedPlugin& plugin) {
  const std::string id = text_at(plugin.library().table().id);
  expect(id == plugin.manifest().id, "its table has the id '{}'; '{}' of its manifest was expected", id,
         plugin.manifest().id);
}

void check_version_matches_manifest(WatchedPlugin& plugin) {
  const std::string v = text_at(plugin.library().table().version);
  expect(v == escaped(plugin.manifest().version),
         "its table has the version '{}'; '{}' of its manifest was expected", v,
         escaped(plugin.manifest().version));
}

// get() is asked for the exact id, as the host does.
void check_interface_of_kind(WatchedPlugin& plugin) {
  expect(plugin.library().interface(plugin.interface_id()) != nullptr,
         "get(\"{}\") returned null; the kind in its manifest is {}", plugin.interface_id(),
         plugin.manifest().kind);
}

// The whole interface of version 1.0; longer tables of later minors pass.
void check_interface_size(WatchedPlugin& plugin) {
  const std::uint32_t size = size_of(plugin.library().interface(plugin.interface_id()));
  const std::size_t whole = plugin.is_trainer()        ? sizeof(th_trainer)
                            : plugin.is_communicator() ? sizeof(th_communicator)
                                                       : sizeof(th_estimator);
  expect(size >= whole, "its {} table has struct_size {}; {} was expected", plugin.interface_id(), size,
         whole);
}

// All functions are optional in the struct and mandatory in the interface. table() has filled what is missing
// with null, so that an older plugin is read correctly.
void check_mandatory_functions(WatchedPlugin& plugin) {
  const auto need = [&](auto* slot, const char* name) {
    expect(slot != nullptr, "its {} table has no {}(), which is mandatory", plugin.interface_id(), name);
  };
  if (plugin.is_communicator()) {
    const auto& c = *static_cast<const th_communicator*>(plugin.library().interface(plugin.interface_id()));
    need(c.probe, "probe"), need(c.create, "create"), need(c.start, "start"), need(c.wait, "wait");
    need(c.abort, "abort"), need(c.destroy, "destroy");
    return;
  }
  if (!plugin.is_trainer()) {
    const th_estimator e = plugin.library().estimator();
    need(e.match, "match"), need(e.estimate, "estimate");
    return;
  }
  const th_trainer t = plugin.library().trainer();
  need(t.probe, "probe"), need(t.profile, "profile"), need(t.plan, "plan"), need(t.create, "create");
  need(t.load, "load"), need(t.init, "init"), need(t.step, "step"), need(t.save, "save"),
      need(t.destroy, "destroy");
}

void check_unknown_interface_is_null(WatchedPlugin& plugin) {
  // "" and an id that extends the prefix: get() by prefix or by first character finds something.
  for (const char* id : {"", "trainhost.nothing/1", "com.example.x/9"})
    expect(plugin.library().interface(id) == nullptr,
           "get(\"{}\") returned a table; null was expected for an unknown id", id);
}

}  // namespace

// In the order of the host's loader: library, entry, major version, size of the table, its functions, then
// what get() returns. Each step reads only what the step before has shown to be readable.
std::vector<Check> load_checks() {
  return {
      {"C-020",
       2,
       "It can be loaded",
       "The host loads with RTLD_NOW: every symbol and every required library must be present, and "
       "constructors must neither throw nor take long. `ldd -r FILE` lists what is missing. Fix: add the "
       "library that `ldd -r FILE` reports as missing to the link line, or install it on this machine.",
       {"C-009", "C-012"},
       [](WatchedPlugin& plugin) { plugin.library(); },
       // own_process: constructors run at most once per process.
       true},
      {"C-021",
       2,
       "The entry returns the same table on every call",
       "The entry returns the address of a constant table and does nothing else. A host may call it more "
       "than once. Fix: declare the table static const and return its address; move all work to start().",
       {"C-020", "C-010"},
       check_entry_returns_table},
      {"C-022",
       2,
       "It uses major version 1 of the interface",
       "Structs of another major version have a different layout. The minor version may differ: newer "
       "minors only add fields. Fix: build with the SDK of this major version.",
       {"C-021"},
       check_major_version},
      {"C-023",
       2,
       "Its plugin table is complete",
       "struct_size states how many bytes of the table exist. If it is smaller than the 1.0 struct, "
       "mandatory functions are missing. Fix: set struct_size to sizeof(th_plugin).",
       {"C-022"},
       check_table_size},
      {"C-024",
       2,
       "It has get(), and stop() if it has start()",
       "Without get() the host cannot use the plugin. Resources allocated in start() can be freed only in "
       "stop(). Fix: set get in the table, and stop if start is set; stop may be an empty function.",
       {"C-023"},
       check_start_has_stop},
      {"C-025",
       2,
       "Its id equals the id in the manifest",
       "Users choose a plugin by the id in its manifest, before any of its code runs. Two ids for one "
       "plugin make messages and run files ambiguous. Fix: write the same id in TH_MANIFEST and in "
       "TH_PLUGIN.",
       {"C-024", "C-009", "C-014"},
       check_id_matches_manifest},
      {"C-026",
       2,
       "Its version equals the version in the manifest",
       "The version is written into run records, so a result can be traced to the code that produced it. "
       "Fix: write the same version in TH_MANIFEST and in TH_PLUGIN.",
       {"C-024", "C-009", "C-014"},
       check_version_matches_manifest},
      {"C-027",
       2,
       "It provides the interface of its kind",
       "A manifest of kind trainer promises the trainer interface, and one of kind estimator the "
       "estimator interface. get() must return its table for the exact interface id. Fix: compare the id "
       "that get() receives with TH_TRAINER_ID or TH_ESTIMATOR_ID, and return that table.",
       // C-009: the kind is a key of the manifest.
       {"C-024", "C-009", "C-014"},
       check_interface_of_kind},
      {"C-028",
       2,
       "Its interface table is complete",
       "As for the plugin table, struct_size must reach the end of the 1.0 struct. Fix: set struct_size "
       "to sizeof(th_trainer) or sizeof(th_estimator).",
       {"C-027"},
       check_interface_size},
      {"C-029",
       2,
       "Every mandatory function is present",
       "The host calls mandatory functions without testing them for null; a null entry crashes. Fix: "
       "implement the function that the message names, and set it in the table.",
       {"C-028"},
       check_mandatory_functions},
      {"C-030",
       2,
       "get() returns null for unknown ids",
       "Hosts request optional and future interfaces by id. If get() returns a table for an id that it "
       "does not know, the host calls the wrong functions. Fix: compare the whole id with strcmp(), and "
       "return NULL at the end of get().",
       {"C-024"},
       check_unknown_interface_is_null},
  };
}

}  // namespace trainhost::plugin_validator
