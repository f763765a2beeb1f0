// The time of day for records of a run. Steps are timed with the monotonic clock, not with this one.
#pragma once
#include <string>

namespace trainhost::training {

/// "2026-11-27T11:46:19.123Z": UTC in ISO 8601, with milliseconds. Texts sort in the order of their times.
std::string utc_time();

}  // namespace trainhost::training
