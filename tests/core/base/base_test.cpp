// core/base: overflow checks, printing of errors, names of enums.
#include <boost/test/unit_test.hpp>

#include "core/base/checked.hpp"
#include "core/base/error.hpp"
#include "core/base/types.hpp"

using namespace trainhost;

BOOST_AUTO_TEST_SUITE(base)

BOOST_AUTO_TEST_CASE(a_product_above_63_bits_fails_with_exit_2) {
  const auto too_large = [](const Error& e) {
    return e.code() == Exit::kUsage && std::string(e.what()).find("too large") != std::string::npos;
  };
  BOOST_CHECK_EXCEPTION(checked_mul(1ull << 32, 1ull << 31), Error, too_large);  // 2^63
  BOOST_CHECK_EXCEPTION(checked_mul(1ull << 32, 1ull << 32), Error, too_large);  // wraps to 0
  BOOST_CHECK_EXCEPTION(checked_mul(UINT64_MAX, 1ull), Error, too_large);
  BOOST_CHECK_EXCEPTION(checked_add(INT64_MAX, 1), Error, too_large);
  BOOST_CHECK_EXCEPTION(checked_add(UINT64_MAX, UINT64_MAX), Error, too_large);
  BOOST_CHECK_EXCEPTION(align_up(INT64_MAX, 64), Error, too_large);
}

BOOST_AUTO_TEST_CASE(sizes_within_63_bits_are_exact) {
  BOOST_TEST(checked_mul(3ull, 5u, 7) == 105u);
  BOOST_TEST(checked_mul(1ull << 31, 1ull << 31) == 1ull << 62);
  BOOST_TEST(checked_mul(1ull << 60, 0u, 1ull << 60) == 0u);  // zero as soon as one factor is zero
  BOOST_TEST(checked_add(INT64_MAX - 1, 1) == static_cast<std::uint64_t>(INT64_MAX));
  BOOST_TEST(align_up(0, 64) == 0u);
  BOOST_TEST(align_up(1, 64) == 64u);
  BOOST_TEST(align_up(64, 64) == 64u);
}

BOOST_AUTO_TEST_CASE(an_error_has_its_source_position_and_hint) {
  BOOST_TEST(usage_error("what", "why", {"a.toml", 3, 7}).full() == "a.toml:3:7: what (why)");
  BOOST_TEST(usage_error("what", "", {"a.toml", 3}).full() == "a.toml:3: what");
  BOOST_TEST(usage_error("what", "", {"a.toml"}).full() == "a.toml: what");
  BOOST_TEST(run_error("what").full() == "what");
  // The key of the command line is named once.
  BOOST_TEST(usage_error("train.steps: what", "", {"--set train.steps"}).full() == "--set train.steps: what");
  BOOST_TEST(usage_error("plan.x of y: what", "", {"--set plan.x"}).full() == "--set plan.x of y: what");
  BOOST_TEST(usage_error("train.steps = 0: what", "", {"--set train.steps"}).full() ==
             "--set train.steps = 0: what");
}

BOOST_AUTO_TEST_CASE(control_characters_of_untrusted_names_are_escaped) {
  const std::string full = usage_error("key '\x1b[31m\r'\nsecond line", "", {"ev\nil\x1b", 1, 1}).full();
  BOOST_TEST(full == "ev\\x0ail\\x1b:1:1: key '\\x1b[31m\\x0d'\nsecond line");
}

BOOST_AUTO_TEST_CASE(enum_names_are_those_of_the_run_file_and_parse_back) {
  for (Optimizer o : {Optimizer::kAdamW, Optimizer::kSgd, Optimizer::kSgdMomentum})
    BOOST_TEST((optimizer_from(name(o)) == o));
  for (Recompute r : {Recompute::kNone, Recompute::kSelective, Recompute::kFull, Recompute::kAuto})
    BOOST_TEST((recompute_from(name(r)) == r));
  BOOST_TEST(!optimizer_from("adam").has_value());
  BOOST_TEST(name(Component::kOptimizerState) == "optimizer_state");
  BOOST_TEST(name(Claim::kUpperBound) == "upper_bound");
  BOOST_TEST(name(kBackward) == "backward");
  BOOST_TEST(name(static_cast<Tier>(99)) == "unknown");
}

BOOST_AUTO_TEST_CASE(size_of_gives_bytes_per_element) {
  BOOST_TEST(size_of(DType::kF64) == 8u);
  BOOST_TEST(size_of(DType::kF32) == 4u);
  BOOST_TEST(size_of(DType::kTF32) == 4u);
  BOOST_TEST(size_of(DType::kBF16) == 2u);
  BOOST_TEST(size_of(DType::kU8) == 1u);
  BOOST_TEST(size_of(DType::kNone) == 0u);
}

BOOST_AUTO_TEST_SUITE_END()
