// GPU-002: after 10 steps every trained tensor has changed, and the saved weights are the trained ones: two
// saves are equal; loaded into a new session and saved again they are equal bit for bit; and that session has
// the same loss. The loss detects a head that differs from its tied embedding: save() gives one of the two,
// the loss depends on both.
#include <fmt/format.h>

#include <cstring>

#include "core/verify/contract_table.hpp"
#include "core/verify/judge_modes.hpp"
#include "core/verify/trainer_fixture.hpp"

namespace trainhost::verify {
namespace {

constexpr std::uint64_t kWeightSyncSteps = 10;

/// Elements of the head that differ from the embedding, if save() gives both for a tied model.
std::uint64_t count_head_differences(const Snapshot& s) {
  std::uint64_t n = 0;
  for (std::size_t i = 0; i < s.tensors.size(); ++i)
    if (s.tensors[i].role == TensorRole::kEmbed)
      for (const auto& [name, copy] : s.copies) n += different_bits(copy, s.values_of(i));
  return n;
}

struct Violations {
  std::uint64_t count = 0;
  std::string text;
  void add(std::uint64_t n, const std::string& what) {
    if (n == 0) return;
    count += n;
    text += (text.empty() ? "" : "; ") + what;
  }
};

// A new session, so that only what was saved can be in it.
void compare_reloaded(Context& context, const std::string& mode, const Snapshot& saved, double loss,
                      Violations& b) {
  TrainerFixture fresh(context, context.run, {.mode = mode, .from = &saved});
  const std::uint64_t differing = different_bits(saved, fresh.weights());
  b.add(differing, fmt::format("{} elements differ after loading what was saved", differing));
  const double again = fresh.evaluate(kWeightSyncSteps).loss;
  // Bits of the loss: the same weights give the same loss, however it is computed.
  b.add(std::memcmp(&again, &loss, sizeof loss) != 0,
        fmt::format("a session with the saved weights has loss {:.9g}, the trained one {:.9g}: it computes "
                    "with other weights than it saves",
                    again, loss));
}

Finding judge_weight_sync(Context& context, const std::string& mode) {
  const runfile::RunConfig& c = context.run;
  Violations b;
  Snapshot saved;
  double loss = 0;
  {
    TrainerFixture fixture(context, c, {.mode = mode});
    const Snapshot before = fixture.weights();
    for (std::uint64_t t = 0; t < kWeightSyncSteps; ++t) fixture.step(t, c.optimizer.lr);
    saved = fixture.weights();
    // lr is that of the run, without warm-up: each tensor must change.
    const std::vector<std::string> frozen = equal_tensors(before, saved);
    b.add(frozen.size(),
          fmt::format("{} tensors have not changed: {}", frozen.size(), join_first_names(frozen)));
    const std::uint64_t twice = different_bits(saved, fixture.weights());
    b.add(twice, fmt::format("{} elements differ between two saves with no step between them", twice));
    const std::uint64_t head = count_head_differences(saved);
    b.add(c.model.tied ? head : 0,
          fmt::format("{} elements of the head differ from the embedding it is tied to", head));
    // Optional: a trainer that keeps two copies can compare them itself.
    const double mismatch = fixture.session().metric("sync_mismatch").value_or(0);
    b.add(mismatch != 0,
          fmt::format("the trainer counts {:g} elements that differ between its copies", mismatch));
    loss = fixture.evaluate(kWeightSyncSteps).loss;
  }
  compare_reloaded(context, mode, saved, loss, b);
  if (b.text.empty())
    b.text = fmt::format(
        "after {} steps all {} tensors have changed; two saves, and a save after loading, have the same bits "
        "and the same loss",
        kWeightSyncSteps, saved.tensors.size());
  return {b.count == 0, static_cast<double>(b.count), 0, b.text};
}

}  // namespace

Result check_weight_sync(Context& context) {
  return run_in_every_mode(context,
                           [&](const std::string& mode) { return judge_weight_sync(context, mode); });
}

}  // namespace trainhost::verify
