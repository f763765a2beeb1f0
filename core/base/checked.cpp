// The cold half of checked.hpp: what a size that leaves 63 bits becomes. Never returns.
#include "core/base/checked.hpp"

namespace trainhost {

void throw_too_large(const char* what) {
  throw usage_error(std::string(what) + " is too large: it does not fit in 63 bits",
                    "the largest size that trainhost counts is 9223372036854775807");
}

}  // namespace trainhost
