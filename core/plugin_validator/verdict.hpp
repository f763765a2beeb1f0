// How a check says what it found: it returns when the promise is kept, and throws one of these when it is
// not, or when it cannot be judged here. Caught in worker.cpp and nowhere else.
#pragma once
#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace trainhost::plugin_validator {

/// The promise is broken: what the plugin did, and what was expected.
struct Broken : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// It cannot be judged here, with the reason: no device, the interface is not offered.
struct NotHere : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Throws Broken with that sentence unless `kept`.
template <class... A>
void expect(bool kept, fmt::format_string<A...> sentence, A&&... a) {
  if (!kept) throw Broken(fmt::format(sentence, std::forward<A>(a)...));
}

/// For helpers that look for a breach and give its sentence, or "" when there is none.
inline void expect_none(const std::string& breach) {
  if (!breach.empty()) throw Broken(breach);
}

}  // namespace trainhost::plugin_validator
