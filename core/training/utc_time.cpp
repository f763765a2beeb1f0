// See utc_time.hpp.
#include "core/training/utc_time.hpp"

#include <cstdio>
#include <ctime>

namespace trainhost::training {

std::string utc_time() {
  std::timespec now{};
  std::timespec_get(&now, TIME_UTC);
  std::tm t{};
  ::gmtime_r(&now.tv_sec, &t);
  char seconds[32] = "", text[48] = "";
  std::strftime(seconds, sizeof seconds, "%Y-%m-%dT%H:%M:%S", &t);
  std::snprintf(text, sizeof text, "%s.%03ldZ", seconds, now.tv_nsec / 1'000'000);
  return text;
}

}  // namespace trainhost::training
