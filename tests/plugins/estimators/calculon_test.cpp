// The memory model compared with Calculon's results: its 18 validation runs to the byte, 60 random runs of
// every feature, the worked example of its note, and general properties. Report and notes:
// calculon_report_test.cpp.
#include <boost/test/unit_test.hpp>
#include <cmath>

#include "core/base/error.hpp"
#include "plugins/estimators/calculon/closed_form.hpp"
#include "tests/plugins/estimators/calculon_golden.hpp"

using namespace trainhost;
using namespace trainhost::calculon;

namespace {

/// `ours` is the source's value rounded up; each of `parts` summands may have been rounded.
void agrees(const Case& c, const char* what, std::uint64_t ours, double source, double parts) {
  const double up = double(ours) - source;
  // 1e-3: the source's own floats (11660165119.999998 for a product that is whole).
  BOOST_TEST((up > -1e-3 && up < parts - 1e-3),
             c.name << " " << what << ": " << ours << ", Calculon " << std::llround(source));
}

void compare(const Case& c) {
  const Sizes s = sizes(c.application, c.execution);
  agrees(c, "weight_space", s.weights.all, c.out.weight_space, 1);
  agrees(c, "act_space", s.activations.all, c.out.act_space, 1);
  agrees(c, "act_checkpoint_size", s.checkpoints.all, c.out.act_checkpoint_size, 1);
  agrees(c, "act_grad_space", s.activation_gradients, c.out.act_grad_space, 1);
  agrees(c, "weight_grad_space", s.gradients.all, c.out.weight_grad_space, 1);
  agrees(c, "optimizer_space", s.optimizer_space(), c.out.optimizer_space, 1);
  agrees(c, "tier 1", s.tier1(), c.out.tier1, 4);
  agrees(c, "tier 2", s.tier2(), c.out.tier2, 4);
}

std::uint64_t tier1(Application a, const Execution& e, std::uint64_t seq) {
  a.seq_size = seq;
  return sizes(a, e).tier1();
}

/// Message of the error that sizes() throws, without the hint; "" if it does not throw.
std::string refusal(const Application& a, const Execution& e) {
  try {
    sizes(a, e);
  } catch (const Error& error) {
    BOOST_TEST((error.code() == Exit::kUsage));
    return error.what();
  }
  return "";
}

const Application kSmall{64, 256, 32, 8, 8, 12};

}  // namespace

BOOST_AUTO_TEST_SUITE(calculon_model)

BOOST_AUTO_TEST_CASE(the_18_validation_runs_are_exact) {
  int runs = 0;
  for (const Case& c : kGolden) {
    const Sizes s = sizes(c.application, c.execution);
    const auto equal = [&](std::uint64_t ours, double source) {
      BOOST_TEST(ours == std::uint64_t(std::llround(source)), c.name);
    };
    equal(s.weights.all, c.out.weight_space);
    equal(s.activations.all, c.out.act_space);
    equal(s.checkpoints.all, c.out.act_checkpoint_size);
    equal(s.activation_gradients, c.out.act_grad_space);
    equal(s.gradients.all, c.out.weight_grad_space);
    equal(s.optimizer_space(), c.out.optimizer_space);
    equal(s.tier1(), c.out.tier1);
    equal(s.tier2(), c.out.tier2);
    ++runs;
  }
  BOOST_TEST(runs == 18);
}

BOOST_AUTO_TEST_CASE(settings_outside_the_validation_runs_agree_too) {
  int offloads = 0, sharded = 0, inference = 0, overlapped = 0, multiquery = 0;
  for (const Case& c : kUpstream) {
    compare(c);
    const Execution& e = c.execution;
    offloads += e.weight_offload || e.activations_offload || e.optimizer_offload;
    sharded += e.optimizer_sharding, inference += !e.training, overlapped += e.overlap != Overlap::kNone;
    multiquery += e.multiquery;
  }
  BOOST_TEST((offloads >= 10 && sharded >= 10 && inference >= 5 && overlapped >= 10 && multiquery >= 10));
}

BOOST_AUTO_TEST_CASE(the_worked_example_of_the_note_is_reproduced) {  // 001-params to 001-static
  const std::uint64_t elements = linear_elements(1024, 4096);
  BOOST_TEST(elements == 4194304u);
  BOOST_TEST(weight_bytes(elements, 2) == 8388608u);
  BOOST_TEST(moment_bytes(elements) == 33554432u);
  BOOST_TEST(master_bytes(elements, 2) == 16777216u);
  BOOST_TEST(optimizer_bytes(elements, 2) == 50331648u);
  BOOST_TEST(weight_bytes(elements, 2) + optimizer_bytes(elements, 2) == 58720256u);
  BOOST_TEST(58720256.0 / (1 << 20) == 56.0);  // the note's "56 MB" are MiB
  BOOST_TEST(master_bytes(elements, 4) == 0u);
}

BOOST_AUTO_TEST_CASE(a_block_has_the_weights_counted_by_hand) {
  Execution e;
  BOOST_TEST(block(kSmall, e).weights == 4u * 64 * 64 + 2u * 64 * 256 + 2 * 2 * 64);
  e.tensor_par = 4;  // norms stay whole
  BOOST_TEST(block(kSmall, e).weights == (4u * 64 * 64 + 2u * 64 * 256) / 4 + 2 * 2 * 64);
  e.multiquery = true;
  BOOST_TEST(block(kSmall, e).weights == (2u * 64 * 64 + 2u * 64 * 256) / 4 + 2 * 64 * 8 + 2 * 2 * 64);
}

// Tier 1 is c0 + c1*S + c2*S^2, and c2*S^2 is the memory of the scores: two independent computations.
BOOST_AUTO_TEST_CASE(without_scores_nothing_is_quadratic_in_the_sequence) {
  for (Activation recompute : {Activation::kNone, Activation::kAttnOnly, Activation::kFull})
    for (bool training : {true, false}) {
      if (!training && recompute != Activation::kNone) continue;
      Execution e;
      e.tensor_par = 2, e.pipeline_par = 3, e.microbatches = 5, e.recompute = recompute,
      e.training = training;
      const std::uint64_t S = 32;
      const std::uint64_t square =
          (tier1(kSmall, e, 3 * S) + tier1(kSmall, e, S) - 2 * tier1(kSmall, e, 2 * S)) / 2;
      Execution flash = e;
      flash.scores = false;
      BOOST_TEST(tier1(kSmall, e, S) - tier1(kSmall, flash, S) == square);
      BOOST_TEST(square > 0u);
    }
}

BOOST_AUTO_TEST_CASE(more_never_needs_less_and_sharding_never_needs_more) {
  for (const Case& c : kUpstream) {
    const std::uint64_t before = sizes(c.application, c.execution).tier1();
    Application more = c.application;
    more.seq_size *= 2, more.feedforward *= 2;
    BOOST_TEST(sizes(more, c.execution).tier1() >= before, c.name);
    Execution sharded = c.execution;
    if (!sharded.training) continue;
    sharded.optimizer_sharding = true, sharded.data_par *= 2;
    BOOST_TEST(sizes(c.application, sharded).tier1() <= before, c.name);
  }
}

BOOST_AUTO_TEST_CASE(offload_moves_all_and_keeps_two_blocks_in_tier_1) {
  Execution e;
  const Sizes here = sizes(kSmall, e);
  e.weight_offload = e.optimizer_offload = true;
  const Sizes away = sizes(kSmall, e);
  BOOST_TEST(away.weights.tier1 == 2 * here.block.weights * 2);
  BOOST_TEST(away.weights.tier2 == here.weights.all);
  BOOST_TEST(away.master.tier1 + away.moments.tier1 == 2 * 12 * here.block.weights);
  BOOST_TEST(away.gradients.tier1 == 6 * here.block.weights);
  BOOST_TEST(away.tier1() < here.tier1());
  BOOST_TEST(here.tier2() == 0u);
}

BOOST_AUTO_TEST_CASE(the_embedding_of_the_note_has_weights_and_optimizer_state) {
  Execution e;
  e.data_par = 4, e.optimizer_sharding = true;
  const EmbeddingSizes s = embedding_sizes({100, 64, 2}, e);
  BOOST_TEST(s.weights.all == 100u * 64 * 2 * 2);
  BOOST_TEST(s.master.all == 100u * 64 * 2 * 4 / 4);
  BOOST_TEST(s.moments.all == 100u * 64 * 2 * 8 / 4);
  BOOST_TEST(s.tier1() == s.weights.all + s.master.all + s.moments.all);
  e.training = false, e.optimizer_sharding = false;
  BOOST_TEST(embedding_sizes({100, 64, 2}, e).tier1() == 100u * 64 * 2 * 2);
}

BOOST_AUTO_TEST_CASE(incompatible_settings_are_named) {
  Execution e;
  e.tensor_par = 3;
  BOOST_TEST(refusal(kSmall, e).starts_with("parallel.tensor = 3 does not divide the hidden size 64"));
  e = {}, e.pipeline_par = 13;
  BOOST_TEST(refusal(kSmall, e) == "parallel.pipeline = 13: the model has 12 layers");
  e = {}, e.pipeline_interleaving = 2;
  BOOST_TEST(refusal(kSmall, e) == "parallel.interleave = 2 needs parallel.pipeline above 1");
  e = {}, e.pipeline_par = 4, e.pipeline_interleaving = 2;
  BOOST_TEST(refusal(kSmall, e) == "parallel.interleave = 2 does not divide the 3 layers of a pipeline rank");
  e = {}, e.pipeline_par = 6, e.weight_offload = true;
  BOOST_TEST(refusal(kSmall, e).ends_with("this run has 2"));
  e = {}, e.seq_par_ag_redo = true;
  BOOST_TEST(refusal(kSmall, e).starts_with("plugin.calculon.seq_par_ag_redo"));
  e.comm = Comm::kRsAg, e.recompute = Activation::kFull;
  BOOST_TEST(refusal(kSmall, e).ends_with("has no effect with train.recompute = \"full\""));
  e = {}, e.overlap = Overlap::kRing;
  BOOST_TEST(refusal(kSmall, e).starts_with("plugin.calculon.tensor_par_overlap"));
  e = {}, e.optimizer_sharding = true;
  BOOST_TEST(refusal(kSmall, e) == "a sharded optimizer needs parallel.data above 1");
}

BOOST_AUTO_TEST_CASE(sizes_above_63_bits_are_too_large) {
  const std::uint64_t big = 1u << 31;
  BOOST_TEST(refusal({big, big, big, 8, big / 8, 12}, {}).find("too large") != std::string::npos);
  BOOST_CHECK_THROW(share(INT64_MAX, 3, 2), Error);
  BOOST_TEST(share(INT64_MAX, 6, 6) == std::uint64_t(INT64_MAX));
  BOOST_TEST(share(7, 1, 2) == 4u);
}

BOOST_AUTO_TEST_SUITE_END()
