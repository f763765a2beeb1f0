// The choice of OpenBLAS's kernels, and that its environment variables are restored.
#include <boost/test/unit_test.hpp>

#include <cstdlib>

#include "plugins/cpu/front_end/core_type.hpp"

namespace trainhost::cpu {
namespace {

BOOST_AUTO_TEST_SUITE(cpu_core_type)

BOOST_AUTO_TEST_CASE(a_slower_coretype_is_overridden_with_a_note_unless_honoured) {
  BOOST_TEST(choose_core("SkylakeX", std::nullopt, false).core == "SkylakeX");
  BOOST_TEST(choose_core("SkylakeX", std::nullopt, false).note.empty());
  BOOST_TEST(choose_core("SkylakeX", "", false).core == "SkylakeX");
  const CoreChoice overridden = choose_core("SkylakeX", "Haswell", false);
  BOOST_TEST(overridden.core == "SkylakeX");
  BOOST_TEST(overridden.note.find("Haswell") != std::string::npos);
  BOOST_TEST(choose_core("SkylakeX", "Haswell", true).core.empty());
}

BOOST_AUTO_TEST_CASE(an_equally_wide_coretype_is_kept) {
  BOOST_TEST(choose_core("Haswell", "Zen", false).core.empty());
  BOOST_TEST(choose_core("SkylakeX", "Cooperlake", false).core.empty());
  BOOST_TEST(choose_core("SkylakeX", "SapphireRapids", false).core.empty());
}

BOOST_AUTO_TEST_CASE(openblas_chooses_on_other_cpus) {
  BOOST_TEST(choose_core("", "Haswell", false).core.empty());
  BOOST_TEST(choose_core("", std::nullopt, false).core.empty());
}

BOOST_AUTO_TEST_CASE(the_environment_variables_are_restored) {
  setenv("OPENBLAS_CORETYPE", "Nehalem", 1);
  unsetenv("OPENBLAS_NUM_THREADS");
  {
    OpenBlasEnvironment around("SkylakeX");
    BOOST_TEST(environment("OPENBLAS_CORETYPE").value() == "SkylakeX");
    BOOST_TEST(environment("OPENBLAS_NUM_THREADS").value() == "1");
  }
  BOOST_TEST(environment("OPENBLAS_CORETYPE").value() == "Nehalem");
  BOOST_TEST(!environment("OPENBLAS_NUM_THREADS").has_value());
  unsetenv("OPENBLAS_CORETYPE");
  { OpenBlasEnvironment around(""); }
  BOOST_TEST(!environment("OPENBLAS_CORETYPE").has_value());
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace trainhost::cpu
