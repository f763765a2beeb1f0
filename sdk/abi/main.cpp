// trainhost_abi: golden files of the plugin interface. Part of the build, not installed.
//   trainhost_abi layout  INCLUDE/trainhost      print the golden file of these headers
//   trainhost_abi asserts INCLUDE/trainhost      print C source that compiles if the compiler agrees
//   trainhost_abi check   OLDER.txt NEWER.txt    print incompatibilities, one per line; exit code 1 if any
#include <fstream>
#include <iostream>
#include <sstream>

#include "sdk/abi/struct_layout.hpp"

namespace abi = trainhost::abi;

static abi::StructLayout read_golden(const char* file) {
  std::ostringstream text;
  text << std::ifstream(file).rdbuf();
  if (text.str().empty()) throw std::runtime_error(std::string(file) + " is missing or empty");
  return abi::from_text(text.str());
}

int main(int argc, char** argv) try {
  const std::string command = argc > 1 ? argv[1] : "";
  if (command == "layout" && argc == 3)
    return std::cout << abi::to_text(abi::from_headers(abi::headers_in(argv[2]))), 0;
  if (command == "asserts" && argc == 3)
    return std::cout << abi::c_asserts(abi::from_headers(abi::headers_in(argv[2]))), 0;
  if (command == "check" && argc == 4) {
    const auto found = abi::incompatibilities(read_golden(argv[2]), read_golden(argv[3]));
    for (const std::string& b : found) std::cout << b << '\n';
    return found.empty() ? 0 : 1;
  }
  std::cerr << "usage: trainhost_abi layout|asserts HEADERS | check OLDER NEWER\n";
  return 2;
} catch (const std::exception& e) {
  std::cerr << e.what() << '\n';
  return 2;
}
