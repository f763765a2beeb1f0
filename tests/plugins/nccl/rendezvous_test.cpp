// The meeting of processes before NCCL connects them, with threads as processes: numbers of the ranks on
// their machine, one id for all, and one error for all of what is wrong on one. Variables of the launcher.
#include <boost/test/data/monomorphic.hpp>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>

#include <cstdlib>
#include <cstring>
#include <thread>

#include "plugins/nccl/rendezvous.hpp"
#include "tests/support/torchrun.hpp"

using namespace trainhost;
using namespace trainhost::nccl;
using trainhost::abi::StatusError;

namespace {

/// What a process got: a meeting, or an error.
struct Result {
  Meeting meeting{};
  int code = 0;
  std::string error;
};

struct Process {
  LaunchVariables launch;
  Introduction introduction;
  std::string fails = {};  // with this text, before it meets the others
};

std::vector<Process> processes(std::uint32_t ranks) {
  const auto port = static_cast<std::uint16_t>(test::unused_port());
  std::vector<Process> all(ranks);
  for (std::uint32_t r = 0; r < ranks; ++r) {
    all[r].launch.rank = r, all[r].launch.ranks = ranks;
    all[r].launch.address = "127.0.0.1", all[r].launch.port = port, all[r].launch.prefix = "run/";
    all[r].introduction = {r < 2 ? "a" : "b", "gpu " + std::to_string(r), 0};
  }
  return all;
}

std::vector<Result> meet(const std::vector<Process>& all, std::uint64_t timeout_ms = 20000) {
  std::vector<Result> results(all.size());
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < all.size(); ++i)
    threads.emplace_back([&, i] {
      try {
        Rendezvous rendezvous(all[i].launch, timeout_ms);
        rendezvous.together([&] {
          if (!all[i].fails.empty()) throw StatusError(TH_E_UNAVAILABLE, all[i].fails);
          results[i].meeting = rendezvous.meet(all[i].introduction, [] {
            cuda::nccl::UniqueId id{};
            std::strcpy(id.bytes, "the id");
            return id;
          });
        });
      } catch (const StatusError& e) {
        results[i].code = e.code, results[i].error = e.what();
      }
    });
  for (std::thread& t : threads) t.join();
  return results;
}

/// Rank 0 reports the error, the others end without a message.
void is_reported_by_first(const std::vector<Result>& results, int code, const std::string& says) {
  BOOST_TEST(results[0].code == code, results[0].error);
  BOOST_TEST(test::has(results[0].error, says), results[0].error);
  for (std::size_t r = 1; r < results.size(); ++r)
    BOOST_TEST(results[r].code == TH_E_CANCELLED, results[r].error);
}

BOOST_AUTO_TEST_SUITE(rendezvous)

BOOST_AUTO_TEST_CASE(all_get_the_id_and_their_number_on_the_machine) {
  const std::vector<Result> results = meet(processes(5));
  const std::uint32_t local[] = {0, 1, 0, 1, 2}, of[] = {2, 2, 3, 3, 3};
  for (std::size_t r = 0; r < 5; ++r) {
    BOOST_TEST(results[r].error == "");
    BOOST_TEST(results[r].meeting.id.bytes == std::string("the id"));
    BOOST_TEST(results[r].meeting.local_rank == local[r]);
    BOOST_TEST(results[r].meeting.local_ranks == of[r]);
  }
}

BOOST_AUTO_TEST_CASE(variables_of_the_launcher_win_over_host_names) {
  std::vector<Process> all = processes(2);
  for (Process& p : all) p.launch.local_rank = 3, p.launch.local_ranks = 4;
  BOOST_TEST(meet(all)[1].meeting.local_rank == 3u);
  BOOST_TEST(meet(all)[1].meeting.local_ranks == 4u);
}

BOOST_AUTO_TEST_CASE(a_failure_of_one_is_reported_by_the_first) {
  std::vector<Process> all = processes(3);
  all[2].fails = "no such library";
  is_reported_by_first(meet(all), TH_E_UNAVAILABLE, "rank 2 on ");
  all[2].fails = "", all[0].fails = "no such library";
  const std::vector<Result> results = meet(all);
  is_reported_by_first(results, TH_E_UNAVAILABLE, "no such library");
}

BOOST_AUTO_TEST_CASE(ranks_that_do_not_come_are_named) {
  std::vector<Process> all = processes(4);
  all.erase(all.begin() + 1), all.pop_back();
  is_reported_by_first(meet(all, 1000), TH_E_ARG, "waited 1 s for ranks 1, 3 of 4 (WORLD_SIZE)");
  all.erase(all.begin());
  const std::vector<Result> without_first = meet(all, 300);
  BOOST_TEST(test::has(without_first[0].error, "cannot be reached: Connection refused"),
             without_first[0].error);
}

BOOST_AUTO_TEST_CASE(processes_that_contradict_each_other_are_reported) {
  std::vector<Process> all = processes(3);
  all[2].launch.rank = 1;
  is_reported_by_first(meet(all), TH_E_ARG, "two processes have RANK=1");
  all = processes(3);
  all[2].introduction.gpu = all[1].introduction.gpu;
  is_reported_by_first(meet(all), TH_E_ARG, "ranks 1 and 2 use one GPU: device 0 on b");
  all = processes(3);
  all[1].launch.ranks = 4;
  is_reported_by_first(meet(all), TH_E_ARG, "WORLD_SIZE is 3 on rank 0, but 4 on rank 1");
}

BOOST_AUTO_TEST_CASE(a_port_in_use_is_reported) {
  std::vector<Process> all = processes(1);
  const Socket taken = listen_at(all[0].launch.port);
  const std::vector<Result> results = meet(all);
  BOOST_TEST(results[0].code == TH_E_ARG);
  BOOST_TEST(test::has(results[0].error, "rank 0 cannot listen at MASTER_PORT="), results[0].error);
}

// As under torchrun: the launcher has a store, so rank 0 starts none.
BOOST_AUTO_TEST_CASE(a_store_of_the_launcher_is_used) {
  std::vector<Process> all = processes(3);
  const StoreServer torchrun(all[0].launch.port);
  for (Process& p : all) p.launch.launcher_has_store = true;
  for (const Result& r : meet(all)) BOOST_TEST(r.meeting.id.bytes == std::string("the id"), r.error);
}

// torchrun keeps its store when it starts the processes again after a failure.
BOOST_AUTO_TEST_CASE(a_restart_does_not_see_the_keys_of_the_attempt_before) {
  std::vector<Process> all = processes(2);
  const StoreServer torchrun(all[0].launch.port);
  const std::map<std::string, std::string> variables = {{"RANK", "0"},
                                                        {"WORLD_SIZE", "2"},
                                                        {"MASTER_ADDR", "127.0.0.1"},
                                                        {"MASTER_PORT", std::to_string(all[0].launch.port)},
                                                        {"TORCHELASTIC_USE_AGENT_STORE", "True"},
                                                        {"TORCHELASTIC_RUN_ID", "run"}};
  for (const auto& [k, v] : variables) ::setenv(k.c_str(), v.c_str(), 1);
  for (const char* attempt : {"0", "1", "2"}) {
    ::setenv("TORCHELASTIC_RESTART_COUNT", attempt, 1);
    for (std::size_t r = 0; r < 2; ++r) all[r].launch = read_launch_variables(), all[r].launch.rank = r;
    all[1].fails = attempt == std::string("0") ? "the first attempt" : "";
    const std::vector<Result> results = meet(all);
    if (!all[1].fails.empty())
      is_reported_by_first(results, TH_E_UNAVAILABLE, "the first attempt");
    else
      for (const Result& x : results) BOOST_TEST(x.meeting.id.bytes == std::string("the id"), x.error);
  }
  for (const auto& [k, v] : variables) ::unsetenv(k.c_str());
  ::unsetenv("TORCHELASTIC_RESTART_COUNT");
}

/// As Rendezvous writes an error: code, message, hint, each as its size and bytes.
std::string posted(const std::string& code) {
  std::string out;
  for (const std::string& text : {code, std::string("it failed"), std::string()}) {
    const std::uint64_t size = text.size();
    out.append(reinterpret_cast<const char*>(&size), sizeof size) += text;
  }
  return out;
}

// Code 0 means success: the caller would use what it did not get.
BOOST_DATA_TEST_CASE(a_posted_error_without_a_code_is_one, boost::unit_test::data::make({"0", "7", "x", ""}),
                     code) {
  std::vector<Process> all = processes(2);
  all.pop_back(), all[0].launch.launcher_has_store = true;
  const StoreServer torchrun(all[0].launch.port);
  StoreClient("127.0.0.1", all[0].launch.port, Clock::now() + std::chrono::seconds(10))
      .set("run/error", posted(code));
  const std::vector<Result> results = meet(all);
  BOOST_TEST(results[0].code == TH_E_INTERNAL);
  BOOST_TEST(results[0].error == "it failed");
}

struct Wrong {
  std::map<std::string, std::string> variables;
  const char* says;
};
std::ostream& operator<<(std::ostream& o, const Wrong& w) { return o << w.says; }
const std::vector<Wrong> kWrong = {
    {{{"RANK", ""}}, "this process was not started by torchrun"},
    {{{"RANK", "2"}}, "RANK=2 is not a number from 0 to 1"},
    {{{"WORLD_SIZE", "2x"}}, "WORLD_SIZE=2x is not a number from 1 to "},
    {{{"MASTER_ADDR", ""}}, "RANK and WORLD_SIZE are set, but MASTER_ADDR is not"},
    {{{"MASTER_PORT", "65536"}}, "MASTER_PORT=65536 is not a number from 1 to 65535"},
    {{{"LOCAL_RANK", "1"}, {"LOCAL_WORLD_SIZE", "1"}}, "LOCAL_RANK=1 is not a number from 0 to 0"},
};

BOOST_DATA_TEST_CASE(a_wrong_variable_is_reported_with_its_value, boost::unit_test::data::make(kWrong), w) {
  std::map<std::string, std::string> all = {
      {"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "host"}, {"MASTER_PORT", "29500"}};
  for (const auto& [k, v] : w.variables) all[k] = v;
  for (const auto& [k, v] : all) ::setenv(k.c_str(), v.c_str(), 1);
  BOOST_CHECK_EXCEPTION(read_launch_variables(), StatusError,
                        [&](const StatusError& e) { return test::has(e.what(), w.says); });
  for (const auto& [k, v] : all) ::unsetenv(k.c_str());
  ::unsetenv("LOCAL_RANK"), ::unsetenv("LOCAL_WORLD_SIZE");
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
