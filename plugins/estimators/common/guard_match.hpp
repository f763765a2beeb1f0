// Exceptions in match(), whose result is a score and not a status.
#pragma once
#include <cstdint>
#include <new>

namespace trainhost::rules {

/// The score of `f`, or 0 if it throws: such a model does not match. Without memory for an answer `best`, so
/// that estimate() is called, which can report the error.
template <class F>
std::int32_t guard_match(std::int32_t best, F&& f) noexcept {
  try {
    return f();
  } catch (const std::bad_alloc&) {
    return best;
  } catch (...) {
    return 0;
  }
}

}  // namespace trainhost::rules
