// The program that rehearses plugins in these tests: what trainhost's main() does, and nothing else.
#include "core/plugin/trial_load.hpp"

int main() { trainhost::plugin::probe_child(); }
