// The store of the rendezvous among strangers: connections that send nothing, half a message, or a size that
// does not come. Many connections and slow ones. Connections of a process with itself, and names that are not
// known.
#include <boost/test/data/monomorphic.hpp>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "plugins/nccl/store.hpp"
#include "tests/support/files.hpp"
#include "tests/support/torchrun.hpp"

using namespace trainhost;
using namespace trainhost::nccl;
using std::chrono::seconds;

namespace {

std::uint16_t port() { return static_cast<std::uint16_t>(test::unused_port()); }
Clock::time_point soon() { return Clock::now() + seconds(10); }

/// Bytes of this process that are in memory.
std::uint64_t resident() {
  std::uint64_t all = 0, in_memory = 0;
  std::ifstream("/proc/self/statm") >> all >> in_memory;
  return in_memory * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

const std::string kValidate("\x00\xce\xf7\x85\x3c", 5);
const std::string kHalfASet("\x01\x08\x00\x00\x00\x00\x00\x00\x00key", 12);
/// A key of 64 MiB begins.
const std::string kLongKey("\x01\x00\x00\x00\x04\x00\x00\x00\x00", 9);

BOOST_AUTO_TEST_SUITE(store)

BOOST_AUTO_TEST_CASE(values_are_those_that_were_set) {
  const std::uint16_t at = port();
  const StoreServer server(at);
  StoreClient a("127.0.0.1", at, soon()), b("127.0.0.1", at, soon());
  const std::string large(300'000, 'x');
  a.set("large", large), a.set("empty", "");
  BOOST_TEST(a.has({"large", "empty"}));
  BOOST_TEST(b.get("large") == large);
  BOOST_TEST(b.get("empty") == "");
  BOOST_TEST(!b.has({"large", "missing"}));
  BOOST_TEST(a.add("sum", 3) == 3);
  BOOST_TEST(b.add("sum", -5) == -2);
  BOOST_CHECK_THROW(b.get("missing"), ConnectionError);
}

// Not an overflow of signed numbers, which the sanitizer of undefined behaviour reports.
BOOST_AUTO_TEST_CASE(a_sum_that_is_too_large_wraps) {
  const std::uint16_t at = port();
  const StoreServer server(at);
  StoreClient client("127.0.0.1", at, soon());
  client.add("sum", std::numeric_limits<std::int64_t>::max());
  BOOST_TEST(client.add("sum", 1) == std::numeric_limits<std::int64_t>::min());
}

BOOST_DATA_TEST_CASE(a_stranger_does_not_delay_the_end,
                     boost::unit_test::data::make({std::string(), kValidate + kHalfASet}), sent) {
  const std::uint16_t at = port();
  std::optional<StoreServer> server(std::in_place, at);
  Socket stranger = connect_to("127.0.0.1", at, soon());
  stranger.send(sent.data(), sent.size(), soon());
  { const StoreClient process("127.0.0.1", at, soon()); }
  std::this_thread::sleep_for(std::chrono::milliseconds(200));  // until the server waits for the stranger
  const auto begin = Clock::now();
  if (sent.empty()) server->wait_for_the_others(1, seconds(3));
  server.reset();
  BOOST_TEST((Clock::now() - begin < seconds(2)));
}

BOOST_AUTO_TEST_CASE(a_text_takes_memory_as_it_arrives) {
  const std::uint16_t at = port();
  const StoreServer server(at);
  const std::uint64_t before = resident();
  std::vector<Socket> strangers;
  for (int i = 0; i < 4; ++i) {
    strangers.push_back(connect_to("127.0.0.1", at, soon()));
    const std::string all = kValidate + kLongKey;
    strangers.back().send(all.data(), all.size(), soon());
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  BOOST_TEST(resident() < before + (32u << 20));
}

/// Threads of this process.
int threads() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("Threads:")) return std::stoi(line.substr(8));
  return 0;
}

// Two descriptors here for each connection, since the test is both ends.
BOOST_AUTO_TEST_CASE(one_thread_serves_more_connections_than_the_limit_of_files) {
  constexpr std::size_t kConnections = 1500;
  rlimit before{};
  ::getrlimit(RLIMIT_NOFILE, &before);
  if (before.rlim_max < 2 * kConnections + 300) return;  // this machine allows fewer
  rlimit low = before;
  low.rlim_cur = 1024;
  ::setrlimit(RLIMIT_NOFILE, &low);
  {
    const std::uint16_t at = port();
    const int alone = threads();
    StoreServer server(at, 2 * kConnections);
    std::vector<std::unique_ptr<StoreClient>> clients;
    for (std::size_t i = 0; i < kConnections; ++i) {
      clients.push_back(std::make_unique<StoreClient>("127.0.0.1", at, soon()));
      clients.back()->set("process/" + std::to_string(i), "here");
    }
    std::vector<std::string> keys;
    for (std::size_t i = 0; i < kConnections; ++i) keys.push_back("process/" + std::to_string(i));
    BOOST_TEST(clients[700]->add("sum", 1) == 1);
    while (!clients.back()->has(keys)) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    BOOST_TEST(clients.front()->get("process/1499") == "here");
    BOOST_TEST(threads() == alone + 1);
    clients.clear();
    const auto begin = Clock::now();
    server.wait_for_the_others(kConnections, seconds(10));
    BOOST_TEST((Clock::now() - begin < seconds(5)));
  }
  ::setrlimit(RLIMIT_NOFILE, &before);
}

// The limit is lowered in a child: only the superuser could raise it again.
BOOST_AUTO_TEST_CASE(a_limit_of_files_that_is_too_low_is_reported_with_the_number_that_is_needed) {
  const std::uint16_t at = port();
  int ends[2];
  BOOST_REQUIRE(::pipe(ends) == 0);
  const pid_t child = ::fork();
  if (child == 0) {
    std::string error = "none";
    const rlimit low{64, 64};
    ::setrlimit(RLIMIT_NOFILE, &low);
    try {
      StoreServer server(at, 1000);
    } catch (const ConnectionError& e) {
      error = e.what();
    }
    ::_exit(::write(ends[1], error.data(), error.size()) < 0);
  }
  ::close(ends[1]);
  std::string error(1000, '\0');
  error.resize(static_cast<std::size_t>(std::max<ssize_t>(0, ::read(ends[0], error.data(), error.size()))));
  ::close(ends[0]);
  ::waitpid(child, nullptr, 0);
  for (const char* part : {"open files for 1000 ranks", "the hard limit is 64", "ulimit -Hn", "nofile=1"})
    BOOST_TEST(test::has(error, part), error);
}

// A client that sends half a message, or does not read its answers, does not delay the other clients.
BOOST_AUTO_TEST_CASE(a_slow_connection_does_not_delay_the_others) {
  const std::uint16_t at = port();
  const StoreServer server(at);
  Socket half = connect_to("127.0.0.1", at, soon());
  const std::string begun = kValidate + kHalfASet;
  half.send(begun.data(), begun.size(), soon());
  StoreClient process("127.0.0.1", at, soon());
  process.set("large", std::string(8 << 20, 'x'));
  BOOST_TEST(process.add("after", 1) == 1);  // so the value has arrived
  Socket asks = connect_to("127.0.0.1", at, soon());
  std::string questions = kValidate;
  for (int i = 0; i < 4; ++i) questions += std::string("\x03\x05\x00\x00\x00\x00\x00\x00\x00large", 14);
  asks.send(questions.data(), questions.size(), soon());
  const auto begin = Clock::now();
  for (int i = 1; i <= 50; ++i) BOOST_TEST(process.add("sum", 1) == i);
  BOOST_TEST((Clock::now() - begin < seconds(2)));
  // All answers arrive, one after the other.
  for (int i = 0; i < 4; ++i) BOOST_TEST(asks.receive_text(1u << 26, soon()).size() == (8u << 20));
}

// "localhost." plus a label that no resolver knows: asked again until the deadline, then one message.
BOOST_AUTO_TEST_CASE(a_name_that_is_not_known_is_asked_for_until_the_deadline) {
  const auto begin = Clock::now();
  BOOST_CHECK_EXCEPTION(connect_to("no-such-machine.invalid", 29500, Clock::now() + seconds(1)),
                        ConnectionError, [](const ConnectionError& e) {
                          return test::has(e.what(), "'no-such-machine.invalid' cannot be resolved: ");
                        });
  BOOST_TEST((Clock::now() - begin >= std::chrono::milliseconds(400)));
}

// The port is unused and in the range of ephemeral ports. Each attempt to connect gets another source port,
// so that repeated attempts reach most ports of the range.
BOOST_AUTO_TEST_CASE(a_process_does_not_connect_to_itself) {
  std::uint32_t first = 0, last = 0;
  std::ifstream("/proc/sys/net/ipv4/ip_local_port_range") >> first >> last;
  if (first == 0 || last < first + 2 || last - first > 40'000) return;
  auto at = static_cast<std::uint16_t>((first + last) / 4 * 2);
  for (bool used = true; used && at < last;) try {
      listen_at(at), used = false;
    } catch (const ConnectionError&) {
      at += 2;
    }
  int connected = 0;
  for (std::uint32_t i = 0; i < last - first && connected == 0; ++i) try {
      connect_to("127.0.0.1", at, Clock::now()), ++connected;
    } catch (const ConnectionError&) {
    }
  BOOST_TEST(connected == 0);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
