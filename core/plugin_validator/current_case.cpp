// See current_case.hpp. A page of a file, mapped shared by the child and read by the parent: what the child
// stored before a crash remains, without a system call per case. Without the file (a full or read-only /tmp)
// the checks work, and a crash is reported without its case.
#include "core/plugin_validator/current_case.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>

namespace trainhost::plugin_validator {
namespace {
constexpr std::size_t kPage = 4096;
}

CaseFile::CaseFile() {
  // O_CLOEXEC: the child opens it by name.
  std::error_code failed;
  std::string pattern = (std::filesystem::temp_directory_path(failed) / "trainhost-case-XXXXXX").string();
  const int fd = ::mkostemp(pattern.data(), O_CLOEXEC);
  if (fd < 0) return;
  if (::ftruncate(fd, kPage) == 0)
    name_ = pattern;
  else
    ::unlink(pattern.c_str());
  ::close(fd);
}

CaseFile::~CaseFile() {
  if (!name_.empty()) ::unlink(name_.c_str());
}

std::string CaseFile::text() const {
  if (name_.empty()) return "";
  char page[kPage] = {};
  // The page may be torn by a crash in the middle of a copy; it always has a NUL.
  std::ifstream(name_, std::ios::binary).read(page, kPage - 1);
  return page;
}

void CaseNote::open(const std::string& name) {
  // O_NOFOLLOW: the directory may be writable by others.
  const int fd = name.empty() ? -1 : ::open(name.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0) return;
  void* p = ::mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  ::close(fd);
  if (p != MAP_FAILED) page_ = static_cast<char*>(p);
}

void CaseNote::note(const std::string& text) {
  if (!page_) return;
  // Cut to the page.
  const std::size_t n = std::min(text.size(), kPage - 1);
  std::memcpy(page_, text.data(), n);
  page_[n] = 0;
}

}  // namespace trainhost::plugin_validator
