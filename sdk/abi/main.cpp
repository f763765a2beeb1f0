// trainhost_abi: the plugin interface on paper. Part of the build, not installed.
//   trainhost_abi layout  INCLUDE/trainhost      the golden text of these headers
//   trainhost_abi asserts INCLUDE/trainhost      a C source that compiles where the compiler agrees
//   trainhost_abi check   OLDER.txt NEWER.txt    what breaks, a sentence a line; exit 1 if anything does
#include <fstream>
#include <iostream>
#include <sstream>

#include "sdk/abi/layout.hpp"

namespace abi = trainhost::abi;

static abi::Layout golden(const char* file) {
  std::ostringstream text;
  text << std::ifstream(file).rdbuf();
  if (text.str().empty()) throw std::runtime_error(std::string(file) + " cannot be read or is empty");
  return abi::from_text(text.str());
}

int main(int argc, char** argv) try {
  const std::string verb = argc > 1 ? argv[1] : "";
  if (verb == "layout" && argc == 3)
    return std::cout << abi::to_text(abi::from_headers(abi::headers_in(argv[2]))), 0;
  if (verb == "asserts" && argc == 3)
    return std::cout << abi::c_asserts(abi::from_headers(abi::headers_in(argv[2]))), 0;
  if (verb == "check" && argc == 4) {
    const auto found = abi::breaks(golden(argv[2]), golden(argv[3]));
    for (const std::string& b : found) std::cout << b << '\n';
    return found.empty() ? 0 : 1;
  }
  std::cerr << "trainhost_abi layout|asserts HEADERS, or check OLDER NEWER\n";
  return 2;
} catch (const std::exception& e) {
  std::cerr << e.what() << '\n';
  return 2;
}
