// A vendor library's own number for a failure, as plugins report it beside the code: {"cuda", 719}. It is
// shown and kept, never decided upon: what the host does next depends on codes alone.
#pragma once
#include <cstdint>
#include <string>

namespace trainhost::plugin {

struct Native {
  std::string domain;     // "cuda", "errno"; escaped
  std::int32_t code = 0;  // 0 = none
};

}  // namespace trainhost::plugin
