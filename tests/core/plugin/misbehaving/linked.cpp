// An estimator whose fault is how it is linked: exported symbols, threads that stay, its run-time library.
// It reports value() bytes, so a wrong symbol gives a wrong number. One macro per plugin;
// ../runtime_isolation_test.cpp.
#include <string>
#include <trainhost/trainhost.hpp>
#include <vector>

#ifdef LINKED_OTHER
#define LINKED_ID "openmp-other"
#elif !defined(LINKED_ID)
#define LINKED_ID "sample"
#endif
TH_MANIFEST("id = \"" LINKED_ID "\"\nversion = \"1\"\nkind = \"estimator\"\nfamilies = [\"llama\"]\n");

#if defined(LINKED_THREAD_LOCAL)  // a destructor that a thread of the host calls when it ends, long after
namespace {
struct Kept {
  std::string text = "a text that is too long for its own bytes and lies on the heap";
  ~Kept() { text.clear(); }
};
thread_local Kept kept;
std::uint64_t value() { return kept.text.size(); }
}  // namespace

#elif defined(LINKED_UNIQUE)  // a symbol that the dynamic linker makes one for the whole process
template <class T>
struct TH_EXPORT OneForAll {
  static int number;
};
template <class T>
int OneForAll<T>::number = LINKED_UNIQUE;
namespace {
std::uint64_t value() { return static_cast<std::uint64_t>(OneForAll<int>::number); }
}  // namespace

#elif defined(LINKED_WEAK)  // hundreds of weak symbols around std::, exported because nothing hides them
template <int N>
TH_EXPORT __attribute__((noinline, used)) std::uint64_t count(const std::vector<int>& of) {
  if constexpr (N == 0)
    return of.size();
  else
    return count<N - 1>(of) + 1;
}
namespace {
std::uint64_t value() { return count<500>({1, 2}); }
}  // namespace

#elif defined(LINKED_HELPER)  // a global name that another plugin has too
extern "C" TH_EXPORT int helper() { return LINKED_HELPER; }
namespace {
std::uint64_t value() { return static_cast<std::uint64_t>(helper()); }
}  // namespace

#elif defined(LINKED_OPENMP)  // threads of another OpenMP than the last one
namespace {
std::uint64_t value() {
  int n = 0;
#pragma omp parallel for num_threads(3) reduction(+ : n)
  for (int i = 0; i < 1000; ++i) n += i % 7;
  return static_cast<std::uint64_t>(n);
}
}  // namespace
#endif

namespace {
struct Linked {
  static int match(const th_model&, const th_run&) noexcept { return 7; }
  static void estimate(const th_host&, const th_model&, const th_run&, const th_profile*, th::Tree& tree) {
    tree.exact({"value"}, value());
  }
};
}  // namespace

TH_PLUGIN(LINKED_ID, "1", th::estimator<Linked>())
