// See rank_log.hpp.
#include "core/report/rank_log.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "core/base/error.hpp"
#include "core/base/text.hpp"
#include "core/training/utc_time.hpp"

namespace trainhost::report {

RankLog::RankLog(std::string name, const std::string& process, training::RunObserver& next)
    : ForwardingObserver(next),
      name_(std::move(name)),
      log_(Progress::Mode::kPlain, Terminal{}, [this](const std::string& text) { write(text); }) {
  log_.message(process);
}

RankLog::~RankLog() {
  if (file_ >= 0) ::close(file_);
}

/// Not through a link, which could lead to a file of the user, and without waiting for a reader of a pipe.
void RankLog::begun(const std::filesystem::path& folder, bool resumed) {
  const std::filesystem::path path = folder / name_;
  file_ = ::open(
      path.c_str(),
      O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | (resumed ? 0 : O_TRUNC), 0644);
  if (file_ < 0)
    throw run_error(fmt::format("cannot write {}: {}", escaped(path.string(), 4096),
                                errno == ELOOP ? "it is a symbolic link" : std::strerror(errno)),
                    "remove it");
  append(std::exchange(before_, {}));
  log_.begun(folder, resumed);
  next_.begun(folder, resumed);
}

void RankLog::write(const std::string& text) {
  const std::string message = training::utc_time() + " " + text;
  if (file_ < 0)
    before_ += message;
  else
    append(message);
}

/// One call per message, so that messages are whole when the process is killed.
void RankLog::append(const std::string& messages) {
  [[maybe_unused]] const ssize_t n = ::write(file_, messages.data(), messages.size());
}

}  // namespace trainhost::report
