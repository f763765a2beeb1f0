// Runs of several processes under mpirun: the same losses as one process, the same bits from run to run and
// after a resume, and one message for a mistake. Processes that fail: rank_failures_test.cpp.
#include <boost/test/data/monomorphic.hpp>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/support/mpirun.hpp"
#include "tests/support/small_run.hpp"
#include "tests/support/torchrun.hpp"

using namespace trainhost::test;
namespace fs = std::filesystem;
using json = nlohmann::json;

namespace {

/// What `plan` says about the first rank of a small run.
std::uint64_t planned_bytes(int ranks, int zero) {
  std::vector<std::string> words = small_run(
      "unused", 1, {"parallel.data=" + std::to_string(ranks), "parallel.zero=" + std::to_string(zero)});
  words.erase(words.begin(), words.begin() + 2);
  words.insert(words.begin(), {"plan", "--json"});
  const Outcome r = run_program(words);
  BOOST_REQUIRE_MESSAGE(r.code == 0, r.err);
  const json plan = json::parse(r.out);
  BOOST_TEST(plan["rank"] == 0);
  BOOST_TEST(plan["estimates"][0]["kind"] == "exact");
  return plan["estimates"][0]["total_bytes"];
}

/// Each combination trains 100 steps with TRAINHOST_ALL_STEPS, else some of them, and 20 the others.
bool all_steps() { return std::getenv("TRAINHOST_ALL_STEPS") != nullptr; }

BOOST_AUTO_TEST_SUITE(ranks, *boost::unit_test::precondition(has_mpirun))

BOOST_DATA_TEST_CASE(any_number_of_processes_trains_the_same, boost::unit_test::data::make({0, 1, 2, 3}),
                     zero) {
  const TemporaryDirectory tmp;
  const std::vector<std::string> set = {"parallel.zero=" + std::to_string(zero),
                                        "optimizer.schedule=\"constant\""};
  BOOST_REQUIRE(run_program(small_run(tmp / "1", 100, {set[1]})).code == 0);
  const std::vector<Step> one = steps_of(tmp / "1");
  for (int ranks : {2, 3, 4}) {
    const fs::path dir = tmp / std::to_string(ranks);
    const int steps = ranks == 2 + zero % 3 || all_steps() ? 100 : 20;
    const Outcome r = run_program(small_run(dir, steps, set), under_mpirun(ranks));
    BOOST_REQUIRE_MESSAGE(r.code == 0, r.err);
    same_losses({one.begin(), one.begin() + steps}, steps_of(dir), std::to_string(ranks) + " ranks");
    const json memory = summary_of(dir)["memory"];
    BOOST_TEST(memory["predicted_bytes"] == memory["measured_bytes"]);
    BOOST_TEST(memory["predicted_bytes"] == planned_bytes(ranks, zero));
    BOOST_TEST(fs::exists(dir / "model/model.safetensors"));
  }
}

/// Tensor-parallel ranks, alone and with data-parallel ones.
const std::vector<std::string> kTwoHeads = {"model.num_key_value_heads=2", "model.vocab_size=260",
                                            "parallel.tensor=2"};

BOOST_AUTO_TEST_CASE(tensor_parallel_processes_train_as_one_does) {
  const TemporaryDirectory tmp;
  std::vector<std::string> alone = kTwoHeads;
  alone.back() = "optimizer.schedule=\"constant\"";
  BOOST_REQUIRE(run_program(small_run(tmp / "1", 100, alone)).code == 0);
  const std::vector<Step> one = steps_of(tmp / "1");
  for (const auto& [ranks, zero, recompute, sequence] : {std::tuple{2, 0, "none", false},
                                                         {2, 0, "full", true},
                                                         {4, 0, "selective", false},
                                                         {4, 1, "none", true},
                                                         {4, 2, "full", false},
                                                         {4, 3, "none", true}}) {
    const fs::path dir = tmp / (std::to_string(ranks) + "-" + std::to_string(zero) + recompute);
    std::vector<std::string> more = kTwoHeads;
    more.insert(more.end(), {alone.back(), "parallel.zero=" + std::to_string(zero)});
    if (sequence) more.push_back("parallel.sequence=true");
    more.push_back(std::string("train.recompute=\"") + recompute + "\"");
    const int steps = zero == 3 || (ranks == 2 && sequence) || all_steps() ? 100 : 20;
    const Outcome r = run_program(small_run(dir, steps, more), under_mpirun(ranks));
    BOOST_REQUIRE_MESSAGE(r.code == 0, r.err);
    same_losses({one.begin(), one.begin() + steps}, steps_of(dir), dir.filename().string());
    const json memory = summary_of(dir)["memory"];
    BOOST_TEST(memory["predicted_bytes"] == memory["measured_bytes"]);
    BOOST_TEST(!has(r.err, "is not the one of its plan"), r.err);
  }
}

// From two tensor-parallel processes to one, and to four of which two are data-parallel, and back.
BOOST_AUTO_TEST_CASE(a_tensor_parallel_run_goes_on_with_the_same_bits_and_with_other_ranks) {
  const TemporaryDirectory tmp;
  const auto part = [&](const char* name, int steps, int ranks, std::vector<std::string> more,
                        bool tensor = true) {
    more.insert(more.end(), kTwoHeads.begin(), kTwoHeads.end() - !tensor);
    more.insert(more.end(),
                {"optimizer.schedule=\"constant\"", "output.checkpoint_every=10", "train.eval_every=5"});
    const Outcome r =
        run_program(small_run(tmp / name, steps, more), ranks == 1 ? RunOptions{} : under_mpirun(ranks));
    BOOST_REQUIRE_MESSAGE(r.code == 0, r.err);
    return steps_of(tmp / name);
  };
  const std::vector<Step> whole = part("whole", 20, 2, {});
  for (const char* name : {"again", "others", "alone"}) part(name, 10, 2, {});
  BOOST_TEST(part("again", 20, 2, {"--resume"}) == whole, boost::test_tools::per_element());
  BOOST_TEST(
      (read_file(tmp / "again/model/model.safetensors") == read_file(tmp / "whole/model/model.safetensors")));
  part("alone", 15, 1, {"--resume"}, false);
  part("others", 15, 4, {"--resume", "parallel.zero=3"});
  for (const char* name : {"alone", "others"}) {
    same_losses(whole, part(name, 20, 2, {"--resume"}), name);
  }
}

// What TP ranks divide of adapters and of 8-bit moments, in a run that one process ends.
BOOST_AUTO_TEST_CASE(adapters_and_8_bit_moments_go_on_with_other_tensor_parallel_ranks) {
  const TemporaryDirectory tmp;
  const std::vector<std::string> adapters = {"lora.rank=2", "lora.dora=true", "lora.dropout=0.1",
                                             "train.precision=\"fp32\""},
                                 moments = {"optimizer.name=\"adamw-8bit\"", "model.num_attention_heads=4",
                                            "model.head_dim=128", "model.intermediate_size=512",
                                            "model.vocab_size=288"};
  for (const std::vector<std::string>& run : {adapters, moments}) {
    const auto part = [&](const std::string& name, int steps, int ranks, std::vector<std::string> more) {
      more.insert(more.end(), kTwoHeads.begin(), kTwoHeads.end() - (ranks == 1));
      more.insert(more.end(), run.begin(), run.end());
      more.insert(more.end(), {"optimizer.schedule=\"constant\"", "output.checkpoint_every=4"});
      const Outcome r = run_program(small_run(tmp / (run[0] + name), steps, more),
                                    ranks == 1 ? RunOptions{} : under_mpirun(ranks));
      BOOST_REQUIRE_MESSAGE(r.code == 0, r.err);
      return steps_of(tmp / (run[0] + name));
    };
    const std::vector<Step> whole = part("whole", 8, 2, {});
    part("parts", 4, 2, {});
    same_losses(whole, part("parts", 8, 1, {"--resume"}), run[0]);
  }
}

// Another number of ranks, also one, goes on from the files of all.
BOOST_DATA_TEST_CASE(a_run_goes_on_with_the_same_bits_and_with_other_ranks,
                     boost::unit_test::data::make({1, 3}), zero) {
  const TemporaryDirectory tmp;
  const std::string stage = "parallel.zero=" + std::to_string(zero);
  const auto part = [&](const char* name, int steps, int ranks, std::vector<std::string> more) {
    more.insert(more.end(), {"optimizer.schedule=\"constant\"", "output.checkpoint_every=10"});
    const Outcome r =
        run_program(small_run(tmp / name, steps, more), ranks == 1 ? RunOptions{} : under_mpirun(ranks));
    BOOST_REQUIRE_MESSAGE(r.code == 0, r.err);
    return steps_of(tmp / name);
  };
  const std::vector<Step> whole = part("whole", 20, 3, {stage});
  for (const char* name : {"again", "others", "alone"}) part(name, 10, 3, {stage});
  BOOST_TEST(part("again", 20, 3, {stage, "--resume"}) == whole, boost::test_tools::per_element());
  for (const auto& [name, ranks] : {std::pair{"others", 2}, {"alone", 1}}) {
    same_losses(whole, part(name, 20, ranks, {"--resume"}), name);
  }
}

/// With a number of validation batches that the ranks do not divide, and a sample of generated text.
BOOST_AUTO_TEST_CASE(processes_with_shards_of_the_weights_evaluate_and_generate) {
  const TemporaryDirectory tmp;
  const auto run = [&](const char* name, int ranks, std::vector<std::string> more) {
    more.insert(more.end(), {"train.eval_every=2"});
    std::vector<std::string> words = small_run(tmp / name, 4, more);
    words.erase(words.begin() + 1);  // -q
    const Outcome r = run_program(words, ranks == 1 ? RunOptions{} : under_mpirun(ranks));
    BOOST_REQUIRE_MESSAGE(r.code == 0, r.err);
    BOOST_TEST(has(r.out + r.err, "sample of generated text"), r.out + r.err);
    std::vector<double> losses;
    std::istringstream lines(read_file(tmp / name / "metrics.jsonl"));
    for (std::string line; std::getline(lines, line);)
      if (const json e = json::parse(line); e["event"] == "eval") losses.push_back(e["loss"]);
    return losses;
  };
  const std::vector<double> one = run("1", 1, {}), many = run("3", 3, {"parallel.zero=3"});
  std::vector<std::string> heads = kTwoHeads;
  const std::vector<double> divided = run("4", 4, heads);
  heads.pop_back();
  const std::vector<double> whole = run("whole", 1, heads);
  BOOST_REQUIRE(divided.size() == whole.size());
  for (std::size_t i = 0; i < whole.size(); ++i)
    BOOST_TEST(std::abs(divided[i] - whole[i]) <= 1e-5 * whole[i]);
  BOOST_REQUIRE(one.size() == 2u);
  BOOST_REQUIRE(many.size() == 2u);
  for (std::size_t i = 0; i < 2; ++i) BOOST_TEST(std::abs(many[i] - one[i]) <= 1e-5 * one[i]);
}

BOOST_AUTO_TEST_CASE(steps_and_summary_have_the_times_of_the_ranks) {
  const TemporaryDirectory tmp;
  std::vector<std::string> words = small_run(tmp / "run", 6, {"parallel.zero=1"});
  words.erase(words.begin() + 1);  // -q
  const Outcome r = run_program(words, under_mpirun(3));
  BOOST_REQUIRE_MESSAGE(r.code == 0, r.err);
  BOOST_TEST(has(r.err, "/rank  wait "), r.err);
  std::uint64_t bytes = 0;
  double compute_ms = 0;
  int steps = 0;
  std::istringstream lines(read_file(tmp / "run/metrics.jsonl"));
  for (std::string line; std::getline(lines, line);) {
    const json e = json::parse(line);
    if (e["event"] != "step") continue;
    const json c = e["communication"];
    bytes += c["bytes"].get<std::uint64_t>();
    compute_ms += c["compute_ms"].get<double>();
    BOOST_TEST(c["wait_ms"].get<double>() > 0);
    BOOST_TEST(c["slowest_rank"].get<int>() < 3);
    BOOST_TEST(c["slowest_compute_ms"].get<double>() >= c["compute_ms"].get<double>());
    BOOST_TEST(c["compute_ms"].get<double>() + c["wait_ms"].get<double>() < 3 * e["ms"].get<double>());
    ++steps;
  }
  BOOST_TEST(steps == 6);
  const json summary = summary_of(tmp / "run");
  BOOST_TEST(summary["communication"]["bytes"] == bytes);
  BOOST_REQUIRE(summary["ranks"].size() == 3u);
  double mean = 0, most = 0;
  for (const json& rank : summary["ranks"]) {
    mean += rank["compute_ms"].get<double>() / 3;
    most = std::max(most, rank["compute_ms"].get<double>());
  }
  BOOST_TEST(mean == compute_ms, boost::test_tools::tolerance(1e-9));
  BOOST_TEST(summary["ranks"][summary["slowest_rank"].get<std::size_t>()]["compute_ms"] == most);
  BOOST_TEST(summary["ranks"][0]["bytes"] == bytes);
}

BOOST_AUTO_TEST_CASE(each_process_writes_a_log) {
  const TemporaryDirectory tmp;
  const auto run = [&](int ranks, int steps, std::vector<std::string> more) {
    more.insert(more.end(), {"output.checkpoint_every=2", "optimizer.schedule=\"constant\"", "--log-ranks"});
    const Outcome r = run_program(small_run(tmp / "run", steps, more), under_mpirun(ranks));
    BOOST_TEST(r.code == 0, r.err);
    BOOST_TEST(r.err.empty(), r.err);  // -q
  };
  const auto log = [&](int rank) {
    return read_file(tmp / "run" / ("rank_" + std::to_string(rank) + ".log"));
  };
  run(3, 4, {});
  for (int rank : {0, 1, 2}) {
    BOOST_TEST(has(log(rank), "Z rank " + std::to_string(rank) + " of 3 on "), log(rank));
    BOOST_TEST(has(log(rank), "weights: random"), log(rank));
    BOOST_TEST(has(log(rank), "Z step 4/4  loss "), log(rank));
    BOOST_TEST(has(log(rank), "memory predicted"), log(rank));
    BOOST_TEST(!has(log(rank), "\x1b"));
  }
  run(2, 6, {"--resume"});  // appended; that of a process that is no more stays
  for (int rank : {0, 1, 2})
    BOOST_TEST(count(log(rank), " of 3 on ") + count(log(rank), " of 2 on ") == (rank < 2 ? 2u : 1u),
               log(rank));
  BOOST_TEST(has(log(1), "resuming after"), log(1));
  run(2, 2, {"--overwrite"});
  BOOST_TEST(count(log(0), " of 2 on ") == 1u, log(0));
  BOOST_TEST(!fs::exists(tmp / "run/rank_2.log"));
}

BOOST_AUTO_TEST_CASE(a_profile_has_the_operations_of_all_processes) {
  const TemporaryDirectory tmp;
  std::vector<std::string> words =
      small_run(tmp / "run", 4, {"parallel.zero=1", "--profile=" + (tmp / "t.json").string()});
  words.erase(words.begin() + 1);  // -q
  const Outcome r = run_program(words, under_mpirun(3));
  BOOST_REQUIRE_MESSAGE(r.code == 0, r.err);
  for (const char* row : {"wait for ranks", "reduce_scatter, start", "all_gather, start",
                          "sum of scalars of ranks", "ranks, per step", "(slowest)"})
    BOOST_TEST(has(r.err, row), r.err);
  const json memory = summary_of(tmp / "run")["memory"];
  BOOST_TEST(memory["predicted_bytes"] == memory["measured_bytes"]);
  std::map<int, double> steps, first;
  const json trace = json::parse(read_file(tmp / "t.json"));
  for (const json& e : trace["traceEvents"])
    if (e["ph"] == "X" && e["cat"] == "step") {
      const int pid = e["pid"];
      if (!steps[pid]++) first[pid] = e["ts"];
    }
  BOOST_TEST(steps.size() == 3u);
  for (const auto& [pid, n] : steps) BOOST_TEST(n == 3);  // without the first
  // On one clock: the ranks begin a step together.
  for (const auto& [pid, ts] : first) BOOST_TEST(std::abs(ts - first[1]) < 500e3);
}

BOOST_AUTO_TEST_CASE(the_same_processes_give_the_same_bits) {
  const TemporaryDirectory tmp;
  for (const char* name : {"a", "b"})
    BOOST_REQUIRE(run_program(small_run(tmp / name, 8, {"parallel.zero=1"}), under_mpirun(3)).code == 0);
  BOOST_TEST(steps_of(tmp / "a") == steps_of(tmp / "b"), boost::test_tools::per_element());
  BOOST_TEST((read_file(tmp / "a/model/model.safetensors") == read_file(tmp / "b/model/model.safetensors")));
}

BOOST_AUTO_TEST_CASE(processes_of_mpich_train_as_those_of_open_mpi,
                     *boost::unit_test::precondition(has_mpich)) {
  const TemporaryDirectory tmp;
  const std::vector<std::string> sets = {"parallel.zero=1"};
  const Outcome r = run_program(small_run(tmp / "mpich", 8, sets), under_mpich(3));
  BOOST_TEST(r.code == 0, r.err);
  BOOST_REQUIRE(run_program(small_run(tmp / "open", 8, sets), under_mpirun(3)).code == 0);
  BOOST_TEST(steps_of(tmp / "mpich") == steps_of(tmp / "open"), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_SUITE_END()

// Runs that end before their first step: a program of their own for ctest (tests/tools/CMakeLists.txt).
BOOST_AUTO_TEST_SUITE(rank_mistakes, *boost::unit_test::precondition(has_mpirun))

struct Mistake {
  int processes;
  std::vector<std::string> sets;
  const char* says;
};
std::ostream& operator<<(std::ostream& o, const Mistake& m) { return o << m.says; }
const std::vector<Mistake> kMistakes = {
    {2, {"parallel.data=4"}, "parallel.data = 4, but mpirun has started 2 processes"},
    {1,
     {"parallel.data=4"},
     "parallel.data = 4 needs 4 processes, but this one was started alone (mpirun -n 4"},
    {1, {"parallel.zero=1"}, "parallel.zero = 1 divides state among ranks, but there is one process"},
    {2, {"parallel.tensor=2"}, "parallel.tensor = 2 does not divide 1 key/value heads (num_key_value_heads)"},
    {1, {"parallel.tensor=2"}, "parallel.tensor = 2 needs 2 processes, but this one was started alone"},
    {3, {"parallel.tensor=2"}, "parallel.tensor = 2 does not divide the 3 processes that mpirun has started"},
    {2,
     {"parallel.tensor=2", "parallel.data=2"},
     "parallel.data x parallel.tensor = 2 x 2, but mpirun has started 2 processes"},
    {2,
     {"parallel.tensor=2", "model.num_key_value_heads=2", "model.vocab_size=257"},
     "parallel.tensor = 2 does not divide 257 tokens of the vocabulary"},
    {2,
     {"parallel.zero=1", "optimizer.name=\"adafactor\""},
     "optimizer.name = \"adafactor\" cannot be divided among ranks"},
    {2,
     {"parallel.tensor=2", "model.num_key_value_heads=2", "lora.rank=2", "lora.base=\"nf4\"",
      "lora.double_quant=true"},
     "parallel.tensor = 2 is not supported with lora.double_quant = true, which quantizes"},
    {2, {"parallel.pipeline=2"}, "training has data- and tensor-parallel ranks only"},
    {2, {"train.grad_accum=2"}, "train.global_batch and train.grad_accum are both given"},
    {4,
     {"train.micro_batch=4"},
     "train.global_batch = 12 has fewer micro-batches of 4 sequences than there are ranks, 4"},
    {4,
     {"train.micro_batch=2"},
     "train.global_batch = 12 is not a multiple of parallel.data x train.micro_batch = 4 x 2 (set "
     "train.global_batch = 16)"},
    {2, {"parallel.zero=1", "optimizer.name=\"muon\""}, "\"muon\" cannot be divided among ranks"},
    {2, {"train.stepz=1"}, "unknown key 'train.stepz'; did you mean 'train.steps'?"},
    {2, {"parallel.communicator=\"mpx\""}, "no communicator 'mpx'; did you mean 'mpi'?"},
    {2, {"data.train=\"/missing.txt\""}, "/missing.txt"},
};

BOOST_DATA_TEST_CASE(a_mistake_is_one_message_and_exit_code_2, boost::unit_test::data::make(kMistakes), m) {
  const TemporaryDirectory tmp;
  const Outcome r = run_program(small_run(tmp / "run", 2, m.sets),
                                m.processes == 1 ? RunOptions{} : under_mpirun(m.processes));
  BOOST_TEST(r.code == 2, r.err);
  BOOST_TEST(has(r.err, m.says), r.err);
  std::size_t messages = 0;
  for (std::size_t at = r.err.find("trainhost: "); at != std::string::npos;
       at = r.err.find("trainhost: ", at + 1))
    ++messages;
  BOOST_TEST(messages == 1u, r.err);
  BOOST_TEST(r.seconds < 20);
  BOOST_TEST(!fs::exists(tmp / "run"));
}

// MPICH does not end the other processes when one has ended.
BOOST_AUTO_TEST_CASE(a_mistake_under_mpich_is_one_message, *boost::unit_test::precondition(has_mpich)) {
  const TemporaryDirectory tmp;
  for (const auto& [set, says] :
       {std::pair{"train.stepz=1", "trainhost: --set train.stepz: unknown key 'train.stepz'"},
        {"parallel.communicator=\"mpx\"", "no communicator 'mpx'"},
        {"data.train=\"/missing.txt\"", "/missing.txt"}}) {
    const Outcome r = run_program(small_run(tmp / "run", 2, {set}), under_mpich(3));
    BOOST_TEST(r.code == 2, r.err);
    BOOST_TEST(has(r.err, says), r.err);
    BOOST_TEST(count(r.err, "trainhost: ") == 1u, r.err);
  }
}

BOOST_AUTO_TEST_CASE(all_mistakes_of_a_run_file_are_reported_by_the_first_process) {
  const TemporaryDirectory tmp;
  const Outcome r = run_program(
      small_run(tmp / "run", 2, {"train.stepz=1", "data.seq_length=4", "optimizer.name=\"adan\""}),
      under_mpirun(2));
  BOOST_TEST(r.code == 2, r.err);
  for (const char* says : {"unknown key 'train.stepz'", "unknown key 'data.seq_length'", "adan"})
    BOOST_TEST(count(r.err, says) == 1u, r.err);
  BOOST_TEST(count(r.err, "trainhost: ") == 3u, r.err);
}

BOOST_AUTO_TEST_CASE(an_mpi_without_threads_is_refused) {
  const TemporaryDirectory tmp;
  RunOptions o = under_mpirun(2);
  o.launcher.insert(o.launcher.end(), {"env", "ASAN_OPTIONS=verify_asan_link_order=0",
                                       "LD_PRELOAD=" TRAINHOST_BINARY_DIR "/tests/mpi_without_threads.so"});
  const Outcome r = run_program(small_run(tmp / "run", 2), o);
  BOOST_TEST(r.code == 2, r.err);
  BOOST_TEST(has(r.err, "was built without support for threads"), r.err);
  BOOST_TEST(r.seconds < 20);
}

// Without PMI, srun starts processes that MPI does not connect.
BOOST_AUTO_TEST_CASE(processes_that_their_launcher_does_not_connect_are_refused) {
  const TemporaryDirectory tmp;
  for (const char* rank : {"0", "1"}) {
    RunOptions o;
    o.environment = {{"SLURM_PROCID", rank}, {"SLURM_STEP_NUM_TASKS", "2"}, {"SLURM_LOCALID", rank}};
    const Outcome r = run_program(small_run(tmp / "run", 2), o);
    BOOST_TEST(r.code == 2, r.err);
    BOOST_TEST(has(r.err, "srun has started 2 processes, but "), r.err);
    BOOST_TEST(has(r.err, " connects 1 (srun --mpi=pmix, or start it with the mpirun of "), r.err);
  }
}

// NCCL connects processes of torchrun: tests/tools/gpu/emulated_ranks_test.cpp.
BOOST_AUTO_TEST_CASE(processes_of_torchrun_without_a_gpu_are_told_to_use_mpirun) {
  const TemporaryDirectory tmp;
  for (const char* rank : {"0", "1"}) {
    RunOptions o;
    o.launcher = {"env", std::string("RANK=") + rank, "WORLD_SIZE=2", "MASTER_ADDR=localhost"};
    o.environment = {{"TRAINHOST_NCCL", "libnccl-absent.so.2"}};
    const Outcome missing = run_program(small_run(tmp / "run", 2), o);
    BOOST_TEST(missing.code == 2, missing.err);
    BOOST_TEST(has(missing.err, "RANK and WORLD_SIZE are set, but MASTER_PORT is not"), missing.err);
    if (*rank == '1') continue;  // which would wait for rank 0
    o.launcher.push_back("MASTER_PORT=" + std::to_string(unused_port()));
    const Outcome r = run_program(small_run(tmp / "run", 2, {"parallel.timeout=1"}), o);
    BOOST_TEST(r.code == 2, r.err);
    BOOST_TEST(
        has(r.err, "torchrun has started 2 processes, which only NCCL connects: several ranks need NCCL"),
        r.err);
    BOOST_TEST(has(r.err, "mpirun -n 2 trainhost"), r.err);
  }
}

BOOST_AUTO_TEST_CASE(another_command_is_one_of_the_first_process) {
  const Outcome r = run_program({"models"}, under_mpirun(3));
  BOOST_TEST(r.code == 0);
  BOOST_TEST(r.out.find("llama-3-8b") == r.out.rfind("llama-3-8b"));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
