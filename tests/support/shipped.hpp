// The plugins that are shipped, as the host finds them beside the program. Opened once a process.
#pragma once
#include "core/plugin/registry.hpp"

namespace trainhost::test {

inline plugin::Registry& shipped() {
  static plugin::Registry r({TRAINHOST_BINARY_DIR "/lib/trainhost/plugins"}, {});
  return r;
}

}  // namespace trainhost::test
