// The ledger counts the requested bytes and returns zeroed, aligned memory.
#include <boost/test/unit_test.hpp>
#include <cstring>
#include <thread>

#include "core/plugin/ledger.hpp"

using trainhost::Tier;
using trainhost::plugin::Ledger;

BOOST_AUTO_TEST_SUITE(ledger)

BOOST_AUTO_TEST_CASE(blocks_are_zeroed_aligned_and_counted_as_requested) {
  Ledger l;
  std::uint64_t sum = 0;
  std::vector<void*> blocks;
  for (std::uint64_t bytes : {1ull, 63ull, 4096ull, (4ull << 20) - 1, 4ull << 20, (5ull << 20) + 7}) {
    for (std::uint64_t align : {1ull, 64ull, 4096ull, 4ull << 20}) {
      auto* p = static_cast<unsigned char*>(l.alloc(bytes, align, Tier::kHost, "x"));
      BOOST_REQUIRE(p);
      BOOST_TEST(reinterpret_cast<std::uintptr_t>(p) % align == 0u);
      BOOST_TEST((p[0] == 0 && p[bytes / 2] == 0 && p[bytes - 1] == 0));
      std::memset(p, 0xff, bytes);
      blocks.push_back(p);
      sum += bytes;
      BOOST_TEST(l.in_use(Tier::kHost) == sum);
    }
  }
  for (void* p : blocks) l.release(p);
  BOOST_TEST(l.in_use(Tier::kHost) == 0u);
  BOOST_TEST(l.peak(Tier::kHost) == sum);
  BOOST_TEST(l.peak_total() == sum);
}

BOOST_AUTO_TEST_CASE(reset_peaks_begin_with_the_bytes_in_use) {
  Ledger l;
  l.took(100, Tier::kDevice, "x");
  l.took(-40, Tier::kDevice, "x");
  l.reset_peaks();
  BOOST_TEST(l.peak(Tier::kDevice) == 60u);
  BOOST_TEST(l.peak_total() == 60u);
  l.took(5, Tier::kHost, "y");
  BOOST_TEST(l.peak_total() == 65u);
}

BOOST_AUTO_TEST_CASE(the_peak_of_the_total_is_at_one_time) {
  Ledger l;
  void* a = l.alloc(100, 64, Tier::kHost, "a");
  l.release(a);
  l.took(60, Tier::kDevice, "b");
  BOOST_TEST(l.peak(Tier::kHost) == 100u);
  BOOST_TEST(l.peak(Tier::kDevice) == 60u);
  BOOST_TEST(l.peak_total() == 100u);
  l.took(-60, Tier::kDevice, "b");
  BOOST_TEST(l.in_use(Tier::kDevice) == 0u);
}

BOOST_AUTO_TEST_CASE(the_limit_holds_over_all_tiers) {
  Ledger l;
  l.set_limit(1000);
  l.took(400, Tier::kDevice, "d");
  void* p = l.alloc(600, 64, Tier::kHost, "x");
  BOOST_TEST(p != nullptr);
  BOOST_TEST(l.alloc(1, 64, Tier::kHost, "x") == nullptr);
  l.release(p);
  BOOST_TEST(l.alloc(600, 64, Tier::kPinned, "x") != nullptr);
  BOOST_TEST(l.in_use(Tier::kPinned) == 600u);
}

BOOST_AUTO_TEST_CASE(invalid_requests_are_rejected_and_not_counted) {
  Ledger l;
  BOOST_TEST(l.alloc(10, 3, Tier::kHost, "x") == nullptr);
  BOOST_TEST(l.alloc(UINT64_MAX, 64, Tier::kHost, "x") == nullptr);
  BOOST_TEST(l.alloc(1ull << 62, 64, Tier::kHost, "x") == nullptr);
  int mine;
  l.release(&mine);
  l.release(nullptr);
  l.took(-5, Tier::kHost, "x");
  l.took(INT64_MAX, Tier::kHost, "x");
  l.took(INT64_MAX, Tier::kHost, "x");
  BOOST_TEST(l.in_use(Tier::kHost) == std::uint64_t{INT64_MAX});
  void* empty = l.alloc(0, 64, Tier::kPinned, "x");
  BOOST_TEST(empty != nullptr);
  BOOST_TEST(l.in_use(Tier::kPinned) == 0u);
}

BOOST_AUTO_TEST_CASE(a_tag_frees_only_its_own_bytes_in_the_same_tier) {
  Ledger l;
  l.took(100, Tier::kHost, "a");
  l.took(7, Tier::kDevice, "a");
  l.took(-1000, Tier::kHost, "b");
  BOOST_TEST(l.in_use(Tier::kHost) == 100u);
  l.took(-1000, Tier::kHost, "a");
  BOOST_TEST(l.in_use(Tier::kHost) == 0u);
  BOOST_TEST(l.in_use(Tier::kDevice) == 7u);
}

BOOST_AUTO_TEST_CASE(threads_count_together) {
  Ledger l;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 500; ++i) l.release(l.alloc(64, 64, Tier::kHost, "t"));
    });
  for (std::thread& t : threads) t.join();
  BOOST_TEST(l.in_use(Tier::kHost) == 0u);
  BOOST_TEST((l.peak(Tier::kHost) >= 64u && l.peak(Tier::kHost) <= 4 * 64u));
}

BOOST_AUTO_TEST_SUITE_END()
