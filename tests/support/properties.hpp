// Properties over random cases. A property takes a Draw, asks it for numbers and throws where it does not
// hold; RapidCheck, where it is installed, looks for the smallest numbers that break it, otherwise a fixed
// generator tries as many cases.
#pragma once
#include <boost/test/unit_test.hpp>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <random>
#include <stdexcept>
#include <string>

#if TRAINHOST_RAPIDCHECK
#include <rapidcheck.h>
#endif

namespace trainhost::test {

/// A number of [low, high], both included.
using Draw = std::function<std::uint64_t(std::uint64_t low, std::uint64_t high)>;

inline void require(bool holds, const std::string& what) {
  if (!holds) throw std::runtime_error(what);
}

inline void property(const char* claim, const std::function<void(const Draw&)>& body) {
#if TRAINHOST_RAPIDCHECK
  // The same cases every time; read once, by the first property of a process; a person who sets it has the
  // last word.
  setenv("RC_PARAMS", "seed=20240611 max_success=2000", 0);
  BOOST_CHECK_MESSAGE(rc::check(claim,
                                [&] {
                                  body([](std::uint64_t low, std::uint64_t high) {
                                    return *rc::gen::inRange<std::uint64_t>(low, high + 1);
                                  });
                                }),
                      claim);
#else
  std::mt19937_64 random(20240611);
  for (int i = 0; i < 2000; ++i) {
    try {
      body([&](std::uint64_t low, std::uint64_t high) { return low + random() % (high - low + 1); });
    } catch (const std::exception& e) {
      BOOST_ERROR(std::string(claim) + ", case " + std::to_string(i) + ": " + e.what());
      return;
    }
  }
#endif
}

}  // namespace trainhost::test
