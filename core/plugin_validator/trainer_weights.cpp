// See trainer_weights.hpp. Weights go in and out through load() and save() alone, as in a host. All are f32
// here: the sample's run is in f32, where a conversion could hide different bits.
#include "core/plugin_validator/trainer_weights.hpp"

#include <cmath>
#include <cstring>
#include <random>

#include "core/base/text.hpp"

namespace trainhost::plugin_validator {

AllWeights weights_of(WatchedInstance& i) {
  const SaveResult saved = i.save();
  expect(saved.ok(), "save() returned {}", saved.text());
  // Checks that every element was sent exactly once before any is used.
  const Tensors bytes = assembled(saved.pieces);
  AllWeights all;
  for (const ReceivedPiece& p : saved.pieces) {
    if (p.head.dtype != TH_DT_F32) throw CheckSkipped("it saves weights of an f32 run in another type");
    Weights& w = all[*p.name];
    w.rank = p.head.rank, w.dim[0] = p.head.dim[0], w.dim[1] = p.head.dim[1];
  }
  for (auto& [name, w] : all) {
    const auto& from = bytes.at(name);
    w.values.resize(from.size() / sizeof(float));
    std::memcpy(w.values.data(), from.data(), from.size());
  }
  return all;
}

/// In the order of the names (a map), so that two trainers get equal weights whatever order they save in.
AllWeights random_weights(const AllWeights& like, std::uint64_t seed) {
  AllWeights all = like;
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  for (auto& [name, w] : all) {
    const bool bias = name.ends_with(".bias");
    // Norm scales around 1, biases around 0, matrices with a standard deviation of 0.15: large enough that
    // each tensor changes the loss, small enough that softmax does not saturate.
    for (float& x : w.values)
      x = w.rank == 1 ? (bias ? 0.f : 1.f) + 0.1f * normal(random) : 0.15f * normal(random);
  }
  return all;
}

CallResult load_piece(WatchedInstance& i, const std::string& name, const Weights& w, std::uint64_t first,
                      std::uint64_t count) {
  // A copy of the piece, so that a tool such as ASan sees a read past its end.
  std::vector<float> piece(w.values.begin() + static_cast<std::ptrdiff_t>(first),
                           w.values.begin() + static_cast<std::ptrdiff_t>(first + count));
  th_tensor t{};
  t.struct_size = sizeof t;
  t.dtype = TH_DT_F32, t.rank = w.rank, t.dim[0] = w.dim[0], t.dim[1] = w.dim[1];
  t.name = name.c_str(), t.data = piece.data(), t.first = first, t.count = count;
  return i.load(TH_SCOPE_WEIGHTS, t);
}

void load_tensor(WatchedInstance& i, const std::string& name, const Weights& w) {
  const CallResult a = load_piece(i, name, w, 0, w.values.size());
  expect(a.ok(), "load() of {} returned {}", escaped(name), a.text());
}

void load_weights(WatchedInstance& i, const AllWeights& all) {
  for (const auto& [name, w] : all) load_tensor(i, name, w);
}

/// By bits: NaN equals NaN here, and 0.0 differs from -0.0.
std::string first_difference(const AllWeights& a, const AllWeights& b) {
  if (a.size() != b.size()) return "the number of tensors";
  for (const auto& [name, w] : a) {
    const auto it = b.find(name);
    if (it == b.end() || it->second.values.size() != w.values.size()) return escaped(name);
    if (std::memcmp(w.values.data(), it->second.values.data(), w.values.size() * sizeof(float)) != 0)
      return escaped(name);
  }
  return "";
}

Checkpoint checkpoint_of(WatchedInstance& i) {
  Checkpoint c;
  // Moments are optional (SGD has none); weights are not.
  for (std::uint32_t scope : {TH_SCOPE_WEIGHTS, TH_SCOPE_MOMENT1, TH_SCOPE_MOMENT2}) {
    SaveResult s = i.save(scope);
    if (s.ok())
      c.scopes[scope] = std::move(s.pieces);
    else
      expect(scope != TH_SCOPE_WEIGHTS, "save() returned {}", s.text());
  }
  return c;
}

void restore(WatchedInstance& i, const Checkpoint& c) {
  CallResult a = i.create();
  expect(a.ok() && i.created(), "create() for a saved run returned {}", a.text());
  // Weights first: the scopes are in ascending order.
  for (const auto& [scope, pieces] : c.scopes)
    for (const ReceivedPiece& p : pieces) {
      a = i.load(scope, p);
      expect(a.ok(), "load() of {} (scope {}) as save() sent it returned {}", escaped(p.name.value_or("")),
             scope, a.text());
    }
  // init() completes the state; everything was loaded, so its seed must have no effect.
  a = i.init(9);
  expect(a.ok(), "init() after load() returned {}", a.text());
}

Sample sgd_sample(Sample s) {
  // No decay and no clipping: the update is the gradient times the learning rate, and nothing else.
  s.run.optimizer = Optimizer::kSgd;
  s.run.weight_decay = 0, s.run.clip_norm = 0;
  return s;
}

// An unsupported optimizer skips the check; any other failure of plan() fails it.
void require_run(WatchedPlugin& plugin, const Sample& s, const char* what) {
  const ReportResult plan = plugin.report(s);
  if (plan.status == TH_E_UNSUPPORTED)
    throw CheckSkipped(fmt::format("it does not support {}: {}", what, plan.text()));
  expect(plan.ok(), "plan() of {} returned {}", what, plan.text());
}

th_step_out step_or_throw(WatchedInstance& i, const Batch& batch, double lr, std::uint64_t index) {
  const StepCallResult a = i.step(batch, lr, index);
  expect(a.ok(), "step() number {} returned {}", index + 1, a.text());
  return a.out;
}

double evaluate_or_throw(WatchedInstance& i, const Batch& batch) {
  const StepCallResult a = i.evaluate(batch);
  expect(a.ok(), "an evaluation by step() returned {}", a.text());
  return a.out.loss;
}

}  // namespace trainhost::plugin_validator
