// What the emulated device of a whole program has: EMULATED_CUDA_MEMORY bytes, of which others hold
// EMULATED_CUDA_HELD, or all but the number in the file that EMULATED_CUDA_FREE names; and FAKE_CUDA_SMS
// multiprocessors of each of FAKE_CUDA_DEVICES devices, as the fake driver says. Read once, when the engine
// is loaded. What else a fake driver says of the same machine is set beside it (FAKE_NVML_FREE).
// EMULATED_CUDA_FAIL = NAME:N:CODE loses it at the N-th call of NAME.
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

#include "emu.hpp"

namespace {

std::uint64_t bytes(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text ? std::strtoull(text, nullptr, 10) : otherwise;
}

const bool made = [] {
  emu::Machine m;
  m.memory_bytes = bytes("EMULATED_CUDA_MEMORY", m.memory_bytes);
  m.used_by_others_bytes = bytes("EMULATED_CUDA_HELD", 0);
  m.devices = static_cast<int>(bytes("FAKE_CUDA_DEVICES", 1));
  m.multiprocessors = static_cast<int>(bytes("FAKE_CUDA_SMS", 132));
  std::uint64_t free = 0;
  const char* file = std::getenv("EMULATED_CUDA_FREE");
  if (file && std::ifstream(file) >> free && free <= m.memory_bytes)
    m.used_by_others_bytes = m.memory_bytes - free;
  emu::set_machine(m);
  if (const char* text = std::getenv("EMULATED_CUDA_FAIL")) {
    std::istringstream words(text);
    std::string name, nth, code;
    if (std::getline(words, name, ':') && std::getline(words, nth, ':') && std::getline(words, code))
      emu::fail(name, std::strtoull(nth.c_str(), nullptr, 10), std::atoi(code.c_str()), true);
  }
  return true;
}();

}  // namespace
