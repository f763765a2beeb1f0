// Level 6 for trainers: what load(), save(), a resume and a failed step leave behind, to the bit.
#include <cmath>
#include <limits>

#include "core/base/text.hpp"
#include "core/plugin_validator/levels.hpp"
#include "core/plugin_validator/trainer_weights.hpp"

namespace trainhost::plugin_validator {
namespace {

void expect_same(const AllWeights& a, const AllWeights& b, const char* sentence) {
  const std::string where = first_difference(a, b);
  expect(where.empty(), "{}: {} differs; the same bits were expected", sentence, where);
}

void last_load_counts(Bench& b) {
  Started started(b);
  b.need_device();
  Instance i(b, b.sample());
  i.begin();
  const AllWeights own = weights_of(i), made = made_weights(own, b.seed());
  load_weights(i, own);
  load_weights(i, made);
  expect_same(weights_of(i), made, "weights that were loaded twice are not those that came last");
}

void pieces_in_any_order(Bench& b) {
  Started started(b);
  b.need_device();
  Instance i(b, b.sample());
  i.begin();
  const AllWeights made = made_weights(weights_of(i), b.seed());
  for (const auto& [name, w] : made) {
    const std::uint64_t all = w.values.size(), third = all / 3;
    const std::uint64_t cuts[3][2] = {{2 * third, all - 2 * third}, {0, third}, {third, third}};
    for (const auto& [first, count] : cuts) {
      if (count == 0) continue;
      const Answer a = load_piece(i, name, w, first, count);
      expect(a.ok(), "load() of elements {} to {} of {} returned {}", first, first + count, escaped(name),
             a.text());
    }
  }
  expect_same(weights_of(i), made, "weights that were loaded in pieces out of order came out different");
}

void init_fills_the_rest(Bench& b) {
  Started started(b);
  b.need_device();
  Instance whole(b, b.sample());
  whole.begin(7);
  AllWeights expected = weights_of(whole);
  const AllWeights made = made_weights(expected, b.seed());
  const std::string name = made.begin()->first;
  Instance part(b, b.sample());
  const Answer created = part.create();
  expect(created.ok() && part.alive(), "create() returned {}", created.text());
  load_tensor(part, name, made.at(name));
  const Answer begun = part.init(7);
  expect(begun.ok(), "init() after load() of {} alone returned {}", escaped(name), begun.text());
  expected[name] = made.at(name);
  expect_same(weights_of(part), expected, "load() of one tensor and init() of the rest by the same seed");
}

AllWeights trained(Bench& b, int steps) {
  Instance i(b, b.sample());
  i.begin();
  for (int n = 0; n < steps; ++n) must_step(i, make_batch(i.sample(), b.seed() + n), 1e-2, n);
  return weights_of(i);
}

void repeats(Bench& b) {
  Started started(b);
  b.need_device();
  expect_same(trained(b, 4), trained(b, 4), "two runs of the same seed, tokens and steps");
}

void saving_changes_nothing(Bench& b) {
  Started started(b);
  b.need_device();
  const AllWeights expected = trained(b, 4);
  Instance i(b, b.sample());
  i.begin();
  for (int n = 0; n < 4; ++n) {
    must_step(i, make_batch(i.sample(), b.seed() + n), 1e-2, n);
    const AllWeights once = weights_of(i);
    expect_same(weights_of(i), once, "save() twice");
    checkpoint_of(i);
  }
  expect_same(weights_of(i), expected, "a run that saved after each step, and one that did not");
}

void resumes_to_the_bit(Bench& b) {
  Started started(b);
  b.need_device();
  const AllWeights expected = trained(b, 4);
  Instance from(b, b.sample());
  from.begin();
  for (int n = 0; n < 2; ++n) must_step(from, make_batch(from.sample(), b.seed() + n), 1e-2, n);
  const Checkpoint saved = checkpoint_of(from);
  from.destroy();
  Instance to(b, b.sample());
  revive(to, saved);
  for (int n = 2; n < 4; ++n) must_step(to, make_batch(to.sample(), b.seed() + n), 1e-2, n);
  expect_same(weights_of(to), expected,
              "a run that was saved, loaded and went on, and one that went through");
}

/// The tensor that every loss goes through.
std::string telling(const AllWeights& all) {
  constexpr const char* kEmbedding = "model.embed_tokens.weight";
  return all.count(kEmbedding) ? kEmbedding : all.begin()->first;
}

/// An instance with weights that are no numbers.
struct Spoiled {
  explicit Spoiled(Bench& b) : instance(b, b.sample()) {
    instance.begin();
    good = weights_of(instance), bad = good;
    name = telling(good);
    bad[name].values.assign(bad[name].values.size(), std::numeric_limits<float>::quiet_NaN());
    const Answer a = load_piece(instance, name, bad[name], 0, bad[name].values.size());
    if (!a.ok()) throw NotHere("it takes no weights that are not finite: " + a.text());
    answer = instance.step(make_batch(instance.sample(), b.seed()), 1e-2, 0);
  }
  Instance instance;
  AllWeights good, bad;
  std::string name;
  StepAnswer answer;
};

void says_not_finite(Bench& b) {
  Started started(b);
  b.need_device();
  const Spoiled s(b);
  expect(s.answer.status == TH_E_NONFINITE,
         "step() with an embedding that is no number returned {} and the loss {}; "
         "TH_E_NONFINITE was expected",
         s.answer.text(), s.answer.out.loss);
}

void not_finite_changes_nothing(Bench& b) {
  Started started(b);
  b.need_device();
  const AllWeights expected = trained(b, 4);
  Spoiled s(b);
  expect_same(weights_of(s.instance), s.bad, "a step that returned TH_E_NONFINITE changed the weights");
  load_tensor(s.instance, s.name, s.good.at(s.name));
  for (int n = 0; n < 4; ++n) must_step(s.instance, make_batch(s.instance.sample(), b.seed() + n), 1e-2, n);
  expect_same(weights_of(s.instance), expected,
              "a run after TH_E_NONFINITE and mended weights, and one without");
}

void counts_go_with_bytes(Bench& b) {
  Started started(b);
  b.need_device();
  Instance i(b, b.sample());
  if (!i.table().counters) throw NotHere("it has no counters()");
  i.begin();
  th_counters c[4]{};
  for (std::uint64_t n = 0; n < 4; ++n) {
    must_step(i, make_batch(i.sample(), b.seed()), 1e-3, n);
    const Answer a = i.counters(c[n]);
    expect(a.ok(), "counters() returned {}", a.text());
  }
  const auto pair = [&](const char* name, std::uint64_t th_counters::*bytes,
                        std::uint64_t th_counters::*count) {
    expect((c[3].*bytes == 0) == (c[3].*count == 0),
           "counters() has {} copies of {} and {} bytes; both or neither were "
           "expected",
           c[3].*count, name, c[3].*bytes);
    const std::uint64_t one = c[2].*bytes - c[1].*bytes, other = c[3].*bytes - c[2].*bytes;
    expect(one == other, "two equal steps moved {} and {} bytes of {}; the same was expected", one, other,
           name);
    expect(one % sizeof(float) == 0, "a step moved {} bytes of {}, which are no whole f32 elements", one,
           name);
  };
  pair("activations to the device (h2d)", &th_counters::h2d_bytes, &th_counters::h2d_count);
  pair("activations from the device (d2h)", &th_counters::d2h_bytes, &th_counters::d2h_count);
  pair("small results (sync)", &th_counters::sync_bytes, &th_counters::sync_count);
  pair("weights and gradients (stream)", &th_counters::stream_bytes, &th_counters::stream_count);
}

}  // namespace

std::vector<Check> trainer_state_checks() {
  return {
      {"T-061",
       6,
       "Of a tensor that comes twice the last counts",
       "A base model is loaded, then a fine-tuned part over it. Nothing is added up, and nothing of the "
       "first stays.",
       {"T-030"},
       last_load_counts},
      {"T-060",
       6,
       "Pieces of a tensor come in any order",
       "Large tensors are read in pieces, by several threads: th_tensor.first says where each belongs.",
       {"T-061"},
       pieces_in_any_order},
      {"T-062",
       6,
       "init() fills what load() left out, and nothing else",
       "Some checkpoints lack a tensor. What was loaded stays; the others become what the seed alone would "
       "have made them.",
       {"T-029", "T-061"},
       init_fills_the_rest},
      {"T-057",
       6,
       "The same run gives the same bits",
       "Seed, tokens and steps decide a run. Sums in another order each time make failures that nobody can "
       "repeat.",
       {"T-029"},
       repeats},
      {"T-058",
       6,
       "save() changes nothing",
       "A run that saves every hour must end with the bits of one that never does.",
       {"T-057"},
       saving_changes_nothing},
      {"T-053",
       6,
       "A resumed run gives the bits of one that went through",
       "Weights and moments are the whole state, and step_index comes from the host: a trainer that counts "
       "steps itself, "
       "or keeps moments out of save(), goes another way after a resume.",
       {"T-057", "T-058", "T-030", "T-018"},
       resumes_to_the_bit},
      {"T-056",
       6,
       "A loss that is not finite is TH_E_NONFINITE",
       "One NaN must stop an update: applied, it is in every weight.",
       {"T-022", "T-061"},
       says_not_finite},
      {"T-059",
       6,
       "A step that is not finite changes nothing",
       "Hosts skip the batch and go on: weights and moments are those from before, and the instance is still "
       "ready.",
       {"T-056", "T-058"},
       not_finite_changes_nothing},
      {"T-063",
       6,
       "Counters agree with what a step moves",
       "`verify` holds counted bytes against the plan: copies have bytes, equal steps move equal bytes, and "
       "what moves are "
       "whole elements.",
       {"T-045"},
       counts_go_with_bytes},
  };
}

}  // namespace trainhost::plugin_validator
