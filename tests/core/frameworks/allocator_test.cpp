// The replay of PyTorch's caching allocator against sequences computed by hand from its rules.
#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <random>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "core/base/error.hpp"
#include "core/frameworks/allocator/caching_allocator.hpp"
#include "core/frameworks/allocator/free_blocks.hpp"

using namespace trainhost;
using namespace trainhost::frameworks;

namespace {

constexpr std::uint64_t kKiB = 1024, kMiB = 1024 * kKiB;

/// Positive: allocates so many bytes. Negative: frees the n-th allocation, counted from 1.
Trace trace_of(std::initializer_list<std::int64_t> events) {
  Trace trace;
  TraceWriter w(trace);
  for (const std::int64_t e : events) {
    if (e > 0)
      w.allocate(std::uint64_t(e), Purpose::kActivations, -1, "", "x");
    else
      w.free(std::uint32_t(-e - 1));
  }
  return trace;
}

AllocatorResult replay(std::initializer_list<std::int64_t> events, const char* config = "",
                       std::uint64_t capacity = 0) {
  return replay_allocator(trace_of(events), parse_allocator_config(config), capacity);
}

constexpr std::int64_t mib(double n) { return std::int64_t(n * double(kMiB)); }

}  // namespace

BOOST_AUTO_TEST_SUITE(caching_allocator)

BOOST_AUTO_TEST_CASE(small_requests_share_segments_of_2_MiB) {
  // 1 byte takes 512; 1 MiB is still small; both fit one segment.
  BOOST_TEST(replay({1}).allocated == 512u);
  BOOST_TEST(replay({1, mib(1)}).reserved == 2 * kMiB);
  BOOST_TEST(replay({mib(1), mib(1)}).reserved == 2 * kMiB);
  BOOST_TEST(replay({mib(1), mib(1), 1}).reserved == 4 * kMiB);
}

// A search for the largest micro-batch asks for sizes that no device has.
BOOST_AUTO_TEST_CASE(expandable_segments_serve_requests_of_any_size) {
  constexpr std::uint64_t kPage = 20 * kMiB, kHuge = std::uint64_t{1} << 45;
  const std::uint64_t pages = (kHuge + kPage - 1) / kPage * kPage;
  BOOST_TEST(replay({std::int64_t{kHuge}, mib(30)}, "expandable_segments:True").reserved ==
             (kHuge + 30 * kMiB + kPage - 1) / kPage * kPage);
  BOOST_TEST(replay({std::int64_t{kHuge}, -1, mib(30)}, "expandable_segments:True").reserved == pages);
}

BOOST_AUTO_TEST_CASE(requests_below_10_MiB_share_segments_of_20_MiB) {
  BOOST_TEST(replay({mib(1) + 1}).reserved == 20 * kMiB);
  BOOST_TEST(replay({mib(9), mib(9)}).reserved == 20 * kMiB);
  // 2 MiB are left, which a request of 3 MiB cannot use.
  BOOST_TEST(replay({mib(9), mib(9), mib(3)}).reserved == 40 * kMiB);
  // A rest of at most 1 MiB is not split off: it belongs to the block, and counts as allocated.
  const AllocatorResult r = replay({mib(9.5), mib(9.6)});
  BOOST_TEST(r.reserved == 20 * kMiB);
  BOOST_TEST(r.allocated == std::uint64_t(mib(9.5)) + std::uint64_t(mib(10.5)));
}

BOOST_AUTO_TEST_CASE(large_requests_get_segments_of_their_size_rounded_to_2_MiB) {
  BOOST_TEST(replay({mib(10)}).reserved == 10 * kMiB);
  BOOST_TEST(replay({mib(10) + 1}).reserved == 12 * kMiB);
  BOOST_TEST(replay({mib(11), mib(33)}).reserved == 46 * kMiB);
}

BOOST_AUTO_TEST_CASE(the_smallest_free_block_that_is_large_enough_is_taken_and_split) {
  // Free: 100 and 40. 30 goes into the 40, so 100 still fits the other.
  BOOST_TEST(replay({mib(100), mib(40), -1, -2, mib(30), mib(100)}).reserved == 140 * kMiB);
  // 30 splits the only free block; then 100 needs a new segment.
  BOOST_TEST(replay({mib(100), -1, mib(30), mib(100)}).reserved == 200 * kMiB);
  // Neighbours that are free are merged.
  BOOST_TEST(replay({mib(100), -1, mib(30), mib(70), -2, -3, mib(100)}).reserved == 100 * kMiB);
  // 60 and 40 of one segment are free but not next to each other.
  BOOST_TEST(replay({mib(120), -1, mib(60), mib(20), mib(40), -2, -4, mib(100)}).reserved == 220 * kMiB);
}

BOOST_AUTO_TEST_CASE(memory_that_one_stream_freed_serves_no_other) {
  for (const char* config : {"", "expandable_segments:True"}) {
    const auto reserved = [&](Stream second) {
      Trace t;
      TraceWriter w(t);
      w.free(w.allocate(100 * kMiB, Purpose::kActivations, -1, "", ""));
      w.allocate(100 * kMiB, Purpose::kActivations, -1, "", "");
      t.storages.back().stream = second;
      return replay_allocator(t, parse_allocator_config(config)).reserved;
    };
    BOOST_TEST(reserved(Stream::kCompute) == 100 * kMiB);
    BOOST_TEST(reserved(Stream::kGather) == 200 * kMiB);
  }
}

BOOST_AUTO_TEST_CASE(expandable_segments_grow_in_pages) {
  const char* config = "expandable_segments:True";
  BOOST_TEST(replay({mib(30)}, config).reserved == 40 * kMiB);
  BOOST_TEST(replay({mib(30), mib(10)}, config).reserved == 40 * kMiB);
  BOOST_TEST(replay({1}, config).reserved == 2 * kMiB);
  // A free block at the end grows by what is missing: 50 MiB are free, 100 need three more pages of 20 MiB.
  BOOST_TEST(replay({mib(10), mib(40), -2, mib(100)}, config).reserved == 120 * kMiB);
  // Without expandable segments the same requests need a second segment.
  BOOST_TEST(replay({mib(10), mib(40), -2, mib(100)}).reserved == 150 * kMiB);
  // A rest of 512 bytes is split off.
  BOOST_TEST(replay({mib(20) - 512, 512}, config).allocated == 20 * kMiB);
}

// sizes: the most that differ. With few, the lists are long, and places in them are found from marks.
static void check_order_of_free_blocks(std::uint32_t sizes, std::size_t most) {
  std::mt19937 random(1);
  const auto below = [&](std::uint32_t n) { return random() % n; };
  constexpr std::uint32_t kRounds = 40'000;
  std::vector<Block> blocks(kRounds);
  FreeBlocks free(blocks, 0);
  std::set<std::tuple<std::uint64_t, std::uint64_t, std::uint32_t>> expected;
  const auto key = [&](std::uint32_t i) { return std::tuple(blocks[i].size, blocks[i].address, i); };
  std::vector<std::uint32_t> listed;
  for (std::uint32_t i = 0; i < kRounds; ++i) {
    if (listed.size() < most / 18 || (listed.size() < most && below(2))) {
      blocks[i].size = 512 * (sizes + std::uint64_t{below(sizes)});
      blocks[i].address = (std::uint64_t{below(1u << 20)} << 40) + i * std::uint64_t{512};
      free.insert(i);
      listed.push_back(i);
      expected.insert(key(i));
    } else {
      const std::size_t at = below(static_cast<std::uint32_t>(listed.size()));
      const std::uint32_t block = listed[at];
      expected.erase(key(block));
      if (below(2)) {  // a part of it is taken, or bytes before it are freed
        const Block b = blocks[block];
        const std::uint64_t bytes = 512 * (1 + std::uint64_t{below(std::max(1u, sizes / 50))});
        if (below(2) && bytes < b.size)
          free.change(block, b.address + bytes, b.size - bytes);
        else
          free.change(block, b.address - bytes, b.size + bytes);
        expected.insert(key(block));
        continue;
      }
      free.erase(block);
      blocks[block].used = true;
      listed[at] = listed.back();
      listed.pop_back();
    }
    const std::uint64_t size = 512 * (sizes + std::uint64_t{below(sizes + sizes / 20 + 1)});
    const auto least = expected.lower_bound({size, 0, 0});
    BOOST_REQUIRE(free.at_least(size) == (least == expected.end() ? FreeBlocks::kNone : std::get<2>(*least)));
    if (i % 1000) continue;
    const std::vector<std::uint32_t> all = free.all();
    BOOST_REQUIRE(std::ranges::equal(all, expected, {}, {}, [](const auto& k) { return std::get<2>(k); }));
  }
}

BOOST_AUTO_TEST_CASE(free_blocks_of_thousands_of_sizes_are_found_in_the_order_of_size_and_address) {
  check_order_of_free_blocks(20'000, 900);
}

BOOST_AUTO_TEST_CASE(thousands_of_free_blocks_of_few_sizes_are_found_in_the_order_of_size_and_address) {
  for (const std::uint32_t sizes : {1u, 3u, 20u}) check_order_of_free_blocks(sizes, 6'000);
}

namespace {

/// The rules of torch's allocator without lists: every search looks at all blocks.
class PlainAllocator {
 public:
  void allocate(std::uint32_t id, std::uint64_t bytes) {
    const std::uint64_t size = (std::max<std::uint64_t>(bytes, 1) + 511) / 512 * 512;
    const bool small = size <= kMiB;
    std::pair<std::size_t, std::size_t> best{SIZE_MAX, 0};
    for (std::size_t s = 0; s < segments_.size(); ++s)
      for (std::size_t b = 0; segments_[s].small == small && b < segments_[s].blocks.size(); ++b) {
        const Part& p = segments_[s].blocks[b];
        if (!p.used && p.size >= size &&
            (best.first == SIZE_MAX || p.size < segments_[best.first].blocks[best.second].size))
          best = {s, b};
      }
    if (best.first == SIZE_MAX) {
      const std::uint64_t segment = small              ? 2 * kMiB
                                    : size < 10 * kMiB ? 20 * kMiB
                                                       : (size + 2 * kMiB - 1) / (2 * kMiB) * (2 * kMiB);
      best = {segments_.size(), 0};
      segments_.push_back({small, {{segment, false, 0}}});
      reserved += segment;
    }
    std::vector<Part>& blocks = segments_[best.first].blocks;
    const std::uint64_t rest = blocks[best.second].size - size;
    if (small ? rest >= 512 : rest > kMiB) {
      blocks[best.second].size = size;
      blocks.insert(blocks.begin() + static_cast<std::ptrdiff_t>(best.second) + 1, {rest, false, 0});
    }
    blocks[best.second].used = true, blocks[best.second].id = id;
    allocated += blocks[best.second].size;
    peak = std::max(peak, allocated);
  }
  void free(std::uint32_t id) {
    for (auto& [small, blocks] : segments_)
      for (std::size_t b = 0; b < blocks.size(); ++b) {
        if (!blocks[b].used || blocks[b].id != id) continue;
        allocated -= blocks[b].size;
        blocks[b].used = false;
        for (const std::size_t at : {b, b - 1}) {
          if (at >= blocks.size() - 1 || blocks[at].used || blocks[at + 1].used) continue;
          blocks[at].size += blocks[at + 1].size;
          blocks.erase(blocks.begin() + static_cast<std::ptrdiff_t>(at) + 1);
        }
        return;
      }
  }
  std::uint64_t reserved = 0, allocated = 0, peak = 0;

 private:
  struct Part {
    std::uint64_t size;
    bool used;
    std::uint32_t id;
  };
  struct Segment {
    bool small;
    std::vector<Part> blocks;
  };
  std::vector<Segment> segments_;  // by address
};

}  // namespace

BOOST_AUTO_TEST_CASE(random_requests_are_served_as_by_an_allocator_without_lists) {
  std::mt19937 random(7);
  const auto below = [&](std::uint32_t n) { return random() % n; };
  for (const std::uint32_t kinds : {2u, 30u})
    for (int round = 0; round < 6; ++round) {
      std::vector<std::uint64_t> sizes;
      // Of one small kind a rest differs little from others.
      const std::uint64_t most = kinds == 2 ? 4u << 10 : 1u << 19;
      for (std::uint32_t i = 0; i < kinds; ++i)
        sizes.push_back(kinds == 2 || below(3) ? 1 + below(static_cast<std::uint32_t>(most))
                                               : 1 + std::uint64_t{below(40u << 20)});
      Trace trace;
      TraceWriter w(trace);
      PlainAllocator plain;
      std::vector<std::uint32_t> live;
      for (int i = 0; i < 9'000; ++i) {
        // Grows, and is mostly freed again, several times.
        const bool grows = i / 1500 % 2 == 0;
        if (live.empty() || below(100) < (grows ? 80u : 25u)) {
          const std::uint64_t bytes = sizes[below(kinds)];
          live.push_back(w.allocate(bytes, Purpose::kActivations, -1, "", "x"));
          plain.allocate(live.back(), bytes);
        } else {
          const std::size_t at = below(static_cast<std::uint32_t>(live.size()));
          w.free(live[at]);
          plain.free(live[at]);
          live[at] = live.back();
          live.pop_back();
        }
      }
      const AllocatorResult r = replay_allocator(trace, AllocatorConfig());
      BOOST_TEST(r.reserved == plain.reserved);
      BOOST_TEST(r.allocated == plain.peak);
    }
}

BOOST_AUTO_TEST_CASE(blocks_above_max_split_size_are_not_split) {
  const char* config = "max_split_size_mb:64";
  // 100 MiB are free, but only requests of 64 MiB and more may have them, and not if 20 MiB would be wasted.
  BOOST_TEST(replay({mib(100), -1, mib(30)}, config).reserved == 130 * kMiB);
  BOOST_TEST(replay({mib(100), -1, mib(90)}, config).reserved == 100 * kMiB);
  BOOST_TEST(replay({mib(100), -1, mib(70)}, config).reserved == 170 * kMiB);
  BOOST_TEST(replay({mib(100), -1, mib(70)}).reserved == 100 * kMiB);
}

BOOST_AUTO_TEST_CASE(requests_are_rounded_to_divisions_of_powers_of_two) {
  AllocatorConfig c = parse_allocator_config("roundup_power2_divisions:4");
  BOOST_TEST(rounded_request(std::uint64_t(mib(1.1)), c) == std::uint64_t(mib(1.25)));
  BOOST_TEST(rounded_request(std::uint64_t(mib(5)), c) == std::uint64_t(mib(5)));
  BOOST_TEST(rounded_request(std::uint64_t(mib(5.1)), c) == std::uint64_t(mib(6)));
  BOOST_TEST(rounded_request(1200, c) == 1536u);  // below 4 * 512 bytes: multiples of 512
  c = parse_allocator_config("roundup_power2_divisions:[256:1,512:2,>:8]");
  BOOST_TEST(rounded_request(std::uint64_t(mib(300.3)), c) == std::uint64_t(mib(300.3)) / 512 * 512 + 512);
  BOOST_TEST(rounded_request(std::uint64_t(mib(600)), c) == std::uint64_t(mib(768)));
  BOOST_TEST(rounded_request(std::uint64_t(mib(1100)), c) == std::uint64_t(mib(1152)));
}

BOOST_AUTO_TEST_CASE(free_segments_are_released_when_the_device_is_full) {
  // 60 + 50 do not fit 100; the free segment of 60 is released and 50 allocated.
  const AllocatorResult r = replay({mib(60), -1, mib(70)}, "", 100 * kMiB);
  BOOST_TEST(!r.out_of_memory);
  BOOST_TEST(r.retries == 1u);
  BOOST_TEST(r.reserved == 70 * kMiB);
  // A segment that is in use in part stays.
  const AllocatorResult full = replay({mib(60), -1, mib(30), mib(70)}, "", 100 * kMiB);
  BOOST_TEST(full.out_of_memory);
  BOOST_TEST(full.failed_event == 3u);
  // Expandable segments return pages that are free.
  const AllocatorResult pages =
      replay({mib(60), mib(20), -1, mib(70)}, "expandable_segments:True", 100 * kMiB);
  BOOST_TEST(!pages.out_of_memory);
  BOOST_TEST(pages.reserved_at_end == 100 * kMiB);
}

BOOST_AUTO_TEST_CASE(wrong_settings_name_key_and_valid_values) {
  const auto message = [](const char* text) {
    try {
      parse_allocator_config(text);
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  BOOST_TEST(message("expandable_segment:True").find("unknown key 'expandable_segment'") !=
             std::string::npos);
  BOOST_TEST(message("backend:native").empty());
  BOOST_TEST(message("backend:cudaMallocAsync").find("backend cannot be 'cudaMallocAsync'") !=
             std::string::npos);
  BOOST_TEST(message("expandable_segments:yes").find("cannot be 'yes'") != std::string::npos);
  BOOST_TEST(message("max_split_size_mb:19").find("cannot be '19'") != std::string::npos);
  BOOST_TEST(parse_allocator_config("max_split_size_mb:20").max_split_size == 20u << 20);
  BOOST_TEST(message("large_segment_size_mb:64").find("large_segment_size_mb is not replayed") !=
             std::string::npos);
  BOOST_CHECK_NO_THROW(
      parse_allocator_config("expandable_segments_reserve_by_class:[1,2],throw_on_cudamalloc_oom:True"));
  BOOST_TEST(message("max_split_size_mb").find("has no value") != std::string::npos);
  BOOST_TEST(message("roundup_power2_divisions:3").find("cannot be '3'") != std::string::npos);
  BOOST_TEST(message("garbage_collection_threshold:1.5").find("cannot be '1.5'") != std::string::npos);
  BOOST_TEST(message("backend:native, max_split_size_mb:128") == "");
}

BOOST_AUTO_TEST_SUITE_END()
