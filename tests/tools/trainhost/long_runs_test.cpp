// Policies for long runs: steps that are not finite, spikes, verified steps, checkpoints by time, of the best
// loss and in the background, --resume=auto, more steps, and what a killed run leaves. The failures are in
// the data of failing_trainer.cpp, whose weights show which batches were trained.
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "tests/tools/trainhost/failing_runs.hpp"

using namespace trainhost::test;
namespace fs = std::filesystem;

namespace {

std::vector<std::string> spikes(std::vector<std::string> more) {
  more.push_back("train.spike_window=8");
  return more;
}

}  // namespace

BOOST_FIXTURE_TEST_SUITE(long_runs, FailingRuns)

// Steps of half a second or more in all, after which the peak rate is measured.
BOOST_AUTO_TEST_CASE(the_summary_gives_the_speed_of_the_whole_run_and_its_mfu) {
  const Outcome r = run_program({"train", "--backend=cpu", "--set", "train.steps=120", "--set",
                                 "train.threads=1", "--set", "output.dir=" + (tmp / "out").string()});
  BOOST_REQUIRE(r.code == 0);
  const auto done = nlohmann::json::parse(read_file(tmp / "out/summary.json"));
  const double rate = done.at("tokens_per_s"), mfu = done.at("mfu");
  BOOST_TEST((mfu > 0 && mfu <= 1));
  BOOST_TEST(has(r.out + r.err, " tokens/s, MFU " + std::to_string(std::lround(100 * mfu)) + " %)"), r.err);
  // 120 steps of 4 x 128 tokens in what metrics.jsonl says they took.
  double seconds = 0;
  std::istringstream lines(read_file(tmp / "out/metrics.jsonl"));
  for (std::string line; std::getline(lines, line);)
    if (const auto e = nlohmann::json::parse(line); e.at("event") == "step")
      seconds += e.at("ms").get<double>() / 1000;
  BOOST_TEST(std::abs(rate * seconds / (120 * 4 * 128) - 1) < 0.01);
}

BOOST_AUTO_TEST_CASE(the_update_of_a_step_that_is_not_finite_is_skipped) {
  data({{5, 'N'}});
  Outcome r = train({"train.on_nonfinite=skip"});
  BOOST_REQUIRE_MESSAGE(r.code == 0, r.err);
  BOOST_TEST(weight() == weight_after(text, range(0, 20, {5})));
  BOOST_TEST(events("{\"event\":\"skip\",\"step\":6,\"reason\":\"nonfinite\",") == 1u);
  BOOST_TEST(events("\"event\":\"step\"") == 19u);
  BOOST_TEST(has(read_file(out / "summary.json"), "\"skipped_steps\":1"));
  // Without the policy the run ends, as before.
  r = train({"--overwrite"});
  BOOST_TEST(r.code == 1);
  BOOST_TEST(has(r.err, "step 6: "), r.err);
}

BOOST_AUTO_TEST_CASE(a_rollback_continues_from_the_checkpoint_with_the_data_after_the_step) {
  data({{9, 'N'}});
  const Outcome r = train({"train.on_nonfinite=rollback", "output.checkpoint_every=4"});
  BOOST_REQUIRE_MESSAGE(r.code == 0, r.err);
  // Back to step 8; batches 8 and 9 are left out.
  BOOST_TEST(weight() == weight_after(text, range(0, 8) + range(10, 22)));
  BOOST_TEST(events("{\"event\":\"rollback\",\"step\":8,\"from_step\":10,\"reason\":\"nonfinite\","
                    "\"batch_offset\":2,") == 1u);
  BOOST_TEST(events("\"event\":\"step\"") == 20u);
  BOOST_TEST(has(read_file(out / "summary.json"), "\"rollbacks\":1"));
}

BOOST_AUTO_TEST_CASE(the_update_of_a_spike_is_undone_with_and_without_a_checkpoint) {
  data({{13, 'S'}});
  for (const char* every : {"0", "5"}) {
    const Outcome r = train(
        spikes({"train.on_spike=skip", std::string("output.checkpoint_every=") + every, "--overwrite"}));
    BOOST_REQUIRE_MESSAGE(r.code == 0, r.err);
    BOOST_TEST(weight() == weight_after(text, range(0, 20, {13})), every);
    BOOST_TEST(events("{\"event\":\"skip\",\"step\":14,\"reason\":\"spike\",\"loss\":100") == 1u, metrics());
    BOOST_TEST(events("\"event\":\"step\"") == 19u);
  }
  // By default a spike is trained.
  BOOST_REQUIRE(train(spikes({"--overwrite"})).code == 0);
  BOOST_TEST(weight() == weight_after(text, range(0, 20)));
}

BOOST_AUTO_TEST_CASE(two_failures_between_two_checkpoints_are_both_left_out) {
  data({{11, 'N'}, {13, 'S'}});
  const Outcome r =
      train(spikes({"train.on_spike=skip", "train.on_nonfinite=skip", "output.checkpoint_every=10"}));
  BOOST_REQUIRE_MESSAGE(r.code == 0, r.err);
  BOOST_TEST(weight() == weight_after(text, range(0, 20, {11, 13})));
}

BOOST_AUTO_TEST_CASE(a_run_that_stops_at_a_spike_can_be_continued_without_it) {
  data({{13, 'S'}});
  Outcome r = train(spikes({"train.on_spike=stop", "output.checkpoint_every=5"}));
  BOOST_TEST(r.code == 1);
  BOOST_TEST(has(r.err, "step 14: the loss 100.0000 is "), r.err);
  BOOST_TEST(has(r.err, "--resume with --set train.on_spike=skip"), r.err);
  BOOST_TEST(fs::exists(out / "checkpoints/step-13"));
  BOOST_TEST(has(read_file(out / "status.json"), "\"failed\""));
  r = train(spikes({"train.on_spike=skip", "--resume"}));
  BOOST_REQUIRE_MESSAGE(r.code == 0, r.err);
  BOOST_TEST(weight() == weight_after(text, range(0, 20, {13})));
}

BOOST_AUTO_TEST_CASE(a_run_resumed_after_a_rollback_reads_the_same_data) {
  data({{13, 'S'}});
  const std::vector<std::string> sets = spikes({"train.on_spike=rollback", "output.checkpoint_every=4"});
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), sets.begin(), sets.end());
    return train(more);
  };
  BOOST_REQUIRE(with({"--steps=16"}).code == 0);
  const Outcome r = with({"--resume"});  // 20 steps: more than before
  BOOST_REQUIRE_MESSAGE(r.code == 0, r.err);
  BOOST_TEST(has(r.err, "train.steps was 16 and is 20"), r.err);
  BOOST_TEST(weight() == weight_after(text, range(0, 12) + range(14, 22)));
}

BOOST_AUTO_TEST_CASE(many_failures_in_a_row_end_the_run) {
  std::vector<Mark> marks;
  for (int b = 5; b < 64; ++b) marks.push_back({b, 'N'});
  data(marks);
  for (const char* policy : {"skip", "rollback"}) {
    const Outcome r = train({std::string("train.on_nonfinite=") + policy, "--overwrite"});
    BOOST_TEST(r.code == 1);
    BOOST_TEST(has(r.err, "steps in a row have failed"), r.err);
  }
}

BOOST_AUTO_TEST_CASE(a_loss_that_is_not_finite_names_the_first_such_weight_and_saves_no_such_state) {
  data({{5, 'I'}});
  Outcome r = train({"output.checkpoint_every=4"});
  BOOST_TEST(r.code == 1);
  BOOST_TEST(has(r.err, "step 7: "), r.err);
  BOOST_TEST(has(r.err, "the first weight that is not finite is model.norm.weight"), r.err);
  BOOST_TEST(fs::exists(out / "checkpoints/step-4"));
  BOOST_TEST(!fs::exists(out / "checkpoints/step-6"));
  // Returning to the checkpoint brings finite weights back.
  r = train({"train.on_nonfinite=rollback", "--resume"});
  BOOST_REQUIRE_MESSAGE(r.code == 0, r.err);
  BOOST_TEST(weight() == weight_after(text, range(0, 4) + range(7, 23)));
}

BOOST_AUTO_TEST_CASE(a_weight_that_is_not_finite_is_found_before_a_checkpoint) {
  data({{5, 'I'}});
  Outcome r = train({"output.checkpoint_every=3"});
  BOOST_TEST(r.code == 1);
  BOOST_TEST(has(r.err, "tensor 'model.norm.weight' has a value that is NaN or infinite"), r.err);
  BOOST_TEST(fs::exists(out / "checkpoints/step-3"));
  BOOST_TEST(!fs::exists(out / "checkpoints/step-6"));
  r = train({"output.checkpoint_every=3", "train.on_nonfinite=rollback", "--overwrite"});
  BOOST_REQUIRE_MESSAGE(r.code == 0, r.err);
  BOOST_TEST(has(r.err, "step 6: model.norm.weight is not finite after it"), r.err);
  BOOST_TEST(weight() == weight_after(text, range(0, 3) + range(6, 23)));
}

BOOST_AUTO_TEST_CASE(a_step_computed_twice_reveals_a_changed_bit) {
  data({});
  Outcome r = train({"train.verify_every=7", "plugin.failing.flip_at=7"});
  BOOST_TEST(r.code == 1);
  BOOST_TEST(has(r.err, "step 7 was computed twice with different results"), r.err);
  BOOST_TEST(has(r.err, "weights of model.norm.weight"), r.err);
  BOOST_TEST(fs::exists(out / "checkpoints/step-6"));
  BOOST_REQUIRE(train({"--overwrite"}).code == 0);
  const float expected = weight();
  r = train({"--overwrite", "train.verify_every=3"});
  BOOST_REQUIRE_MESSAGE(r.code == 0, r.err);
  BOOST_TEST(weight() == expected);
  BOOST_TEST(events("\"event\":\"verify\"") == 6u);
  BOOST_TEST(has(r.err, "equal"), r.err);  // the copy is part of the predicted memory
}

BOOST_AUTO_TEST_CASE(resume_auto_starts_continues_and_ends) {
  data({});
  const std::vector<std::string> command = {"--resume=auto", "output.checkpoint_every=5"};
  Outcome r = train(command);
  BOOST_REQUIRE_MESSAGE(r.code == 0, r.err);
  const float expected = weight();
  r = train(command);
  BOOST_TEST(r.code == 0);
  BOOST_TEST(has(r.err, "is finished: nothing to do"), r.err);
  r = train({"--resume=auto", "output.checkpoint_every=5", "train.steps=30"});
  BOOST_TEST(r.code == 0, r.err);
  BOOST_TEST(weight() == weight_after(text, range(0, 30)));
  // A run that was stopped.
  fs::remove_all(out / "model");
  fs::remove(out / "summary.json");
  for (const char* step : {"step-25", "step-30"}) fs::remove_all(out / "checkpoints" / step);
  BOOST_REQUIRE(train({"--overwrite", "--steps=10", "output.checkpoint_every=5"}).code == 0);
  fs::remove_all(out / "model");
  fs::remove(out / "summary.json");
  r = train(command);
  BOOST_TEST(has(r.err, "weights: checkpoint of step 10"), r.err);
  BOOST_TEST(weight() == expected);
  r = train({"--resume=yes"});
  BOOST_TEST(r.code == 2);
  BOOST_TEST(has(r.err, "--resume=auto"), r.err);
}

BOOST_AUTO_TEST_CASE(other_options_of_the_trainer_are_reported_when_resuming) {
  data({});
  BOOST_REQUIRE(train({"--steps=10", "output.checkpoint_every=5"}).code == 0);
  BOOST_TEST(!has(train({"--resume", "--steps=12"}).err, "options of the trainer"));
  const Outcome r = train({"--resume", "plugin.failing.flip_at=7"});
  BOOST_TEST(r.code == 0, r.err);
  BOOST_TEST(has(r.err, "the options of the trainer failing were 'none' and are 'flip_at = 7'"), r.err);
}

BOOST_AUTO_TEST_CASE(a_run_cannot_end_before_its_checkpoint) {
  data({});
  BOOST_REQUIRE(train({"output.checkpoint_every=5"}).code == 0);
  const Outcome r = train({"--resume", "--steps=15"});
  BOOST_TEST(r.code == 2);
  BOOST_TEST(has(r.err, "the checkpoint is of step 20, but train.steps = 15"), r.err);
}

BOOST_AUTO_TEST_CASE(the_best_checkpoint_is_kept_beside_the_last_ones) {
  data({});
  const Outcome r = train({"output.checkpoint_every=4", "output.keep_best=true", "train.eval_every=4",
                           "data.valid_fraction=0.2"});
  BOOST_REQUIRE_MESSAGE(r.code == 0, r.err);
  // The loss of this trainer depends on the data alone, so no later evaluation is better than the first.
  BOOST_TEST(read_file(out / "checkpoints/best") == "step-4\n");
  std::set<std::string> names;
  for (const auto& e : fs::directory_iterator(out / "checkpoints"))
    names.insert(e.path().filename().string());
  BOOST_TEST((names == std::set<std::string>{"best", "latest", "step-16", "step-20", "step-4"}));
  BOOST_TEST(has(read_file(out / "summary.json"), "\"best\":{\"step\":4"));
  BOOST_TEST(train({"output.keep_best=true", "--overwrite"}).code == 2);  // no validation text
}

BOOST_AUTO_TEST_CASE(losses_of_two_validation_texts_are_not_compared) {
  data({});
  const std::string valid = "data.valid=" + (tmp / "valid.txt").string();
  tmp.write("valid.txt", text);
  const std::vector<std::string> settings = {"output.checkpoint_every=4", "output.keep_best=true",
                                             "train.eval_every=4", valid};
  BOOST_REQUIRE(train(settings).code == 0);
  const auto resumed = [&](const char* steps) {
    std::vector<std::string> more = settings;
    more.insert(more.end(), {"--resume", steps});
    const Outcome r = train(more);
    BOOST_REQUIRE_MESSAGE(r.code == 0, r.err);
    return r.err;
  };
  BOOST_TEST(!has(resumed("--steps=24"), "another data.valid"));
  tmp.write("valid.txt", text + text);
  const std::string said = resumed("--steps=28");
  BOOST_TEST(has(said, "the best checkpoint, of step 4, was measured on another data.valid"), said);
  // The state that the run continues from is evaluated on the new text; its checkpoint has that loss from now
  // on.
  BOOST_TEST(read_file(out / "checkpoints/best") == "step-24\n");
  BOOST_TEST(!has(resumed("--steps=32"), "another data.valid"));
  BOOST_TEST(read_file(out / "checkpoints/best") == "step-24\n");
}

BOOST_AUTO_TEST_CASE(checkpoints_are_written_by_time) {
  data({});
  const Outcome r = train({"train.checkpoint_minutes=1e-9"});
  BOOST_REQUIRE_MESSAGE(r.code == 0, r.err);
  BOOST_TEST(events("\"event\":\"checkpoint\"") == 20u);
}

BOOST_AUTO_TEST_CASE(checkpoints_written_in_the_background_have_the_same_content) {
  data({});
  BOOST_REQUIRE(train({"output.checkpoint_every=3", "output.keep=9"}).code == 0);
  std::map<std::string, std::string> expected;
  for (const auto& e : fs::recursive_directory_iterator(out / "checkpoints"))
    if (e.path().extension() == ".safetensors")
      expected[fs::relative(e.path(), out).string()] = read_file(e.path());
  BOOST_TEST(expected.size() == 7u * 3);
  const Outcome r =
      train({"output.checkpoint_every=3", "output.keep=9", "output.async_checkpoints=true", "--overwrite"});
  BOOST_REQUIRE_MESSAGE(r.code == 0, r.err);
  BOOST_TEST(has(r.err, "equal"), r.err);
  for (const auto& [name, content] : expected) BOOST_TEST((read_file(out / name) == content), name);
}

BOOST_AUTO_TEST_CASE(the_start_after_a_kill_names_the_cause) {
  data({});
  RunOptions o;
  bool sent = false;
  o.watch = [&](pid_t pid, const std::string& output) {
    if (!sent && has(output, "\"step\":50,")) sent = kill(pid, SIGKILL) == 0;
  };
  Outcome r = train({"--json", "train.steps=100000000", "output.checkpoint_every=20"}, o);
  BOOST_REQUIRE(r.code > 128);
  nlohmann::json status = nlohmann::json::parse(read_file(out / "status.json"));
  BOOST_TEST(status["state"] == "running");
  r = train({"--overwrite"});
  BOOST_TEST(r.code == 0, r.err);
  BOOST_TEST(has(r.err, "the last run in this folder was ended after step "), r.err);
  BOOST_TEST(has(r.err, "killed (SIGKILL)"), r.err);
  BOOST_TEST(has(read_file(out / "status.json"), "\"finished\""));
  // The counters of the kernel, as if it had ended a process since.
  fs::remove(out / "summary.json");
  fs::remove_all(out / "model");
  std::ifstream boot_file("/proc/sys/kernel/random/boot_id");
  std::string boot, host(256, '\0');
  std::getline(boot_file, boot);
  gethostname(host.data(), host.size() - 1);
  tmp.write("out/status.json", "{\"state\":\"running\",\"host\":\"" + std::string(host.c_str()) +
                                   "\",\"boot\":\"" + boot + "\",\"machine_oom_kills\":-1}");
  r = train({"--overwrite"});
  BOOST_TEST(has(r.err, "memory was used up"), r.err);
  if (status.contains("cgroup_oom_kills")) {
    // Both counters rise when a limit of a cgroup is reached; the cause is then the limit. In another cgroup
    // its counter says nothing.
    status["cgroup_oom_kills"] = status["machine_oom_kills"] = -1;
    tmp.write("out/status.json", status.dump());
    r = train({"--overwrite"});
    BOOST_TEST(has(r.err, "the memory limit of its cgroup was reached"), r.err);
    status["cgroup"] = "/another";
    tmp.write("out/status.json", status.dump());
    r = train({"--overwrite"});
    BOOST_TEST(has(r.err, "memory was used up"), r.err);
  } else {
    BOOST_TEST_MESSAGE("skipped: this process has no cgroup with a counter of ended processes");
  }
  tmp.write("out/status.json",
            "{\"state\":\"running\",\"host\":\"" + std::string(host.c_str()) + "\",\"boot\":\"another\"}");
  r = train({"--overwrite"});
  BOOST_TEST(has(r.err, "the machine was restarted"), r.err);
}

BOOST_AUTO_TEST_CASE(a_signal_before_the_first_step_ends_the_run_at_once) {
  data({});
  const Outcome stopped = train({"plugin.failing.stop_in_init=1"});
  BOOST_TEST(stopped.code == 75);
  for (const char* part : {"SIGTERM: stopping before the first step", "before a step was computed"})
    BOOST_TEST(has(stopped.err, part), stopped.err);
  BOOST_TEST(metrics().empty());
  BOOST_TEST(!fs::exists(out / "model"));
  if (fs::exists(out / "checkpoints")) BOOST_TEST(fs::is_empty(out / "checkpoints"));
  const Outcome again = train({});
  BOOST_REQUIRE_MESSAGE(again.code == 0, again.err);
  BOOST_TEST(weight() == weight_after(text, range(0, 20)));
}

BOOST_AUTO_TEST_CASE(a_profile_and_steps_that_are_repeated_exclude_each_other) {
  data({});
  const Outcome r = train({"--profile=" + (tmp / "trace.json").string(), "train.verify_every=2"});
  BOOST_TEST(r.code == 2);
  BOOST_TEST(has(r.err, "--profile cannot be combined with train.verify_every"), r.err);
}

BOOST_AUTO_TEST_SUITE_END()
