// Replaces the global operator new of the test program by one that records the largest size. A separate file,
// so that no test is compiled with these definitions visible.
#include "tests/core/checkpoint/largest_allocation.hpp"

#include <cstdlib>
#include <new>

namespace trainhost::test {

std::atomic<std::size_t>& largest_allocation() {
  static std::atomic<std::size_t> largest{0};
  return largest;
}

}  // namespace trainhost::test

void* operator new(std::size_t n) {
  auto& largest = trainhost::test::largest_allocation();
  std::size_t seen = largest.load();
  while (n > seen && !largest.compare_exchange_weak(seen, n)) {
  }
  if (void* p = std::malloc(n ? n : 1)) return p;
  throw std::bad_alloc();
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete(void* p, std::size_t) noexcept { std::free(p); }
