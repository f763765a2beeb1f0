// Replaces the global operator new of the test program. A separate file, so that no test is compiled with
// these definitions visible.
#include "tests/support/counted_allocations.hpp"

#include <atomic>
#include <cstdlib>
#include <new>

namespace trainhost::test {
namespace {

std::atomic<long> g_left{-1};
std::atomic<std::size_t> g_largest{0};

}  // namespace

void fail_allocations_after(long count) { g_left = count; }
std::atomic<std::size_t>& largest_allocation() { return g_largest; }

}  // namespace trainhost::test

void* operator new(std::size_t n) {
  std::atomic<long>& left = trainhost::test::g_left;
  const bool fails = left == 0;
  if (left > 0) --left;
  std::atomic<std::size_t>& largest = trainhost::test::g_largest;
  std::size_t seen = largest.load();
  while (n > seen && !largest.compare_exchange_weak(seen, n)) {
  }
  if (void* p = fails ? nullptr : std::malloc(n ? n : 1)) return p;
  throw std::bad_alloc();
}
/// For std::stable_sort. The sanitizer's own version must not allocate what the operators below free.
void* operator new(std::size_t n, const std::nothrow_t&) noexcept {
  try {
    return operator new(n);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete(void* p, std::size_t) noexcept { std::free(p); }
