// The program that runs trial loads in these tests: does what main() of trainhost does for them, and nothing
// else.
#include "core/plugin/trial_load.hpp"

int main() { trainhost::plugin::serve_trial_load(); }
