// The table [plugin.cuda] of the run file. A value that is none of those there are is an error, never a
// default.
#pragma once
#include <string>

#include "trainhost/host.h"

namespace trainhost::cuda {

struct Options {
  std::string mode = "auto";  // auto | resident | hybrid | streamed
  int device = -1;            // -1: left out
};

/// Throws abi::StatusError (argument) with the nearest mode, or for a device that is no index.
Options options_of(const th_host* host);

}  // namespace trainhost::cuda
