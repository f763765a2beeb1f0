// Runs the built program as a user would and keeps what it said. For tests only.
#pragma once
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "tests/support/files.hpp"

namespace trainhost::test {

struct Outcome {
  int code = -1;  // exit code; 128 + signal when killed
  std::string out, err;
  double seconds = 0;
  std::uint64_t max_rss_bytes = 0;
};

struct RunOptions {
  std::filesystem::path directory;                 // working directory
  std::map<std::string, std::string> environment;  // added
  std::vector<std::string> launcher;               // its command before that of the program
  std::string program;                             // another one than trainhost
  std::filesystem::path stdout_to;                 // a file in place of Outcome::out
  std::chrono::seconds limit{300};                 // then it is killed, and Outcome::err says so
  std::function<void(pid_t, const std::string& out_so_far)> watch;  // called as output arrives
  std::function<void(pid_t, const std::string& err_so_far)> watch_err;
};

inline std::string program() { return std::string(TRAINHOST_BINARY_DIR) + "/bin/trainhost"; }

inline Outcome run_program(const std::vector<std::string>& words, const RunOptions& o = {}) {
  int out[2], err[2];
  if (pipe(out) || pipe(err)) return {};
  auto begin = std::chrono::steady_clock::now();
  std::vector<std::string> all = o.launcher;
  all.push_back(o.program.empty() ? program() : o.program);
  all.insert(all.end(), words.begin(), words.end());
  std::vector<char*> argv;
  for (std::string& w : all) argv.push_back(w.data());
  argv.push_back(nullptr);
  pid_t pid = fork();
  if (pid < 0) return {};
  if (pid == 0) {
    dup2(o.stdout_to.empty() ? out[1] : open(o.stdout_to.c_str(), O_WRONLY), 1);
    dup2(err[1], 2);
    int null = open("/dev/null", O_RDONLY);
    dup2(null, 0);
    for (int fd : {out[0], out[1], err[0], err[1]}) close(fd);
    for (const auto& [k, v] : o.environment) setenv(k.c_str(), v.c_str(), 1);
    if (!o.directory.empty() && chdir(o.directory.c_str()) != 0) _exit(126);
    execvp(argv[0], argv.data());
    _exit(127);
  }
  close(out[1]);
  close(err[1]);
  Outcome r;
  pollfd fds[2] = {{out[0], POLLIN, 0}, {err[0], POLLIN, 0}};
  for (int open_ends = 2; open_ends > 0;) {
    if (poll(fds, 2, 1000) < 0) break;
    if (std::chrono::steady_clock::now() - begin > o.limit) {
      kill(pid, SIGKILL);
      r.err += "\nkilled by the test after " + std::to_string(o.limit.count()) + " s\n";
      break;  // what it has started may keep the pipes open
    }
    for (int i = 0; i < 2; ++i) {
      if (fds[i].fd < 0 || !(fds[i].revents & (POLLIN | POLLHUP))) continue;
      char buffer[65536];
      ssize_t n = read(fds[i].fd, buffer, sizeof buffer);
      if (n <= 0) {
        close(fds[i].fd);
        fds[i].fd = -1;
        --open_ends;
      } else {
        (i == 0 ? r.out : r.err).append(buffer, static_cast<std::size_t>(n));
        if (i == 0 && o.watch) o.watch(pid, r.out);
        if (i == 1 && o.watch_err) o.watch_err(pid, r.err);
      }
    }
  }
  int status = 0;
  rusage usage{};
  wait4(pid, &status, 0, &usage);
  r.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  r.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  r.max_rss_bytes = static_cast<std::uint64_t>(usage.ru_maxrss) * 1024;
  return r;
}

/// Options of a command for a model of two layers that trains in milliseconds.
inline std::vector<std::string> small_model_options() {
  return {"--set", "optimizer.warmup_steps=1",    "--set", "model.hidden_size=32",
          "--set", "model.intermediate_size=48",  "--set", "model.num_hidden_layers=2",
          "--set", "model.num_attention_heads=2", "--set", "model.num_key_value_heads=2",
          "--set", "model.head_dim=16",           "--set", "data.seq_len=32",
          "--set", "train.micro_batch=2"};
}

}  // namespace trainhost::test
