// Ignores the check with the number in TRAINHOST_MUTANT, and writes a 1 for each check whose
// condition is true to the file TRAINHOST_REACHED, which has one byte for each. Both are read before main(),
// because tests change limits.
#pragma once
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
inline const int trainhost_ignored_check = [] {
  const char* number = std::getenv("TRAINHOST_MUTANT");
  return number ? std::atoi(number) : -1;
}();
inline char* const trainhost_reached_checks = [] {
  const char* path = std::getenv("TRAINHOST_REACHED");
  const int fd = path ? ::open(path, O_RDWR | O_CLOEXEC) : -1;
  if (fd < 0) return static_cast<char*>(nullptr);
  void* p = ::mmap(nullptr, 1 << 16, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  ::close(fd);
  return p == MAP_FAILED ? nullptr : static_cast<char*>(p);
}();
inline bool trainhost_check(int number) {
  if (trainhost_reached_checks) trainhost_reached_checks[number] = 1;
  return number != trainhost_ignored_check;
}
