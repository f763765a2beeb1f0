// A library whose static initialiser throws an int.
#include <trainhost/trainhost.h>

#include <cstring>

TH_MANIFEST("id = \"sample\"\nversion = \"1\"\nkind = \"estimator\"\n");

namespace {
struct Thrower {
  Thrower() { throw 42; }
} thrower;
}  // namespace

const th_plugin* TH_ENTRY(void) { return nullptr; }
