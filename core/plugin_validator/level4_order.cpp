// Level 4 for instances: calls in the wrong order, invalid tensors and batches; a rejected call does not
// change the instance. State is compared through save(): it is the only view of the weights that the
// interface gives.
#include <cmath>

#include "core/base/text.hpp"
#include "core/plugin_validator/levels.hpp"
#include "core/plugin_validator/watched_instance.hpp"

namespace trainhost::plugin_validator {
namespace {

/// All bytes that save() sent, in order.
/// Order and cut of the pieces must not change between two calls of save(), which T-027 and others test.
std::vector<unsigned char> all_bytes(const SaveResult& a) {
  std::vector<unsigned char> all;
  for (const ReceivedPiece& p : a.pieces) all.insert(all.end(), p.bytes.begin(), p.bytes.end());
  return all;
}

void check_calls_before_init(WatchedPlugin& plugin) {
  Started started(plugin);
  plugin.require_device();
  WatchedInstance i(plugin, plugin.sample());
  const CallResult made = i.create();
  expect(made.ok() && i.created(), "create() on a tiny model returned {}", made.text());
  // `i` is destroyed by its destructor in every case, so a check may throw at any point.
  const StepCallResult s = i.step(make_batch(i.sample(), plugin.seed()), 1e-3, 0);
  expect(s.status == TH_E_STATE, "step() before init() returned {}; TH_E_STATE was expected", s.text());
  const SaveResult v = i.save();
  expect(v.status == TH_E_STATE, "save() before init() returned {}; TH_E_STATE was expected", v.text());
}

/// init() is allowed in state {created}, next() in {ready+}. In other states they fail and change nothing.
void check_second_init(WatchedPlugin& plugin) {
  Started started(plugin);
  plugin.require_device();
  WatchedInstance i(plugin, plugin.sample());
  const CallResult made = i.create();
  expect(made.ok() && i.created(), "create() on a tiny model returned {}", made.text());
  // The generate interface is optional.
  if (const auto* g = static_cast<const th_generate*>(plugin.library().interface(TH_GENERATE_ID));
      g && g->next) {
    std::vector<float> logits(i.sample().model.vocab);
    const CallResult a =
        i.call("next", [&](auto* raw, auto* e) { return g->next(raw, 0, 0, logits.data(), e); });
    expect(a.status == TH_E_STATE, "next() before init() returned {}; TH_E_STATE was expected", a.text());
  }
  // Another seed in the second call: if it had an effect, the weights would differ.
  const CallResult first = i.init(7);
  expect(first.ok(), "init() on a tiny model returned {}", first.text());
  const std::vector<unsigned char> before = all_bytes(i.save());
  const CallResult again = i.init(8);
  expect(again.status == TH_E_STATE, "a second init() returned {}; TH_E_STATE was expected", again.text());
  expect(all_bytes(i.save()) == before, "a second init() changed the weights; no change was expected");
}

void check_load_arguments(WatchedPlugin& plugin) {
  Started started(plugin);
  plugin.require_device();
  WatchedInstance i(plugin, plugin.sample());
  i.create_and_init();
  const SaveResult saved = i.save();
  expect(saved.ok() && !saved.pieces.empty(), "save() on a tiny model returned {}", saved.text());
  // A real piece with one field changed, so that nothing else can be the reason for the rejection.
  const auto load_changed = [&](const char* what, auto change) {
    ReceivedPiece p = saved.pieces.front();
    change(p);
    const CallResult a = i.load(TH_SCOPE_WEIGHTS, p);
    expect(a.status == TH_E_ARG, "load() of {} returned {}; TH_E_ARG was expected", what, a.text());
  };
  load_changed("a tensor that the model does not have", [](ReceivedPiece& p) { p.name = "no.such.tensor"; });
  // The name is right, so only a comparison of the shape finds this.
  load_changed("a tensor of another shape", [](ReceivedPiece& p) { p.head.dim[0] += 1; });
  load_changed("a tensor of an unknown type", [](ReceivedPiece& p) { p.head.dtype = 77; });
  load_changed("a piece outside its tensor", [](ReceivedPiece& p) {
    // One past the last element: the first piece that is outside.
    p.head.first = p.head.dim[0] * (p.head.rank == 2 ? p.head.dim[1] : 1);
  });
}

void check_step_arguments(WatchedPlugin& plugin) {
  Started started(plugin);
  plugin.require_device();
  WatchedInstance i(plugin, plugin.sample());
  i.create_and_init();
  const Batch good = make_batch(i.sample(), plugin.seed());
  // All sequences are valid; only their number is not that of the run.
  Batch wide = make_batch(i.sample(), plugin.seed(), good.sequences + 1);
  StepCallResult a = i.step(wide, 1e-3, 0);
  expect(a.status == TH_E_ARG, "step() with {} sequences in a run of {} returned {}; TH_E_ARG was expected",
         wide.sequences, good.sequences, a.text());
  Batch foreign = good;
  // The first id past the vocabulary: an error by one in the test would accept it.
  foreign.tokens[3] = static_cast<std::int32_t>(i.sample().model.vocab);
  a = i.step(foreign, 1e-3, 0);
  expect(a.status == TH_E_ARG,
         "step() with token {} of a vocabulary of {} returned {}; TH_E_ARG was expected", foreign.tokens[3],
         i.sample().model.vocab, a.text());
  Batch target = good;
  // Not -100, which is the only negative target with a meaning; and past the vocabulary.
  target.targets[2] = static_cast<std::int32_t>(i.sample().model.vocab) + 5;
  a = i.step(target, 1e-3, 0);
  expect(a.status == TH_E_ARG,
         "step() with target {} of a vocabulary of {} returned {}; TH_E_ARG was expected", target.targets[2],
         i.sample().model.vocab, a.text());
}

void check_rejected_step_keeps_weights(WatchedPlugin& plugin) {
  Started started(plugin);
  plugin.require_device();
  WatchedInstance i(plugin, plugin.sample());
  i.create_and_init();
  const std::vector<unsigned char> before = all_bytes(i.save());
  Batch foreign = make_batch(i.sample(), plugin.seed());
  // The last token: a trainer that checks while it computes has done most of the step by then.
  foreign.tokens.back() = -7;
  const StepCallResult a = i.step(foreign, 1e-1, 0);
  expect(!a.ok(), "step() with token -7 returned TH_OK");
  expect(all_bytes(i.save()) == before,
         "step() rejected a batch with {} and changed the weights; no change was expected", a.text());
  // The instance must also be usable: it may not stay in an error state.
  const StepCallResult good = i.step(make_batch(i.sample(), plugin.seed()), 1e-3, 0);
  expect(good.ok(), "step() with a good batch after a rejected one returned {}; TH_OK was expected",
         good.text());
}

void check_unknown_keys(WatchedPlugin& plugin) {
  Started started(plugin);
  plugin.require_device();
  WatchedInstance i(plugin, plugin.sample());
  i.create_and_init();
  if (i.table().info) {
    // info() has no th_error, so WatchedInstance::call() does not apply.
    CheckingHost::CallbacksAllowed allowed(plugin.host());
    const char* text = i.table().info(i.handle(), "no such fact");
    expect(text == nullptr, "info(\"no such fact\") returned '{}'; null was expected",
           text ? escaped(text, 60) : "");
  }
  if (!i.table().metric) return;
  double value = 0;
  const CallResult a = i.call(
      "metric", [&](auto* raw, auto* e) { return i.table().metric(raw, "no such figure", &value, e); });
  expect(a.status == TH_E_ABSENT || a.status == TH_E_UNSUPPORTED,
         "metric(\"no such figure\") returned {}; TH_E_ABSENT or TH_E_UNSUPPORTED was expected", a.text());
}

void check_save_with_failing_sink(WatchedPlugin& plugin) {
  Started started(plugin);
  plugin.require_device();
  WatchedInstance i(plugin, plugin.sample());
  i.create_and_init();
  // At each of the first tensors, with a code that save() does not return by itself.
  for (std::size_t n = 1; n <= 3; ++n) {
    const SaveResult a = i.save(TH_SCOPE_WEIGHTS, n);
    expect(
        a.status == TH_E_CANCELLED,
        "the sink returned TH_E_CANCELLED for piece {} and save() returned {}; the sink's code was expected",
        n, a.text());
    expect(a.calls_after_failure <= 1,
           "save() sent {} more tensors after the sink had failed at piece {}; none were expected",
           a.calls_after_failure - 1, n);
  }
}

void check_unknown_scope(WatchedPlugin& plugin) {
  Started started(plugin);
  plugin.require_device();
  WatchedInstance i(plugin, plugin.sample());
  i.create_and_init();
  const SaveResult a = i.save(99);
  expect(a.status == TH_E_ARG || a.status == TH_E_UNSUPPORTED,
         "save() of scope 99 returned {}; TH_E_ARG or TH_E_UNSUPPORTED was expected", a.text());
}

}  // namespace

std::vector<Check> trainer_order_checks() {
  return {
      {"T-012",
       4,
       "step() and save() before init() return TH_E_STATE",
       "Training on uninitialised weights gives numbers that look like a bad learning rate. Fix: keep the "
       "state of the instance, and test it at the start of each function.",
       {"C-049", "C-029"},
       check_calls_before_init},
      {"T-019",
       4,
       "init() succeeds only once, and next() fails before it",
       "A host that resumes a run loads weights and calls init() for the missing ones; a second init() "
       "that starts over would lose them. Each function has a tag that lists the states in which it may "
       "be called; in all other states it returns TH_E_STATE. Fix: keep the state of the instance, and "
       "return TH_E_STATE from init() after the first success and from next() before it.",
       {"T-012"},
       check_second_init},
      {"T-013",
       4,
       "load() rejects tensors that the model does not have",
       "Loading a checkpoint of another model must stop at the first tensor whose name, shape or type "
       "does not match. Fix: compare name, rank, dimensions, type and range with those of the tensor "
       "before you copy, and return TH_E_ARG.",
       {"C-049", "C-029"},
       check_load_arguments},
      {"T-014",
       4,
       "step() rejects batches that do not match the run",
       "A token id beyond the vocabulary reads outside the embedding; a batch of another size reads "
       "outside the batch. Fix: compare batch, seq and every token id with the run before the first "
       "kernel, and return TH_E_ARG.",
       {"C-049", "C-029"},
       check_step_arguments},
      {"T-015",
       4,
       "A rejected step changes nothing",
       "After every code except a lost device, weights and moments are unchanged, so the host can "
       "continue with the next batch. Fix: check all arguments before you change anything.",
       {"T-014"},
       check_rejected_step_keeps_weights},
      {"T-016",
       4,
       "Unknown keys of info() and metric() are reported as absent",
       "Hosts ask for values by key, including keys that a later version defines. info() returns null; "
       "metric() returns TH_E_ABSENT. Fix: return NULL from info() and TH_E_ABSENT from metric() after "
       "the last key that you know.",
       {"C-049", "C-029"},
       check_unknown_keys},
      {"T-017",
       4,
       "save() stops when the sink fails",
       "The host's sink fails when the disk is full or the user cancels. Fix: return the code of the sink "
       "without sending another tensor.",
       {"C-049", "C-029"},
       check_save_with_failing_sink},
      {"T-018",
       4,
       "save() rejects unknown scopes",
       "Later hosts define more scopes. If save() sent the weights for an unknown scope, they would be "
       "loaded as moments. Fix: return TH_E_UNSUPPORTED for every scope other than those that you send.",
       {"C-049", "C-029"},
       check_unknown_scope},
  };
}

}  // namespace trainhost::plugin_validator
