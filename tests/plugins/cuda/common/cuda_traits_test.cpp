// The memory mode and the recomputed layers that `auto` selects, and the note that explains the selection.
#include <boost/test/unit_test.hpp>

#include "core/abi/error_guard.hpp"
#include "core/placement/memory_plan.hpp"
#include "plugins/cuda/common/cuda_traits.hpp"
#include "tests/support/small_models.hpp"

namespace trainhost::cuda {
namespace {

ModelSpec model() { return test::small_model("llama", 500, 256, 6, 4, 4, 64, 700); }
RunSpec run_of(std::uint64_t budget) {
  RunSpec r;
  r.seq_len = 256, r.micro_batch = 8, r.device_budget = budget;
  return r;
}
std::uint64_t device_bytes(const RunSpec& r, const TrainerTraits& p) {
  return placement::place(step::build_program(model(), r, p)).of(Tier::kDevice).arena_bytes;
}
bool note_has(const Choice& c, const char* part) { return c.why.find(part) != std::string::npos; }

BOOST_AUTO_TEST_SUITE(cuda_choose)

BOOST_AUTO_TEST_CASE(auto_selects_the_first_mode_that_fits_and_explains_it) {
  const std::uint64_t whole = device_bytes(run_of(0), choose(model(), run_of(0), "resident", 4).traits);
  RunSpec full = run_of(0);
  full.recompute = Recompute::kFull;
  const std::uint64_t recomputed = device_bytes(full, choose(model(), full, "resident", 4).traits);
  const std::uint64_t streamed = device_bytes(full, choose(model(), full, "streamed", 4).traits);
  BOOST_TEST_REQUIRE((streamed < recomputed && recomputed < whole));

  for (std::uint64_t budget : {std::uint64_t{0}, whole, whole + 1}) {
    const Choice c = choose(model(), run_of(budget), "auto", 4);
    BOOST_TEST(c.traits.mode == "resident");
    BOOST_TEST(c.why.empty(), c.why);
  }
  for (std::uint64_t budget : {whole - 1, (whole + recomputed) / 2, recomputed}) {
    const Choice c = choose(model(), run_of(budget), "auto", 4);
    BOOST_TEST(c.traits.mode == "resident");
    BOOST_TEST((note_has(c, "resident with recompute") && note_has(c, "needs")), c.why);
    BOOST_TEST(device_bytes(run_of(budget), c.traits) <= budget);
  }
  for (std::uint64_t budget : {recomputed - 1, streamed, std::uint64_t{1}}) {
    const Choice c = choose(model(), run_of(budget), "auto", 4);
    BOOST_TEST(c.traits.mode == "streamed");
    BOOST_TEST((note_has(c, "mode streamed") && note_has(c, "with every layer recomputed")), c.why);
    if (budget >= streamed) BOOST_TEST(device_bytes(run_of(budget), c.traits) <= budget);
    BOOST_TEST(c.why.find('\n') == std::string::npos);
  }
}

// Two blocks for each multiprocessor, at most one per token. The plan has the number, also of "auto".
BOOST_AUTO_TEST_CASE(partial_sums_follow_the_number_of_multiprocessors) {
  for (const char* mode : {"auto", "resident", "hybrid", "streamed"}) {
    const auto slots = [&](const RunSpec& r, std::uint32_t n) {
      return choose(model(), r, mode, 4, n).traits.slots;
    };
    BOOST_TEST(choose(model(), run_of(0), mode, 4).traits.slots == 264u);
    BOOST_TEST(slots(run_of(0), 108) == 216u);
    BOOST_TEST(slots(run_of(0), 148) == 296u);
    RunSpec few = run_of(0);
    few.seq_len = 10, few.micro_batch = 2;
    BOOST_TEST(slots(few, 108) == 20u);
  }
}

BOOST_AUTO_TEST_CASE(the_option_multiprocessors_is_a_number) {
  th_host host{};
  static const char* value;
  host.option = [](const th_host*, const char* key) {
    return std::string(key) == "multiprocessors" ? value : nullptr;
  };
  for (const auto& [text, n] : {std::pair<const char*, std::uint32_t>{nullptr, 0}, {"1", 1}, {"108", 108}}) {
    value = text;
    BOOST_TEST(multiprocessors_option(&host) == n);
  }
  BOOST_TEST(multiprocessors_option(nullptr) == 0u);
  for (const char* bad : {"", "0", "-1", "4097", "108 ", "many"}) {
    value = bad;
    BOOST_CHECK_EXCEPTION(multiprocessors_option(&host), abi::StatusError, [&](const abi::StatusError& e) {
      return std::string(e.what()).find("plugin.cuda.multiprocessors = " + std::string(bad)) !=
             std::string::npos;
    });
  }
}

BOOST_AUTO_TEST_CASE(a_recompute_policy_of_the_user_is_kept) {
  RunSpec r = run_of(0);
  r.recompute = Recompute::kSelective;
  const std::uint64_t whole = device_bytes(r, choose(model(), r, "resident", 4).traits);
  r.device_budget = whole - 1;
  const Choice c = choose(model(), r, "auto", 4);
  BOOST_TEST(c.traits.mode == "streamed");
  BOOST_TEST(!note_has(c, "recomputed"), c.why);
}

BOOST_AUTO_TEST_CASE(auto_chooses_mode_streamed_with_every_optimizer) {
  RunSpec r = run_of(1);
  for (const Optimizer o : {Optimizer::kMuon, Optimizer::kAdafactor}) {
    r.optimizer = o;
    BOOST_TEST(choose(model(), r, "auto", 4).traits.mode == "streamed");
  }
}

BOOST_AUTO_TEST_CASE(a_requested_mode_is_used_without_a_note) {
  for (const char* mode : {"resident", "hybrid", "streamed"}) {
    const Choice c = choose(model(), run_of(1), mode, 3);
    BOOST_TEST(c.traits.mode == mode);
    BOOST_TEST(c.traits.threads == 3u);
    BOOST_TEST(c.why.empty());
  }
}

/// The first of 2 TP ranks, and of `data` DP ranks.
RunSpec of_tensor_ranks(std::uint64_t budget, std::uint32_t data) {
  RunSpec r = run_of(budget);
  r.parallel.tensor = 2, r.parallel.tensor_rank = 1;
  r.parallel.data = data, r.parallel.data_rank = 1;
  return r;
}

// Chunks of logits are of the rank's part of the vocabulary; NCCL takes memory per communicator.
BOOST_AUTO_TEST_CASE(traits_of_a_tensor_rank_are_those_of_its_part) {
  ModelSpec large = model();
  large.vocab = 128'000;
  RunSpec one = run_of(0);
  BOOST_TEST(choose(large, one, "resident", 4).traits.head_chunk_tokens == 512u);
  const TrainerTraits pair = choose(large, of_tensor_ranks(0, 1), "auto", 4).traits,
                      pairs = choose(large, of_tensor_ranks(0, 2), "auto", 4).traits;
  BOOST_TEST(pair.head_chunk_tokens == 1024u);
  const std::uint64_t alone = choose(large, one, "resident", 4).traits.runtime_bytes;
  BOOST_TEST(pair.runtime_bytes == alone + (512ull << 20));
  BOOST_TEST(pairs.runtime_bytes == alone + 3 * (512ull << 20));
}

BOOST_AUTO_TEST_CASE(tensor_ranks_recompute_layers_and_stay_resident) {
  const RunSpec whole = of_tensor_ranks(0, 1);
  const std::uint64_t bytes = device_bytes(whole, choose(model(), whole, "auto", 4).traits);
  const RunSpec less = of_tensor_ranks(bytes - 1, 1), nothing = of_tensor_ranks(1, 1);
  const Choice recomputed = choose(model(), less, "auto", 4), none = choose(model(), nothing, "auto", 4);
  BOOST_TEST(note_has(recomputed, "mode resident with recompute"), recomputed.why);
  BOOST_TEST(device_bytes(less, recomputed.traits) < bytes);
  BOOST_TEST(none.traits.mode == "resident");
  BOOST_TEST(note_has(none, "several ranks train in no other mode"), none.why);
  for (const char* mode : {"hybrid", "streamed"})
    BOOST_CHECK_EXCEPTION(choose(model(), whole, mode, 4), abi::StatusError, [](const abi::StatusError& e) {
      return std::string(e.what()).find("2 ranks train in mode resident only") != std::string::npos;
    });
}

BOOST_AUTO_TEST_CASE(an_unknown_mode_is_rejected_with_a_suggestion) {
  try {
    choose(model(), run_of(0), "residnet", 1);
    BOOST_TEST(false, "no error");
  } catch (const abi::StatusError& e) {
    BOOST_TEST(e.code == TH_E_ARG);
    BOOST_TEST(std::string(e.what()).find("resident") != std::string::npos, e.what());
    BOOST_TEST(e.hint.find("hybrid") != std::string::npos);
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace trainhost::cuda
