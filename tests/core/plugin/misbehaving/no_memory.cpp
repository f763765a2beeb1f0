// A library whose entry function runs out of memory.
#include <trainhost/trainhost.h>

#include <new>

TH_MANIFEST("id = \"no_memory\"\nversion = \"1\"\nkind = \"estimator\"\n");

const th_plugin* TH_ENTRY(void) { throw std::bad_alloc(); }
