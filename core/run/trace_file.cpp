// See trace_file.hpp.
#include "core/run/trace_file.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include "core/base/error.hpp"
#include "core/base/text.hpp"

namespace trainhost::run {
namespace fs = std::filesystem;

TraceFile::TraceFile(fs::path file) : file_(std::move(file)) {
  const auto refuse = [&](const std::string& why) {
    return usage_error(fmt::format("--profile: cannot write '{}': {}", escaped(file_.string(), 4096), why),
                       "for example --profile trace.json");
  };
  std::error_code ec;
  if (!file_.has_filename()) throw refuse("it names no file");
  if (fs::is_directory(file_, ec)) throw refuse("it is a directory");
  if (fs::exists(file_, ec) && !fs::is_regular_file(file_, ec)) throw refuse("it is no regular file");
  if (fs::exists(file_, ec) && ::access(file_.c_str(), W_OK) != 0) throw refuse("it is write-protected");
  if (const fs::path dir = file_.parent_path(); !dir.empty() && !fs::is_directory(dir, ec))
    throw refuse(fmt::format("'{}' is no directory", escaped(dir.string(), 4096)));
  temp_ = checkpoint::temp_beside(file_);
  try {
    fd_ = checkpoint::create_new(temp_);
  } catch (const Error& e) {
    throw refuse(e.what());
  }
}

TraceFile::~TraceFile() {
  if (fd_.get() < 0) return;
  fd_.reset();
  std::error_code ignored;
  fs::remove(temp_, ignored);
}

void TraceFile::write(const std::string& text) {
  checkpoint::write_all(fd_.get(), std::as_bytes(std::span(text)), temp_);
}

void TraceFile::publish() {
  checkpoint::sync_and_close(std::move(fd_), temp_);
  checkpoint::rename_path(temp_, file_);
  checkpoint::sync_directory(file_.parent_path());
}

}  // namespace trainhost::run
