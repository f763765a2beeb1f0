// Level 5 for trainers: it finds its device or says why not, and trains a tiny model from create() to
// destroy().
#include <cmath>

#include "core/base/text.hpp"
#include "core/model/tensors.hpp"
#include "core/plugin_validator/levels.hpp"
#include "core/plugin_validator/watched_instance.hpp"

namespace trainhost::plugin_validator {
namespace {

void probes(Bench& b) {
  Started started(b);
  std::uint32_t devices = 0;
  const Answer a = b.probe(&devices);
  if (a.status == TH_E_UNAVAILABLE)
    return expect(!a.message.empty(), "probe() returned TH_E_UNAVAILABLE without saying why");
  expect(a.ok(), "probe() returned {}; TH_OK or TH_E_UNAVAILABLE was expected", a.text());
  expect(devices < 4096, "probe() finds {} devices", devices);
}

void publishes_its_choices(Bench& b) {
  Started started(b);
  th_profile p{};
  const Answer a = b.profile(b.sample(), p);
  expect(a.ok(), "profile() of a small run returned {}; it needs no device", a.text());
  const std::string trainer(p.trainer, ::strnlen(p.trainer, sizeof p.trainer));
  expect(trainer == b.manifest().id, "profile() names the trainer '{}'; '{}' was expected", escaped(trainer),
         b.manifest().id);
  expect(p.alignment > 0 && (p.alignment & (p.alignment - 1)) == 0,
         "profile() says alignment {}; a power of two was "
         "expected",
         p.alignment);
  expect(p.tier >= TH_TIER_DEVICE && p.tier <= TH_TIER_HOST,
         "profile() says tier {}, which cannot hold an arena", p.tier);
}

void whole_life(Bench& b) {
  Started started(b);
  b.need_device();
  Instance i(b, b.sample());
  i.begin();
  const Batch batch = make_batch(i.sample(), b.seed());
  for (std::uint64_t n = 0; n < 3; ++n) {
    const StepAnswer a = i.step(batch, 1e-3, n);
    expect(a.ok(), "step() number {} on a tiny model returned {}", n + 1, a.text());
  }
  const StepAnswer e = i.evaluate(make_batch(i.sample(), b.seed(), i.sample().run.micro_batch));
  expect(e.ok(), "step() that evaluates returned {}", e.text());
  const SaveAnswer s = i.save();
  expect(s.ok() && !s.pieces.empty(), "save() returned {} and {} tensors", s.text(), s.pieces.size());
}

void loss_is_a_loss(Bench& b) {
  Started started(b);
  b.need_device();
  Instance i(b, b.sample());
  i.begin();
  const StepAnswer a = i.step(make_batch(i.sample(), b.seed()), 1e-3, 0);
  const double uniform = std::log(static_cast<double>(i.sample().model.vocab));
  expect(std::isfinite(a.out.loss) && a.out.loss > 0.2 * uniform && a.out.loss < 5 * uniform,
         "the first loss on random tokens is {}; near ln({}) = {:.2f} was expected", a.out.loss,
         i.sample().model.vocab, uniform);
  expect(std::isfinite(a.out.grad_norm) && a.out.grad_norm > 0,
         "the first gradient has the norm {}; above 0 was expected", a.out.grad_norm);
}

void counts_its_targets(Bench& b) {
  Started started(b);
  b.need_device();
  Instance i(b, b.sample());
  i.begin();
  const Batch batch = make_batch(i.sample(), b.seed());
  const StepAnswer a = i.step(batch, 1e-3, 0);
  expect(a.out.tokens_counted == batch.counted(), "step() counted {} targets; {} are not -100",
         a.out.tokens_counted, batch.counted());
}

void learns(Bench& b) {
  Started started(b);
  b.need_device();
  Instance i(b, b.sample());
  i.begin();
  const Batch batch = make_batch(i.sample(), b.seed());
  double first = 0, last = 0;
  for (std::uint64_t n = 0; n < 20; ++n) {
    last = i.step(batch, 1e-2, n).out.loss;
    if (n == 0) first = last;
  }
  expect(last < first, "20 steps on the same batch took the loss from {} to {}; a smaller one was expected",
         first, last);
}

void evaluation_changes_nothing(Bench& b) {
  Started started(b);
  b.need_device();
  Instance i(b, b.sample());
  i.begin();
  const Batch batch = make_batch(i.sample(), b.seed(), i.sample().run.micro_batch);
  const Tensors before = assembled(i.save().pieces);
  const StepAnswer a = i.evaluate(batch), c = i.evaluate(batch);
  expect(assembled(i.save().pieces) == before,
         "a step that evaluates changed the weights; nothing was expected to change");
  expect(a.out.loss == c.out.loss, "the same evaluation gave {} and then {}", a.out.loss, c.out.loss);
}

void saves_each_tensor_once(Bench& b) {
  Started started(b);
  b.need_device();
  Instance i(b, b.sample());
  i.begin();
  const SaveAnswer s = i.save();
  expect(s.ok(), "save() returned {}", s.text());
  assembled(s.pieces);
}

void saves_what_the_host_asks(Bench& b) {
  Started started(b);
  b.need_device();
  Instance i(b, b.sample());
  if (!trainable_family(i.sample().model.family))
    throw NotHere("the tensors of its family are not known to this program");
  i.begin();
  const std::vector<SeenPiece> pieces = i.save().pieces;
  std::map<std::string, const SeenPiece*> by_name;
  for (const SeenPiece& p : pieces) by_name[p.name.value_or("")] = &p;
  for (const TensorInfo& t : tensors(i.sample().model)) {
    const auto it = by_name.find(t.name);
    expect(it != by_name.end(), "save() left out {}", t.name);
    const th_tensor& h = it->second->head;
    expect(h.rank == t.rank && h.dim[0] == t.dim[0] && (t.rank == 1 || h.dim[1] == t.dim[1]),
           "save() gave {} the shape [{}, {}]; [{}, {}] was expected", t.name, h.dim[0], h.dim[1], t.dim[0],
           t.dim[1]);
    by_name.erase(it);
  }
  expect(by_name.empty(), "save() handed over {}, which the model does not have",
         by_name.empty() ? "" : escaped(by_name.begin()->first));
}

void init_by_seed_alone(Bench& b) {
  Started started(b);
  b.need_device();
  const auto weights = [&](std::uint64_t seed) {
    Instance i(b, b.sample());
    i.begin(seed);
    return assembled(i.save().pieces);
  };
  const Tensors one = weights(7);
  expect(weights(7) == one, "init() with the same seed gave other weights");
  expect(weights(8) != one, "init() with another seed gave the same weights");
}

void takes_its_own_back(Bench& b) {
  Started started(b);
  b.need_device();
  Instance from(b, b.sample());
  from.begin(7);
  from.step(make_batch(from.sample(), b.seed()), 1e-2, 0);
  const SaveAnswer saved = from.save();
  Instance to(b, b.sample());
  const Answer made = to.create();
  expect(made.ok() && to.alive(), "create() of a second instance beside the first returned {}", made.text());
  for (const SeenPiece& p : saved.pieces) {
    th_tensor t = p.head;
    const std::string name = p.name.value_or("");
    std::vector<unsigned char> bytes = p.bytes;
    t.name = name.c_str(), t.data = bytes.data();
    const Answer a = to.load(TH_SCOPE_WEIGHTS, t);
    expect(a.ok(), "load() of {} as save() gave it returned {}", escaped(name), a.text());
  }
  const Answer begun = to.init(9);
  expect(begun.ok(), "init() after load() returned {}", begun.text());
  expect(assembled(to.save().pieces) == assembled(saved.pieces),
         "weights that were saved and loaded came out different");
}

}  // namespace

std::vector<Check> trainer_checks() {
  return {
      {"T-020",
       5,
       "probe() finds a device, or says why there is none",
       "`--backend=auto` asks each trainer and shows the reason of those that cannot. Where there is no "
       "device, the checks "
       "that need one are skipped.",
       {"C-049", "C-029"},
       probes},
      {"T-021",
       5,
       "profile() publishes the trainer's choices, without a device",
       "`plan --device=h100` runs on machines without one. Estimators read the profile to count what this "
       "trainer would "
       "take.",
       {"C-049", "C-029"},
       publishes_its_choices},
      {"T-022",
       5,
       "It trains a tiny model from create() to destroy()",
       "Two layers, two sequences of 16 tokens, three updates, an evaluation, a save: the main job at its "
       "smallest.",
       {"T-020", "C-070"},
       whole_life},
      {"T-023",
       5,
       "Loss and gradient norm are plausible",
       "Fresh weights know nothing: the loss is near that of a uniform guess. Zero, infinity or a sum "
       "instead of a mean "
       "show here.",
       {"T-022"},
       loss_is_a_loss},
      {"T-024",
       5,
       "It counts the targets that count",
       "A target of -100 is not counted. The host weighs means by this number.",
       {"T-022"},
       counts_its_targets},
      {"T-025",
       5,
       "It learns one batch by heart",
       "Twenty updates on the same batch must lower its loss; if they do not, the sign, the learning rate or "
       "the update is "
       "wrong.",
       {"T-022"},
       learns},
      {"T-027",
       5,
       "save() hands over each element once",
       "Pieces without data, twice or missing make a checkpoint that cannot be loaded, or worse, one that "
       "can.",
       {"T-022"},
       saves_each_tensor_once},
      {"T-026",
       5,
       "Evaluating changes nothing",
       "Validation in the middle of a run must leave the same run behind.",
       {"T-022", "T-027"},
       evaluation_changes_nothing},
      {"T-028",
       5,
       "save() hands over the tensors of the model, under their names",
       "Checkpoints are loaded by other software: names and shapes are those of the Hugging Face layout.",
       {"T-022"},
       saves_what_the_host_asks},
      {"T-029",
       5,
       "init() depends on its seed alone",
       "A run that can be repeated begins with the same weights, and another seed with others.",
       {"T-027"},
       init_by_seed_alone},
      {"T-030",
       5,
       "What save() gives, load() takes",
       "Resuming is save() and load() of a second instance: the weights must come back to the bit.",
       {"T-027"},
       takes_its_own_back},
  };
}

}  // namespace trainhost::plugin_validator
