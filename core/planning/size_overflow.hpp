// A size of a run that leaves 63 bits, said with the numbers of the run that it was made of. Whoever counts
// knows only that a product did not fit; here are the words that the user wrote. Other refusals get the place
// of their key (key_positions.hpp).
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "core/base/checked.hpp"
#include "core/planning/key_positions.hpp"
#include "core/runfile/run_config.hpp"

namespace trainhost::planning {

/// The numbers that sizes are made of, under their keys; those of the model under its config's names.
std::vector<std::pair<std::string, std::uint64_t>> numbers_of(const runfile::RunConfig& c);

/// f(), an Error "too large" of which gets the largest numbers of `c`, and one that begins with a key the
/// key's place.
template <class F>
auto naming_numbers(const runfile::RunConfig& c, F f) {
  try {
    return f();
  } catch (const Error& e) {
    if (is_too_large(e)) throw with_largest(e, numbers_of(c), e.where());
    if (const std::optional<Error> said = placed(c, e)) throw *said;
    throw;
  }
}

}  // namespace trainhost::planning
