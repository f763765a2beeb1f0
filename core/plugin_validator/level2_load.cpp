// Level 2: loading and description. Each step of the host's loader, and what a table must be to outlive the
// call that gave it.
#include <cstring>

#include "core/base/text.hpp"
#include "core/plugin_validator/levels.hpp"
#include "core/plugin_validator/watched_plugin.hpp"

namespace trainhost::plugin_validator {
namespace {

constexpr std::size_t kMaxText = 256;

const th_plugin* raw_table(Bench& b) {
  std::string why;
  const Subject::Entry e = b.subject().entry(why);
  expect(e != nullptr, "{}", why);
  return e();
}

std::uint32_t size_of(const void* table) {
  std::uint32_t size = 0;
  std::memcpy(&size, table, sizeof size);
  return size;
}

std::string text_at(const char* s) { return s ? escaped({s, ::strnlen(s, kMaxText)}) : "null"; }

const char* interface_of(Bench& b) { return b.is_trainer() ? TH_TRAINER_ID : TH_ESTIMATOR_ID; }

void returns_a_table(Bench& b) {
  const th_plugin* t = raw_table(b);
  expect(t != nullptr, "its entry returned null; a th_plugin was expected");
  expect(raw_table(b) == t, "its entry returned another table at the second call; the same was expected");
}

void speaks_this_major(Bench& b) {
  const th_plugin t = b.subject().table();
  expect(t.abi_major == TH_ABI_MAJOR, "it speaks version {}.{} of the interface; {}.x was expected",
         t.abi_major, t.abi_minor, TH_ABI_MAJOR);
}

void table_is_complete(Bench& b) {
  const std::uint32_t size = size_of(raw_table(b));
  expect(size >= sizeof(th_plugin), "its th_plugin has struct_size {}; sizeof(th_plugin), {}, was expected",
         size, sizeof(th_plugin));
}

void start_has_its_stop(Bench& b) {
  const th_plugin t = b.subject().table();
  expect(t.get != nullptr, "its table has no get(), which is mandatory");
  expect(!t.start || t.stop, "its table has a start() without a stop(), so nothing could be given back");
}

void same_id(Bench& b) {
  const std::string id = text_at(b.subject().table().id);
  expect(id == b.manifest().id, "it calls itself '{}'; '{}' was expected, as its manifest says", id,
         b.manifest().id);
}

void same_version(Bench& b) {
  const std::string v = text_at(b.subject().table().version);
  expect(v == escaped(b.manifest().version), "it says version '{}'; '{}' was expected, as its manifest says",
         v, escaped(b.manifest().version));
}

void offers_its_kind(Bench& b) {
  expect(b.subject().interface(interface_of(b)) != nullptr,
         "get(\"{}\") returned null; its manifest says that it is of kind {}", interface_of(b),
         b.manifest().kind);
}

void interface_is_complete(Bench& b) {
  const std::uint32_t size = size_of(b.subject().interface(interface_of(b)));
  const std::size_t whole = b.is_trainer() ? sizeof(th_trainer) : sizeof(th_estimator);
  expect(size >= whole, "its {} table has struct_size {}; {} was expected", interface_of(b), size, whole);
}

void slots_are_filled(Bench& b) {
  const auto need = [&](auto* slot, const char* name) {
    expect(slot != nullptr, "its {} table has no {}(), which is mandatory", interface_of(b), name);
  };
  if (!b.is_trainer()) {
    const th_estimator e = b.subject().estimator();
    need(e.match, "match"), need(e.estimate, "estimate");
    return;
  }
  const th_trainer t = b.subject().trainer();
  need(t.probe, "probe"), need(t.profile, "profile"), need(t.plan, "plan"), need(t.create, "create");
  need(t.load, "load"), need(t.init, "init"), need(t.step, "step"), need(t.save, "save"),
      need(t.destroy, "destroy");
}

void knows_what_it_does_not_offer(Bench& b) {
  for (const char* id : {"", "trainhost.nothing/1", "com.example.x/9"})
    expect(b.subject().interface(id) == nullptr,
           "get(\"{}\") gave a table; null was expected for an id it cannot know", id);
}

}  // namespace

std::vector<Check> load_checks() {
  return {
      {"C-020",
       2,
       "It can be loaded",
       "The host loads with RTLD_NOW: every symbol and every library that it needs must be there, and its "
       "constructors must "
       "neither throw nor take long. `ldd -r FILE` shows what is missing.",
       {"C-009", "C-012"},
       [](Bench& b) { b.subject(); },
       true},
      {"C-021",
       2,
       "The entry returns its table, the same one each time",
       "The entry does no work: it returns the address of a constant. A host may call it more than once.",
       {"C-020", "C-010"},
       returns_a_table},
      {"C-022",
       2,
       "It speaks major version 1 of the interface",
       "Structs of another major have another layout. The minor may differ: a newer one only adds.",
       {"C-021"},
       speaks_this_major},
      {"C-023",
       2,
       "Its plugin table is complete",
       "struct_size says how much of the table exists. One that is smaller than the struct of 1.0 hides "
       "mandatory "
       "functions; set it to sizeof(th_plugin).",
       {"C-022"},
       table_is_complete},
      {"C-024",
       2,
       "It has get(), and stop() where it has start()",
       "Without get() nothing of the plugin can be used. A start() without stop() could never give anything "
       "back.",
       {"C-023"},
       start_has_its_stop},
      {"C-025",
       2,
       "Its id is the manifest's",
       "Users choose by the manifest's id, before any code runs. Two names for one plugin make every message "
       "and every "
       "run file ambiguous.",
       {"C-024", "C-009", "C-014"},
       same_id},
      {"C-026",
       2,
       "Its version is the manifest's",
       "The version is written into run records, so that a result can be traced to the code that made it.",
       {"C-024", "C-009", "C-014"},
       same_version},
      {"C-027",
       2,
       "It offers the interface of its kind",
       "A manifest that says trainer promises the trainer interface. get() must know its id to the letter.",
       {"C-024", "C-009", "C-014"},
       offers_its_kind},
      {"C-028",
       2,
       "Its interface table is complete",
       "The same rule as for the plugin table: struct_size must reach the end of the 1.0 struct.",
       {"C-027"},
       interface_is_complete},
      {"C-029",
       2,
       "Every mandatory function is there",
       "A null slot is called and crashes, or the host has to guess what was meant.",
       {"C-028"},
       slots_are_filled},
      {"C-030",
       2,
       "get() answers null to ids that it does not know",
       "Hosts ask for optional and future interfaces by name. A plugin that hands out some table for any "
       "name is called "
       "with the wrong functions.",
       {"C-024"},
       knows_what_it_does_not_offer},
  };
}

}  // namespace trainhost::plugin_validator
