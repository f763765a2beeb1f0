// The checker accepts the plans of the builders and the placer: hundreds of random shapes, options, policies
// and modes. sabotage_test.cpp tests that it rejects broken plans.
#include "core/placement/check_plan.hpp"

#include <boost/test/unit_test.hpp>

#include "core/model/presets.hpp"
#include "core/step/buffer_names.hpp"
#include "core/step/operands.hpp"
#include "tests/core/placement/cases.hpp"

using namespace trainhost;
using namespace trainhost::placement;
using namespace trainhost::placement::test;

namespace {

void holds(const Case& c, const std::string& what) {
  const Program p = c.build();
  const std::vector<std::string> wrong = check(p, place(p));
  BOOST_CHECK_MESSAGE(wrong.empty(), what << ": " << wrong.size()
                                          << " broken, first: " << (wrong.empty() ? "" : wrong.front()));
}

}  // namespace

constexpr const char* kModes[] = {"resident", "hybrid", "streamed"};

BOOST_AUTO_TEST_SUITE(checker)

BOOST_AUTO_TEST_CASE(plans_of_random_shapes_options_policies_and_modes_pass) {
  for (std::uint64_t seed = 0; seed < 400; ++seed) holds(random_case(seed), "seed " + std::to_string(seed));
}

BOOST_AUTO_TEST_CASE(plans_for_a_device_pass_in_every_precision) {
  for (std::uint64_t seed = 0; seed < 400; ++seed)
    holds(on_device(random_case(seed), seed), "seed " + std::to_string(seed));
}

BOOST_AUTO_TEST_CASE(plans_that_keep_part_of_a_run_in_host_memory_pass) {
  for (std::uint64_t seed = 0; seed < 400; ++seed)
    for (const char* mode : {"hybrid", "streamed"})
      holds(on_device(random_case(seed), seed, mode), std::string(mode) + ", seed " + std::to_string(seed));
}

BOOST_AUTO_TEST_CASE(plans_of_runs_that_train_adapters_pass) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const Case c = with_adapters(random_case(seed), seed);
    const char* mode = kModes[seed % 3];
    holds(c, "seed " + std::to_string(seed));
    holds(on_device(c, seed, mode), std::string(mode) + ", seed " + std::to_string(seed));
    if (seed % 2) continue;
    const Case nf4 = with_nf4(random_case(seed), seed / 2);
    holds(nf4, "NF4, seed " + std::to_string(seed));
    holds(on_device(nf4, seed, mode), std::string("NF4 ") + mode + ", seed " + std::to_string(seed));
  }
}

BOOST_AUTO_TEST_CASE(plans_of_adapters_of_embedding_and_head_pass) {
  for (std::uint64_t seed = 0; seed < 240; ++seed) {
    const Case c = with_adapters_outside_layers(random_case(seed), seed);
    const char* mode = kModes[seed / 3 % 3];
    holds(c, "seed " + std::to_string(seed));
    holds(on_device(c, seed, mode), std::string(mode) + ", seed " + std::to_string(seed));
    Case ranks = c;
    ranks.run.parallel.data = 1 + static_cast<std::uint32_t>(seed % 3);
    if (ranks.run.parallel.data == 1 || ranks.run.mode == RunMode::kInference) continue;
    ranks.run.parallel.data_rank = 1 + static_cast<std::uint32_t>(seed / 4 % ranks.run.parallel.data);
    const Optimizer o = ranks.run.optimizer;
    const bool whole = o == Optimizer::kMuon || o == Optimizer::kAdafactor || o == Optimizer::kAdamW8bit;
    ranks.run.parallel.zero = whole ? 0 : static_cast<std::uint32_t>(seed / 2 % 4);
    holds(ranks, "ranks, seed " + std::to_string(seed));
  }
}

BOOST_AUTO_TEST_CASE(plans_of_runs_that_train_modules_beside_adapters_pass) {
  for (std::uint64_t seed = 0; seed < 120; ++seed) {
    const Case c = with_saved_modules(random_case(seed), seed);
    holds(c, "seed " + std::to_string(seed) + ", " + c.run.trainable);
    for (const char* mode : kModes)
      holds(on_device(c, seed, mode), mode + (", seed " + std::to_string(seed)) + ", " + c.run.trainable);
  }
}

BOOST_AUTO_TEST_CASE(plans_of_runs_that_freeze_weights_pass) {
  for (std::uint64_t seed = 0; seed < 240; ++seed) {
    const Case c = with_frozen(random_case(seed), seed);
    if (trained_tensors(c.model, c.run).empty()) continue;  // q_norm and k_norm of a model without them
    holds(c, "seed " + std::to_string(seed) + ", " + c.run.trainable);
    for (const char* mode : kModes)
      holds(on_device(c, seed, mode), mode + (", seed " + std::to_string(seed)) + ", " + c.run.trainable);
  }
}

BOOST_AUTO_TEST_CASE(plans_of_every_rank_of_a_run_on_several_ranks_pass) {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    Case c = seed % 8 == 0   ? with_nf4(random_case(seed), seed)
             : seed % 8 == 4 ? with_adapters(random_case(seed), seed)
                             : random_case(seed);
    if (seed % 3 == 0) c = on_device(c, seed);
    for (const std::uint32_t zero : {0u, 1u, 2u, 3u}) {
      const Optimizer o = c.run.optimizer;
      if (zero && (o == Optimizer::kMuon || o == Optimizer::kAdafactor || o == Optimizer::kAdamW8bit))
        continue;
      c = on_ranks(c, 2 + seed % 7, zero);
      for (std::uint32_t rank = 1; rank <= c.run.parallel.data; ++rank) {
        c.run.parallel.data_rank = rank;
        holds(c, "rank " + std::to_string(rank) + ", seed " + std::to_string(seed));
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(plans_of_every_rank_of_a_tensor_parallel_run_pass) {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    Case c = seed % 4 == 0 ? with_documents(random_case(seed)) : random_case(seed);
    if (c.run.mode == RunMode::kInference) continue;
    if (c.run.optimizer == Optimizer::kAdamW8bit) c.run.optimizer = Optimizer::kAdafactor;
    const auto tensor = static_cast<std::uint32_t>(2 + seed % 3);
    for (const std::uint32_t zero : {0u, 1u, 2u, 3u})
      for (std::uint32_t rank = 1; rank <= tensor; ++rank)
        for (const bool sequence : {false, true}) {
          if (zero && (c.run.optimizer == Optimizer::kMuon || c.run.optimizer == Optimizer::kAdafactor))
            continue;
          Case ranks = on_tensor_ranks(c, tensor, rank, 1 + (seed + zero) % 3 + (zero > 0), zero);
          const bool adapts = (seed + zero + sequence) % 3 == 0;
          if (adapts) {
            ranks = (seed + rank) % 2 ? with_adapters_outside_layers(std::move(ranks), seed)
                                      : with_adapters(std::move(ranks), seed);
          }
          if ((seed + rank) % 3 == 1) ranks = on_device(std::move(ranks), seed);
          holds(sequence ? with_sequence_parallelism(ranks) : ranks,
                "TP rank " + std::to_string(rank) + ", seed " + std::to_string(seed));
        }
  }
}

BOOST_AUTO_TEST_CASE(plans_of_runs_with_several_documents_per_sequence_pass) {
  for (std::uint64_t seed = 0; seed < 25; ++seed) {
    const Case c = with_documents(random_case(seed));
    holds(c, "seed " + std::to_string(seed));
    for (const char* mode : {"resident", "hybrid", "streamed"})
      holds(on_device(c, seed, mode), std::string(mode) + ", seed " + std::to_string(seed));
  }
}

// A start is an index that the host passes: 4 bytes per token on a device, and nothing on the CPU.
BOOST_AUTO_TEST_CASE(the_starts_of_documents_are_one_more_input) {
  const Case one = small_case(), several = with_documents(one);
  BOOST_TEST(place(several.build()).arena_bytes == place(one.build()).arena_bytes);
  const Program p = on_device(several, 0).build(), without = on_device(one, 0).build();
  const BufferId starts = p.find(role::kStarts);
  BOOST_REQUIRE(starts != kNoBuffer);
  BOOST_TEST(p[starts].bytes() == 4 * several.run.tokens_per_micro_batch());
  BOOST_TEST(p[p.find(role::kFeed)].bytes() - without[without.find(role::kFeed)].bytes() ==
             4 * several.run.tokens_per_step());
  BOOST_TEST(p.buffers.size() == without.buffers.size() + 1);
  for (const Op& o : p.ops) {
    if (o.kind == OpKind::kAttention) BOOST_TEST(o[operand::attention::kStarts] == starts);
    if (o.kind == OpKind::kAttentionBwd) BOOST_TEST(o[operand::attention_bwd::kStarts] == starts);
  }
}

BOOST_AUTO_TEST_CASE(every_combination_of_family_options_passes_under_every_policy) {
  for (std::uint32_t bits = 0; bits < 32; ++bits)
    for (Recompute r : {Recompute::kNone, Recompute::kSelective, Recompute::kFull})
      for (RunMode mode : {RunMode::kFull, RunMode::kInference}) {
        Case c = small_case();
        ModelSpec& m = c.model;
        m.tied = bits & 1, m.qkv_bias = bits & 2, m.o_bias = bits & 4, m.mlp_bias = bits & 8,
        m.qk_norm = bits & 16;
        c.run.recompute = r, c.run.mode = mode;
        holds(c, "options " + std::to_string(bits));
      }
}

BOOST_AUTO_TEST_CASE(plans_of_all_preset_models_pass) {
  for (const ModelSpec& m : model_presets()) {
    Case c = small_case();
    c.model = m, c.run.seq_len = 512, c.run.recompute = Recompute::kFull;
    holds(c, m.name);
  }
}

BOOST_AUTO_TEST_SUITE_END()
