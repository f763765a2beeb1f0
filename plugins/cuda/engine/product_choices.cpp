// Reads and writes the file of algorithms. It is replaced as a whole by a rename, so that a reader never sees
// a part of it. There is no lock: of two processes that save at the same time, one may lose its lines, and
// those products are timed again by the next run. How algorithms are timed: gemm.cpp. See
// product_choices.hpp.
#include "plugins/cuda/engine/product_choices.hpp"

#include <unistd.h>

#include <cassert>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>

namespace trainhost::cuda {
namespace {

// Keys contain spaces and commas, but no tab.
constexpr char kSeparator = '\t';
// Two hexadecimal digits per byte of the algorithm. A line of another length is of another version of
// cuBLASLt.
constexpr std::size_t kDigits = 2 * sizeof(cublasLtMatmulAlgo_t);

// A file that does not exist gives no lines. A line that is damaged is skipped: the cost is that its product
// is timed again. Of two lines with one key, the first counts.
std::map<std::string, std::string> read_lines(const std::string& file) {
  std::map<std::string, std::string> lines;
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    const std::size_t end = line.find(kSeparator);
    if (end == line.npos || line.size() - end - 1 != kDigits ||
        line.find_first_not_of("0123456789abcdef", end + 1) != line.npos)
      continue;
    lines.emplace(line.substr(0, end), line.substr(end + 1));
  }
  return lines;
}

// cublasLtMatmulAlgo_t is opaque. cuBLAS documents that it can be stored as bytes and restored later for the
// same version of the library, which is therefore part of the key.
std::string to_digits(const cublasLtMatmulAlgo_t& a) {
  std::string digits;
  unsigned char bytes[sizeof a];
  std::memcpy(bytes, &a, sizeof a);
  for (const unsigned char b : bytes) digits += {"0123456789abcdef"[b / 16], "0123456789abcdef"[b % 16]};
  return digits;
}

cublasLtMatmulAlgo_t from_digits(const std::string& digits) {
  assert(digits.size() == kDigits);  // checked by read_lines()
  unsigned char bytes[sizeof(cublasLtMatmulAlgo_t)];
  const auto value = [&](std::size_t i) { return digits[i] <= '9' ? digits[i] - '0' : digits[i] - 'a' + 10; };
  for (std::size_t i = 0; i < sizeof bytes; ++i)
    bytes[i] = static_cast<unsigned char>(16 * value(2 * i) + value(2 * i + 1));
  cublasLtMatmulAlgo_t a;
  std::memcpy(&a, bytes, sizeof a);
  return a;
}

}  // namespace

ProductChoices::ProductChoices(std::string file, const std::string& device, std::uint64_t workspace_bytes)
    : file_(std::move(file)),
      // All that decides whether an algorithm is valid and fast, besides the product: device, library,
      // workspace.
      prefix_(device + ", cuBLASLt " + std::to_string(Gemm::library_version()) + ", workspace " +
              std::to_string(workspace_bytes) + ", "),
      lines_(read_lines(file_)) {}

std::optional<cublasLtMatmulAlgo_t> ProductChoices::find(const GemmShape& s) const {
  const auto it = lines_.find(key(s));
  if (it == lines_.end()) return std::nullopt;
  return from_digits(it->second);
}

void ProductChoices::add(const GemmShape& s, const cublasLtMatmulAlgo_t& chosen) {
  added_.insert_or_assign(key(s), to_digits(chosen));
}

std::string ProductChoices::save() {
  if (added_.empty()) return {};
  namespace fs = std::filesystem;
  // Read again: another process may have written since the constructor.
  std::map<std::string, std::string> all = read_lines(file_);
  for (const auto& [key, digits] : added_) {
    const auto [line, is_new] = all.emplace(key, digits);
    // A line that is still the one that this process has read was rejected by cuBLASLt, else add() would not
    // have been called: it is replaced. A line that has changed was written by another process meanwhile: it
    // is kept, so that all later runs use one choice.
    if (const auto read = lines_.find(key); !is_new && read != lines_.end() && read->second == line->second)
      line->second = digits;
  }
  std::error_code failed;
  if (const fs::path folder = fs::path(file_).parent_path(); !folder.empty())
    fs::create_directories(folder, failed);
  // In the same folder, because a rename is atomic only inside a file system; a name of its own for every
  // process.
  const std::string part = file_ + "." + std::to_string(getpid());
  std::ofstream out(part);
  for (const auto& [key, digits] : all) out << key << kSeparator << digits << '\n';
  out.close();
  // Before the next call, which may change it.
  const int reason = errno;
  if (!out.fail()) fs::rename(part, file_, failed);
  if (!out.fail() && !failed) return {};
  std::error_code ignored;
  fs::remove(part, ignored);
  return "cannot write " + file_ + ": " + (failed ? failed.message() : std::strerror(reason));
}

std::string product_choices_file(const char* option) {
  constexpr const char* kName = "products-1";
  if (option) return option;
  const auto folder = [](const char* name) {
    const char* value = std::getenv(name);
    return std::string(value ? value : "");
  };
  // Set but empty means: no file. An empty XDG_CACHE_HOME means: not set (XDG Base Directory Specification).
  if (std::getenv("TRAINHOST_CACHE"))
    return folder("TRAINHOST_CACHE").empty() ? "" : folder("TRAINHOST_CACHE") + "/" + kName;
  if (!folder("XDG_CACHE_HOME").empty()) return folder("XDG_CACHE_HOME") + "/trainhost/" + kName;
  return folder("HOME").empty() ? "" : folder("HOME") + "/.cache/trainhost/" + kName;
}

}  // namespace trainhost::cuda
