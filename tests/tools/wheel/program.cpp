// Uses what differs on an older glibc: constructors, threads, exceptions, stat(), dlopen(). Prints the
// results. Built and changed by old_glibc_test.py.
#include <dlfcn.h>
#include <sys/stat.h>
#include <cmath>
#include <iostream>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
std::string constructed = std::string("constructed of ") + "parts";
int arguments;
__attribute__((constructor)) void count(int argc, char**, char**) { arguments = argc; }
int main(int argc, char** argv) {
  auto shared = std::make_shared<double>(argc);  // asks __libc_single_threaded
  std::thread([shared, argv] { *shared = std::exp(std::pow(*shared, 2.5) / 100); }).join();
  struct stat state;
  const bool folder = stat("/proc/self", &state) == 0 && S_ISDIR(state.st_mode);
  void* plugin = dlopen(argv[1], RTLD_NOW);
  auto caught = reinterpret_cast<int (*)()>(plugin ? dlsym(plugin, "caught") : nullptr);
  try {
    throw std::runtime_error("thrown");
  } catch (const std::exception& e) {
    std::cout << e.what();
  }
  std::cout << ' ' << constructed << ' ' << arguments << ' ' << *shared << ' ' << folder << ' '
            << (caught ? caught() : -1) << std::endl;
}
