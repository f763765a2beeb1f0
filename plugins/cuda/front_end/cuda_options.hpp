// Reads the table [plugin.cuda] of the run file. An invalid value is an error; it is never replaced by a
// default.
#pragma once
#include <string>

#include "trainhost/host.h"

namespace trainhost::cuda {

struct Options {
  std::string mode = "auto";       // auto | resident | hybrid | streamed
  int device = -1;                 // CUDA device index; -1: not set
  std::string attention = "auto";  // auto | own | cudnn
};

/// Throws abi::StatusError (TH_E_ARG) if the mode or the attention is unknown, naming the most similar one,
/// if the device is not a non-negative integer, or if `products` is a relative path.
Options options_of(const th_host* host);

}  // namespace trainhost::cuda
