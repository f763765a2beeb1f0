// See child.hpp. posix_spawn is used because this process may have threads: after fork() only
// async-signal-safe functions would be allowed in the child. One poll() waits for the two pipes and the
// child, so that neither endless output nor silence takes longer than the deadline. The group is killed
// before its leader is reaped: until then no other process can get its number.
#include "core/process/child.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <utility>

#include "core/base/error.hpp"
#include "core/base/text.hpp"
#include "core/process/child_side.hpp"
#include "core/process/orphans.hpp"

extern char** environ;

namespace trainhost {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::size_t kMaxInput = 48 * 1024;  // fits into a pipe (64 KiB) that nothing reads yet
constexpr int kAboveStandard = 10;  // our ends of the pipes never collide with the child's descriptors 0 to 3
constexpr std::uint32_t kMaxFrame = 1 << 20;  // a longer one is not from child_side.cpp

class Descriptor {
 public:
  explicit Descriptor(int fd = -1) : fd_(fd) {}
  ~Descriptor() { reset(); }
  Descriptor(Descriptor&& o) noexcept : fd_(std::exchange(o.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& o) noexcept {
    std::swap(fd_, o.fd_);
    return *this;
  }
  int get() const { return fd_; }
  void reset() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }

 private:
  int fd_;
};

struct Pipe {
  Descriptor read, write;
};

// O_CLOEXEC from the start: another thread may fork between pipe2() and our spawn, and its child would keep
// the pipe open, so that we would wait for its end. The low originals are closed when the function returns.
Pipe make_pipe() {
  int fd[2];
  if (::pipe2(fd, O_CLOEXEC) != 0)
    throw run_error(std::string("cannot make a pipe: ") + std::strerror(errno));
  Descriptor low[2] = {Descriptor(fd[0]), Descriptor(fd[1])};
  Pipe p{Descriptor(::fcntl(fd[0], F_DUPFD_CLOEXEC, kAboveStandard)),
         Descriptor(::fcntl(fd[1], F_DUPFD_CLOEXEC, kAboveStandard))};
  if (p.read.get() < 0 || p.write.get() < 0)
    throw run_error(std::string("cannot make a pipe: ") + std::strerror(errno));
  return p;
}

// Unique since boot: the time tells apart two processes that had the same number.
std::string make_mark() {
  static std::atomic<std::uint64_t> next{1};
  return fmt::format("{}.{}.{}", ::getpid(), next++, Clock::now().time_since_epoch().count());
}

// Copied and changed, not set by setenv(): other threads may read environ.
std::vector<std::string> environment(const ChildRequest& r, const std::string& mark) {
  std::map<std::string, std::string> over = r.environment;
  over[kChildMark] = mark;
  std::vector<std::string> out;
  for (char** e = environ; *e; ++e) {
    const std::string entry = *e;
    if (over.count(entry.substr(0, entry.find('='))) == 0) out.push_back(entry);
  }
  for (const auto& [name, value] : over) out.push_back(name + "=" + value);
  return out;
}

// argv and envp point into `strings`, which must outlive the spawn.
std::vector<char*> pointers(std::vector<std::string>& strings) {
  std::vector<char*> out;
  for (std::string& s : strings) out.push_back(s.data());
  out.push_back(nullptr);
  return out;
}

/// Restores default signal handling in the child, whatever this process ignores or blocks.
void reset_signals(posix_spawnattr_t& attributes) {
  sigset_t none, all;
  sigemptyset(&none);
  sigfillset(&all);
  sigdelset(&all, SIGKILL), sigdelset(&all, SIGSTOP);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &all);
}

pid_t spawn(const ChildRequest& r, const std::string& mark, const Pipe& in, const Pipe& out,
            const Pipe& record) {
  std::vector<std::string> argv_text = {r.program.string()}, env_text = environment(r, mark);
  argv_text.insert(argv_text.end(), r.arguments.begin(), r.arguments.end());
  std::vector<char*> argv = pointers(argv_text), env = pointers(env_text);
  // The actions run in the child in this order: first the standard descriptors, then all others are closed,
  // so that a library without O_CLOEXEC leaks nothing to the child.
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_adddup2(&files, in.read.get(), 0);
  posix_spawn_file_actions_adddup2(&files, out.write.get(), 1);
  posix_spawn_file_actions_adddup2(&files, out.write.get(), 2);
  // The record goes to 3 first: closefrom(4) would close its final number.
  posix_spawn_file_actions_adddup2(&files, record.write.get(), 3);
#if __GLIBC_PREREQ(2, 34)
  posix_spawn_file_actions_addclosefrom_np(&files, 4);
#endif
  posix_spawn_file_actions_adddup2(&files, 3, kChildRecordDescriptor);
  posix_spawn_file_actions_addclose(&files, 3);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes,
                           POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);
  // A new group whose number is the child's pid, so that one kill() reaches everything it forks.
  posix_spawnattr_setpgroup(&attributes, 0);
  reset_signals(attributes);
  pid_t pid = 0;
  // posix_spawn returns the error; errno is not set. It fails also when exec fails, and no child remains.
  const int failed = ::posix_spawn(&pid, r.program.c_str(), &files, &attributes, argv.data(), env.data());
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&files);
  if (failed) throw run_error("cannot start " + r.program.string() + ": " + std::strerror(failed));
  return pid;
}

// Limits are set from outside because posix_spawn cannot. The child has not passed its first read by then:
// its input is sent afterwards. Limits are only lowered, so that no privilege is needed; the hard limit too,
// so that the child cannot raise them again.
void set_limits(pid_t pid, const ChildLimits& l) {
  const auto lower = [pid](auto what, rlim_t most) {
    rlimit now{};
    if (::prlimit(pid, what, nullptr, &now) != 0) return;
    now.rlim_max = std::min(now.rlim_max, most);
    now.rlim_cur = std::min(now.rlim_cur, now.rlim_max);
    ::prlimit(pid, what, &now, nullptr);
  };
  // A core file of a process with mapped weights could fill the disk.
  lower(RLIMIT_CORE, 0);
  lower(RLIMIT_FSIZE, l.file_bytes);
  lower(RLIMIT_NOFILE, l.descriptors);
}

/// Writes the whole input. It fits into the pipe, so that the write neither blocks nor raises SIGPIPE: our
/// own copy of the read end stays open until the write is done.
void send(Pipe& in, const std::string& input) {
  std::size_t sent = 0;
  while (sent < input.size()) {
    const ssize_t n = ::write(in.write.get(), input.data() + sent, input.size() - sent);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    sent += static_cast<std::size_t>(n);
  }
  in.write.reset();
  in.read.reset();
}

/// The bytes that arrive on one pipe: the first `keep` are stored, all are counted.
struct PipeReader {
  Descriptor& fd;
  std::size_t keep;
  std::string kept;
  std::uint64_t bytes = 0;

  /// Reads at most 16 buffers, so that a child that never stops writing cannot keep us here past the
  /// deadline.
  void drain() {
    char buffer[65536];
    for (int i = 0; i < 16 && fd.get() >= 0; ++i) {
      const ssize_t n = ::read(fd.get(), buffer, sizeof buffer);
      // EAGAIN: empty for now. End of file: every writer has closed it.
      if (n < 0 && (errno == EINTR || errno == EAGAIN)) return;
      if (n <= 0) return fd.reset();
      kept.append(buffer, std::min(static_cast<std::size_t>(n), keep - kept.size()));
      bytes += static_cast<std::uint64_t>(n);
    }
  }
};

/// Joins the frames of a record. Returns true when the end frame was among them. Format: child_side.cpp.
/// A record of a child that was killed ends within a frame; the part that arrived is kept, for messages.
bool join_frames(const std::string& bytes, std::string& record) {
  std::size_t at = 0;
  while (bytes.size() - at >= sizeof(std::uint32_t)) {
    std::uint32_t length;
    std::memcpy(&length, bytes.data() + at, sizeof length);
    at += sizeof length;
    if (length == 0) return true;
    if (length > kMaxFrame) return false;
    record.append(bytes, at, length);
    at += std::min<std::size_t>(length, bytes.size() - at);
  }
  return false;
}

/// Waits until the child ends or the deadline passes, and reads both pipes meanwhile. Sets r.code and r.end;
/// the caller decides between kExited and kDone.
void watch(pid_t pid, Clock::time_point until, PipeReader& output, PipeReader& record, ChildResult& r) {
  // A pidfd becomes readable when the process ends. Unlike SIGCHLD it changes no state of the whole process.
  const Descriptor watched(
      static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));  // -1 before Linux 5.3: poll by time alone
  const int tick_ms = watched.get() >= 0 ? 50 : 2;
  while (true) {
    siginfo_t info{};
    // WNOWAIT leaves the zombie: the pid and its group number stay reserved until run_child() has killed the
    // group.
    if (::waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WSTOPPED | WNOHANG | WNOWAIT) == 0 &&
        info.si_pid) {
      r.end = info.si_code == CLD_EXITED                                   ? ChildEnd::kExited
              : info.si_code == CLD_STOPPED || info.si_code == CLD_TRAPPED ? ChildEnd::kStopped
                                                                           : ChildEnd::kSignal;
      r.code = info.si_status;
      return;
    }
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now()).count();
    if (left <= 0) {
      r.end = ChildEnd::kLate;
      return;
    }
    // A closed pipe has descriptor -1, which poll() skips, so a child that closes its output causes no busy
    // loop.
    pollfd ready[3] = {
        {output.fd.get(), POLLIN, 0}, {record.fd.get(), POLLIN, 0}, {watched.get(), POLLIN, 0}};
    ::poll(ready, 3,
           static_cast<int>(std::min<long long>(left, tick_ms)));  // poll() ignores a descriptor of -1
    if (ready[0].revents) output.drain();
    if (ready[1].revents) record.drain();
  }
}

/// "signal 11 (SIGSEGV)"; strsignal() gives a sentence instead of the name.
std::string signal_name(int number) {
  const char* name = nullptr;
#if __GLIBC_PREREQ(2, 32)
  name = ::sigabbrev_np(number);
#endif
  return name ? fmt::format("signal {} (SIG{})", number, name) : fmt::format("signal {}", number);
}

}  // namespace

ChildResult run_child(const ChildRequest& request) {
  if (request.input.size() > kMaxInput)
    throw run_error(fmt::format("the input of a child process has {} bytes; at most {} are allowed",
                                request.input.size(), kMaxInput));
  const std::string mark = make_mark();
  OrphanWatch orphans;
  Pipe in = make_pipe(), out = make_pipe(), back = make_pipe();
  const auto begin = Clock::now();
  pid_t pid = 0;
  // The spawn runs under the lock of the watch: another watch must not reap this child.
  orphans.lead([&] { return pid = spawn(request, mark, in, out, back); });
  set_limits(pid, request.limits);
  // Our copies of the write ends must be closed, or end of file would never arrive.
  out.write.reset(), back.write.reset();
  send(in, request.input);
  // Only the read ends: the child's ends are open files of their own and stay blocking.
  ::fcntl(out.read.get(), F_SETFL, O_NONBLOCK);
  ::fcntl(back.read.get(), F_SETFL, O_NONBLOCK);

  ChildResult r;
  PipeReader output{out.read, request.limits.output_bytes, {}},
      record{back.read, request.limits.record_bytes, {}};
  const std::chrono::duration<double> allowed(request.limits.seconds);
  watch(pid, begin + std::chrono::duration_cast<Clock::duration>(allowed), output, record, r);
  // The group includes processes that the child started. Also after a normal end: nothing may outlive the
  // call.
  ::kill(-pid, SIGKILL);
  while (::waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
  }
  r.seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  r.left_behind = orphans.kill_all(mark);
  // Once more, for what was written between the last poll and the end.
  output.drain(), record.drain();
  const bool record_finished = join_frames(record.kept, r.record);
  // An exit alone is not success: a library can call exit(0) in a constructor.
  if (r.end == ChildEnd::kExited && record_finished) r.end = ChildEnd::kDone;
  r.output = std::move(output.kept);
  r.output_bytes = output.bytes;
  return r;
}

std::string describe(const ChildResult& r, const ChildLimits& limits) {
  switch (r.end) {
    case ChildEnd::kDone:
      return "finished";
    case ChildEnd::kExited:
      return fmt::format("exited with code {} before it had finished", r.code);
    case ChildEnd::kSignal:
      return fmt::format("was ended by {}", signal_name(r.code));
    case ChildEnd::kStopped:
      return fmt::format("was stopped by {} and did not go on", signal_name(r.code));
    case ChildEnd::kLate:
      return fmt::format("was not done after {:g} s", limits.seconds);
  }
  return "ended in an unknown way";
}

}  // namespace trainhost
