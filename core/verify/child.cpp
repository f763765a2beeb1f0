// See child.hpp. posix_spawn, because this process has threads by now; output to files, because nobody has to read
// along.
#include "core/verify/child.hpp"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <fstream>
#include <thread>

#include "core/base/error.hpp"

extern char** environ;

namespace trainhost::verify {
namespace {

std::vector<std::string> merged(const std::map<std::string, std::string>& over) {
  std::vector<std::string> out;
  for (char** e = environ; *e; ++e) {
    const std::string entry = *e;
    if (over.count(entry.substr(0, entry.find('='))) == 0) out.push_back(entry);
  }
  for (const auto& [name, value] : over) out.push_back(name + "=" + value);
  return out;
}

std::vector<char*> pointers(std::vector<std::string>& words) {
  std::vector<char*> out;
  for (std::string& w : words) out.push_back(w.data());
  out.push_back(nullptr);
  return out;
}

std::string content(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

/// The status of `pid`, which is killed when it is not done by `until`.
int wait_for(pid_t pid, std::chrono::steady_clock::time_point until, bool& late) {
  int status = 0;
  while (::waitpid(pid, &status, WNOHANG) == 0) {
    if (!late && std::chrono::steady_clock::now() > until) {
      late = true;
      ::kill(pid, SIGKILL);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return status;
}

}  // namespace

ScratchDirectory::ScratchDirectory() {
  std::string pattern = (std::filesystem::temp_directory_path() / "trainhost-verify-XXXXXX").string();
  if (!::mkdtemp(pattern.data())) throw run_error("cannot make a directory " + pattern + ": " + std::strerror(errno));
  path_ = pattern;
}

ScratchDirectory::~ScratchDirectory() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

ChildResult run_child(const std::filesystem::path& program, const std::vector<std::string>& words,
                      const std::map<std::string, std::string>& environment, const std::filesystem::path& scratch,
                      std::chrono::seconds longest) {
  // /proc/self would be the child's own by the time it is looked up.
  const std::filesystem::path file = std::filesystem::canonical(program), out = scratch / "stdout",
                              err = scratch / "stderr";
  std::vector<std::string> argv_words = {file.string()}, env_words = merged(environment);
  argv_words.insert(argv_words.end(), words.begin(), words.end());
  std::vector<char*> argv = pointers(argv_words), env = pointers(env_words);

  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, 1, out.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  posix_spawn_file_actions_addopen(&actions, 2, err.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  pid_t pid = 0;
  const int failed = ::posix_spawn(&pid, file.c_str(), &actions, nullptr, argv.data(), env.data());
  posix_spawn_file_actions_destroy(&actions);
  if (failed) throw run_error("cannot start " + file.string() + ": " + std::strerror(failed));

  ChildResult r;
  const int status = wait_for(pid, std::chrono::steady_clock::now() + longest, r.late);
  r.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  r.out = content(out);
  r.err = content(err);
  return r;
}

}  // namespace trainhost::verify
