// The SDK from the position of a plugin author: plugins in C and C++, loaded by the registry of the host, and
// the functions of trainhost.hpp for structs of another minor version.
#include <boost/test/unit_test.hpp>
#include <fstream>
#include <sstream>

#include "core/plugin/registry.hpp"
#include "tests/support/files.hpp"
#include "trainhost/trainhost.hpp"

namespace tp = trainhost::plugin;
using trainhost::Tier;

namespace {

trainhost::ModelSpec llama() {
  trainhost::ModelSpec m;
  m.vocab = 100, m.hidden = 16, m.layers = 2, m.heads = 4, m.kv_heads = 2, m.head_dim = 4,
  m.intermediate = 32;
  return m;
}

// Computed from the shapes: two tables of 100*16, per layer 2*16*16 + 2*16*8 + 3*16*32 + 2*16, and a norm
// of 16.
constexpr std::uint64_t kLlamaParameters = 2 * 1600 + 2 * (512 + 256 + 1536 + 32) + 16;

using trainhost::test::read_file;

}  // namespace

BOOST_AUTO_TEST_SUITE(sdk)

BOOST_AUTO_TEST_CASE(an_estimator_in_plain_c_works) {
  tp::Registry registry({SDK_PLUGINS}, {});
  auto& e = registry.estimator("rule-of-thumb");
  BOOST_TEST(e.match(llama(), {}) == 10);
  trainhost::MemoryReport r = e.estimate(llama(), {}, nullptr);
  BOOST_TEST(r.total_bytes() == 16 * kLlamaParameters);
  BOOST_TEST(r.tier_bytes(Tier::kHost) == 16 * kLlamaParameters);
  BOOST_TEST(r.entries.size() == 5u);
  BOOST_TEST(r.entries[1].parent == 1u);
  BOOST_TEST(r.entries[1].formula == "V*H*bytes");
  BOOST_TEST((r.claim == trainhost::Claim::kApproximation));
  BOOST_TEST(r.notes.at(0) == "Activations are not counted.");
  trainhost::ModelSpec other = llama();
  other.family = "gpt2";
  BOOST_TEST(e.match(other, {}) == 0);
}

BOOST_AUTO_TEST_CASE(a_plugin_in_c_reads_its_options_and_reports_errors) {
  tp::HostOptions options;
  options.plugin_options["rule-of-thumb"]["bytes_per_parameter"] = "4";
  tp::Registry four({SDK_PLUGINS}, options);
  BOOST_TEST(four.estimator("rule-of-thumb").estimate(llama(), {}, nullptr).total_bytes() ==
             4 * kLlamaParameters);
  options.plugin_options["rule-of-thumb"]["bytes_per_parameter"] = "none";
  tp::Registry none({SDK_PLUGINS}, options);
  BOOST_CHECK_EXCEPTION(none.estimator("rule-of-thumb").estimate(llama(), {}, nullptr), tp::PluginError,
                        [](const tp::PluginError& e) {
                          return std::string(e.what()) == "bytes_per_parameter must be a positive number" &&
                                 e.status() == "argument" && e.code() == trainhost::Exit::kUsage;
                        });
}

BOOST_AUTO_TEST_CASE(the_manifest_survives_gc_sections_and_strip) {
  tp::Registry registry({SDK_PLUGINS}, {});  // rule-of-thumb.so is built with both
  const tp::Candidate* c = registry.find("rule-of-thumb");
  BOOST_REQUIRE(c);
  BOOST_TEST((c->status == tp::Status::kOk));
  BOOST_TEST(c->manifest.families.size() == 2u);
}

BOOST_AUTO_TEST_CASE(the_smallest_plugin_of_the_readme_works) {
  std::string source = read_file(TRAINHOST_SOURCE_DIR "/tests/sdk/smallest_plugin.cpp");
  BOOST_TEST(read_file(TRAINHOST_SOURCE_DIR "/sdk/README.md").find(source) != std::string::npos);
  tp::Registry registry({SDK_PLUGINS}, {});
  auto& e = registry.estimator("acme-weights");
  BOOST_TEST(e.match(llama(), {}) == 1);
  trainhost::MemoryReport r = e.estimate(llama(), {}, nullptr);
  BOOST_TEST(r.total_bytes() == 100u * 16 * 4);
  BOOST_TEST((r.claim == trainhost::Claim::kExact));
}

BOOST_AUTO_TEST_CASE(a_shorter_struct_is_filled_with_zeros_and_a_longer_one_is_truncated) {
  th_run r{};
  r.struct_size = offsetof(th_run, accumulate);
  r.seq_len = 5;
  r.accumulate = 7;  // beyond its size: ignored
  th_run full = th::in(&r);
  BOOST_TEST(full.seq_len == 5u);
  BOOST_TEST(full.accumulate == 0u);
  BOOST_TEST(full.struct_size == sizeof(th_run));

  struct Longer {
    th_run known;
    std::uint64_t added_later[4];
  } longer{};
  longer.known.struct_size = sizeof longer;
  longer.known.seed = 9;
  BOOST_TEST(th::in(&longer.known).seed == 9u);
  BOOST_TEST(th::in(&longer.known).struct_size == sizeof(th_run));
}

BOOST_AUTO_TEST_CASE(results_are_not_written_beyond_the_size_of_the_host_struct) {
  th_counters mine{}, old{};
  mine.h2d_bytes = 1, mine.launches = 2;
  old.struct_size = offsetof(th_counters, launches);
  th::out(&old, mine);
  BOOST_TEST(old.h2d_bytes == 1u);
  BOOST_TEST(old.launches == 0u);
  BOOST_TEST(old.struct_size == offsetof(th_counters, launches));
}

BOOST_AUTO_TEST_CASE(an_exception_in_a_guarded_function_becomes_a_code) {
  th_error e{};
  e.struct_size = sizeof e;
  BOOST_TEST(th::guard(&e, [] { throw th::Error(TH_E_IO, "the disk is full", "free some space", 3); }) ==
             TH_E_IO);
  BOOST_TEST((std::string(e.message) == "the disk is full" && std::string(e.hint) == "free some space" &&
              e.bytes_needed == 3));
  BOOST_TEST(th::guard(&e, [] { throw std::bad_alloc(); }) == TH_E_HOST_OOM);
  BOOST_TEST(th::guard(&e, [] { throw 1; }) == TH_E_INTERNAL);
  BOOST_TEST(th::guard(nullptr, [] { throw 1; }) == TH_E_INTERNAL);
  e.struct_size = offsetof(th_error, message);
  std::memset(e.message, 0, sizeof e.message);
  th::fill(&e, TH_E_IO, "past the end");
  BOOST_TEST(std::string(e.message) == "");
}

// Compared with 128-bit arithmetic, at the limit of 63 bits.
BOOST_AUTO_TEST_CASE(products_and_sums_of_sizes_never_wrap) {
  const std::uint64_t sizes[] = {0,
                                 1,
                                 2,
                                 3,
                                 std::uint64_t{1} << 31,
                                 (std::uint64_t{1} << 32) - 1,
                                 (std::uint64_t{1} << 62) - 1,
                                 std::uint64_t{1} << 62,
                                 (std::uint64_t{1} << 63) - 1,
                                 std::uint64_t{1} << 63,
                                 ~std::uint64_t{0}};
  const auto result_of = [](auto f) {  // the result, or -1 for an error
    try {
      return static_cast<unsigned __int128>(f());
    } catch (const th::Error& e) {
      BOOST_TEST(e.code == TH_E_UNSUPPORTED);
      return ~static_cast<unsigned __int128>(0);
    }
  };
  const auto expected = [](unsigned __int128 n) { return n >> 63 ? ~static_cast<unsigned __int128>(0) : n; };
  for (std::uint64_t a : sizes)
    for (std::uint64_t b : sizes) {
      BOOST_TEST((result_of([&] {
                    return th::sum({a, b});
                  }) == expected(static_cast<unsigned __int128>(a) + b)),
                 a << " + " << b);
      if (a >> 63 == 0)
        BOOST_TEST((result_of([&] {
                      return th::product({a, b});
                    }) == expected(static_cast<unsigned __int128>(a) * b)),
                   a << " * " << b);
    }
  BOOST_TEST(th::sum({1, 2, 3}) == 6u);
  BOOST_CHECK_THROW(th::sum({(std::uint64_t{1} << 63) - 1, (std::uint64_t{1} << 63) - 1, 2, 5}),
                    th::Error);  // wraps 64 bits to 5
}

BOOST_AUTO_TEST_CASE(struct_sizes_are_those_that_plugins_were_built_with) {
  // 64-bit, no padding. A change breaks every built plugin and requires a new major version.
  BOOST_TEST(sizeof(th_error) == 520u);
  BOOST_TEST(sizeof(th_host) == 104u);
  BOOST_TEST(sizeof(th_mem) == 80u);
  BOOST_TEST(sizeof(th_mem_summary) == 112u);
  BOOST_TEST(sizeof(th_mem_sink) == 32u);
  BOOST_TEST(sizeof(th_model) == 144u);
  BOOST_TEST(sizeof(th_run) == 256u);
  BOOST_TEST(sizeof(th_profile) == 160u);
  BOOST_TEST(sizeof(th_plugin) == 48u);
  BOOST_TEST(sizeof(th_estimator) == 24u);
  BOOST_TEST(sizeof(th_tensor) == 112u);
  BOOST_TEST(sizeof(th_step) == 56u);
  BOOST_TEST(sizeof(th_step_out) == 48u);
  BOOST_TEST(sizeof(th_counters) == 120u);
  BOOST_TEST(sizeof(th_trainer) == 104u);
  BOOST_TEST(sizeof(th_generate) == 16u);
  BOOST_TEST(sizeof(th_collective) == 80u);
  BOOST_TEST(sizeof(th_ranks) == 56u);
  BOOST_TEST(sizeof(th_launch) == 56u);
  BOOST_TEST(sizeof(th_communicator) == 56u);
}

BOOST_AUTO_TEST_SUITE_END()
