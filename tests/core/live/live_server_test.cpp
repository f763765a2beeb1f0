// The server of the page of runs: which requests it answers, and that it neither keeps nor passes on
// descriptors, nor occupies a core when there are none. The pages: tests/interop/live_test.py.
#include "core/live/live_server.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <boost/asio/buffer.hpp>
#include <boost/test/unit_test.hpp>
#include <chrono>
#include <ctime>
#include <set>
#include <thread>

#include "core/live/live_request.hpp"
#include "tests/support/files.hpp"

using namespace trainhost;
using live::LiveServer;
using live::Request;
namespace fs = std::filesystem;

namespace live_server_test {

std::ostream& operator<<(std::ostream& o, Request r) { return o << static_cast<int>(r); }

/// What is asked by the request, which must be complete; nullopt if it is not read.
std::optional<Request> asked_by(const std::string& text) {
  live::RequestParser parser;
  boost::system::error_code error;
  parser.put(boost::asio::buffer(text), error);
  if (error || !parser.is_done()) return std::nullopt;
  return live::request_of(parser.get());
}

class Client {
 public:
  Client() : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const timeval patience{60, 0};
    ::setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  }
  ~Client() { ::close(fd_); }
  Client(const Client&) = delete;
  void send(std::uint16_t port, const std::string& text) {
    sockaddr_in to{};
    to.sin_family = AF_INET, to.sin_port = htons(port), to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    BOOST_REQUIRE(::connect(fd_, reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0);
    BOOST_REQUIRE(::send(fd_, text.data(), text.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(text.size()));
  }
  /// Up to the end of the connection, or of `bytes`.
  std::string receive(std::size_t bytes = std::string::npos) {
    std::string all;
    char block[4096];
    while (all.size() < bytes) {
      const ssize_t n = ::recv(fd_, block, std::min(sizeof block, bytes - all.size()), 0);
      if (n <= 0) break;
      all.append(block, static_cast<std::size_t>(n));
    }
    return all;
  }

 private:
  int fd_;
};

std::set<int> open_descriptors() {
  std::set<int> out;
  for (const auto& entry : fs::directory_iterator("/proc/self/fd")) {
    const int fd = std::stoi(entry.path().filename().string());
    if (::fcntl(fd, F_GETFD) >= 0) out.insert(fd);
  }
  // That of the directory is closed by now.
  std::erase_if(out, [](int fd) { return ::fcntl(fd, F_GETFD) < 0; });
  return out;
}

const std::string kPage = "GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
                  kEvents = "GET /events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n";

BOOST_AUTO_TEST_SUITE(live_server)

BOOST_AUTO_TEST_CASE(a_request_is_for_this_machine_and_one_of_two_pages) {
  const auto get = [](const std::string& path, const std::string& header) {
    return asked_by("GET " + path + " HTTP/1.1\r\n" + header + "\r\n");
  };
  for (const char* host : {"127.0.0.1", "127.0.0.1:7070", "localhost", "localhost:1", "[::1]", "[::1]:80"})
    BOOST_TEST((get("/", std::string("Host: ") + host + "\r\n") == Request::kPage), host);
  for (const char* header :
       {"", "Host: evil.example\r\n", "Host: 127.0.0.1.evil.example\r\n", "Host: localhostx\r\n",
        "Host: evil:127.0.0.1\r\n", "Host: localhost\r\nHost: evil.example\r\n", "Host:\r\n"})
    BOOST_TEST((get("/", header) == Request::kOtherMachine), header);
  const std::string here = "Host: localhost\r\n";
  BOOST_TEST((get("/?a=/events", here) == Request::kPage));
  BOOST_TEST((get("/events?last=1", here) == Request::kEvents));
  for (const char* path : {"/events/", "//", "/..", "/../metrics.jsonl", "/%2e%2e/x", "/x?/events", "*"})
    BOOST_TEST((get(path, here) == Request::kOtherPath), path);
  for (const char* method : {"POST", "HEAD", "PUT", "OPTIONS", "TRACE", "get", "X"})
    BOOST_TEST((asked_by(std::string(method) + " / HTTP/1.1\r\n" + here + "\r\n") == Request::kNotGet),
               method);
  BOOST_TEST((get("/", here + "X: " + std::string(9000, 'a') + "\r\n") == std::nullopt));
  BOOST_TEST((get("/", here + "Content-Length: 5\r\n") == std::nullopt));
}

BOOST_AUTO_TEST_CASE(descriptors_are_closed_and_not_inherited) {
  const std::set<int> before = open_descriptors();
  {
    LiveServer server(0, "");
    for (int i = 0; i < 40; ++i) {
      Client page, events, nonsense, silent;
      page.send(server.port(), kPage);
      events.send(server.port(), kEvents);
      nonsense.send(server.port(), "\r\n\x01\r\n\r\n");
      silent.send(server.port(), "GET");
      BOOST_TEST(page.receive().starts_with("HTTP/1.1 200 OK"));
    }
    Client last;
    last.send(server.port(), kEvents);
    BOOST_TEST(last.receive(15) == "HTTP/1.1 200 OK");
    for (const int fd : open_descriptors())
      if (!before.contains(fd)) BOOST_TEST((::fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0, "descriptor " << fd);
  }
  BOOST_TEST(open_descriptors() == before, boost::test_tools::per_element());
}

// Each accept() fails at once then.
BOOST_AUTO_TEST_CASE(without_descriptors_the_server_waits_and_answers_later) {
  LiveServer server(0, "");
  {
    Client first;
    first.send(server.port(), kPage);
    BOOST_TEST(first.receive().starts_with("HTTP/1.1 200 OK"));
  }
  Client client;
  // The lowest free descriptor: all below are in use.
  const int free = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  ::close(free);
  rlimit old{};
  ::getrlimit(RLIMIT_NOFILE, &old);
  rlimit none = old;
  none.rlim_cur = static_cast<rlim_t>(free);
  BOOST_REQUIRE(::setrlimit(RLIMIT_NOFILE, &none) == 0);
  client.send(server.port(), kPage);
  const std::clock_t begin = std::clock();  // time of the processors
  std::this_thread::sleep_for(std::chrono::milliseconds(600));
  const double used_s = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
  ::setrlimit(RLIMIT_NOFILE, &old);
  BOOST_TEST(used_s < 0.1);
  BOOST_TEST(client.receive().starts_with("HTTP/1.1 200 OK"));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace live_server_test
