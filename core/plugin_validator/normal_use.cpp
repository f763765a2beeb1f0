// Bench::tour(): the life of a plugin as a host leads it. Its calls may fail without harm here: other checks
// say so. What counts is how they behave towards the host while they run and after.
#include <chrono>
#include <thread>

#include "core/plugin_validator/watched_instance.hpp"
#include "core/plugin_validator/watched_plugin.hpp"

namespace trainhost::plugin_validator {
namespace {

void tour_estimator(Bench& b) {
  Sample s = b.sample();
  for (int i = 0; i < 3; ++i) {
    b.match(s);
    b.estimate(s);
    s.run.micro_batch *= 2;
  }
  s.model.family = "no-such-family";
  b.estimate(s);  // most likely an error, whose text is looked at
}

void tour_trainer(Bench& b) {
  const Sample s = b.sample();
  std::uint32_t devices = 0;
  b.probe(&devices);
  th_profile p{};
  b.profile(s, p);
  b.plan(s);
  Sample unknown = s;
  unknown.model.family = "no-such-family";
  b.plan(unknown);
  if (devices == 0) return;
  Instance i(b, s);
  if (!i.create().ok() || !i.alive()) return;
  if (!i.init(7).ok()) return;
  const Batch batch = make_batch(s, b.seed());
  for (std::uint64_t n = 0; n < 3; ++n) i.step(batch, 1e-3, n);
  i.evaluate(make_batch(s, b.seed() + 1, s.run.micro_batch));
  th_counters c{};
  i.counters(c);
  i.save();
  i.destroy();
}

}  // namespace

void Bench::tour() {
  if (toured_) return look_back();
  toured_ = true;
  {
    Started started(*this);
    if (is_trainer())
      tour_trainer(*this);
    else
      tour_estimator(*this);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));  // what comes late comes now
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  look_back();
}

}  // namespace trainhost::plugin_validator
