// Adds to an error what the run file knows about it: the position of the key, or the numbers behind a size
// that exceeds 63 bits. Estimators and parallel rules know keys and no files, so their message begins with
// the key. Messages are not changed.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/base/checked.hpp"
#include "core/base/error.hpp"
#include "core/runfile/run_config.hpp"

namespace trainhost::planning {

/// Where the key was set: file, line and column, or the command line option. Empty for a default value.
Where position_of_key(const runfile::RunConfig& c, const std::string& key);

/// `e` with the position of the key that its message begins with ("parallel.tensor = 3 does not ...").
/// nullopt where it already has a position, does not begin with a key, or the key has its default value.
std::optional<Error> with_position(const runfile::RunConfig& c, const Error& e);

/// The numbers that sizes are products of, by key; model dimensions by their name in config.json.
std::vector<std::pair<std::string, std::uint64_t>> size_factors(const runfile::RunConfig& c);

/// Returns f(). An overflow error gets the largest factors of the run, any other the position of its key.
template <class F>
auto with_error_context(const runfile::RunConfig& c, F f) {
  try {
    return f();
  } catch (const Error& e) {
    if (is_too_large(e)) throw with_largest(e, size_factors(c), e.where());
    if (const std::optional<Error> positioned = with_position(c, e)) throw *positioned;
    throw;
  }
}

}  // namespace trainhost::planning
