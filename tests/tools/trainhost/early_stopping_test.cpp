// train.early_stopping, output.model and train.eval_epochs, on the failing trainer: its weight falls with
// every step, and with `lowest_at` = W the validation loss is lowest where the weight is W.
#include <boost/test/unit_test.hpp>
#include <nlohmann/json.hpp>

#include "tests/tools/trainhost/failing_runs.hpp"

using namespace trainhost::test;
namespace fs = std::filesystem;

namespace {

/// Evaluations after steps 2, 4, ...; the lowest loss is that of step 6.
struct EarlyRuns : FailingRuns {
  std::vector<std::string> settings;
  EarlyRuns() {
    data({});
    const std::string lowest = std::to_string(weight_after(text, range(0, 6)));
    settings = {"train.eval_every=2", "data.valid_fraction=0.2", "train.early_stopping=3",
                "plugin.failing.lowest_at=" + lowest};
  }
  Outcome run(std::vector<std::string> more = {}, const RunOptions& o = {}) {
    more.insert(more.begin(), settings.begin(), settings.end());
    return train(more, o);
  }
  nlohmann::json json(const fs::path& file) { return nlohmann::json::parse(read_file(out / file)); }
};

}  // namespace

BOOST_FIXTURE_TEST_SUITE(early_stopping, EarlyRuns)

BOOST_AUTO_TEST_CASE(a_run_ends_when_its_validation_loss_rises_and_keeps_the_best_weights) {
  const Outcome r = run();
  BOOST_REQUIRE_MESSAGE(r.code == 0, r.err);
  BOOST_TEST(events("\"event\":\"step\"") == 12u);  // evaluations 8, 10 and 12 are no improvement
  BOOST_TEST(events("{\"event\":\"early_stop\",\"step\":12,\"evaluations\":3,") == 1u);
  BOOST_TEST(weight() == weight_after(text, range(0, 6)));
  BOOST_TEST(has(r.err, "training ends early, after step 12 of 20: no improvement in 3 evaluations"), r.err);
  BOOST_TEST(has(r.err, "lowest validation loss 2.0000 after step 6"), r.err);
  BOOST_TEST(has(r.err, "model/ has the weights of step 6"), r.err);
  const auto summary = json("summary.json");
  BOOST_TEST(summary["steps"] == 12);
  BOOST_TEST(summary["best"]["step"] == 6);
  BOOST_TEST(summary["model_step"] == 6);
  BOOST_TEST(summary["stopped_early"] == true);
  const auto state = json("model/trainer_state.json");
  BOOST_TEST(state["global_step"] == 6);
  BOOST_TEST(state["max_steps"] == 12);
  BOOST_TEST(state["best_global_step"] == 6);
  BOOST_TEST(state["best_metric"] == summary["best"]["loss"]);
  // The run is finished, though not all of train.steps were computed.
  const Outcome again = run({"--resume=auto"});
  BOOST_TEST(again.code == 0);
  BOOST_TEST(has(again.err, "is finished: nothing to do"), again.err);
}

BOOST_AUTO_TEST_CASE(the_last_weights_are_the_model_where_that_is_asked_for) {
  const Outcome r = run({"output.model=last"});
  BOOST_REQUIRE_MESSAGE(r.code == 0, r.err);
  BOOST_TEST(weight() == weight_after(text, range(0, 12)));
  BOOST_TEST(json("model/trainer_state.json")["global_step"] == 12);
  BOOST_TEST(read_file(out / "checkpoints/best") == "step-6\n");
  // Without early stopping the run computes every step, and the best weights can be the model all the same.
  settings[2] = "output.model=best";
  BOOST_REQUIRE(run({"--overwrite"}).code == 0);
  BOOST_TEST(events("\"event\":\"step\"") == 20u);
  BOOST_TEST(weight() == weight_after(text, range(0, 6)));
  // The usual run: the model is that of the last step, and nothing is kept besides.
  settings[2] = "output.keep_best=false";
  BOOST_REQUIRE(run({"--overwrite"}).code == 0);
  BOOST_TEST(weight() == weight_after(text, range(0, 20)));
  BOOST_TEST(!fs::exists(out / "checkpoints"));
}

BOOST_AUTO_TEST_CASE(a_resumed_run_ends_where_an_uninterrupted_one_does) {
  RunOptions stop;
  bool sent = false;
  stop.watch = [&](pid_t pid, const std::string& output) {
    if (!sent && has(output, "\"event\":\"eval\",\"step\":8,")) sent = kill(pid, SIGKILL) == 0;
  };
  run({"--json", "output.checkpoint_every=1", "output.keep=9"}, stop);
  // The checkpoint after step 8 would hide what is tested: that of step 7 must count the evaluations before
  // it.
  for (const int step : {9, 10, 11, 12}) fs::remove_all(out / ("checkpoints/step-" + std::to_string(step)));
  const Outcome r = run({"--resume", "output.checkpoint_every=1", "output.keep=9"});
  BOOST_REQUIRE_MESSAGE(r.code == 0, r.err);
  BOOST_TEST(json("summary.json")["steps"] == 12);
  BOOST_TEST(weight() == weight_after(text, range(0, 6)));
  // Continuing it computes no step.
  BOOST_TEST(run({"--resume", "output.checkpoint_every=1"}).code == 0);
  BOOST_TEST(json("summary.json")["steps"] == 12);
  // More patience, and it goes on.
  settings[2] = "train.early_stopping=5";
  BOOST_TEST(run({"--resume", "output.checkpoint_every=1"}).code == 0);
  BOOST_TEST(json("summary.json")["steps"] == 16);
}

BOOST_AUTO_TEST_CASE(steps_that_are_computed_again_are_not_evaluated_again) {
  settings.push_back("train.on_spike=skip");
  settings.push_back("train.spike_window=8");
  data({{9, 'S'}});
  const Outcome r = run();
  BOOST_REQUIRE_MESSAGE(r.code == 0, r.err);
  BOOST_TEST(has(r.err, "its update was skipped"), r.err);
  BOOST_TEST(json("summary.json")["steps"] == 12);
  BOOST_TEST(events("\"event\":\"eval\"") == 6u);
}

BOOST_AUTO_TEST_CASE(evaluations_can_be_given_in_epochs) {
  settings[0] = "train.eval_epochs=0.25";  // of 51 sequences for training: 13 steps
  settings[2] = "train.steps=30";
  BOOST_REQUIRE(run().code == 0);
  BOOST_TEST(events("\"event\":\"eval\",\"step\":13,") == 1u);
  BOOST_TEST(events("\"event\":\"eval\",\"step\":26,") == 1u);
  BOOST_TEST(events("\"event\":\"eval\"") == 3u);
}

BOOST_AUTO_TEST_CASE(a_damaged_best_checkpoint_is_an_error_and_no_model) {
  settings[2] = "output.model=best";
  const auto damage = [&] { fs::resize_file(out / "checkpoints/step-6/weights.safetensors", 100); };
  RunOptions o;
  bool damaged = false;
  // The events of the run are more than a pipe holds, so it has not ended when the first ones are seen.
  o.watch = [&](pid_t, const std::string& output) {
    if (!damaged && has(output, "\"event\":\"eval\",\"step\":12,")) damage(), damaged = true;
  };
  Outcome r = run({"--json", "train.steps=2000", "output.keep=2"}, o);
  BOOST_TEST(r.code == 1);
  BOOST_TEST(has(r.err, "the checkpoint of step 6, with the lowest validation loss, is missing or damaged"),
             r.err);
  BOOST_TEST(!fs::exists(out / "model"));
  // A resumed run says that it compares with nothing.
  BOOST_REQUIRE(run({"--overwrite", "output.checkpoint_every=20"}).code == 0);
  damage();
  r = run({"--resume", "--steps=24"});
  BOOST_REQUIRE_MESSAGE(r.code == 0, r.err);
  BOOST_TEST(has(r.err, "the best checkpoint is missing or damaged: no later one is compared with it"),
             r.err);
  BOOST_TEST(json("model/trainer_state.json")["global_step"] == 22);
}

BOOST_AUTO_TEST_CASE(settings_without_effect_are_refused) {
  const auto message = [&](std::vector<std::string> more) {
    const Outcome r = train(more);
    BOOST_TEST(r.code == 2);
    BOOST_TEST(!fs::exists(out));
    return r.err;
  };
  BOOST_TEST(has(message({"train.early_stopping=3"}),
                 "train.early_stopping = 3 counts evaluations, but the run has none before its end"));
  BOOST_TEST(has(message({"train.early_stopping_min_delta=0.1"}), "requires train.early_stopping"));
  BOOST_TEST(has(message({"train.eval_every=2", "train.eval_epochs=1.0"}), "cannot be combined"));
}

BOOST_AUTO_TEST_SUITE_END()
