// The golden runs (float64 results from PyTorch) on several ranks: data-parallel ones with ZeRO 0 to 3, and
// tensor-parallel ones.
#include <boost/test/data/monomorphic.hpp>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>

#include "tests/support/golden_ranks.hpp"

namespace trainhost {
namespace {

using namespace test;

std::vector<RanksOfGolden> golden_rank_cases() {
  std::vector<RanksOfGolden> all;
  for (const char* n : {"mha", "gqa-tied"})
    for (const auto& [data, tensor, zero] : {std::tuple{2u, 1u, 0u},
                                             {2u, 1u, 1u},
                                             {2u, 1u, 2u},
                                             {2u, 1u, 3u},
                                             {1u, 2u, 0u},
                                             {2u, 2u, 1u},
                                             {2u, 2u, 3u}})
      all.push_back({n, data, tensor, zero});
  all.push_back({"mha", 1, 2, 0, true});
  all.push_back({"gqa-tied", 2, 2, 3, true});
  return all;
}

BOOST_DATA_TEST_CASE(golden_runs_are_reproduced_by_ranks, boost::unit_test::data::make(golden_rank_cases()),
                     c) {
  reproduce_golden<CpuRank>(c);
}

}  // namespace
}  // namespace trainhost
