// See trace_file.hpp.
#include "core/training/trace_file.hpp"

#include <fmt/format.h>

#include "core/base/error.hpp"
#include "core/base/text.hpp"
#include "core/checkpoint/output_file.hpp"

namespace trainhost::training {
namespace fs = std::filesystem;

TraceFile::TraceFile(fs::path file) : file_(std::move(file)) {
  checkpoint::require_writable("--profile", file_, "--profile trace.json");
  temp_ = checkpoint::temp_beside(file_);
  try {
    fd_ = checkpoint::create_new(temp_);
  } catch (const Error& e) {
    throw usage_error(
        fmt::format("--profile: cannot write '{}': {}", escaped(file_.string(), 4096), e.what()),
        "for example --profile trace.json");
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

}  // namespace trainhost::training
