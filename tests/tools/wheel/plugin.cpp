// A library that throws, catches and prints. Built and changed by old_glibc_test.py.
#include <iostream>
#include <stdexcept>
extern "C" int caught() {
  try {
    throw std::runtime_error("thrown in the plugin");
  } catch (const std::exception& e) {
    return *e.what();
  }
}
extern "C" void* stream() { return &std::cout; }
