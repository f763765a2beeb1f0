// Level 4 for instances: calls in the wrong order, invalid tensors and batches; a refused call does not
// change the instance.
#include <cmath>

#include "core/base/text.hpp"
#include "core/plugin_validator/levels.hpp"
#include "core/plugin_validator/watched_instance.hpp"

namespace trainhost::plugin_validator {
namespace {

/// All bytes that save() sent, in order.
std::vector<unsigned char> all_bytes(const SaveResult& a) {
  std::vector<unsigned char> all;
  for (const SeenPiece& p : a.pieces) all.insert(all.end(), p.bytes.begin(), p.bytes.end());
  return all;
}

void wrong_order(WatchedPlugin& plugin) {
  Started started(plugin);
  plugin.require_device();
  WatchedInstance i(plugin, plugin.sample());
  const CallResult made = i.create();
  expect(made.ok() && i.created(), "create() on a tiny model returned {}", made.text());
  const StepCallResult s = i.step(make_batch(i.sample(), plugin.seed()), 1e-3, 0);
  expect(s.status == TH_E_STATE, "step() before init() returned {}; TH_E_STATE was expected", s.text());
  const SaveResult v = i.save();
  expect(v.status == TH_E_STATE, "save() before init() returned {}; TH_E_STATE was expected", v.text());
}

/// init() is allowed in state {created}, next() in {ready+}. In other states they fail and change nothing.
void initialised_once(WatchedPlugin& plugin) {
  Started started(plugin);
  plugin.require_device();
  WatchedInstance i(plugin, plugin.sample());
  const CallResult made = i.create();
  expect(made.ok() && i.created(), "create() on a tiny model returned {}", made.text());
  if (const auto* g = static_cast<const th_generate*>(plugin.library().interface(TH_GENERATE_ID));
      g && g->next) {
    std::vector<float> logits(i.sample().model.vocab);
    const CallResult a =
        i.call("next", [&](auto* raw, auto* e) { return g->next(raw, 0, 0, logits.data(), e); });
    expect(a.status == TH_E_STATE, "next() before init() returned {}; TH_E_STATE was expected", a.text());
  }
  const CallResult first = i.init(7);
  expect(first.ok(), "init() on a tiny model returned {}", first.text());
  const std::vector<unsigned char> before = all_bytes(i.save());
  const CallResult again = i.init(8);
  expect(again.status == TH_E_STATE, "a second init() returned {}; TH_E_STATE was expected", again.text());
  expect(all_bytes(i.save()) == before, "a second init() changed the weights; no change was expected");
}

/// A tensor that the trainer saved, as an argument of load().
struct Piece {
  explicit Piece(const SeenPiece& p) : name(p.name.value_or("")), bytes(p.bytes), t(p.head) {
    t.name = name.c_str(), t.data = bytes.data();
  }
  Piece(const Piece&) = delete;
  std::string name;
  std::vector<unsigned char> bytes;
  th_tensor t;
};

void wrong_tensors(WatchedPlugin& plugin) {
  Started started(plugin);
  plugin.require_device();
  WatchedInstance i(plugin, plugin.sample());
  i.create_and_init();
  const SaveResult saved = i.save();
  expect(saved.ok() && !saved.pieces.empty(), "save() on a tiny model returned {}", saved.text());
  const auto refused = [&](const char* what, auto change) {
    Piece p(saved.pieces.front());
    change(p);
    const CallResult a = i.load(TH_SCOPE_WEIGHTS, p.t);
    expect(a.status == TH_E_ARG, "load() of {} returned {}; TH_E_ARG was expected", what, a.text());
  };
  refused("a tensor that the model does not have",
          [](Piece& p) { p.name = "no.such.tensor", p.t.name = p.name.c_str(); });
  refused("a tensor of another shape", [](Piece& p) { p.t.dim[0] += 1; });
  refused("a tensor of an unknown type", [](Piece& p) { p.t.dtype = 77; });
  refused("a piece outside its tensor",
          [](Piece& p) { p.t.first = p.t.dim[0] * (p.t.rank == 2 ? p.t.dim[1] : 1); });
}

void wrong_batches(WatchedPlugin& plugin) {
  Started started(plugin);
  plugin.require_device();
  WatchedInstance i(plugin, plugin.sample());
  i.create_and_init();
  const Batch good = make_batch(i.sample(), plugin.seed());
  Batch wide = make_batch(i.sample(), plugin.seed(), good.sequences + 1);
  StepCallResult a = i.step(wide, 1e-3, 0);
  expect(a.status == TH_E_ARG, "step() with {} sequences in a run of {} returned {}; TH_E_ARG was expected",
         wide.sequences, good.sequences, a.text());
  Batch foreign = good;
  foreign.tokens[3] = static_cast<std::int32_t>(i.sample().model.vocab);
  a = i.step(foreign, 1e-3, 0);
  expect(a.status == TH_E_ARG,
         "step() with token {} of a vocabulary of {} returned {}; TH_E_ARG was expected", foreign.tokens[3],
         i.sample().model.vocab, a.text());
  Batch target = good;
  target.targets[2] = static_cast<std::int32_t>(i.sample().model.vocab) + 5;
  a = i.step(target, 1e-3, 0);
  expect(a.status == TH_E_ARG,
         "step() with target {} of a vocabulary of {} returned {}; TH_E_ARG was expected", target.targets[2],
         i.sample().model.vocab, a.text());
}

void refusal_changes_nothing(WatchedPlugin& plugin) {
  Started started(plugin);
  plugin.require_device();
  WatchedInstance i(plugin, plugin.sample());
  i.create_and_init();
  const std::vector<unsigned char> before = all_bytes(i.save());
  Batch foreign = make_batch(i.sample(), plugin.seed());
  foreign.tokens.back() = -7;
  const StepCallResult a = i.step(foreign, 1e-1, 0);
  expect(!a.ok(), "step() with token -7 returned TH_OK");
  expect(all_bytes(i.save()) == before,
         "step() refused a batch with {} and changed the weights; no change was expected", a.text());
  const StepCallResult good = i.step(make_batch(i.sample(), plugin.seed()), 1e-3, 0);
  expect(good.ok(), "step() with a good batch after a refused one returned {}; TH_OK was expected",
         good.text());
}

void unknown_keys(WatchedPlugin& plugin) {
  Started started(plugin);
  plugin.require_device();
  WatchedInstance i(plugin, plugin.sample());
  i.create_and_init();
  if (i.table().info) {
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

void save_obeys_its_sink(WatchedPlugin& plugin) {
  Started started(plugin);
  plugin.require_device();
  WatchedInstance i(plugin, plugin.sample());
  i.create_and_init();
  const SaveResult a = i.save(TH_SCOPE_WEIGHTS, 1);
  expect(a.status == TH_E_CANCELLED,
         "the sink refused the first tensor with TH_E_CANCELLED and save() returned {}; the sink's code was "
         "expected",
         a.text());
  expect(a.calls_after_refusal <= 1,
         "save() sent {} more tensors after the sink had refused; none were expected",
         a.calls_after_refusal - 1);
}

void unknown_scope(WatchedPlugin& plugin) {
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
       "Training on uninitialised weights gives numbers that look like a bad learning rate.",
       {"C-049", "C-029"},
       wrong_order},
      {"T-019",
       4,
       "init() succeeds only once, and next() fails before it",
       "A host that resumes a run loads weights and calls init() for the missing ones; a second init() that "
       "starts over would lose them. Each function has a tag that lists the states in which it may be "
       "called; in all other states it returns TH_E_STATE.",
       {"T-012"},
       initialised_once},
      {"T-013",
       4,
       "load() refuses tensors that the model does not have",
       "Loading a checkpoint of another model must stop at the first tensor whose name, shape or type does "
       "not match.",
       {"C-049", "C-029"},
       wrong_tensors},
      {"T-014",
       4,
       "step() refuses batches that do not match the run",
       "A token id beyond the vocabulary reads outside the embedding; a batch of another size reads outside "
       "the batch.",
       {"C-049", "C-029"},
       wrong_batches},
      {"T-015",
       4,
       "A refused step changes nothing",
       "After every code except a lost device, weights and moments are unchanged, so the host can continue "
       "with the next batch.",
       {"T-014"},
       refusal_changes_nothing},
      {"T-016",
       4,
       "Unknown keys of info() and metric() are reported as absent",
       "Hosts ask for values by key, including keys that a later version defines. info() returns null; "
       "metric() returns TH_E_ABSENT.",
       {"C-049", "C-029"},
       unknown_keys},
      {"T-017",
       4,
       "save() stops when the sink refuses",
       "The host's sink refuses when the disk is full or the user cancels. Return the code of the sink "
       "without sending another tensor.",
       {"C-049", "C-029"},
       save_obeys_its_sink},
      {"T-018",
       4,
       "save() refuses unknown scopes",
       "Later hosts define more scopes. If save() sent the weights for an unknown scope, they would be "
       "loaded as moments.",
       {"C-049", "C-029"},
       unknown_scope},
  };
}

}  // namespace trainhost::plugin_validator
