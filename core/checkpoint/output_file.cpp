// Checks and writes output files of commands; see output_file.hpp.
#include "core/checkpoint/output_file.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include "core/base/error.hpp"
#include "core/base/text.hpp"
#include "core/checkpoint/store.hpp"

namespace trainhost::checkpoint {
namespace fs = std::filesystem;
namespace {

Error cannot_write(std::string_view option, const fs::path& file, const std::string& why,
                   std::string_view example) {
  return usage_error(fmt::format("{}: cannot write '{}': {}", option, escaped(file.string(), 4096), why),
                     fmt::format("example: {}", example));
}

}  // namespace

void require_writable(std::string_view option, const fs::path& file, std::string_view example) {
  const auto rejected = [&](const std::string& why) { return cannot_write(option, file, why, example); };
  std::error_code ec;
  if (!file.has_filename() || file.filename() == "." || file.filename() == "..")
    throw rejected("this is not a file name");
  if (fs::is_directory(file, ec)) throw rejected("it is a directory");
  if (fs::exists(file, ec) && !fs::is_regular_file(file, ec)) throw rejected("it is not a regular file");
  if (fs::exists(file, ec) && ::access(file.c_str(), W_OK) != 0) throw rejected("it is write-protected");
  const fs::path dir = file.has_parent_path() ? file.parent_path() : fs::path(".");
  if (!fs::exists(dir, ec))
    throw rejected(fmt::format("the directory '{}' does not exist", escaped(dir.string(), 4096)));
  if (!fs::is_directory(dir, ec))
    throw rejected(fmt::format("'{}' is not a directory", escaped(dir.string(), 4096)));
  if (::access(dir.c_str(), W_OK | X_OK) != 0)
    throw rejected(fmt::format("the directory '{}' is write-protected", escaped(dir.string(), 4096)));
}

OutputFile::OutputFile(std::string_view option, fs::path file, std::string_view example)
    : file_(std::move(file)) {
  require_writable(option, file_, example);
  temporary_ = temp_beside(fs::absolute(file_));
  try {
    fd_ = create_new(temporary_);
  } catch (const Error& e) {
    throw cannot_write(option, file_, e.what(), example);
  }
}

OutputFile::~OutputFile() {
  if (fd_.get() < 0) return;
  fd_.reset();
  std::error_code ignored;
  fs::remove(temporary_, ignored);
}

void OutputFile::write(std::string_view text) {
  write_all(fd_.get(), std::as_bytes(std::span(text)), temporary_);
}

void OutputFile::publish() {
  sync_and_close(std::move(fd_), temporary_);
  rename_path(temporary_, fs::absolute(file_));
  sync_directory(temporary_.parent_path());
}

void write_output(std::string_view option, const fs::path& file, std::string_view text,
                  std::string_view example) {
  require_writable(option, file, example);
  write_file_atomically(fs::absolute(file), text);
}

}  // namespace trainhost::checkpoint
