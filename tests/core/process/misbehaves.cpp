// The child of child_test: does what its first word says.
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "core/process/child_side.hpp"

namespace {

trainhost::ChildRecord record;

[[noreturn]] void hang() {
  while (true) ::pause();
}

void leave_behind(bool own_session) {
  if (::fork() == 0) {
    if (own_session) ::setsid();
    if (own_session && ::fork() != 0) ::_exit(0);
    hang();
  }
}

void noise(std::size_t bytes) {
  std::vector<char> buffer(1 << 20, 'x');
  for (std::size_t sent = 0; sent < bytes;) {
    const ssize_t n = ::write(1, buffer.data(), buffer.size());
    if (n <= 0) return;
    sent += static_cast<std::size_t>(n);
  }
}

std::string facts() {
  rlimit core{}, files{};
  ::getrlimit(RLIMIT_CORE, &core);
  ::getrlimit(RLIMIT_NOFILE, &files);
  int open = 0;
  for (int fd = 3; fd < 1000; ++fd)
    if (fd != trainhost::kChildRecordDescriptor && ::fcntl(fd, F_GETFD) >= 0) ++open;
  return "core " + std::to_string(core.rlim_cur) + " files " + std::to_string(files.rlim_cur) + " open " +
         std::to_string(open) + " group " + (::getpgrp() == ::getpid() ? "own" : "shared");
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "";
  const std::string input = trainhost::read_child_input();
  record.write("began;");
  if (what == "echo") record.write(input);
  if (what == "facts") record.write(facts());
  if (what == "segv") ::raise(SIGSEGV);
  if (what == "abort") std::abort();
  if (what == "bus") ::raise(SIGBUS);
  if (what == "exit0") std::exit(0);
  if (what == "exit7") record.done(7);
  if (what == "loop") hang();
  if (what == "ignores") ::signal(SIGTERM, SIG_IGN), hang();
  if (what == "stops") ::raise(SIGSTOP);
  if (what == "orphan") leave_behind(false);
  if (what == "daemon") leave_behind(true), ::usleep(50'000);
  if (what == "noise") noise(std::size_t{1} << 30);
  if (what == "chatter") noise(SIZE_MAX);
  if (what == "closes")
    for (int fd = 0; fd < 10; ++fd) ::close(fd);
  if (what == "forges") (void)!::write(trainhost::kChildRecordDescriptor, "\xff\xff\xff\xff....", 8);
  record.write("ended;");
  record.done();
}
