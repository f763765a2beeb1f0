// Level 6 for trainers: state after load(), save(), a resume and a failed step, compared bit by bit. Bits,
// not tolerances: both runs do the same arithmetic in the same order, so any difference is a difference of
// state. Every run here starts from seed 7 and takes batches of seed + step, as trained() does.
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

void check_last_load_wins(WatchedPlugin& plugin) {
  Started started(plugin);
  plugin.require_device();
  WatchedInstance i(plugin, plugin.sample());
  i.create_and_init();
  // Both loads are of the same shapes; `own` is what init() made.
  const AllWeights own = weights_of(i), made = random_weights(own, plugin.seed());
  load_weights(i, own);
  load_weights(i, made);
  expect_same(weights_of(i), made, "after two load() of each tensor the weights are not those of the second");
}

void check_load_in_any_order(WatchedPlugin& plugin) {
  Started started(plugin);
  plugin.require_device();
  WatchedInstance i(plugin, plugin.sample());
  i.create_and_init();
  const AllWeights made = random_weights(weights_of(i), plugin.seed());
  for (const auto& [name, w] : made) {
    const std::uint64_t all = w.values.size(), third = all / 3;
    // Last third, first third, middle third: a trainer that ignores the offset fails in this order.
    const std::uint64_t cuts[3][2] = {{2 * third, all - 2 * third}, {0, third}, {third, third}};
    for (const auto& [first, count] : cuts) {
      // A tensor of one or two elements has empty thirds.
      if (count == 0) continue;
      const CallResult a = load_piece(i, name, w, first, count);
      expect(a.ok(), "load() of elements {} to {} of {} returned {}", first, first + count, escaped(name),
             a.text());
    }
  }
  expect_same(weights_of(i), made, "weights that were loaded in pieces out of order");
}

void check_init_after_partial_load(WatchedPlugin& plugin) {
  Started started(plugin);
  plugin.require_device();
  WatchedInstance whole(plugin, plugin.sample());
  whole.create_and_init(7);
  // What the seed alone gives; one tensor is then replaced by the loaded one.
  AllWeights expected = weights_of(whole);
  const AllWeights made = random_weights(expected, plugin.seed());
  const std::string name = made.begin()->first;
  WatchedInstance part(plugin, plugin.sample());
  // load() between create() and init(), where a host loads a checkpoint.
  const CallResult created = part.create();
  expect(created.ok() && part.created(), "create() returned {}", created.text());
  load_tensor(part, name, made.at(name));
  const CallResult begun = part.init(7);
  expect(begun.ok(), "init() after load() of {} alone returned {}", escaped(name), begun.text());
  expected[name] = made.at(name);
  expect_same(weights_of(part), expected, "load() of one tensor and init() of the rest by the same seed");
}

// The reference for most checks: an undisturbed run.
AllWeights trained(WatchedPlugin& plugin, int steps) {
  WatchedInstance i(plugin, plugin.sample());
  i.create_and_init();
  for (int n = 0; n < steps; ++n) step_or_throw(i, make_batch(i.sample(), plugin.seed() + n), 1e-2, n);
  return weights_of(i);
}

void check_training_repeats(WatchedPlugin& plugin) {
  Started started(plugin);
  plugin.require_device();
  expect_same(trained(plugin, 4), trained(plugin, 4), "two runs of the same seed, tokens and steps");
}

void check_save_keeps_state(WatchedPlugin& plugin) {
  Started started(plugin);
  plugin.require_device();
  const AllWeights expected = trained(plugin, 4);
  WatchedInstance i(plugin, plugin.sample());
  i.create_and_init();
  for (int n = 0; n < 4; ++n) {
    step_or_throw(i, make_batch(i.sample(), plugin.seed() + n), 1e-2, n);
    const AllWeights once = weights_of(i);
    // save() may move data between devices; the second call sees what the first left.
    expect_same(weights_of(i), once, "save() twice");
    // Moments too (Checkpoint), after every step.
    checkpoint_of(i);
  }
  expect_same(weights_of(i), expected, "a run that saves after each step, and one that does not");
}

void check_resume(WatchedPlugin& plugin) {
  Started started(plugin);
  plugin.require_device();
  const AllWeights expected = trained(plugin, 4);
  // Destroyed before the second is created: nothing can pass from one to the other but the checkpoint.
  WatchedInstance from(plugin, plugin.sample());
  from.create_and_init();
  for (int n = 0; n < 2; ++n) step_or_throw(from, make_batch(from.sample(), plugin.seed() + n), 1e-2, n);
  const Checkpoint saved = checkpoint_of(from);
  from.destroy();
  WatchedInstance to(plugin, plugin.sample());
  restore(to, saved);
  // The step numbers continue: bias correction depends on them.
  for (int n = 2; n < 4; ++n) step_or_throw(to, make_batch(to.sample(), plugin.seed() + n), 1e-2, n);
  expect_same(weights_of(to), expected, "a resumed run and an uninterrupted run");
}

/// The tensor that every loss goes through.
std::string most_used_tensor(const AllWeights& all) {
  constexpr const char* kEmbedding = "model.embed_tokens.weight";
  return all.count(kEmbedding) ? kEmbedding : all.begin()->first;
}

/// An instance with weights that are no numbers.
struct NanWeightRun {
  explicit NanWeightRun(WatchedPlugin& plugin) : instance(plugin, plugin.sample()) {
    instance.create_and_init();
    good = weights_of(instance), bad = good;
    name = most_used_tensor(good);
    // The whole tensor: one NaN in a row that no token uses would have no effect.
    bad[name].values.assign(bad[name].values.size(), std::numeric_limits<float>::quiet_NaN());
    const CallResult a = load_piece(instance, name, bad[name], 0, bad[name].values.size());
    // Some trainers check values in load(), which the interface allows.
    if (!a.ok()) throw CheckSkipped("it does not accept weights that are not finite: " + a.text());
    answer = instance.step(make_batch(instance.sample(), plugin.seed()), 1e-2, 0);
  }
  WatchedInstance instance;
  AllWeights good, bad;
  std::string name;
  StepCallResult answer;
};

void check_nonfinite_status(WatchedPlugin& plugin) {
  Started started(plugin);
  plugin.require_device();
  const NanWeightRun s(plugin);
  expect(s.answer.status == TH_E_NONFINITE,
         "step() with a NaN embedding returned {} and the loss {}; TH_E_NONFINITE was expected",
         s.answer.text(), s.answer.out.loss);
}

void check_nonfinite_keeps_weights(WatchedPlugin& plugin) {
  Started started(plugin);
  plugin.require_device();
  // After the NaN step and with good weights restored, the run must continue as if nothing had happened: the
  // moments, too, are those from before.
  const AllWeights expected = trained(plugin, 4);
  NanWeightRun s(plugin);
  expect_same(weights_of(s.instance), s.bad, "a step that returned TH_E_NONFINITE changed the weights");
  load_tensor(s.instance, s.name, s.good.at(s.name));
  for (int n = 0; n < 4; ++n)
    step_or_throw(s.instance, make_batch(s.instance.sample(), plugin.seed() + n), 1e-2, n);
  expect_same(weights_of(s.instance), expected,
              "a run after TH_E_NONFINITE and restored weights, and an undisturbed run");
}

void check_transfer_counters(WatchedPlugin& plugin) {
  Started started(plugin);
  plugin.require_device();
  WatchedInstance i(plugin, plugin.sample());
  if (!i.table().counters) throw CheckSkipped("it has no counters()");
  i.create_and_init();
  // Three intervals between four readings: the first may include one-time copies and is not compared.
  th_counters c[4]{};
  for (std::uint64_t n = 0; n < 4; ++n) {
    step_or_throw(i, make_batch(i.sample(), plugin.seed()), 1e-3, n);
    const CallResult a = i.counters(c[n]);
    expect(a.ok(), "counters() returned {}", a.text());
  }
  const auto pair = [&](const char* name, std::uint64_t th_counters::*bytes,
                        std::uint64_t th_counters::*count) {
    expect((c[3].*bytes == 0) == (c[3].*count == 0),
           "counters() has {} copies of {} and {} bytes; both or neither were expected", c[3].*count, name,
           c[3].*bytes);
    const std::uint64_t one = c[2].*bytes - c[1].*bytes, other = c[3].*bytes - c[2].*bytes;
    expect(one == other, "two equal steps transferred {} and {} bytes of {}; the same was expected", one,
           other, name);
    // All transfers of this run are of f32.
    expect(one % sizeof(float) == 0,
           "a step transferred {} bytes of {}, which is not a whole number of f32 elements", one, name);
  };
  pair("activations to the device (h2d)", &th_counters::h2d_bytes, &th_counters::h2d_count);
  pair("activations from the device (d2h)", &th_counters::d2h_bytes, &th_counters::d2h_count);
  pair("small results (sync)", &th_counters::sync_bytes, &th_counters::sync_count);
  pair("weights and gradients (stream)", &th_counters::stream_bytes, &th_counters::stream_count);
}

}  // namespace

// Prerequisites go from load() by itself to whole runs: a resume that fails is explained by the first of the
// earlier checks that failed.
std::vector<Check> trainer_state_checks() {
  return {
      {"T-061",
       6,
       "The last load() of a tensor wins",
       "A base model is loaded first, and a fine-tuned part replaces some of its tensors. Values are "
       "replaced, not added. Fix: overwrite the elements of the piece.",
       {"T-030"},
       check_last_load_wins},
      {"T-060",
       6,
       "Pieces of a tensor can be loaded in any order",
       "Several threads read large tensors in pieces. th_tensor.first is the offset of each piece. Fix: "
       "write each piece at its offset th_tensor.first.",
       {"T-061"},
       check_load_in_any_order},
      {"T-062",
       6,
       "init() fills only the tensors that load() did not set",
       "Some checkpoints lack a tensor. Loaded tensors stay as they are; the others get the values that "
       "the seed alone would give them. Fix: remember for each element or tensor whether load() has set "
       "it.",
       {"T-029", "T-061"},
       check_init_after_partial_load},
      {"T-057",
       6,
       "The same run gives the same bits",
       "Seed, tokens and steps determine a run. If sums run in a different order each time, failures "
       "cannot be reproduced. Fix: add in an order that depends on shapes alone, not on threads or "
       "atomics.",
       {"T-029"},
       check_training_repeats},
      {"T-058",
       6,
       "save() changes nothing",
       "A run that saves every hour must end with the same bits as one that never saves. Fix: save from "
       "the buffers without changing them; a copy in another type needs memory of its own.",
       {"T-057"},
       check_save_keeps_state},
      {"T-053",
       6,
       "A resumed run equals an uninterrupted run bit by bit",
       "Weights and moments are the whole state, and step_index comes from the host. A trainer that "
       "counts steps itself, or does not save its moments, diverges after a resume. Fix: save both "
       "moments, and use step_index for bias corrections.",
       {"T-057", "T-058", "T-030", "T-018"},
       check_resume},
      {"T-056",
       6,
       "A loss that is not finite gives TH_E_NONFINITE",
       "Applying an update that contains a NaN would put NaN into every weight. Fix: test loss and "
       "gradient norm with isfinite() before the update, and return TH_E_NONFINITE.",
       {"T-022", "T-061"},
       check_nonfinite_status},
      {"T-059",
       6,
       "A step that is not finite changes nothing",
       "Hosts skip the batch and continue: weights and moments must be unchanged, and the instance must "
       "still be ready. Fix: test loss and gradient norm before you change weights or moments.",
       {"T-056", "T-058"},
       check_nonfinite_keeps_weights},
      {"T-063",
       6,
       "Counters agree with what a step transfers",
       "`verify` compares the counted bytes with the plan: copies have bytes, equal steps transfer equal "
       "bytes, and transfers consist of whole elements. Fix: count each copy where it is enqueued, with "
       "the bytes of its elements.",
       {"T-045"},
       check_transfer_counters},
  };
}

}  // namespace trainhost::plugin_validator
