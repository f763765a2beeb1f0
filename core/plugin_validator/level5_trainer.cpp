// Level 5 for trainers: probe() finds a device or gives a reason, and a tiny model trains from create() to
// destroy(). Each check makes its own instance: what one check did to it must not decide about the next.
// Batches come from the seed of the run, so a failure can be repeated.
#include <cmath>

#include "core/base/text.hpp"
#include "core/model/tensors.hpp"
#include "core/plugin_validator/levels.hpp"
#include "core/plugin_validator/watched_instance.hpp"

namespace trainhost::plugin_validator {
namespace {

void check_probe(WatchedPlugin& plugin) {
  Started started(plugin);
  std::uint32_t devices = 0;
  const CallResult a = plugin.probe(&devices);
  // A machine without the device is no fault; what is tested then is that the reason is given.
  if (a.status == TH_E_UNAVAILABLE)
    return expect(!a.message.empty(), "probe() returned TH_E_UNAVAILABLE without saying why");
  expect(a.ok(), "probe() returned {}; TH_OK or TH_E_UNAVAILABLE was expected", a.text());
  // A plausibility bound: a larger number is an uninitialized variable.
  expect(devices < 4096, "probe() reported {} devices", devices);
}

void check_profile(WatchedPlugin& plugin) {
  Started started(plugin);
  th_profile p{};
  const CallResult a = plugin.profile(plugin.sample(), p);
  expect(a.ok(), "profile() of a small run returned {}; it needs no device", a.text());
  // The name has a fixed capacity and need not be terminated.
  const std::string trainer(p.trainer, ::strnlen(p.trainer, sizeof p.trainer));
  expect(trainer == plugin.manifest().id, "profile() names the trainer '{}'; '{}' was expected",
         escaped(trainer), plugin.manifest().id);
  // Estimators round sizes by it (x + a - 1) & ~(a - 1), which needs a power of two.
  expect(p.alignment > 0 && (p.alignment & (p.alignment - 1)) == 0,
         "profile() has alignment {}; a power of two was expected", p.alignment);
  expect(p.tier >= TH_TIER_DEVICE && p.tier <= TH_TIER_HOST,
         "profile() has tier {}, which cannot hold an arena", p.tier);
}

void check_life_cycle(WatchedPlugin& plugin) {
  Started started(plugin);
  plugin.require_device();
  WatchedInstance i(plugin, plugin.sample());
  i.create_and_init();
  const Batch batch = make_batch(i.sample(), plugin.seed());
  for (std::uint64_t n = 0; n < 3; ++n) {
    const StepCallResult a = i.step(batch, 1e-3, n);
    expect(a.ok(), "step() number {} on a tiny model returned {}", n + 1, a.text());
  }
  // An evaluation has one micro-batch, not a whole step.
  const StepCallResult e = i.evaluate(make_batch(i.sample(), plugin.seed(), i.sample().run.micro_batch));
  expect(e.ok(), "an evaluation by step() returned {}", e.text());
  const SaveResult s = i.save();
  expect(s.ok() && !s.pieces.empty(), "save() returned {} and {} tensors", s.text(), s.pieces.size());
}

void check_loss_range(WatchedPlugin& plugin) {
  Started started(plugin);
  plugin.require_device();
  WatchedInstance i(plugin, plugin.sample());
  i.create_and_init();
  const StepCallResult a = i.step(make_batch(i.sample(), plugin.seed()), 1e-3, 0);
  const double uniform = std::log(static_cast<double>(i.sample().model.vocab));
  // Fresh weights give about ln(V), the loss of a uniform guess; a factor of 5 allows every usual
  // initialization. A sum over targets or a missing mean is outside.
  expect(std::isfinite(a.out.loss) && a.out.loss > 0.2 * uniform && a.out.loss < 5 * uniform,
         "the first loss on random tokens is {}; near ln({}) = {:.2f} was expected", a.out.loss,
         i.sample().model.vocab, uniform);
  expect(std::isfinite(a.out.grad_norm) && a.out.grad_norm > 0,
         "the first gradient has the norm {}; above 0 was expected", a.out.grad_norm);
}

void check_counted_targets(WatchedPlugin& plugin) {
  Started started(plugin);
  plugin.require_device();
  WatchedInstance i(plugin, plugin.sample());
  i.create_and_init();
  const Batch batch = make_batch(i.sample(), plugin.seed());
  const StepCallResult a = i.step(batch, 1e-3, 0);
  // The last target of each sequence is -100 in these batches, so counted < all.
  expect(a.out.tokens_counted == batch.counted(), "step() counted {} targets; {} are not -100",
         a.out.tokens_counted, batch.counted());
}

void check_loss_decreases(WatchedPlugin& plugin) {
  Started started(plugin);
  plugin.require_device();
  WatchedInstance i(plugin, plugin.sample());
  i.create_and_init();
  const Batch batch = make_batch(i.sample(), plugin.seed());
  double first = 0, last = 0;
  for (std::uint64_t n = 0; n < 20; ++n) {
    // The same batch 20 times with a large learning rate: even a slow optimizer must learn it.
    last = i.step(batch, 1e-2, n).out.loss;
    if (n == 0) first = last;
  }
  expect(last < first, "20 steps on the same batch changed the loss from {} to {}; a lower loss was expected",
         first, last);
}

void check_evaluation_keeps_weights(WatchedPlugin& plugin) {
  Started started(plugin);
  plugin.require_device();
  WatchedInstance i(plugin, plugin.sample());
  i.create_and_init();
  const Batch batch = make_batch(i.sample(), plugin.seed(), i.sample().run.micro_batch);
  // save() is compared, so T-027 (save is complete) is needed first.
  const Tensors before = assembled(i.save().pieces);
  // Twice: an evaluation must not change its own next result either.
  const StepCallResult a = i.evaluate(batch), c = i.evaluate(batch);
  expect(assembled(i.save().pieces) == before, "an evaluation changed the weights");
  expect(a.out.loss == c.out.loss, "the same evaluation gave {} and then {}", a.out.loss, c.out.loss);
}

void check_save_is_complete(WatchedPlugin& plugin) {
  Started started(plugin);
  plugin.require_device();
  WatchedInstance i(plugin, plugin.sample());
  i.create_and_init();
  const SaveResult s = i.save();
  expect(s.ok(), "save() returned {}", s.text());
  // Throws for missing, repeated and foreign pieces.
  assembled(s.pieces);
}

void check_saved_names_and_shapes(WatchedPlugin& plugin) {
  Started started(plugin);
  plugin.require_device();
  WatchedInstance i(plugin, plugin.sample());
  // Only families whose tensors this program can list have names to compare with.
  if (!trainable_family(i.sample().model.family))
    throw CheckSkipped("the tensors of its family are not known to this program");
  i.create_and_init();
  const std::vector<ReceivedPiece> pieces = i.save().pieces;
  std::map<std::string, const ReceivedPiece*> by_name;
  // Pieces of one tensor have the same head, so the last one is as good as all.
  for (const ReceivedPiece& p : pieces) by_name[p.name.value_or("")] = &p;
  for (const TensorInfo& t : tensors(i.sample().model)) {
    const auto it = by_name.find(t.name);
    expect(it != by_name.end(), "save() left out {}", t.name);
    const th_tensor& h = it->second->head;
    expect(h.rank == t.rank && h.dim[0] == t.dim[0] && (t.rank == 1 || h.dim[1] == t.dim[1]),
           "save() sent {} the shape [{}, {}]; [{}, {}] was expected", t.name, h.dim[0], h.dim[1], t.dim[0],
           t.dim[1]);
    by_name.erase(it);
  }
  expect(by_name.empty(), "save() sent {}, which the model does not have",
         by_name.empty() ? "" : escaped(by_name.begin()->first));
}

void check_kernel_names(WatchedPlugin& plugin) {
  Started started(plugin);
  plugin.require_device();
  WatchedInstance i(plugin, plugin.sample());
  i.create_and_init();
  // info() has no th_error, so WatchedInstance::call() does not apply.
  CheckingHost::CallbacksAllowed allowed(plugin.host());
  if (!i.table().info) return;
  const char* wrong = i.table().info(i.handle(), "wrong_kernels");
  expect(!wrong || !*wrong, "{}", escaped(wrong ? wrong : "", 200));
}

void check_init_depends_on_seed(WatchedPlugin& plugin) {
  Started started(plugin);
  plugin.require_device();
  const auto weights = [&](std::uint64_t seed) {
    WatchedInstance i(plugin, plugin.sample());
    i.create_and_init(seed);
    return assembled(i.save().pieces);
  };
  // Made thrice, in instances of their own: init() must not depend on what ran before.
  const Tensors one = weights(7);
  expect(weights(7) == one, "init() with the same seed gave different weights");
  expect(weights(8) != one, "init() with another seed gave the same weights");
}

void check_load_of_saved_weights(WatchedPlugin& plugin) {
  Started started(plugin);
  plugin.require_device();
  WatchedInstance from(plugin, plugin.sample());
  from.create_and_init(7);
  // After a step: values that init() cannot produce by itself.
  from.step(make_batch(from.sample(), plugin.seed()), 1e-2, 0);
  const SaveResult saved = from.save();
  // Both instances exist at the same time, which a host may do.
  WatchedInstance to(plugin, plugin.sample());
  const CallResult made = to.create();
  expect(made.ok() && to.created(), "create() of a second instance while the first exists returned {}",
         made.text());
  for (const ReceivedPiece& p : saved.pieces) {
    const CallResult a = to.load(TH_SCOPE_WEIGHTS, p);
    expect(a.ok(), "load() of {} as save() sent it returned {}", escaped(p.name.value_or("")), a.text());
  }
  // Another seed: a tensor that load() did not fill would differ.
  const CallResult begun = to.init(9);
  expect(begun.ok(), "init() after load() returned {}", begun.text());
  expect(assembled(to.save().pieces) == assembled(saved.pieces), "the weights changed by save() and load()");
}

}  // namespace

// Prerequisites: T-022 shows that a run works at all; T-027 that save() is complete, for the checks that
// compare weights through it. T-027 stands before T-026, which needs it.
std::vector<Check> trainer_checks() {
  return {
      {"T-020",
       5,
       "probe() finds a device or gives a reason",
       "`--backend=auto` asks each trainer and prints the reason of those that are unavailable. Without a "
       "device, the checks that need one are skipped. Fix: return TH_E_UNAVAILABLE with a sentence if the "
       "device or its library is missing.",
       {"C-049", "C-029"},
       check_probe},
      {"T-021",
       5,
       "profile() reports the trainer's settings without a device",
       "`plan --device=h100` runs on machines without a GPU. Estimators read the profile to compute the "
       "memory of this trainer. Fix: compute the profile from model and run, without a device; write your "
       "plugin id into its trainer field.",
       {"C-049", "C-029"},
       check_profile},
      {"T-022",
       5,
       "It trains a tiny model from create() to destroy()",
       "Two layers, two sequences of 16 tokens, three steps, one evaluation, one save. Fix: read the "
       "message: it names the first call of the sequence that failed.",
       {"T-020", "C-070"},
       check_life_cycle},
      {"T-023",
       5,
       "Loss and gradient norm are plausible",
       "With fresh weights the loss is close to that of a uniform guess. Zero, infinity, or a sum instead "
       "of a mean is detected here. Fix: divide the sum of the losses by the number of counted targets.",
       {"T-022"},
       check_loss_range},
      {"T-024",
       5,
       "tokens_counted excludes targets of -100",
       "A target of -100 is not counted. The host weights means by this number. Fix: count the targets "
       "that are not -100.",
       {"T-022"},
       check_counted_targets},
      {"T-025",
       5,
       "Training on one batch lowers its loss",
       "20 steps on the same batch must lower its loss. Otherwise the sign, the learning rate or the "
       "update is wrong. Fix: subtract the gradient times the learning rate, and check the sign of the "
       "gradient with T-051.",
       {"T-022"},
       check_loss_decreases},
      {"T-027",
       5,
       "save() sends each element exactly once",
       "Pieces that lack data, are sent twice or are missing give a checkpoint that cannot be loaded or "
       "that silently loads wrong weights. Fix: send each tensor once, in pieces that follow one another "
       "and cover it.",
       {"T-022"},
       check_save_is_complete},
      {"T-026",
       5,
       "Evaluation changes nothing",
       "Validation during a run must not affect the run. Fix: return from step() before the gradients are "
       "computed if TH_STEP_EVALUATE is set.",
       {"T-022", "T-027"},
       check_evaluation_keeps_weights},
      {"T-028",
       5,
       "save() sends the tensors of the model under their names",
       "Other software loads these checkpoints: names and shapes are those of the Hugging Face format. "
       "Fix: use the names and shapes of core/model/tensors.cpp; fused matrices are sent as their parts.",
       {"T-022"},
       check_saved_names_and_shapes},
      {"T-067",
       5,
       "The kernels that it names exist and are its own",
       "A trainer made of a class of kernels inherits each kernel that the class does not define. A "
       "kernel with a misspelt name or other arguments is never called: the slow inherited loop runs in "
       "its place. The class names its kernels in `own_kernels`, and info(\"wrong_kernels\") returns what "
       "is wrong with the list. Fix: correct the name that the message quotes, in the list and in the "
       "class.",
       {"T-022", "T-016"},
       check_kernel_names},
      {"T-029",
       5,
       "init() depends only on its seed",
       "A repeatable run starts with the same weights, and another seed gives other weights. Fix: "
       "generate weights from the seed and the name of the tensor alone.",
       {"T-027"},
       check_init_depends_on_seed},
      {"T-030",
       5,
       "load() accepts what save() sends",
       "Resuming is save() and then load() in a second instance. The weights must be identical bit by "
       "bit. Fix: accept in load() every name, type and piece that save() sends.",
       {"T-027"},
       check_load_of_saved_weights},
  };
}

}  // namespace trainhost::plugin_validator
