// An estimator that lets exceptions escape, built with every available C++ library: its option "do" selects
// exception and function. Messages of std:: exceptions come from its own library, which may differ from the
// host's; ../runtime_isolation_test.cpp.
#include <cstring>
#include <stdexcept>
#include <trainhost/trainhost.hpp>

TH_MANIFEST("id = \"sample\"\nversion = \"1\"\nkind = \"estimator\"\noptions = [\"do\"]\n");

namespace {

struct OwnException {
  int number = 42;
};

void throw_if_selected(const th_host* h, const char* function) {
  const char* what = h->option(h, "do");
  if (!what || std::strstr(what, function) == nullptr) return;
  if (std::strstr(what, "runtime_error")) throw std::runtime_error("thrown by the plugin");
  if (std::strstr(what, "42")) throw 42;
  throw OwnException();
}

th_status start(const th_host* h, th_error*) {
  throw_if_selected(h, "start");
  return TH_OK;
}
void stop() {}

std::int32_t match(const th_model*, const th_run*) { return 7; }
th_status estimate(const th_host* h, const th_model*, const th_run*, const th_profile*, th_mem_sink*,
                   th_mem_summary*, th_error*) {
  throw_if_selected(h, "estimate");
  return TH_OK;
}

const void* get(const char* id) {
  static const th_estimator table{sizeof table, 0, match, estimate};
  return std::strcmp(id, TH_ESTIMATOR_ID) == 0 ? &table : nullptr;
}

}  // namespace

extern "C" TH_EXPORT const th_plugin* TH_ENTRY(void) {
  static const th_plugin plugin{sizeof plugin, TH_ABI_MAJOR, TH_ABI_MINOR, "sample", "1", start, stop, get};
  return &plugin;
}
