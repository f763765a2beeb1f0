// The built program on several emulated GPUs under mpirun, with the fake NCCL: the losses of one process,
// bits after a resume, memory as planned, and one message for what cannot run.
#include <boost/test/data/monomorphic.hpp>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>

#include <signal.h>

#include <atomic>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <thread>

#include "tests/support/mpirun.hpp"
#include "tests/support/small_run.hpp"
#include "tests/support/torchrun.hpp"

using namespace trainhost::test;
using nlohmann::json;
namespace fs = std::filesystem;
namespace data = boost::unit_test::data;

namespace {

const std::string kMemory = "4294967296";  // of each emulated device

RunOptions with_devices(RunOptions o, const std::map<std::string, std::string>& more = {}) {
  const std::string fakes = CUDA_FAKES;
  o.environment.merge(std::map<std::string, std::string>{
      {"TRAINHOST_CUDA_DRIVER", fakes + "/libfakedriver.so"},
      {"TRAINHOST_CUDA_NVML", fakes + "/libfakenvml.so"},
      {"TRAINHOST_NCCL", std::string(CUDA_STAGE) + "/engines/cuda-cublas-13.so"},
      {"FAKE_NVML_FREE", kMemory},
      {"FAKE_CUDA_TOTAL", kMemory},
      {"FAKE_CUDA_DEVICES", "4"},
      {"FAKE_CUDA_SMS", "2"}});
  for (const auto& [k, v] : more) o.environment[k] = v;
  return o;
}

RunOptions machine(int ranks, const std::map<std::string, std::string>& more = {}) {
  return with_devices(ranks > 1 ? under_mpirun(ranks) : RunOptions{}, more);
}

/// A small run with 12 sequences per step on the emulated GPUs. Its text has no validation text, whose
/// evaluation would take longer than the steps.
std::vector<std::string> train(const fs::path& dir, int steps, const std::vector<std::string>& more = {}) {
  std::vector<std::string> sets = {"--no-fallback",
                                   "--plugin-path=" + std::string(CUDA_STAGE) + "/plugins",
                                   "train.micro_batch=2",
                                   "train.backend=\"cuda\"",
                                   "data.train=\"" TRAINHOST_SOURCE_DIR "/LICENSE\"",
                                   "optimizer.schedule=\"constant\""};
  sets.insert(sets.end(), more.begin(), more.end());
  return small_run(dir, steps, sets);
}

/// The bytes of the event files for TensorBoard, which have tags as they are.
std::string events_of(const fs::path& run) {
  std::string all;
  for (const auto& f : fs::directory_iterator(run / "tb")) all += read_file(f.path());
  return all;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(emulated_ranks, *boost::unit_test::precondition(has_mpirun))

BOOST_DATA_TEST_CASE(several_gpus_train_as_one_process_does, data::make({0, 3}), zero) {
  const TemporaryDirectory tmp;
  BOOST_REQUIRE(run_program(train(tmp / "cpu", 3, {"train.backend=\"cpu\""})).code == 0);
  const std::vector<Step> one = steps_of(tmp / "cpu");
  const int ranks = zero == 0 ? 2 : 3;
  const Outcome r =
      run_program(train(tmp / "run", 3, {"parallel.zero=" + std::to_string(zero)}), machine(ranks));
  BOOST_REQUIRE_MESSAGE(r.code == 0, r.err);
  same_losses(one, steps_of(tmp / "run"), std::to_string(ranks) + " ranks");
  const json summary = summary_of(tmp / "run");
  for (const json& t : summary["memory"]["tiers"])
    BOOST_TEST(t["predicted_bytes"] == t["measured_bytes"], t.dump());
  BOOST_TEST(summary["communication"]["bytes"] > 0, summary.dump());
  BOOST_TEST(fs::exists(tmp / "run/model/model.safetensors"));
  for (const char* tag : {"grad_norm/layer_0", "grad_norm/layer_1", "grad_norm/outside_layers"})
    BOOST_TEST(has(events_of(tmp / "run"), tag));
}

// The master weights of bf16 are divided among the ranks.
BOOST_AUTO_TEST_CASE(a_resumed_run_has_the_same_bits) {
  const TemporaryDirectory tmp;
  const auto run = [&](const char* name, int steps, std::vector<std::string> more) {
    more.insert(more.end(), {"parallel.zero=1", "train.precision=\"bf16\"", "output.checkpoint_every=2"});
    const Outcome r = run_program(train(tmp / name, steps, more), machine(2));
    BOOST_REQUIRE_MESSAGE(r.code == 0, r.err);
    return steps_of(tmp / name);
  };
  const std::vector<Step> whole = run("whole", 4, {});
  run("parts", 2, {});
  BOOST_TEST(run("parts", 4, {"--resume"}) == whole, boost::test_tools::per_element());
  BOOST_TEST(
      (read_file(tmp / "whole/model/model.safetensors") == read_file(tmp / "parts/model/model.safetensors")));
}

const std::vector<std::string> kDivided = {"model.num_key_value_heads=2", "model.vocab_size=260"};

/// A run of a model that two TP ranks divide, on data x tensor ranks.
std::vector<Step> train_divided(const fs::path& dir, int steps, int data, int tensor,
                                std::vector<std::string> more = {}) {
  more.insert(more.end(), kDivided.begin(), kDivided.end());
  if (tensor > 1) more.push_back("parallel.tensor=" + std::to_string(tensor));
  const Outcome r = run_program(train(dir, steps, more), machine(data * tensor));
  BOOST_REQUIRE_MESSAGE(r.code == 0, r.err);
  const json summary = summary_of(dir);
  for (const json& t : summary["memory"]["tiers"])
    BOOST_TEST(t["predicted_bytes"] == t["measured_bytes"], t.dump());
  return steps_of(dir);
}

BOOST_AUTO_TEST_CASE(tensor_parallel_gpus_train_as_one_process_does) {
  const TemporaryDirectory tmp;
  const std::string valid = "data.valid_fraction=0.05";
  std::vector<std::string> on_cpu = kDivided;
  on_cpu.insert(on_cpu.end(), {"train.backend=\"cpu\"", valid});
  BOOST_REQUIRE(run_program(train(tmp / "cpu", 3, on_cpu)).code == 0);
  const std::vector<Step> one = steps_of(tmp / "cpu");
  const auto compare = [&](const char* what, int data, std::vector<std::string> more) {
    more.push_back(valid);
    same_losses(one, train_divided(tmp / what, 3, data, 2, more), what);
    BOOST_TEST(fs::exists(tmp / what / "model/model.safetensors"));
  };
  compare("pair", 1, {"train.recompute=\"full\""});
  compare("rows", 1, {"parallel.sequence=true"});
  compare("pairs", 2, {"parallel.zero=3", "train.eval_every=2"});
}

// Compared with one GPU, which rounds sums at other places.
BOOST_AUTO_TEST_CASE(tensor_parallel_gpus_train_in_tf32_and_bf16) {
  const TemporaryDirectory tmp;
  for (const auto& [precision, bound] : {std::pair{"tf32", 1e-4}, {"bf16", 3e-3}}) {
    const std::string set = std::string("train.precision=\"") + precision + "\"";
    const std::vector<Step> one = train_divided(tmp / (std::string("one-") + precision), 3, 1, 1, {set}),
                            many = train_divided(tmp / (std::string("pair-") + precision), 3, 1, 2, {set});
    BOOST_REQUIRE(one.size() == many.size());
    for (std::size_t i = 0; i < one.size(); ++i)
      BOOST_TEST(std::abs(many[i].loss - one[i].loss) <= bound * one[i].loss,
                 precision << ", step " << i << ": " << many[i].loss << " against " << one[i].loss);
  }
}

// Records that are packed attend to themselves alone, frozen weights have no gradient to add up, the norms of
// rows of DoRA are sums over the ranks, and Muon needs matrices of all of them.
BOOST_AUTO_TEST_CASE(tensor_parallel_gpus_train_records_parts_of_the_weights_adapters_and_with_muon) {
  const TemporaryDirectory tmp;
  const fs::path records = tmp / "records.jsonl";
  {
    std::ofstream out(records);
    for (int i = 0; i < 24; ++i)
      out << R"({"text": "record )" << i << (i % 3 ? " is short" : " is longer than the others are")
          << "\"}\n";
  }
  const std::vector<std::string> packed = {"data.train=\"" + records.string() + "\"", "data.packing=true",
                                           "data.seq_len=48", "train.global_batch=8"},
                                 frozen =
                                     {R"(train.freeze=["model.embed_tokens.weight", "model.layers.0.*"])"},
                                 dora = {"lora.dora=true", "lora.rank=2", "train.precision=\"fp32\""},
                                 muon = {"optimizer.name=\"muon\""};
  for (const std::vector<std::string>& run : {packed, frozen, dora, muon}) {
    const std::string what = run[0].substr(0, run[0].find('='));
    const auto part = [&](const char* name, int data, int tensor, std::vector<std::string> more) {
      more.insert(more.end(), run.begin(), run.end());
      return train_divided(tmp / (what + name), 3, data, tensor, more);
    };
    const std::vector<Step> one = part("-one", 1, 1, {});
    same_losses(one, part("-pair", 1, 2, {"parallel.sequence=true"}), what);
    same_losses(one,
                part("-pairs", 2, 2,
                     {run == muon ? "parallel.zero=0" : "parallel.zero=3", "train.recompute=\"full\""}),
                what);
  }
}

// From two TP ranks to one process, and to four ranks, and back.
BOOST_AUTO_TEST_CASE(a_tensor_parallel_run_goes_on_with_the_same_bits_and_with_other_ranks_on_gpus) {
  const TemporaryDirectory tmp;
  const auto part = [&](const char* name, int steps, int data, int tensor,
                        std::vector<std::string> more = {}) {
    more.push_back("output.checkpoint_every=2");
    return train_divided(tmp / name, steps, data, tensor, more);
  };
  const std::vector<Step> whole = part("whole", 4, 1, 2);
  for (const char* name : {"again", "alone", "others"}) part(name, 2, 1, 2);
  BOOST_TEST(part("again", 4, 1, 2, {"--resume"}) == whole, boost::test_tools::per_element());
  BOOST_TEST(
      (read_file(tmp / "again/model/model.safetensors") == read_file(tmp / "whole/model/model.safetensors")));
  same_losses(whole, part("alone", 4, 1, 1, {"--resume"}), "one process");
  same_losses(whole, part("others", 4, 2, 2, {"--resume", "parallel.zero=1"}), "four ranks");
}

struct Mistake {
  std::vector<std::string> sets;
  std::map<std::string, std::string> environment;
  int code;
  const char* says;
};
std::ostream& operator<<(std::ostream& o, const Mistake& m) { return o << m.says; }
const std::vector<Mistake> kMistakes = {
    {{}, {{"FAKE_CUDA_DEVICES", "1"}}, 2, "ranks 0 and 1 use one GPU: device 0 on "},
    {{"plugin.cuda.device=1"}, {}, 2, "ranks 0 and 1 use one GPU: device 1 on "},
    {{"plugin.cuda.mode=\"streamed\""},
     {},
     2,
     "plugin.cuda.mode = \"streamed\": 2 ranks train in mode resident only"},
    {{"parallel.tensor=2"}, {}, 2, "parallel.tensor = 2 does not divide 1 key/value heads"},
    {{"parallel.tensor=2", "model.num_key_value_heads=2", "model.vocab_size=260",
      "plugin.cuda.mode=\"hybrid\""},
     {},
     2,
     "plugin.cuda.mode = \"hybrid\": 2 ranks train in mode resident only"},
    {{"parallel.zero=1", "optimizer.name=\"adafactor\""},
     {},
     2,
     "optimizer.name = \"adafactor\" cannot be divided among ranks"},
    {{}, {{"TRAINHOST_NCCL", "libnccl-absent.so.2"}}, 4, "several ranks need NCCL: libnccl-absent.so.2: "},
};

BOOST_DATA_TEST_CASE(what_cannot_run_is_one_message, data::make(kMistakes), m) {
  const TemporaryDirectory tmp;
  const Outcome r = run_program(train(tmp / "run", 2, m.sets), machine(2, m.environment));
  BOOST_TEST(r.code == m.code, r.err);
  BOOST_TEST(has(r.err, m.says), r.err);
  BOOST_TEST(r.err.find("trainhost: ") == r.err.rfind("trainhost: "), r.err);
  BOOST_TEST(r.seconds < 30);
}

BOOST_AUTO_TEST_CASE(a_rank_that_hangs_ends_the_run_after_the_timeout) {
  const TemporaryDirectory tmp;
  const Outcome r =
      run_program(train(tmp / "run", 50, {"parallel.timeout=3"}), machine(2, {{"FAKE_NCCL_STALL", "1:60"}}));
  BOOST_TEST(r.code != 0);
  BOOST_TEST(has(r.err, "waited 3 s for other ranks while computing a step"), r.err);
  BOOST_TEST(has(r.err, "trainhost: rank "), r.err);
  BOOST_TEST(r.seconds < 40);
}

BOOST_AUTO_TEST_SUITE_END()

// Without MPI: NCCL carries what the processes agree on too.
BOOST_AUTO_TEST_SUITE(torchrun)

BOOST_AUTO_TEST_CASE(processes_of_torchrun_train_as_one_process_does) {
  const TemporaryDirectory tmp;
  BOOST_REQUIRE(run_program(train(tmp / "cpu", 3, {"train.backend=\"cpu\""})).code == 0);
  const Outcome r = run_program(train(tmp / "run", 3, {"parallel.zero=1", "output.checkpoint_every=2"}),
                                with_devices(under_torchrun(2)));
  BOOST_REQUIRE_MESSAGE(r.code == 0, r.err);
  same_losses(steps_of(tmp / "cpu"), steps_of(tmp / "run"), "two ranks");
  const json summary = summary_of(tmp / "run");
  for (const json& t : summary["memory"]["tiers"])
    BOOST_TEST(t["predicted_bytes"] == t["measured_bytes"], t.dump());
  BOOST_TEST(fs::exists(tmp / "run/model/model.safetensors"));
}

/// The process of a run that has RANK=`rank`; 0: none.
pid_t process_of(const fs::path& run, int rank) {
  std::error_code ec;
  for (const auto& e : fs::directory_iterator("/proc", ec))
    if (has(read_file(e.path() / "cmdline"), "output.dir=" + run.string() + '\0') &&
        has('\0' + read_file(e.path() / "environ"),
            std::string(1, '\0') + "RANK=" + std::to_string(rank) + '\0'))
      return std::stoi(e.path().filename());
  return 0;
}

struct Disturbed {
  Outcome outcome;
  double seconds = 0;  // from the signal to the end of the other processes
};

/// Starts a long run and sends `signal` to one rank when ready() is true for the first time.
Disturbed disturb(const fs::path& run, const RunOptions& o, int rank, int signal,
                  const std::function<bool()>& ready, std::vector<std::string> more = {}) {
  more.insert(more.end(), {"parallel.zero=1", "output.checkpoint_every=2"});
  std::atomic<bool> ended{false};
  std::chrono::steady_clock::time_point sent;
  pid_t victim = 0;
  std::thread watcher([&] {
    while (!ended && (!victim || !ready() || ::kill(victim, signal) != 0)) {
      if (!victim) victim = process_of(run, rank);
      ::usleep(2000);
    }
    sent = std::chrono::steady_clock::now();
    if (signal != SIGSTOP) return;
    // A stopped process keeps its launcher from ending: it goes on when the others have ended.
    while (!ended && (process_of(run, 0) || process_of(run, 2))) ::usleep(20000);
    ::kill(victim, SIGCONT);
  });
  Disturbed d;
  d.outcome = run_program(train(run, 1000000, more), o);
  ended = true;
  watcher.join();
  d.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - sent).count();
  BOOST_REQUIRE(victim);
  for (int r = 0; r < 3; ++r) BOOST_TEST(process_of(run, r) == 0);
  return d;
}

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t n = 0;
  for (std::size_t at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++n;
  return n;
}

std::size_t steps_in(const fs::path& run) {
  return count(read_file(run / "metrics.jsonl"), "\"event\":\"step\"");
}

// The launcher of the test ends no process.
BOOST_AUTO_TEST_CASE(a_rank_that_is_killed_ends_the_others_and_is_named) {
  const TemporaryDirectory tmp;
  const auto killed = [&](const char* name, int rank, const std::function<bool(const fs::path&)>& ready,
                          const RunOptions& o) {
    const fs::path run = tmp / name;
    const Disturbed d = disturb(run, o, rank, SIGKILL, [&] { return ready(run); });
    BOOST_TEST_CONTEXT(name << ": " << d.outcome.err) {
      BOOST_TEST(d.outcome.code == 128 + SIGKILL);
      BOOST_TEST(d.seconds < 10);
      BOOST_TEST(count(d.outcome.err, "trainhost: ") == 1u);
      const std::string other = std::to_string(rank == 0 ? 1 : 0);
      BOOST_TEST(has(d.outcome.err, "trainhost: rank " + other + " on "));
      BOOST_TEST(has(d.outcome.err, ": rank " + std::to_string(rank) + " on "));
      BOOST_TEST(has(d.outcome.err, " has ended (process "));
    }
  };
  // Ranks 0 and 1 wait for rank 2, which was not started.
  killed(
      "connecting", 1,
      [begin = std::chrono::steady_clock::now()](const fs::path&) {
        return std::chrono::steady_clock::now() - begin > std::chrono::seconds(3);
      },
      with_devices(under_torchrun(3, 2)));
  killed(
      "step", 1, [](const fs::path& run) { return steps_in(run) >= 3; }, with_devices(under_torchrun(3)));
  killed(
      "checkpoint", 0,
      [](const fs::path& run) {
        std::error_code ec;
        for (const auto& e : fs::recursive_directory_iterator(run / "checkpoints", ec))
          if (has(e.path().string(), "weights-rank-")) return true;
        return false;
      },
      with_devices(under_torchrun(3)));
  // Rank 2 sends nothing more, so the others wait on the device.
  killed(
      "waiting", 1,
      [last = std::size_t{0}, since = std::chrono::steady_clock::now()](const fs::path& run) mutable {
        const auto now = std::chrono::steady_clock::now();
        if (const std::size_t steps = steps_in(run); steps != last || steps == 0) last = steps, since = now;
        return now - since > std::chrono::seconds(2);
      },
      with_devices(under_torchrun(3), {{"FAKE_NCCL_STALL", "2:100"}}));
  const Outcome again =
      run_program(train(tmp / "step", 12, {"parallel.zero=1", "--resume"}), with_devices(under_torchrun(3)));
  BOOST_TEST(again.code == 0, again.err);
}

// When it goes on it learns that the others have ended.
BOOST_AUTO_TEST_CASE(a_rank_that_is_stopped_ends_the_run_after_the_timeout) {
  const TemporaryDirectory tmp;
  const Disturbed d = disturb(tmp / "run", with_devices(under_torchrun(3)), 1, SIGSTOP,
                              [&] { return steps_in(tmp / "run") >= 2; }, {"parallel.timeout=3"});
  BOOST_TEST(d.outcome.code == 1, d.outcome.err);
  BOOST_TEST(d.seconds < 13);
  BOOST_TEST(has(d.outcome.err, "waited 3 s for other ranks "), d.outcome.err);
}

BOOST_AUTO_TEST_CASE(what_is_wrong_with_processes_of_torchrun_is_one_message) {
  const TemporaryDirectory tmp;
  const auto fails = [&](std::vector<std::string> sets, const RunOptions& o, const char* says) {
    sets.push_back("parallel.timeout=2");
    const Outcome r = run_program(train(tmp / "run", 2, sets), o);
    BOOST_TEST(r.code == 2, r.err);
    BOOST_TEST(has(r.err, says), r.err);
    BOOST_TEST(r.err.find("trainhost: ") == r.err.rfind("trainhost: "), r.err);
    BOOST_TEST(r.seconds < 20);
  };
  const std::map<std::string, std::string> one_gpu = {{"FAKE_CUDA_DEVICES", "1"}},
                                           no_nccl = {{"TRAINHOST_NCCL", "libnccl-absent.so.2"}};
  fails({}, with_devices(under_torchrun(3, 1)), "waited 2 s for rank 1 of 3 (WORLD_SIZE)");
  fails({}, with_devices(under_torchrun(2), one_gpu), "ranks 0 and 1 use one GPU: device 0 on ");
  fails({}, with_devices(under_torchrun(2), no_nccl),
        "which only NCCL connects: several ranks need NCCL: libnccl");
  fails({"optimizer.name=\"adan\""}, with_devices(under_torchrun(2)), "adan");
  fails({"parallel.data=3"}, with_devices(under_torchrun(2)), "but torchrun has started 2 processes");
}

BOOST_AUTO_TEST_SUITE_END()
