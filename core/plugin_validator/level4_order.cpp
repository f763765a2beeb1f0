// Level 4 for instances: calls in the wrong order, wrong tensors and batches, and that a refused call leaves
// an instance as it was.
#include <cmath>

#include "core/base/text.hpp"
#include "core/plugin_validator/levels.hpp"
#include "core/plugin_validator/watched_instance.hpp"

namespace trainhost::plugin_validator {
namespace {

/// Everything that save() gave, in its order.
std::vector<unsigned char> all_bytes(const SaveAnswer& a) {
  std::vector<unsigned char> all;
  for (const SeenPiece& p : a.pieces) all.insert(all.end(), p.bytes.begin(), p.bytes.end());
  return all;
}

void wrong_order(Bench& b) {
  Started started(b);
  b.need_device();
  Instance i(b, b.sample());
  const Answer made = i.create();
  expect(made.ok() && i.alive(), "create() on a tiny model returned {}", made.text());
  const StepAnswer s = i.step(make_batch(i.sample(), b.seed()), 1e-3, 0);
  expect(s.status == TH_E_STATE, "step() before init() returned {}; TH_E_STATE was expected", s.text());
  const SaveAnswer v = i.save();
  expect(v.status == TH_E_STATE, "save() before init() returned {}; TH_E_STATE was expected", v.text());
}

/// init() belongs to {created}, next() to {ready+}: the other states are answered and change nothing.
void initialised_once(Bench& b) {
  Started started(b);
  b.need_device();
  Instance i(b, b.sample());
  const Answer made = i.create();
  expect(made.ok() && i.alive(), "create() on a tiny model returned {}", made.text());
  if (const auto* g = static_cast<const th_generate*>(b.subject().interface(TH_GENERATE_ID)); g && g->next) {
    std::vector<float> logits(i.sample().model.vocab);
    const Answer a = i.call("next", [&](auto* raw, auto* e) { return g->next(raw, 0, 0, logits.data(), e); });
    expect(a.status == TH_E_STATE, "next() before init() returned {}; TH_E_STATE was expected", a.text());
  }
  const Answer first = i.init(7);
  expect(first.ok(), "init() on a tiny model returned {}", first.text());
  const std::vector<unsigned char> before = all_bytes(i.save());
  const Answer again = i.init(8);
  expect(again.status == TH_E_STATE, "init() a second time returned {}; TH_E_STATE was expected",
         again.text());
  expect(all_bytes(i.save()) == before,
         "init() a second time changed the weights all the same; nothing was expected to change");
}

/// Some tensor that the trainer itself has saved, as a piece to load.
struct Piece {
  explicit Piece(const SeenPiece& p) : name(p.name.value_or("")), bytes(p.bytes), t(p.head) {
    t.name = name.c_str(), t.data = bytes.data();
  }
  Piece(const Piece&) = delete;
  std::string name;
  std::vector<unsigned char> bytes;
  th_tensor t;
};

void wrong_tensors(Bench& b) {
  Started started(b);
  b.need_device();
  Instance i(b, b.sample());
  i.begin();
  const SaveAnswer saved = i.save();
  expect(saved.ok() && !saved.pieces.empty(), "save() on a tiny model returned {}", saved.text());
  const auto refused = [&](const char* what, auto change) {
    Piece p(saved.pieces.front());
    change(p);
    const Answer a = i.load(TH_SCOPE_WEIGHTS, p.t);
    expect(a.status == TH_E_ARG, "load() of {} returned {}; TH_E_ARG was expected", what, a.text());
  };
  refused("a tensor that the model does not have",
          [](Piece& p) { p.name = "no.such.tensor", p.t.name = p.name.c_str(); });
  refused("a tensor of another shape", [](Piece& p) { p.t.dim[0] += 1; });
  refused("a tensor of an unknown type", [](Piece& p) { p.t.dtype = 77; });
  refused("a piece outside its tensor",
          [](Piece& p) { p.t.first = p.t.dim[0] * (p.t.rank == 2 ? p.t.dim[1] : 1); });
}

void wrong_batches(Bench& b) {
  Started started(b);
  b.need_device();
  Instance i(b, b.sample());
  i.begin();
  const Batch good = make_batch(i.sample(), b.seed());
  Batch wide = make_batch(i.sample(), b.seed(), good.sequences + 1);
  StepAnswer a = i.step(wide, 1e-3, 0);
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

void refusal_changes_nothing(Bench& b) {
  Started started(b);
  b.need_device();
  Instance i(b, b.sample());
  i.begin();
  const std::vector<unsigned char> before = all_bytes(i.save());
  Batch foreign = make_batch(i.sample(), b.seed());
  foreign.tokens.back() = -7;
  const StepAnswer a = i.step(foreign, 1e-1, 0);
  expect(!a.ok(), "step() with token -7 returned TH_OK");
  expect(
      all_bytes(i.save()) == before,
      "step() refused a batch with {} and changed the weights all the same; nothing was expected to change",
      a.text());
  const StepAnswer good = i.step(make_batch(i.sample(), b.seed()), 1e-3, 0);
  expect(good.ok(), "step() with a good batch after a refused one returned {}; TH_OK was expected",
         good.text());
}

void unknown_keys(Bench& b) {
  Started started(b);
  b.need_device();
  Instance i(b, b.sample());
  i.begin();
  if (i.table().info) {
    CheckingHost::Legal legal(b.host());
    const char* text = i.table().info(i.raw(), "no such fact");
    expect(text == nullptr, "info(\"no such fact\") returned '{}'; null was expected",
           text ? escaped(text, 60) : "");
  }
  if (!i.table().metric) return;
  double value = 0;
  const Answer a = i.call(
      "metric", [&](auto* raw, auto* e) { return i.table().metric(raw, "no such figure", &value, e); });
  expect(a.status == TH_E_ABSENT || a.status == TH_E_UNSUPPORTED,
         "metric(\"no such figure\") returned {}; TH_E_ABSENT or TH_E_UNSUPPORTED was expected", a.text());
}

void save_obeys_its_sink(Bench& b) {
  Started started(b);
  b.need_device();
  Instance i(b, b.sample());
  i.begin();
  const SaveAnswer a = i.save(TH_SCOPE_WEIGHTS, 1);
  expect(a.status == TH_E_CANCELLED,
         "the sink refused the first tensor with TH_E_CANCELLED and save() returned {}; the "
         "sink's code was expected",
         a.text());
  expect(a.calls_after_refusal <= 1,
         "save() went on for {} more tensors after the sink had refused; it was expected to stop",
         a.calls_after_refusal - 1);
}

void unknown_scope(Bench& b) {
  Started started(b);
  b.need_device();
  Instance i(b, b.sample());
  i.begin();
  const SaveAnswer a = i.save(99);
  expect(a.status == TH_E_ARG || a.status == TH_E_UNSUPPORTED,
         "save() of scope 99 returned {}; TH_E_ARG or TH_E_UNSUPPORTED was expected", a.text());
}

}  // namespace

std::vector<Check> trainer_order_checks() {
  return {
      {"T-012",
       4,
       "step() and save() before init() are TH_E_STATE",
       "Training on memory that nobody filled gives numbers that look like a bad learning rate.",
       {"C-049", "C-029"},
       wrong_order},
      {"T-019",
       4,
       "init() is called once, and next() waits for it",
       "A host that resumes loads weights and calls init() for what is missing: a second call that began "
       "anew would lose them "
       "without a word. Every function has a tag with the states that it may be called in; the others are "
       "TH_E_STATE.",
       {"T-012"},
       initialised_once},
      {"T-013",
       4,
       "load() refuses tensors that the model does not have",
       "A checkpoint of another model must stop at the first tensor that does not fit, by name, shape or "
       "type.",
       {"C-049", "C-029"},
       wrong_tensors},
      {"T-014",
       4,
       "step() refuses batches that do not fit",
       "A token id beyond the vocabulary reads outside the embedding. A batch of another size reads outside "
       "the batch.",
       {"C-049", "C-029"},
       wrong_batches},
      {"T-015",
       4,
       "A refused step changes nothing",
       "Any code but a lost device leaves weights and moments as they were, so that the host may go on with "
       "the next batch.",
       {"T-014"},
       refusal_changes_nothing},
      {"T-016",
       4,
       "Facts and figures that it does not know are said to be absent",
       "Hosts ask for facts by name, also for ones that a later version invents.",
       {"C-049", "C-029"},
       unknown_keys},
      {"T-017",
       4,
       "save() stops when the sink refuses",
       "The disk is full or the user cancels: the sink's code must come back, before another tensor.",
       {"C-049", "C-029"},
       save_obeys_its_sink},
      {"T-018",
       4,
       "save() refuses a scope that it does not have",
       "Later hosts know more scopes. Handing over the weights for any of them would be loaded as moments.",
       {"C-049", "C-029"},
       unknown_scope},
  };
}

}  // namespace trainhost::plugin_validator
