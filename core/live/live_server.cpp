// See live_server.hpp.
#include "core/live/live_server.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <chrono>
#include <future>
#include <mutex>
#include <set>
#include <thread>
#include <utility>

#include "core/base/error.hpp"
#include "core/live/live_request.hpp"
#include "core/live/machine_use.hpp"
#include "core/report/run_page.hpp"

namespace trainhost::live {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using asio::ip::tcp;
using boost::system::error_code;
using namespace std::chrono_literals;

constexpr std::size_t kMostReaders = 64;
constexpr auto kInterval = 1s;

/// Programs that this process starts do not get the socket: the port would stay in use with them.
void close_on_exec(int socket) { ::fcntl(socket, F_SETFD, FD_CLOEXEC); }

}  // namespace

/// All members below `thread_` belong to the thread, except folders_.
class LiveServer::Server {
 public:
  Server(std::uint16_t port, std::string command)
      : acceptor_(context_), timer_(context_), command_(std::move(command)) {
    open(port);
    accept();
    tick();
    // Signals are for the thread that trains.
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    try {
      thread_ = std::thread([this] { serve(); });
    } catch (const std::system_error& e) {
      pthread_sigmask(SIG_SETMASK, &before, nullptr);
      throw run_error(std::string("cannot start a thread: ") + e.what());
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }

  ~Server() {
    std::promise<void> sent;
    asio::post(context_, [&] {
      ending_ = &sent;
      send_update();
      end_if_sent();
    });
    sent.get_future().wait_for(500ms);
    context_.stop();
    thread_.join();
  }

  void show(const std::filesystem::path& folder) {
    std::lock_guard lock(mutex_);
    folders_.push_back(folder);
  }
  std::uint16_t port() const { return port_; }

 private:
  /// A reader. Its stream is kept until it closes or fails.
  struct Reader : std::enable_shared_from_this<Reader> {
    explicit Reader(tcp::socket socket) : stream(std::move(socket)) {}
    beast::tcp_stream stream;
    beast::flat_buffer buffer;
    RequestParser parser;
    http::response<http::string_body> response;
    std::string sending, waiting;  // of a reader of events
    bool events = false;
  };
  using Pointer = std::shared_ptr<Reader>;

  void open(std::uint16_t wanted) {
    error_code error;
    for (unsigned i = 0; i <= 50; ++i) {
      // The last try takes any free port.
      const unsigned port = i == 50 ? 0 : wanted == 0 ? 0 : wanted + i;
      if (port > 65535) continue;
      error_code ignored;
      acceptor_.close(ignored);
      const tcp::endpoint at(asio::ip::address_v4::loopback(), static_cast<std::uint16_t>(port));
      acceptor_.open(at.protocol(), error);
      if (!error) close_on_exec(acceptor_.native_handle());
      if (!error) acceptor_.set_option(tcp::acceptor::reuse_address(true), error);
      if (!error) acceptor_.bind(at, error);
      if (!error) acceptor_.listen(16, error);
      if (!error) {
        port_ = acceptor_.local_endpoint().port();
        return;
      }
    }
    throw run_error("cannot open a port on 127.0.0.1: " + error.message());
  }

  void serve() noexcept {
    // Linux has a priority per thread: this changes that of the server alone.
    ::setpriority(PRIO_PROCESS, static_cast<id_t>(::syscall(SYS_gettid)), 10);
    try {
      context_.run();
    } catch (...) {
      // The page ends; the run does not.
    }
  }

  void accept() {
    accepts_ = true;
    acceptor_.async_accept([this](error_code error, tcp::socket socket) {
      if (error) {
        // Where no descriptor is free, each try fails at once: the next one is made by tick().
        accepts_ = false;
        return;
      }
      close_on_exec(socket.native_handle());
      if (readers_.size() < kMostReaders) {
        const auto r = std::make_shared<Reader>(std::move(socket));
        readers_.insert(r);
        read(r);
      }
      accept();
    });
  }

  void close(const Pointer& r) {
    error_code ignored;
    r->stream.socket().close(ignored);
    readers_.erase(r);
    end_if_sent();
  }

  void read(const Pointer& r) {
    r->stream.expires_after(10s);
    http::async_read(r->stream, r->buffer, r->parser,
                     [this, r](error_code error, std::size_t) { error ? close(r) : answer(r); });
  }

  void answer(const Pointer& r) {
    http::response<http::string_body>& a = r->response;
    a.version(11);
    a.set(http::field::server, "trainhost");
    a.set(http::field::cache_control, "no-store");
    a.set("X-Content-Type-Options", "nosniff");
    a.set(http::field::content_type, "text/plain; charset=utf-8");
    a.keep_alive(false);
    switch (request_of(r->parser.get())) {
      case Request::kEvents:
        return start_events(r);
      case Request::kPage:
        update();
        a.set(http::field::content_type, "text/html; charset=utf-8");
        a.body() = report::run_html(runs_, command_, true, use_.charts());
        break;
      case Request::kOtherPath:
        a.result(http::status::not_found);
        a.body() = "Not found; the page is /\n";
        break;
      case Request::kNotGet:
        a.result(http::status::method_not_allowed);
        a.set(http::field::allow, "GET");
        break;
      case Request::kOtherMachine:
        a.result(http::status::forbidden);
        a.body() = "This page is served to this machine only: http://127.0.0.1\n";
        break;
    }
    a.prepare_payload();
    r->stream.expires_after(30s);
    http::async_write(r->stream, a, [this, r](error_code, std::size_t) { close(r); });
  }

  void start_events(const Pointer& r) {
    r->events = true;
    r->stream.expires_never();
    r->sending =
        "HTTP/1.1 200 OK\r\nServer: trainhost\r\nContent-Type: text/event-stream\r\nCache-Control: "
        "no-store\r\n"
        "Connection: close\r\n\r\nretry: 3000\n\n";
    r->waiting = message_.empty() ? make_message() : message_;
    write(r);
    // A reader of events sends nothing more: this read ends when the reader has gone.
    asio::async_read(r->stream.socket(), asio::buffer(drain_), [this, r](error_code, std::size_t) {
      if (readers_.count(r)) close(r);
    });
  }

  /// Sends r->sending, then, of the messages made in the meantime, the newest.
  void write(const Pointer& r) {
    r->stream.expires_after(30s);
    asio::async_write(r->stream, asio::buffer(r->sending), [this, r](error_code error, std::size_t) {
      r->stream.expires_never();
      r->sending.clear();
      if (error) return readers_.count(r) ? close(r) : void();
      if (!r->waiting.empty()) {
        r->sending = std::exchange(r->waiting, {});
        write(r);
      }
      end_if_sent();
    });
  }

  bool has_event_readers() const {
    return std::any_of(readers_.begin(), readers_.end(), [](const Pointer& r) { return r->events; });
  }

  void tick() {
    timer_.expires_after(kInterval);
    timer_.async_wait([this](error_code error) {
      if (error) return;
      use_.sample();
      if (!accepts_) accept();
      if (has_event_readers()) send_update();
      tick();
    });
  }

  /// Reads what the runs have written since.
  void update() {
    {
      std::lock_guard lock(mutex_);
      for (; shown_ < folders_.size(); ++shown_)
        runs_.push_back(std::make_unique<report::RunRecord>(
            folders_[shown_], report::points_of_page(std::max<std::size_t>(folders_.size(), 2))));
    }
    for (const auto& r : runs_) r->update();
  }

  std::string make_message() {
    update();
    return "data: " + report::run_update(runs_, use_.charts()) + "\n\n";
  }

  void send_update() {
    std::string message = make_message();
    if (message == message_) return;
    message_ = std::move(message);
    for (const Pointer& r : readers_) {
      if (!r->events) continue;
      if (r->sending.empty()) {
        r->sending = message_;
        write(r);
      } else {
        r->waiting = message_;
      }
    }
  }

  /// Tells the destructor that all readers have the last message.
  void end_if_sent() {
    if (!ending_ ||
        std::any_of(readers_.begin(), readers_.end(), [](const Pointer& r) { return !r->sending.empty(); }))
      return;
    std::exchange(ending_, nullptr)->set_value();
  }

  asio::io_context context_{1};
  std::thread thread_;
  tcp::acceptor acceptor_;
  asio::steady_timer timer_;
  std::uint16_t port_ = 0;
  std::string command_, message_;
  std::set<Pointer> readers_;
  report::RunRecords runs_;
  std::size_t shown_ = 0;
  MachineUse use_;
  bool accepts_ = false;
  char drain_[256];
  std::promise<void>* ending_ = nullptr;
  std::mutex mutex_;
  std::vector<std::filesystem::path> folders_;
};

LiveServer::LiveServer(std::uint16_t port, std::string command)
    : server_(std::make_unique<Server>(port, std::move(command))) {}
LiveServer::~LiveServer() = default;
void LiveServer::show(const std::filesystem::path& folder) { server_->show(folder); }
std::uint16_t LiveServer::port() const { return server_->port(); }
std::string LiveServer::url() const { return fmt::format("http://127.0.0.1:{}/", port()); }

LiveObserver::LiveObserver(std::uint16_t port, const std::string& command, training::RunObserver& next)
    : ForwardingObserver(next) {
  try {
    server_ = std::make_unique<LiveServer>(port, command);
    message((port && server_->port() != port ? fmt::format("port {} is in use; ", port) : "") +
            "live page: " + server_->url());
  } catch (const std::exception& e) {
    message(std::string("no live page: ") + e.what());
  }
}

void LiveObserver::begun(const std::filesystem::path& folder, bool resumed) {
  next_.begun(folder, resumed);
  if (server_) server_->show(folder);
}

void LiveObserver::ended() {
  next_.ended();
  server_.reset();
}

}  // namespace trainhost::live
