// Runs libFuzzer on one target: `fuzzer --target=NAME CORPUS [libFuzzer's options]`. `fuzzer --seeds=FOLDER`
// writes the initial inputs of every target to FOLDER/NAME/ and its words to FOLDER/NAME.dict. Used by
// `tools/dev fuzz`.
#include <fmt/format.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "tests/fuzz/seeds.hpp"
#include "tests/fuzz/targets.hpp"

namespace fs = std::filesystem;
namespace tf = trainhost::fuzz;

namespace {

const tf::Target* chosen = nullptr;

std::string quoted(const std::string& word) {
  std::string out = "\"";
  for (unsigned char c : word) out += fmt::format("\\x{:02x}", c);
  return out + "\"\n";
}

void write_seeds(const fs::path& folder) {
  for (const tf::Target& t : tf::targets()) {
    fs::create_directories(folder / t.name);
    int n = 0;
    for (const std::string& s : tf::seeds(t.name))
      std::ofstream(folder / t.name / fmt::format("seed-{}", n++), std::ios::binary) << s;
    std::ofstream dictionary(folder / (std::string(t.name) + ".dict"));
    for (const std::string& w : tf::words(t.name)) dictionary << quoted(w);
  }
}

}  // namespace

extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv) {
  for (int i = 1; i < *argc; ++i) {
    const std::string_view a = (*argv)[i];
    if (a.starts_with("--seeds=")) write_seeds(a.substr(8)), std::exit(0);
    if (a.starts_with("--target=")) chosen = tf::find(a.substr(9));
  }
  if (chosen) return 0;
  fmt::print(stderr, "fuzzer: set --target to one of:\n");
  for (const tf::Target& t : tf::targets()) fmt::print(stderr, "  {:14}{}\n", t.name, t.reads);
  std::exit(2);
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  chosen->run({reinterpret_cast<const char*>(data), size});
  return 0;
}
