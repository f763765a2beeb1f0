// Helpers of the tests of core/checkpoint: a temporary directory, safetensors files built byte by byte
// (without the writer under test), and checks of error messages.
#pragma once
#include <unistd.h>

#include <boost/test/unit_test.hpp>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <string_view>

#include "core/base/error.hpp"
#include "core/checkpoint/safetensors.hpp"
#include "core/model/tensors.hpp"
#include "tests/support/files.hpp"

namespace trainhost::test {

namespace fs = std::filesystem;

/// In memory where possible: these tests write thousands of small files, and none needs a real disk.
inline fs::path fast_temporary_parent() {
  std::error_code ec;
  const fs::space_info memory = fs::space("/dev/shm", ec);
  const bool fits = !ec && memory.available > (512u << 20) && ::access("/dev/shm", W_OK) == 0;
  return fits ? fs::path("/dev/shm") : fs::temp_directory_path();
}

/// Number of cases of a loop: `usual`, or the value of the environment variable, which tools/faults sets.
inline int number_of_cases(const char* variable, int usual) {
  const char* n = std::getenv(variable);
  return n ? std::atoi(n) : usual;
}

class TempDir : public test::TemporaryDirectory {
 public:
  TempDir() : TemporaryDirectory(fast_temporary_parent()) {}
};

inline void put(const fs::path& file, std::string_view bytes) {
  std::ofstream out(file, std::ios::binary | std::ios::trunc);
  out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  if (!out.flush()) throw std::runtime_error("cannot write " + file.string());
}

using trainhost::test::read_file;

inline std::string le64(std::uint64_t n) {
  std::string s(8, '\0');
  std::memcpy(s.data(), &n, 8);
  return s;
}

/// A file of the given header text and as many data bytes (0, 1, 2, ...).
inline std::string safetensors(const std::string& header, std::size_t data = 0) {
  std::string s = le64(header.size()) + header;
  for (std::size_t i = 0; i < data; ++i)
    s += static_cast<char>(i % 60);  // as F32 or F16: small finite values
  return s;
}

/// {"NAME":{"dtype":...,"shape":...,"data_offsets":...}} with the parts as JSON text.
inline std::string entry(const std::string& name, const std::string& dtype, const std::string& shape,
                         const std::string& offsets) {
  return "\"" + name + "\":{\"dtype\":" + dtype + ",\"shape\":" + shape + ",\"data_offsets\":" + offsets +
         "}";
}

/// The message of the trainhost::Error that f throws, "" if it throws none; " [rule N]" follows where a file
/// violates a rule, whose number the message itself must not have. Any other exception fails the test.
inline std::string message_of(const std::function<void()>& f, Exit code = Exit::kUsage) {
  try {
    f();
  } catch (const checkpoint::RejectedFile& e) {
    BOOST_TEST(static_cast<int>(e.code()) == static_cast<int>(code), "exit code of: " << e.what());
    BOOST_TEST(e.full().find("rule") == std::string::npos, e.full());
    return e.full() + " [rule " + std::to_string(e.rule) + "]";
  } catch (const Error& e) {
    BOOST_TEST(static_cast<int>(e.code()) == static_cast<int>(code), "exit code of: " << e.what());
    return e.full();
  }
  return {};
}

inline bool says(const std::string& message, std::string_view part) {
  return message.find(part) != message.npos;
}

inline TensorInfo info(const std::string& name, std::uint64_t rows, std::uint64_t cols = 0,
                       TensorRole role = TensorRole::kNorm1) {
  TensorInfo t;
  t.name = name;
  t.role = role;
  t.rank = cols == 0 ? 1 : 2;
  t.dim = {rows, cols == 0 ? 1 : cols};
  return t;
}

}  // namespace trainhost::test
